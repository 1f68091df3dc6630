//! The description of an interface in a pcapng file: its link type, its snapshot length and its clock.
//!
//! What enters: the body of an interface description. What leaves: how to read the interface's packets and their times.

use crate::capture::byte_order::ByteOrder;
use crate::error::{Error, Result};
use crate::parse::LinkType;

const OPTION_END: u16 = 0;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;

/// An interface of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) link: LinkType,
    /// Whether flowpeel reads that link type, kept so that it is not looked up for each packet.
    pub(super) is_supported: bool,
    /// The most that was captured of a packet.
    pub(super) snapshot_size: usize,
    pub(super) clock: Clock,
}

impl Interface {
    /// Reads the body of an interface description block.
    ///
    /// # Errors
    ///
    /// The body is shorter than what it must hold, or than its options say.
    pub(super) fn read(order: ByteOrder, body: &[u8]) -> Result<Self> {
        let ([link, snapshot_size, ..], _) = body.as_chunks::<4>() else {
            return Err(Error::new("the file is damaged: an interface description without a link type"));
        };
        let link = LinkType(u32::from(order.u16_pair(*link).0));
        let snapshot_size = match order.u32(*snapshot_size) as usize {
            0 => usize::MAX,
            size => size,
        };
        let mut clock = Clock { tick: Tick::MICROSECOND, offset_s: 0 };
        let mut options = body.get(8..).unwrap_or_default();
        while let Some(FirstOption { code, value, rest }) = FirstOption::read(order, options)? {
            match (code, value) {
                (OPTION_TIME_RESOLUTION, &[resolution]) => clock.tick = Tick::from_resolution(resolution),
                (OPTION_TIME_OFFSET, value) => {
                    if let Ok(seconds) = value.try_into() {
                        clock.offset_s = order.i64(seconds);
                    }
                }
                _ => {}
            }
            options = rest;
        }
        Ok(Interface { link, is_supported: link.is_supported(), snapshot_size, clock })
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
pub(super) struct Clock {
    tick: Tick,
    /// Added to every time, in seconds.
    offset_s: i64,
}

/// The length of one tick of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    /// This many nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond divided by this.
    PartOfNanosecond(u64),
    /// A second halved this many times.
    HalvedSecond(u32),
}

impl Tick {
    const MICROSECOND: Tick = Tick::Nanoseconds(1000);

    /// The tick of an `if_tsresol` option: a negative power of ten, or of two if the highest bit is set.
    fn from_resolution(resolution: u8) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        if resolution & 0x80 != 0 {
            return Tick::HalvedSecond(exponent);
        }
        match 9_u32.checked_sub(exponent) {
            Some(exponent) => Tick::Nanoseconds(10_u64.pow(exponent)),
            // With a divisor beyond 64 bits, all of 64 bits of ticks are less than a nanosecond.
            None => Tick::PartOfNanosecond(10_u64.checked_pow(exponent - 9).unwrap_or(u64::MAX)),
        }
    }
}

impl Clock {
    /// Nanoseconds since 1970, or the nearest time that fits into 64 bits (the year 2262).
    #[inline]
    pub(super) fn time_ns(&self, ticks: u64) -> i64 {
        let since_offset_ns = match self.tick {
            // The products need 64 + 30 bits.
            Tick::Nanoseconds(tick_ns) => i128::from(ticks) * i128::from(tick_ns),
            Tick::PartOfNanosecond(part) => i128::from(ticks / part),
            Tick::HalvedSecond(exponent) => (i128::from(ticks) * 1_000_000_000) >> exponent,
        };
        let time_ns = since_offset_ns + i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(time_ns).unwrap_or(if time_ns < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_ns(resolution: u8, offset_s: i64, ticks: u64) -> i64 {
        Clock { tick: Tick::from_resolution(resolution), offset_s }.time_ns(ticks)
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
