//! The secret of commands that read files of another run.

use crate::cli::Failure;
use crate::disk::read_secret;
use crate::error;
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;

/// The option that names the secret under which snapshots were written.
#[derive(Args)]
pub(super) struct SecretOption {
    /// The secret under which it was written [default: that of replays]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretOption {
    /// The secret.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or others may read it.
    pub(super) fn secret(&self) -> error::Result<Secret> {
        self.secret_file.as_deref().map_or(Ok(Secret::REPLAY), read_secret)
    }

    /// The secret, for commands in which one that cannot be had is wrong usage.
    pub(super) fn checked(&self) -> Result<Secret, Failure> {
        self.secret().map_err(Failure::wrong_usage)
    }
}
