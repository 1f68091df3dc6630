//! `flowpeel peel`: a snapshot in, its list out.

use crate::agent;
use crate::cli::Status;
use crate::cli::report::{self, Voice, grouped};
use crate::cli::secret::SecretOption;
use crate::error::Result;
use crate::export::{Exporter, Format, Stream};
use crate::flow_list::SnapshotList;
use crate::snapshot::file::SnapshotFile;
use clap::Args;
use std::path::PathBuf;

/// Lists the connections of a snapshot
///
/// By itself a snapshot lists while so few connections are open that they fit its tables (see flowpeel info); with an earlier
/// list of the same run, while what opened and closed since then does.
///
/// Exit status: 0 when all came out, 1 when something failed or did not come out (what did is listed, and the header says
/// about how much is missing), 2 when the command line is wrong.
#[derive(Args)]
#[command(
    display_name = "flowpeel peel",
    after_help = "Examples:\n  flowpeel peel --secret-file secret snapshot-20260101T000010Z.flowpeel\n  \
    flowpeel peel --secret-file secret --base flows-20260101T000000Z.ndjson snapshot-20260101T000010Z.flowpeel"
)]
pub(super) struct Arguments {
    /// The snapshot
    file: PathBuf,

    /// An earlier list in full to start from, plain or compressed
    #[arg(long, value_name = "LIST")]
    base: Option<PathBuf>,

    #[command(flatten)]
    secret: SecretOption,
}

/// Lists it.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Status {
    match list(arguments) {
        Ok(0) => Status::Done,
        Ok(left) => {
            if voice > Voice::Quiet {
                let hint = match arguments.base {
                    None => "name a list from before it with --base",
                    Some(_) => "name a list that is nearer to it with --base",
                };
                report::warning(&format!("about {} openings and closings did not come out: {hint}", grouped(left)));
            }
            Status::Failed
        }
        Err(error) => {
            report::error(&error, "");
            Status::Failed
        }
    }
}

/// Writes the list; about how much is not in it.
fn list(arguments: &Arguments) -> Result<u64> {
    let secret = arguments.secret.secret()?;
    let snapshot = SnapshotFile::open(&arguments.file, &secret)?;
    let vlan_key = snapshot.header.vlan_key;
    let mut list = SnapshotList::new(&snapshot, &secret).map_err(|error| error.in_file(&arguments.file))?;
    if let (Some(base), [source]) = (&arguments.base, snapshot.header.sources.as_slice()) {
        agent::start_from(&mut list, source, base)?;
    }
    list.apply(snapshot)?;
    let mut stdout = Stream::new(std::io::stdout(), "standard output", vlan_key, Format::default());
    list.list(|list| stdout.write(list))?;
    Ok(list.left())
}
