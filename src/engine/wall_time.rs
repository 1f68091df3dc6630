//! One capture thread's view of time.
//!
//! What enters: the times of its packets, by the wall clock of the kernel. What leaves: these times by the steady
//! clock, and the marks that are due. A packet is never older than the one before it and never from the future,
//! whatever its time says.

use super::wall_clock::{Clocks, Now, Pacer};
use crate::engine::port::{Marks, Timekeeper};
use crate::flow_list::TickMoment;
use crate::queue::MERGE_PATIENCE_NS;
use crate::signal::Clock;
use std::sync::Arc;
use std::time::Duration;

/// How long a live capture waits for packets that came before the end of an interval and that the kernel has not shown
/// yet, in nanoseconds: as long as shards do.
const END_PATIENCE_NS: i64 = MERGE_PATIENCE_NS;

/// How long before the end of an interval a live capture begins to read what the kernel has lost before it reads
/// packets, in nanoseconds: longer than the packets between two readings take.
const LOSSES_LEAD_NS: i64 = 1_000_000;

/// The clock of one capture thread.
pub(crate) struct WallTime {
    pacer: Arc<Pacer>,
    clocks: Clocks,
    /// The clocks as they were last read.
    now: Now,
    ticker: Clock,
    has_begun: bool,
    /// How many marks the thread has been given.
    passed: u64,
    /// When the next marks are due, by the steady clock.
    due_ns: i64,
    /// The end behind which losses were read.
    told_near_ns: i64,
}

impl WallTime {
    pub(crate) fn new(pacer: Arc<Pacer>) -> Self {
        let clocks = *pacer.clocks();
        let (now, ticker) = (clocks.now(), clocks.ticker());
        WallTime { now, ticker, clocks, pacer, has_begun: false, passed: 0, due_ns: 0, told_near_ns: i64::MIN }
    }

    /// Reads the clocks.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.now = self.clocks.now();
    }

    /// The next marks that are due while there are no packets; to be called until there are none.
    pub(crate) fn rest(&mut self) -> Marks {
        self.refresh();
        // Packets of the interval that has just ended may not have been shown yet.
        let until_ns = self.now.elapsed_ns.saturating_sub(END_PATIENCE_NS);
        let marks = if until_ns < self.due_ns { Marks::default() } else { self.turn(until_ns) };
        self.advance(until_ns);
        marks
    }

    /// The moment at which the clocks were last read.
    pub(crate) fn moment(&self) -> TickMoment {
        let (base, unset_ns) = (self.pacer.first_base(), self.clocks.unset_wall_ns(self.now.elapsed_ns));
        let tick = base.tick(unset_ns);
        TickMoment { tick, within_tick_ns: unset_ns.saturating_sub(base.wall_ns(tick)) }
    }

    /// Whether what the kernel has lost is to be read before the next packets, because an end is about to be marked:
    /// then losses from before it and after it are told apart. Behind it once is enough, however late its packets come.
    pub(crate) fn is_end_near(&mut self) -> bool {
        let is_near =
            self.now.elapsed_ns >= self.due_ns.saturating_sub(LOSSES_LEAD_NS) && self.told_near_ns != self.due_ns;
        if is_near && self.now.elapsed_ns >= self.due_ns {
            self.told_near_ns = self.due_ns;
        }
        is_near
    }

    /// How long it may take until the next marks are due.
    pub(crate) fn time_left(&self) -> Duration {
        let left_ns = self.due_ns.saturating_add(END_PATIENCE_NS).saturating_sub(self.now.elapsed_ns);
        Duration::from_nanos(left_ns.max(0) as u64)
    }

    /// Whether the capture is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.pacer.stopped_at_ns().is_some()
    }

    /// Whether the thread's packets have not yet reached the end of the capture.
    pub(crate) fn is_before_stop(&self) -> bool {
        self.pacer.stopped_at_ns().is_none_or(|stopped_at_ns| self.elapsed_ns() < stopped_at_ns)
    }

    /// Tells all capture threads to end.
    pub(crate) fn stop(&self) {
        self.pacer.stop();
    }

    /// The next of the remaining marks, the last of all included; to be called until there are none.
    pub(crate) fn finish(&mut self) -> Option<Marks> {
        self.refresh();
        if !self.has_begun {
            // No packet has come yet. The first marks are the same for all threads.
            return Some(self.begin());
        }
        let marks = self.pacer.last_marks_after(self.passed, self.now)?;
        self.passed += 1;
        Some(marks)
    }

    /// The marks before the first packet.
    fn begin(&mut self) -> Marks {
        self.has_begun = true;
        Marks { end: None, base: Some(self.pacer.first_base()) }
    }

    #[cold]
    fn turn(&mut self, elapsed_ns: i64) -> Marks {
        if !self.has_begun {
            return self.begin();
        }
        match self.pacer.marks_after(self.passed, elapsed_ns, self.now) {
            Ok(marks) => {
                self.passed += 1;
                marks
            }
            Err(due_ns) => {
                self.due_ns = due_ns;
                Marks::default()
            }
        }
    }

    /// How long the capture had run at a packet with this wall time, in nanoseconds.
    #[inline]
    fn elapsed_at(&mut self, time_ns: i64) -> i64 {
        if time_ns > self.now.wall_ns {
            self.refresh();
        }
        let elapsed_ns = time_ns.saturating_sub(self.now.wall_ns).saturating_add(self.now.elapsed_ns);
        elapsed_ns.clamp(self.ticker.elapsed_ns().min(self.now.elapsed_ns), self.now.elapsed_ns)
    }

    fn advance(&mut self, elapsed_ns: i64) {
        self.ticker.advance(self.clocks.unset_wall_ns(elapsed_ns));
    }
}

impl Timekeeper for WallTime {
    #[inline]
    fn advance_if_quiet(&mut self, time_ns: i64) -> bool {
        let elapsed_ns = self.elapsed_at(time_ns);
        let is_quiet = elapsed_ns < self.due_ns;
        if is_quiet {
            self.advance(elapsed_ns);
        }
        is_quiet
    }

    #[inline]
    fn packet(&mut self, time_ns: i64) -> Marks {
        let elapsed_ns = self.elapsed_at(time_ns);
        if elapsed_ns >= self.due_ns {
            let marks = self.turn(elapsed_ns);
            if marks != Marks::default() {
                return marks;
            }
        }
        self.advance(elapsed_ns);
        Marks::default()
    }

    #[inline]
    fn tick(&self) -> u64 {
        self.ticker.tick()
    }

    #[inline]
    fn elapsed_ns(&self) -> i64 {
        self.ticker.elapsed_ns()
    }
}
