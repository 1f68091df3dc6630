//! Lists -> the formats and places that users want them in.
//!
//! What enters: finished lists. What leaves: NDJSON on a stream, or one file a list. One small trait for all.

mod community_id;
mod directory;
mod flow_line;
mod ndjson;
mod timestamp;

pub use community_id::community_id;
pub use directory::Directory;
pub use ndjson::Ndjson;

use crate::error::Result;
use crate::flow_list::List;

/// Writes lists somewhere. Any function that takes a list and can fail is one.
pub trait Exporter: Send {
    /// Writes one list.
    ///
    /// # Errors
    ///
    /// The list could not be written; the caller stops.
    fn write(&mut self, list: &List) -> Result<()>;
}

impl<F: FnMut(&List) -> Result<()> + Send> Exporter for F {
    fn write(&mut self, list: &List) -> Result<()> {
        self(list)
    }
}
