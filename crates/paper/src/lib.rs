//! The experiments of three papers, run again: Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables",
//! arXiv:1101.2245; Ding and Rauen, "Improving Retrieval Performance for Invertible Bloom Counters"; and Greenfield's
//! B-fields.
//!
//! For every figure the report has the paper's value, ours, the number of trials and the confidence interval, side by
//! side, with plots. Experiments are pure: equal settings give equal rows on every machine, in any order and on any
//! thread, and only [`write()`] touches a file.
//!
//! ```
//! use flowpeel_paper::{Setting, Table1, Experiment};
//!
//! let section = Table1.run(&Setting { seed: 1, is_quick: true, kept: None }, &|_| ());
//! let row = &section.tables[0].rows[0];
//! assert!(row.what.contains("k = 3") && row.ours.center() > 1.2217);
//! ```

mod appendix;
mod bfield;
mod bfield_headline;
mod bfield_options;
mod claims;
mod counters;
mod degrees;
mod differences;
mod duplicates;
mod figure1;
mod figure2;
mod fill;
mod get;
pub mod growth;
mod lost;
mod overload;
mod parts;
mod placement;
mod plot;
mod quotienting;
mod report;
mod row;
mod seeds;
mod spike;
mod table1;
mod table2;
mod theorems;
mod theory;

pub use appendix::Appendix;
pub use bfield::BField;
pub use bfield_headline::{Headline, Outcome, Progress, Timed};
pub use bfield_options::BFieldOptions;
pub use counters::Counters;
pub use degrees::ChosenCells;
pub use differences::Differences;
pub use duplicates::Duplicates;
pub use figure1::Figure1;
pub use figure2::Figure2;
pub use get::Get;
pub use lost::Lost;
pub use parts::{KeptParts, processor_time};
pub use placement::Placements;
pub use plot::{Line, Plot, svg};
pub use quotienting::Quotienting;
pub use report::{Took, markdown, write, write_times};
pub use row::{Measure, Reference, Row, Source, Unit};
pub use seeds::{SeedRun, write_seeds};
pub use spike::Spikes;
pub use table1::Table1;
pub use table2::Table2;
pub use theorems::Theorems;

use std::sync::Arc;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The seed of all random keys.
    pub seed: u64,
    /// Whether to run only as many trials as take some seconds.
    pub is_quick: bool,
    /// The parts of long series of trials that an earlier run finished, and where those of this one are kept.
    pub kept: Option<Arc<KeptParts>>,
}

impl Setting {
    /// The number of trials: `full`, or `quick` in a quick run.
    fn trials(&self, full: u64, quick: u64) -> u64 {
        if self.is_quick { quick } else { full }
    }

    /// A seed of its own for each part of an experiment.
    fn seed_of(&self, part: u64) -> u64 {
        fill::number_at(self.seed, part)
    }
}

/// Called before each part of an experiment with what is tried next.
pub type Step<'a> = dyn Fn(&str) + Sync + 'a;

/// One figure or table of a paper, or an experiment beyond the papers.
pub trait Experiment: Sync {
    /// The title in the report.
    fn title(&self) -> &'static str;

    /// Runs the experiment.
    fn run(&self, setting: &Setting, step: &Step) -> Section;
}

/// All experiments, in the order of the report.
pub const EXPERIMENTS: [&dyn Experiment; 17] = [
    &Table1,
    &Theorems,
    &Figure1,
    &Duplicates,
    &Figure2,
    &Table2,
    &Get,
    &Lost,
    &Spikes,
    &ChosenCells,
    &Quotienting,
    &Placements,
    &Differences,
    &Counters,
    &Appendix,
    &BField,
    &BFieldOptions,
];

/// The results of one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The title of the experiment.
    pub title: &'static str,
    /// What was tried, and how.
    pub text: &'static str,
    /// The figures.
    pub tables: Vec<RowTable>,
    /// The plots.
    pub plots: Vec<Plot>,
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct RowTable {
    /// What the rows have in common.
    pub caption: String,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Section {
    /// All rows of all tables.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|table| &table.rows)
    }
}

#[cfg(test)]
mod tests;
