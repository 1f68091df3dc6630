//! Files that were written plain or compressed with zstd -> their text.

use crate::config::ZSTD_WINDOW_LOG_MAX;
use std::io::{self, BufRead, BufReader, Read};

/// What a file of lists or sources holds, compressed or not: that is told by its first bytes, never by its name.
///
/// # Errors
///
/// It can not be read.
pub fn unpacked(file: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(file);
    if !file.fill_buf()?.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
        return Ok(Box::new(file));
    }
    let mut decoder = zstd::Decoder::with_buffer(file)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(Box::new(BufReader::new(decoder)))
}
