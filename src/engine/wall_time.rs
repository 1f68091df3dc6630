//! A port's view of the wall clock: the times of its packets by the steady clock, and which ends of intervals they have
//! passed.
//!
//! A port reads no clock. A packet brings its time, and the engine's clock publishes the present time and the next
//! end. A packet is never older than the one before it and hardly from the future, for any time stamp.
//!
//! A port that has a clock of its own is mapped onto the steady clock by what it is behind that: a packet is never from
//! the future, and of some the least late one has only just come.

use super::port::{Marks, PassedEnd, Timekeeper};
use super::wall_clock::{KnownEnd, Schedule};
use crate::capture::Stamp;
use crate::list::TickMoment;
use crate::signal::TICK_NS;
use std::sync::Arc;
use std::time::Duration;

/// How far a packet's time may be ahead of the time that was published last, in nanoseconds: as long as the clock's
/// thread may wait for a core.
const LEAD_MAX_NS: i64 = 100_000_000;

/// How far a port's packets may lag behind the clock, in nanoseconds, before they count in an interval that their time
/// is not in: no port that sends packets of long ago holds up an interval for longer.
const LAG_MAX_NS: i64 = 1_000_000_000;

/// The longest that signals wait in a port for a block to fill, in nanoseconds of its packets' time. It is less than
/// shards wait for the signals of a silent port.
const FLUSH_INTERVAL_NS: i64 = 5_000_000;

const _: () = assert!(2 * FLUSH_INTERVAL_NS < crate::queue::MERGE_PATIENCE_NS);

/// How long before the end of an interval losses are read before packets are, in nanoseconds: longer than the packets
/// between two readings take.
const LOSSES_LEAD_NS: i64 = 1_000_000;

/// How long the difference of a port's own clock from the steady clock holds, in nanoseconds: clocks drift apart by
/// less than a tenth of a millisecond in it.
const OWN_CLOCK_INTERVAL_NS: i64 = 1_000_000_000;

/// A port's own clock.
#[derive(Clone, Copy, Debug)]
struct OwnClock {
    /// How far the steady clock is ahead of it, in nanoseconds.
    behind_ns: i64,
    /// The least difference that was found since the present one was last set, and when that ends.
    least_ns: i64,
    until_ns: i64,
}

impl OwnClock {
    /// A clock of which no stamp is known.
    const UNKNOWN: OwnClock = OwnClock { behind_ns: i64::MAX, least_ns: i64::MAX, until_ns: i64::MAX };

    /// Compares a stamp of a packet that has come by `now_ns` of the steady clock. A clock that is set is followed at
    /// once.
    fn compare(&mut self, time_ns: i64, now_ns: i64) {
        let behind_ns = now_ns.saturating_sub(time_ns);
        self.least_ns = self.least_ns.min(behind_ns);
        let is_set_back = behind_ns.saturating_sub(self.behind_ns) > LAG_MAX_NS;
        if behind_ns < self.behind_ns || is_set_back {
            *self = OwnClock { behind_ns, least_ns: behind_ns, until_ns: now_ns.saturating_add(OWN_CLOCK_INTERVAL_NS) };
        } else if now_ns >= self.until_ns {
            let (behind_ns, until_ns) = (self.least_ns, now_ns.saturating_add(OWN_CLOCK_INTERVAL_NS));
            *self = OwnClock { behind_ns, least_ns: i64::MAX, until_ns };
        }
    }

    /// The steady clock at this stamp.
    fn elapsed_ns(&self, time_ns: i64) -> i64 {
        time_ns.saturating_add(self.behind_ns)
    }
}

/// The wall clock as a port sees it.
pub struct WallTime {
    schedule: Arc<Schedule>,
    /// The clock of the port's packets, if that is not the wall clock.
    own_clock: Option<OwnClock>,
    /// The time of the last packet, by the steady clock.
    elapsed_ns: i64,
    /// The tick of that, and when it ends.
    tick: u64,
    tick_ends_ns: i64,
    /// How many ends the packets have passed.
    passed: u64,
    /// The next end, by the steady clock, if it is known.
    due_ns: i64,
    /// When the port is to look at the schedule again: at the next end, or when signals may have waited long enough.
    turn_ns: i64,
    /// The end behind which losses were read.
    losses_read_ns: i64,
}

impl WallTime {
    pub(crate) fn new(schedule: Arc<Schedule>) -> Self {
        let mut time = WallTime {
            own_clock: None,
            elapsed_ns: 0,
            tick: 0,
            tick_ends_ns: 0,
            passed: 0,
            due_ns: schedule.end_after(0).map_or(i64::MAX, |end| end.elapsed_ns),
            turn_ns: 0,
            losses_read_ns: i64::MIN,
            schedule,
        };
        time.advance(0);
        time
    }

    /// Takes the stamps of packets from now on for those of another clock than the wall clock.
    pub(crate) fn set_own_clock(&mut self) {
        self.own_clock = Some(OwnClock::UNKNOWN);
    }

    /// The schedule of the engine.
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Whether what the kernel has lost is to be read before the next packets, because an end is about to come: then
    /// losses from before it and after it are counted apart. Behind it once is enough, even for packets that come late.
    pub(crate) fn is_end_near(&mut self) -> bool {
        let now_ns = self.schedule.clocks().elapsed_ns();
        let is_near = now_ns >= self.due_ns.saturating_sub(LOSSES_LEAD_NS) && self.losses_read_ns != self.due_ns;
        if is_near && now_ns >= self.due_ns {
            self.losses_read_ns = self.due_ns;
        }
        is_near
    }

    /// The present moment.
    pub(crate) fn now(&self) -> TickMoment {
        self.schedule.tick_moment(self.schedule.clocks().elapsed_ns())
    }

    /// How long it takes until the next end.
    pub(crate) fn time_left(&self) -> Duration {
        let left_ns = self.due_ns.saturating_sub(self.schedule.clocks().elapsed_ns());
        Duration::from_nanos(left_ns.max(0) as u64)
    }

    /// Whether the port's packets have not yet reached the end of the run.
    pub(crate) fn is_before_stop(&self) -> bool {
        self.schedule.stopped_at_ns().is_none_or(|stopped_at_ns| self.elapsed_ns < stopped_at_ns)
    }

    /// The steady clock at a packet with this stamp.
    #[inline]
    fn elapsed_at(&self, time_ns: i64) -> i64 {
        let latest_ns = self.schedule.now_ns().saturating_add(LEAD_MAX_NS);
        let elapsed_ns = match &self.own_clock {
            None => self.schedule.elapsed_ns(time_ns),
            Some(clock) => clock.elapsed_ns(time_ns),
        };
        elapsed_ns.min(latest_ns).max(self.elapsed_ns)
    }

    /// Whether the port's own clock seems to have been set back.
    #[inline]
    fn is_set_back(&self, time_ns: i64) -> bool {
        let oldest_ns = self.schedule.now_ns().saturating_sub(LAG_MAX_NS);
        self.own_clock.as_ref().is_some_and(|clock| clock.elapsed_ns(time_ns) < oldest_ns)
    }

    #[inline]
    fn advance(&mut self, elapsed_ns: i64) {
        self.elapsed_ns = elapsed_ns;
        if elapsed_ns >= self.tick_ends_ns {
            let TickMoment { tick, within_tick_ns } = self.schedule.tick_moment(elapsed_ns);
            self.tick = tick;
            self.tick_ends_ns = elapsed_ns.saturating_add(TICK_NS - within_tick_ns);
        }
    }

    /// Looks at the schedule for a packet of this time: returns the ends that it has passed, and when to look again.
    fn turn(&mut self, elapsed_ns: i64) -> Option<PassedEnd> {
        let until_ns = elapsed_ns.max(self.schedule.now_ns().saturating_sub(LAG_MAX_NS));
        let mut passed = None;
        let mut due_ns = i64::MAX;
        while let Some(KnownEnd { number, elapsed_ns: end_ns }) = self.schedule.end_after(self.passed) {
            if end_ns > until_ns {
                due_ns = end_ns;
                break;
            }
            self.passed = number;
            passed = Some(PassedEnd { number, at: self.schedule.tick_moment(end_ns) });
        }
        self.due_ns = due_ns;
        self.turn_ns = due_ns.min(elapsed_ns.saturating_add(FLUSH_INTERVAL_NS));
        passed
    }
}

impl Timekeeper for WallTime {
    const FLUSHES: bool = true;

    #[inline]
    fn advance_if_quiet(&mut self, time_ns: i64) -> bool {
        let elapsed_ns = self.elapsed_at(time_ns);
        let is_quiet = elapsed_ns < self.turn_ns && !self.is_set_back(time_ns);
        if is_quiet {
            self.advance(elapsed_ns);
        }
        is_quiet
    }

    fn packet(&mut self, stamp: Stamp) -> Marks {
        if let Some(clock) = &mut self.own_clock {
            clock.compare(stamp.time_ns, self.schedule.clocks().elapsed_ns());
        }
        let elapsed_ns = self.elapsed_at(stamp.time_ns);
        let passed = self.turn(elapsed_ns);
        if passed.is_none() {
            self.advance(elapsed_ns);
        }
        Marks { passed, ..Marks::default() }
    }

    fn passed_end(&self) -> u64 {
        self.passed
    }

    #[inline]
    fn tick(&self) -> u64 {
        self.tick
    }

    #[inline]
    fn elapsed_ns(&self) -> i64 {
        self.elapsed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// What a clock makes of stamps, in ms, of packets that come at times of the steady clock, in ms.
    fn mapped(packets: impl IntoIterator<Item = (i64, i64)>) -> Vec<i64> {
        let mut clock = OwnClock::UNKNOWN;
        let mut map = |(time_ms, now_ms)| {
            clock.compare(time_ms * MS, now_ms * MS);
            clock.elapsed_ns(time_ms * MS) / MS
        };
        packets.into_iter().map(&mut map).collect()
    }

    #[test]
    fn a_clock_of_its_own_is_mapped_by_the_packets_that_came_at_once() {
        let late_ms = |at: i64| at % 7;
        let packets = (0..1_000).map(|at| (5_000_000 + 10 * at, 10 * at + late_ms(at)));
        let expected: Vec<i64> = (0..1_000).map(|at| 10 * at).collect();
        assert_eq!(mapped(packets), expected);
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        // Both ways, by two in a thousand.
        for drift in [-2, 2] {
            let packets = (0..20_000).map(|at| (at * (1_000 + drift) / 1_000, at));
            let mapped = mapped(packets);
            assert!((0..20_000).zip(&mapped).all(|(at, elapsed)| (at - elapsed).abs() <= 6), "{drift}");
        }
    }

    #[test]
    fn a_clock_that_is_set_is_followed_at_once() {
        for set_ms in [-3_600_000, -1_500, 1_500, 3_600_000] {
            let packets = (0..2_000).map(|at| (at + if at < 1_000 { 0 } else { set_ms }, at));
            assert_eq!(mapped(packets), (0..2_000).collect::<Vec<i64>>(), "{set_ms}");
        }
        // By less than packets may be late it is late at most a second or two.
        let mapped = mapped((0..10_000).map(|at| (at + if at < 1_000 { 0 } else { -500 }, at)));
        assert!((3_000..10_000).all(|at| mapped[at as usize] == at));
    }
}
