//! Messages to people, on standard error.
//!
//! Errors, warnings, the memory and the summary of a run, coloured on a terminal. Standard output is for lists alone,
//! so that it can always be piped.

use crate::cli::log;
use crate::cli::table::{self, Align};
use crate::engine::{Latencies, Plan, SavingCounts, Summary};
use crate::error::Error;
use crate::metrics::Durations;
use crate::parse::Unusable;
use crate::signal::FOLLOWS_MAX_NS;
use anstyle::{AnsiColor, Style};
use std::fmt;
use std::io::{IsTerminal, Write};

/// How much a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Voice {
    /// Errors only.
    Quiet,
    /// The memory and the summary of a run, too.
    Normal,
    /// How decoding went, too.
    Verbose,
}

impl Voice {
    /// Whether a progress bar may be drawn where standard error is a terminal: never between log lines.
    pub(super) fn draws(self) -> bool {
        self > Voice::Quiet && !log::is_on()
    }
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Prints a line. If standard error is closed or full the line is lost, and the work continues.
pub(super) fn line(text: fmt::Arguments) {
    if log::is_on() {
        log::info(&text.to_string());
    } else {
        show(text);
    }
}

fn show(text: fmt::Arguments) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Ends a line of the terminal on which something else stands, such as `^C`.
pub(super) fn leave_line() {
    if std::io::stderr().is_terminal() && !log::is_on() {
        show(format_args!(""));
    }
}

/// Prints an error, and what was done nevertheless.
pub(super) fn error(error: &Error, aftermath: &str) {
    if log::is_on() {
        log::error(&format!("{error}{aftermath}"));
    } else {
        show(format_args!("{ERROR}error:{ERROR:#} {error}{aftermath}"));
    }
}

/// Prints a warning.
pub(super) fn warning(text: &str) {
    if log::is_on() {
        log::warning(text);
    } else {
        show(format_args!("{WARNING}warning:{WARNING:#} {text}"));
    }
}

/// Whether what people read on standard output is in colour.
pub(super) fn is_stdout_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// A count with commas between its thousands.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How often something happened.
pub(super) fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", grouped(count)) }
}

/// A size in MiB, without the unit.
pub(super) fn mib(size: u64) -> String {
    format!("{:.1}", size as f64 / f64::from(1 << 20))
}

/// The words for a part of the memory.
fn part_name(part: &str) -> &str {
    match part {
        "half_open" => "half-open",
        "queues" => "queues and buffers",
        "list" => "list up to",
        "state" => "copies for the state",
        "view" => "rows for top",
        other => other,
    }
}

/// Prints the memory of the run, part by part.
pub(super) fn memory(plan: &Plan) {
    let (memory, config) = (plan.memory(), plan.config());
    let mut parts: Vec<_> = memory.parts().into_iter().filter(|(_, size)| *size > 0).collect();
    // Parts that are taken only as the list grows, or only while a state is written, come last.
    parts.sort_by_key(|(part, _)| ["archive", "events", "list", "state"].iter().position(|last| last == part));
    let parts: Vec<_> = parts.into_iter().map(|(part, size)| format!("{} {}", part_name(part), mib(size))).collect();
    let lowered = if plan.is_lowered() { "; changes or half-open are fewer than usual, to fit --memory" } else { "" };
    line(format_args!(
        "room for {} connections, {} half-open and {} changes an interval: {} MiB at most ({}){lowered}",
        grouped(config.connections_max),
        grouped(plan.half_open_count()),
        grouped(plan.churn()),
        mib(memory.total_size()),
        parts.join(", ")
    ));
    if !config.keeps_list() {
        line(format_args!("no list is kept: connections that time out without FIN or RST stay in the snapshots"));
    }
}

/// Prints the summary of a run.
pub(super) fn summary(summary: &Summary, voice: Voice) {
    if log::is_on() {
        logged_summary(summary);
    } else {
        shown_summary(summary);
    }
    warnings(summary);
    summary.saving.iter().for_each(|saving| saved(saving, &summary.latencies));
    if voice == Voice::Verbose {
        decoding(summary);
    }
}

/// Logs the summary as the fields of one line.
fn logged_summary(summary: &Summary) {
    let counts = &summary.counts;
    tracing::info!(
        packets = summary.packets,
        lost_packets = summary.lost,
        tcp = usable(summary),
        signals = summary.signals.signals,
        lost_signals = summary.queue_full,
        opened = counts.opened,
        closed = counts.closed,
        evicted = counts.evicted(),
        unarchived = counts.unarchived,
        open = summary.last.map_or(0, |last| last.flows),
        half_open = summary.last.map_or(0, |last| last.half_open),
        refused = counts.refused,
        expired = counts.expired,
        recycled = counts.recycled,
        repeats_ignored = counts.repeats + counts.late,
        unmatched_closes = counts.unmatched_fins + counts.unmatched_resets,
        untracked = counts.untracked(),
        lists = summary.lists,
        incomplete_lists = summary.incomplete,
        "ended"
    );
    for (reason, count) in &summary.unusable {
        tracing::info!(packets = count, reason = reason.describe(), "not used");
    }
}

/// The number of packets that held TCP.
fn usable(summary: &Summary) -> u64 {
    summary.packets - summary.unusable.iter().map(|(_, count)| count).sum::<u64>()
}

const LOST_PACKETS: &str = "lost by the kernel";
const LOST_SIGNALS: &str = "  lost, a queue was full";
const EVICTED: &str = "evicted";
const REOPENED: &str = "reopened";
const SHOWN_IF_ANY: [&str; 4] = [LOST_PACKETS, LOST_SIGNALS, EVICTED, REOPENED];

fn shown_summary(summary: &Summary) {
    let counts = &summary.counts;
    let (open, half_open) = summary.last.map_or((0, 0), |last| (last.flows, last.half_open));
    let mut rows = vec![("packets", summary.packets, String::new()), ("  TCP", usable(summary), String::new())];
    let unused = summary.unusable.iter().map(|(reason, count)| (reason.describe(), *count));
    let unused: Vec<_> = unused.map(|(reason, count)| (format!("  {reason}"), count)).collect();
    rows.extend(unused.iter().map(|(reason, count)| (reason.as_str(), *count, String::new())));
    rows.extend([
        (LOST_PACKETS, summary.lost, String::new()),
        ("signals", summary.signals.signals, sampled(summary)),
        (LOST_SIGNALS, summary.queue_full, String::new()),
        ("opened", counts.opened, parts(&[("picked up mid-stream", counts.picked_up)])),
        (REOPENED, counts.reopened, String::new()),
        ("closed", counts.closed, String::new()),
        (EVICTED, counts.evicted(), parts(&[("idle", counts.evicted_idle), ("too old", counts.evicted_aged)])),
        ("open", open, String::new()),
        ("half-open", half_open, parts(&[("refused", counts.refused), ("timed out", counts.expired)])),
        ("repeats ignored", counts.repeats + counts.late, String::new()),
        (
            "unmatched closes",
            counts.unmatched_fins + counts.unmatched_resets,
            parts(&[("FIN", counts.unmatched_fins), ("RST", counts.unmatched_resets)]),
        ),
        (
            "untracked",
            counts.untracked(),
            parts(&[
                ("half-open recycled", counts.recycled),
                ("over --connections", counts.refused_open + counts.refused_pickups),
                ("no place in the filter", counts.unplaced),
            ]),
        ),
    ]);
    // These rows are of interest only when there is something in them.
    rows.retain(|(name, count, _)| *count > 0 || !SHOWN_IF_ANY.contains(name));
    show_rows(&rows);
}

/// Prints a name, a count and a note in each row.
fn show_rows(rows: &[(&str, u64, String)]) {
    let rows: Vec<_> =
        rows.iter().map(|(name, count, note)| [name.to_string(), grouped(*count), note.clone()]).collect();
    table::lines(&rows, [Align::Left, Align::Right, Align::Left]).for_each(|text| line(format_args!("{text}")));
}

fn sampled(summary: &Summary) -> String {
    let signals = &summary.signals;
    match (signals.handshakes_lost, signals.sampled) {
        (0, 0) => String::new(),
        (0, sampled) => parts(&[("sampled", sampled), ("watched for idleness", signals.watched)]),
        (lost, sampled) => {
            format!("{} sampled, because {} handshakes did not fit the cache", grouped(sampled), grouped(lost))
        }
    }
}

/// The parts of a count that are not 0, each with its name.
fn parts(parts: &[(&str, u64)]) -> String {
    let some = parts.iter().filter(|(_, count)| *count > 0);
    let texts: Vec<String> = some.map(|(name, count)| format!("{} {name}", grouped(*count))).collect();
    texts.join(", ")
}

fn warnings(summary: &Summary) {
    let counts = &summary.counts;
    let cut = summary.unusable.iter().find(|(reason, _)| *reason == Unusable::CutShort).map_or(0, |(_, count)| *count);
    if summary.packets == 0 {
        warning("there were no packets");
    }
    if cut > 0 {
        warning(&format!(
            "{} packets were cut by the capture before their TCP flags, so the lists since are not complete: record more \
             of each packet (--snapshot-length of tcpdump)",
            grouped(cut)
        ));
    }
    if counts.unarchived > 0 {
        warning(&format!(
            "{} connections that ended are not in the archive: its disk did not keep up",
            grouped(counts.unarchived)
        ));
    }
    if summary.steps_back > 0 {
        warning(&format!(
            "the clock was set back by more than {} s {}: are the captures in the order of their packets?",
            FOLLOWS_MAX_NS / 1_000_000_000,
            times(summary.steps_back)
        ));
    }
    if summary.incomplete > 0 {
        warning(&format!(
            "{} of {} lists are not complete: see `missing` in their headers",
            grouped(summary.incomplete),
            grouped(summary.lists)
        ));
    }
    // A connection that is found mid-stream is counted each time, so these are no numbers of connections.
    if counts.refused_open + counts.refused_pickups > 0 {
        warning(&format!(
            "connections were established, or found mid-stream, {} when no more could be tracked: raise --connections",
            times(counts.refused_open + counts.refused_pickups)
        ));
    }
    // A connection that was refused looks one-sided afterwards.
    if counts.one_sided > 0 && counts.refused_open == 0 {
        warning(&format!(
            "{} connections were seen from one side only and are not listed as established: see --one-way",
            grouped(counts.one_sided)
        ));
    }
}

/// Prints how saving the state went.
fn saved(saving: &SavingCounts, latencies: &Latencies) {
    let ms = |durations: &Durations| {
        let longest = durations.quantile(1.0).unwrap_or_default();
        format!("{:.1} ms", longest.as_secs_f64() * 1e3)
    };
    if saving.saved > 0 {
        line(format_args!(
            "state saved {}, last {} MiB; longest pause of a partition {}, of the list {}, writing {}",
            times(saving.saved),
            mib(saving.size),
            ms(&latencies.pause),
            ms(&saving.list_pause),
            ms(&saving.writing)
        ));
    }
    if saving.put_off > 0 {
        let times = grouped(saving.put_off);
        warning(&format!("the state was saved late {times} times, because lists were behind"));
    }
    // A state that could not be saved at the end is reported as an error, not here.
    if let Some(error) = saving.error.as_ref().filter(|_| !saving.has_failed) {
        warning(&format!("the state could not be saved {}: {error}", times(saving.failed)));
    }
}

fn decoding(summary: &Summary) {
    let (outcome, latencies) = (&summary.outcome, &summary.latencies);
    let counts = &summary.counts;
    let fates = parts(&[("timed out", counts.candidates_expired), ("recycled", counts.candidates_recycled)]);
    show_rows(&[
        ("candidates seen mid-stream on one side", counts.candidates, fates),
        ("tables not listed in full", outcome.deltas_left, String::new()),
        ("closings found by the list", outcome.unstuck, String::new()),
        ("starts corrected", outcome.restarted, String::new()),
        ("starts lost", outcome.starts_lost, String::new()),
        ("deferred", outcome.deferred, String::new()),
    ]);
    for (name, took) in [("peel a delta", &latencies.peel), ("write a list", &latencies.list)] {
        let us = |quantile| grouped(took.quantile(quantile).unwrap_or_default().as_micros() as u64);
        line(format_args!(
            "{name}: {} times, median {} us, 99 % {} us, longest {} us",
            grouped(took.count()),
            us(0.5),
            us(0.99),
            us(1.0)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
