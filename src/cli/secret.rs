//! The secret of commands that read files of another run.

use crate::cli::values;
use crate::error::Result;
use crate::hash::Secret;
use clap::Args;
use std::path::PathBuf;

/// The option that names the secret under which snapshots were written.
#[derive(Args)]
pub(super) struct SecretOption {
    /// The file with the secret of those who wrote it [default: that of replays that name none]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretOption {
    /// The secret.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or others may read it.
    pub(super) fn secret(&self) -> Result<Secret> {
        self.secret_file.as_deref().map_or(Ok(Secret::REPLAY), values::secret)
    }
}
