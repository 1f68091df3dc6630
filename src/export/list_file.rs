//! Lists that are read back: a file with a list, plain, compressed or as Parquet, or with what changed since the one
//! before.
//!
//! A list may have millions of lines, so they are read one after another. A file may hold anything, so no line may be
//! longer than any of ours, and what is not exactly such a file is refused with the offset at which it goes wrong.

use crate::error::{Error, Result};
use crate::export::lines::ListId;
use crate::export::{parquet, unpacked};
use crate::flow::{AnyKey, VlanTags};
use crate::handover::SidesSeen;
use crate::list::{KnownConnection, Row, RowState};
use crate::signal::PartitionSet;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The longest line of a list, in bytes: an IPv6 connection with two VLAN tags takes half of it.
const LIST_LINE_SIZE_MAX: usize = 1 << 10;

/// What files of Parquet begin with.
const PARQUET: u32 = u32::from_le_bytes(*b"PAR1");

/// A part of a list that is shorter than this is read line by line, and no more halved: a page, some dozen lines.
const HALVED_SIZE_MIN: u64 = 4 << 10;

#[derive(Deserialize)]
struct HeaderLine {
    flow_list: Option<HeaderFields>,
    flow_part: Option<HeaderFields>,
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
    start: Option<String>,
    #[serde(default)]
    complete: bool,
    flows: u64,
    half_open: u64,
    #[serde(default)]
    missing: u64,
    #[serde(default)]
    opened: u64,
    #[serde(default)]
    closed: u64,
    #[serde(default)]
    dropped: u64,
    routers: Option<u64>,
    base: Option<ListId>,
    elapsed: Option<f64>,
    listed: Option<u64>,
    delisted: Option<u64>,
    partitions: Option<PartitionSet>,
}

#[derive(Deserialize)]
struct FlowLine<'a> {
    #[serde(borrow)]
    change: Option<Cow<'a, str>>,
    src_ip: IpAddr,
    src_port: u16,
    dest_ip: IpAddr,
    dest_port: u16,
    #[serde(default)]
    vlan: Vec<u16>,
    routers: Option<u32>,
    #[serde(borrow)]
    flow: FlowFields<'a>,
}

#[derive(Deserialize)]
struct FlowFields<'a> {
    /// When it started. The list of several routers does not have it.
    #[serde(borrow)]
    start: Option<Cow<'a, str>>,
    /// The age of the connection. The list of several routers does not have it.
    #[serde(default)]
    age: f64,
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(default)]
    midstream: bool,
    #[serde(default)]
    unsettled: bool,
    #[serde(default)]
    start_is_bound: bool,
    #[serde(borrow)]
    sides: Option<Cow<'a, str>>,
}

impl FlowLine<'_> {
    /// The key of the connection; `None` if it goes from one address family to another.
    fn key(&self) -> Option<AnyKey> {
        let client = SocketAddr::new(self.src_ip, self.src_port);
        AnyKey::of_ends(client, SocketAddr::new(self.dest_ip, self.dest_port), self.tags())
    }

    fn tags(&self) -> VlanTags {
        self.vlan.iter().fold(VlanTags::NONE, |tags, tag| tags.with(*tag))
    }

    fn is_closed(&self) -> bool {
        self.change.as_deref() == Some("closed")
    }

    /// The state, if it is one that a list or a change can have.
    fn state(&self) -> Option<RowState> {
        let mut states = [RowState::Established, RowState::SynSent, RowState::SynRecv].into_iter();
        // Of what has closed the state was this one.
        let closed = (self.is_closed() && self.flow.state == "closed").then_some(RowState::Established);
        states.find(|state| state.name() == self.flow.state).or(closed)
    }

    /// The sides that were seen; `None` of a name that nobody writes.
    fn sides(&self) -> Option<SidesSeen> {
        let Some(name) = self.flow.sides.as_deref() else { return Some(SidesSeen::Both) };
        [SidesSeen::Client, SidesSeen::Server].into_iter().find(|sides| sides.name() == name)
    }

    /// When it started, in ns since 1970.
    fn start_ns(&self) -> Option<i64> {
        let start: Timestamp = self.flow.start.as_deref()?.parse().ok()?;
        i64::try_from(start.as_nanosecond()).ok()
    }
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

/// A line of a list with all that stands in it but the other name of a translated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRow {
    /// The connection.
    pub row: Row,
    /// Whether it is no longer listed, in a list of changes.
    pub is_delisted: bool,
}

/// The lines of a file.
struct FileLines {
    path: PathBuf,
    lines: Box<dyn BufRead>,
    line: Vec<u8>,
    offset: u64,
    /// How many bytes were read, of which some may have been passed over.
    read_size: u64,
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
        self.read_size += size as u64;
        if size > LIST_LINE_SIZE_MAX {
            return Err(self.refuse("a line is longer than any of a list"));
        }
        Ok(size > 0)
    }

    /// The connection of the line that was read last, and its key.
    fn flow(&self) -> Result<(FlowLine<'_>, AnyKey)> {
        let line: FlowLine = serde_json::from_slice(&self.line)
            .map_err(|error| self.refuse("this is no line of a list").because(error))?;
        let key = line.key().ok_or_else(|| self.refuse("a connection from one address family to another"))?;
        Ok((line, key))
    }
}

/// What the header of a list says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFacts {
    /// The identity of the list.
    pub id: ListId,
    /// When its interval begins, in ns since 1970; its end where the header does not say.
    pub start_ns: i64,
    /// When the list ends, in ns since 1970.
    pub end_ns: i64,
    /// Whether everything known to be open is in it.
    pub is_complete: bool,
    /// How many connections were established at its end.
    pub flows: u64,
    /// How many were half-open.
    pub half_open: u64,
    /// About how many connections are wrongly not listed, or wrongly still listed.
    pub missing: u64,
    /// How many were established in the interval.
    pub opened: u64,
    /// How many established ones ended in the interval.
    pub closed: u64,
    /// How many packets were lost before they could be read, in the interval.
    pub dropped: u64,
    /// The partitions that are in it, if it is a part of a list.
    pub part: Option<PartitionSet>,
}

impl ListFacts {
    /// The length of its interval in ns, at least 1.
    #[must_use]
    pub fn interval_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns).max(1)
    }
}

/// A list that is being read.
pub struct ListFile {
    lines: FileLines,
    /// Lines still to come.
    left: u64,
    /// What its header says.
    pub facts: ListFacts,
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
        let mut file = File::open(path).map_err(cannot)?;
        let is_parquet = magic(&mut file).map_err(cannot)? == Some(PARQUET);
        let text = if is_parquet { parquet::list_text(file) } else { unpacked(file) }.map_err(cannot)?;
        let mut lines = FileLines { path: path.to_path_buf(), lines: text, line: Vec::new(), offset: 0, read_size: 0 };
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
            HeaderLine { flow_list: Some(fields), .. } if fields.partitions.is_none() => (fields, false),
            HeaderLine { flow_part: Some(fields), .. } if fields.partitions.is_some() => (fields, false),
            HeaderLine { flow_changes: Some(fields), .. } => (fields, true),
            _ => return Err(lines.refuse(refused)),
        };
        let time = |text: &str| {
            let time: Timestamp = text.parse().map_err(|error: jiff::Error| lines.refuse(refused).because(error))?;
            i64::try_from(time.as_nanosecond()).map_err(|_| lines.refuse(refused))
        };
        let end_ns = time(fields.id.end.as_str())?;
        let start_ns = fields.start.as_deref().map_or(Ok(end_ns), time)?;
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
        let HeaderFields { id, complete: is_complete, flows, half_open, missing, opened, closed, dropped, .. } = fields;
        let (is_merged, part) = (fields.routers.is_some(), fields.partitions);
        let facts =
            ListFacts { id, start_ns, end_ns, is_complete, flows, half_open, missing, opened, closed, dropped, part };
        Ok(ListFile { lines, left, facts, is_merged, base })
    }

    /// Reads the next connection as far as an engine can start from it; `None` after the last.
    ///
    /// # Errors
    ///
    /// The file cannot be read, a line is none of a list, or there are fewer or more lines than the header says.
    pub fn next_line(&mut self) -> Result<Option<FileLine>> {
        if !self.advance()? {
            return Ok(None);
        }
        let (line, key) = self.lines.flow()?;
        let sides =
            line.sides().ok_or_else(|| self.lines.refuse("this is no line of a list: its sides are unknown"))?;
        let FlowFields { age, midstream, start_is_bound, .. } = line.flow;
        Ok(Some(match line.state() {
            _ if line.is_closed() && self.base.is_some() => FileLine::Delisted(key),
            _ if line.is_closed() => FileLine::Other,
            Some(RowState::Established) => FileLine::Listed(
                KnownConnection { key, age_ns: nanoseconds(age), midstream, start_is_bound, sides },
                line.routers.unwrap_or(1),
            ),
            _ => FileLine::Other,
        }))
    }

    /// Reads the next connection with its start and state, half-open ones too; `None` after the last. What had closed
    /// before a list in full is passed over.
    ///
    /// # Errors
    ///
    /// As for [`Self::next_line`], and if a line has no start, or no state that is known.
    pub fn next_row(&mut self) -> Result<Option<ListedRow>> {
        let line = loop {
            if !self.advance()? {
                return Ok(None);
            }
            let (line, _) = self.lines.flow()?;
            if !line.is_closed() || self.base.is_some() {
                break line;
            }
        };
        self.row(&line).map(Some)
    }

    /// The connection of a line.
    fn row(&self, line: &FlowLine) -> Result<ListedRow> {
        let (Some(state), Some(start_ns), Some(sides)) = (line.state(), line.start_ns(), line.sides()) else {
            let what = "this is no line of a list: its start, state or sides are missing or unknown";
            return Err(self.lines.refuse(what));
        };
        let FlowFields { age, midstream, unsettled, start_is_bound, .. } = line.flow;
        let row = Row {
            client: SocketAddr::new(line.src_ip, line.src_port),
            server: SocketAddr::new(line.dest_ip, line.dest_port),
            vlan: line.tags(),
            start_ns,
            age_ns: nanoseconds(age),
            state,
            midstream,
            unsettled,
            nat: None,
            start_is_bound,
            sides,
        };
        Ok(ListedRow { row, is_delisted: line.is_closed() })
    }

    /// The connection with this key as this list has it, half-open ones too, or the last that became of it in a list of
    /// changes; `None` if it is not in it. Nothing can be read after this.
    ///
    /// Complexity: some twenty lines of a list in full that is not compressed, whose middle is looked at, and so on. Of
    /// another all lines before the connection.
    ///
    /// # Errors
    ///
    /// As for [`Self::next_row`], without the number of lines.
    pub fn row_of(&mut self, key: &AnyKey) -> Result<Option<ListedRow>> {
        if self.base.is_none() {
            self.pass_over(key)?;
        }
        let mut found = None;
        while self.lines.next()? {
            let (line, at) = self.lines.flow()?;
            if at > *key {
                break;
            }
            if at == *key && (!line.is_closed() || self.base.is_some()) {
                found = Some(self.row(&line)?);
            }
        }
        Ok(found)
    }

    /// How many bytes of text were read so far.
    #[must_use]
    pub fn read_size(&self) -> u64 {
        self.lines.read_size
    }

    /// Passes over lines before the one with this key, by halves, in a list in full that is not compressed. What closed
    /// before the list stands behind it in an order of its own.
    fn pass_over(&mut self, key: &AnyKey) -> Result<()> {
        let path = self.lines.path.clone();
        let cannot = |error: std::io::Error| Error::new("cannot read the list").in_file(&path).because(error);
        let mut file = File::open(&path).map_err(cannot)?;
        let (mut low, mut high) = (self.lines.offset, file.metadata().map_err(cannot)?.len());
        let is_text = !matches!(magic(&mut file).map_err(cannot)?, None | Some(PARQUET | zstd::zstd_safe::MAGICNUMBER));
        if high < low + HALVED_SIZE_MIN || !is_text {
            return Ok(());
        }
        let mut lines_at = |at: u64, read_size: u64| -> Result<FileLines> {
            file.seek(SeekFrom::Start(at)).map_err(cannot)?;
            let text = Box::new(BufReader::new(file.try_clone().map_err(cannot)?));
            Ok(FileLines { path: path.clone(), lines: text, line: Vec::new(), offset: at, read_size })
        };
        let mut read_size = self.lines.read_size;
        while high - low >= HALVED_SIZE_MIN {
            let middle = low + (high - low) / 2;
            let mut lines = lines_at(middle, read_size)?;
            // The rest of a line.
            lines.next()?;
            let at = lines.offset;
            let is_before = at < high && lines.next()? && {
                let (line, found) = lines.flow()?;
                !line.is_closed() && found < *key
            };
            read_size = lines.read_size;
            (low, high) = if is_before { (at, high) } else { (low, middle) };
        }
        self.lines = lines_at(low, read_size)?;
        Ok(())
    }

    /// Reads the next line. Returns whether there was one.
    fn advance(&mut self) -> Result<bool> {
        if !self.lines.next()? {
            return if self.left == 0 { Ok(false) } else { Err(self.lines.refuse("the list was cut short")) };
        }
        let Some(left) = self.left.checked_sub(1) else {
            return Err(self
                .lines
                .refuse("something follows the list: a file with one list alone can be started from"));
        };
        self.left = left;
        Ok(true)
    }
}

/// The first four bytes of a file, if it has so many. What is read next is the file from its beginning.
fn magic(file: &mut File) -> std::io::Result<Option<u32>> {
    let mut first = [0; 4];
    let is_there = match file.read_exact(&mut first) {
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(error),
        read => read.is_ok(),
    };
    file.rewind()?;
    Ok(is_there.then(|| u32::from_le_bytes(first)))
}

/// Seconds as a list has them, to the microsecond, in ns.
fn nanoseconds(seconds: f64) -> i64 {
    ((seconds * 1e6).round() as i64).saturating_mul(1_000)
}
