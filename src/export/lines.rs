//! NDJSON: a header line, then a line for each connection, with the names of Suricata's EVE where it has one.
//!
//! Lines take several times the memory of rows, so they are written in pieces of bounded size.

use crate::export::eve;
use crate::export::flow_line::{self, Mark, Style};
use crate::export::side_by_side;
use crate::export::timestamp::{Text, TimeFormatter};
use crate::list::{Change, EarlierList, Header, List, ListEnds, Row, Translations};
use crate::select::{Group, Selection};
use crate::signal::PartitionSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::io::{self, Write};

/// Connections of the shortest last list that two threads write: some milliseconds of work, a hundred times the cost of
/// starting a thread.
const LIST_TWO_THREADS_MIN: u64 = 1 << 15;

/// How many bytes are gathered before they are written.
pub(super) const BUFFER_SIZE: usize = 1 << 16;

#[derive(Serialize)]
struct ListLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_list: Option<ListFields<'a>>,
    /// What is written instead of a part of a list, so that nobody takes it for the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_part: Option<ListFields<'a>>,
    /// Written only of a list between others that are changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    closings: Option<Closings>,
    /// Written only where not the whole list is.
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<SelectionFields<'a>>,
    #[serde(flatten)]
    columns: Columns<'a>,
}

/// The columns of the connections, with empty values: loaders take the columns and their types from the first lines of
/// some files, where there may be no connection at all.
#[derive(Serialize)]
struct Columns<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    src_ip: &'static str,
    src_port: u16,
    dest_ip: &'static str,
    dest_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<[u16; 1]>,
    proto: &'static str,
    community_id: &'static str,
    flow: FlowColumns<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nat: Option<NatColumns>,
}

#[derive(Serialize)]
struct FlowColumns<'a> {
    start: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a str>,
    age: f64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    midstream: bool,
    unsettled: bool,
    start_is_bound: bool,
}

#[derive(Default, Serialize)]
struct NatColumns {
    name: &'static str,
    src_ip: &'static str,
    src_port: u16,
    dest_ip: &'static str,
    dest_port: u16,
}

impl<'a> Columns<'a> {
    /// The columns of the lines of this list, which begins then.
    fn of(header: &Header, start: &'a str, vlan_key: bool) -> Self {
        Columns {
            change: None,
            src_ip: "",
            src_port: 0,
            dest_ip: "",
            dest_port: 0,
            vlan: vlan_key.then_some([0]),
            proto: "",
            community_id: "",
            flow: FlowColumns {
                start,
                end: None,
                age: 0.0,
                state: "",
                reason: None,
                midstream: false,
                unsettled: false,
                start_is_bound: false,
            },
            nat: header.translated.map(|_| NatColumns::default()),
        }
    }

    /// These columns, with those of changes.
    fn with_changes(self) -> Self {
        let flow = FlowColumns { end: Some(self.flow.start), reason: Some(""), ..self.flow };
        Columns { change: Some(""), flow, ..self }
    }
}

/// What closed since the list before.
#[derive(Clone, Copy, Serialize)]
struct Closings {
    /// Lines behind the list.
    lines: u64,
    #[serde(skip_serializing_if = "is_zero")]
    ends_lost: u64,
}

/// What of a list follows.
#[derive(Serialize)]
struct SelectionFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_by: Option<&'static str>,
    /// How many connections the filter selects.
    selected: u64,
    /// How many lines follow.
    lines: u64,
}

#[derive(Serialize)]
struct GroupLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_group: GroupFields,
}

#[derive(Serialize)]
struct GroupFields {
    group_by: &'static str,
    value: String,
    flows: u64,
    half_open: u64,
    oldest_age: f64,
}

#[derive(Serialize)]
struct ChangesLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_changes: ChangesFields<'a>,
    #[serde(flatten)]
    columns: Columns<'a>,
}

#[derive(Serialize)]
struct ChangesFields<'a> {
    #[serde(flatten)]
    list: ListFields<'a>,
    base: ListId,
    full: ListId,
    elapsed: f64,
    listed: u64,
    delisted: u64,
    #[serde(skip_serializing_if = "is_zero")]
    ends_lost: u64,
}

#[derive(Serialize)]
pub(super) struct ListFields<'a> {
    interval: u64,
    start: &'a str,
    end: &'a str,
    complete: bool,
    flows: u64,
    missing: u64,
    opened: u64,
    closed: u64,
    half_open: u64,
    untracked: u64,
    recycled: u64,
    evicted: u64,
    dropped: u64,
    unusable: u64,
    /// Written only if it is not zero: most captures cut nothing that is needed.
    #[serde(skip_serializing_if = "is_zero")]
    cut: u64,
    /// Written only if it is not zero: most networks have no such tunnels.
    #[serde(skip_serializing_if = "is_zero")]
    unopened: u64,
    extraneous: u64,
    merged: u64,
    /// Written only after a restart: without one no connection is unsettled.
    #[serde(skip_serializing_if = "is_zero")]
    unsettled: u64,
    /// Written only if it is not zero: most runs have no archive.
    #[serde(skip_serializing_if = "is_zero")]
    unarchived: u64,
    /// Written only if there is one: it takes a forged or a late packet.
    #[serde(skip_serializing_if = "is_zero")]
    reopened: u64,
    /// Written only if there is one: it takes a flood.
    #[serde(skip_serializing_if = "is_zero")]
    handshakes_lost: u64,
    /// Written only if it is so: most clocks are right.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    time_uncertain: bool,
    /// Written only where translations are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    translated: Option<u64>,
    /// Written only if there are more translations than there is room for.
    #[serde(skip_serializing_if = "is_zero")]
    untranslated: u64,
    /// Written only where both sides of a translation are captured, and nobody knows its names.
    #[serde(skip_serializing_if = "is_zero")]
    doubled: u64,
    /// Written only of a live capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Text>,
    /// Written only while connections are found that are older than the capture.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    warming_up: bool,
    /// Written only if they are found with a sample, because packets would have been lost otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sampled_early: bool,
    /// Written only of a snapshot that was damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged_sections: Option<u64>,
    /// Written only of a part of a list: the partitions that it lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<PartitionSet>,
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl<'a> ListFields<'a> {
    pub(super) fn new(header: &Header, start: &'a str, end: &'a str) -> Self {
        ListFields {
            interval: header.figures.interval,
            start,
            end,
            complete: header.complete,
            flows: header.flows,
            missing: header.missing,
            opened: header.figures.opened,
            closed: header.figures.closed,
            half_open: header.half_open,
            untracked: header.figures.untracked,
            recycled: header.figures.recycled,
            evicted: header.figures.evicted,
            dropped: header.figures.dropped,
            unusable: header.figures.unusable,
            cut: header.figures.cut,
            unopened: header.figures.unopened,
            extraneous: header.extraneous,
            merged: header.figures.merged,
            unsettled: header.unsettled,
            unarchived: header.unarchived,
            reopened: header.figures.reopened,
            handshakes_lost: header.figures.handshakes_lost,
            time_uncertain: header.figures.time_uncertain,
            translated: header.translated,
            untranslated: header.untranslated,
            doubled: header.doubled,
            since: header.since.map(|since| TimeFormatter::default().rfc3339(since.since_ns)),
            warming_up: header.is_warming_up(),
            sampled_early: header.since.is_some_and(|since| since.is_sampled_early),
            damaged_sections: header.damaged_sections,
            partitions: header.part,
        }
    }
}

impl<'a> ListLine<'a> {
    /// The line of a list, or of a part of one, with this time stamp.
    fn new(fields: ListFields<'a>, timestamp: &'a str, columns: Columns<'a>) -> Self {
        let is_part = fields.partitions.is_some();
        let (flow_list, flow_part) = if is_part { (None, Some(fields)) } else { (Some(fields), None) };
        let event_type = if is_part { "flow_part" } else { "flow_list" };
        ListLine { timestamp, event_type, flow_list, flow_part, closings: None, selection: None, columns }
    }
}

/// Writes a line of JSON.
pub(super) fn json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// The identity of a list among those of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListId {
    /// The number of its interval.
    pub interval: u64,
    /// When it ends.
    #[serde(deserialize_with = "deserialize_text")]
    pub(super) end: Text,
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

fn deserialize_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    Text::of_bytes(text.as_bytes()).ok_or_else(|| serde::de::Error::custom("a time of another form"))
}

/// Whether a list is written by two threads: the last of a run, if it is long and there is a second core.
fn is_worth_two_threads(header: &Header) -> bool {
    header.is_last
        && header.flows + header.half_open >= LIST_TWO_THREADS_MIN
        && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

/// The beginning of the lines of a list with this end.
fn head(end: &Text) -> Vec<u8> {
    let mut head = Vec::new();
    flow_line::begin(&mut head, end.as_str(), "flow");
    head
}

/// The list that changes build on.
pub(super) struct Base<'a> {
    /// The connections of the list before.
    pub(super) earlier: &'a EarlierList,
    /// What ended since.
    pub(super) ends: &'a ListEnds,
    /// The names of translated connections by which the later list was made, if any were known.
    pub(super) names: Option<&'a Translations>,
    /// The identity of the list before.
    pub(super) id: ListId,
    /// The last list that was written in full.
    pub(super) full: ListId,
}

impl Base<'_> {
    /// The changes up to a later list.
    fn changes<'l>(&'l self, later: &'l EarlierList) -> impl Iterator<Item = Change> + 'l {
        self.earlier.changes_to(later, self.ends, self.names)
    }

    /// How many connections opened and closed up to a later list.
    fn count(&self, later: &EarlierList) -> (u64, u64) {
        self.changes(later).fold((0, 0), |(opened, closed), change| match change {
            Change::Opened(_) => (opened + 1, closed),
            Change::Closed(..) => (opened, closed + 1),
        })
    }

    /// The connections whose end up to a later list is known.
    fn closings<'l>(&'l self, later: &'l EarlierList) -> impl Iterator<Item = Change> + 'l {
        self.changes(later).filter(|change| matches!(change, Change::Closed(_, Some(_))))
    }
}

/// Whose lines of connections they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// flowpeel's own, with all that is known.
    Own,
    /// Suricata's, valid under its schema.
    Eve,
}

/// Writes lists as lines.
pub(super) struct Lines {
    dialect: Dialect,
    vlan_key: bool,
    times: TimeFormatter,
    /// Lines that have not been written yet.
    lines: Vec<u8>,
}

impl Lines {
    /// A writer of lines. With `vlan_key`, they name the VLAN tags, which EVE does in any case.
    pub(super) fn new(dialect: Dialect, vlan_key: bool) -> Self {
        Lines { dialect, vlan_key, times: TimeFormatter::default(), lines: Vec::with_capacity(2 * BUFFER_SIZE) }
    }

    pub(super) fn id(&mut self, header: &Header) -> ListId {
        ListId { interval: header.figures.interval, end: self.times.rfc3339(header.figures.end_ns) }
    }

    /// Writes what is selected of a list.
    ///
    /// Complexity: a pass over the rows; with a filter or a limit one more before it, since the header has the count.
    /// With an order or groups it is one, and what is shown is held.
    pub(super) fn list(&mut self, out: &mut dyn Write, list: &List, selection: &Selection) -> io::Result<()> {
        let (start, end) = self.period(&list.header);
        let flow_list = ListFields::new(&list.header, start.as_str(), end.as_str());
        let eve_end = end.eve();
        let timestamp = match self.dialect {
            Dialect::Own => end.as_str(),
            Dialect::Eve => str::from_utf8(&eve_end).unwrap_or_default(),
        };
        let end_ns = list.header.figures.end_ns;
        let columns = Columns::of(&list.header, start.as_str(), self.vlan_key);
        let mut line = ListLine::new(flow_list, timestamp, columns);
        if selection.is_partial() {
            let head = head(&end);
            let style = Style { head: &head, vlan_key: self.vlan_key, mark: None };
            let found = selection.find(list.rows());
            let (selected, lines) = (found.selected_count, found.line_count());
            let filter = selection.filter.as_ref().map(|filter| filter.text());
            let group_by = selection.group_by.map(|group_by| group_by.name());
            line.selection = Some(SelectionFields { filter, group_by, selected, lines });
            self.header(&line)?;
            return match &found.groups {
                Some((groups, _)) => self.groups(out, groups, &end, group_by.unwrap_or_default()),
                None => self.rows(out, found.rows(list.rows()), style, end_ns),
            };
        }
        self.header(&line)?;
        self.whole(out, list, &end)
    }

    fn rows(
        &mut self,
        out: &mut dyn Write,
        mut rows: impl Iterator<Item = Row>,
        style: Style,
        end_ns: i64,
    ) -> io::Result<()> {
        // A loop would ask for each row, which is then copied out of iterators within others.
        rows.try_for_each(|row| {
            match self.dialect {
                Dialect::Own => flow_line::append(&mut self.lines, &mut self.times, &row, style),
                Dialect::Eve => eve::append_row(&mut self.lines, &mut self.times, &row, end_ns),
            }
            self.flush_if_long(out)
        })?;
        self.flush(out)
    }

    fn groups(&mut self, out: &mut dyn Write, groups: &[Group], end: &Text, group_by: &'static str) -> io::Result<()> {
        for group in groups {
            let flow_group = GroupFields {
                group_by,
                value: group.key.to_string(),
                flows: group.flows,
                half_open: group.half_open,
                oldest_age: (group.oldest_ns / 1_000) as f64 / 1e6,
            };
            json_line(&mut self.lines, &GroupLine { timestamp: end.as_str(), event_type: "flow_group", flow_group })?;
            self.flush_if_long(out)?;
        }
        self.flush(out)
    }

    /// Writes a list between others that are changes: whole, and behind it what closed since the list before.
    pub(super) fn full(
        &mut self,
        out: &mut dyn Write,
        list: &List,
        kept: &EarlierList,
        base: Option<&Base>,
    ) -> io::Result<()> {
        let (start, end) = self.period(&list.header);
        let lines = base.map_or(0, |base| base.closings(kept).count() as u64);
        let fields = ListFields::new(&list.header, start.as_str(), end.as_str());
        let columns = Columns::of(&list.header, start.as_str(), self.vlan_key).with_changes();
        let closings = Closings { lines, ends_lost: base.map_or(0, |base| base.ends.lost()) };
        self.header(&ListLine { closings: Some(closings), ..ListLine::new(fields, end.as_str(), columns) })?;
        self.whole(out, list, &end)?;
        self.changed(out, base.into_iter().flat_map(|base| base.closings(kept)), &end)
    }

    /// Writes the changes that turn the base into the list with this header.
    pub(super) fn changes(
        &mut self,
        out: &mut dyn Write,
        header: &Header,
        list: &EarlierList,
        base: &Base,
    ) -> io::Result<()> {
        let (start, end) = self.period(header);
        let (listed, delisted) = base.count(list);
        let fields = ChangesFields {
            list: ListFields::new(header, start.as_str(), end.as_str()),
            base: base.id,
            full: base.full,
            elapsed: base.earlier.elapsed_us(list) as f64 / 1e6,
            listed,
            delisted,
            ends_lost: base.ends.lost(),
        };
        let columns = Columns::of(header, start.as_str(), self.vlan_key).with_changes();
        let timestamp = end.as_str();
        self.header(&ChangesLine { timestamp, event_type: "flow_changes", flow_changes: fields, columns })?;
        self.changed(out, base.changes(list), &end)
    }

    /// Writes a line for each change.
    fn changed(&mut self, out: &mut dyn Write, changes: impl Iterator<Item = Change>, end: &Text) -> io::Result<()> {
        let head = head(end);
        for change in changes {
            let (row, mark) = match &change {
                Change::Opened(row) => (row, Mark::Opened),
                Change::Closed(row, end) => (row, Mark::Closed(*end)),
            };
            let style = Style { head: &head, vlan_key: self.vlan_key, mark: Some(mark) };
            flow_line::append(&mut self.lines, &mut self.times, row, style);
            self.flush_if_long(out)?;
        }
        self.flush(out)
    }

    /// Writes a line for each connection of a list.
    fn whole(&mut self, out: &mut dyn Write, list: &List, end: &Text) -> io::Result<()> {
        let head = head(end);
        let style = Style { head: &head, vlan_key: self.vlan_key, mark: None };
        if self.dialect == Dialect::Own && is_worth_two_threads(&list.header) {
            self.flush(out)?;
            return side_by_side::write(out, list.rows(), style);
        }
        self.rows(out, list.rows(), style, list.header.figures.end_ns)
    }

    fn period(&mut self, header: &Header) -> (Text, Text) {
        (self.times.rfc3339(header.figures.start_ns), self.times.rfc3339(header.figures.end_ns))
    }

    fn header(&mut self, header: &impl Serialize) -> io::Result<()> {
        // A failed attempt may have left lines.
        self.lines.clear();
        json_line(&mut self.lines, header)
    }

    /// Writes the gathered lines once there are enough.
    fn flush_if_long(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.lines.len() >= BUFFER_SIZE { self.flush(out) } else { Ok(()) }
    }

    fn flush(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.lines)?;
        self.lines.clear();
        Ok(())
    }
}
