//! NDJSON: a header line, then a line for each connection, with the names of Suricata's EVE where it has one.

use crate::error::{Error, Result};
use crate::export::timestamp::Clockface;
use crate::export::{Exporter, community_id};
use crate::flow_list::{List, Row};
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::net::IpAddr;

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
    extraneous: u64,
}

#[derive(Serialize)]
struct FlowLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    src_ip: IpAddr,
    src_port: u16,
    dest_ip: IpAddr,
    dest_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<&'a [u16]>,
    proto: &'static str,
    community_id: &'a str,
    flow: FlowFields<'a>,
}

#[derive(Serialize)]
struct FlowFields<'a> {
    start: &'a str,
    age: f64,
    state: &'static str,
}

/// Writes lists to a stream, each whole before the next.
pub struct Ndjson<W: Write + Send> {
    out: BufWriter<W>,
    name: String,
    vlan_key: bool,
    clockface: Clockface,
}

impl<W: Write + Send> Ndjson<W> {
    /// An exporter to this stream, which errors call `name`. With `vlan_key`, lines name the VLAN tags.
    pub fn new(out: W, name: impl Into<String>, vlan_key: bool) -> Self {
        Ndjson {
            out: BufWriter::with_capacity(BUFFER_SIZE, out),
            name: name.into(),
            vlan_key,
            clockface: Clockface::default(),
        }
    }

    /// The stream, with everything written to it.
    ///
    /// # Errors
    ///
    /// What was gathered could not be written.
    pub fn into_inner(self) -> std::io::Result<W> {
        self.out.into_inner().map_err(std::io::IntoInnerError::into_error)
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
            extraneous: header.extraneous,
        };
        self.line(&ListLine { timestamp: end, event_type: "flow_list", flow_list: fields })?;
        for row in list.rows() {
            self.flow(end, &row)?;
        }
        self.out.flush()
    }

    fn flow(&mut self, timestamp: &str, row: &Row) -> std::io::Result<()> {
        let mut tags = [0; 2];
        let mut count = 0;
        for (place, tag) in tags.iter_mut().zip(row.vlan.iter()) {
            *place = tag;
            count += 1;
        }
        let start = self.clockface.rfc3339(row.start_ns);
        self.line(&FlowLine {
            timestamp,
            event_type: "flow",
            src_ip: row.client.ip(),
            src_port: row.client.port(),
            dest_ip: row.server.ip(),
            dest_port: row.server.port(),
            vlan: self.vlan_key.then_some(&tags[..count]),
            proto: "TCP",
            community_id: community_id(row.client, row.server).as_str(),
            flow: FlowFields { start: start.as_str(), age: (row.age_ns / 1_000) as f64 / 1e6, state: row.state.name() },
        })
    }

    fn line(&mut self, line: &impl Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

impl<W: Write + Send> Exporter for Ndjson<W> {
    fn write(&mut self, list: &List) -> Result<()> {
        self.write_lines(list).map_err(|error| Error::new("can not write the list").in_file(&self.name).because(error))
    }
}
