//! Lists -> the formats and places that users want them in.
//!
//! What enters: finished lists. What leaves: NDJSON on a stream or in one file for each list, with whole lists or with
//! what changed between them, plain or compressed. All exporters share one small trait.

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
pub use retention::{KEPT_AGED_MIN, KEPT_AGED_SHARE, KEPT_FILES_CHECK_LISTS, KEPT_FILES_MAX, Keep};
pub use series::{CHANGES_FULL_LISTS_MAX, Format};
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

/// An exporter of lists. Any function that takes a list and returns a result is one.
pub trait Exporter: Send {
    /// Writes one list.
    ///
    /// # Errors
    ///
    /// The list could not be written. The caller stops.
    fn write(&mut self, list: &List) -> Result<()>;

    /// Writes the snapshot as of the list that was written before it, or instead of a list. The default does nothing.
    ///
    /// # Errors
    ///
    /// The snapshot could not be written. The caller stops.
    fn snapshot(&mut self, _snapshot: &SnapshotFile) -> Result<()> {
        Ok(())
    }

    /// Writes the sources that opened connections, beside the list that was written last. The default does nothing.
    ///
    /// # Errors
    ///
    /// The report could not be written. The caller stops.
    fn write_sources(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }

    /// What has gone wrong since this was last called that affects no list: something for an operator to look at. What
    /// keeps failing is reported less and less often.
    fn warning(&mut self) -> Option<Error> {
        None
    }

    /// Encodes what the next list depends on beside itself, for a saved state. The default encodes nothing.
    fn save(&self, _encoder: &mut Encoder) {}

    /// Restores what another exporter of the same format saved, whatever its kind.
    ///
    /// # Errors
    ///
    /// The bytes are not those of such an exporter. It must not be used then.
    fn restore(&mut self, _decoder: &mut Decoder) -> Result<()> {
        Ok(())
    }

    /// What was restored may lack lists that were written since it was saved: the next list builds on none.
    fn build_anew(&mut self) {}
}

impl<F: FnMut(&List) -> Result<()> + Send> Exporter for F {
    fn write(&mut self, list: &List) -> Result<()> {
        self(list)
    }
}
