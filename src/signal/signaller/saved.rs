//! A signaller as the bytes of a saved state, between two packets and with nothing in its stage.

use super::{SignalCounts, Signaller};
use crate::error::Result;
use crate::state::{Decoder, Encoder};

impl Signaller {
    /// Its bytes in a saved state, and those of the cache, which it must be alone with. Its stage must have been
    /// [flushed](Self::flush).
    pub fn save(&self, encoder: &mut Encoder) {
        debug_assert!(self.stage.is_empty());
        let SignalCounts { signals, sampled, watched, handshakes_lost } = self.counts;
        encoder.counts([signals, sampled, watched, handshakes_lost]);
        self.sampler.save(encoder);
        self.cache.save(encoder);
    }

    /// Goes on where another of the same configuration stood. It is then to be given up if this fails.
    ///
    /// # Errors
    ///
    /// The bytes are not those of such a signaller.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let [signals, sampled, watched, handshakes_lost] = decoder.counts()?;
        self.counts = SignalCounts { signals, sampled, watched, handshakes_lost };
        self.sampler.restore(decoder)?;
        self.is_watchful = self.has_to_watch();
        self.cache.restore(decoder)
    }
}
