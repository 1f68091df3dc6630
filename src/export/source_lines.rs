//! The sources that opened connections, as NDJSON: a header line, then a line for each source, those with the most
//! attempts first.
//!
//! What enters: a report. What leaves: its lines on a stream.

use crate::export::lines::json_line;
use crate::export::timestamp::Clockface;
use crate::sources::{Report, Source};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;

#[derive(Serialize)]
struct HeaderLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    source_list: HeaderFields<'a>,
}

#[derive(Serialize)]
struct HeaderFields<'a> {
    interval: u64,
    start: &'a str,
    end: &'a str,
    complete: bool,
    sources: u64,
    missing: u64,
    attempts: u64,
    answered: u64,
    refused: u64,
    dropped: u64,
    merged: u64,
}

#[derive(Serialize)]
struct SourceLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    src_ip: IpAddr,
    source: SourceFields,
}

#[derive(Serialize)]
struct SourceFields {
    attempts: u64,
    answered: u64,
    refused: u64,
    unanswered: u64,
    sure: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u64>,
}

impl SourceFields {
    fn new(source: &Source) -> Self {
        SourceFields {
            attempts: source.attempts,
            answered: source.answered,
            refused: source.refused,
            unanswered: source.unanswered(),
            sure: source.attempts_max.is_none(),
            attempts_max: source.attempts_max,
        }
    }
}

/// Writes a report.
pub(super) fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let mut clockface = Clockface::default();
    let start = clockface.rfc3339(report.period.start_ns);
    let end = clockface.rfc3339(report.period.end_ns);
    let source_list = HeaderFields {
        interval: report.period.interval,
        start: start.as_str(),
        end: end.as_str(),
        complete: report.complete,
        sources: report.sources.len() as u64,
        missing: report.missing,
        attempts: report.attempts,
        answered: report.answered,
        refused: report.refused,
        dropped: report.period.dropped,
        merged: report.period.merged,
    };
    let timestamp = end.as_str();
    json_line(&mut out, &HeaderLine { timestamp, event_type: "source_list", source_list })?;
    for source in &report.sources {
        let fields = SourceFields::new(source);
        json_line(&mut out, &SourceLine { timestamp, event_type: "source", src_ip: source.address, source: fields })?;
    }
    out.flush()
}
