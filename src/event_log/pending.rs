//! What a destination has not taken yet: whole records, of which the first may have been taken in part.

use std::collections::VecDeque;

/// The most bytes that wait at a destination: some 15,000 events, which a receiver that is restarted should not lose.
pub(super) const PENDING_SIZE_MAX: usize = 4 << 20;

/// Records that wait, in order. A record is a line, or a message that is taken whole.
#[derive(Default)]
pub(super) struct Pending {
    bytes: VecDeque<u8>,
    /// The sizes of the records.
    sizes: VecDeque<usize>,
    /// How much of the first record was taken.
    taken: usize,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Whether there is no room for many more records.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.bytes.len() > PENDING_SIZE_MAX / 2
    }

    /// Adds a record, and returns whether there was room for it.
    #[must_use]
    pub(super) fn push(&mut self, record: &[u8]) -> bool {
        let has_room = self.bytes.len() + record.len() <= PENDING_SIZE_MAX;
        if has_room && !record.is_empty() {
            self.bytes.extend(record);
            self.sizes.push_back(record.len());
        }
        has_room
    }

    /// As much of what was not taken as is in one piece: of a stream this may be written.
    pub(super) fn rest(&self) -> &[u8] {
        let (first, second) = self.bytes.as_slices();
        first.get(self.taken..).filter(|rest| !rest.is_empty()).unwrap_or_else(|| {
            // The first record may lie in both pieces.
            second.get(self.taken.saturating_sub(first.len())..).unwrap_or_default()
        })
    }

    /// The first record whole.
    pub(super) fn first(&mut self) -> &[u8] {
        let size = self.sizes.front().copied().unwrap_or(0);
        self.bytes.make_contiguous().get(..size).unwrap_or_default()
    }

    /// Takes out so many bytes of what was not taken.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        while let Some(&size) = self.sizes.front()
            && size <= self.taken
        {
            self.sizes.pop_front();
            self.bytes.drain(..size);
            self.taken -= size;
        }
    }

    /// Takes back what was taken of the first record: it is to be sent whole again.
    pub(super) fn rewind(&mut self) {
        self.taken = 0;
    }

    /// Drops all records but the one that was taken in part, and returns how many those are.
    pub(super) fn drop_whole(&mut self) -> u64 {
        let kept = usize::from(self.taken > 0).min(self.sizes.len());
        let dropped = self.sizes.len() - kept;
        self.sizes.truncate(kept);
        self.bytes.truncate(self.sizes.iter().sum());
        dropped as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_taken_is_what_was_pushed(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..100),
            counts in prop::collection::vec((0usize..120, any::<bool>()), 1..300),
        ) {
            let mut pending = Pending::default();
            let (mut pushed, mut taken) = (Vec::new(), Vec::new());
            let mut records = records.iter();
            for (count, pushes) in counts {
                if pushes && let Some(record) = records.next() {
                    prop_assert!(pending.push(record));
                    pushed.extend_from_slice(record);
                }
                let rest = pending.rest();
                prop_assert_eq!(rest.is_empty(), pending.is_empty());
                let count = count.min(rest.len());
                taken.extend_from_slice(&rest[..count]);
                pending.take(count);
            }
            while !pending.is_empty() {
                let count = pending.rest().len();
                taken.extend_from_slice(pending.rest());
                pending.take(count);
            }
            prop_assert_eq!(taken, pushed);
        }
    }

    #[test]
    fn a_record_that_was_begun_stays_and_can_be_sent_again() {
        let mut pending = Pending::default();
        for record in [&b"first\n"[..], b"second\n", b"third\n"] {
            assert!(pending.push(record));
        }
        pending.take(8);
        assert_eq!(pending.rest(), b"cond\nthird\n");
        assert_eq!(pending.drop_whole(), 1);
        assert_eq!(pending.rest(), b"cond\n");
        pending.rewind();
        assert_eq!((pending.first().to_vec(), pending.rest()), (b"second\n".to_vec(), &b"second\n"[..]));
        pending.take(7);
        assert!(pending.is_empty());
        assert!(!pending.push(&vec![0; PENDING_SIZE_MAX + 1]));
    }
}
