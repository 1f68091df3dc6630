//! The sources that opened connections, as NDJSON: a header line, then a line for each source, those with the most
//! attempts first.
//!
//! A file that is read may hold anything. Every field is parsed as the number, address or time that it has to be, and
//! no more lines are kept than are asked for.

use crate::error::{Error, Result};
use crate::export::lines::{is_zero, json_line};
use crate::export::timestamp::rfc3339;
use crate::sources::{Report, Source};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Reverse;
use std::io::{self, BufRead, BufWriter, Write};
use std::net::IpAddr;

/// The longest line of a file of sources that is read back, in bytes: lines that flowpeel writes have fewer than 300.
const SOURCE_LINE_SIZE_MAX: u64 = 4 << 10;

#[derive(Serialize)]
struct HeaderLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    source_list: SourceListHeader,
}

#[derive(Serialize)]
struct SourceLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    src_ip: IpAddr,
    source: SourceFigures,
}

/// Any line of a file.
#[derive(Deserialize)]
struct AnyLine {
    source_list: Option<SourceListHeader>,
    src_ip: Option<IpAddr>,
    source: Option<SourceFigures>,
}

/// The header of a list of sources.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SourceListHeader {
    /// The number of the interval.
    pub interval: u64,
    /// When the period began, in ns since 1970.
    #[serde(rename = "start", serialize_with = "write_time", deserialize_with = "read_time")]
    pub start_ns: i64,
    /// When it ended, in ns since 1970.
    #[serde(rename = "end", serialize_with = "write_time", deserialize_with = "read_time")]
    pub end_ns: i64,
    /// Whether every source is listed, with exact figures.
    pub complete: bool,
    /// The sources listed.
    pub sources: u64,
    /// About how many sources are missing.
    pub missing: u64,
    /// Attempts of all sources.
    pub attempts: u64,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Packets and signals lost in the period.
    pub dropped: u64,
    /// Packets in the period that the capture cut before their TCP flags; written only if there are any.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: u64,
    /// Intervals merged into the period.
    pub merged: u64,
}

/// The figures of one source.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SourceFigures {
    /// Attempts to open a connection; the least that there were, unless `sure`.
    pub attempts: u64,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Attempts that were neither.
    pub unanswered: u64,
    /// Whether the figures are exact.
    pub sure: bool,
    /// The most attempts that there may have been, unless `sure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u64>,
}

impl SourceFigures {
    fn new(source: &Source) -> Self {
        SourceFigures {
            attempts: source.attempts,
            answered: source.answered,
            refused: source.refused,
            unanswered: source.unanswered(),
            sure: source.attempts_max.is_none(),
            attempts_max: source.attempts_max,
        }
    }
}

fn write_time<S: Serializer>(time_ns: &i64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time_ns))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<i64, D::Error> {
    let time: Timestamp = String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)?;
    i64::try_from(time.as_nanosecond()).map_err(serde::de::Error::custom)
}

/// Writes a report.
pub(super) fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let source_list = SourceListHeader {
        interval: report.period.interval,
        start_ns: report.period.start_ns,
        end_ns: report.period.end_ns,
        complete: report.complete,
        sources: report.sources.len() as u64,
        missing: report.missing,
        attempts: report.attempts,
        answered: report.answered,
        refused: report.refused,
        dropped: report.period.dropped,
        cut: report.period.cut,
        merged: report.period.merged,
    };
    let timestamp = &rfc3339(report.period.end_ns);
    json_line(&mut out, &HeaderLine { timestamp, event_type: "source_list", source_list })?;
    for source in &report.sources {
        let figures = SourceFigures::new(source);
        json_line(&mut out, &SourceLine { timestamp, event_type: "source", src_ip: source.address, source: figures })?;
    }
    out.flush()
}

/// A list of sources that was read back.
#[derive(Clone, Debug)]
pub struct SourceList {
    /// Its header.
    pub header: SourceListHeader,
    /// The sources with the most attempts, in that order.
    pub top: Vec<(IpAddr, SourceFigures)>,
    /// How many sources it has lines for.
    pub source_count: u64,
}

impl SourceList {
    /// Reads a list to its end, and keeps the `top` sources with the most attempts.
    ///
    /// Complexity: linear in the file, in memory for twice `top` sources.
    ///
    /// # Errors
    ///
    /// It cannot be read, or a line is none of such a list.
    pub fn read(reader: &mut dyn BufRead, top: usize) -> Result<Self> {
        let mut list: Option<SourceList> = None;
        let mut line = Vec::new();
        let mut offset = 0;
        loop {
            line.clear();
            let read = io::Read::take(&mut *reader, SOURCE_LINE_SIZE_MAX + 1).read_until(b'\n', &mut line);
            let size = read.map_err(|error| Error::new("cannot read on").at(offset).because(error))? as u64;
            if size == 0 {
                break;
            }
            let strange = || Error::new("this is no line of a file that --sources wrote").at(offset);
            if size > SOURCE_LINE_SIZE_MAX {
                return Err(strange().because("it is too long"));
            }
            let parsed: AnyLine = serde_json::from_slice(&line).map_err(|_| strange())?;
            match (parsed, &mut list) {
                (AnyLine { source_list: Some(header), src_ip: None, source: None }, list @ None) => {
                    *list = Some(SourceList { header, top: Vec::new(), source_count: 0 });
                }
                (AnyLine { source_list: None, src_ip: Some(address), source: Some(figures) }, Some(list)) => {
                    list.source_count += 1;
                    list.top.push((address, figures));
                    // Files that flowpeel writes are sorted; others must not take more memory.
                    if list.top.len() >= 2 * top + 2 {
                        list.keep(top);
                    }
                }
                _ => return Err(strange()),
            }
            offset += size;
        }
        let mut list = list.ok_or_else(|| Error::new("it is empty: --sources writes a header at least"))?;
        list.keep(top);
        Ok(list)
    }

    /// Removes all but the `top` sources with the most attempts.
    fn keep(&mut self, top: usize) {
        self.top.sort_by_key(|&(address, figures)| (Reverse(figures.attempts), address));
        self.top.truncate(top);
    }
}
