//! `flowpeel snapshot peel`: a snapshot in, its list out.

use crate::agent;
use crate::cli::report::{self, Voice, grouped};
use crate::cli::showing::Showing;
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Outcome, Status};
use crate::error::{Error, Result};
use crate::export::{self, Exporter, Format, Output, Stream};
use crate::list::{MergedList, SnapshotList};
use crate::snapshot::{Kind, SnapshotFile};
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;

/// List the connections of a snapshot, or of a merge with how many routers see each
///
/// By itself a snapshot lists while so few connections are open that they fit its tables (see flowpeel snapshot info);
/// with an earlier list of the same run, while what opened and closed since then does.
///
/// Exit status: 0 the list is complete, 4 it is not (the header says about how much is missing), 1 something failed, 2
/// wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot peel",
    after_help = "Examples:\n  flowpeel snapshot peel --secret-file secret snapshot-20260101T000010Z.flowpeel\n  \
    flowpeel snapshot peel --secret-file secret --base flows-20260101T000000Z.ndjson snapshot.flowpeel"
)]
pub(super) struct Arguments {
    /// The snapshot
    file: PathBuf,

    /// An earlier list in full to start from, plain or compressed; of a merge as many as there are
    #[arg(long, value_name = "LIST")]
    base: Vec<PathBuf>,

    #[command(flatten)]
    secret: SecretOption,

    #[command(flatten)]
    showing: Showing,
}

/// Lists the snapshot or merge.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let left = list(arguments, &arguments.secret.checked()?)?;
    if left == 0 {
        return Ok(Status::Done);
    }
    if voice > Voice::Quiet {
        let hint = match arguments.base.is_empty() {
            true => "name a list from before it with --base",
            false => "name a list that is nearer to it with --base",
        };
        report::warning(&format!("about {} openings and closings could not be listed: {hint}", grouped(left)));
    }
    Ok(Status::Unknown)
}

/// Writes the list of a snapshot, and returns about how many openings and closings are not in it.
fn list(arguments: &Arguments, secret: &Secret) -> Result<u64> {
    let snapshot = SnapshotFile::open(&arguments.file, secret)?;
    if snapshot.header.kind != Kind::Snapshot {
        if arguments.showing.is_asked_for() {
            let what =
                "the list of a merge is NDJSON, whole: leave out --format, --filter, --sort, --limit and --group-by";
            return Err(Error::new(what).in_file(&arguments.file));
        }
        return merged(&snapshot, secret, &arguments.base);
    }
    let vlan_key = snapshot.header.vlan_key;
    if arguments.base.len() > 1 {
        return Err(Error::new("a snapshot starts from one list: name one --base").in_file(&arguments.file));
    }
    let mut list = SnapshotList::new(&snapshot, secret).map_err(|error| error.in_file(&arguments.file))?;
    if let (Some(base), [source]) = (arguments.base.first(), snapshot.header.sources.as_slice()) {
        agent::start_from(&mut list, source, base)?;
    }
    list.apply(snapshot)?;
    let showing = &arguments.showing;
    let format = Format { shape: showing.on_stdout(), selection: showing.selection(), ..Format::default() };
    let mut stdout = Stream::new(std::io::stdout(), "standard output", vlan_key, format);
    list.list(|list| stdout.write(Output::List(list)))?;
    Ok(list.left())
}

/// Writes the list of a merge, and returns about how many openings and closings are not in it.
fn merged(snapshot: &SnapshotFile, secret: &Secret, base: &[PathBuf]) -> Result<u64> {
    let mut known = Vec::new();
    for path in base {
        known.extend(agent::established(path)?);
    }
    let list = MergedList::new(snapshot, secret, known);
    export::write_merged(&mut std::io::stdout().lock(), &list).map_err(|error| error.in_file("standard output"))?;
    Ok(list.left())
}
