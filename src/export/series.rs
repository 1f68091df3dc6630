//! One list after another: as NDJSON, EVE, csv, Parquet or a table; each in full, or as what changed since the one
//! before; plain or compressed.

use crate::error::{Error, Result};
use crate::export::csv::Csv;
use crate::export::file_name::{Content, Extension};
use crate::export::lines::{Base, Dialect, Lines, ListId};
use crate::export::parquet;
use crate::export::source_list;
use crate::export::table::Look;
use crate::export::timestamp::Text;
use crate::list::{EarlierList, List, ListEnds, UnlistedEnds};
use crate::select::Selection;
use crate::snapshot::COMPRESSION_LEVEL;
use crate::sources::Report;
use crate::state::{Decoder, Encoder};
use std::io::{self, Write};
use zstd::stream::write::Encoder as ZstdEncoder;

/// What compressing at [`COMPRESSION_LEVEL`] takes, in bytes: the window of 512 KiB, the tables over it, and buffers.
const COMPRESSION_SIZE: u64 = 3 << 20;

/// The most lists from one in full to the next: a day of them at ten seconds. They are kept and removed together.
pub const CHANGES_FULL_LISTS_MAX: u64 = 8_640;

/// What a list looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A header line and a line for each connection, as JSON.
    #[default]
    Ndjson,
    /// As [`Shape::Ndjson`], with lines of connections as Suricata writes them: valid under the schema of its EVE.
    Eve,
    /// Comma-separated values, with the columns named in the first row.
    Csv,
    /// Columns of Parquet, in files, where the build has the feature `parquet`.
    Parquet,
    /// A table for people.
    Table(Look),
}

impl Shape {
    /// Checks that this build can write it.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn check(self) -> Result<()> {
        if self == Shape::Parquet { parquet::check() } else { Ok(()) }
    }
}

/// How lists are written, wherever they go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Format {
    /// What a list looks like.
    pub shape: Shape,
    /// What of a list is written.
    pub selection: Selection,
    /// Whether each list is compressed, as a zstd frame of its own.
    pub compress: bool,
    /// If this is `n`, one list in `n` is written in full, and of the others only what changed since the list before;
    /// from 1 to [`CHANGES_FULL_LISTS_MAX`]. `None` writes all in full.
    pub changes: Option<u64>,
}

impl Format {
    /// The end of the names of files in this format.
    pub(super) fn extension(&self) -> Extension {
        let content = match self.shape {
            Shape::Csv => Content::Csv,
            Shape::Parquet => Content::Parquet,
            Shape::Ndjson | Shape::Eve | Shape::Table(_) => Content::Ndjson,
        };
        Extension { content, is_compressed: self.compress }
    }

    /// The memory in bytes that writing lists of up to `connections_max` connections takes.
    #[must_use]
    pub fn memory_size(&self, connections_max: u64) -> u64 {
        // Two lists are held, the one before and the present one.
        let entry_size = 2 * EarlierList::ENTRY_SIZE as u64;
        let changes_size = self.changes.map_or(0, |_| connections_max.saturating_mul(entry_size));
        let compression_size = match self.shape {
            Shape::Parquet => parquet::PARQUET_SIZE,
            _ if self.compress => COMPRESSION_SIZE,
            _ => 0,
        };
        changes_size.saturating_add(compression_size).saturating_add(self.selection.memory_size(connections_max))
    }

    /// Checks that lists can be written in this format.
    ///
    /// # Errors
    ///
    /// The number of lists from one in full to the next is out of range, or changes are asked for of something else
    /// than whole lists as NDJSON.
    pub fn check(&self) -> Result<()> {
        if self.changes.is_some() && (self.shape != Shape::Ndjson || self.selection.is_partial()) {
            return Err(Error::new(
                "--changes builds on whole lists as NDJSON: leave it out, or --format, --filter, --sort, --limit and --group-by",
            ));
        }
        if self.shape == Shape::Parquet && (self.compress || self.selection.group_by.is_some()) {
            return Err(Error::new(
                "--format parquet compresses by itself, and has no groups: leave out --compress and --group-by",
            ));
        }
        if self.changes.is_some_and(|full_every| !(1..=CHANGES_FULL_LISTS_MAX).contains(&full_every)) {
            return Err(Error::new(format!("--changes must be from 1 to {CHANGES_FULL_LISTS_MAX}")));
        }
        Ok(())
    }
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A whole list.
    Full,
    /// The changes since the list before.
    Changes,
    /// A snapshot, which no series writes.
    Snapshot,
    /// The sources that opened connections: not a list, and written beside one.
    Sources,
}

struct Changes {
    full_every: u64,
    /// The number of lists since the last one in full, including that one; 0 if there was none.
    list_count: u64,
    earlier: EarlierList,
    /// The list whose changes were written last.
    later: EarlierList,
    /// What ended since the list before, and what earlier lists knew to have ended and showed as open.
    ends: ListEnds,
    unlisted: UnlistedEnds,
    /// The identities of the list before and of the last one in full.
    ids: Option<(ListId, ListId)>,
}

/// Lets `write` write to `out`, as one zstd frame if `compress` is set, and flushes it.
fn write_framed(
    out: &mut impl Write,
    compress: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if compress {
        let mut encoder = ZstdEncoder::new(out, COMPRESSION_LEVEL)?;
        // A list may be kept for months, and a reader should detect if the disk has changed it.
        encoder.include_checksum(true)?;
        write(&mut encoder)?;
        encoder.finish()?.flush()
    } else {
        write(out)?;
        out.flush()
    }
}

/// What writes lists in one shape.
enum Writer {
    Ndjson(Lines),
    Csv(Csv),
    Parquet,
    Table(Look),
}

/// Writes lists in one format.
pub(super) struct Series {
    writer: Writer,
    selection: Selection,
    compress: bool,
    changes: Option<Changes>,
    /// Whether the next list is the first of its stream.
    is_first: bool,
}

impl Series {
    pub(super) fn new(vlan_key: bool, format: Format) -> Self {
        let changes = |full_every| Changes {
            full_every,
            list_count: 0,
            earlier: EarlierList::default(),
            later: EarlierList::default(),
            ends: ListEnds::default(),
            unlisted: UnlistedEnds::default(),
            ids: None,
        };
        let writer = match format.shape {
            Shape::Ndjson => Writer::Ndjson(Lines::new(Dialect::Own, vlan_key)),
            Shape::Eve => Writer::Ndjson(Lines::new(Dialect::Eve, vlan_key)),
            Shape::Csv => Writer::Csv(Csv::default()),
            Shape::Parquet => Writer::Parquet,
            Shape::Table(look) => Writer::Table(look),
        };
        Series {
            writer,
            selection: format.selection,
            compress: format.compress,
            changes: format.changes.map(changes),
            is_first: true,
        }
    }

    /// The next list begins a file of its own.
    pub(super) fn begin_file(&mut self) {
        self.is_first = true;
    }

    /// How the next list is to be written.
    pub(super) fn next_kind(&self) -> Kind {
        match &self.changes {
            Some(changes) if changes.ids.is_some() && changes.list_count < changes.full_every => Kind::Changes,
            _ => Kind::Full,
        }
    }

    /// Writes a list and flushes it. Without a list before it to build on it is written in full.
    pub(super) fn write(&mut self, out: &mut impl Write, list: &List, kind: Kind) -> io::Result<()> {
        write_framed(out, self.compress, |out| self.write_lines(out, list, kind))
    }

    /// Writes a report of sources and flushes it.
    pub(super) fn write_sources(&self, out: &mut impl Write, report: &Report) -> io::Result<()> {
        write_framed(out, self.compress, |out| source_list::write(out, report))
    }

    fn write_lines(&mut self, out: &mut dyn Write, list: &List, kind: Kind) -> io::Result<()> {
        let Self { writer, selection, changes, is_first, .. } = self;
        match (writer, changes) {
            (Writer::Ndjson(lines), Some(Changes { earlier, later, ends, unlisted, ids, .. })) => {
                later.replace(list);
                ends.gather(unlisted, list.ends());
                let base = ids.map(|(id, full)| Base { earlier, ends, names: list.names(), id, full });
                match &base {
                    Some(base) if kind == Kind::Changes => lines.changes(out, &list.header, later, base),
                    base => lines.full(out, list, later, base.as_ref()),
                }
            }
            (Writer::Ndjson(lines), None) => lines.list(out, list, selection),
            (Writer::Csv(csv), _) => csv.list(out, list, selection, std::mem::take(is_first)),
            (Writer::Parquet, _) => parquet::list(out, list, selection),
            (Writer::Table(look), _) => look.list(out, list, selection),
        }
    }

    /// Records that this list was written, so that the next can build on it.
    pub(super) fn written(&mut self, list: &List, kind: Kind) {
        let (Some(changes), Writer::Ndjson(lines)) = (&mut self.changes, &mut self.writer) else { return };
        let id = lines.id(&list.header);
        changes.earlier = std::mem::take(&mut changes.later);
        changes.earlier.keep_unlisted(&changes.ends, &mut changes.unlisted);
        match (kind, changes.ids) {
            (Kind::Changes, Some((_, full))) => {
                changes.ids = Some((id, full));
                changes.list_count += 1;
            }
            _ => {
                changes.ids = Some((id, id));
                changes.list_count = 1;
            }
        }
    }

    /// Encodes it for a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.changes.as_ref(), |encoder, changes| {
            encoder.u64(changes.list_count);
            changes.earlier.save(encoder);
            changes.unlisted.save(encoder);
            encoder.option(changes.ids, |encoder, (id, full)| {
                save_id(encoder, id);
                save_id(encoder, full);
            });
        });
    }

    /// Restores what a series in the same format saved.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let has_changes = decoder.bool()?;
        decoder.expect(has_changes == self.changes.is_some(), "another --changes")?;
        if let Some(Changes { list_count, earlier, unlisted, ids, .. }) = &mut self.changes {
            *list_count = decoder.count()?;
            *earlier = EarlierList::saved(decoder)?;
            *unlisted = UnlistedEnds::saved(decoder)?;
            *ids = decoder.option(|decoder| Ok((saved_id(decoder)?, saved_id(decoder)?)))?;
        }
        Ok(())
    }

    /// The next list builds on none before it: it is written in full.
    pub(super) fn build_anew(&mut self) {
        self.changes.iter_mut().for_each(|changes| changes.ids = None);
    }
}

fn save_id(encoder: &mut Encoder, id: ListId) {
    encoder.u64(id.interval);
    encoder.bytes(id.end.as_bytes());
}

fn saved_id(decoder: &mut Decoder) -> Result<ListId> {
    let (interval, end) = (decoder.count()?, Text::of_bytes(decoder.bytes()?));
    Ok(ListId { interval, end: decoder.some(end, "a time of another form")? })
}
