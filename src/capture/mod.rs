//! Where packets come from.
//!
//! What enters: a capture file, or standard input. What leaves: a stream of [`Packet`]s, each a time, a link type and the
//! captured bytes, borrowed from the source's one buffer. A [`PacketSource`] hides where they come from, so that one
//! loop serves replay and live capture. All memory is bounded and taken at the start, whatever a file says of itself.

mod byte_order;
mod decompress;
mod input;
mod pcap;
mod pcapng;
mod replay;
mod skipped;

pub use replay::Replay;
pub use skipped::SkippedPackets;

use crate::error::Result;
use crate::parse::LinkType;
use std::time::Duration;

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was captured, in nanoseconds since 1970, as the capture has it: it may stand still or run backwards.
    pub time_ns: i64,
    /// What the bytes begin with; always a link type that [`LinkType::is_supported`].
    pub link: LinkType,
    /// The captured bytes, which may be fewer than the frame had on the wire.
    pub bytes: &'a [u8],
}

/// How far a source has come through its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far of the input as it is stored (compressed, if it is).
    pub read_size: u64,
    /// Bytes of the whole input as it is stored, where that is known: it is for a file, not for a pipe.
    pub input_size: Option<u64>,
}

/// A source of packets.
pub trait PacketSource {
    /// The next packet, or `None` when there is none: for now if the source is live, for good if it
    /// [is finished](PacketSource::is_finished).
    ///
    /// # Errors
    ///
    /// The input can not be read on. The source is finished then, and what it yielded before is good.
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>>;

    /// Whether no packet can come any more.
    fn is_finished(&self) -> bool;

    /// How far it has come.
    fn progress(&self) -> Progress;

    /// The packets passed over so far because of their link type, if there are any.
    fn skipped(&self) -> Option<&SkippedPackets> {
        None
    }
}

/// A source whose packets come as they please.
pub trait LiveSource: PacketSource {
    /// Waits until there is a packet, but no longer than `time_max`.
    fn wait(&mut self, time_max: Duration);

    /// The packets that the kernel had no room for, so far.
    fn lost(&mut self) -> u64;

    /// Whether packets can come at present: not while the interface is down or gone.
    fn is_up(&self) -> bool;
}

#[cfg(test)]
mod tests;
