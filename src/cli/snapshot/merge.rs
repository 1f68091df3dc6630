//! `flowpeel snapshot merge`: the snapshots of several routers in, their sum out.

use crate::cli::report::{self, Voice, grouped};
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Outcome, Status};
use crate::error::Result;
use crate::export;
use crate::snapshot::SnapshotFile;
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;

/// Add up the snapshots of several routers
///
/// A merge lists every connection once, with how many of the routers saw it. Merges can be merged further, in any
/// order. All routers need the same secret and tables of the same size: give them the same --churn and --vlan-key.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot merge",
    after_help = "Example:\n  flowpeel snapshot merge --secret-file secret east.flowpeel west.flowpeel -o network.flowpeel"
)]
pub(super) struct Arguments {
    /// The snapshots
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The file to write, whole or not at all; no pipe and no link
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    secret: SecretOption,
}

/// Adds the snapshots up.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let text = merge(arguments, &arguments.secret.checked()?)?;
    if voice > Voice::Quiet {
        report::line(format_args!("{text}"));
    }
    Ok(Status::Done)
}

/// Writes the sum, and returns a line about it.
fn merge(arguments: &Arguments, secret: &Secret) -> Result<String> {
    let mut sum: Option<SnapshotFile> = None;
    for path in &arguments.files {
        let file = SnapshotFile::open(path, secret)?;
        match &mut sum {
            None => sum = Some(file),
            Some(sum) => sum.add(&file).map_err(|error| error.in_file(path))?,
        }
    }
    // The command line requires at least two.
    let Some(sum) = sum else { return Ok(String::new()) };
    let size = export::write_snapshot(&arguments.out, &sum, secret)?;
    let routers = grouped(sum.header.sources.len() as u64);
    let seen = grouped(u64::try_from(sum.surplus()).unwrap_or(0));
    Ok(format!("{routers} routers with {seen} connections, counted on each router: {} bytes", grouped(size)))
}
