//! Where the intervals of a live capture end, for all its threads alike.
//!
//! What enters: the clocks, and how far the lists have come. What leaves: one sequence of ends and time bases, which
//! every capture thread is given in turn. PacketTime end at multiples of their length by the wall clock. Within an
//! interval the steady clock counts, so a step of the wall clock makes one interval longer or shorter by at most half,
//! and none is skipped or repeated. Where lists are behind, an end is passed over, and its interval becomes part of the
//! next.

use crate::capture::live::wall_ns;
use crate::engine::PENDING_INTERVALS_MAX;
use crate::engine::port::Marks;
use crate::engine::saving::{Instants, Saver};
use crate::signal::{Clock, Moment, TICK_NS, TimeBase};
use crate::snapshot::Marker;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// The smallest difference between the wall clock and its expected value that a live capture takes for a step, in
/// nanoseconds: a tick, since times are kept no finer.
const WALL_STEP_MIN_NS: i64 = TICK_NS;

/// The two clocks of a live capture: a steady clock and the wall clock.
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

impl Clocks {
    /// Clocks that begin now. Where a state was saved, ticks go on behind those of the run that saved it.
    pub(crate) fn start(saved: Option<Instants>) -> Self {
        let origin_wall_ns = wall_ns();
        let first_tick = saved.map_or(Clock::FIRST_TICK, |saved| saved.tick_at(origin_wall_ns));
        Clocks { origin: Instant::now(), origin_wall_ns, first_tick }
    }

    /// The tick at the origin.
    pub(crate) fn first_tick(&self) -> u64 {
        self.first_tick
    }

    /// Reads both clocks.
    pub(crate) fn now(&self) -> Now {
        Now { elapsed_ns: self.elapsed_ns(), wall_ns: wall_ns() }
    }

    fn elapsed_ns(&self) -> i64 {
        i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// The present moment, as signals carry it.
    pub(crate) fn moment(&self) -> Moment {
        Moment::of(self.elapsed_ns())
    }

    /// The clock by which a thread counts ticks. It starts at the origin for every thread.
    pub(crate) fn ticker(&self) -> Clock {
        Clock::resumed(self.origin_wall_ns, self.first_tick)
    }

    /// What the wall clock would show if it had not been set since the origin.
    pub(crate) fn unset_wall_ns(&self, elapsed_ns: i64) -> i64 {
        self.origin_wall_ns.saturating_add(elapsed_ns)
    }
}

/// Marks that every capture thread is given, and where in its packets they belong.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// When they were due, by the steady clock.
    elapsed_ns: i64,
    marks: Marks,
    is_last: bool,
}

struct State {
    /// The next end, as far as it is known.
    next: Now,
    /// How many ends were passed over since the last because the lists were behind.
    merged: u32,
    /// Marks whose interval is not listed yet.
    pending: VecDeque<Pending>,
    /// How many marks have left `pending`.
    listed: u64,
    start_wall_ns: i64,
    base: TimeBase,
    /// How often the wall clock was set.
    clock_steps: u64,
    is_over: bool,
}

/// The schedule of interval ends for all capture threads.
pub(crate) struct Pacer {
    clocks: Clocks,
    /// The time base that holds at the origin.
    first_base: TimeBase,
    every_ns: i64,
    state: Mutex<State>,
    saver: Option<Arc<Saver>>,
    /// When the capture was stopped, by the steady clock in nanoseconds; [`NEVER`] until then.
    stopped_at_ns: AtomicI64,
}

const NEVER: i64 = i64::MAX;

impl Pacer {
    /// A pacer of intervals of this length that begin now. With a saver the state is saved at some of their ends, and
    /// at the last.
    pub(crate) fn new(clocks: Clocks, every_ns: i64, saver: Option<Arc<Saver>>) -> Self {
        let now = clocks.now();
        let first_base = clocks.ticker().time_base();
        let state = State {
            next: plan(now, every_ns, 1),
            merged: 0,
            pending: VecDeque::with_capacity(PENDING_INTERVALS_MAX + 1),
            listed: 0,
            start_wall_ns: now.wall_ns,
            base: first_base,
            clock_steps: 0,
            is_over: false,
        };
        Pacer { clocks, first_base, every_ns, state: Mutex::new(state), saver, stopped_at_ns: AtomicI64::new(NEVER) }
    }

    /// The clocks by which intervals end.
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The time base that holds at the origin.
    pub(crate) fn first_base(&self) -> TimeBase {
        self.first_base
    }

    /// Notes that one more interval has been listed or merged.
    pub(crate) fn listed(&self) {
        let mut state = self.state.lock();
        state.pending.pop_front();
        state.listed += 1;
    }

    /// How often the wall clock was set so far.
    pub(crate) fn clock_steps(&self) -> u64 {
        self.state.lock().clock_steps
    }

    /// Tells all capture threads to end, with the packets up to now.
    pub(crate) fn stop(&self) {
        self.stopped_at_ns.fetch_min(self.clocks.elapsed_ns(), Ordering::Relaxed);
    }

    /// When the capture was stopped, by the steady clock in nanoseconds, if it was.
    pub(crate) fn stopped_at_ns(&self) -> Option<i64> {
        Some(self.stopped_at_ns.load(Ordering::Relaxed)).filter(|stopped_at_ns| *stopped_at_ns != NEVER)
    }

    /// The marks after the first `passed`, for a thread whose packets have come to `until_ns` by the steady clock. If
    /// none are due, the error is the time when the next are.
    pub(crate) fn marks_after(&self, passed: u64, until_ns: i64, now: Now) -> std::result::Result<Marks, i64> {
        let mut state = self.state.lock();
        match state.pending(passed) {
            // What was read before the stop may not have come yet: the last marks are for whoever has come to its own
            // end.
            Some(Pending { is_last: true, .. }) => return Err(i64::MAX),
            // Another thread is ahead: packets from before this end are still to come here.
            Some(Pending { elapsed_ns, .. }) if until_ns < elapsed_ns => return Err(elapsed_ns),
            Some(Pending { marks, .. }) => return Ok(marks),
            None if state.is_over => return Err(i64::MAX),
            None => {}
        }
        while until_ns >= state.next.elapsed_ns {
            let end = state.next;
            state.next = self.plan_behind(end, now);
            if state.pending.len() < PENDING_INTERVALS_MAX {
                return Ok(self.end(&mut state, end, now, false));
            }
            state.merged += 1;
        }
        Err(state.next.elapsed_ns)
    }

    /// The next of the last marks, for a thread that has passed `passed`; `None` behind the last of all.
    pub(crate) fn last_marks_after(&self, passed: u64, now: Now) -> Option<Marks> {
        let mut state = self.state.lock();
        if let Some(Pending { marks, .. }) = state.pending(passed) {
            return Some(marks);
        }
        if state.is_over {
            return None;
        }
        state.is_over = true;
        // Ends that nobody has said before the stop was noticed.
        while now.elapsed_ns > state.next.elapsed_ns {
            state.next = self.plan_behind(state.next, now);
            state.merged += 1;
        }
        Some(self.end(&mut state, now, now, true))
    }

    /// The end of the interval that begins where this one ends, however late that is noticed.
    fn plan_behind(&self, end: Now, now: Now) -> Now {
        let set_ns = now.wall_ns.saturating_sub(now.elapsed_ns);
        let began = Now { elapsed_ns: end.elapsed_ns, wall_ns: end.elapsed_ns.saturating_add(set_ns) };
        plan(began, self.every_ns, self.every_ns / 2)
    }

    fn end(&self, state: &mut State, end: Now, now: Now, is_last: bool) -> Marks {
        let offset_ns = now.wall_ns.saturating_sub(now.elapsed_ns);
        let end_wall_ns = match end.elapsed_ns.saturating_add(offset_ns) {
            set if (set - end.wall_ns).abs() >= WALL_STEP_MIN_NS => set,
            _ => end.wall_ns,
        };
        let unset_ns = self.unset_ns(state, end.elapsed_ns, end_wall_ns);
        let end_tick = self.first_base.tick(unset_ns);
        let marker = Marker {
            start_ns: state.start_wall_ns,
            end_ns: end_wall_ns,
            end_tick,
            within_tick_ns: (unset_ns - self.first_base.wall_ns(end_tick)).clamp(0, TICK_NS),
            merged: std::mem::take(&mut state.merged),
            is_last,
            saves: self.saver.as_ref().is_some_and(|saver| saver.begins(is_last)),
            ..Marker::default()
        };
        state.start_wall_ns = end_wall_ns;
        let marks = Marks { end: Some(marker), base: self.new_base(state, now, end_tick + 1) };
        state.pending.push_back(Pending { elapsed_ns: end.elapsed_ns, marks, is_last });
        marks
    }

    /// The wall time of an end if the clock had not been set since the origin. Where both clocks agree it is the wall
    /// clock's: the two cannot be read at the same moment, and ages should come out even.
    fn unset_ns(&self, state: &State, elapsed_ns: i64, wall_ns: i64) -> i64 {
        let set_ns = i64::try_from(state.base.offset_ns - self.first_base.offset_ns).unwrap_or(0);
        let (by_steady_ns, by_wall_ns) = (self.clocks.unset_wall_ns(elapsed_ns), wall_ns.saturating_sub(set_ns));
        if by_wall_ns.abs_diff(by_steady_ns) < WALL_STEP_MIN_NS as u64 { by_wall_ns } else { by_steady_ns }
    }

    /// The time base from `first_tick` on, if the wall clock has left the present one.
    fn new_base(&self, state: &mut State, now: Now, first_tick: u64) -> Option<TimeBase> {
        let set_ns = now.wall_ns.saturating_sub(self.clocks.unset_wall_ns(now.elapsed_ns));
        let ticks = i128::from(set_ns).div_euclid(i128::from(TICK_NS));
        let offset_ns = self.first_base.offset_ns + ticks * i128::from(TICK_NS);
        // A difference that is just below a tick at one reading and just above at the next is no step.
        if (offset_ns - state.base.offset_ns).abs() <= i128::from(WALL_STEP_MIN_NS) {
            return None;
        }
        state.clock_steps += 1;
        state.base = TimeBase { first_tick, offset_ns };
        Some(state.base)
    }
}

impl State {
    fn pending(&self, passed: u64) -> Option<Pending> {
        let index = usize::try_from(passed.checked_sub(self.listed)?).ok()?;
        self.pending.get(index).copied()
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
