//! A signaller in a saved state, between two packets and with an empty stage.

use super::{SignalCounts, Signaller};
use crate::error::Result;
use crate::state::{Decoder, Encoder};

impl Signaller {
    /// Writes the signaller and the cache, which no other thread may be using, into a saved state. The stage must have
    /// been [flushed](Self::flush).
    pub fn save(&self, encoder: &mut Encoder) {
        debug_assert!(self.stage.is_empty());
        let SignalCounts { signals, sampled, watched, handshakes_lost } = self.counts;
        encoder.counts([signals, sampled, watched, handshakes_lost]);
        self.sampler.save(encoder);
        self.cache.save(encoder);
    }

    /// Continues from a saved state of the same configuration. After an error the signaller is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode such a signaller.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let [signals, sampled, watched, handshakes_lost] = decoder.counts()?;
        self.counts = SignalCounts { signals, sampled, watched, handshakes_lost };
        self.sampler.restore(decoder)?;
        self.is_watchful = self.has_to_watch();
        self.cache.restore(decoder)
    }
}
