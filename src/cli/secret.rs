//! The secret of commands that read what others wrote.

use crate::cli::{Status, report, values};
use crate::error::Result;
use crate::hash::Secret;
use clap::Args;
use std::path::PathBuf;

/// Under which secret snapshots were written.
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
    /// It can not be read, or others may read it.
    pub(super) fn secret(&self) -> Result<Secret> {
        self.secret_file.as_deref().map_or(Ok(Secret::REPLAY), values::secret)
    }

    /// The secret. Where there is none to be had this is said, and the command line is wrong.
    pub(super) fn checked(&self) -> std::result::Result<Secret, Status> {
        self.secret().map_err(|error| {
            report::error(&error, "");
            Status::WrongUsage
        })
    }
}
