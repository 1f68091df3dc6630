//! Captures and interfaces on their way into an engine: what reads packets and gives them to its ports.

mod live;
mod replay;

pub use live::{LiveObserver, SystemView, live};
pub use replay::{Observer, replay, run};

use crate::capture::PacketSource;
use crate::engine::{Port, RECORD_CUT_PACKETS, Timekeeper};
use crate::error::Result;

/// Packets between two checks whether to stop: even a slow pipe delivers this many in a moment.
pub const STOP_INTERVAL_PACKETS: u64 = 1 << 6;

/// Packets between two reports of progress: some milliseconds.
const OBSERVE_INTERVAL_PACKETS: u64 = 1 << 14;

const _: () = assert!(OBSERVE_INTERVAL_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

const _: () = assert!(RECORD_CUT_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

/// Feeds up to so many packets, or what the source has for now, and returns how many.
#[inline(always)]
fn feed_some<T: Timekeeper>(port: &mut Port<T>, source: &mut impl PacketSource, count_max: u64) -> Result<u64> {
    source.each_packet(count_max, port)
}
