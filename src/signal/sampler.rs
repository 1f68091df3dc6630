//! The sample of packets that carry no flag and that no handshake waits for.
//!
//! One in a certain number is drawn, either always (to find connections that are older than the start) or only
//! for as long as a lost handshake may still be completed by a later packet of its client.
//!
//! Packets are counted in runs, and one of each run is drawn, at a position that changes from run to run: of two sides
//! that take turns a fixed position would always draw the same one.

use crate::error::Result;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{GOLDEN_64, place_of};

/// The sampling interval of a live capture that picks connections up: one in this many of the other TCP packets is
/// taken. That costs a tenth of looking at all of them, and finds an ordinary connection within its next few packets.
pub const SAMPLE_INTERVAL_PACKETS: u32 = 16;

/// The sampling interval while a handshake may have been lost, of more than can be remembered: such a connection is
/// found within its next few packets.
pub(super) const RECOVERY_INTERVAL_PACKETS: u32 = 4;

/// The sampler of one capture thread.
pub(super) struct Sampler {
    /// One in this many packets is always drawn; zero turns this off.
    pickup: u32,
    /// How long a handshake that was lost may still be completed, in ns.
    wait_ns: i64,
    /// Until when packets are drawn because handshakes were lost.
    until_ns: Option<i64>,
    /// The length of the present run, how many of its packets have passed, and which of them is drawn.
    run: u32,
    passed: u32,
    taken: u32,
    /// Determines the positions from run to run, always in the same way.
    state: u64,
}

impl Sampler {
    pub(super) fn new(pickup: u32, wait_ns: i64) -> Self {
        Sampler { pickup, wait_ns, until_ns: None, run: 0, passed: 0, taken: 0, state: 0 }
    }

    /// Writes the sampler into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.until_ns, Encoder::i64);
        [self.run, self.passed, self.taken].into_iter().for_each(|count| encoder.u32(count));
        encoder.u64(self.state);
    }

    /// Continues from a saved state of the same configuration.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.until_ns = decoder.option(Decoder::i64)?;
        (self.run, self.passed, self.taken) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        self.state = decoder.u64()?;
        decoder.expect(self.passed <= self.run, "more samples than there are")
    }

    /// Draws one in so many packets from the next run on.
    pub(super) fn set_pickup(&mut self, pickup: u32) {
        self.pickup = pickup;
    }

    /// Starts sampling because a handshake was lost now.
    pub(super) fn lost(&mut self, now_ns: i64) {
        if self.until_ns.is_none() {
            // A long run is cut short in favour of a short one, but only once: a flood must not start new runs for
            // ever.
            self.passed = self.run;
        }
        self.until_ns = Some(now_ns.saturating_add(self.wait_ns));
    }

    /// Whether a handshake was lost that may still be completed, as far as the last packets have shown.
    #[inline]
    pub(super) fn is_recovering(&self) -> bool {
        self.until_ns.is_some()
    }

    /// Whether no packet is drawn at present.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.pickup == 0 && self.until_ns.is_none()
    }

    /// Skips the next packet if it plainly is not drawn, and returns whether it did. If not, nothing changes: call
    /// [`Self::draw`].
    #[inline]
    pub(super) fn try_skip(&mut self) -> bool {
        if self.is_idle() {
            return true;
        }
        let is_within_run = self.until_ns.is_none() && self.passed < self.run && self.passed + 1 != self.taken;
        self.passed += u32::from(is_within_run);
        is_within_run
    }

    /// Counts the next packet, and returns whether it is drawn.
    #[inline]
    pub(super) fn draw(&mut self, now_ns: i64) -> bool {
        if self.passed == self.run {
            self.begin(now_ns);
            if self.run == 0 {
                return false;
            }
        } else if self.until_ns.is_some() && !self.continue_recovery(now_ns) && self.pickup == 0 {
            self.run = self.passed;
            return false;
        }
        self.passed += 1;
        self.passed == self.taken
    }

    /// Updates until when packets are drawn for lost handshakes, and returns whether they still are.
    fn continue_recovery(&mut self, now_ns: i64) -> bool {
        let Some(until_ns) = self.until_ns else { return false };
        // The clock may have stepped back by years, which must not make the sampling last as long.
        self.until_ns = (now_ns <= until_ns).then(|| until_ns.min(now_ns.saturating_add(self.wait_ns)));
        self.until_ns.is_some()
    }

    /// Starts another run, one packet of which is drawn.
    fn begin(&mut self, now_ns: i64) {
        let is_recovering = self.continue_recovery(now_ns);
        self.run = match (self.pickup, is_recovering) {
            (pickup, false) => pickup,
            (0, true) => RECOVERY_INTERVAL_PACKETS,
            (pickup, true) => pickup.min(RECOVERY_INTERVAL_PACKETS),
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
        (0..count).filter(|_| sampler.draw(now_ns)).collect()
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
        for (pickup, before, during) in [(0, 0, 400), (1_600, 1, 400), (2, 800, 800)] {
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
