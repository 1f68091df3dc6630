//! `flowpeel keygen`: a new secret for a site, in a file that only its owner may read.

use crate::cli::{Outcome, Status, values};
use crate::error::{Error, Result};
use clap::Args;
use flowpeel_iblt::hash::SECRET_SIZE;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    make(&arguments.file)?;
    Ok(Status::Done)
}

fn make(path: &Path) -> Result<()> {
    let bytes: [u8; SECRET_SIZE] = values::random_bytes()?;
    let mut digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.push('\n');
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::new("there is a file already, and a secret is never overwritten").in_file(path)
        }
        _ => Error::new("cannot write the secret").in_file(path).because(error),
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(cannot)?;
    let written = file.write_all(digits.as_bytes()).and_then(|()| file.sync_all());
    // Half a secret would block the next try, and is good for nothing.
    written.inspect_err(|_| drop(std::fs::remove_file(path))).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_secret_can_be_read_back_and_is_never_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (place.path().join("one"), place.path().join("other"));
        make(&one).unwrap();
        make(&other).unwrap();
        assert_ne!(values::secret(&one).unwrap(), values::secret(&other).unwrap());
        let before = std::fs::read(&one).unwrap();
        assert_eq!(before.len(), 2 * SECRET_SIZE + 1);
        assert!(make(&one).unwrap_err().to_string().contains("never overwritten"));
        assert_eq!(std::fs::read(&one).unwrap(), before);
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&one).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
