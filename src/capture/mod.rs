//! Where packets come from.
//!
//! What enters: a capture file, standard input, or what passes an interface. What leaves: a stream of [`Packet`]s, each a
//! time, a link type and the captured bytes, borrowed from the source's one buffer. A [`PacketSource`] hides where they come from, so that one
//! loop serves replay and live capture. All memory is bounded and taken at the start, whatever a file says of itself.

mod byte_order;
mod decompress;
mod input;
pub mod live;
mod pcap;
mod pcapng;
mod replay;
mod skipped;

pub use replay::Replay;
pub use skipped::SkippedPackets;

use crate::error::Result;
use crate::parse::LinkType;
use std::ops::AddAssign;
use std::time::Duration;

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was captured, in nanoseconds since 1970, as the capture has it: it may stand still or run backwards.
    pub time_ns: i64,
    /// What the bytes begin with. Of a pcapng file it may be a link type that can not be read: then the packet only counts.
    pub link: LinkType,
    /// The captured bytes, which may be fewer than the frame had on the wire.
    pub bytes: &'a [u8],
    /// The tag control information of the outermost VLAN tag, if the kernel has taken that out of the frame.
    pub vlan: Option<u16>,
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

    /// Gives the next packets to `take`, `count_max` of them at most; fewer when there are no more, for now or for good. How many
    /// it gave.
    ///
    /// A source that holds many packets in memory goes through them in one loop here, which costs less than asking for each.
    ///
    /// # Errors
    ///
    /// As [`Self::next_packet`]; those before were given.
    #[inline]
    fn each_packet(&mut self, count_max: u64, mut take: impl FnMut(&Packet<'_>)) -> Result<u64>
    where
        Self: Sized,
    {
        for count in 0..count_max {
            match self.next_packet()? {
                Some(packet) => take(&packet),
                None => return Ok(count),
            }
        }
        Ok(count_max)
    }

    /// Whether no packet can come any more.
    fn is_finished(&self) -> bool;

    /// How far it has come.
    fn progress(&self) -> Progress;

    /// The packets so far that can not be read because of their link type, if there are any.
    fn skipped(&self) -> Option<&SkippedPackets> {
        None
    }
}

/// A source whose packets come as they please.
pub trait LiveSource: PacketSource {
    /// Sleeps until there are packets or `timeout` is over, and no longer than that; tells how the interface is if that has
    /// changed. While it is away this looks for it, and it is back when this says so.
    fn wait(&mut self, timeout: Duration) -> Option<Condition>;

    /// How the interface was when it was last looked at.
    fn condition(&self) -> Condition;

    /// What has been received and lost since this source was opened, through all ups and downs.
    fn losses(&mut self) -> Losses;
}

/// What a source has received, and what the kernel could not keep for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that passed the filter and were kept, whether they have been read yet or not.
    pub received: u64,
    /// Packets that passed the filter and were dropped, because nobody had read those before.
    pub dropped: u64,
    /// How often the ring was found full.
    pub freezes: u64,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.dropped += other.dropped;
        self.freezes += other.freezes;
    }
}

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is up, and captured.
    Up,
    /// It is there, and down.
    Down,
    /// There is no interface of that name. It is captured when there is one again.
    Gone,
}

#[cfg(test)]
pub(crate) mod tests;
