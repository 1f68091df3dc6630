//! A filter in a saved state: its buckets as they are.

use super::{EXTENSIONS, Filter, SEEN_SHIFT, SLOT_COUNT};
use crate::error::Result;
use crate::lines::Line;
use crate::state::{Decoder, Encoder};

impl Filter {
    /// Writes the filter into a saved state: about as many bytes as its memory.
    ///
    /// Complexity: a pass over the buckets.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.buckets.len());
        self.buckets.iter().for_each(|bucket| encoder.words(&bucket.0));
    }

    /// Fills the filter from a saved state. After an error it is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a filter of this size.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let count = decoder.length(size_of::<Line>(), self.buckets.len())?;
        decoder.expect(count == self.buckets.len(), "a filter of another size")?;
        self.buckets.iter_mut().try_for_each(|bucket| decoder.words(&mut bucket.0))
    }

    /// How many connections are established, and how many of these are seen from one side only.
    ///
    /// Complexity: a pass over the buckets.
    #[must_use]
    pub fn established(&self) -> (u64, u64) {
        let established = self.states().filter(|state| state.is_established()).count() as u64;
        (established, self.states().filter(|state| state.is_one_way()).count() as u64)
    }

    /// Forgets which connections were seen.
    pub fn forget_seen(&mut self) {
        const SEEN: u64 = ((1 << SLOT_COUNT) - 1) << SEEN_SHIFT;
        self.buckets.iter_mut().for_each(|bucket| bucket.0[EXTENSIONS] &= !SEEN);
    }
}
