//! The output that is made from several snapshots: the list of a network and the difference of two, as NDJSON with the
//! fields of lists; and files with merges and digests.

use crate::disk::whole_file::{directory_of, is_file_or_free};
use crate::error::{Error, Result};
use crate::export::decimal::number;
use crate::export::flow_line::{self, Ends};
use crate::export::lines::{BUFFER_SIZE, ListFields, json_line};
use crate::export::output_directory::{TEMPORARY, write_whole};
use crate::export::timestamp::TimeFormatter;
use crate::flow::FlowKey;
use crate::list::{MergedList, RowState};
use crate::snapshot::{Difference, SnapshotFile};
use flowpeel_iblt::hash::Secret;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

#[derive(Serialize)]
struct MergedLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_list: MergedFields<'a>,
}

#[derive(Serialize)]
struct MergedFields<'a> {
    #[serde(flatten)]
    list: ListFields<'a>,
    routers: u64,
}

#[derive(Serialize)]
struct DifferenceLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_difference: DifferenceFields<'a>,
}

#[derive(Serialize)]
struct DifferenceFields<'a> {
    a: SideFields<'a>,
    b: SideFields<'a>,
    complete: bool,
    missing: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences_needed: Option<u64>,
}

#[derive(Serialize)]
struct SideFields<'a> {
    end: &'a str,
    routers: usize,
    only_here: u64,
}

/// A side of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first side.
    A,
    /// The second side.
    B,
}

impl Side {
    /// The side on which more routers have a connection with this count.
    #[must_use]
    pub fn of_count(count: i32) -> Self {
        if count > 0 { Side::A } else { Side::B }
    }
}

/// Writes the list of several routers to a stream: the lines of a list, with `routers` in each.
///
/// # Errors
///
/// The stream cannot be written to.
pub fn write_merged(out: &mut impl Write, list: &MergedList) -> Result<()> {
    merged(&mut io::BufWriter::with_capacity(BUFFER_SIZE, out), list)
        .map_err(|error| Error::new("cannot write the list").because(error))
}

fn merged(out: &mut impl Write, list: &MergedList) -> io::Result<()> {
    let mut times = TimeFormatter::default();
    let (start, end) = (times.rfc3339(list.header.figures.start_ns), times.rfc3339(list.header.figures.end_ns));
    let fields = ListFields::new(&list.header, start.as_str(), end.as_str());
    let flow_list = MergedFields { list: fields, routers: list.router_count };
    json_line(out, &MergedLine { timestamp: end.as_str(), event_type: "flow_list", flow_list })?;
    let mut line = Vec::new();
    for row in list.rows() {
        line.clear();
        flow_line::begin(&mut line, end.as_str(), "flow");
        let ends = Ends { client: row.client, server: row.server, vlan: row.vlan };
        flow_line::connection(&mut line, &ends, list.vlan_key);
        routers(&mut line, row.routers);
        state(&mut line, row.state);
        out.write_all(&line)?;
    }
    out.flush()
}

/// Writes what differs between the snapshots `a` and `b` to a stream: a header, then a line for each connection.
///
/// # Errors
///
/// The stream cannot be written to.
pub fn write_difference(
    out: &mut impl Write,
    (a, b): (&SnapshotFile, &SnapshotFile),
    difference: &Difference,
) -> Result<()> {
    differing(&mut io::BufWriter::with_capacity(BUFFER_SIZE, out), (a, b), difference)
        .map_err(|error| Error::new("cannot write the difference").because(error))
}

fn differing(out: &mut impl Write, (a, b): (&SnapshotFile, &SnapshotFile), difference: &Difference) -> io::Result<()> {
    let mut times = TimeFormatter::default();
    let ends = [a, b].map(|file| file.header.end_ns());
    let [end_a, end_b] = ends.map(|end_ns| times.rfc3339(end_ns));
    let end = times.rfc3339(ends[0].max(ends[1]));
    let (only_a, only_b) = difference.only();
    let flow_difference = DifferenceFields {
        a: SideFields { end: end_a.as_str(), routers: a.header.sources.len(), only_here: only_a },
        b: SideFields { end: end_b.as_str(), routers: b.header.sources.len(), only_here: only_b },
        complete: difference.is_complete(),
        missing: difference.keys.left(),
        differences_needed: difference.differences_needed,
    };
    json_line(out, &DifferenceLine { timestamp: end.as_str(), event_type: "flow_difference", flow_difference })?;
    let vlan_key = a.header.vlan_key;
    let mut line = Vec::new();
    for (key, count) in &difference.keys.v4 {
        differing_line(&mut line, end.as_str(), (key, *count), vlan_key);
        out.write_all(&line)?;
    }
    for (key, count) in &difference.keys.v6 {
        differing_line(&mut line, end.as_str(), (key, *count), vlan_key);
        out.write_all(&line)?;
    }
    out.flush()
}

fn differing_line<K: FlowKey>(line: &mut Vec<u8>, timestamp: &str, (key, count): (&K, i32), vlan_key: bool) {
    line.clear();
    flow_line::begin(line, timestamp, "flow");
    line.extend_from_slice(match Side::of_count(count) {
        Side::A => b"\"only_in\":\"a\",",
        Side::B => b"\"only_in\":\"b\",",
    });
    flow_line::connection(line, &Ends { client: key.first(), server: key.second(), vlan: key.vlan() }, vlan_key);
    routers(line, count.unsigned_abs());
    state(line, RowState::Established);
}

fn routers(line: &mut Vec<u8>, count: u32) {
    line.extend_from_slice(b",\"routers\":");
    number(line, u64::from(count));
}

/// Appends the end of a line.
fn state(line: &mut Vec<u8>, state: RowState) {
    line.extend_from_slice(b",\"flow\":{\"state\":\"");
    line.extend_from_slice(state.name().as_bytes());
    line.extend_from_slice(b"\"}}\n");
}

/// Writes a snapshot to a file, whole or not at all. Returns its size in bytes.
///
/// # Errors
///
/// The file cannot be written, or the path is that of something else than a file. What was there before is still there.
pub fn write_snapshot(path: &Path, snapshot: &SnapshotFile, secret: &Secret) -> Result<u64> {
    if path == Path::new("-") {
        return Err(Error::new(
            "a snapshot is written whole or not at all, which standard output cannot be: name a file",
        ));
    }
    let Some(name) = path.file_name().filter(|_| is_file_or_free(path)) else {
        let what =
            "a snapshot is put in the place of a file, and this is none (or a link to one): name the file itself";
        return Err(Error::new(what).in_file(path));
    };
    let directory = directory_of(path);
    // A leftover that cannot be removed disturbs nothing.
    drop(TEMPORARY.remove_leftovers(directory));
    write_whole(directory, name, "snapshot", |file| snapshot.write(file, secret)).map(|sizes| sizes.size)
}
