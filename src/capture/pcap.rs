//! The pcap format: a file header, then records.
//!
//! Four kinds are read, each
//! in both byte orders: times in microseconds, in nanoseconds, and the modified kind of old Linux kernels, whose
//! records carry eight bytes more. Files older than version 2.4 may have a record's two lengths in the opposite order.

use super::byte_order::ByteOrder;
use super::input::{Input, InputRecord, InputResult, cut_short};
use super::{ClockName, Packet, Stamp};
use crate::capture::PACKET_SIZE_MAX;
use crate::capture::pcapng::BLOCK_SIZE_MAX;
use crate::error::Error;
use crate::parse::LinkType;
use flowpeel_lines::{Line, prefetch};

const MICROSECOND_MAGIC: u32 = 0xa1b2_c3d4;
const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;
const MODIFIED_MAGIC: u32 = 0xa1b2_cd34;

const SECOND_NS: i64 = 1_000_000_000;

const FILE_HEADER_SIZE: usize = 24;
const RECORD_HEADER_SIZE: usize = 16;
const MODIFIED_RECORD_HEADER_SIZE: usize = 24;
const _: () = assert!(BLOCK_SIZE_MAX >= MODIFIED_RECORD_HEADER_SIZE + PACKET_SIZE_MAX);

/// The field of the link type also holds the length of a frame check sequence, in its upper half.
const LINK_TYPE_MASK: u32 = 0xffff;

/// Which of a record's two lengths is the captured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CapturedLength {
    /// The first, as the format has it.
    First,
    /// The second, in old files.
    Second,
    /// The smaller one: files of version 2.3 have them in either order.
    Smaller,
}

/// The kind of a pcap file, by its magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PcapKind {
    order: ByteOrder,
    /// The unit of a time's fraction, in nanoseconds.
    fraction_ns: i64,
    record_header_size: usize,
}

impl PcapKind {
    /// The kind of pcap file that begins with these bytes, if there is one.
    pub(super) fn recognise(magic: [u8; 4]) -> Option<Self> {
        let kinds = [
            (MICROSECOND_MAGIC, 1000, RECORD_HEADER_SIZE),
            (NANOSECOND_MAGIC, 1, RECORD_HEADER_SIZE),
            (MODIFIED_MAGIC, 1000, MODIFIED_RECORD_HEADER_SIZE),
        ];
        kinds.into_iter().find_map(|(number, fraction_ns, record_header_size)| {
            let order = ByteOrder::recognise(magic, number)?;
            Some(PcapKind { order, fraction_ns, record_header_size })
        })
    }
}

/// The reader of one pcap file.
pub(super) struct PcapReader {
    kind: PcapKind,
    captured_length: CapturedLength,
    link: LinkType,
    /// Whether its records are those of the most common kind: see [`CommonRecords`].
    is_common: bool,
}

impl PcapReader {
    /// Reads the file header.
    ///
    /// # Errors
    ///
    /// The header is cut short, of an unknown version, or of a link type that flowpeel cannot read.
    pub(super) fn new(kind: PcapKind, input: &mut Input) -> InputResult<Self> {
        let offset = input.offset();
        let unread = input.peek(FILE_HEADER_SIZE)?;
        let ([_magic, version, _zone, _accuracy, _snapshot_length, network, ..], _) = unread.as_chunks::<4>() else {
            return Err(cut_short("the pcap file header", offset, unread.len(), FILE_HEADER_SIZE));
        };
        let captured_length = match kind.order.u16_pair(*version) {
            // HP-UX wrote 543.0 for 2.0.
            (2, 0..=2) | (543, 0) => CapturedLength::Second,
            (2, 3) => CapturedLength::Smaller,
            (2, _) => CapturedLength::First,
            (major, minor) => {
                let what = format!("pcap version {major}.{minor} is not known (2.4 is)");
                return Err(Error::new(what).at(offset).into());
            }
        };
        let link = LinkType(kind.order.u32(*network) & LINK_TYPE_MASK);
        if !link.is_supported() {
            return Err(Error::new(format!("link type {link} cannot be read")).at(offset).into());
        }
        input.consume(FILE_HEADER_SIZE);
        let is_common = kind.order == ByteOrder::Little
            && kind.record_header_size == RECORD_HEADER_SIZE
            && captured_length == CapturedLength::First;
        Ok(PcapReader { kind, captured_length, link, is_common })
    }

    /// A reader of this file's records, if it is of the most common kind: little-endian, and of the current version.
    #[inline]
    pub(super) fn common_records(&self) -> Option<CommonRecords> {
        self.is_common.then_some(CommonRecords { fraction_ns: self.kind.fraction_ns, link: self.link })
    }

    /// The next record, or `None` where the file ends between records.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short inside a record, or the record is longer than any packet.
    pub(super) fn next_record(&mut self, input: &mut Input) -> InputResult<Option<InputRecord>> {
        loop {
            // One branch on the order for each record, not one for each number.
            let read = match self.kind.order {
                ByteOrder::Little => read_record(self.kind, self.captured_length, input.unread(), u32::from_le_bytes),
                ByteOrder::Big => read_record(self.kind, self.captured_length, input.unread(), u32::from_be_bytes),
            };
            match read {
                Ok(Record { time_ns, record_size, wire_size }) => {
                    let record = input.consume(record_size);
                    let range = record.start + self.kind.record_header_size..record.end;
                    return Ok(Some(InputRecord { stamp: Stamp::unnamed(time_ns), link: self.link, range, wire_size }));
                }
                Err(NoRecord::Needs(size)) if input.peek(size)?.len() < size => return end_of_file(input, size),
                Err(NoRecord::Needs(_)) => {}
                Err(NoRecord::TooLong(captured_size)) => return Err(too_long(captured_size, input.offset())),
                Err(NoRecord::AnotherCapture) => return Err(another_capture(input.offset())),
            }
        }
    }
}

/// [`read_record`] with the byte order, the header's size and the place of the length as constants, so that a loop over
/// records that are whole in the buffer has no branch on them.
#[derive(Clone, Copy)]
pub(super) struct CommonRecords {
    fraction_ns: i64,
    link: LinkType,
}

/// How far behind the beginning of a record what follows is prefetched, in bytes, two cache lines of it: some short
/// packets. A read leaves more than a core's own cache holds, and a processor does not foretell where the next header
/// is while packets are of many sizes.
const AHEAD_SIZE: usize = 640;

impl CommonRecords {
    /// Those of a file that has none.
    pub(super) const NONE: Self = CommonRecords { fraction_ns: 1, link: LinkType::ETHERNET };

    /// The packet whose record these bytes begin with, which then are those behind it; `None` if the record is not
    /// whole or not valid.
    #[inline(always)]
    pub(super) fn next_packet<'a>(&self, unread: &mut &'a [u8]) -> Option<Packet<'a>> {
        let kind = PcapKind {
            order: ByteOrder::Little,
            record_header_size: RECORD_HEADER_SIZE,
            fraction_ns: self.fraction_ns,
        };
        if let Some([near, .., far]) = unread.get(AHEAD_SIZE..=AHEAD_SIZE + size_of::<Line>()) {
            prefetch(near);
            prefetch(far);
        }
        let record = read_record(kind, CapturedLength::First, unread, u32::from_le_bytes).ok()?;
        let Record { time_ns, record_size, wire_size } = record;
        let (record, behind) = unread.split_at_checked(record_size)?;
        let bytes = record.get(RECORD_HEADER_SIZE..)?;
        *unread = behind;
        Some(Packet { time_ns, clock: ClockName::FIRST, link: self.link, bytes, wire_size, vlan: None })
    }
}

/// What the header of a record says.
struct Record {
    time_ns: i64,
    /// The record's size in the file, with its header.
    record_size: usize,
    /// The bytes that the frame had on the wire.
    wire_size: usize,
}

/// The record that these bytes begin with.
#[inline(always)]
fn read_record(
    kind: PcapKind,
    captured_length: CapturedLength,
    unread: &[u8],
    number: impl Fn([u8; 4]) -> u32,
) -> std::result::Result<Record, NoRecord> {
    let PcapKind { fraction_ns, record_header_size, .. } = kind;
    let Some((header, _)) = unread.split_first_chunk::<RECORD_HEADER_SIZE>() else {
        return Err(NoRecord::Needs(record_header_size));
    };
    let ([seconds, fraction, first_length, second_length], _) = header.as_chunks::<4>() else {
        return Err(NoRecord::Needs(record_header_size));
    };
    // Seconds are unsigned and 32 bits wide, so this cannot overflow. A fraction of one second or more is invalid
    // (files with negative ones exist) and could add up to more than an hour, so such a packet is put at the end of its
    // second.
    let within_second_ns = (i64::from(number(*fraction)) * fraction_ns).min(SECOND_NS - fraction_ns);
    let time_ns = i64::from(number(*seconds)) * SECOND_NS + within_second_ns;
    let (first_length, second_length) = (number(*first_length), number(*second_length));
    let (captured_size, wire_size) = match captured_length {
        CapturedLength::First => (first_length as usize, second_length as usize),
        CapturedLength::Second => (second_length as usize, first_length as usize),
        CapturedLength::Smaller => (first_length.min(second_length) as usize, first_length.max(second_length) as usize),
    };
    // One comparison for both ends of the range.
    if captured_size.wrapping_sub(1) >= PACKET_SIZE_MAX {
        unusual_size(captured_size, *seconds)?;
    }
    let record_size = record_header_size + captured_size;
    if unread.len() < record_size {
        return Err(NoRecord::Needs(record_size));
    }
    Ok(Record { time_ns, record_size, wire_size })
}

/// Checks a captured size that is zero, or of more than any packet.
#[cold]
fn unusual_size(captured_size: usize, seconds: [u8; 4]) -> std::result::Result<(), NoRecord> {
    if captured_size > PACKET_SIZE_MAX {
        return Err(NoRecord::TooLong(captured_size));
    }
    // No packet is empty, and none was captured in 2055.
    if PcapKind::recognise(seconds).is_some() { Err(NoRecord::AnotherCapture) } else { Ok(()) }
}

/// The reason why some bytes do not begin with a whole record.
enum NoRecord {
    /// The record needs this many bytes.
    Needs(usize),
    /// The record would hold this many bytes, more than any packet has.
    TooLong(usize),
    /// The bytes are the header of another capture.
    AnotherCapture,
}

#[cold]
fn end_of_file(input: &mut Input, record_size: usize) -> InputResult<Option<InputRecord>> {
    let offset = input.offset();
    match input.peek(0)?.len() {
        0 => Ok(None),
        present_size => Err(cut_short("a packet record", offset, present_size, record_size)),
    }
}

/// The error for captures that were concatenated into one file.
#[cold]
fn another_capture(offset: u64) -> Box<Error> {
    Box::new(Error::new("another capture begins here: name captures one by one, do not put them together").at(offset))
}

/// The error for a packet of a size that cannot have been captured.
#[cold]
pub(super) fn too_long(captured_size: usize, offset: u64) -> Box<Error> {
    let what = format!(
        "the file is damaged: a packet of {captured_size} bytes, where {PACKET_SIZE_MAX} is the longest possible"
    );
    Box::new(Error::new(what).at(offset))
}
