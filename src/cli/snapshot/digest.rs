//! `flowpeel snapshot digest`: a snapshot in, a small part of it out that is enough to find a few differences.

use crate::cli::report::{self, Voice, grouped};
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Outcome, Status, values};
use crate::export;
use crate::snapshot::SnapshotFile;
use clap::Args;
use std::path::PathBuf;

/// Make a small file of a snapshot, enough to find its differences from another
///
/// Its size depends only on the number of differences that flowpeel snapshot diff can list with it, about fifty bytes
/// each, and not on how many connections are open. If there are more, diff reports for how many to make the digest.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot digest",
    after_help = "Example:\n  flowpeel snapshot digest --secret-file secret east.flowpeel --differences 500 -o east.digest\n  \
    flowpeel snapshot diff --secret-file secret east.digest west.flowpeel"
)]
pub(super) struct Arguments {
    /// The snapshot
    file: PathBuf,

    /// How many connections may differ, those of both sides together
    #[arg(long, value_name = "N", value_parser = values::count)]
    differences: u64,

    /// The file to write, whole or not at all; no pipe and no link
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    secret: SecretOption,
}

/// Makes the digest.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let secret = arguments.secret.checked()?;
    let digest = SnapshotFile::open(&arguments.file, &secret)?.digest(arguments.differences);
    let size = export::write_snapshot(&arguments.out, &digest, &secret)?;
    let (v4, v6) = digest.item_counts();
    if voice > Voice::Quiet {
        report::line(format_args!(
            "{} bytes, enough for {} differences of IPv4 and {} of IPv6",
            grouped(size),
            grouped(v4),
            grouped(v6)
        ));
        if v4.saturating_add(v6) < arguments.differences {
            report::warning(
                "the snapshot's tables are too small for a digest of so many differences: compare the snapshot itself",
            );
        }
    }
    Ok(Status::Done)
}
