//! Files that are plain or compressed with zstd -> their text.

use crate::capture::ZSTD_WINDOW_LOG_MAX;
use std::io::{self, BufRead, BufReader, Read};

/// The text of a file with lists or sources, compressed or not, which its first bytes show, never its name.
///
/// # Errors
///
/// The file cannot be read.
pub fn unpacked(file: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(file);
    if !file.fill_buf()?.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
        return Ok(Box::new(file));
    }
    let mut decoder = zstd::Decoder::with_buffer(file)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(Box::new(BufReader::new(decoder)))
}
