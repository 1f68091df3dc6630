//! Connections that have ended -> an archive on disk, and the answer to where a connection was.
//!
//! It takes records of connections that close, and lists of those that are open, and gives compressed segments, rotated
//! by size and age and removed when they are too old; an index over them; and every occurrence of a connection or an
//! address that is asked for.
//!
//! An archive is a directory:
//!
//! | file | what it is |
//! |---|---|
//! | `segment-N.fpa` | a sealed segment: sorted entries, a filter of its connections and one of its addresses |
//! | `segment-N.log` | the log of the segment that is being filled |
//! | `index-A-B.bfield` | the index of the segments A to B: a B-field from connection to segment |
//! | `open.fpa` | what was open when it was last written |
//! | `newest` | what the newest segment or log is, so that its loss shows |
//!
//! All files but the log are written under a temporary name and renamed when they are on the disk. The log consists of
//! blocks with checksums. So a crash loses at most what was not flushed, and the next start reports it.

mod ages;
mod block;
mod entry;
mod feed;
mod filter;
mod find;
mod index;
mod log;
mod names;
mod newest;
mod order;
mod resume;
mod retention;
mod scan;
mod segment;
mod sorter;
mod thread;
mod writer;

pub use ages::Ages;
pub use block::ARCHIVE_BLOCK_ENTRIES_MAX;
pub use entry::{Entry, Fate};
pub use feed::ListFeed;
pub(crate) use feed::in_parts;
pub use find::{Answer, Endpoint, Explanation, Findings, Query, Question, find, search};
pub use index::{Size, index_missing, measure};
pub use log::RecoveredLog;
pub(crate) use order::Order;
pub use resume::SavedRun;
pub use segment::{SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN};
pub use thread::{Archive, Summary};
pub use writer::{ArchiveConfig, OpenList, Recovery, Writer, Written};
