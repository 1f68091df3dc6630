//! What is said to people, on standard error.

use crate::error::Error;
use crate::pipeline::{Config, Memory, Summary};
use anstream::{eprint, eprintln};
use anstyle::{AnsiColor, Style};
use hdrhistogram::Histogram;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Voice {
    /// Errors only.
    Quiet,
    /// What a run takes, and what came of it.
    Normal,
    /// How it went, too.
    Verbose,
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Says what failed, and what was done all the same.
pub(super) fn error(error: &Error, aftermath: &str) {
    eprintln!("{ERROR}error:{ERROR:#} {error}{aftermath}");
}

pub(super) fn warning(text: &str) {
    eprintln!("{WARNING}warning:{WARNING:#} {text}");
}

/// A count with its thousands set apart.
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

fn mib(size: u64) -> String {
    format!("{:.1}", size as f64 / f64::from(1 << 20))
}

/// What the run takes.
pub(super) fn memory(memory: &Memory, config: &Config) {
    eprintln!(
        "room for {} connections and {} changes an interval: {} MiB at most \
         (filter {}, half-open {}, tables {}, queues {}, list up to {})",
        grouped(config.connections_max),
        grouped(config.churn),
        mib(memory.total_size()),
        mib(memory.filter_size),
        mib(memory.rings_size),
        mib(memory.tables_size),
        mib(memory.queues_size),
        mib(memory.list_size_max),
    );
}

/// What came of it.
pub(super) fn summary(summary: &Summary, voice: Voice) {
    let counts = &summary.counts;
    let (open, half_open) = summary.last.map_or((0, 0), |last| (last.flows, last.half_open));
    let usable = summary.packets - summary.unusable.iter().map(|(_, count)| count).sum::<u64>();
    let lines = [
        ("packets", summary.packets, String::new()),
        ("  TCP", usable, String::new()),
        ("signals", summary.signals.signals, sampled(summary)),
        ("opened", counts.opened, String::new()),
        ("closed", counts.closed, String::new()),
        ("open", open, String::new()),
        ("half-open", half_open, format!("{} refused, {} timed out", grouped(counts.refused), grouped(counts.expired))),
        ("repeats ignored", counts.repeats + counts.late, String::new()),
        (
            "unmatched closes",
            counts.unmatched_fins + counts.unmatched_resets,
            format!("{} FIN, {} RST", grouped(counts.unmatched_fins), grouped(counts.unmatched_resets)),
        ),
        ("untracked", counts.untracked(), untracked(summary)),
    ];
    for (name, count, note) in lines {
        let gap = if note.is_empty() { "" } else { "  " };
        eprintln!("{name:<18}{:>14}{gap}{note}", grouped(count));
    }
    if !summary.unusable.is_empty() {
        eprintln!("not used:");
        for (reason, count) in &summary.unusable {
            eprintln!("  {:<16}{:>14}", reason.describe(), grouped(*count));
        }
    }
    warnings(summary);
    if voice == Voice::Verbose {
        decoding(summary);
    }
}

fn sampled(summary: &Summary) -> String {
    match summary.signals.handshakes_lost {
        0 => String::new(),
        lost => format!(
            "{} sampled, because {} handshakes were pushed out of the cache",
            grouped(summary.signals.sampled),
            grouped(lost)
        ),
    }
}

fn untracked(summary: &Summary) -> String {
    let counts = &summary.counts;
    let parts = [
        ("half-open recycled", counts.recycled),
        ("over --connections", counts.refused_open),
        ("without a place", counts.unplaced),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {name}", grouped(*count)))
        .collect();
    parts.join(", ")
}

fn warnings(summary: &Summary) {
    let counts = &summary.counts;
    if summary.incomplete > 0 {
        warning(&format!(
            "{} of {} lists are not complete: see `missing` in their headers",
            grouped(summary.incomplete),
            grouped(summary.lists)
        ));
    }
    if counts.refused_open > 0 {
        warning(&format!(
            "{} connections were established when no more could be tracked: raise --connections",
            grouped(counts.refused_open)
        ));
    }
    if counts.one_sided > 0 {
        warning(&format!(
            "{} connections were seen from one side only and are not listed as established: see --one-way",
            grouped(counts.one_sided)
        ));
    }
}

fn decoding(summary: &Summary) {
    let (outcome, latencies) = (&summary.outcome, &summary.latencies);
    eprintln!(
        "decoding: {} deltas left something, {} closings found by the list, {} starts corrected, {} lost, {} set aside",
        grouped(outcome.deltas_left),
        grouped(outcome.unstuck),
        grouped(outcome.restarted),
        grouped(outcome.starts_lost),
        grouped(outcome.set_aside)
    );
    for (name, histogram) in [("peel a delta", &latencies.peel_ns), ("write a list", &latencies.list_ns)] {
        eprint!("{name}: {} times", grouped(histogram.len()));
        quantiles(histogram);
    }
}

fn quantiles(histogram: &Histogram<u64>) {
    let us = |ns: u64| grouped(ns / 1_000);
    eprintln!(
        ", median {} us, 99 % {} us, longest {} us",
        us(histogram.value_at_quantile(0.5)),
        us(histogram.value_at_quantile(0.99)),
        us(histogram.max())
    );
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
