//! A partition in a saved state, at the end of an interval, when nothing waits to be handed over.

use super::Partition;
use crate::error::Result;
use crate::handover::{ANNOUNCEMENTS_MAX, SavedPartition};
use crate::signal::TimeBase;
use crate::state::{Decoder, Encoder};
use std::time::Instant;

impl Partition {
    /// The state from which the partition can go on. Its delta must have been handed over.
    ///
    /// Complexity: a pass over its memory.
    pub(super) fn save(&self) -> SavedPartition {
        debug_assert!(self.is_untouched() && self.announced.is_empty() && self.inquiry.is_none());
        let began = Instant::now();
        let mut encoder = Encoder::with_capacity(self.tracker.saved_size() + 1_024);
        self.base.save(&mut encoder);
        encoder.u64(self.now);
        encoder.u64(self.began);
        encoder.length(self.announcements_max);
        self.tracker.save(&mut encoder);
        encoder.option(self.recorder.as_ref(), |encoder, recorder| recorder.save(encoder));
        SavedPartition { bytes: encoder.into_bytes(), took: began.elapsed() }
    }

    /// Continues from a saved state of the same configuration. After an error the partition is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode such a partition.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let mut decoder = Decoder::new(bytes);
        self.base = TimeBase::saved(&mut decoder)?;
        self.now = decoder.count()?;
        self.began = decoder.count()?;
        decoder.expect(self.began <= self.now, "a time before its beginning")?;
        let announcements_max = usize::try_from(decoder.count()?).unwrap_or(usize::MAX);
        self.announcements_max = announcements_max.min(ANNOUNCEMENTS_MAX);
        self.tracker.restore(&mut decoder)?;
        let has_recorder = decoder.bool()?;
        decoder.expect(has_recorder == self.recorder.is_some(), "another --archive")?;
        if let Some(recorder) = &mut self.recorder {
            recorder.restore(&mut decoder)?;
        }
        decoder.end()
    }

    /// Forgets which connections were seen: what was seen before a restart says nothing about the time after it.
    pub fn forget_seen(&mut self) {
        self.tracker.forget_seen();
    }
}
