//! `flowpeel keygen`: a new secret for a site, in a file that only its owner may read.

use crate::cli::{Outcome, Status, values};
use crate::disk::write_new_secret;
use clap::Args;
use std::path::PathBuf;

/// Make a secret for --secret-file
///
/// Routers whose snapshots are compared or merged need the same one, and so do the readers of these. An existing file
/// is never overwritten: snapshots made under it could not be read any more.
#[derive(Args)]
#[command(display_name = "flowpeel keygen", after_help = "Example:\n  flowpeel keygen /etc/flowpeel/secret")]
pub(super) struct Arguments {
    /// The file, which must not exist yet
    file: PathBuf,
}

/// Makes a secret.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    write_new_secret(&arguments.file, values::random_bytes()?)?;
    Ok(Status::Done)
}
