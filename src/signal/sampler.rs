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
    /// How many packets pass before the next that is drawn, and how many of its run come behind that.
    before_drawn: u32,
    behind_drawn: u32,
    /// Determines the positions from run to run, always in the same way.
    state: u64,
}

impl Sampler {
    pub(super) fn new(pickup: u32, wait_ns: i64) -> Self {
        let mut sampler = Sampler { pickup, wait_ns, until_ns: None, before_drawn: 0, behind_drawn: 0, state: 0 };
        sampler.begin();
        sampler
    }

    /// Writes the sampler into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.until_ns, Encoder::i64);
        [self.before_drawn, self.behind_drawn].into_iter().for_each(|count| encoder.u32(count));
        encoder.u64(self.state);
    }

    /// Continues from a saved state of the same configuration.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.until_ns = decoder.option(Decoder::i64)?;
        (self.before_drawn, self.behind_drawn) = (decoder.u32()?, decoder.u32()?);
        self.state = decoder.u64()?;
        let run_max = self.pickup.max(RECOVERY_INTERVAL_PACKETS);
        let is_of_run = self.behind_drawn < run_max && self.before_drawn / 2 < run_max;
        decoder.expect(is_of_run, "a sample that is drawn too late")
    }

    /// Draws one in so many packets from now on.
    pub(super) fn set_pickup(&mut self, pickup: u32) {
        self.pickup = pickup;
        self.begin();
    }

    /// Starts sampling because a handshake was lost now.
    pub(super) fn lost(&mut self, now_ns: i64) {
        let was_recovering = self.until_ns.replace(now_ns.saturating_add(self.wait_ns)).is_some();
        // A long run is cut short in favour of a short one, but only once: a flood must not start new runs for ever.
        if !was_recovering {
            self.begin();
        }
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
        if self.before_drawn == 0 || self.until_ns.is_some() {
            return self.is_idle();
        }
        self.before_drawn -= 1;
        true
    }

    /// Counts the next packet, and returns whether it is drawn.
    #[inline]
    pub(super) fn draw(&mut self, now_ns: i64) -> bool {
        if let Some(until_ns) = self.until_ns {
            self.continue_recovery(until_ns, now_ns);
        }
        if self.before_drawn > 0 {
            self.before_drawn -= 1;
            return false;
        }
        let is_drawn = !self.is_idle();
        if is_drawn {
            self.follow();
        }
        is_drawn
    }

    /// Updates until when packets are drawn for lost handshakes, which was `until_ns`. Behind that a run of the usual
    /// length begins.
    fn continue_recovery(&mut self, until_ns: i64, now_ns: i64) {
        // The clock may have stepped back by years, which must not make the sampling last as long.
        self.until_ns = (now_ns <= until_ns).then(|| until_ns.min(now_ns.saturating_add(self.wait_ns)));
        if self.until_ns.is_none() {
            self.begin();
        }
    }

    /// Ends the present run, and starts another, one packet of which is drawn.
    fn begin(&mut self) {
        self.behind_drawn = 0;
        self.follow();
    }

    /// Starts another run behind the present one, whose packet has been drawn.
    fn follow(&mut self) {
        let run = match (self.pickup, self.until_ns.is_some()) {
            (pickup, false) => pickup,
            (0, true) => RECOVERY_INTERVAL_PACKETS,
            (pickup, true) => pickup.min(RECOVERY_INTERVAL_PACKETS),
        };
        // A Weyl sequence: it fills the range evenly, and neighbours in it are far apart.
        self.state = self.state.wrapping_add(GOLDEN_64);
        let before = place_of((self.state >> u32::BITS) as u32, run as usize) as u32;
        self.before_drawn = self.behind_drawn.saturating_add(before);
        self.behind_drawn = run.saturating_sub(before + 1);
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
    fn what_is_skipped_would_not_have_been_drawn() {
        for pickup in [0, 1, 2, 16] {
            let (mut skipping, mut drawing) = (Sampler::new(pickup, WAIT_NS), Sampler::new(pickup, WAIT_NS));
            let mut skipped_count = 0;
            for at in 0..1_000 {
                if at == 500 {
                    skipping.lost(0);
                    drawing.lost(0);
                }
                // Behind the first half a handshake was lost, for so long as this.
                let now_ns = if at < 700 { 0 } else { WAIT_NS + 1 };
                let is_skipped = skipping.try_skip();
                skipped_count += u32::from(is_skipped);
                assert_eq!(!is_skipped && skipping.draw(now_ns), drawing.draw(now_ns), "{pickup}: {at}");
            }
            let expected = 800 - 800_u32.checked_div(pickup).unwrap_or(0);
            assert!(skipped_count.abs_diff(expected) < 4, "{skipped_count} of {expected} with {pickup}");
        }
    }

    #[test]
    fn what_is_saved_goes_on_and_a_run_that_is_too_long_is_refused() {
        let mut sampler = Sampler::new(16, WAIT_NS);
        taken(&mut sampler, 105, 0);
        let mut encoder = Encoder::default();
        sampler.save(&mut encoder);
        let mut other = Sampler::new(16, WAIT_NS);
        other.restore(&mut Decoder::new(&encoder.into_bytes())).unwrap();
        assert_eq!(taken(&mut other, 1_000, 0), taken(&mut sampler, 1_000, 0));
        let mut encoder = Encoder::default();
        Sampler { before_drawn: 1_000_000, ..sampler }.save(&mut encoder);
        assert!(other.restore(&mut Decoder::new(&encoder.into_bytes())).is_err());
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
