//! Lists, snapshots and reports of sources -> the formats and places that users want them in.
//!
//! Lists are NDJSON, csv, Parquet (a feature of the build) or a table for people, on a stream or in one file each,
//! whole or as what changed since the one before, plain or compressed. Everything that writes an [`Output`] is an
//! [`Exporter`].

mod archived_files;
mod community_id;
mod csv;
mod decimal;
mod directory;
mod eve;
mod event_files;
mod event_lines;
mod file_name;
mod flow_line;
mod hour_files;
mod ipfix;
mod joined_file;
mod lines;
mod list_file;
mod output_directory;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet/absent.rs"]
mod parquet;
mod retention;
mod series;
mod side_by_side;
mod snapshots;
mod source_list;
mod stream;
mod sums;
mod table;
mod timestamp;
mod unpacked;

pub use archived_files::{ArchivedFiles, ArchivedFormat};
pub use community_id::community_id;
pub use csv::archived as archived_csv;
pub use directory::{Directory, ListSpan, WrittenList};
pub use eve::append_archived_eve;
pub use event_files::{EventFiles, LostEvents};
pub use event_lines::{EventLines, Gap, Logged, LoggedLine};
pub(crate) use file_name::events_stem;
pub use file_name::{ListName, SnapshotName};
pub use flow_line::{ArchivedFlow, Change, FlowEvent, append_archived, append_joined};
pub use ipfix::IpfixMessages;
pub use joined_file::JoinedFile;
pub use lines::ListId;
pub use list_file::{FileLine, ListFacts, ListFile, ListedRow};
pub use retention::{KEPT_AGED_MIN, KEPT_AGED_SHARE, KEPT_FILES_CHECK_LISTS, KEPT_FILES_MAX, Keep};
pub use series::{CHANGES_FULL_LISTS_MAX, Format, Shape};
pub use snapshots::SnapshotDirectory;
pub use source_list::{SourceFigures, SourceList, SourceListHeader};
pub use stream::Stream;
pub use sums::{Side, write_difference, write_merged, write_snapshot};
pub use table::Look;
#[cfg(feature = "cli")]
pub(crate) use table::{age_text, end_text, since_text};
pub use timestamp::{TimeFormatter, rfc3339};
pub use unpacked::unpacked;

use crate::error::Result;
use crate::list::List;
use crate::snapshot::SnapshotFile;
use crate::sources::Report;
use crate::state::{Decoder, Encoder};

/// What an exporter writes.
#[derive(Clone, Copy)]
pub enum Output<'a> {
    /// The list of an interval.
    List(&'a List<'a>),
    /// The snapshot of the interval whose list was written before it, or instead of a list.
    Snapshot(&'a SnapshotFile),
    /// The sources that opened connections, beside the list that was written last.
    Sources(&'a Report),
}

/// An exporter. Any function that takes a list and returns a result is one, which writes lists only.
pub trait Exporter: Send {
    /// Writes one output. What it has no use for it ignores.
    ///
    /// # Errors
    ///
    /// The output could not be written. The caller stops.
    fn write(&mut self, output: Output) -> Result<()>;

    /// What a saved state holds of it, if its next output depends on those before.
    fn resumable(&mut self) -> Option<&mut dyn Resumable> {
        None
    }
}

/// An exporter whose next output depends on those before, as changes do on the list before them.
pub trait Resumable {
    /// Encodes what the next output depends on, for a saved state.
    fn save(&self, encoder: &mut Encoder);

    /// Restores what another exporter in the same format saved, of any kind.
    ///
    /// # Errors
    ///
    /// The bytes are not those of such an exporter. It must not be used then.
    fn restore(&mut self, decoder: &mut Decoder) -> Result<()>;

    /// Has the next list written in full: what was restored may lack lists that were written since it was saved.
    fn build_anew(&mut self);
}

impl<F: FnMut(&List) -> Result<()> + Send> Exporter for F {
    fn write(&mut self, output: Output) -> Result<()> {
        match output {
            Output::List(list) => self(list),
            Output::Snapshot(_) | Output::Sources(_) => Ok(()),
        }
    }
}
