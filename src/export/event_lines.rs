//! Events as lines, in the dialect of one destination; and what a line that was written says.

use crate::export::eve;
use crate::export::flow_line::{CLOSED, Change, FlowEvent, append_event};
use crate::export::lines::{Dialect, json_line};
use crate::export::timestamp::TimeFormatter;
use serde::{Deserialize, Serialize};

/// Writes events as lines.
pub struct EventLines {
    dialect: Dialect,
    times: TimeFormatter,
}

#[derive(Serialize)]
struct LossLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_loss: LossFields,
}

#[derive(Serialize)]
struct LossFields {
    lost: u64,
    seq: u64,
}

#[derive(Serialize)]
struct GapLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_gap: GapFields<'a>,
}

#[derive(Serialize)]
struct GapFields<'a> {
    start: &'a str,
    end: &'a str,
    seq: u64,
}

/// A time of which events may be missing.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// When it began, in ns since 1970.
    pub start_ns: i64,
    /// When it ended, in ns since 1970.
    pub end_ns: i64,
    /// The number of the next event.
    pub sequence: u64,
}

impl EventLines {
    /// Lines of flowpeel's own, with the number of the event and all that is known.
    #[must_use]
    pub fn own() -> Self {
        EventLines { dialect: Dialect::Own, times: TimeFormatter::default() }
    }

    /// Lines as Suricata writes them.
    #[must_use]
    pub fn eve() -> Self {
        EventLines { dialect: Dialect::Eve, times: TimeFormatter::default() }
    }

    /// Appends the line of an event, with its newline.
    pub fn append(&mut self, line: &mut Vec<u8>, event: &FlowEvent) {
        match self.dialect {
            Dialect::Own => append_event(line, &mut self.times, event),
            Dialect::Eve => eve::append_archived(line, &mut self.times, &event.flow),
        }
    }

    /// Appends a line that says that so many events are missing before the one of this number and time.
    pub fn append_loss(&mut self, line: &mut Vec<u8>, lost: u64, next: &FlowEvent) {
        let timestamp = &self.time(next.flow.end_ns);
        let flow_loss = LossFields { lost, seq: next.sequence };
        // Writing to a vector cannot fail.
        drop(json_line(line, &LossLine { timestamp, event_type: LOSS, flow_loss }));
    }

    /// Appends a line that says of which time events may be missing.
    pub fn append_gap(&mut self, line: &mut Vec<u8>, gap: &Gap) {
        let [start, end] = &[gap.start_ns, gap.end_ns].map(|time_ns| self.time(time_ns));
        let flow_gap = GapFields { start, end, seq: gap.sequence };
        // Writing to a vector cannot fail.
        drop(json_line(line, &GapLine { timestamp: end, event_type: "flow_gap", flow_gap }));
    }

    /// A time as lines have it.
    pub fn time(&mut self, time_ns: i64) -> String {
        let time = self.times.rfc3339(time_ns);
        match self.dialect {
            Dialect::Own => time.as_str().to_owned(),
            Dialect::Eve => String::from_utf8_lossy(&time.eve()).into_owned(),
        }
    }
}

/// The `event_type` of a connection, and of what was lost.
const FLOW: &str = "flow";
const LOSS: &str = "flow_loss";

/// What a line of a log says, as far as a run has to know that continues it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine {
    /// When it happened, as the line has it.
    pub timestamp: String,
    /// What the line is about.
    pub about: Logged,
}

/// What a line of a log is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// A connection.
    Flow {
        /// The number of the connection.
        flow_id: u64,
        /// The number of the event, where lines have it.
        sequence: Option<u64>,
        /// Whether the connection has ended.
        is_closed: bool,
        /// Whether this may take back that it has ended.
        is_taken_back: bool,
    },
    /// Events that were lost before the one of this number.
    Loss(u64),
}

#[derive(Deserialize)]
struct ReadLine {
    timestamp: String,
    event_type: String,
    #[serde(default)]
    change: Option<String>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    flow_id: Option<u64>,
    #[serde(default)]
    flow: Option<ReadFlow>,
    #[serde(default)]
    flow_loss: Option<ReadLoss>,
}

#[derive(Deserialize)]
struct ReadFlow {
    state: String,
}

#[derive(Deserialize)]
struct ReadLoss {
    seq: u64,
}

impl LoggedLine {
    /// The number of the last event of which the line says what became of it, where lines have numbers.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        match self.about {
            Logged::Flow { sequence, .. } => sequence,
            Logged::Loss(next) => Some(next.saturating_sub(1)),
        }
    }

    /// Reads a line of either dialect; `None` if it is no line of an event, or not whole.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        let line: ReadLine = serde_json::from_slice(line).ok()?;
        let about = match line.event_type.as_str() {
            LOSS => Logged::Loss(line.flow_loss?.seq),
            FLOW => {
                let is_closed = line.flow?.state == CLOSED;
                let is_taken_back = line.change.map_or(!is_closed, |change| change == Change::Reopened.name());
                Logged::Flow { flow_id: line.flow_id?, sequence: line.seq, is_closed, is_taken_back }
            }
            _ => return None,
        };
        Some(LoggedLine { timestamp: line.timestamp, about })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::ArchivedFlow;
    use crate::flow::VlanTags;

    #[test]
    fn what_was_written_is_read() {
        for (change, reason) in [
            (Change::Opened, None),
            (Change::Closed, Some("fin")),
            (Change::Reopened, None),
            (Change::Unfinished, Some("end_of_input")),
        ] {
            let flow = ArchivedFlow {
                client: "10.0.0.1:40000".parse().unwrap(),
                server: "[2001:db8::1]:443".parse().unwrap(),
                vlan: VlanTags::NONE.with(7),
                start_ns: 1_767_225_600_500_000_000,
                end_ns: 1_767_225_610_000_000_000,
                age_ns: 9_500_000_000,
                reason,
                midstream: true,
                start_is_bound: false,
            };
            let event = FlowEvent { change, flow, sequence: 17, seen: None, nat: None };
            for (mut lines, sequence) in [(EventLines::own(), Some(17)), (EventLines::eve(), None)] {
                let mut line = Vec::new();
                lines.append(&mut line, &event);
                let read = LoggedLine::read(&line).unwrap();
                assert_eq!(read.timestamp, lines.time(flow.end_ns));
                let Logged::Flow { flow_id, sequence: read, is_closed, is_taken_back } = read.about else { panic!() };
                assert_eq!((flow_id, read), (flow.id(), sequence));
                let is_eve = sequence.is_none();
                assert_eq!(is_closed, change == Change::Closed || is_eve && change == Change::Unfinished);
                assert_eq!(is_taken_back, change == Change::Reopened || is_eve && change == Change::Opened);
                assert_eq!(LoggedLine::read(&line[..line.len() - 2]), None, "cut");
                line.clear();
                lines.append_loss(&mut line, 5, &event);
                assert_eq!(LoggedLine::read(&line).unwrap().about, Logged::Loss(17));
                line.clear();
                lines.append_gap(&mut line, &Gap { start_ns: 0, end_ns: flow.end_ns, sequence: 18 });
                assert_eq!(LoggedLine::read(&line), None);
            }
        }
    }
}
