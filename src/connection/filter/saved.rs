//! A filter as the bytes of a saved state: its buckets as they are.

use super::{EXTENSIONS, Filter, SEEN_SHIFT, SLOT_COUNT};
use crate::error::Result;
use crate::lines::Line;
use crate::state::{Decoder, Encoder};

impl Filter {
    /// Its bytes in a saved state: about those of its memory.
    ///
    /// Complexity: a pass over the buckets.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.buckets.len());
        self.buckets.iter().for_each(|bucket| encoder.words(&bucket.0));
    }

    /// Fills it with what was saved. It is then to be given up if this fails.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a filter of this size.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let count = decoder.length(size_of::<Line>(), self.buckets.len())?;
        decoder.expect(count == self.buckets.len(), "a filter of another size")?;
        self.buckets.iter_mut().try_for_each(|bucket| decoder.words(&mut bucket.0))
    }

    /// How many of its connections are established, and how many of those by the packets of one side alone.
    ///
    /// Complexity: a pass over the buckets.
    #[must_use]
    pub fn established(&self) -> (u64, u64) {
        let established = self.states().filter(|state| state.is_established()).count() as u64;
        (established, self.states().filter(|state| state.is_one_way()).count() as u64)
    }

    /// Forgets which connections were seen since somebody last asked.
    pub fn forget_seen(&mut self) {
        const SEEN: u64 = ((1 << SLOT_COUNT) - 1) << SEEN_SHIFT;
        self.buckets.iter_mut().for_each(|bucket| bucket.0[EXTENSIONS] &= !SEEN);
    }
}
