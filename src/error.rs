//! The error type of everything off the packet path.
//!
//! What enters: the cause of a failure, and where it occurred. What leaves: one line that says what failed, where (file
//! and offset) and what to do. On the packet path there are no errors, only reasons that are counted (see
//! [`parse::Unusable`](crate::parse::Unusable)).

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of everything off the packet path.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure: what happened, in which file, at which byte, and why.
///
/// `Display` prints one line: `FILE: at byte N: what: cause`.
#[derive(Debug)]
pub struct Error {
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A failure described by `what`, which says what is wrong and, where it helps, what to do.
    pub fn new(what: impl Into<String>) -> Self {
        Error { what: what.into(), path: None, offset: None, cause: None }
    }

    /// This failure with the file in which it occurred.
    #[must_use]
    pub fn in_file(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_path_buf());
        self
    }

    /// This failure with the byte of the (decompressed) input at which it occurred.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// This failure with its cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The byte of the (decompressed) input at which the failure occurred, if there is one.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            // A path comes from the user, but may still hold control characters for the terminal.
            write!(f, "{}: ", escaped(&path.display().to_string()))?;
        }
        if let Some(offset) = self.offset {
            write!(f, "at byte {offset}: ")?;
        }
        f.write_str(&self.what)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// This text with its control characters escaped: a name from outside must not command a terminal.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_where_what_and_why() {
        let error = Error::new("cannot open it").in_file("a.pcap").at(24).because("no such file");
        assert_eq!(error.to_string(), "a.pcap: at byte 24: cannot open it: no such file");
    }

    #[test]
    fn a_hostile_name_is_escaped_and_no_other() {
        assert_eq!(Error::new("no").in_file("a\x1b[2J\nb").to_string(), "a\\u{1b}[2J\\nb: no");
        assert_eq!(Error::new("no").in_file("it's.pcap").to_string(), "it's.pcap: no");
    }
}
