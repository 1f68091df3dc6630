//! The cache in a saved state: its tags, each with its place, because the order of places decides which tag is evicted.

use super::{HandshakeCache, Relaxed, WAY_COUNT};
use crate::error::Result;
use crate::state::{Decoder, Encoder};

impl HandshakeCache {
    /// Writes the cache into a saved state. No other thread may be using it.
    ///
    /// Complexity: a pass over its memory.
    pub fn save(&self, encoder: &mut Encoder) {
        let tags = || self.sets.iter().flat_map(|set| &set.0).map(|tag| tag.load(Relaxed));
        encoder.length(tags().filter(|tag| *tag != 0).count());
        for (place, tag) in tags().enumerate().filter(|(_, tag)| *tag != 0) {
            encoder.u64(place as u64);
            encoder.u64(tag);
        }
        // A bit may be set although no handshake waits there any more, and what is sampled depends on it.
        encoder.length(self.waiting.len());
        self.waiting.iter().for_each(|word| encoder.u64(word.load(Relaxed)));
    }

    /// Fills an empty cache from a saved state. After an error the cache is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a cache of this size.
    pub fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        let count = decoder.length(2 * size_of::<u64>(), self.sets.len() * WAY_COUNT)?;
        for _ in 0..count {
            let (place, tag) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            let set = decoder.some(self.sets.get(place / WAY_COUNT), "a handshake out of place")?;
            set.0[place % WAY_COUNT].store(tag, Relaxed);
        }
        let count = decoder.length(size_of::<u64>(), self.waiting.len())?;
        decoder.expect(count == self.waiting.len(), "a cache of another size")?;
        for word in &self.waiting {
            word.store(decoder.u64()?, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Side;

    #[test]
    fn those_that_wait_wait_on() {
        let cache = HandshakeCache::new(256, 60_000_000_000);
        let hash = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..300 {
            cache.put(hash(number), Side::First, Some(number as u32), number as i64);
        }
        for number in 0..50 {
            cache.take(hash(number), Side::First, number as u32, 400);
        }
        let mut encoder = Encoder::default();
        cache.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let other = HandshakeCache::new(256, 60_000_000_000);
        let mut decoder = Decoder::new(&bytes);
        other.restore(&mut decoder).unwrap();
        assert!(decoder.end().is_ok());
        let mut waited_count = 0;
        for number in 0..300 {
            assert_eq!(other.is_idle(hash(number)), cache.is_idle(hash(number)));
            let kind = cache.take(hash(number), Side::First, number as u32, 400);
            waited_count += usize::from(kind.is_some());
            assert_eq!(other.take(hash(number), Side::First, number as u32, 400), kind);
        }
        assert!(waited_count > 150, "{waited_count}");
        assert!(HandshakeCache::new(8, 1).restore(&mut Decoder::new(&bytes)).is_err());
        assert!(other.restore(&mut Decoder::new(&bytes[..bytes.len() - 1])).is_err());
    }
}
