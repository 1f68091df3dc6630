//! NDJSON: a header line, then a line for each connection, with the names of Suricata's EVE where it has one.
//!
//! What enters: lists. What leaves: lines on a stream, in pieces of a bounded size, since lines take several times the
//! memory of rows.

use crate::error::{Error, Result};
use crate::export::timestamp::Clockface;
use crate::export::{Exporter, flow_line};
use crate::flow_list::List;
use serde::Serialize;
use std::io::Write;

/// Bytes gathered before they are written.
const BUFFER_SIZE: usize = 1 << 16;

#[derive(Serialize)]
struct ListLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_list: ListFields<'a>,
}

#[derive(Serialize)]
struct ListFields<'a> {
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
    extraneous: u64,
}

/// Writes lists to a stream, each whole before the next.
pub struct Ndjson<W: Write + Send> {
    out: W,
    name: String,
    vlan_key: bool,
    clockface: Clockface,
    /// Lines that are not written yet.
    lines: Vec<u8>,
}

impl<W: Write + Send> Ndjson<W> {
    /// An exporter to this stream, which errors call `name`. With `vlan_key`, lines name the VLAN tags.
    pub fn new(out: W, name: impl Into<String>, vlan_key: bool) -> Self {
        Ndjson {
            out,
            name: name.into(),
            vlan_key,
            clockface: Clockface::default(),
            lines: Vec::with_capacity(2 * BUFFER_SIZE),
        }
    }

    /// The stream, with everything written to it.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn write_lines(&mut self, list: &List) -> std::io::Result<()> {
        let header = &list.header;
        let (start, end) = (self.clockface.rfc3339(header.start_ns), self.clockface.rfc3339(header.end_ns));
        let (start, end) = (start.as_str(), end.as_str());
        let fields = ListFields {
            interval: header.interval,
            start,
            end,
            complete: header.complete,
            flows: header.flows,
            missing: header.missing,
            opened: header.opened,
            closed: header.closed,
            half_open: header.half_open,
            untracked: header.untracked,
            recycled: header.recycled,
            evicted: header.evicted,
            dropped: header.dropped,
            unusable: header.unusable,
            extraneous: header.extraneous,
        };
        let header = ListLine { timestamp: end, event_type: "flow_list", flow_list: fields };
        self.lines.clear();
        serde_json::to_writer(&mut self.lines, &header)?;
        self.lines.push(b'\n');
        for row in list.rows() {
            flow_line::append(&mut self.lines, &mut self.clockface, end, &row, self.vlan_key);
            if self.lines.len() >= BUFFER_SIZE {
                self.out.write_all(&self.lines)?;
                self.lines.clear();
            }
        }
        self.out.write_all(&self.lines)?;
        self.lines.clear();
        self.out.flush()
    }
}

impl<W: Write + Send> Exporter for Ndjson<W> {
    fn write(&mut self, list: &List) -> Result<()> {
        self.write_lines(list).map_err(|error| Error::new("can not write the list").in_file(&self.name).because(error))
    }
}
