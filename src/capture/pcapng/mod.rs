//! The pcapng format: sections of blocks.
//!
//! What enters: an [`Input`] at the beginning of a file. What leaves: its packets in order. Each section has a byte
//! order and interfaces of its own, each interface a link type and a clock. The framing is implemented here, because
//! the pcap-parser crate needs every block whole in memory, however long it is, and collects the options of each packet
//! in a list.

mod block;
mod interface;

pub(super) use block::is_section_header;

use self::block::Block;
use self::interface::Interface;
use super::byte_order::ByteOrder;
use super::input::{Input, Record, Result};
use super::pcap::too_long;
use super::skipped::SkippedPackets;
use crate::capture::PACKET_SIZE_MAX;
use crate::error::Error;
pub use block::BLOCK_SIZE_MAX;

/// Interfaces that one section of a pcapng file may declare: as many as the 16-bit number in the oldest kind of packet
/// block can name.
pub(super) const CAPTURE_INTERFACE_COUNT_MAX: usize = 1 << 16;

/// The reader of one pcapng file.
pub(super) struct PcapngReader {
    order: ByteOrder,
    /// The interfaces of the section, by number.
    interfaces: Vec<Interface>,
    /// The time of the last packet that has one, for those that have none.
    last_time_ns: i64,
    skipped: SkippedPackets,
}

/// The fields of a packet block.
struct PacketFields {
    interface_index: usize,
    /// The time in ticks of the interface's clock; a simple packet has none.
    ticks: Option<u64>,
    captured_size: usize,
    /// Where in the block's body the packet begins.
    position: usize,
}

impl PcapngReader {
    /// A reader for a file that begins with a section header.
    pub(super) fn new() -> Self {
        PcapngReader {
            order: ByteOrder::Little,
            interfaces: Vec::new(),
            last_time_ns: 0,
            skipped: SkippedPackets::default(),
        }
    }

    /// The packets so far that cannot be read because of their link type.
    pub(super) fn skipped(&self) -> &SkippedPackets {
        &self.skipped
    }

    /// Takes the packets that [`Self::skipped`] returns, and leaves none behind.
    pub(super) fn take_skipped(&mut self) -> SkippedPackets {
        std::mem::take(&mut self.skipped)
    }

    /// The next packet, or `None` where the file ends between blocks.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short inside a block, or the block contradicts itself.
    #[inline]
    pub(super) fn next_record(&mut self, input: &mut Input) -> Result<Option<Record>> {
        while let Some(block) = Block::next(input, self.order)? {
            match block.kind {
                block::ENHANCED_PACKET | block::OBSOLETE_PACKET | block::SIMPLE_PACKET => {
                    return self.packet(&block, input).map(Some);
                }
                block::SECTION_HEADER => self.start_section(&block, input)?,
                block::INTERFACE_DESCRIPTION => self.add_interface(&block, input)?,
                _ => block.skip(input)?,
            }
        }
        Ok(None)
    }

    fn start_section(&mut self, block: &Block, input: &mut Input) -> Result<()> {
        block.check_section_version(input)?;
        block.skip(input)?;
        self.order = block.order;
        self.interfaces.clear();
        Ok(())
    }

    fn add_interface(&mut self, block: &Block, input: &mut Input) -> Result<()> {
        if self.interfaces.len() >= CAPTURE_INTERFACE_COUNT_MAX {
            let what = format!("more than {CAPTURE_INTERFACE_COUNT_MAX} interfaces in one section");
            return Err(Error::new(what).at(block.offset).into());
        }
        let interface = Interface::read(block.order, block.body(input)?).map_err(|error| error.at(block.offset))?;
        self.interfaces.push(interface);
        block.consume(input);
        Ok(())
    }

    /// The packet of a block.
    #[inline]
    fn packet(&mut self, block: &Block, input: &mut Input) -> Result<Record> {
        let body = block.body(input)?;
        let body_size = body.len();
        let fields = match block.kind {
            block::SIMPLE_PACKET => simple_packet(block, body, self.interfaces.first()),
            _ => timed_packet(block, body),
        };
        let Some(PacketFields { interface_index, ticks, captured_size, position }) = fields else {
            return Err(block.too_short());
        };
        if captured_size > PACKET_SIZE_MAX {
            return Err(too_long(captured_size, block.offset));
        }
        if position + captured_size > body_size {
            let what = format!("the file is damaged: a packet of {captured_size} bytes is longer than its block");
            return Err(Error::new(what).at(block.offset).into());
        }
        let Some(interface) = self.interfaces.get(interface_index) else {
            let what =
                format!("the file is damaged: interface {interface_index} is not declared before its first packet");
            return Err(Error::new(what).at(block.offset).into());
        };
        if let Some(ticks) = ticks {
            self.last_time_ns = interface.clock.time_ns(ticks);
        }
        let start = block.consume(input).start + block::HEADER_SIZE + position;
        if !interface.is_supported {
            self.skipped.add(interface.link);
        }
        let range = start..start + captured_size;
        Ok(Record { time_ns: self.last_time_ns, link: interface.link, range })
    }
}

/// The fields of an enhanced packet block or of its obsolete predecessor; `None` if it is too short for them.
#[inline]
fn timed_packet(block: &Block, body: &[u8]) -> Option<PacketFields> {
    let ([interface, ticks_high, ticks_low, captured_size, _wire_size, ..], _) = body.as_chunks::<4>() else {
        return None;
    };
    let order = block.order;
    let interface_index = match block.kind {
        // The obsolete block has a count of lost packets in the other half.
        block::OBSOLETE_PACKET => u32::from(order.u16_pair(*interface).0),
        _ => order.u32(*interface),
    };
    Some(PacketFields {
        interface_index: interface_index as usize,
        ticks: Some(u64::from(order.u32(*ticks_high)) << 32 | u64::from(order.u32(*ticks_low))),
        captured_size: order.u32(*captured_size) as usize,
        position: 5 * 4,
    })
}

/// The fields of a simple packet block, which always belongs to the first interface; `None` if it is too short.
///
/// The block gives only the length on the wire: the captured length is as much of it as the interface's snapshot length
/// and the block allow.
fn simple_packet(block: &Block, body: &[u8], interface: Option<&Interface>) -> Option<PacketFields> {
    let ([wire_size, ..], _) = body.as_chunks::<4>() else {
        return None;
    };
    let snapshot_size = interface.map_or(usize::MAX, |interface| interface.snapshot_size);
    Some(PacketFields {
        interface_index: 0,
        ticks: None,
        captured_size: (block.order.u32(*wire_size) as usize).min(snapshot_size).min(body.len() - 4),
        position: 4,
    })
}
