//! The even-odd counter of the paper's appendix, with its hash functions and without: what makes it decline at h = 6
//! and 7.
//!
//! The program of the appendix (Ding and Rauen) takes a key out of its cells when their counts are large enough,
//! without asking whether the key belongs to the cell that showed it; and its check is a hash that is nearly linear, so
//! that a mixture of keys often passes for one. Each of the two is exchanged here for what flowpeel does.

use crate::fill::{Pairs, number_at};
use crate::parts::Series;
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::hash::{GOLDEN_64, mixed, place_of};
use std::collections::VecDeque;

/// The counter of the appendix.
#[derive(Clone, Copy, Debug)]
pub struct Appendix;

/// Which hash functions, and which rule of acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    name: &'static str,
    /// Whether the check is that of the appendix, which is nearly linear, and not one that mixes all bits.
    has_linear_check: bool,
    /// Whether cells are chosen by the functions of the appendix, of which the fourth and the sixth are linear.
    has_linear_places: bool,
    /// Whether a key is accepted only in a cell that it maps to.
    checks_places: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "good hashes, places checked",
        has_linear_check: false,
        has_linear_places: false,
        checks_places: true,
    },
    Variant { name: "good hashes", has_linear_check: false, has_linear_places: false, checks_places: false },
    Variant {
        name: "the appendix's check, places checked",
        has_linear_check: true,
        has_linear_places: false,
        checks_places: true,
    },
    Variant { name: "the appendix's check", has_linear_check: true, has_linear_places: false, checks_places: false },
    Variant {
        name: "the appendix's check and places",
        has_linear_check: true,
        has_linear_places: true,
        checks_places: false,
    },
];

/// The paper's thresholds of even-odd counters (Table III b), for h = 3 to 7.
const PAPER: [f64; 5] = [1.22, 1.08, 0.90, 0.65, 0.54];

/// Keys of a trial, their largest, and their largest multiplicity, as in the paper.
const KEY_COUNT: u64 = 10_000;
const KEY_MAX: u64 = 10_000_000;
const MULTIPLICITY_MAX: u64 = 20;

/// Trials of a load.
const TRIALS: u64 = 100;
const TRIALS_QUICK: u64 = 3;

/// The check of the appendix ("one at a time", of whole keys): two shifts are added or put beside each other without a
/// carry, and the bits between are dropped.
fn near_linear(key: i64) -> i64 {
    let key = (key << 10) ^ (key >> 6);
    let key = key.wrapping_add(key << 3);
    let key = key >> 11;
    key.wrapping_add(key << 15)
}

/// A check of which nothing is linear. (Mixing once is not enough: it takes twice a small number to nearly twice its
/// image in one of some hundred cases, so that two keys pass for the double of one and the half of the other.)
fn independent(key: i64) -> i64 {
    (mixed(mixed(key as u64 ^ GOLDEN_64) ^ GOLDEN_64) >> 16) as i64
}

/// A cell: the sums of the paper's section IV-A.
#[derive(Clone, Copy, Default)]
struct Cell {
    count: i64,
    keys: [i64; 2],
    check: i64,
}

/// An even-odd counter of plain numbers.
struct Counter {
    variant: Variant,
    hash_count: u32,
    cells: Vec<Cell>,
}

impl Counter {
    fn new(variant: Variant, hash_count: u32, cell_count: usize) -> Self {
        let cell_count = cell_count / hash_count as usize * hash_count as usize;
        Counter { variant, hash_count, cells: vec![Cell::default(); cell_count] }
    }

    fn check(&self, key: i64) -> i64 {
        if self.variant.has_linear_check { near_linear(key) } else { independent(key) }
    }

    fn half(&self, key: i64) -> usize {
        (self.check(key) & 1) as usize
    }

    /// The cells of a key, one in each subtable.
    fn places(&self, key: i64) -> impl Iterator<Item = usize> + use<> {
        let size = self.cells.len() / self.hash_count as usize;
        let is_linear = self.variant.has_linear_places;
        (0..self.hash_count).map(move |at| {
            let number = mixed(key as u64 ^ mixed(u64::from(at) + 1));
            let within = match (is_linear, at) {
                // The first three functions of the appendix are cryptographic.
                (true, 3) => ((2_166_136_261 * 16_777_619) ^ key).rem_euclid(size as i64) as usize,
                (true, 5) => key.rem_euclid(size as i64) as usize,
                (true, 6) => (i128::from(key) * 2_654_435_761).rem_euclid(104_729) as usize % size,
                _ => place_of((number >> 32) as u32, size),
            };
            at as usize * size + within
        })
    }

    fn add(&mut self, key: i64, count: i64) {
        let (check, half) = (self.check(key), self.half(key));
        for place in self.places(key) {
            let cell = &mut self.cells[place];
            cell.count += count;
            cell.keys[half] = cell.keys[half].wrapping_add(key.wrapping_mul(count));
            cell.check = cell.check.wrapping_add(check.wrapping_mul(count));
        }
    }

    /// Whether the counter takes this key out of its cells, as one that the cell at `place` shows.
    fn is_accepted(&self, place: usize, key: i64, count: i64) -> bool {
        let is_placed = !self.variant.checks_places || self.places(key).any(|other| other == place);
        is_placed && self.places(key).all(|place| self.cells[place].count >= count)
    }

    /// The key that is alone in a cell.
    fn lone(&self, place: usize) -> Option<(i64, i64)> {
        let Cell { count, keys, check } = self.cells[place];
        let sum = keys[0].wrapping_add(keys[1]);
        if keys[0] != 0 && keys[1] != 0 || sum % count != 0 {
            return None;
        }
        let key = sum / count;
        let is_right = self.check(key).wrapping_mul(count) == check && keys[self.half(key)] == sum;
        (is_right && self.is_accepted(place, key, count)).then_some((key, count))
    }

    /// One key of a cell that holds one of each half.
    fn split(&self, place: usize) -> Option<(i64, i64)> {
        let Cell { count, keys, check } = self.cells[place];
        (1..count).map(|first| (first, count - first)).find_map(|(first, second)| {
            if keys[0] % first != 0 || keys[1] % second != 0 {
                return None;
            }
            let (one, other) = (keys[0] / first, keys[1] / second);
            let sum = self.check(one).wrapping_mul(first).wrapping_add(self.check(other).wrapping_mul(second));
            let is_right = sum == check
                && (!self.variant.checks_places || self.places(other).any(|at| at == place))
                && self.is_accepted(place, one, first);
            is_right.then_some((one, first))
        })
    }

    /// Takes out all keys that can be found: alone first, then by the first split that succeeds. A cell that showed
    /// nothing is asked again once it has changed.
    fn list(&mut self) -> Vec<(i64, i64)> {
        let mut listed = Vec::new();
        let mut fresh: VecDeque<usize> = (0..self.cells.len()).collect();
        let mut stuck: VecDeque<usize> = VecDeque::new();
        loop {
            let (place, found) = if let Some(place) = fresh.pop_front() {
                if self.cells[place].count == 0 {
                    continue;
                }
                (place, self.lone(place))
            } else {
                let is_splitting = |place: &usize| self.cells[*place].count > 0 && self.split(*place).is_some();
                let Some(at) = stuck.iter().position(is_splitting) else { return listed };
                let Some(place) = stuck.drain(..=at).next_back() else { return listed };
                (place, self.split(place))
            };
            match found {
                Some((key, count)) => {
                    self.add(key, -count);
                    fresh.extend(self.places(key));
                    listed.push((key, count));
                }
                None => stuck.push_back(place),
            }
        }
    }
}

impl Variant {
    /// How many trials list every key with its multiplicity. What else is listed does not count, as in the appendix.
    fn complete_count(self, hash_count: u32, load: f64, seed: u64, trial_count: u64) -> u64 {
        let is_complete = |trial: &u64| {
            let pairs = Pairs::new(seed, *trial);
            let key = |at: u64| 1 + pairs.choice(at, KEY_MAX) as i64;
            let mut keys: Vec<(i64, i64)> =
                (0..KEY_COUNT).map(|at| (key(at), 1 + (pairs.key(at) % MULTIPLICITY_MAX) as i64)).collect();
            keys.sort_unstable();
            keys.dedup_by_key(|(key, _)| *key);
            let mut counter = Counter::new(self, hash_count, (keys.len() as f64 / load) as usize);
            keys.iter().for_each(|&(key, count)| counter.add(key, count));
            let mut listed = counter.list();
            listed.sort_unstable();
            keys.iter().all(|entry| listed.binary_search(entry).is_ok())
        };
        (0..trial_count).filter(is_complete).count() as u64
    }
}

/// The rows of a variant, and its line: the share of trials that are complete at the paper's thresholds, and at half of
/// each.
fn rows(setting: &Setting, step: &Step, (part, variant): (u64, Variant)) -> (RowTable, Line) {
    let mut rows = Vec::new();
    let mut line = Line { name: variant.name.to_owned(), points: Vec::new() };
    for (hash_count, paper) in (3..).zip(PAPER) {
        step(&format!("{}, h = {hash_count}", variant.name));
        for (load, what) in [(paper, "the paper's threshold"), (paper / 2.0, "half of it")] {
            let name = format!("{} h {hash_count} load {load:.3}", variant.name);
            let seed = number_at(setting.seed_of(part), u64::from(hash_count));
            let trial_count = setting.trials(TRIALS, TRIALS_QUICK);
            let series = Series { name: &name, seed, trial_count, part_size: TRIALS };
            let run = |seed, trial_count| [variant.complete_count(hash_count, load, seed, trial_count)];
            let [count] = setting.in_parts(&series, run);
            let ours = Measure::Share { count, trial_count };
            let what = format!("h = {hash_count}, {load:.2} keys a cell, {what}: complete");
            rows.push(match variant {
                Variant { has_linear_check: false, checks_places: true, .. } => {
                    Row::percent(what, Source::Goal, Reference::AtLeast(0.99), ours)
                }
                _ => Row::percent(what, Source::Paper, Reference::Unknown, ours),
            });
            if load == paper {
                line.points.push((f64::from(hash_count), 100.0 * ours.center()));
            }
        }
    }
    (RowTable { caption: format!("Even-odd, {}", variant.name), rows }, line)
}

impl Experiment for Appendix {
    fn title(&self) -> &'static str {
        "Invertible Bloom counters: the hash functions of the appendix"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let of_variants = (0..).zip(VARIANTS).map(|variant| rows(setting, step, variant));
        let (tables, lines) = of_variants.unzip();
        Section {
            title: self.title(),
            text: TEXT,
            tables,
            plots: vec![Plot {
                file_name: "appendix.svg",
                title: "Even-odd counters at the paper's thresholds",
                x: "h",
                y: "complete, %",
                lines,
            }],
        }
    }
}

const TEXT: &str = "The paper's even-odd counters decline at h = 6 and 7 (0.65 and 0.54 keys a cell), and it counts wrong keys as the reason. \
    The program of its appendix checks keys by a hash that is nearly linear, so that a mixture of keys may pass for one; and it \
    takes a key out when its cells count enough, without asking whether the key belongs to the cell that showed it. Here are counters \
    of plain numbers that list as that program does, with each of the two exchanged. Either one alone costs nothing: where it is asked \
    whether the key belongs to the cell, a mixture seldom does; and where the check mixes all bits, it is not needed to ask. Both together, \
    as in the program, fail at the paper's thresholds of h = 6 and 7 in a third to six tenths of the trials, but at those of h = 3 to 5, \
    where the paper lists, in all. So wrong keys are a reason, but the decline with h is not found again: which program made \
    Table III is not known. (The hash is taken as it is printed; of the functions that place keys, the linear ones are taken from the \
    appendix and the others are random ones.)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_variants_list_few_keys_and_the_check_of_the_appendix_is_nearly_linear() {
        for variant in VARIANTS {
            for hash_count in 3..8 {
                let mut counter = Counter::new(variant, hash_count, 300);
                let keys: Vec<(i64, i64)> = (1..30).map(|at| (at * 331_777, at % 20 + 1)).collect();
                keys.iter().for_each(|&(key, count)| counter.add(key, count));
                let mut listed = counter.list();
                listed.sort_unstable();
                assert_eq!(listed, keys, "{} {hash_count}", variant.name);
                assert!(counter.cells.iter().all(|cell| cell.count == 0 && cell.keys == [0; 2] && cell.check == 0));
            }
        }
        // The mean of two keys passes for them in one case of a hundred, not of 2^48.
        let passes = |check: fn(i64) -> i64| {
            let pairs =
                (0..10_000).map(|at| (number_at(1, at) as i64 & 0xff_fffe, number_at(2, at) as i64 & 0xff_fffe));
            pairs.filter(|(one, other)| 2 * check((one + other) / 2) == check(*one) + check(*other)).count()
        };
        assert!(passes(near_linear) > 100, "{}", passes(near_linear));
        assert_eq!(passes(independent), 0);
    }
}
