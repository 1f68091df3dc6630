//! A placement for a fixed number of cells: which cells a hash chooses. The lower half of a hash places and the upper
//! half is left for checks, so that the two are independent.

use super::Placement;
use crate::hash::{GOLDEN_64, mixed, place_of};
use crate::placement::{CHOSEN_DEGREE_BITS, TABLE_DEGREE_MAX, TABLE_SEGMENTS_MAX};
use std::ops::{Deref, Range};

/// The most cells of a table: places are 32-bit numbers, and so are twice as many half segments.
pub const TABLE_CELLS_MAX: u32 = 1 << 31;

/// The places of one key: distinct, each below the number of cells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    places: [u32; TABLE_DEGREE_MAX],
    count: usize,
}

impl Deref for Places {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        &self.places[..self.count]
    }
}

/// How often a place that has to be distinct is drawn. After that the next free cell is taken, so that placing ends
/// soon even where nearly all cells already belong to the key.
const DISTINCT_DRAWS_MAX: u32 = 8;

/// The shape of a table: how its cells are laid out, and where in them a hash points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    placement: Placement,
    cell_count: u32,
    /// Cells of a subtable without the remainder; or, of coupled tables, the cells of half a segment in units of 2^-32.
    unit: u64,
    /// How many subtables have one cell more than the others.
    longer: u32,
    /// Bit `at` is set where subtable `at` is lost.
    lost: u32,
}

impl Layout {
    /// The layout of a table with exactly `cell_count` cells, even where the placement does not divide them evenly.
    ///
    /// A number of cells that the placement cannot use (fewer than a key needs, fewer than twice the number of
    /// segments, or more than 2^31) is replaced by the nearest that it can. The same holds for numbers of hashes and
    /// segments out of range.
    #[must_use]
    pub fn new(placement: Placement, cell_count: u32) -> Self {
        let placement = within_range(placement);
        let fewest = match placement {
            Placement::Coupled { segment_count, .. } => 2 * segment_count,
            _ => placement.degree_max() as u32,
        };
        let cell_count = cell_count.clamp(fewest, TABLE_CELLS_MAX);
        let (unit, longer) = match placement {
            Placement::Subtables { hash_count } => (u64::from(cell_count / hash_count), cell_count % hash_count),
            Placement::Coupled { segment_count, half_ends, .. } => {
                let halves = 2 * segment_count - if half_ends { 2 } else { 0 };
                ((u64::from(cell_count) << u32::BITS) / u64::from(halves), 0)
            }
            _ => (0, 0),
        };
        Layout { placement, cell_count, unit, longer, lost: 0 }
    }

    /// The placement of the layout.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The number of cells of the layout.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.cell_count as usize
    }

    /// The places of the key with this hash.
    #[must_use]
    #[inline]
    pub fn places(&self, hash: u128) -> Places {
        let mut parts = Parts { state: hash as u64, spare: None };
        let mut places = Places { places: [0; TABLE_DEGREE_MAX], count: 0 };
        match self.placement {
            Placement::Subtables { hash_count } => {
                let mut start = 0;
                for at in 0..hash_count {
                    let size = self.unit as u32 + u32::from(at < self.longer);
                    places.places[places.count] = start + parts.below(size);
                    places.count += usize::from(self.lost >> at & 1 == 0);
                    start += size;
                }
            }
            Placement::Distinct { hash_count } => self.distinct(&mut parts, hash_count as usize, &mut places),
            Placement::Irregular(degrees) => {
                let degree = degrees.choose(parts.next());
                self.distinct(&mut parts, degree, &mut places);
            }
            Placement::Chosen(degrees) => {
                let chosen = (hash & ((1 << CHOSEN_DEGREE_BITS) - 1)) as usize;
                self.distinct(&mut parts, chosen.clamp(1, degrees.largest()), &mut places);
            }
            Placement::Coupled { hash_count, segment_count, half_ends } => {
                places.count = hash_count as usize;
                let first = parts.below(segment_count - hash_count + 1);
                for (segment, place) in (first..).zip(&mut places.places[..hash_count as usize]) {
                    let range = self.segment(segment, segment_count, half_ends);
                    *place = range.start + parts.below(range.end - range.start);
                }
            }
        }
        places
    }

    /// Draws places until `degree` of them are distinct. There are always more cells than places, so this ends. After a
    /// few draws that hit earlier places, the next free cell is taken, so that it ends soon in the smallest tables too.
    #[inline]
    fn distinct(&self, parts: &mut Parts, degree: usize, places: &mut Places) {
        while places.count < degree {
            let mut place = parts.below(self.cell_count);
            let mut tries = 0;
            while places.contains(&place) {
                tries += 1;
                place = if tries < DISTINCT_DRAWS_MAX {
                    parts.below(self.cell_count)
                } else {
                    (place + 1) % self.cell_count
                };
            }
            places.places[places.count] = place;
            places.count += 1;
        }
    }

    /// The cells of a segment. All segments have one size, except that the first and the last may have half of it.
    #[inline]
    fn segment(&self, at: u32, segment_count: u32, half_ends: bool) -> Range<u32> {
        let edge = |halves: u32| ((u128::from(self.unit) * u128::from(halves)) >> u32::BITS) as u32;
        let short = u32::from(half_ends);
        let start = if at == 0 { 0 } else { edge(2 * at - short) };
        let end = if at + 1 == segment_count { self.cell_count } else { edge(2 * at + 2 - short) };
        start..end
    }

    /// The layout without subtable `at`: its cells remain, but no key is placed in them (a lost subblock, section 3 of
    /// the paper). `None` where there is no such subtable, and for the last one left.
    #[must_use]
    pub fn without(&self, at: u32) -> Option<Self> {
        self.subtable(at)?;
        let lost = self.lost | 1 << at;
        (lost.count_ones() < self.placement.degree_max() as u32).then_some(Layout { lost, ..*self })
    }

    /// The layout with one cell for each `run` neighbouring ones, in which every key is where the sum of its old cells
    /// is. `None` without subtables, and where `run` does not divide them.
    #[must_use]
    pub fn folded(&self, run: u32) -> Option<Self> {
        let Placement::Subtables { hash_count } = self.placement else { return None };
        let divides = run > 0 && self.cell_count.is_multiple_of(run.checked_mul(hash_count)?);
        divides.then(|| Layout { lost: self.lost, ..Layout::new(self.placement, self.cell_count / run) })
    }

    /// The mean number of cells of a key, without those in lost subtables.
    #[must_use]
    pub fn degree_mean(&self) -> f64 {
        self.placement.degree_mean() - f64::from(self.lost.count_ones())
    }

    /// The cells of the lost subtables.
    pub fn lost(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let layout = *self;
        (0..u32::BITS).filter(move |at| layout.lost >> at & 1 == 1).filter_map(move |at| layout.subtable(at))
    }

    /// The cells of subtable `at`; `None` where there is no such subtable.
    #[must_use]
    pub fn subtable(&self, at: u32) -> Option<Range<usize>> {
        let Placement::Subtables { hash_count } = self.placement else { return None };
        let start = |at: u32| at as usize * self.unit as usize + at.min(self.longer) as usize;
        (at < hash_count).then(|| start(at)..start(at + 1))
    }
}

/// The placement with its numbers clamped to the range that can be placed.
fn within_range(placement: Placement) -> Placement {
    let hashes = |count: u32| count.clamp(2, TABLE_DEGREE_MAX as u32);
    match placement {
        Placement::Subtables { hash_count } => Placement::Subtables { hash_count: hashes(hash_count) },
        Placement::Distinct { hash_count } => Placement::Distinct { hash_count: hashes(hash_count) },
        Placement::Coupled { hash_count, segment_count, half_ends } => {
            let hash_count = hashes(hash_count);
            let segment_count = segment_count.clamp(hash_count, TABLE_SEGMENTS_MAX);
            Placement::Coupled { hash_count, segment_count, half_ends }
        }
        Placement::Irregular(_) | Placement::Chosen(_) => placement,
    }
}

/// Independent 32-bit parts of a hash, as many as are needed: a counter through the finaliser of SplitMix64.
struct Parts {
    state: u64,
    spare: Option<u32>,
}

impl Parts {
    #[inline]
    fn next(&mut self) -> u32 {
        if let Some(part) = self.spare.take() {
            return part;
        }
        self.state = self.state.wrapping_add(GOLDEN_64);
        let word = mixed(self.state);
        self.spare = Some((word >> 32) as u32);
        word as u32
    }

    #[inline]
    fn below(&mut self, count: u32) -> u32 {
        place_of(self.next(), count as usize) as u32
    }
}
