//! A ring as the bytes of a saved state: its records, oldest first.

use super::HalfOpenRing;
use crate::error::Result;
use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::state::{Decoder, Encoder};

impl HalfOpenRing {
    /// Its bytes in a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.used);
        (0..self.used).for_each(|distance| encoder.u64(self.words[self.behind(self.head, distance)]));
    }

    /// Fills it with what was saved. It is then to be given up if this fails.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a ring that fits into this one.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.used = decoder.length(size_of::<u64>(), self.words.len())?;
        self.head = 0;
        decoder.words(&mut self.words[..self.used])?;
        // Whoever reads a record trusts it to be there as a whole.
        let mut at = 0;
        while at < self.used {
            let is_v4 = self.words[at] & 1 == 0;
            at += 1 + if is_v4 { KeyV4::WORD_COUNT } else { KeyV6::WORD_COUNT };
        }
        decoder.expect(at == self.used, "a ring with half a record")
    }
}
