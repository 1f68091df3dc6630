//! NDJSON: a header line, then a line for each connection, with the names of Suricata's EVE where it has one.
//!
//! Lines take several times the memory of rows, so they are written in pieces of bounded size.

use crate::export::flow_line::{self, Mark, Style};
use crate::export::side_by_side;
use crate::export::timestamp::{Text, TimeFormatter};
use crate::list::{Change, EarlierList, Header, List};
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
    flow_list: ListFields<'a>,
}

#[derive(Serialize)]
struct ChangesLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_changes: ChangesFields<'a>,
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
        }
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
    pub(super) interval: u64,
    /// When it ends.
    #[serde(serialize_with = "serialize_text", deserialize_with = "deserialize_text")]
    pub(super) end: Text,
}

fn serialize_text<S: Serializer>(text: &Text, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_str())
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
    /// The identity of the list before.
    pub(super) id: ListId,
    /// The last list that was written in full.
    pub(super) full: ListId,
}

/// Writes lists as lines.
pub(super) struct Lines {
    vlan_key: bool,
    times: TimeFormatter,
    /// Lines that have not been written yet.
    lines: Vec<u8>,
}

impl Lines {
    /// A writer of lines. With `vlan_key`, they name the VLAN tags.
    pub(super) fn new(vlan_key: bool) -> Self {
        Lines { vlan_key, times: TimeFormatter::default(), lines: Vec::with_capacity(2 * BUFFER_SIZE) }
    }

    pub(super) fn id(&mut self, header: &Header) -> ListId {
        ListId { interval: header.figures.interval, end: self.times.rfc3339(header.figures.end_ns) }
    }

    /// Writes a list in full.
    pub(super) fn list(&mut self, out: &mut dyn Write, list: &List) -> io::Result<()> {
        let (start, end) = self.period(&list.header);
        let fields = ListFields::new(&list.header, start.as_str(), end.as_str());
        self.header(&ListLine { timestamp: end.as_str(), event_type: "flow_list", flow_list: fields })?;
        let head = head(&end);
        let style = Style { head: &head, vlan_key: self.vlan_key, mark: None };
        if is_worth_two_threads(&list.header) {
            self.flush(out)?;
            return side_by_side::write(out, list.rows(), style);
        }
        for row in list.rows() {
            flow_line::append(&mut self.lines, &mut self.times, &row, style);
            self.flush_if_long(out)?;
        }
        self.flush(out)
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
        let (mut listed, mut delisted) = (0, 0);
        for change in base.earlier.changes_to(list) {
            *(if matches!(change, Change::Opened(_)) { &mut listed } else { &mut delisted }) += 1;
        }
        let fields = ChangesFields {
            list: ListFields::new(header, start.as_str(), end.as_str()),
            base: base.id,
            full: base.full,
            elapsed: base.earlier.elapsed_us(list) as f64 / 1e6,
            listed,
            delisted,
        };
        self.header(&ChangesLine { timestamp: end.as_str(), event_type: "flow_changes", flow_changes: fields })?;
        let head = head(&end);
        for change in base.earlier.changes_to(list) {
            let (row, mark) = match &change {
                Change::Opened(row) => (row, Mark::Opened),
                Change::Closed(row) => (row, Mark::Closed),
            };
            let style = Style { head: &head, vlan_key: self.vlan_key, mark: Some(mark) };
            flow_line::append(&mut self.lines, &mut self.times, row, style);
            self.flush_if_long(out)?;
        }
        self.flush(out)
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
