//! The two byte orders of capture files: a file, or a section of one, is written in that of the machine that made it.

/// The order of the bytes in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

impl ByteOrder {
    /// The order in which these four bytes are the number `magic`, if there is one.
    pub(super) fn recognise(bytes: [u8; 4], magic: u32) -> Option<Self> {
        [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u32(bytes) == magic)
    }

    /// The number of these two bytes.
    #[inline]
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The number of these four bytes.
    #[inline]
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The signed number of these eight bytes.
    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            ByteOrder::Little => i64::from_le_bytes(bytes),
            ByteOrder::Big => i64::from_be_bytes(bytes),
        }
    }

    /// The two 16-bit numbers of these four bytes, in the order in which they are written.
    #[inline]
    pub(super) fn u16_pair(self, [a, b, c, d]: [u8; 4]) -> (u16, u16) {
        (self.u16([a, b]), self.u16([c, d]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders() {
        assert_eq!(ByteOrder::recognise([4, 3, 2, 1], 0x0102_0304), Some(ByteOrder::Little));
        assert_eq!(ByteOrder::recognise([1, 2, 3, 4], 0x0102_0304), Some(ByteOrder::Big));
        assert_eq!(ByteOrder::recognise([1, 2, 3, 5], 0x0102_0304), None);
        assert_eq!(ByteOrder::Big.u16_pair([0, 1, 0, 2]), (1, 2));
        assert_eq!(ByteOrder::Little.u16_pair([1, 0, 2, 0]), (1, 2));
        assert_eq!(ByteOrder::Big.i64([0xff; 8]), -1);
        assert_eq!(ByteOrder::Little.i64([2, 0, 0, 0, 0, 0, 0, 0]), 2);
    }
}
