//! Lists that are read back: a file with a list, or with what changed since the one before, plain or compressed.
//!
//! A list may have millions of lines, so they are read one after another. A file may hold anything, so no line may be
//! longer than any of ours, and what is not exactly such a file is refused with the offset at which it goes wrong.

use crate::error::{Error, Result};
use crate::export::lines::ListId;
use crate::export::unpacked;
use crate::flow::{AnyKey, VlanTags};
use crate::list::{KnownConnection, RowState};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fs::File;
use std::io::{BufRead, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The longest line of a list, in bytes: an IPv6 connection with two VLAN tags takes half of it.
const LIST_LINE_SIZE_MAX: usize = 1 << 10;

#[derive(Deserialize)]
struct HeaderLine {
    flow_list: Option<HeaderFields>,
    flow_changes: Option<HeaderFields>,
    closings: Option<ClosingFields>,
    selection: Option<IgnoredAny>,
}

/// What closed since the list before, behind a list in full.
#[derive(Default, Deserialize)]
struct ClosingFields {
    lines: u64,
}

#[derive(Deserialize)]
struct HeaderFields {
    #[serde(flatten)]
    id: ListId,
    #[serde(default)]
    complete: bool,
    flows: u64,
    half_open: u64,
    routers: Option<u64>,
    base: Option<ListId>,
    elapsed: Option<f64>,
    listed: Option<u64>,
    delisted: Option<u64>,
}

#[derive(Deserialize)]
struct FlowLine {
    change: Option<String>,
    src_ip: IpAddr,
    src_port: u16,
    dest_ip: IpAddr,
    dest_port: u16,
    #[serde(default)]
    vlan: Vec<u16>,
    routers: Option<u32>,
    flow: FlowFields,
}

#[derive(Deserialize)]
struct FlowFields {
    /// The age of the connection. The list of several routers does not have it.
    #[serde(default)]
    age: f64,
    state: String,
    #[serde(default)]
    midstream: bool,
    #[serde(default)]
    start_is_bound: bool,
}

/// A line of a list.
pub enum FileLine {
    /// This connection is listed, on this many routers.
    Listed(KnownConnection, u32),
    /// This connection is no longer listed.
    Delisted(AnyKey),
    /// A half-open connection, or one that had closed before the list: of no use to start a list from.
    Other,
}

/// The lines of a file.
struct FileLines {
    path: PathBuf,
    lines: Box<dyn BufRead>,
    line: Vec<u8>,
    offset: u64,
}

impl FileLines {
    /// An error about the line that was read last.
    fn refuse(&self, what: &str) -> Error {
        Error::new(what).in_file(&self.path).at(self.offset - self.line.len() as u64)
    }

    /// Reads a line. Returns whether there was one.
    fn next(&mut self) -> Result<bool> {
        self.line.clear();
        let limit = LIST_LINE_SIZE_MAX as u64 + 1;
        let read = (&mut self.lines).take(limit).read_until(b'\n', &mut self.line);
        let size = read.map_err(|error| self.refuse("cannot read the list").because(error))?;
        self.offset += size as u64;
        if size > LIST_LINE_SIZE_MAX {
            return Err(self.refuse("a line is longer than any of a list"));
        }
        Ok(size > 0)
    }
}

/// A list that is being read.
pub struct ListFile {
    lines: FileLines,
    /// Lines still to come.
    left: u64,
    /// The identity of the list.
    pub id: ListId,
    /// When the list ends, in ns since 1970.
    pub end_ns: i64,
    /// Whether everything known to be open is in it.
    pub is_complete: bool,
    /// Whether it is the list of several routers together, which has no starts.
    pub is_merged: bool,
    /// For changes, the list that they build on, and how much later than that one this one ends, in ns.
    pub base: Option<(ListId, i64)>,
}

impl ListFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no list.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = |error: std::io::Error| Error::new("cannot read the list").in_file(path).because(error);
        if !std::fs::metadata(path).map_err(cannot)?.is_file() {
            return Err(Error::new("this is no file").in_file(path));
        }
        let text = unpacked(File::open(path).map_err(cannot)?).map_err(cannot)?;
        let mut lines = FileLines { path: path.to_path_buf(), lines: text, line: Vec::new(), offset: 0 };
        if !lines.next()? {
            return Err(lines.refuse("this is no list of flowpeel: it is empty"));
        }
        let refused = "this is no list of flowpeel: its first line is no header";
        let header: HeaderLine =
            serde_json::from_slice(&lines.line).map_err(|error| lines.refuse(refused).because(error))?;
        if header.selection.is_some() {
            return Err(lines.refuse("this is a selection from a list (--filter, --limit): a whole list is needed"));
        }
        let closings = header.closings.unwrap_or_default().lines;
        let (fields, is_changes) = match header {
            HeaderLine { flow_list: Some(fields), .. } => (fields, false),
            HeaderLine { flow_changes: Some(fields), .. } => (fields, true),
            _ => return Err(lines.refuse(refused)),
        };
        let end: Timestamp =
            fields.id.end.as_str().parse().map_err(|error: jiff::Error| lines.refuse(refused).because(error))?;
        let end_ns = i64::try_from(end.as_nanosecond()).map_err(|_| lines.refuse(refused))?;
        let (mut left, mut base) = (fields.flows.saturating_add(fields.half_open).saturating_add(closings), None);
        if is_changes {
            let (Some(base_id), Some(elapsed), Some(listed), Some(delisted)) =
                (fields.base, fields.elapsed, fields.listed, fields.delisted)
            else {
                return Err(lines.refuse(refused));
            };
            base = Some((base_id, nanoseconds(elapsed)));
            left = listed.saturating_add(delisted);
        }
        let (is_complete, is_merged) = (fields.complete, fields.routers.is_some());
        Ok(ListFile { lines, left, id: fields.id, end_ns, is_complete, is_merged, base })
    }

    /// Reads the next connection; `None` after the last.
    ///
    /// # Errors
    ///
    /// The file cannot be read, a line is none of a list, or there are fewer or more lines than the header says.
    pub fn next_line(&mut self) -> Result<Option<FileLine>> {
        if !self.lines.next()? {
            return if self.left == 0 { Ok(None) } else { Err(self.lines.refuse("the list was cut short")) };
        }
        let Some(left) = self.left.checked_sub(1) else {
            return Err(self
                .lines
                .refuse("something follows the list: a file with one list alone can be started from"));
        };
        self.left = left;
        let line: FlowLine = serde_json::from_slice(&self.lines.line)
            .map_err(|error| self.lines.refuse("this is no line of a list").because(error))?;
        let (client, server) =
            (SocketAddr::new(line.src_ip, line.src_port), SocketAddr::new(line.dest_ip, line.dest_port));
        let vlan = line.vlan.iter().fold(VlanTags::NONE, |tags, tag| tags.with(*tag));
        let Some(key) = AnyKey::of_ends(client, server, vlan) else {
            return Err(self.lines.refuse("a connection from one address family to another"));
        };
        Ok(Some(match (line.change.as_deref(), line.flow.state.as_str()) {
            (Some("closed"), _) if self.base.is_some() => FileLine::Delisted(key),
            (_, state) if state == RowState::Established.name() => {
                let FlowFields { age, midstream, start_is_bound, .. } = line.flow;
                FileLine::Listed(
                    KnownConnection { key, age_ns: nanoseconds(age), midstream, start_is_bound },
                    line.routers.unwrap_or(1),
                )
            }
            _ => FileLine::Other,
        }))
    }
}

/// Seconds as a list has them, to the microsecond, in ns.
fn nanoseconds(seconds: f64) -> i64 {
    ((seconds * 1e6).round() as i64).saturating_mul(1_000)
}
