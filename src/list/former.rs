//! The starts of connections that were taken off the list lately, after a long time on it.
//!
//! A payload has the low bits of a start's tick, which wrap after 29 hours. If it turns out that a connection has not
//! ended after all, its payload comes again, and its start is the one that it had.

use crate::error::Result;
use crate::flow::{FlowKey as TableKey, saved_key};
use crate::list::start::Start;
use crate::state::{Decoder, Encoder};
use std::collections::{HashMap, VecDeque};

/// The most that are remembered in each partition and family. Few connections last for long, and few of their ends are
/// forged: the starts of the others are marked as bounds.
const FORMER_MAX: usize = 256;

/// The starts. Keys come from the wire, so the hash is seeded at random.
pub(super) struct FormerStarts<K> {
    /// Each start with a number that says which of the places in the order is its own.
    starts: HashMap<K, (Start, u64), ahash::RandomState>,
    /// The keys in the order in which they came: when there are too many, the oldest is dropped.
    order: VecDeque<(K, u64)>,
    next: u64,
}

impl<K: TableKey> FormerStarts<K> {
    pub(super) fn new() -> Self {
        FormerStarts { starts: HashMap::default(), order: VecDeque::new(), next: 0 }
    }

    /// Remembers the start of a connection that was taken off.
    pub(super) fn put(&mut self, key: K, start: Start) {
        self.starts.insert(key, (start, self.next));
        self.order.push_back((key, self.next));
        self.next += 1;
        if self.order.len() > FORMER_MAX
            && let Some((oldest, number)) = self.order.pop_front()
            && self.starts.get(&oldest).is_some_and(|(_, latest)| *latest == number)
        {
            self.starts.remove(&oldest);
        }
    }

    /// The start that a connection with this payload had, which is open again.
    pub(super) fn take(&mut self, key: &K, payload: u32) -> Option<Start> {
        if self.starts.is_empty() {
            return None;
        }
        self.starts.get(key).filter(|(start, _)| start.payload() == payload)?;
        self.starts.remove(key).map(|(start, _)| start)
    }

    /// Encodes them for a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.starts.len());
        for (key, number) in &self.order {
            if let Some((start, _)) = self.starts.get(key).filter(|(_, latest)| latest == number) {
                encoder.words(key.words());
                encoder.u64(start.to_bits());
            }
        }
    }

    /// Decodes what was saved.
    pub(super) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let mut former = FormerStarts::new();
        let size = K::WORD_COUNT * size_of::<u64>() + size_of::<u64>();
        for _ in 0..decoder.length(size, FORMER_MAX)? {
            let (key, start) = (saved_key(decoder)?, Start::of_bits(decoder.u64()?));
            former.put(key, start);
        }
        Ok(former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, VlanTags};

    fn key_of(number: u32) -> KeyV4 {
        KeyV4::new((number, 1_000), (7, 443), VlanTags::NONE)
    }

    fn start_of(number: u32) -> Start {
        Start::at(1 << 21 | u64::from(number), false)
    }

    #[test]
    fn the_latest_come_back_with_the_same_payload_only() {
        let mut former = FormerStarts::new();
        for number in 0..1_000 {
            former.put(key_of(number), start_of(number));
        }
        former.put(key_of(800), start_of(5));
        assert_eq!(former.take(&key_of(800), start_of(800).payload()), None);
        assert_eq!(former.take(&key_of(800), start_of(5).payload()), Some(start_of(5)));
        assert_eq!(former.take(&key_of(800), start_of(5).payload()), None);
        let mut encoder = Encoder::default();
        former.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let mut other = FormerStarts::saved(&mut Decoder::new(&bytes)).unwrap();
        for number in 0..1_000 {
            let payload = start_of(number).payload();
            let start = former.take(&key_of(number), payload);
            assert_eq!(start, (number > 744 && number != 800).then(|| start_of(number)), "{number}");
            assert_eq!(other.take(&key_of(number), payload), start);
        }
    }
}
