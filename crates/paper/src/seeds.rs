//! Whether intervals are as wide as chance asks: the experiments under many seeds, and how often each row is outside.
//!
//! An interval for 95 of 100 cases is missed in one of twenty, and a promise with one side in one of forty. A row that
//! is outside more often has a wrong reference or too narrow a tolerance; rows that are never outside say little.

use crate::plot::svg;
use crate::row::grouped;
use crate::{Line, Measure, Plot, Reference, Row, Section};
use flowpeel::error::{Error, Result};
use flowpeel_iblt::interval::{Interval, NINETY_FIVE, mean_of};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How unlikely a count of misses has to be, over all rows together, to be more than chance.
const UNLIKELY: f64 = 0.001;

/// The experiments under one seed.
#[derive(Clone, Debug)]
pub struct SeedRun {
    /// The seed.
    pub seed: u64,
    /// What came out.
    pub sections: Vec<Section>,
}

/// How often one row was tried and outside.
#[derive(Clone, Copy, Debug, Default)]
struct Misses {
    outside_count: u64,
    run_count: u64,
    /// The chance of being outside in one run, at most.
    chance: f64,
}

/// The chance that a row is outside where its reference is right, at most; none where chance has no part in it.
fn chance(row: &Row) -> Option<f64> {
    match (row.reference, row.ours) {
        (Reference::Unknown, _) | (_, Measure::Exact(_)) => None,
        (Reference::AtLeast(value), _) if value >= 1.0 => None,
        (Reference::AtLeast(_) | Reference::AtMost(_), _) => Some(0.025),
        (Reference::Value { .. } | Reference::Counted { .. }, _) => Some(0.05),
    }
}

/// The chance of `count` or more of `trial_count` successes that have a chance of `share` each.
fn tail(count: u64, trial_count: u64, share: f64) -> f64 {
    let mut term = (1.0 - share).powf(trial_count as f64);
    let mut below = 0.0;
    for at in 0..count {
        below += term;
        term *= (trial_count - at) as f64 / (at + 1) as f64 * share / (1.0 - share);
    }
    (1.0 - below).max(0.0)
}

/// The misses of all rows in which chance has a part, by their names.
fn misses(runs: &[SeedRun]) -> BTreeMap<String, Misses> {
    let mut misses: BTreeMap<String, Misses> = BTreeMap::new();
    for section in runs.iter().flat_map(|run| &run.sections) {
        for table in &section.tables {
            for row in &table.rows {
                let Some(chance) = chance(row) else { continue };
                let name = format!("{}, {}, {}", section.title, table.caption, row.what);
                let of_row = misses.entry(name).or_default();
                of_row.outside_count += u64::from(!row.is_expected());
                of_row.run_count += 1;
                of_row.chance = chance;
            }
        }
    }
    misses
}

/// The share of the rows that are outside in each run.
fn shares(runs: &[SeedRun]) -> Vec<f64> {
    let share = |run: &SeedRun| {
        let rows: Vec<_> = run.sections.iter().flat_map(Section::rows).filter(|row| chance(row).is_some()).collect();
        rows.iter().filter(|row| !row.is_expected()).count() as f64 / rows.len().max(1) as f64
    };
    runs.iter().map(share).collect()
}

/// Promises about every trial that were broken in some run.
fn broken(runs: &[SeedRun]) -> (usize, Vec<String>) {
    let sections = runs.iter().flat_map(|run| run.sections.iter().map(move |section| (run.seed, section)));
    let rows = sections.flat_map(|(seed, section)| section.rows().map(move |row| (seed, section.title, row)));
    let promises: Vec<_> = rows
        .filter(|(_, _, row)| {
            matches!(row.reference, Reference::AtLeast(value) if value >= 1.0) && !matches!(row.ours, Measure::Exact(_))
        })
        .collect();
    let broken = promises.iter().filter(|(_, _, row)| !row.is_expected());
    (promises.len(), broken.map(|(seed, title, row)| format!("{title}, {}: seed {seed}", row.what)).collect())
}

/// The report as text.
fn markdown(runs: &[SeedRun], command: &str) -> String {
    let misses = misses(runs);
    let shares = shares(runs);
    let (mean, error) = mean_of(&shares);
    let Interval { low, high } = Interval::of_mean(mean, error, NINETY_FIVE);
    let allowed = misses.values().map(|of_row| of_row.chance).sum::<f64>() / misses.len().max(1) as f64;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let run_count = misses.values().map(|of_row| of_row.run_count).sum::<u64>();
    let outside_count = misses.values().map(|of_row| of_row.outside_count).sum::<u64>();
    let mut text = format!(
        "# The experiments under other seeds\n\nMade by `{command}`. An interval for 95 of 100 cases is missed in one of twenty \
         where its reference is right, and a promise with one side in one of forty; tolerances make it fewer. Chance has a part \
         in {} rows; {} seeds make {} of them.\n\n|  | outside |\n|---|---:|\n| what chance allows, at most | {} |\n| found: {} \
         of {} | {} |\n| its 95 % interval, from the scatter between seeds | {} to {} |\n",
        misses.len(),
        runs.len(),
        grouped(run_count),
        percent(allowed),
        grouped(outside_count),
        grouped(run_count),
        percent(mean),
        percent(low),
        percent(high)
    );
    let limit = UNLIKELY / misses.len().max(1) as f64;
    let is_often = |of_row: &Misses| {
        tail(of_row.outside_count, of_row.run_count, of_row.chance) < limit && of_row.outside_count > 0
    };
    let often: Vec<_> = misses.iter().filter(|(_, of_row)| is_often(of_row)).collect();
    text += "\nRows that are outside more often than chance allows (the binomial bound, for one false alarm in a thousand reports): ";
    text += if often.is_empty() { "none.\n" } else { "\n\n" };
    for (name, Misses { outside_count, run_count, .. }) in often {
        text += &format!("- {name}: {outside_count} of {run_count}\n");
    }
    let (promise_count, broken) = broken(runs);
    text += &format!("\nPromises about every trial: {} rows, ", grouped(promise_count as u64));
    text += if broken.is_empty() { "none broken.\n" } else { "broken:\n\n" };
    broken.iter().for_each(|broken| text += &format!("- {broken}\n"));
    text + "\n![Rows outside, by seed](seeds.svg)\n"
}

/// Writes what the runs say about the intervals to `seeds.md`, with a plot, beside the plots of the report at `path`;
/// `command` is what the runs were made by.
///
/// # Errors
///
/// A file or the folder cannot be written.
pub fn write_seeds(runs: &[SeedRun], command: &str, path: &Path) -> Result<()> {
    let folder = path.with_extension("");
    let cannot = |error| Error::new("cannot write the report about seeds").in_file(&folder).because(error);
    fs::create_dir_all(&folder).map_err(cannot)?;
    let seeds = runs.iter().map(|run| run.seed as f64);
    let points = |share: &dyn Fn(usize) -> f64| {
        seeds.clone().enumerate().map(|(at, seed)| (seed, 100.0 * share(at))).collect::<Vec<_>>()
    };
    let shares = shares(runs);
    let plot = Plot {
        file_name: "seeds.svg",
        title: "Rows outside, by seed",
        x: "seed",
        y: "rows outside, %",
        lines: vec![
            Line { name: "outside".to_owned(), points: points(&|at| shares[at]) },
            Line { name: "one in twenty".to_owned(), points: points(&|_| 0.05) },
        ],
    };
    fs::write(folder.join(plot.file_name), svg(&plot)?).map_err(cannot)?;
    fs::write(folder.join("seeds.md"), markdown(runs, command)).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RowTable, Source};

    #[test]
    fn tails_are_those_of_the_binomial_distribution() {
        assert!((tail(1, 10, 0.05) - (1.0 - 0.95f64.powi(10))).abs() < 1e-12);
        assert!((tail(3, 20, 0.05) - 0.075_48).abs() < 1e-4, "{}", tail(3, 20, 0.05));
        assert_eq!(tail(0, 20, 0.05), 1.0);
    }

    #[test]
    fn rows_that_are_outside_too_often_are_named() {
        let row = |name: &str, count| {
            let reference = Reference::Value { value: 0.5, tolerance: 0.0 };
            Row::percent(name, Source::Formula, reference, Measure::Share { count, trial_count: 1_000 })
        };
        let run = |seed: u64| {
            let right = row("right", if seed == 3 { 570 } else { 505 });
            let rows = vec![right, row("wrong", 570), Row::always("promise", (10, 10))];
            let tables = vec![RowTable { caption: "Caption".to_owned(), rows }];
            SeedRun { seed, sections: vec![Section { title: "Title", text: "", tables, plots: Vec::new() }] }
        };
        let runs: Vec<_> = (0..20).map(run).collect();
        let text = markdown(&runs, "command");
        assert!(text.contains("- Title, Caption, wrong: 20 of 20\n") && !text.contains("right: 1"), "{text}");
        assert!(text.contains("| found: 21 of 40 | 52.50 % |") && text.contains("20 rows, none broken"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        write_seeds(&runs, "command", &folder.path().join("paper.md")).unwrap();
        assert!(folder.path().join("paper/seeds.svg").exists());
    }
}
