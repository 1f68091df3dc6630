//! The pcapng format: sections of blocks.
//!
//! Each section has a byte order and interfaces of its own, each interface a link type and a clock, which it names. A
//! block is a type, a length, a body, and the length once more; a block that is not wanted may have any length, because
//! it is skipped as it is read. The framing is implemented here, because the pcap-parser crate needs every block whole
//! in memory, however long it is, and collects the options of each packet in a list.

use super::byte_order::ByteOrder;
use super::input::{Input, InputRecord, InputResult, cut_short};
use super::pcap::too_long;
use super::{ClockName, PACKET_SIZE_MAX, SkippedPackets, Stamp};
use crate::error::{Error, Result};
use crate::parse::LinkType;
use std::ops::Range;

/// Interfaces that one section of a pcapng file may declare: as many as the 16-bit number in the oldest kind of packet
/// block can name.
pub(super) const CAPTURE_INTERFACE_COUNT_MAX: usize = 1 << 16;

/// The reader of one pcapng file.
pub(super) struct PcapngReader {
    order: ByteOrder,
    /// The interfaces of the section, by number.
    interfaces: Vec<PcapngInterface>,
    /// The stamp of the last packet that has one, for those that have none.
    last: Stamp,
    skipped: SkippedPackets,
}

/// The fields of a packet block.
struct PacketFields {
    interface_index: usize,
    /// The time in ticks of the interface's clock; a simple packet has none.
    ticks: Option<u64>,
    captured_size: usize,
    wire_size: usize,
    /// Where in the block's body the packet begins.
    position: usize,
}

impl PcapngReader {
    /// A reader for a file that begins with a section header.
    pub(super) fn new() -> Self {
        PcapngReader {
            order: ByteOrder::Little,
            interfaces: Vec::new(),
            last: Stamp::unnamed(0),
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
    pub(super) fn next_record(&mut self, input: &mut Input) -> InputResult<Option<InputRecord>> {
        while let Some(block) = PcapngBlock::next(input, self.order)? {
            match block.kind {
                ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => {
                    return self.packet(&block, input).map(Some);
                }
                SECTION_HEADER => self.start_section(&block, input)?,
                INTERFACE_DESCRIPTION => self.add_interface(&block, input)?,
                _ => block.skip(input)?,
            }
        }
        Ok(None)
    }

    fn start_section(&mut self, block: &PcapngBlock, input: &mut Input) -> InputResult<()> {
        block.check_section_version(input)?;
        block.skip(input)?;
        self.order = block.order;
        self.interfaces.clear();
        Ok(())
    }

    fn add_interface(&mut self, block: &PcapngBlock, input: &mut Input) -> InputResult<()> {
        if self.interfaces.len() >= CAPTURE_INTERFACE_COUNT_MAX {
            let what = format!("more than {CAPTURE_INTERFACE_COUNT_MAX} interfaces in one section");
            return Err(Error::new(what).at(block.offset).into());
        }
        let interface =
            PcapngInterface::read(block.order, block.body(input)?).map_err(|error| error.at(block.offset))?;
        self.interfaces.push(interface);
        block.consume(input);
        Ok(())
    }

    /// The packet of a block.
    #[inline]
    fn packet(&mut self, block: &PcapngBlock, input: &mut Input) -> InputResult<InputRecord> {
        let body = block.body(input)?;
        let body_size = body.len();
        let fields = match block.kind {
            SIMPLE_PACKET => simple_packet(block, body, self.interfaces.first()),
            _ => timed_packet(block, body),
        };
        let Some(PacketFields { interface_index, ticks, captured_size, wire_size, position }) = fields else {
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
            // The file's sections may be of one host, and inputs in turn too: an interface has the same name in all.
            let clock = ClockName::of_source(interface_index);
            self.last = Stamp { time_ns: interface.clock.time_ns(ticks), clock };
        }
        let start = block.consume(input).start + HEADER_SIZE + position;
        if !interface.is_supported {
            self.skipped.add(interface.link);
        }
        let range = start..start + captured_size;
        Ok(InputRecord { stamp: self.last, link: interface.link, range, wire_size })
    }
}

/// The fields of an enhanced packet block or of its obsolete predecessor; `None` if it is too short for them.
#[inline]
fn timed_packet(block: &PcapngBlock, body: &[u8]) -> Option<PacketFields> {
    let ([interface, ticks_high, ticks_low, captured_size, wire_size, ..], _) = body.as_chunks::<4>() else {
        return None;
    };
    let order = block.order;
    let interface_index = match block.kind {
        // The obsolete block has a count of lost packets in the other half.
        OBSOLETE_PACKET => u32::from(order.u16_pair(*interface).0),
        _ => order.u32(*interface),
    };
    Some(PacketFields {
        interface_index: interface_index as usize,
        ticks: Some(u64::from(order.u32(*ticks_high)) << 32 | u64::from(order.u32(*ticks_low))),
        captured_size: order.u32(*captured_size) as usize,
        wire_size: order.u32(*wire_size) as usize,
        position: 5 * 4,
    })
}

/// The fields of a simple packet block, which always belongs to the first interface; `None` if it is too short.
///
/// The block gives only the length on the wire: the captured length is as much of it as the interface's snapshot length
/// and the block allow.
fn simple_packet(block: &PcapngBlock, body: &[u8], interface: Option<&PcapngInterface>) -> Option<PacketFields> {
    let ([wire_size, ..], _) = body.as_chunks::<4>() else {
        return None;
    };
    let wire_size = block.order.u32(*wire_size) as usize;
    let snapshot_size = interface.map_or(usize::MAX, |interface| interface.snapshot_size);
    Some(PacketFields {
        interface_index: 0,
        ticks: None,
        captured_size: wire_size.min(snapshot_size).min(body.len() - 4),
        wire_size,
        position: 4,
    })
}

const OPTION_END: u16 = 0;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;

/// An interface of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PcapngInterface {
    link: LinkType,
    /// Whether flowpeel reads that link type, kept so that it is not looked up for each packet.
    is_supported: bool,
    /// The most that was captured of a packet.
    snapshot_size: usize,
    clock: InterfaceClock,
}

impl PcapngInterface {
    /// Reads the body of an interface description block.
    ///
    /// # Errors
    ///
    /// The body is shorter than what it must hold, or than its options say.
    fn read(order: ByteOrder, body: &[u8]) -> Result<Self> {
        let ([link, snapshot_size, ..], _) = body.as_chunks::<4>() else {
            return Err(Error::new("the file is damaged: an interface description without a link type"));
        };
        let link = LinkType(u32::from(order.u16_pair(*link).0));
        let snapshot_size = match order.u32(*snapshot_size) as usize {
            0 => usize::MAX,
            size => size,
        };
        let mut clock = InterfaceClock { tick: InterfaceTick::MICROSECOND, offset_s: 0 };
        let mut options = body.get(8..).unwrap_or_default();
        while let Some(FirstOption { code, value, rest }) = FirstOption::read(order, options)? {
            match (code, value) {
                (OPTION_TIME_RESOLUTION, &[resolution]) => clock.tick = InterfaceTick::from_resolution(resolution),
                (OPTION_TIME_OFFSET, value) => {
                    if let Ok(seconds) = value.try_into() {
                        clock.offset_s = order.i64(seconds);
                    }
                }
                _ => {}
            }
            options = rest;
        }
        Ok(PcapngInterface { link, is_supported: link.is_supported(), snapshot_size, clock })
    }
}

/// The first of a block's options.
struct FirstOption<'a> {
    code: u16,
    value: &'a [u8],
    /// The options behind it.
    rest: &'a [u8],
}

impl<'a> FirstOption<'a> {
    fn read(order: ByteOrder, options: &'a [u8]) -> Result<Option<Self>> {
        let Some((head, rest)) = options.split_first_chunk() else {
            return Ok(None);
        };
        let (code, size) = order.u16_pair(*head);
        if code == OPTION_END {
            return Ok(None);
        }
        let size = usize::from(size);
        match (rest.get(..size), rest.get(size.next_multiple_of(4)..)) {
            (Some(value), Some(rest)) => Ok(Some(FirstOption { code, value, rest })),
            _ => Err(Error::new("the file is damaged: an option of an interface description is longer than its block")),
        }
    }
}

/// The clock of an interface's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InterfaceClock {
    tick: InterfaceTick,
    /// Added to every time, in seconds.
    offset_s: i64,
}

/// The length of one tick of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterfaceTick {
    /// This many nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond divided by this.
    PartOfNanosecond(u64),
    /// A second halved this many times.
    HalvedSecond(u32),
}

impl InterfaceTick {
    const MICROSECOND: InterfaceTick = InterfaceTick::Nanoseconds(1000);

    /// The tick of an `if_tsresol` option: a negative power of ten, or of two if the highest bit is set.
    fn from_resolution(resolution: u8) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        if resolution & 0x80 != 0 {
            return InterfaceTick::HalvedSecond(exponent);
        }
        match 9_u32.checked_sub(exponent) {
            Some(exponent) => InterfaceTick::Nanoseconds(10_u64.pow(exponent)),
            // With a divisor beyond 64 bits, all of 64 bits of ticks are less than a nanosecond.
            None => InterfaceTick::PartOfNanosecond(10_u64.checked_pow(exponent - 9).unwrap_or(u64::MAX)),
        }
    }
}

impl InterfaceClock {
    /// Nanoseconds since 1970, or the nearest time that fits into 64 bits (the year 2262).
    #[inline]
    fn time_ns(&self, ticks: u64) -> i64 {
        let since_offset_ns = match self.tick {
            // The products need 64 + 30 bits.
            InterfaceTick::Nanoseconds(tick_ns) => i128::from(ticks) * i128::from(tick_ns),
            InterfaceTick::PartOfNanosecond(part) => i128::from(ticks / part),
            InterfaceTick::HalvedSecond(exponent) => (i128::from(ticks) * 1_000_000_000) >> exponent,
        };
        let time_ns = since_offset_ns + i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(time_ns).unwrap_or(if time_ns < 0 { i64::MIN } else { i64::MAX })
    }
}

/// The longest pcapng block that is held whole, in bytes: the longest packet and two options of the longest kind. Only
/// blocks of packets and of interface descriptions are held; others may have any length, because they are skipped as
/// they come.
pub const BLOCK_SIZE_MAX: usize = 400 << 10;

/// The longest option of a pcapng block, in bytes: option lengths are 16-bit numbers.
const BLOCK_OPTION_SIZE_MAX: usize = (1 << 16) + 4;

const _: () = assert!(BLOCK_SIZE_MAX >= PACKET_SIZE_MAX + 2 * BLOCK_OPTION_SIZE_MAX);

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The number after the length of a section header, which says the byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// The size of what precedes the body: type and length.
const HEADER_SIZE: usize = 8;
/// The size of what follows the body: the length once more.
const TRAILER_SIZE: usize = 4;
const BLOCK_SIZE_MIN: usize = HEADER_SIZE + TRAILER_SIZE;
/// A section header holds a byte-order magic, a version and a section length too.
const SECTION_HEADER_SIZE_MIN: usize = BLOCK_SIZE_MIN + 16;

/// Whether a file that begins with these bytes is pcapng; there are twelve of them, or fewer if the file is shorter.
pub(super) fn is_section_header(unread: &[u8]) -> bool {
    match unread.as_chunks::<4>().0 {
        [kind, _size, magic, ..] => {
            u32::from_le_bytes(*kind) == SECTION_HEADER && ByteOrder::recognise(*magic, BYTE_ORDER_MAGIC).is_some()
        }
        [kind, ..] => u32::from_le_bytes(*kind) == SECTION_HEADER,
        [] => false,
    }
}

/// A block that begins at the input's next byte.
#[derive(Debug)]
struct PcapngBlock {
    /// The type.
    kind: u32,
    /// The section's byte order.
    order: ByteOrder,
    /// The offset in the stream at which the block begins.
    offset: u64,
    /// The size in bytes, header and trailer included: at least the minimum for its type.
    size: usize,
}

impl PcapngBlock {
    /// The block at the input's next byte, or `None` where the input ends; `order` is the section's.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short, or the length is impossible.
    #[inline]
    fn next(input: &mut Input, mut order: ByteOrder) -> InputResult<Option<PcapngBlock>> {
        // The shortest block has twelve bytes, and the third word of a section header says its byte order.
        let unread = input.peek(BLOCK_SIZE_MIN)?;
        let ([kind, size, third, ..], _) = unread.as_chunks::<4>() else {
            return end_of_file(input);
        };
        let mut size_min = BLOCK_SIZE_MIN;
        if u32::from_le_bytes(*kind) == SECTION_HEADER {
            size_min = SECTION_HEADER_SIZE_MIN;
            order = match ByteOrder::recognise(*third, BYTE_ORDER_MAGIC) {
                Some(order) => order,
                None => {
                    let what = "the file is damaged: a section header without its byte-order magic";
                    return Err(Error::new(what).at(input.offset()).into());
                }
            };
        }
        let kind = order.u32(*kind);
        let size = order.u32(*size) as usize;
        let offset = input.offset();
        if size < size_min || !size.is_multiple_of(4) {
            return Err(impossible_size(size, size_min, offset));
        }
        Ok(Some(PcapngBlock { kind, order, offset, size }))
    }

    /// The bytes between header and trailer. The whole block is read into the buffer, and its two lengths agree.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short, the lengths differ, or the block is too long for the buffer.
    #[inline]
    fn body<'a>(&self, input: &'a mut Input) -> InputResult<&'a [u8]> {
        if self.size > BLOCK_SIZE_MAX {
            return Err(self.too_long());
        }
        let unread = input.peek(self.size)?;
        let Some((rest, trailer)) = unread.get(..self.size).and_then(|block| block.split_last_chunk()) else {
            return Err(self.cut_short(unread.len()));
        };
        self.check_trailer(*trailer)?;
        rest.get(HEADER_SIZE..).ok_or_else(|| self.too_short())
    }

    /// Passes over a block whose body was read. Returns its range of the buffer.
    #[inline]
    fn consume(&self, input: &mut Input) -> Range<usize> {
        input.consume(self.size)
    }

    /// Passes over the block, however long it is.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short, or the two lengths differ.
    fn skip(&self, input: &mut Input) -> InputResult<()> {
        let is_whole = input.skip((self.size - TRAILER_SIZE) as u64)?;
        let trailer = input.peek(TRAILER_SIZE)?;
        match trailer.first_chunk() {
            Some(trailer) if is_whole => self.check_trailer(*trailer)?,
            _ => {
                let trailer_size = trailer.len() as u64;
                let present_size = input.offset() + trailer_size - self.offset;
                return Err(self.cut_short(usize::try_from(present_size).unwrap_or(self.size)));
            }
        }
        input.consume(TRAILER_SIZE);
        Ok(())
    }

    /// Checks that the section is of a version that this reader knows.
    ///
    /// # Errors
    ///
    /// The version is not 1.x, or the input cannot be read or is cut short.
    fn check_section_version(&self, input: &mut Input) -> InputResult<()> {
        let unread = input.peek(SECTION_HEADER_SIZE_MIN)?;
        let ([_kind, _size, _magic, version, ..], _) = unread.as_chunks::<4>() else {
            return Err(self.cut_short(unread.len()));
        };
        match self.order.u16_pair(*version) {
            (1, _) => Ok(()),
            (major, minor) => {
                let what = format!("pcapng version {major}.{minor} is not known (1.0 is)");
                Err(Error::new(what).at(self.offset).into())
            }
        }
    }

    /// The error for a block that is too short for its type.
    #[cold]
    fn too_short(&self) -> Box<Error> {
        let what = format!("the file is damaged: a block of type {} with only {} bytes", self.kind, self.size);
        Box::new(Error::new(what).at(self.offset))
    }

    #[cold]
    fn too_long(&self) -> Box<Error> {
        let PcapngBlock { kind, size, .. } = self;
        let what = format!("a block of type {kind} with {size} bytes, where {BLOCK_SIZE_MAX} is the most that is read");
        Box::new(Error::new(what).at(self.offset))
    }

    #[cold]
    fn cut_short(&self, present_size: usize) -> Box<Error> {
        cut_short("a block", self.offset, present_size, self.size)
    }

    #[inline]
    fn check_trailer(&self, trailer: [u8; TRAILER_SIZE]) -> InputResult<()> {
        match self.order.u32(trailer) as usize {
            size if size == self.size => Ok(()),
            size => Err(self.lengths_differ(size)),
        }
    }

    #[cold]
    fn lengths_differ(&self, trailer: usize) -> Box<Error> {
        let what = format!("the file is damaged: a block gives its length as {} and as {trailer} bytes", self.size);
        Box::new(Error::new(what).at(self.offset))
    }
}

#[cold]
fn end_of_file(input: &mut Input) -> InputResult<Option<PcapngBlock>> {
    let offset = input.offset();
    match input.peek(0)?.len() {
        0 => Ok(None),
        present_size => Err(cut_short("the head of a block", offset, present_size, BLOCK_SIZE_MIN)),
    }
}

#[cold]
fn impossible_size(size: usize, size_min: usize, offset: u64) -> Box<Error> {
    let what = format!(
        "the file is damaged: a block of {size} bytes, where at least {size_min} and a multiple of 4 are possible"
    );
    Box::new(Error::new(what).at(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_ns(resolution: u8, offset_s: i64, ticks: u64) -> i64 {
        InterfaceClock { tick: InterfaceTick::from_resolution(resolution), offset_s }.time_ns(ticks)
    }

    #[test]
    fn resolutions_are_powers_of_ten_or_two() {
        assert_eq!(time_ns(0, 0, 3), 3_000_000_000);
        assert_eq!(time_ns(6, 0, 3), 3_000);
        assert_eq!(time_ns(9, 0, 3), 3);
        assert_eq!(time_ns(12, 0, 3_999), 3);
        assert_eq!(time_ns(28, 0, u64::MAX), 1);
        assert_eq!(time_ns(127, 0, u64::MAX - 1), 0);
        assert_eq!(time_ns(0x80, 0, 3), 3_000_000_000);
        assert_eq!(time_ns(0x80 | 10, 0, 1024 + 512), 1_500_000_000);
        assert_eq!(time_ns(0x80 | 32, 0, 1 << 31), 500_000_000);
        assert_eq!(time_ns(0xff, 0, u64::MAX), 0);
    }

    #[test]
    fn times_beyond_64_bits_stop_at_the_end() {
        assert_eq!(time_ns(0, 0, u64::MAX), i64::MAX);
        assert_eq!(time_ns(6, i64::MAX, u64::MAX), i64::MAX);
        assert_eq!(time_ns(9, i64::MIN, 0), i64::MIN);
        assert_eq!(time_ns(0, -2, 1), -1_000_000_000);
        assert_eq!(time_ns(9, -18_446_744_073, u64::MAX), 709_551_615);
    }
}
