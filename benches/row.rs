//! The results of benchmarks: one comparison of a work with its limit, measured in turns, is one [`Row`].
//!
//! It takes cases, each with a pair to measure, and gives rows, for [`table`](crate::table) to write. Absolute times on
//! shared machines mean nothing, so work and limit are measured in the same run, in turns, and what counts is the
//! median of their ratios.

use std::fmt;
use std::io::Write;

/// A comparison. Its name selects it on the command line, subject first: `update/ipv4-32mb`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What flowpeel does.
    pub(crate) work: &'static str,
    /// What it is held against.
    pub(crate) limit: &'static str,
    /// The unit of both: `ns an update`, `CPU s`, `MiB`.
    pub(crate) unit: &'static str,
    /// The most that work / limit may be; `None` if it has no target.
    pub(crate) at_most: Option<f64>,
}

/// A work and its limit, set up to be measured repeatedly. Each returns its cost, in the case's unit.
pub(crate) trait Pair {
    fn work(&mut self) -> f64;
    fn limit(&mut self) -> f64;
}

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Whether to do only as much as shows that everything works.
    pub(crate) is_quick: bool,
}

impl Scale {
    /// How often to repeat something, or how many of something to take.
    pub(crate) fn of(self, full: usize, quick: usize) -> usize {
        if self.is_quick { quick } else { full }
    }
}

/// A case that was measured, or not.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) case: Case,
    /// Whether it did too little for its ratio to mean anything.
    pub(crate) is_quick: bool,
    /// The costs, round by round; empty if the case was not measured.
    pub(crate) work: Vec<f64>,
    pub(crate) limit: Vec<f64>,
    /// Why the case was not measured.
    pub(crate) skipped: Option<String>,
}

/// The median of some measurements, and their spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of these measurements; `None` if there are none.
    pub(crate) fn of(measurements: &[f64]) -> Option<Self> {
        let mut sorted = measurements.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median, min, max })
    }
}

impl Row {
    /// work / limit, round by round.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        self.work.iter().zip(&self.limit).map(|(work, limit)| work / limit).collect()
    }

    /// Whether the median ratio is within its target, where there is one and enough was measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let is_within = Spread::of(&self.ratios())?.median <= self.case.at_most?;
        (!self.is_quick).then_some(is_within)
    }

    /// The verdict in a few words.
    pub(crate) fn verdict(&self) -> &str {
        match (&self.skipped, self.is_met()) {
            (Some(_), _) => "not measured",
            (None, Some(true)) => "met",
            (None, Some(false)) => "MISSED",
            (None, None) if self.is_quick && self.case.at_most.is_some() => "too small to judge",
            (None, None) => "",
        }
    }
}

/// The rows so far, and what the command line asked for.
pub(crate) struct Suite {
    scale: Scale,
    rounds: usize,
    /// Parts of names; only cases that have one of them are measured, or all when there is none.
    names: Vec<String>,
    rows: Vec<Row>,
}

impl Suite {
    pub(crate) fn new(scale: Scale, rounds: usize, names: Vec<String>) -> Self {
        Suite { scale, rounds, names, rows: Vec::new() }
    }

    /// Measures a case, if it was asked for: `make` sets it up, or says why it cannot be. Then work and limit run in
    /// turns, after one run of each that does not count.
    pub(crate) fn compare<P: Pair>(&mut self, case: Case, make: impl FnOnce(Scale) -> Result<P, String>) {
        if !self.names.is_empty() && !self.names.iter().any(|name| case.name.contains(name.as_str())) {
            return;
        }
        progress(format_args!("{} ...", case.name));
        let mut row = Row { case, is_quick: self.scale.is_quick, work: Vec::new(), limit: Vec::new(), skipped: None };
        match make(self.scale) {
            Ok(mut pair) => {
                pair.work();
                pair.limit();
                for _ in 0..self.rounds {
                    row.work.push(pair.work());
                    row.limit.push(pair.limit());
                }
            }
            Err(reason) => row.skipped = Some(reason),
        }
        self.rows.push(row);
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// Prints a line of progress.
fn progress(line: fmt::Arguments) {
    // Standard error may be closed, which is no reason to stop.
    drop(writeln!(std::io::stderr(), "bench: {line}"));
}
