//! What a destination has not taken yet: whole records, of which the first may have been taken in part; and how many
//! events were written and lost.

use crate::disk::{Decoder, Encoder};
use crate::error::Result;
use crate::metrics::EventCounts;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most bytes that wait at a destination: some 15,000 events, which a receiver that is restarted should not lose.
pub(super) const PENDING_SIZE_MAX: usize = 4 << 20;

/// A record: a line, or a message that is taken whole.
#[derive(Clone, Copy)]
struct Record {
    size: usize,
    /// The events in it.
    event_count: u64,
}

/// Records that wait, in order.
#[derive(Default)]
pub(super) struct Pending {
    bytes: VecDeque<u8>,
    records: VecDeque<Record>,
    /// How much of the first record was taken.
    taken: usize,
    /// Events that were lost since this was reported to the receiver.
    lost: u64,
    counts: Arc<EventCounts>,
}

impl Pending {
    pub(super) fn new(counts: Arc<EventCounts>) -> Self {
        Pending { counts, ..Pending::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether no record was taken in part.
    pub(super) fn is_at_record(&self) -> bool {
        self.taken == 0
    }

    /// Encodes what waits, each record whole, for a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.lost);
        encoder.length(self.records.len());
        for record in &self.records {
            encoder.length(record.size);
            encoder.u64(record.event_count);
        }
        let (first, second) = self.bytes.as_slices();
        encoder.bytes(&[first, second].concat());
    }

    /// Takes over what [`Self::save`] encoded.
    ///
    /// # Errors
    ///
    /// The bytes encode no such thing.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.lost = decoder.count()?;
        let count = decoder.length(2 * size_of::<u64>(), PENDING_SIZE_MAX)?;
        let sizes = (0..count).map(|_| Ok((decoder.count()?, decoder.count()?))).collect::<Result<Vec<_>>>()?;
        let mut bytes = decoder.bytes()?;
        for (size, event_count) in sizes {
            let split = usize::try_from(size).ok().and_then(|size| bytes.split_at_checked(size));
            let (record, rest) = decoder.some(split, "a record without its bytes")?;
            self.push(record, event_count);
            bytes = rest;
        }
        decoder.expect(bytes.is_empty(), "bytes without a record")
    }

    /// Events that were lost and not reported yet.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes note of events that never came here, and are counted already.
    pub(super) fn skip(&mut self, count: u64) {
        self.lost += count;
    }

    /// The events that were lost and not reported yet: they are to be reported now.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Whether there is no room for many more records.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.bytes.len() > PENDING_SIZE_MAX / 2
    }

    /// Adds a record of so many events, which are lost if there is no room for it. Returns whether there was.
    pub(super) fn push(&mut self, record: &[u8], event_count: u64) -> bool {
        let has_room = self.bytes.len() + record.len() <= PENDING_SIZE_MAX;
        if has_room {
            self.bytes.extend(record);
            self.records.push_back(Record { size: record.len(), event_count });
            self.counts.written.fetch_add(event_count, Ordering::Relaxed);
        } else {
            self.lose(event_count);
        }
        has_room
    }

    /// Counts events that are lost.
    pub(super) fn lose(&mut self, event_count: u64) {
        self.lost += event_count;
        self.counts.lost.fetch_add(event_count, Ordering::Relaxed);
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
        let size = self.records.front().map_or(0, |record| record.size);
        self.bytes.make_contiguous().get(..size).unwrap_or_default()
    }

    /// Takes out so many bytes of what was not taken.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        while let Some(&Record { size, .. }) = self.records.front()
            && size <= self.taken
        {
            self.records.pop_front();
            self.bytes.drain(..size);
            self.taken -= size;
        }
    }

    /// Takes back what was taken of the first record: it is to be sent whole again.
    pub(super) fn rewind(&mut self) {
        self.taken = 0;
    }

    /// Drops all records but the one that was taken in part: their events are lost.
    pub(super) fn drop_whole(&mut self) {
        let kept = usize::from(self.taken > 0).min(self.records.len());
        let dropped = self.records.drain(kept..).map(|record| record.event_count).sum();
        self.bytes.truncate(self.records.iter().map(|record| record.size).sum());
        self.counts.written.fetch_sub(dropped, Ordering::Relaxed);
        self.lose(dropped);
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
                    prop_assert!(pending.push(record, 1));
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
    fn what_waits_is_saved_whole() {
        let mut pending = Pending::default();
        for record in [&b"first\n"[..], b"second\n", b"third\n"] {
            assert!(pending.push(record, 2));
        }
        pending.take(9);
        pending.skip(4);
        let mut encoder = Encoder::default();
        pending.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let mut restored = Pending::default();
        let mut decoder = Decoder::new(&bytes);
        restored.restore(&mut decoder).unwrap();
        decoder.end().unwrap();
        assert_eq!((restored.rest(), restored.lost()), (&b"second\nthird\n"[..], 4));
        restored.take(7);
        assert_eq!(restored.first(), b"third\n");
        for end in 0..bytes.len() {
            Pending::default().restore(&mut Decoder::new(&bytes[..end])).unwrap_err();
        }
    }

    #[test]
    fn a_record_that_was_begun_stays_and_can_be_sent_again() {
        let mut pending = Pending::default();
        for record in [&b"first\n"[..], b"second\n", b"third\n"] {
            assert!(pending.push(record, 1));
        }
        pending.take(8);
        assert_eq!(pending.rest(), b"cond\nthird\n");
        pending.drop_whole();
        assert_eq!(pending.take_lost(), 1);
        assert_eq!(pending.rest(), b"cond\n");
        pending.rewind();
        assert_eq!((pending.first().to_vec(), pending.rest()), (b"second\n".to_vec(), &b"second\n"[..]));
        pending.take(7);
        assert!(pending.is_empty());
        assert!(!pending.push(&vec![0; PENDING_SIZE_MAX + 1], 30));
        let counted = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let counts = &pending.counts;
        assert_eq!((pending.lost(), counted(&counts.written), counted(&counts.lost)), (30, 2, 31));
    }
}
