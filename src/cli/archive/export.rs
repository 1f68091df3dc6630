//! `flowpeel archive export`: an archive in, files by the hour out, in a format that other programs read.

use crate::cli::find::{self, Destination, PartOfArchive, Printer};
use crate::cli::report::{self, Voice};
use crate::cli::showing::ShapeKind;
use crate::cli::{Outcome, Status};
use crate::error::escaped;
use clap::Args;
use std::path::PathBuf;

/// Write an archive, or a part of it, to files by the hour
///
/// Every connection stands in the directory of the hour in which it ended or was last known to be open:
/// OUT/date=2026-01-01/hour=08/connections-0001.parquet. Each file is whole or not there.
///
/// Exit status: 0 all was written, 3 there was nothing to write, 1 something is damaged or failed (what can be read is
/// written all the same), 2 wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel archive export",
    after_help = "Examples:\n  flowpeel archive export archive/ --format csv --out exported/\n  \
    flowpeel archive export archive/ --format parquet --out exported/ --since 2026-01-01 --until 2026-01-02"
)]
pub(super) struct Arguments {
    /// The directory of the archive
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// ndjson, eve, csv, or parquet if flowpeel was built with --features parquet
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: ShapeKind,

    /// The directory to write to, with nothing in it
    #[arg(long, value_name = "OUT")]
    out: PathBuf,

    #[command(flatten)]
    part: PartOfArchive,
}

/// Exports what the arguments ask for.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let printer = Printer::new(Destination::files(&arguments.out, arguments.format)?, None);
    let question = arguments.part.question(None);
    let (status, written) = find::answer(&arguments.directory, question, printer, voice == Voice::Verbose)?;
    if voice > Voice::Quiet && matches!(status, Status::Done) {
        let directory = escaped(&arguments.out.to_string_lossy());
        report::line(format_args!("exported {} connections to {directory}", report::grouped(written)));
    }
    Ok(status)
}
