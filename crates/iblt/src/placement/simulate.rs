//! Simulation of listing, on tables without fields of which only the structure is peeled. Equal seeds give equal
//! outcomes on every machine.

use super::{Layout, Placement};
use crate::hash::{GOLDEN_64, mixed};

/// A series of trials, each with its own random keys.
///
/// ```
/// use flowpeel_iblt::{Placement, Simulation};
///
/// let placement = Placement::Subtables { hash_count: 4 };
/// let simulation = Simulation { placement, item_count: 1_000, cell_count: 1_400, trial_count: 100, seed: 1 };
/// assert!(simulation.run().failure_count <= 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// How cells are chosen.
    pub placement: Placement,
    /// Items in each table.
    pub item_count: u32,
    /// Cells of each table.
    pub cell_count: u32,
    /// How many tables are tried.
    pub trial_count: u64,
    /// What the random keys depend on.
    pub seed: u64,
}

/// What came out of a [`Simulation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Trials.
    pub trial_count: u64,
    /// Trials in which not every item was listed.
    pub failure_count: u64,
    /// Items that were not listed, over all trials.
    pub unlisted_count: u64,
}

impl Outcome {
    /// The share of trials that failed.
    #[must_use]
    pub fn failure(&self) -> f64 {
        self.failure_count as f64 / self.trial_count.max(1) as f64
    }
}

impl Simulation {
    /// Runs the trials.
    ///
    /// Complexity: some tens of nanoseconds for each cell of each item of each trial. Memory: 8 bytes a cell.
    #[must_use]
    pub fn run(&self) -> Outcome {
        // Random keys have the expected shares of the degrees, whoever chooses them.
        let placement = match self.placement {
            Placement::Chosen(degrees) => Placement::Irregular(degrees),
            placement => placement,
        };
        let layout = Layout::new(placement, self.cell_count);
        let mut structure = Structure { cells: vec![(0, 0); layout.cell_count()], work: Vec::new() };
        let mut outcome = Outcome { trial_count: self.trial_count, ..Outcome::default() };
        for trial in 0..self.trial_count {
            let seed = mixed(self.seed ^ mixed(trial.wrapping_add(GOLDEN_64)));
            let unlisted = structure.unlisted(&layout, seed, self.item_count);
            outcome.failure_count += u64::from(unlisted > 0);
            outcome.unlisted_count += u64::from(unlisted);
        }
        outcome
    }
}

/// A table reduced to its structure.
struct Structure {
    /// For each cell, how many items it holds, and the exclusive or of their numbers.
    cells: Vec<(u32, u32)>,
    work: Vec<u32>,
}

impl Structure {
    /// How many of `item_count` items with random places do not list.
    fn unlisted(&mut self, layout: &Layout, seed: u64, item_count: u32) -> u32 {
        let places = |item: u32| layout.places(u128::from(seed ^ mixed(u64::from(item) + 1)));
        self.cells.fill((0, 0));
        for item in 0..item_count {
            for &place in places(item).iter() {
                let cell = &mut self.cells[place as usize];
                *cell = (cell.0 + 1, cell.1 ^ item);
            }
        }
        self.work.clear();
        self.work.extend((0..).zip(&self.cells).filter(|(_, cell)| cell.0 == 1).map(|(place, _)| place));
        let mut unlisted = item_count;
        while let Some(place) = self.work.pop() {
            let (1, item) = self.cells[place as usize] else { continue };
            unlisted -= 1;
            for &place in places(item).iter() {
                let cell = &mut self.cells[place as usize];
                *cell = (cell.0 - 1, cell.1 ^ item);
                if cell.0 == 1 {
                    self.work.push(place);
                }
            }
        }
        unlisted
    }
}
