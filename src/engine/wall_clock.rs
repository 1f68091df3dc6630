//! The engine's clock where ports go by the wall clock: it ends intervals, for all ports and shards alike.
//!
//! Intervals end at multiples of their length by the wall clock. Within an interval the steady clock counts, so a step
//! of the wall clock makes one interval longer or shorter by at most half, and none is skipped or repeated. Where lists
//! are behind, an end is passed over, and its interval becomes part of the next.
//!
//! The clock has a thread of its own. It publishes the present time and the next end in a [`Schedule`], from which
//! ports read both without a system call or a lock, and sends each end to all shards when it has come. So no port is
//! needed to end an interval.

use super::PENDING_INTERVALS_MAX;
use super::saving::{Instants, Saver};
use crate::capture::live::wall_ns;
use crate::list::TickMoment;
use crate::queue::{ClockWriter, End, Marker};
use crate::signal::{Clock, Moment, TICK_NS, TimeBase};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The smallest difference between the wall clock and its expected value that counts as a step, in
/// nanoseconds: a tick, since times are kept no finer.
const WALL_STEP_MIN_NS: i64 = TICK_NS;

/// The two clocks of an engine: a steady clock and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    origin: Instant,
    /// The wall time at the origin, in nanoseconds since 1970.
    origin_wall_ns: i64,
    /// The tick at the origin.
    first_tick: u64,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// The steady clock, in nanoseconds since the origin.
    pub(crate) elapsed_ns: i64,
    /// The wall clock, in nanoseconds since 1970.
    pub(crate) wall_ns: i64,
}

/// What counts as one moment where both clocks are read, in nanoseconds.
const TOGETHER_NS: i64 = 1_000_000;

const _: () = assert!(TOGETHER_NS < WALL_STEP_MIN_NS / 10, "two readings that are together never seem to be a step");

/// How often the clocks are read again until they were read together.
const READINGS_MAX: usize = 8;

impl Now {
    /// Reads both clocks together, or the closest of a few times: on a busy machine other threads may run in between,
    /// for longer than a tick, and the wall clock would seem to have been set.
    fn read(elapsed_ns: impl Fn() -> i64, wall_ns: impl Fn() -> i64) -> Now {
        let reading = || {
            let now = Now { elapsed_ns: elapsed_ns(), wall_ns: wall_ns() };
            (elapsed_ns().saturating_sub(now.elapsed_ns), now)
        };
        let mut closest = reading();
        for _ in 1..READINGS_MAX {
            if closest.0 <= TOGETHER_NS {
                break;
            }
            let again = reading();
            closest = if again.0 < closest.0 { again } else { closest };
        }
        closest.1
    }
}

impl Clocks {
    /// Clocks that begin now. Where a state was saved, ticks continue behind those of the run that saved it.
    pub(crate) fn start(saved: Option<Instants>) -> Self {
        let origin = Instant::now();
        let Now { elapsed_ns, wall_ns } = Now::read(|| since_ns(origin), wall_ns);
        let origin_wall_ns = wall_ns.saturating_sub(elapsed_ns);
        let first_tick = saved.map_or(Clock::FIRST_TICK, |saved| saved.tick_at(origin_wall_ns));
        Clocks { origin, origin_wall_ns, first_tick }
    }

    /// The tick at the origin.
    pub(crate) fn first_tick(&self) -> u64 {
        self.first_tick
    }

    /// The wall time at the origin, in nanoseconds since 1970.
    pub(crate) fn origin_wall_ns(&self) -> i64 {
        self.origin_wall_ns
    }

    fn now(&self) -> Now {
        Now::read(|| self.elapsed_ns(), wall_ns)
    }

    /// The steady clock, in nanoseconds since the origin.
    pub(crate) fn elapsed_ns(&self) -> i64 {
        since_ns(self.origin)
    }

    /// The present moment, as signals carry it.
    pub(crate) fn moment(&self) -> Moment {
        Moment::of(self.elapsed_ns())
    }

    /// The clock by which a port counts ticks. It starts at the origin for every port.
    pub(crate) fn ticker(&self) -> Clock {
        Clock::resumed(self.origin_wall_ns, self.first_tick)
    }

    /// What the wall clock would show if it had not been set since the origin.
    pub(crate) fn unset_wall_ns(&self, elapsed_ns: i64) -> i64 {
        self.origin_wall_ns.saturating_add(elapsed_ns)
    }
}

/// The time since then, in nanoseconds.
fn since_ns(origin: Instant) -> i64 {
    i64::try_from(origin.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// The longest that the clock's thread sleeps: the published time is late by so much.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);

/// How often the clock has records of connections sent on that wait for their block to fill.
const CUT_INTERVAL_NS: i64 = 1_000_000_000;

/// The ends that a schedule holds: more than can be under way.
const END_COUNT: usize = 4 * PENDING_INTERVALS_MAX;

const NEVER: i64 = i64::MAX;

/// The present time and the ends of intervals, as the clock publishes them. Ports read them with plain loads; all
/// times are of the steady clock, in nanoseconds since the origin.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Schedule {
    clocks: Clocks,
    /// The time base that holds at the origin.
    first_base: TimeBase,
    now_ns: AtomicI64,
    /// The wall time at the origin, by the wall clock as it is set now.
    origin_wall_ns: AtomicI64,
    /// How many ends are known. The last of them is still to come.
    known: AtomicU64,
    /// The known ends, each at its number modulo their count.
    ends: [AtomicI64; END_COUNT],
    /// How many intervals have been listed or merged.
    listed: AtomicU64,
    /// How often the wall clock was set.
    clock_steps: AtomicU64,
    /// When the run was stopped; [`NEVER`] until then.
    stopped_at_ns: AtomicI64,
    /// Whether the first interval lasts until [`Self::begin`] is called, and a whole rest of its length from then on.
    is_held: AtomicBool,
    /// Whether the last interval is to end.
    is_finished: AtomicBool,
}

impl Schedule {
    /// A schedule without an end.
    pub(crate) fn new(clocks: Clocks) -> Self {
        Schedule {
            clocks,
            first_base: clocks.ticker().time_base(),
            now_ns: AtomicI64::new(clocks.elapsed_ns()),
            origin_wall_ns: AtomicI64::new(clocks.origin_wall_ns),
            known: AtomicU64::new(0),
            ends: std::array::from_fn(|_| AtomicI64::new(NEVER)),
            listed: AtomicU64::new(0),
            clock_steps: AtomicU64::new(0),
            stopped_at_ns: AtomicI64::new(NEVER),
            is_held: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
        }
    }

    /// The clocks by which intervals end.
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The time that was published last.
    #[inline]
    pub(crate) fn now_ns(&self) -> i64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// The steady clock at this wall time.
    #[inline]
    pub(crate) fn elapsed_ns(&self, wall_ns: i64) -> i64 {
        wall_ns.saturating_sub(self.origin_wall_ns.load(Ordering::Relaxed))
    }

    /// The end after the first `passed`, which may not be known yet. A port that has fallen behind all the ends that
    /// are held is given the newest.
    pub(crate) fn end_after(&self, passed: u64) -> Option<KnownEnd> {
        loop {
            let known = self.known.load(Ordering::Acquire);
            let number = (passed + 1).max((known + 1).saturating_sub(END_COUNT as u64 / 2));
            if number > known {
                return None;
            }
            let elapsed_ns = self.ends[number as usize % END_COUNT].load(Ordering::Acquire);
            // It is replaced only by one that is known later.
            if self.known.load(Ordering::Acquire) < number + END_COUNT as u64 / 2 {
                return Some(KnownEnd { number, elapsed_ns });
            }
        }
    }

    /// Has the first interval end at the next multiple of its length, if it was held open.
    pub(crate) fn begin(&self) {
        self.is_held.store(false, Ordering::Relaxed);
    }

    fn publish(&self, end: KnownEnd) {
        self.ends[end.number as usize % END_COUNT].store(end.elapsed_ns, Ordering::Release);
        self.known.store(end.number, Ordering::Release);
    }

    /// The tick and what has passed of it at this time.
    pub(crate) fn tick_moment(&self, elapsed_ns: i64) -> TickMoment {
        let unset_ns = self.clocks.unset_wall_ns(elapsed_ns);
        let tick = self.first_base.tick(unset_ns);
        TickMoment { tick, within_tick_ns: unset_ns.saturating_sub(self.first_base.wall_ns(tick)) }
    }

    /// Records that one more interval has been listed or merged.
    pub(crate) fn listed(&self) {
        self.listed.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the wall clock was set so far.
    pub(crate) fn clock_steps(&self) -> u64 {
        self.clock_steps.load(Ordering::Relaxed)
    }

    /// Has everybody who feeds a port end with the packets up to now.
    pub(crate) fn stop(&self) {
        self.stopped_at_ns.fetch_min(self.clocks.elapsed_ns(), Ordering::Relaxed);
    }

    /// When the run was stopped, if it was.
    pub(crate) fn stopped_at_ns(&self) -> Option<i64> {
        Some(self.stopped_at_ns.load(Ordering::Relaxed)).filter(|stopped_at_ns| *stopped_at_ns != NEVER)
    }

    /// Ends the last interval.
    pub(crate) fn finish(&self) {
        self.stop();
        self.is_finished.store(true, Ordering::Relaxed);
    }
}

/// The end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownEnd {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// When it comes, by the steady clock.
    pub(crate) elapsed_ns: i64,
}

/// The clock on its thread.
pub(crate) struct WallClock {
    schedule: Arc<Schedule>,
    every_ns: i64,
    /// The next end, and its number.
    next: Now,
    number: u64,
    /// How many marks have been sent.
    marked: u64,
    /// How many ends were passed over since the last mark because the lists were behind.
    merged: u32,
    start_wall_ns: i64,
    base: TimeBase,
    saver: Option<Arc<Saver>>,
    shards: Vec<ClockWriter>,
    /// When the next cut is due.
    next_cut_ns: i64,
    /// Whether the first interval is held open, and its end not known.
    is_holding: bool,
}

impl WallClock {
    /// A clock of intervals of this length that begin now, for these shards. With a saver the state is saved at some of
    /// their ends, and at the last.
    pub(crate) fn new(
        schedule: Arc<Schedule>,
        every_ns: i64,
        saver: Option<Arc<Saver>>,
        shards: Vec<ClockWriter>,
    ) -> Self {
        let now = schedule.clocks.now();
        WallClock::beginning(now, schedule, every_ns, saver, shards)
    }

    fn beginning(
        now: Now,
        schedule: Arc<Schedule>,
        every_ns: i64,
        saver: Option<Arc<Saver>>,
        shards: Vec<ClockWriter>,
    ) -> Self {
        let base = schedule.first_base;
        shards.iter().for_each(|shard| shard.base(base));
        let next = plan(now, every_ns, 1);
        schedule.publish(KnownEnd { number: 1, elapsed_ns: next.elapsed_ns });
        WallClock {
            every_ns,
            next,
            number: 1,
            marked: 0,
            merged: 0,
            start_wall_ns: now.wall_ns,
            base,
            saver,
            shards,
            next_cut_ns: now.elapsed_ns.saturating_add(CUT_INTERVAL_NS),
            is_holding: false,
            schedule,
        }
    }

    /// The clock whose first interval is held open until [`Schedule::begin`]: what is to be on the first list takes as
    /// long as it takes. To be called before there is a port.
    pub(crate) fn holding(self) -> Self {
        self.schedule.is_held.store(true, Ordering::Relaxed);
        self.schedule.known.store(0, Ordering::Release);
        let next = Now { elapsed_ns: NEVER, wall_ns: NEVER };
        WallClock { next, is_holding: true, ..self }
    }

    /// Ends intervals until the last has ended.
    pub(crate) fn run(mut self) {
        loop {
            let now = self.schedule.clocks.now();
            if self.schedule.is_finished.load(Ordering::Relaxed) {
                let last = self.last(now);
                self.send(last);
                return;
            }
            self.turn(now);
            let left_ns = self.next.elapsed_ns.saturating_sub(now.elapsed_ns).max(0) as u64;
            std::thread::park_timeout(PUBLISH_INTERVAL.min(Duration::from_nanos(left_ns)));
        }
    }

    /// Publishes the time, and sends what is due.
    fn turn(&mut self, now: Now) {
        self.publish(now);
        if self.is_holding && !self.schedule.is_held.load(Ordering::Relaxed) {
            self.is_holding = false;
            self.next = plan(now, self.every_ns, 1);
            self.schedule.publish(KnownEnd { number: self.number, elapsed_ns: self.next.elapsed_ns });
        }
        while let Some(end) = self.due(now) {
            self.send(end);
        }
        if now.elapsed_ns >= self.next_cut_ns {
            self.next_cut_ns = now.elapsed_ns.saturating_add(CUT_INTERVAL_NS);
            self.shards.iter().for_each(ClockWriter::cut);
        }
    }

    fn publish(&self, now: Now) {
        self.schedule.now_ns.store(now.elapsed_ns, Ordering::Relaxed);
        let origin_wall_ns = now.wall_ns.saturating_sub(now.elapsed_ns);
        self.schedule.origin_wall_ns.store(origin_wall_ns, Ordering::Relaxed);
    }

    fn send(&self, end: End) {
        self.shards.iter().for_each(|shard| shard.end(end));
    }

    /// The next end, if it has come.
    fn due(&mut self, now: Now) -> Option<End> {
        if now.elapsed_ns < self.next.elapsed_ns {
            return None;
        }
        let (end, number) = self.pass(now);
        let pending = self.marked - self.schedule.listed.load(Ordering::Relaxed).min(self.marked);
        if pending < PENDING_INTERVALS_MAX as u64 {
            return Some(self.end(end, number, now, false));
        }
        self.merged += 1;
        Some(End { number, moment: Moment::of(end.elapsed_ns), marker: None, base: None })
    }

    /// The last end of all, which is now.
    fn last(&mut self, now: Now) -> End {
        // Ends that have come since the last turn.
        while now.elapsed_ns > self.next.elapsed_ns {
            self.pass(now);
            self.merged += 1;
        }
        self.publish(now);
        self.schedule.publish(KnownEnd { number: self.number, elapsed_ns: now.elapsed_ns });
        self.end(now, self.number, now, true)
    }

    /// Passes the next end and plans the one behind it. Returns the one that was passed, and its number.
    fn pass(&mut self, now: Now) -> (Now, u64) {
        let passed = (self.next, self.number);
        self.next = self.plan_behind(self.next, now);
        self.number += 1;
        self.schedule.publish(KnownEnd { number: self.number, elapsed_ns: self.next.elapsed_ns });
        passed
    }

    /// The end of the interval that begins where this one ends, however late the clock comes to it.
    fn plan_behind(&self, end: Now, now: Now) -> Now {
        let set_ns = now.wall_ns.saturating_sub(now.elapsed_ns);
        let began = Now { elapsed_ns: end.elapsed_ns, wall_ns: end.elapsed_ns.saturating_add(set_ns) };
        plan(began, self.every_ns, self.every_ns / 2)
    }

    fn end(&mut self, end: Now, number: u64, now: Now, is_last: bool) -> End {
        let offset_ns = now.wall_ns.saturating_sub(now.elapsed_ns);
        let end_wall_ns = match end.elapsed_ns.saturating_add(offset_ns) {
            set if (set - end.wall_ns).abs() >= WALL_STEP_MIN_NS => set,
            _ => end.wall_ns,
        };
        let first_base = self.schedule.first_base;
        let unset_ns = self.unset_ns(end.elapsed_ns, end_wall_ns);
        let end_tick = first_base.tick(unset_ns);
        let marker = Marker {
            start_ns: self.start_wall_ns,
            end_ns: end_wall_ns,
            end_tick,
            within_tick_ns: (unset_ns - first_base.wall_ns(end_tick)).clamp(0, TICK_NS),
            merged: std::mem::take(&mut self.merged),
            is_last,
            saves: self.saver.as_ref().is_some_and(|saver| saver.begins(is_last)),
            ..Marker::default()
        };
        self.start_wall_ns = end_wall_ns;
        self.marked += 1;
        let base = self.new_base(now, end_tick + 1);
        End { number, moment: Moment::of(end.elapsed_ns), marker: Some(marker), base }
    }

    /// The wall time of an end if the clock had not been set since the origin. Where both clocks agree it is the wall
    /// clock's: the two cannot be read at the same moment, and ages should come out even.
    fn unset_ns(&self, elapsed_ns: i64, wall_ns: i64) -> i64 {
        let Schedule { clocks, first_base, .. } = &*self.schedule;
        let set_ns = i64::try_from(self.base.offset_ns - first_base.offset_ns).unwrap_or(0);
        let (by_steady_ns, by_wall_ns) = (clocks.unset_wall_ns(elapsed_ns), wall_ns.saturating_sub(set_ns));
        if by_wall_ns.abs_diff(by_steady_ns) < WALL_STEP_MIN_NS as u64 { by_wall_ns } else { by_steady_ns }
    }

    /// The time base from `first_tick` on, if the wall clock has left the present one.
    fn new_base(&mut self, now: Now, first_tick: u64) -> Option<TimeBase> {
        let Schedule { clocks, first_base, clock_steps, .. } = &*self.schedule;
        let set_ns = now.wall_ns.saturating_sub(clocks.unset_wall_ns(now.elapsed_ns));
        let ticks = i128::from(set_ns).div_euclid(i128::from(TICK_NS));
        let offset_ns = first_base.offset_ns + ticks * i128::from(TICK_NS);
        // A difference that is just below a tick at one reading and just above at the next is no step.
        if (offset_ns - self.base.offset_ns).abs() <= i128::from(WALL_STEP_MIN_NS) {
            return None;
        }
        clock_steps.fetch_add(1, Ordering::Relaxed);
        self.base = TimeBase { first_tick, offset_ns };
        Some(self.base)
    }
}

/// The end of an interval that begins now: a multiple of its length by the wall clock, at least `least_ns` away.
fn plan(now: Now, every_ns: i64, least_ns: i64) -> Now {
    let soonest_ns = now.wall_ns.saturating_add(least_ns);
    let wall_ns = soonest_ns.saturating_sub(1).div_euclid(every_ns).saturating_add(1).saturating_mul(every_ns);
    Now { elapsed_ns: now.elapsed_ns.saturating_add(wall_ns.saturating_sub(now.wall_ns)), wall_ns }
}

#[cfg(test)]
mod tests;
