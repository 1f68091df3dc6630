//! The one-key counter: every cell keeps one of its keys beside the sums (section V of the paper). In a cell with two
//! keys the kept one is tried as one of them, with every share of the count. Which key is kept is not a sum, so
//! counters of this kind cannot be subtracted.

use super::split::{self, Budget, Parts, Splits, keys_of, may_hold, shares, triples};
use super::standard::StandardCell;
use super::{Counter, Tally, least_count, signed};
use crate::cell::TableCell;
use crate::hash::mixed;
use crate::key_hash::{KeyHash, SecretHash};
use crate::placement::Layout;
use crate::refused::Refused;
use crate::sum::Key;
use crate::table::Table;

/// Which of its keys a cell keeps (section V-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The first key that was added.
    First,
    /// The last key that was added.
    Last,
    /// A random key, each with a probability in proportion to how often it was added. The choices follow from this
    /// seed.
    Random(u64),
    /// The last key that won the toss of a coin, as in the program of the paper's appendix: every call that adds a key
    /// replaces the kept one with a chance of one half, however many it adds. The tosses follow from this seed.
    Coin(u64),
    /// A random key, each with the same probability however often and in any order the keys were added: of all
    /// keys that came to the cell, the one that a hash function of the cell's own maps to the smallest number. Keys
    /// that are added less often are kept as well as others, so more different keys are kept. That is better than the
    /// paper's choices, and as small.
    Drawn,
}

/// How listing uses the kept keys (the end of section V-B): the two optimisations, and the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimisations {
    /// A key that was listed is forgotten in all its cells (the paper's first optimisation).
    pub forgets_listed: bool,
    /// A cell is tried with all kept keys that map to it, wherever they are kept (the second optimisation).
    pub tries_all_kept: bool,
    /// A cell that cannot be split otherwise is tried with two kept keys and one other (the extension). That takes as
    /// many tries as the square of what the cell counts, for each pair of kept keys: where counts are small, a few keys
    /// more are listed.
    pub tries_pairs: bool,
}

impl Optimisations {
    /// Neither optimisation.
    pub const NONE: Self = Optimisations { forgets_listed: false, tries_all_kept: false, tries_pairs: false };
    /// Both optimisations.
    pub const BOTH: Self = Optimisations { forgets_listed: true, tries_all_kept: true, tries_pairs: false };
    /// Both optimisations and the extension.
    pub const EXTENDED: Self = Optimisations { tries_pairs: true, ..Self::BOTH };
}

/// The one-key invertible Bloom counter.
///
/// Complexity: updates as for [`Standard`](super::Standard), with one more key to write; listing tries as many splits
/// of a stuck cell as the cell counts, for each kept key.
#[derive(Clone)]
pub struct OneKey<K: Key, H = SecretHash<K>> {
    table: Table<StandardCell<K, ()>, H>,
    kept: Vec<Option<K>>,
    keeping: Keeping,
    optimisations: Optimisations,
    /// How many random choices were made so far.
    choice_count: u64,
}

impl<K: Key, H: KeyHash<K>> OneKey<K, H> {
    /// An empty counter.
    #[must_use]
    pub fn new(layout: Layout, hash: H, keeping: Keeping, optimisations: Optimisations) -> Self {
        let table = Table::new(layout, hash);
        let kept = vec![None; layout.cell_count()];
        OneKey { table, kept, keeping, optimisations, choice_count: 0 }
    }

    /// The sums of the counter.
    #[must_use]
    pub fn table(&self) -> &Table<StandardCell<K, ()>, H> {
        &self.table
    }

    /// The key that each cell keeps.
    #[must_use]
    pub fn kept(&self) -> &[Option<K>] {
        &self.kept
    }

    /// Makes a counter of any cells, from the bytes of a table and a kept key for each cell.
    ///
    /// # Errors
    /// [`Refused::Length`]: the bytes or the kept keys are not as many as the layout needs.
    pub fn from_parts(
        layout: Layout,
        hash: H,
        bytes: &[u8],
        kept: Vec<Option<K>>,
        optimisations: Optimisations,
    ) -> Result<Self, Refused> {
        if kept.len() != layout.cell_count() {
            return Err(Refused::Length { expected: layout.cell_count(), found: kept.len() });
        }
        let table = Table::from_bytes(layout, hash, bytes)?;
        Ok(OneKey { table, kept, keeping: Keeping::First, optimisations, choice_count: 0 })
    }

    /// Decides whether the key that is added `count` times takes the place of the kept one. A random choice replaces it
    /// with a chance of `count` in what the cell counts then, so every addition is as likely to be the one kept.
    fn draw_kept(&mut self, place: u32, hash: u128, count: u64) -> bool {
        let Some(kept) = self.kept[place as usize] else { return true };
        match self.keeping {
            Keeping::First => false,
            Keeping::Last => true,
            Keeping::Drawn => draw(hash, place) < draw(self.table.hash().of(&kept), place),
            Keeping::Coin(seed) => {
                self.choice_count += 1;
                mixed(seed ^ mixed(self.choice_count)) & 1 == 0
            }
            Keeping::Random(seed) => {
                let whole = self.table.cell(place).count().max(0).unsigned_abs();
                self.choice_count += 1;
                let choice = mixed(seed ^ mixed(self.choice_count));
                let below = ((u128::from(choice) * u128::from(whole.max(1))) >> u64::BITS) as u64;
                below < count
            }
        }
    }
}

/// The hash by which a cell draws one of its keys.
fn draw(hash: u128, place: u32) -> u64 {
    mixed((hash >> 64) as u64 ^ mixed(hash as u64 ^ u64::from(place)))
}

/// Splits a cell, supposing that it holds `kept` and one other key: returns the kept key and its count.
fn split_with<K: Key, H: KeyHash<K>>(
    table: &Table<StandardCell<K, ()>, H>,
    place: u32,
    kept: &K,
    budget: &mut Budget,
) -> Option<(K, i64)> {
    let cell = table.cell(place);
    let hash = table.hash().of(kept);
    let most = most_of(table, hash);
    for (count, rest_count) in shares(cell.count()).take_while(|&(count, _)| count <= most) {
        if !budget.take() {
            return None;
        }
        let mut rest = *cell;
        rest.subtract(&StandardCell::of(kept, (), hash, count));
        for other in keys_of(rest.candidate(1, 0)?, rest_count) {
            if !budget.take() {
                return None;
            }
            let other_hash = table.hash().of(&other);
            if rest.agrees(other_hash, rest_count) && may_hold(table, place, other_hash, rest_count) && other != *kept {
                return Some((*kept, count));
            }
        }
    }
    None
}

/// How often the key with this hash is there at most: the least count of its cells.
fn most_of<K: Key, H: KeyHash<K>>(table: &Table<StandardCell<K, ()>, H>, hash: u128) -> i64 {
    table.places(hash).iter().map(|&place| table.cell(place).count()).min().unwrap_or(0)
}

/// Splits a cell, supposing that it holds both kept keys and one other: returns the first of them and its count.
fn split_with_pair<K: Key, H: KeyHash<K>>(
    table: &Table<StandardCell<K, ()>, H>,
    place: u32,
    kept: [&K; 2],
    budget: &mut Budget,
) -> Option<(K, i64)> {
    let cell = table.cell(place);
    let hashes = kept.map(|key| table.hash().of(key));
    let parts = [0, 1].map(|at| StandardCell::of(kept[at], (), hashes[at], 1));
    let (mut rest_of_first, mut first_before) = (*cell, 0);
    let mut rest = *cell;
    for (first, second) in triples(cell.count(), hashes.map(|hash| most_of(table, hash))) {
        if !budget.take() {
            return None;
        }
        // From one pair of counts to the next one more of a key is taken away.
        if first != first_before {
            rest_of_first.subtract(&parts[0]);
            (first_before, rest) = (first, rest_of_first);
        }
        rest.subtract(&parts[1]);
        let rest_count = cell.count() - first - second;
        for other in keys_of(rest.candidate(1, 0)?, rest_count) {
            let other_hash = table.hash().of(&other);
            if rest.agrees(other_hash, rest_count)
                && may_hold(table, place, other_hash, rest_count)
                && !kept.contains(&&other)
            {
                return Some((*kept[0], first));
            }
        }
    }
    None
}

/// For each cell, the keys kept anywhere (or only in that cell) that map to it, each once.
fn kept_by_cell<K: Key, H: KeyHash<K>>(
    table: &Table<StandardCell<K, ()>, H>,
    kept: &[Option<K>],
    is_everywhere: bool,
) -> Vec<Vec<K>> {
    let mut by_cell = vec![Vec::new(); kept.len()];
    for (place, key) in kept.iter().enumerate() {
        let Some(key) = key else { continue };
        let places = table.places(table.hash().of(key));
        // A key that does not map to the cell that keeps it was never added there.
        if !places.contains(&(place as u32)) {
            continue;
        }
        let (all, own) = (&places[..], [place as u32]);
        for &place in if is_everywhere { all } else { &own } {
            if !by_cell[place as usize].contains(key) {
                by_cell[place as usize].push(*key);
            }
        }
    }
    by_cell
}

/// The kept keys that each cell is tried with.
struct KeptKeys<K> {
    by_cell: Vec<Vec<K>>,
    optimisations: Optimisations,
}

impl<K: Key, H: KeyHash<K>> Splits<StandardCell<K, ()>, H> for KeptKeys<K> {
    fn has_triples(&self) -> bool {
        self.optimisations.tries_pairs
    }

    fn split(
        &self,
        table: &Table<StandardCell<K, ()>, H>,
        place: u32,
        parts: Parts,
        budget: &mut Budget,
    ) -> Option<(K, i64)> {
        let kept = &self.by_cell[place as usize];
        match parts {
            Parts::Two => kept.iter().find_map(|key| split_with(table, place, key, budget)),
            Parts::Three => kept.iter().enumerate().find_map(|(at, one)| {
                kept[at + 1..].iter().find_map(|other| split_with_pair(table, place, [one, other], budget))
            }),
        }
    }

    fn taken(&mut self, table: &Table<StandardCell<K, ()>, H>, key: &K) {
        if self.optimisations.forgets_listed {
            for &place in table.places(table.hash().of(key)).iter() {
                self.by_cell[place as usize].retain(|kept| kept != key);
            }
        }
    }
}

impl<K: Key, H: KeyHash<K>> Counter for OneKey<K, H> {
    type Key = K;

    fn add(&mut self, key: &K, count: u64) {
        self.table.update(key, (), signed(count));
        let hash = self.table.hash().of(key);
        for &place in self.table.places(hash).iter() {
            if count > 0 && self.draw_kept(place, hash, count) {
                self.kept[place as usize] = Some(*key);
            }
        }
    }

    fn remove(&mut self, key: &K, count: u64) {
        self.table.update(key, (), signed(count).wrapping_neg());
        for &place in self.table.places(self.table.hash().of(key)).iter() {
            if self.table.cell(place).is_key_free() {
                self.kept[place as usize] = None;
            }
        }
    }

    fn query(&self, key: &K) -> u64 {
        least_count(&self.table, key)
    }

    fn list(&mut self) -> Tally<K> {
        let by_cell = kept_by_cell(&self.table, &self.kept, self.optimisations.tries_all_kept);
        let tally = split::list(&mut self.table, &mut KeptKeys { by_cell, optimisations: self.optimisations });
        // What is left in a cell may be a key other than the one it kept.
        self.kept.iter_mut().zip(self.table.cells()).filter(|(_, cell)| cell.is_key_free()).for_each(|(kept, _)| {
            *kept = None;
        });
        tally
    }
}
