//! The part of a frame that has not been read, and its length on the wire and by the headers so far.
//!
//! Every read goes through here, so that no byte is read unchecked and the two ways to run out of bytes are
//! distinguished: a frame that was cut short by the capture, and a packet that ended on the wire, by its own headers or
//! with its frame.

use super::Unusable;

/// The bytes after the headers that have been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread<'a> {
    /// The captured bytes; never longer than `wire_size`.
    bytes: &'a [u8],
    /// How many bytes there were on the wire, captured or not; never more than `declared_size`.
    wire_size: usize,
    /// How many bytes there should be; `usize::MAX` until a header says so.
    declared_size: usize,
}

impl<'a> Unread<'a> {
    /// The captured bytes of a frame that had so many on the wire. Its end declares no length: the frame may be padded.
    pub(super) fn new(captured: &'a [u8], wire_size: usize) -> Self {
        Unread { bytes: captured, wire_size: wire_size.max(captured.len()), declared_size: usize::MAX }
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
    /// `beyond` if the packet's own headers, or the end of its frame on the wire, end it before them; otherwise
    /// [`Unusable::CutShort`] if the captured bytes end before them.
    pub(super) fn take<const N: usize>(&mut self, beyond: Unusable) -> Result<&'a [u8; N], Unusable> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(self.missing(N, beyond));
        };
        self.bytes = rest;
        self.count_taken(N);
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
        self.count_taken(size);
        Ok(())
    }

    /// Declares that `size` bytes follow, as a header says: what is behind them is padding. A length beyond what an
    /// outer header declared changes nothing.
    pub(super) fn limit(&mut self, size: usize) {
        self.declared_size = self.declared_size.min(size);
        self.wire_size = self.wire_size.min(size);
        self.bytes = self.bytes.get(..size).unwrap_or(self.bytes);
    }

    /// Records that the payload continues in another packet, so a length beyond this one is no contradiction.
    pub(super) fn continues_elsewhere(&mut self) {
        self.declared_size = usize::MAX;
    }

    fn count_taken(&mut self, size: usize) {
        self.wire_size = self.wire_size.saturating_sub(size);
        if self.declared_size != usize::MAX {
            self.declared_size = self.declared_size.saturating_sub(size);
        }
    }

    fn missing(&self, size: usize, beyond: Unusable) -> Unusable {
        if size > self.wire_size { beyond } else { Unusable::CutShort }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_capture_cut_is_cut_and_what_the_wire_ended_is_not() {
        let beyond = Unusable::MalformedTcp;
        let mut unread = Unread::new(&[1, 2, 3, 4, 5, 6], 20);
        assert_eq!(unread.take::<2>(beyond), Ok(&[1, 2]));
        assert_eq!(unread.take::<5>(beyond), Err(Unusable::CutShort));
        assert_eq!(unread.skip(18, beyond), Err(Unusable::CutShort));
        assert_eq!(unread.skip(19, beyond), Err(beyond));
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
    }

    #[test]
    fn a_whole_frame_is_never_cut() {
        let beyond = Unusable::MalformedIpv4;
        // A frame of which more was captured than it had is whole.
        for wire_size in [0, 3, 4] {
            let mut unread = Unread::new(&[1, 2, 3, 4], wire_size);
            unread.limit(9);
            assert_eq!(unread.take::<5>(beyond), Err(beyond));
            assert_eq!(unread.take::<4>(beyond), Ok(&[1, 2, 3, 4]));
            assert_eq!(unread.peek::<1>(beyond), Err(beyond));
        }
    }

    #[test]
    fn a_fragment_may_declare_more_than_it_has_and_holds_no_more() {
        let beyond = Unusable::MalformedTcp;
        let mut unread = Unread::new(&[1, 2, 3], 10);
        unread.limit(5);
        unread.continues_elsewhere();
        assert_eq!(unread.declared_size(), usize::MAX);
        assert_eq!(unread.take::<5>(beyond), Err(Unusable::CutShort));
        assert_eq!(unread.take::<6>(beyond), Err(beyond));
        assert_eq!(unread.take::<3>(beyond), Ok(&[1, 2, 3]));
    }
}
