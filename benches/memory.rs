//! The limit of everything that is summed or looked up at random places: touching as many random cache lines, and
//! nothing else.
//!
//! It reads, changes and writes random lines of as much memory as it is given. A place costs
//! half a multiplication, a change is one addition, and each batch is prefetched while the one before it is changed.

use flowpeel_lines::{Line, prefetch};

/// The size of a cache line.
pub(crate) const LINE_SIZE: usize = size_of::<Line>();

/// The lines of one batch: of 8, 16, 32 and more, 16 is the fastest, in small tables and in large ones.
const BATCH_COUNT: usize = 16;

/// Lines to be touched at random, in pages of the same size as those of tables.
pub(crate) struct Lines {
    lines: flowpeel_lines::Lines,
    random: Random,
}

impl Lines {
    /// Lines of `size` bytes together, all of which have been written to.
    pub(crate) fn new(size: usize) -> Self {
        let mut lines = flowpeel_lines::Lines::new((size / LINE_SIZE).max(1));
        lines.fill(Line([1; 8]));
        Lines { lines, random: Random::new(1) }
    }

    /// Reads, changes and writes this many random lines.
    pub(crate) fn touch(&mut self, line_count: usize) {
        let mut places = self.next_batch();
        for _ in 0..line_count / BATCH_COUNT {
            let next = self.next_batch();
            for place in places {
                let word = &mut self.lines[place as usize].0[0];
                *word = word.wrapping_add(1);
            }
            places = next;
        }
    }

    /// The places of the next batch, which this prefetches.
    #[inline(always)]
    fn next_batch(&mut self) -> [u32; BATCH_COUNT] {
        let mut places = [0; BATCH_COUNT];
        for pair in places.as_chunks_mut::<2>().0 {
            let word = self.random.next();
            *pair = [word >> u32::BITS, word & u64::from(u32::MAX)]
                .map(|half| ((half * self.lines.len() as u64) >> u32::BITS) as u32);
        }
        for place in places {
            prefetch(&self.lines[place as usize]);
        }
        places
    }
}

/// A generator of words from a seed, of no measurable cost beside a cache miss.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next word: a Weyl sequence through one multiplication, the halves of its product folded together.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }
}
