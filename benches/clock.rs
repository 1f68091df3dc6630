//! How long something takes.
//!
//! Times are in nanoseconds, of the processor or of the wall. For one thread alone processor
//! time is the better measure: it leaves out other processes of the machine, except for their effect on the caches.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// The processor time that this thread has taken, in nanoseconds.
pub(crate) fn thread_ns() -> u64 {
    now_ns(ClockId::ThreadCPUTime)
}

/// The processor time that all threads of this process have taken, in nanoseconds.
pub(crate) fn process_ns() -> u64 {
    now_ns(ClockId::ProcessCPUTime)
}

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // These clocks start at zero, so they are never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processor time of this thread that each of `count` operations takes, in nanoseconds.
pub(crate) fn thread_ns_each(count: usize, operations: impl FnOnce()) -> f64 {
    let began = thread_ns();
    operations();
    (thread_ns() - began) as f64 / count as f64
}

/// The processor time of all threads that each of `count` operations takes, in nanoseconds.
pub(crate) fn process_ns_each(count: usize, operations: impl FnOnce()) -> f64 {
    let began = process_ns();
    operations();
    (process_ns() - began) as f64 / count as f64
}

/// The wall time that each of `count` operations takes, in nanoseconds.
pub(crate) fn wall_ns_each(count: usize, operations: impl FnOnce()) -> f64 {
    let began = Instant::now();
    operations();
    began.elapsed().as_nanos() as f64 / count as f64
}
