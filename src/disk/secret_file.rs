//! Files that hold a secret: 32 hexadecimal digits, which nobody but the owner may read.

use crate::disk::whole_file::{NewFile, Temporary, directory_of};
use crate::error::{Error, Result};
use flowpeel_iblt::hash::{SECRET_SIZE, Secret};
use std::io::{self, Write};
use std::path::Path;

/// The most bytes of a secret file: the digits and a line end. A longer file is something else.
const SECRET_FILE_SIZE_MAX: u64 = 2 * SECRET_SIZE as u64 + 2;

/// The most bytes of another private file: credentials and keys of other programs take a few kilobytes.
const PRIVATE_FILE_SIZE_MAX: u64 = 64 << 10;

/// A secret that is being written.
const TEMPORARY: Temporary = Temporary { prefix: ".secret-", suffix: ".tmp", mode: 0o600 };

/// Reads the secret in a file.
///
/// # Errors
///
/// The file cannot be read, others may read it, or it holds no secret.
pub fn read_secret(path: &Path) -> Result<Secret> {
    let malformed = || Error::new("a secret is 32 hexadecimal digits").in_file(path);
    let hint = "a secret is in a file, and this is none: flowpeel keygen makes one";
    let text = read_private(path, SECRET_FILE_SIZE_MAX, hint)?.ok_or_else(malformed)?;
    let digits = text.trim_end().as_bytes();
    let mut bytes = [0; SECRET_SIZE];
    if digits.len() != 2 * SECRET_SIZE {
        return Err(malformed());
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or_else(malformed);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Ok(Secret::new(bytes))
}

/// Reads the text of a file that nobody but the owner may read, such as the keys and credentials of other programs.
///
/// # Errors
///
/// The file cannot be read, others may read it, or it is longer than any of its kind.
pub fn read_private_text(path: &Path) -> Result<String> {
    let too_long = || Error::new("this is longer than any key or credentials").in_file(path);
    read_private(path, PRIVATE_FILE_SIZE_MAX, "this is no file")?.ok_or_else(too_long)
}

/// The text of a private file; `None` if it is longer than this. `no_file` is the message for what is none.
fn read_private(path: &Path, size_max: u64, no_file: &str) -> Result<Option<String>> {
    let cannot = |error: io::Error| Error::new("cannot read the secret").in_file(path).because(error);
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if !metadata.is_file() {
        return Err(Error::new(no_file).in_file(path));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0 {
        return Err(Error::new("others may read this secret: chmod 600 it").in_file(path));
    }
    if metadata.len() > size_max {
        return Ok(None);
    }
    std::fs::read_to_string(path).map(Some).map_err(cannot)
}

/// Writes a secret to a new file.
///
/// # Errors
///
/// There is a file of that name already, or it cannot be written: then there is none.
pub fn write_new_secret(path: &Path, bytes: [u8; SECRET_SIZE]) -> Result<()> {
    let mut digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.push('\n');
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::new("there is a file already, and a secret is never overwritten").in_file(path)
        }
        _ => Error::new("cannot write the secret").in_file(path).because(error),
    };
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(cannot(io::ErrorKind::AlreadyExists.into()));
    }
    // What a try that was killed has left. One that cannot be removed disturbs nothing.
    drop(TEMPORARY.remove_leftovers(directory_of(path)));
    let file = NewFile::begin(path, &TEMPORARY).map_err(cannot)?;
    file.file().write_all(digits.as_bytes()).and_then(|()| file.finish_as_new()).map_err(cannot)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_private_and_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"000102030405060708090a0b0c0d0e0f\n").unwrap();
        assert_eq!(read_secret(file.path()).unwrap(), Secret::new(std::array::from_fn(|at| at as u8)));
        file.write_all(b"00").unwrap();
        assert!(read_secret(file.path()).unwrap_err().to_string().contains("32 hexadecimal digits"));
        for other in [Path::new("/dev/null"), &std::env::temp_dir()] {
            assert!(read_secret(other).unwrap_err().to_string().contains("a secret is in a file"));
        }
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(file.path(), mode).unwrap();
            assert!(read_secret(file.path()).unwrap_err().to_string().contains("chmod 600"));
        }
    }

    #[test]
    fn a_new_secret_can_be_read_back_and_is_never_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secret");
        write_new_secret(&path, [0xa5; SECRET_SIZE]).unwrap();
        assert_eq!(read_secret(&path).unwrap(), Secret::new([0xa5; SECRET_SIZE]));
        assert!(write_new_secret(&path, [1; SECRET_SIZE]).unwrap_err().to_string().contains("never overwritten"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", "a5".repeat(SECRET_SIZE)));
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
