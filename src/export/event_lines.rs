//! Events as lines, in the dialect of one destination.

use crate::export::eve;
use crate::export::flow_line::{FlowEvent, append_event};
use crate::export::lines::{Dialect, json_line};
use crate::export::timestamp::TimeFormatter;
use serde::Serialize;

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
        let time = self.times.rfc3339(next.flow.end_ns);
        let eve_time = time.eve();
        let timestamp = match self.dialect {
            Dialect::Own => time.as_str(),
            Dialect::Eve => str::from_utf8(&eve_time).unwrap_or_default(),
        };
        let flow_loss = LossFields { lost, seq: next.sequence };
        // Writing to a vector cannot fail.
        drop(json_line(line, &LossLine { timestamp, event_type: "flow_loss", flow_loss }));
    }
}
