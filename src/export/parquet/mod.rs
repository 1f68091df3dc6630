//! Lists, joined views, connections of an archive, and events, as Parquet.
//!
//! Every row of a list says which list it is of, and whether that is complete; the end of the file says so too, and
//! what else the header of a list does, so that a list without connections is distinguished from none.

mod columns;
mod file;
mod text;

use crate::error::Result;
use crate::export::flow_line::{ArchivedFlow, Change, FlowEvent};
use crate::export::lines::ListFields;
use crate::export::timestamp::{TimeFormatter, rfc3339};
use crate::handover::SidesSeen;
use crate::list::{List, Row};
use crate::select::Selection;
use columns::{COURSE, Column, ENDS, NAT, Names, course};
use file::{Cell, Kind, ParquetFile};
use std::io::{self, Write};
pub(super) use text::list_text;

/// The memory that writing a file of a list takes, or of connections of an archive, in bytes.
pub(super) const PARQUET_SIZE: u64 = file::MEMORY_SIZE;

/// The memory that writing a file of events takes, in bytes.
pub(super) const PARQUET_EVENTS_SIZE: u64 = file::MEMORY_SIZE + file::EVENT_CELLS_SIZE;

/// What a row of a list begins with, before [`ENDS`].
const LIST_BEGIN: [Column; 2] = [("list_end", Kind::Time), ("complete", Kind::Flag)];

/// What a row of a list has between [`ENDS`] and [`NAT`].
const LIST_COURSE: [Column; 7] = [
    ("start", Kind::Time),
    ("age", Kind::Seconds),
    ("state", Kind::Text),
    ("midstream", Kind::Flag),
    ("unsettled", Kind::Flag),
    ("start_is_bound", Kind::Flag),
    ("sides", Kind::OptionalText),
];

/// The columns of a list.
const LIST: [&[Column]; 4] = [&LIST_BEGIN, &ENDS, &LIST_COURSE, &NAT];

/// What the end of a file calls the fields of the list's header, and that it is not the whole list in its order.
const HEADER: &str = "flow_list";
const SELECTION: &str = "selection";

/// What a row of a joined view has beside that of a list: who sees the connection, and where any of them saw one side
/// alone, which each saw.
const JOINED: [Column; 2] = [("routers", Kind::Texts), ("directions", Kind::Texts)];

/// What a row of an event begins with, before [`ENDS`], and what it has between [`COURSE`] and [`NAT`].
const EVENT_BEGIN: [Column; 4] =
    [("timestamp", Kind::Time), ("change", Kind::Text), ("seq", Kind::Long), ("flow_id", Kind::Long)];
const EVENT_SEEN: Column = ("seen", Kind::OptionalText);

/// Checks that Parquet can be written.
///
/// # Errors
///
/// Never: this build has it.
pub(super) fn check() -> Result<()> {
    Ok(())
}

/// Writes what is selected of a list as a file.
pub(super) fn list(out: &mut dyn Write, list: &List, selection: &Selection) -> io::Result<()> {
    let header = &list.header;
    let mut times = TimeFormatter::default();
    let [start, end] = [header.figures.start_ns, header.figures.end_ns].map(|time_ns| times.rfc3339(time_ns));
    let fields = serde_json::to_string(&ListFields::new(header, start.as_str(), end.as_str()))?;
    let mut file = ParquetFile::new(&LIST.concat())?;
    let begin = [Cell::Time(header.figures.end_ns), Cell::Flag(header.complete)];
    for row in selection.rows(list.rows()) {
        let names = Names::of([row.client, row.server], row.vlan, row.nat);
        file.row(out, begin.into_iter().chain(names.ends()).chain(list_course(&row)).chain(names.nat()))?;
    }
    let filter = selection.filter.as_ref().map(|filter| ("filter", filter.text().to_owned()));
    let is_selection = selection.is_partial().then(|| (SELECTION, true.to_string()));
    let of_list = list_metadata(end.as_str(), header.complete, fields);
    file.finish(out, of_list.into_iter().chain(is_selection).chain(filter))
}

/// The cells of [`LIST_COURSE`].
fn list_course(row: &Row) -> [Cell<'static>; LIST_COURSE.len()] {
    [
        Cell::Time(row.start_ns),
        Cell::Seconds(row.age_ns),
        Cell::Text(row.state.name()),
        Cell::Flag(row.midstream),
        Cell::Flag(row.unsettled),
        Cell::Flag(row.start_is_bound),
        if row.sides == SidesSeen::Both { Cell::None } else { Cell::Text(row.sides.name()) },
    ]
}

/// What the end of a file of a list says: when the list ended, whether it is complete, and the fields of its header.
fn list_metadata(end: &str, is_complete: bool, fields: String) -> [(&'static str, String); 3] {
    [("list_end", end.to_owned()), ("complete", is_complete.to_string()), (HEADER, fields)]
}

/// A file of a joined view.
pub(super) struct JoinedRows {
    file: ParquetFile,
    begin: [Cell<'static>; LIST_BEGIN.len()],
    end_ns: i64,
    is_complete: bool,
}

impl JoinedRows {
    pub(super) fn new(end_ns: i64, is_complete: bool) -> io::Result<Self> {
        let file = ParquetFile::new(&[&LIST.concat()[..], &JOINED].concat())?;
        Ok(JoinedRows { file, begin: [Cell::Time(end_ns), Cell::Flag(is_complete)], end_ns, is_complete })
    }

    pub(super) fn row(
        &mut self,
        out: &mut dyn Write,
        row: &Row,
        [routers, directions]: [&[&str]; JOINED.len()],
    ) -> io::Result<()> {
        let names = Names::of([row.client, row.server], row.vlan, row.nat);
        let cells = self.begin.into_iter().chain(names.ends()).chain(list_course(row)).chain(names.nat());
        self.file.row(out, cells.chain([Cell::Texts(routers), Cell::Texts(directions)]))
    }

    pub(super) fn finish(self, out: &mut dyn Write, fields: String) -> io::Result<()> {
        self.file.finish(out, list_metadata(&rfc3339(self.end_ns), self.is_complete, fields))
    }
}

/// A file of connections of an archive, with the columns of csv.
pub(super) struct ArchivedRows(ParquetFile);

impl ArchivedRows {
    pub(super) fn new() -> io::Result<Self> {
        ParquetFile::new(&[&ENDS[..], &COURSE].concat()).map(Self)
    }

    pub(super) fn row(&mut self, out: &mut dyn Write, flow: &ArchivedFlow) -> io::Result<()> {
        let names = Names::of([flow.client, flow.server], flow.vlan, None);
        self.0.row(out, names.ends().into_iter().chain(course(flow, flow.reason.is_some())))
    }

    pub(super) fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        self.0.finish(out, [])
    }
}

/// A file of events.
pub(super) struct EventRows(ParquetFile);

impl EventRows {
    pub(super) fn new() -> io::Result<Self> {
        ParquetFile::new(&[&EVENT_BEGIN[..], &ENDS, &COURSE, &[EVENT_SEEN], &NAT].concat()).map(Self)
    }

    pub(super) fn row(&mut self, out: &mut dyn Write, event: &FlowEvent) -> io::Result<()> {
        let FlowEvent { change, flow, sequence, seen, nat } = event;
        let names = Names::of([flow.client, flow.server], flow.vlan, *nat);
        let begin = [Cell::Time(flow.end_ns), Cell::Text(change.name()), Cell::Long(*sequence), Cell::Long(flow.id())];
        let course = course(flow, *change == Change::Closed);
        let seen = seen.map_or(Cell::None, |seen| Cell::Text(seen.name()));
        self.0.row(out, begin.into_iter().chain(names.ends()).chain(course).chain([seen]).chain(names.nat()))
    }

    /// Ends the file. So many events are missing before or among those that it holds.
    pub(super) fn finish(self, out: &mut dyn Write, lost: u64) -> io::Result<()> {
        self.0.finish(out, [("lost", lost.to_string())])
    }
}
