//! The clock that timeouts and ages run on, and the wall time of its ticks.
//!
//! A capture's clock cannot be trusted: it may stand still, jitter, step back or leap decades. Time here is counted in
//! ticks, and moves only when a packet is later than all before it. A step back of more than a minute, or a leap
//! forward of more than a month, starts a new time base: ticks continue, and the base says which wall time they mean. A
//! connection may have started in an earlier base, so the bases are kept ([`TimeBases`]), and each tick is converted
//! with the base that it lies in.

use crate::error::Result;
use crate::signal::handshake::SYN_TIMEOUT_MAX_TICKS;
use crate::state::{Decoder, Encoder};

/// The length of a tick, in nanoseconds: 100 ms. Start times and timeouts are kept no finer.
pub const TICK_NS: i64 = 100_000_000;

/// Bits of a start's tick that the filter keeps: they wrap after 29 hours, and code that reads them knows the time to
/// within that.
pub const TICK_BITS: u32 = 20;

/// The age, relative to the newest packet, from which a packet starts a new time base, in nanoseconds: no network
/// delays packets for a minute, so the clock was set, or another capture begins.
const CLOCK_STEP_BACK_MAX_NS: i64 = 60_000_000_000;

/// The longest step forward of a capture's clock, in nanoseconds. A packet that is newer by more starts a new time
/// base, and counts as this much later: longer than every timeout, and short enough for the 32 bits of a tick that
/// half-open records keep.
pub const CLOCK_LEAP_MAX_NS: i64 = 30 * 86_400_000_000_000;

/// The largest offset of a time base from 1970, in nanoseconds: leaps add up, and no run comes near.
const STATE_OFFSET_MAX_NS: i128 = 1 << 96;

const _: () = assert!(SYN_TIMEOUT_MAX_TICKS < (CLOCK_LEAP_MAX_NS / TICK_NS) as u64);

/// The wall time that a range of ticks stands for: in ns, `tick * TICK_NS + offset_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBase {
    /// The first tick of the range.
    pub first_tick: u64,
    /// Wall time of tick zero, a multiple of a tick; 128 bits because leaps add up.
    pub offset_ns: i128,
}

impl TimeBase {
    /// The wall time, in ns since 1970, at which a tick began, clamped to 64 bits.
    #[must_use]
    pub fn wall_ns(self, tick: u64) -> i64 {
        // A base may come from a file, with values that no clock has.
        let wall = (i128::from(tick) * i128::from(TICK_NS)).saturating_add(self.offset_ns);
        wall.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The tick at this wall time.
    #[must_use]
    pub fn tick(self, wall_ns: i64) -> u64 {
        let ticks = i128::from(wall_ns).saturating_sub(self.offset_ns).div_euclid(i128::from(TICK_NS));
        u64::try_from(ticks.max(0)).unwrap_or(u64::MAX)
    }

    /// Writes the base into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.first_tick);
        encoder.bytes(&self.offset_ns.to_le_bytes());
    }

    /// Reads a base from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a time base.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let first_tick = decoder.count()?;
        let offset_ns = decoder.bytes()?.try_into().map_or(i128::MAX, i128::from_le_bytes);
        decoder.expect(offset_ns.unsigned_abs() <= STATE_OFFSET_MAX_NS as u128, "a time out of range")?;
        Ok(TimeBase { first_tick, offset_ns })
    }
}

/// What a packet's time did to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStep {
    /// Time advanced, or stood still.
    Forward,
    /// A new time base begins with this packet.
    NewBase,
}

/// Turns wall times into ticks.
#[derive(Clone, Debug)]
pub struct Clock {
    base: TimeBase,
    highest_ns: i64,
    /// The wall time (wrapping) at which the clock would have started if there had been neither leaps nor steps back.
    /// Only these change it; the time that the clock has run is measured from it.
    began_ns: i64,
    tick: u64,
    /// The wall time at which the present tick ends: most packets come before it, and need no division.
    tick_ends_ns: i64,
}

/// The longest time that a clock runs, in ns: a tick can still be added without overflow.
const ELAPSED_MAX_NS: i64 = i64::MAX - TICK_NS;

impl Clock {
    /// The tick at which every clock starts, high enough that the time one timeout before the first packet is a tick
    /// too.
    pub const FIRST_TICK: u64 = 1 << 20;

    /// A clock that starts with a packet of this wall time.
    #[must_use]
    pub fn new(wall_ns: i64) -> Self {
        Clock::resumed(wall_ns, Clock::FIRST_TICK)
    }

    /// A clock that continues in the tick `tick` at this wall time.
    #[must_use]
    pub fn resumed(wall_ns: i64, tick: u64) -> Self {
        let base = Clock::base(wall_ns, tick);
        Clock { base, highest_ns: wall_ns, began_ns: wall_ns, tick, tick_ends_ns: base.wall_ns(tick + 1) }
    }

    /// Writes the clock into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        self.base.save(encoder);
        encoder.i64(self.highest_ns);
        encoder.i64(self.elapsed_ns());
        encoder.u64(self.tick);
    }

    /// Reads a clock from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a clock.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (base, highest_ns, elapsed_ns) = (TimeBase::saved(decoder)?, decoder.i64()?, decoder.i64()?);
        let tick = decoder.count()?;
        decoder.expect(elapsed_ns >= 0, "a clock that ran backwards")?;
        let began_ns = highest_ns.wrapping_sub(elapsed_ns);
        Ok(Clock { base, highest_ns, began_ns, tick, tick_ends_ns: base.wall_ns(tick + 1) })
    }

    /// The base in which this wall time lies in the tick `tick`.
    fn base(wall_ns: i64, tick: u64) -> TimeBase {
        let began = i128::from(wall_ns).div_euclid(i128::from(TICK_NS)) * i128::from(TICK_NS);
        TimeBase { first_tick: tick, offset_ns: began - i128::from(tick) * i128::from(TICK_NS) }
    }

    /// The step that [`Self::advance`] would take for a packet of this wall time.
    #[must_use]
    #[inline]
    pub fn step(&self, wall_ns: i64) -> ClockStep {
        // The difference saturates, and is then out of bounds as well.
        let forward_ns = wall_ns.saturating_sub(self.highest_ns);
        if (-CLOCK_STEP_BACK_MAX_NS..=CLOCK_LEAP_MAX_NS).contains(&forward_ns) {
            ClockStep::Forward
        } else {
            ClockStep::NewBase
        }
    }

    /// Moves on to a packet of this wall time.
    #[inline]
    pub fn advance(&mut self, wall_ns: i64) -> ClockStep {
        let step = self.step(wall_ns);
        if step == ClockStep::NewBase {
            // A leap counts as the longest step there is. A step back counts as one tick, so that no two bases share a
            // tick.
            let leaped_ns = if wall_ns > self.highest_ns { CLOCK_LEAP_MAX_NS } else { TICK_NS };
            self.tick += (leaped_ns / TICK_NS) as u64;
            self.run(leaped_ns, wall_ns);
            self.base = Clock::base(wall_ns, self.tick);
            self.tick_ends_ns = self.base.wall_ns(self.tick + 1);
        } else if wall_ns > self.highest_ns {
            self.run(wall_ns - self.highest_ns, wall_ns);
            if wall_ns >= self.tick_ends_ns {
                self.tick = self.base.tick(wall_ns);
                self.tick_ends_ns = self.base.wall_ns(self.tick + 1);
            }
        }
        step
    }

    /// Moves on to a packet of this wall time if it lies in the present tick and is not earlier than the packet before,
    /// as is so for nearly all. Otherwise it returns false and changes nothing: call [`Self::advance`].
    #[inline]
    pub fn advance_within_tick(&mut self, wall_ns: i64) -> bool {
        let is_within_tick = self.highest_ns <= wall_ns && wall_ns < self.tick_ends_ns;
        if is_within_tick {
            self.highest_ns = wall_ns;
        }
        is_within_tick
    }

    /// Adds `forward_ns` to the time that the clock has run; the latest packet is of `wall_ns`.
    fn run(&mut self, forward_ns: i64, wall_ns: i64) {
        let elapsed_ns = self.elapsed_ns().saturating_add(forward_ns).min(ELAPSED_MAX_NS);
        self.highest_ns = wall_ns;
        self.began_ns = wall_ns.wrapping_sub(elapsed_ns);
    }

    /// The present tick.
    #[must_use]
    #[inline]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// How long the clock has run, in ns: the time that ticks count, at a finer resolution. It never decreases.
    #[must_use]
    #[inline]
    pub fn elapsed_ns(&self) -> i64 {
        self.highest_ns.wrapping_sub(self.began_ns)
    }

    /// The latest wall time in the present base, in ns since 1970.
    #[must_use]
    #[inline]
    pub fn highest_ns(&self) -> i64 {
        self.highest_ns
    }

    /// The time base of the present tick.
    #[must_use]
    #[inline]
    pub fn time_base(&self) -> TimeBase {
        self.base
    }
}

/// Time bases that are remembered. Each is a step of the capture's clock; a clock that steps more often than this
/// within the life of a connection is no measure of time anyway.
pub const TIME_BASES_MAX: usize = 64;

/// The latest time bases, oldest first. When there are too many the oldest is dropped, and ticks in it are converted
/// with the next one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TimeBases {
    bases: Vec<TimeBase>,
}

impl TimeBases {
    /// An empty collection.
    #[must_use]
    pub fn new() -> Self {
        TimeBases { bases: Vec::with_capacity(TIME_BASES_MAX) }
    }

    /// Replaces all bases with these, oldest first.
    pub fn replace(&mut self, bases: &[TimeBase]) {
        self.bases.clear();
        self.bases.extend_from_slice(bases);
    }

    /// Adds a base. Every partition reports each, so most are known already.
    pub fn learn(&mut self, base: TimeBase) {
        let at = self.bases.partition_point(|known| known.first_tick < base.first_tick);
        if self.bases.get(at).is_some_and(|known| known.first_tick == base.first_tick) {
            return;
        }
        if self.bases.len() == TIME_BASES_MAX {
            if at == 0 {
                return;
            }
            self.bases.remove(0);
            self.bases.insert(at - 1, base);
        } else {
            self.bases.insert(at, base);
        }
    }

    /// All known bases, oldest first.
    pub fn all(&self) -> &[TimeBase] {
        &self.bases
    }

    /// Writes the bases into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.bases.len());
        self.bases.iter().for_each(|base| base.save(encoder));
    }

    /// Reads bases from a saved state.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let mut bases = TimeBases::new();
        for _ in 0..decoder.length(2 * size_of::<u64>(), TIME_BASES_MAX)? {
            bases.learn(TimeBase::saved(decoder)?);
        }
        Ok(bases)
    }

    /// The wall time, in ns since 1970, at which this tick began; zero if no base is known.
    #[must_use]
    pub fn wall_ns(&self, tick: u64) -> i64 {
        let after = self.bases.partition_point(|base| base.first_tick <= tick);
        self.bases.get(after.saturating_sub(1)).map_or(0, |base| base.wall_ns(tick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::clock::TICK_NS;
    use proptest::prelude::*;

    const SECOND_NS: i64 = 1_000_000_000;

    #[test]
    fn ticks_follow_the_wall_clock() {
        let mut clock = Clock::new(1_000 * SECOND_NS + 250_000_000);
        let first = clock.tick();
        clock.advance(1_000 * SECOND_NS + 299_999_999);
        assert_eq!(clock.tick(), first);
        clock.advance(1_000 * SECOND_NS + 300_000_000);
        assert_eq!(clock.tick(), first + 1);
        assert_eq!(clock.time_base().wall_ns(first), 1_000 * SECOND_NS + 200_000_000);
    }

    #[test]
    fn jitter_does_not_make_time_run_faster() {
        let mut clock = Clock::new(0);
        let first = clock.tick();
        for _ in 0..10_000 {
            assert_eq!(clock.advance(10 * SECOND_NS), ClockStep::Forward);
            assert_eq!(clock.advance(0), ClockStep::Forward);
        }
        assert_eq!(clock.tick() - first, 100);
    }

    #[test]
    fn a_step_back_starts_a_new_base_and_time_goes_on() {
        let mut clock = Clock::new(1_000_000 * SECOND_NS);
        let before = clock.tick();
        assert_eq!(clock.advance(100 * SECOND_NS), ClockStep::NewBase);
        assert_eq!((clock.tick(), clock.elapsed_ns()), (before + 1, TICK_NS));
        assert_eq!(clock.time_base().wall_ns(clock.tick()), 100 * SECOND_NS);
        clock.advance(101 * SECOND_NS);
        assert_eq!((clock.tick(), clock.elapsed_ns()), (before + 11, SECOND_NS + TICK_NS));
    }

    proptest! {
        #[test]
        fn no_clock_breaks_it(times in prop::collection::vec(any::<i64>(), 1..200)) {
            let mut clock = Clock::new(times[0]);
            let mut before = clock.tick();
            let mut before_ns = clock.elapsed_ns();
            for time in times {
                clock.advance(time);
                prop_assert!(clock.tick() >= before);
                prop_assert!((0..=CLOCK_LEAP_MAX_NS).contains(&(clock.elapsed_ns() - before_ns)));
                before_ns = clock.elapsed_ns();
                prop_assert!(clock.tick() - before <= (CLOCK_LEAP_MAX_NS / TICK_NS) as u64);
                before = clock.tick();
            }
        }
    }

    fn base(first_tick: u64) -> TimeBase {
        TimeBase { first_tick, offset_ns: i128::from(first_tick) * 1_000_000_000 }
    }

    #[test]
    fn a_tick_is_converted_in_its_own_base() {
        let mut bases = TimeBases::new();
        for first in [100, 50, 100, 200] {
            bases.learn(base(first));
        }
        assert_eq!(bases.wall_ns(60), 60 * TICK_NS + 50_000_000_000);
        assert_eq!(bases.wall_ns(100), 100 * TICK_NS + 100_000_000_000);
        assert_eq!(bases.wall_ns(250), 250 * TICK_NS + 200_000_000_000);
        assert_eq!(bases.wall_ns(10), 10 * TICK_NS + 50_000_000_000);
    }

    #[test]
    fn there_are_never_too_many() {
        let mut bases = TimeBases::new();
        for first in 0..3 * TIME_BASES_MAX as u64 {
            bases.learn(base(first));
        }
        assert_eq!(bases.bases.len(), TIME_BASES_MAX);
        let last = 3 * TIME_BASES_MAX as u64 - 1;
        assert_eq!(bases.wall_ns(last), base(last).wall_ns(last));
    }
}
