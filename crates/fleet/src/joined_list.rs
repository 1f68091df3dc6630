//! The joined view as NDJSON or Parquet: the lines of a list, each with the names of the routers that see the
//! connection.

use crate::joined::RouterSet;
use crate::network::{self, Network, Router};
use flowpeel::error::Result;
use flowpeel::export::{JoinedFile, TimeFormatter, append_joined, rfc3339};
use flowpeel::handover::SidesSeen;
use flowpeel::list::{Row, RowState};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// How many sets of routers are remembered as text: a network has few, and a hostile one cannot fill the memory.
const SET_COUNT_MAX: usize = 4_096;

/// The lines of one view.
pub struct Lines<'a> {
    network: &'a Network,
    end: String,
    times: TimeFormatter,
    sets: HashMap<Vec<u8>, Vec<u8>>,
}

impl<'a> Lines<'a> {
    /// The lines of this view.
    #[must_use]
    pub fn new(network: &'a Network) -> Self {
        let end = rfc3339(network.joined.end_ns());
        Lines { network, end, times: TimeFormatter::default(), sets: HashMap::new() }
    }

    /// Appends the line of a connection, with its newline.
    pub fn append(&mut self, line: &mut Vec<u8>, row: &Row, seen: RouterSet) {
        if !self.sets.contains_key(seen.bytes()) {
            if self.sets.len() >= SET_COUNT_MAX {
                self.sets.clear();
            }
            self.sets.insert(seen.bytes().to_vec(), names(self.network, seen));
        }
        let routers = self.sets.get(seen.bytes()).map_or(&b"[]"[..], Vec::as_slice);
        if row.state == RowState::Established && seen.is_one_sided() {
            let with_directions = [routers, b",\"directions\":", &directions(seen)].concat();
            return append_joined(line, &mut self.times, row, &self.end, &with_directions);
        }
        append_joined(line, &mut self.times, row, &self.end, routers);
    }
}

/// The names of routers as a JSON array.
fn names(network: &Network, seen: RouterSet) -> Vec<u8> {
    let names: Vec<&str> = seen.iter().map(|bit| network.member(bit)).collect();
    serde_json::to_vec(&names).unwrap_or_default()
}

/// What each of the routers saw of a connection, as a JSON array.
fn directions(seen: RouterSet) -> Vec<u8> {
    let directions: Vec<SidesSeen> = seen.iter().map(|router| seen.sides_of(router)).collect();
    serde_json::to_vec(&directions).unwrap_or_default()
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_list: HeaderFields<'a>,
    src_ip: &'static str,
    src_port: u16,
    dest_ip: &'static str,
    dest_port: u16,
    proto: &'static str,
    community_id: &'static str,
    routers: [&'static str; 1],
    flow: FlowColumns<'a>,
}

#[derive(Serialize)]
struct HeaderFields<'a> {
    end: &'a str,
    complete: bool,
    flows: usize,
    half_open: usize,
    missing: u64,
    routers: &'a [Router],
}

impl<'a> HeaderFields<'a> {
    fn of(network: &'a Network, end: &'a str) -> Self {
        let joined = &network.joined;
        HeaderFields {
            end,
            complete: network::is_complete(&network.routers),
            flows: joined.established_count(),
            half_open: joined.len() - joined.established_count(),
            missing: network::missing(&network.routers),
            routers: &network.routers,
        }
    }
}

/// The columns of the connections with empty values, from which loaders infer them.
#[derive(Serialize)]
struct FlowColumns<'a> {
    start: &'a str,
    age: f64,
    state: &'static str,
    midstream: bool,
    unsettled: bool,
    start_is_bound: bool,
}

/// Writes a view: a header that says which routers are in, then a line for each connection.
///
/// # Errors
///
/// The stream cannot be written to.
pub fn write(out: &mut impl Write, network: &Network) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let joined = &network.joined;
    let end = rfc3339(joined.end_ns());
    let header = HeaderLine {
        timestamp: &end,
        event_type: "flow_list",
        flow_list: HeaderFields::of(network, &end),
        src_ip: "",
        src_port: 0,
        dest_ip: "",
        dest_port: 0,
        proto: "",
        community_id: "",
        routers: [""],
        flow: FlowColumns {
            start: &end,
            age: 0.0,
            state: "",
            midstream: false,
            unsettled: false,
            start_is_bound: false,
        },
    };
    serde_json::to_writer(&mut out, &header)?;
    out.write_all(b"\n")?;
    let (mut lines, mut line) = (Lines::new(network), Vec::new());
    for (row, seen) in joined.iter() {
        line.clear();
        lines.append(&mut line, &row, seen);
        out.write_all(&line)?;
    }
    out.flush()
}

/// Writes a view as a file of Parquet below this directory, whole or not at all. Returns its path.
///
/// # Errors
///
/// This build has no Parquet, or the directory cannot be written to.
pub fn write_parquet(directory: &Path, network: &Network) -> Result<PathBuf> {
    let joined = &network.joined;
    let end = rfc3339(joined.end_ns());
    let fields = HeaderFields::of(network, &end);
    let mut file = JoinedFile::begin(directory, joined.end_ns(), fields.complete)?;
    let (mut routers, mut directions) = (Vec::new(), Vec::new());
    for (row, seen) in joined.iter() {
        routers.clear();
        directions.clear();
        routers.extend(seen.iter().map(|router| network.member(router)));
        if row.state == RowState::Established && seen.is_one_sided() {
            directions.extend(seen.iter().map(|router| seen.sides_of(router).name()));
        }
        file.row(&row, &routers, &directions)?;
    }
    file.finish(serde_json::to_string(&fields).unwrap_or_default())
}
