//! Where packets come from.
//!
//! A [`PacketSource`] yields [`Packet`]s, each a time, a link type and the captured bytes, borrowed from the source's
//! one buffer. It hides whether they come from a file, standard input or an interface, so that one loop serves replay
//! and live capture. All memory is bounded and allocated at the start, and no file decides how much it is.

mod byte_order;
mod input;
pub mod live;
mod paced;
mod pcap;
mod pcapng;
mod replay;
mod stamp;

pub use paced::{PAUSE_MAX, Paced};
pub use replay::Replay;
pub use stamp::{CLOCK_NAMES_MAX, ClockName, Stamp};

use crate::error::Result;
use crate::parse::LinkType;
pub use input::{CAPTURE_BUFFER_SIZE, CAPTURE_READ_SIZE, ZSTD_WINDOW_LOG_MAX};
pub use live::{BPF_INSTRUCTION_COUNT_MAX, FANOUT_COUNT_MAX, RING_SIZE_DEFAULT, RING_SIZE_MAX, RING_SIZE_MIN};
pub use pcapng::BLOCK_SIZE_MAX;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// The longest packet a capture file may hold, in bytes: what libpcap and Wireshark accept too. A longer one means that
/// the file is damaged.
pub const PACKET_SIZE_MAX: usize = 256 << 10;

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was captured, in nanoseconds since 1970, as the capture has it: it may stand still or run backwards.
    pub time_ns: i64,
    /// The clock that shows that time.
    pub clock: ClockName,
    /// What the bytes begin with. In a pcapng file it may be a link type that cannot be read: then the packet is only
    /// counted.
    pub link: LinkType,
    /// The captured bytes, which may be fewer than the frame had on the wire.
    pub bytes: &'a [u8],
    /// How many bytes the frame had on the wire, as the capture says. Fewer than were captured stand for as many.
    pub wire_size: usize,
    /// The tag control information of the outermost VLAN tag, if the kernel has taken that out of the frame.
    pub vlan: Option<u16>,
}

impl<'a> Packet<'a> {
    /// A frame that was captured whole, by the only clock.
    #[inline]
    #[must_use]
    pub fn whole(time_ns: i64, link: LinkType, bytes: &'a [u8]) -> Self {
        Packet { time_ns, clock: ClockName::FIRST, link, bytes, wire_size: bytes.len(), vlan: None }
    }
}

/// How much of its input a source has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far of the input as it is stored (compressed, if it is).
    pub read_size: u64,
    /// Bytes of the whole input as it is stored; `None` where that is unknown, as for a pipe.
    pub input_size: Option<u64>,
}

/// Takes packets in. A closure does, too; what is to be inlined wherever a source calls it is a type of its own.
pub trait PacketSink {
    /// Takes in the next packet.
    fn take_packet(&mut self, packet: &Packet<'_>);
}

impl<F: FnMut(&Packet<'_>)> PacketSink for F {
    #[inline(always)]
    fn take_packet(&mut self, packet: &Packet<'_>) {
        self(packet);
    }
}

/// A source of packets.
pub trait PacketSource {
    /// The next packet, or `None` if there is none: for now if the source is live, for good if it [is
    /// finished](PacketSource::is_finished).
    ///
    /// # Errors
    ///
    /// The input cannot be read any further. The source is then finished, and the packets that it yielded before are
    /// good.
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>>;

    /// Passes up to `count_max` packets to `sink`, fewer when there are no more, for now or for good. Returns how many
    /// it passed.
    ///
    /// A source that holds many packets in memory goes through them in one loop, which costs less than a call for each.
    ///
    /// # Errors
    ///
    /// As [`Self::next_packet`]; the packets before the failure were passed on.
    #[inline]
    fn each_packet(&mut self, count_max: u64, sink: &mut impl PacketSink) -> Result<u64>
    where
        Self: Sized,
    {
        for count in 0..count_max {
            match self.next_packet()? {
                Some(packet) => sink.take_packet(&packet),
                None => return Ok(count),
            }
        }
        Ok(count_max)
    }

    /// Whether no more packets can come.
    fn is_finished(&self) -> bool;

    /// How much of the input has been read.
    fn progress(&self) -> Progress;

    /// The packets so far that cannot be read because of their link type, if there are any.
    fn skipped(&self) -> Option<&SkippedPackets> {
        None
    }
}

/// A source whose packets arrive in real time.
pub trait LiveSource: PacketSource {
    /// Sleeps until there are packets, for `timeout` at most. Returns the interface's condition if that has changed.
    /// While the interface is gone, this call looks for it, and captures it again before it returns that it is up.
    fn wait(&mut self, timeout: Duration) -> Option<Condition>;

    /// The condition of the interface when it was last looked at.
    fn condition(&self) -> Condition;

    /// What has been received and lost since this source was opened, however often its interface was down or gone
    /// meanwhile.
    fn losses(&mut self) -> Losses;

    /// Whether so many packets wait to be read that some are soon lost.
    fn is_filling(&self) -> bool {
        false
    }
}

/// The packets that a source has received, and those that the kernel could not keep for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that passed the filter and were kept, whether they have been read yet or not.
    pub received: u64,
    /// Packets that passed the filter and were dropped, because earlier ones had not been read yet.
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

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The interface is up, and captured.
    Up,
    /// The interface exists, and is down.
    Down,
    /// There is no interface of that name. It is captured again as soon as there is one.
    Gone,
}

/// Unreadable link types of one capture whose packets are counted separately; any more are counted together.
const SKIPPED_LINK_TYPE_COUNT_MAX: usize = 16;

/// Packets that are skipped because their interface has a link type that flowpeel cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedPackets {
    /// The link types in order of their first packet, each with how many packets it had.
    by_link: Vec<(LinkType, u64)>,
    /// Packets of further link types, beyond the limit of those counted apart.
    other_count: u64,
}

impl SkippedPackets {
    /// All packets that were skipped.
    pub fn total_count(&self) -> u64 {
        self.by_link.iter().map(|&(_, count)| count).sum::<u64>() + self.other_count
    }

    pub(super) fn add(&mut self, link: LinkType) {
        if let Some((_, count)) = self.by_link.iter_mut().find(|(seen, _)| *seen == link) {
            *count += 1;
        } else if self.by_link.len() < SKIPPED_LINK_TYPE_COUNT_MAX {
            self.by_link.push((link, 1));
        } else {
            self.other_count += 1;
        }
    }
}

/// The link types by name and number.
impl fmt::Display for SkippedPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (link, _)) in self.by_link.iter().enumerate() {
            write!(f, "{}{link}", if at > 0 { ", " } else { "" })?;
        }
        f.write_str(if self.other_count > 0 { " and others" } else { "" })
    }
}

#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
mod skipped_tests {
    use super::*;

    #[test]
    fn counts_a_bounded_number_of_link_types_apart() {
        let mut skipped = SkippedPackets::default();
        for number in (0..20).chain(0..20) {
            skipped.add(LinkType(number));
        }
        assert_eq!(skipped.by_link.len(), SKIPPED_LINK_TYPE_COUNT_MAX);
        assert!(skipped.by_link.iter().all(|&(_, count)| count == 2));
        assert_eq!(skipped.other_count, 8);
        assert_eq!(skipped.total_count(), 40);
        assert!(skipped.to_string().ends_with(" and others"));
    }
}
