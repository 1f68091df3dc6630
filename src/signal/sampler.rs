//! Which of the packets that carry no flag and that no handshake waits for are looked at all the same.
//!
//! What enters: the passing of such packets, and word of handshakes that were lost. What leaves: whether this one is to be
//! handed on: one in so many, always (to find connections that are older than the start) or only for as long as a handshake
//! that was lost may still be completed by any later packet of its client.
//!
//! One packet of each run of so many is taken, at a place that changes from run to run: two sides that send in turn would
//! otherwise show only one of them for ever.

use crate::config::SAMPLE_INTERVAL_PACKETS;
use crate::error::Result;
use crate::hash::{GOLDEN_64, place_of};
use crate::state::{Decoder, Encoder};

/// Takes the samples of one capture thread.
pub(super) struct Sampler {
    /// One in so many always; zero: none.
    pickup: u32,
    /// How long a handshake that was lost may still be completed, in ns.
    wait_ns: i64,
    /// Until when lost handshakes are made good.
    until_ns: Option<i64>,
    /// The length of the present run, how much of it has passed, and which of it is taken.
    run: u32,
    passed: u32,
    taken: u32,
    /// Changes the place from run to run, the same way each time.
    state: u64,
}

impl Sampler {
    pub(super) fn new(pickup: u32, wait_ns: i64) -> Self {
        Sampler { pickup, wait_ns, until_ns: None, run: 0, passed: 0, taken: 0, state: 0 }
    }

    /// Its bytes in a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.until_ns, Encoder::i64);
        [self.run, self.passed, self.taken].into_iter().for_each(|count| encoder.u32(count));
        encoder.u64(self.state);
    }

    /// Goes on where another of the same configuration stood.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.until_ns = decoder.option(Decoder::i64)?;
        (self.run, self.passed, self.taken) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        self.state = decoder.u64()?;
        decoder.expect(self.passed <= self.run, "more samples than there are")
    }

    /// A handshake was lost now.
    pub(super) fn lost(&mut self, now_ns: i64) {
        if self.until_ns.is_none() {
            // A long run gives way to a short one, but only once: a flood must not begin a new one for ever.
            self.passed = self.run;
        }
        self.until_ns = Some(now_ns.saturating_add(self.wait_ns));
    }

    /// Whether no packet is taken at present.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.pickup == 0 && self.until_ns.is_none()
    }

    /// Whether the packet that passes now is plainly not taken. Otherwise nothing changes, and [`Self::takes`] is to be asked.
    #[inline]
    pub(super) fn passes(&mut self) -> bool {
        if self.is_idle() {
            return true;
        }
        let is_within_run = self.until_ns.is_none() && self.passed < self.run && self.passed + 1 != self.taken;
        self.passed += u32::from(is_within_run);
        is_within_run
    }

    /// Whether the packet that passes now is taken.
    #[inline]
    pub(super) fn takes(&mut self, now_ns: i64) -> bool {
        if self.passed == self.run {
            self.begin(now_ns);
            if self.run == 0 {
                return false;
            }
        } else if self.until_ns.is_some() && !self.makes_good(now_ns) && self.pickup == 0 {
            self.run = self.passed;
            return false;
        }
        self.passed += 1;
        self.passed == self.taken
    }

    /// Whether lost handshakes are still to be made good.
    fn makes_good(&mut self, now_ns: i64) -> bool {
        let Some(until_ns) = self.until_ns else { return false };
        // The clock may have stepped back for years: that must not make the sampling last as long.
        self.until_ns = (now_ns <= until_ns).then(|| until_ns.min(now_ns.saturating_add(self.wait_ns)));
        self.until_ns.is_some()
    }

    /// Another run of packets, one of which is taken.
    fn begin(&mut self, now_ns: i64) {
        let makes_good = self.makes_good(now_ns);
        self.run = match (self.pickup, makes_good) {
            (pickup, false) => pickup,
            (0, true) => SAMPLE_INTERVAL_PACKETS,
            (pickup, true) => pickup.min(SAMPLE_INTERVAL_PACKETS),
        };
        self.passed = 0;
        // A Weyl sequence: it fills the range evenly, and neighbours in it are far apart.
        self.state = self.state.wrapping_add(GOLDEN_64);
        self.taken = 1 + place_of((self.state >> u32::BITS) as u32, self.run as usize) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_NS: i64 = 60_000_000_000;

    fn taken(sampler: &mut Sampler, count: u32, now_ns: i64) -> Vec<u32> {
        (0..count).filter(|_| sampler.takes(now_ns)).collect()
    }

    #[test]
    fn one_in_so_many_is_taken_and_both_of_two_that_take_turns() {
        for pickup in [1, 2, 16, 100] {
            let taken = taken(&mut Sampler::new(pickup, WAIT_NS), 100 * pickup, 0);
            assert_eq!(taken.len(), 100, "{pickup}");
            let even = taken.iter().filter(|at| at.is_multiple_of(2)).count();
            assert!((30..=70).contains(&even), "{even} of 100 are even, of one in {pickup}");
        }
        assert!(taken(&mut Sampler::new(0, WAIT_NS), 1_000, 0).is_empty());
    }

    #[test]
    fn lost_handshakes_are_made_good_for_a_while() {
        for (pickup, before, during) in [(0, 0, 100), (1_600, 1, 100), (8, 200, 200)] {
            let mut sampler = Sampler::new(pickup, WAIT_NS);
            assert_eq!(taken(&mut sampler, 1_600, 0).len(), before);
            sampler.lost(0);
            assert_eq!(taken(&mut sampler, 1_600, WAIT_NS).len(), during, "{pickup}");
            assert!(!sampler.is_idle());
            assert_eq!(taken(&mut sampler, 1_600, WAIT_NS + 1).len(), before, "{pickup}");
            assert_eq!(sampler.is_idle(), pickup == 0);
        }
    }
}
