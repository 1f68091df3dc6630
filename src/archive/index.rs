//! The index from a connection to its segment: a B-field for every group of segments.
//!
//! The file of a group says in which of its segments a connection is. A connection that is in several of them, because
//! its ports were used again, is "indeterminate" there, and the filters of the group's segments are queried instead. A
//! B-field is never changed: when segments expire it names some that are gone, and it is removed with the last of them.
//! It is made on a thread of its own from the segments alone, so one that is missing is made again at the next start.

use crate::archive::entry::Hasher;
use crate::archive::names::{FileName, Inventory};
use crate::archive::segment::{SEGMENT_ENTRY_SIZE_MIN, SEGMENT_SIZE_MAX, Segment, TEMPORARY};
use crate::disk::whole_file::NewFile;
use crate::error::{Error, Result};
use crossbeam::channel::{Receiver, Sender, unbounded};
use flowpeel_bfield::{Builder, Field, FieldFile, FileError, FileErrorParts, Found, Goal, Pair, Pass, Plan};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Segments that share one B-field. Segments that have none yet are asked one by one, and each is wrong once in 2,000
/// times.
const ARCHIVE_GROUP_SEGMENTS: u32 = 32;

/// How often a B-field names a segment for a connection that is not there: rarely, even where thousands of fields are
/// asked.
const ARCHIVE_INDEX_FALSE_POSITIVE_RATE: f64 = 1.0 / 4_096.0;

/// The most that a B-field takes for a connection, in bytes, at [`ARCHIVE_INDEX_FALSE_POSITIVE_RATE`] and for
/// [`ARCHIVE_GROUP_SEGMENTS`].
const ARCHIVE_INDEX_ENTRY_SIZE: u64 = 5;

/// The first and the last number of the group that a segment belongs to.
pub(super) fn group_of(number: u32) -> (u32, u32) {
    let first = number.saturating_sub(1) / ARCHIVE_GROUP_SEGMENTS * ARCHIVE_GROUP_SEGMENTS + 1;
    (first, first.saturating_add(ARCHIVE_GROUP_SEGMENTS - 1))
}

/// The groups of an archive that are whole and have no index.
fn missing(inventory: &Inventory) -> Vec<(u32, u32)> {
    let last_number = inventory.last_number();
    let mut groups: Vec<_> = inventory.segments.keys().map(|number| group_of(*number)).collect();
    groups.dedup();
    groups.retain(|group| group.1 <= last_number && !inventory.indexes.contains_key(group));
    // A log that is being filled belongs to no whole group.
    groups.retain(|group| inventory.logs.range(group.0..=group.1).next().is_none());
    groups
}

fn inventory(directory: &Path) -> Result<Inventory> {
    let cannot = |error: io::Error| Error::new("cannot look through it").in_file(directory).because(error);
    Inventory::of(directory).map_err(cannot)
}

/// Makes the index of a group; none if all of its segments are gone.
fn build(directory: &Path, (first, last): (u32, u32)) -> Result<()> {
    let inventory = inventory(directory)?;
    let mut segments = Vec::new();
    for number in inventory.segments.range(first..=last).map(|(number, _)| *number) {
        segments.push((number, Segment::open(&FileName::Segment(number).path_in(directory), number)?));
    }
    // A trailer cannot claim more entries than the largest segments have.
    let entries_of = |segment: &Segment| segment.trailer().entry_count.min(SEGMENT_SIZE_MAX / SEGMENT_ENTRY_SIZE_MIN);
    let key_count = segments.iter().map(|(_, segment)| entries_of(segment)).sum();
    if key_count == 0 {
        return Ok(());
    }
    let path = FileName::Index(first, last).path_in(directory);
    let cannot = |what: String| Error::new("cannot make this index").in_file(&path).because(what);
    let goal = Goal {
        false_positive_rate: ARCHIVE_INDEX_FALSE_POSITIVE_RATE,
        key_count,
        value_count: u64::from(ARCHIVE_GROUP_SEGMENTS),
    };
    let plan = Plan::new(&goal).map_err(|error| cannot(error.to_string()))?;
    let hasher = Hasher::new();
    let mut builder = Builder::new(&plan);
    let mut pairs = Vec::new();
    loop {
        for (number, segment) in &segments {
            let value = number - first;
            let mut refused = Ok(());
            let damage = segment.entries(|block| {
                pairs.clear();
                pairs.extend(block.iter().map(|entry| Pair { hash: hasher.connection(&entry.key), value }));
                refused = builder.add(&pairs).and(std::mem::replace(&mut refused, Ok(())));
            })?;
            refused.map_err(|error| cannot(error.to_string()))?;
            // Without all of its connections, the index would answer for some that they are nowhere.
            if let Some(damage) = damage {
                return Err(damage);
            }
        }
        if builder.end_pass() == Pass::Done {
            break;
        }
    }
    save(&builder.finish().field, &path)
}

/// Writes an index, whole or not at all.
fn save(field: &Field, path: &Path) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot write the index").in_file(path).because(error);
    let file = NewFile::begin(path, &TEMPORARY).map_err(cannot)?;
    flowpeel_bfield::write(field, &mut BufWriter::new(file.file())).map_err(cannot)?;
    file.finish().map(drop).map_err(cannot)
}

/// What the index in this file has about the connection with this hash.
pub(super) fn look_up(path: &Path, hash: u128) -> Result<Found> {
    FieldFile::open(path).and_then(|mut field| field.look_up(hash)).map_err(|error: FileError| {
        let FileErrorParts { what, path, offset, cause } = error.into_parts();
        let error = path.into_iter().fold(Error::new(what), Error::in_file);
        let error = offset.into_iter().fold(error, Error::at);
        cause.into_iter().fold(error, Error::because)
    })
}

/// Makes the missing indexes of whole groups of segments. Returns how many.
///
/// # Errors
///
/// An index could not be made. Those before it are there.
pub fn index_missing(directory: &Path) -> Result<u64> {
    let inventory = inventory(directory)?;
    let groups = missing(&inventory);
    groups.iter().try_for_each(|group| build(directory, *group))?;
    Ok(groups.len() as u64)
}

/// The size of an archive on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of connections in sealed segments.
    pub entries: u64,
    /// The number of sealed segments.
    pub segments: u64,
    /// The size of the segments without their filters, in bytes.
    pub blocks_size: u64,
    /// The size of the filters of connections and addresses in them, in bytes.
    pub filters_size: u64,
    /// The size of the B-fields, in bytes.
    pub indexes_size: u64,
}

/// Measures the size of an archive on the disk.
///
/// # Errors
///
/// The archive cannot be read, or a segment's end is damaged.
pub fn measure(directory: &Path) -> Result<Size> {
    let inventory = inventory(directory)?;
    let mut size = Size { indexes_size: inventory.indexes.values().sum(), ..Size::default() };
    for (number, file_size) in &inventory.segments {
        let segment = Segment::open(&FileName::Segment(*number).path_in(directory), *number)?;
        size.entries += segment.trailer().entry_count;
        size.segments += 1;
        size.filters_size += segment.filters_size();
        size.blocks_size += file_size.saturating_sub(segment.filters_size());
    }
    Ok(size)
}

/// The thread that makes indexes while the archive is written.
pub(super) struct IndexThread {
    directory: PathBuf,
    groups: Sender<(u32, u32)>,
    thread: JoinHandle<(u64, Vec<Error>)>,
}

impl IndexThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let (groups, received): (_, Receiver<(u32, u32)>) = unbounded();
        let place = directory.to_path_buf();
        let work = move || {
            let (mut built, mut errors) = (0, Vec::new());
            for group in received {
                match build(&place, group) {
                    Ok(()) => built += 1,
                    Err(error) => errors.push(error),
                }
            }
            (built, errors)
        };
        let thread = std::thread::Builder::new().name("archive-index".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(IndexThread { directory: directory.to_path_buf(), groups, thread })
    }

    /// The memory in bytes that it takes for segments of `entries_max` entries.
    pub(super) fn memory_size(entries_max: usize) -> u64 {
        entries_max as u64 * u64::from(ARCHIVE_GROUP_SEGMENTS) * ARCHIVE_INDEX_ENTRY_SIZE
    }

    /// Submits the groups that are completed by these sealed segments.
    pub(super) fn submit(&self, sealed: Vec<u32>) {
        for group in sealed.into_iter().filter(|number| group_of(*number).1 == *number).map(group_of) {
            self.send(group);
        }
    }

    fn send(&self, group: (u32, u32)) {
        let is_sent = self.groups.send(group).is_ok();
        debug_assert!(is_sent, "the thread takes groups until it is told that there are no more");
    }

    /// Submits the groups that earlier runs left without an index.
    pub(super) fn submit_missing(&self) {
        let groups = Inventory::of(&self.directory).map(|inventory| missing(&inventory)).unwrap_or_default();
        groups.into_iter().for_each(|group| self.send(group));
    }

    /// Waits until all groups are indexed. Returns how many were, and what went wrong.
    pub(super) fn finish(self) -> (u64, Vec<Error>) {
        drop(self.groups);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
