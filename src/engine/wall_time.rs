//! A port's view of the wall clock: the times of its packets by the steady clock, and which ends of intervals they have
//! passed.
//!
//! A port reads no clock. A packet brings its time, and the engine's clock publishes the present time and the next
//! end. A packet is never older than the one before it and hardly from the future, whatever its time says.

use super::port::{Marks, PassedEnd, Timekeeper};
use super::wall_clock::{KnownEnd, Schedule};
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

/// The wall clock as a port sees it.
pub struct WallTime {
    schedule: Arc<Schedule>,
    /// The time of the last packet, by the steady clock.
    elapsed_ns: i64,
    /// The tick of that, and when it ends.
    tick: u64,
    tick_ends_ns: i64,
    /// How many ends the packets have passed.
    passed: u64,
    /// The next end, by the steady clock, as far as it is known.
    due_ns: i64,
    /// When the port is to look at the schedule again: at the next end, or when signals may have waited long enough.
    turn_ns: i64,
    /// The end behind which losses were read.
    losses_read_ns: i64,
}

impl WallTime {
    pub(crate) fn new(schedule: Arc<Schedule>) -> Self {
        let mut time = WallTime {
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

    /// The schedule of the engine.
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Whether what the kernel has lost is to be read before the next packets, because an end is about to come: then
    /// losses from before it and after it are told apart. Behind it once is enough, however late its packets come.
    pub(crate) fn is_end_near(&mut self) -> bool {
        let now_ns = self.schedule.clocks().now().elapsed_ns;
        let is_near = now_ns >= self.due_ns.saturating_sub(LOSSES_LEAD_NS) && self.losses_read_ns != self.due_ns;
        if is_near && now_ns >= self.due_ns {
            self.losses_read_ns = self.due_ns;
        }
        is_near
    }

    /// The present moment.
    pub(crate) fn now(&self) -> TickMoment {
        self.schedule.tick_moment(self.schedule.clocks().now().elapsed_ns)
    }

    /// How long it takes until the next end.
    pub(crate) fn time_left(&self) -> Duration {
        let left_ns = self.due_ns.saturating_sub(self.schedule.clocks().now().elapsed_ns);
        Duration::from_nanos(left_ns.max(0) as u64)
    }

    /// Whether the port's packets have not yet reached the end of the run.
    pub(crate) fn is_before_stop(&self) -> bool {
        self.schedule.stopped_at_ns().is_none_or(|stopped_at_ns| self.elapsed_ns < stopped_at_ns)
    }

    /// The steady clock at a packet with this wall time.
    #[inline]
    fn elapsed_at(&self, time_ns: i64) -> i64 {
        let latest_ns = self.schedule.now_ns().saturating_add(LEAD_MAX_NS);
        self.schedule.elapsed_ns(time_ns).min(latest_ns).max(self.elapsed_ns)
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
        let is_quiet = elapsed_ns < self.turn_ns;
        if is_quiet {
            self.advance(elapsed_ns);
        }
        is_quiet
    }

    fn packet(&mut self, time_ns: i64) -> Marks {
        let elapsed_ns = self.elapsed_at(time_ns);
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
