//! The part of a frame that has not been read, and its length by the headers so far.
//!
//! Every read goes through here, so that no byte is read unchecked and the two ways to run out of bytes are
//! distinguished: a frame that was cut short by the capture, and a packet that ends where its own headers say so.

use super::Unusable;

/// The bytes after the headers that have been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread<'a> {
    /// The captured bytes; never longer than `declared_size`.
    bytes: &'a [u8],
    /// How many bytes there should be; `usize::MAX` until a header says so.
    declared_size: usize,
}

impl<'a> Unread<'a> {
    /// A whole frame. Its end declares no length: the frame may be padded, and may be cut by the snapshot length.
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Unread { bytes: frame, declared_size: usize::MAX }
    }

    /// How many bytes the headers so far say there are, whether captured or not.
    pub(super) fn declared_size(&self) -> usize {
        self.declared_size
    }

    /// As [`Self::declared_size`]; `None` where no header says.
    pub(super) fn size(&self) -> Option<usize> {
        (self.declared_size != usize::MAX).then_some(self.declared_size)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// `beyond` if the packet's own headers end it before them; otherwise [`Unusable::CutShort`] if the frame ends
    /// before them.
    pub(super) fn take<const N: usize>(&mut self, beyond: Unusable) -> Result<&'a [u8; N], Unusable> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(self.missing(N, beyond));
        };
        self.bytes = rest;
        self.declare_taken(N);
        Ok(head)
    }

    /// The next `N` bytes, which stay unread. Errors as for [`Self::take`].
    pub(super) fn peek<const N: usize>(&self, beyond: Unusable) -> Result<&'a [u8; N], Unusable> {
        self.bytes.first_chunk::<N>().ok_or(self.missing(N, beyond))
    }

    /// Passes over the next `size` bytes. Errors as for [`Self::take`].
    pub(super) fn skip(&mut self, size: usize, beyond: Unusable) -> Result<(), Unusable> {
        let Some(rest) = self.bytes.get(size..) else {
            return Err(self.missing(size, beyond));
        };
        self.bytes = rest;
        self.declare_taken(size);
        Ok(())
    }

    /// Declares that `size` bytes follow, as a header says: what is behind them is padding. A length beyond what an
    /// outer header declared changes nothing.
    pub(super) fn limit(&mut self, size: usize) {
        self.declared_size = self.declared_size.min(size);
        self.bytes = self.bytes.get(..size).unwrap_or(self.bytes);
    }

    /// Records that the payload continues in another packet, so running out of bytes is no contradiction.
    pub(super) fn continues_elsewhere(&mut self) {
        self.declared_size = usize::MAX;
    }

    fn declare_taken(&mut self, size: usize) {
        if self.declared_size != usize::MAX {
            self.declared_size = self.declared_size.saturating_sub(size);
        }
    }

    fn missing(&self, size: usize, beyond: Unusable) -> Unusable {
        if size > self.declared_size { beyond } else { Unusable::CutShort }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_the_capture_does_and_a_packet_where_it_says() {
        let beyond = Unusable::MalformedTcp;
        let mut unread = Unread::new(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(unread.take::<2>(beyond), Ok(&[1, 2]));
        assert_eq!(unread.take::<5>(beyond), Err(Unusable::CutShort));
        unread.limit(9);
        assert_eq!(unread.take::<9>(beyond), Err(Unusable::CutShort));
        assert_eq!(unread.take::<10>(beyond), Err(beyond));
        unread.limit(3);
        assert_eq!(unread.peek::<3>(beyond), Ok(&[3, 4, 5]));
        assert_eq!(unread.skip(4, beyond), Err(beyond));
        assert_eq!(unread.skip(1, beyond), Ok(()));
        assert_eq!(unread.declared_size(), 2);
        unread.limit(8);
        assert_eq!(unread.declared_size(), 2);
        unread.continues_elsewhere();
        assert_eq!(unread.take::<3>(beyond), Err(Unusable::CutShort));
        assert_eq!(unread.take::<2>(beyond), Ok(&[4, 5]));
    }
}
