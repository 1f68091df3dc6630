//! Lists -> the formats and places that users want them in.
//!
//! What enters: finished lists. What leaves: NDJSON on a stream, or one file a list, whole lists or what changed between them,
//! plain or compressed. One small trait for all.

mod community_id;
mod directory;
mod file_name;
mod flow_line;
mod lines;
mod output_directory;
mod retention;
mod series;
mod side_by_side;
mod snapshots;
mod source_lines;
mod stream;
mod sums;
mod timestamp;
mod unpacked;

pub use community_id::community_id;
pub use directory::{Directory, ListSpan, WrittenList};
pub use file_name::SnapshotName;
pub use retention::Keep;
pub use series::Format;
pub use snapshots::SnapshotDirectory;
pub use stream::Stream;
pub use sums::{Side, write_difference, write_merged, write_snapshot};
pub use timestamp::rfc3339;
pub use unpacked::unpacked;

use crate::error::{Error, Result};
use crate::flow_list::List;
use crate::snapshot::file::SnapshotFile;
use crate::sources::Report;
use crate::state::{Decoder, Encoder};

/// Writes lists somewhere. Any function that takes a list and can fail is one.
pub trait Exporter: Send {
    /// Writes one list.
    ///
    /// # Errors
    ///
    /// The list could not be written; the caller stops.
    fn write(&mut self, list: &List) -> Result<()>;

    /// Writes the snapshot as of the list that was written before it, or instead of one. Whoever is not asked for snapshots does
    /// nothing with them.
    ///
    /// # Errors
    ///
    /// The snapshot could not be written; the caller stops.
    fn snapshot(&mut self, _snapshot: &SnapshotFile) -> Result<()> {
        Ok(())
    }

    /// Writes who opened connections, beside the list that was written last; where there is no place for it nothing is done.
    ///
    /// # Errors
    ///
    /// It could not be written; the caller stops.
    fn write_sources(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }

    /// What went wrong beside the lists, which are all whole, since this was last asked: something for an operator to see
    /// to. What goes on failing is told seldom.
    fn warning(&mut self) -> Option<Error> {
        None
    }

    /// What the next list depends on beside itself, as the bytes of a saved state: nothing, unless an exporter says so.
    fn save(&self, _encoder: &mut Encoder) {}

    /// Goes on where another stood that wrote in the same format; whatever it is, it has saved the same.
    ///
    /// # Errors
    ///
    /// The bytes are not those of such an exporter; it is then to be given up.
    fn restore(&mut self, _decoder: &mut Decoder) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&List) -> Result<()> + Send> Exporter for F {
    fn write(&mut self, list: &List) -> Result<()> {
        self(list)
    }
}
