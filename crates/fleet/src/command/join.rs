//! `flowpeel-fleet join`: the lists of several routers as one, with who sees what.

use super::{Failure, Outcome, report};
use crate::joined_list;
use crate::network::{Health, Network};
use crate::newest;
use clap::{Args, ValueEnum};
use flowpeel::disk::whole_file::{NewFile, Temporary, is_file_or_free};
use flowpeel::error::{Error, Result};
use flowpeel::export::JoinedFile;
use std::io;
use std::path::{Path, PathBuf};

/// The temporary name of a view while it is being written.
const TEMPORARY: Temporary = Temporary { prefix: ".joined-", suffix: ".tmp", mode: 0o640 };

/// Join the newest lists of routers: each connection once, with the names of the routers that see it
///
/// Lists are those that `flowpeel live --out`, `flowpeel snapshot collect` or `flowpeel-fleet collect` wrote. A router
/// is named by the folder of its lists. The header says which routers are in the view and which are behind.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet join",
    after_help = "Examples:\n  flowpeel-fleet join --from lists > network.ndjson\n  flowpeel-fleet join --from /data/east --from /data/west \
    --out network.ndjson"
)]
pub(super) struct Arguments {
    /// A directory with the lists of a router, or with a folder of lists for each; may be given several times
    #[arg(long, value_name = "DIR", required = true)]
    from: Vec<PathBuf>,

    /// Write to this file, whole or not at all [default: standard output]; Parquet to a directory
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,

    /// NDJSON, or Parquet with the columns of lists and the routers, in a file below --out by the hour, if
    /// flowpeel-fleet was built with --features parquet
    #[arg(long, value_enum, default_value_t = Form::Ndjson)]
    format: Form,
}

/// What a view is written as.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Ndjson,
    Parquet,
}

/// Joins what is there now.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    if arguments.format == Form::Parquet {
        if arguments.out.is_none() {
            let what = "Parquet is written to a file below a directory: name one with --out DIR";
            return Err(Failure::wrong_usage(Error::new(what)));
        }
        JoinedFile::check().map_err(Failure::wrong_usage)?;
    }
    let places = newest::places(&arguments.from).map_err(Failure::wrong_usage)?;
    if places.is_empty() {
        let what = "there are no lists here, and no folders with lists: flowpeel live --out DIR writes them";
        return Err(Failure::wrong_usage(Error::new(what)));
    }
    let network = Network::read(&places)?;
    match &arguments.out {
        Some(directory) if arguments.format == Form::Parquet => {
            let path = joined_list::write_parquet(directory, &network)?;
            report::line(format_args!("{}", path.display()));
        }
        Some(path) => write_file(path, &network)?,
        None => {
            let cannot = |error: io::Error| Error::new("cannot write the view").because(error);
            joined_list::write(&mut io::stdout().lock(), &network).map_err(cannot)?;
        }
    }
    for router in &network.routers {
        if let Some(problem) = &router.problem {
            report::warning(format_args!("{}: {problem}", report::printable(&router.name)));
        } else if router.health != Health::Reporting {
            report::warning(format_args!("{} is {}", report::printable(&router.name), router.health.name()));
        }
    }
    let counts = [(network.joined.len() as u64, "connections"), (network.member_count() as u64, "routers in the view")];
    report::line(format_args!("{} of {}", report::counts(&counts), network.routers.len()));
    Ok(network.routers.iter().all(|router| router.problem.is_none()))
}

fn write_file(path: &Path, network: &Network) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot write the view").in_file(path).because(error);
    if !is_file_or_free(path) {
        return Err(Error::new("this is no file: name one, or leave --out away").in_file(path));
    }
    let file = NewFile::begin(path, &TEMPORARY).map_err(cannot)?;
    joined_list::write(&mut file.file(), network).map_err(cannot)?;
    file.finish().map_err(cannot)?;
    Ok(())
}
