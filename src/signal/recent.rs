//! A set of connections that something happened to lately: for a hash it says at once "not in the set", or "maybe".
//!
//! A word for each place holds parts of the hashes of the last six connections that came there, so that the oldest are
//! forgotten as others come, and one in some 170 others is taken for one that is there. Of a quarter of the connections
//! that the set is made for, at once, one in 500 is forgotten. Every packet reads a place, so the set is small: a byte
//! for each connection. With places of two it would take four times as much to forget as few.

use crate::error::Result;
use crate::state::{Decoder, Encoder};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The set. Its memory is fixed when it is made, and threads may share it.
pub(super) struct RecentConnections {
    /// Parts of the hashes of the last connections that came to each place, the last one's in the lowest bits. A power
    /// of two of places. Where there is none yet is a part as of a connection whose part is zero: to say that there is
    /// none would cost every packet more than these do.
    places: Box<[AtomicU64]>,
    /// The bits of a place's index: a packet that reads a place does not work them out.
    index_mask: usize,
}

/// The parts at a place, and the bits of each.
const PART_COUNT: u32 = 6;
const PART_BITS: u32 = 10;
const PART_MASK: u64 = (1 << PART_BITS) - 1;

const _: () = assert!(PART_COUNT * PART_BITS < u64::BITS);

/// There is a place for so many of the connections that a set is made for.
const PLACE_DIVISOR: usize = 8;

/// A one in the lowest bit of each part.
const ONES: u64 = ((1 << (PART_COUNT * PART_BITS)) - 1) / PART_MASK;

/// Whether one of the parts at a place is this one.
#[inline]
fn has(parts: u64, part: u64) -> bool {
    let differences = parts ^ (ONES * part);
    // Taking one from each sets the highest bit of one that is zero. Of others it was set before, or is not set now,
    // unless a lower one was zero and borrows from it.
    differences.wrapping_sub(ONES) & !differences & ONES << (PART_BITS - 1) != 0
}

/// The parts at a place without this one.
fn without(parts: u64, part: u64) -> u64 {
    // What came last goes most often.
    let older = parts >> PART_BITS;
    if parts & PART_MASK == part && !has(older, part) {
        return older;
    }
    if !has(parts, part) {
        return parts;
    }
    let oldest_first = (0..PART_COUNT).rev().map(|number| parts >> (number * PART_BITS) & PART_MASK);
    oldest_first.filter(|there| *there != part).fold(0, |kept, there| kept << PART_BITS | there)
}

impl RecentConnections {
    /// An empty set for about this many connections.
    pub(super) fn new(connection_count: usize) -> Self {
        let place_count = Self::place_count(connection_count);
        RecentConnections { places: (0..place_count).map(|_| AtomicU64::new(0)).collect(), index_mask: place_count - 1 }
    }

    /// The memory of a set, in bytes.
    pub(super) fn size(connection_count: usize) -> usize {
        Self::place_count(connection_count) * size_of::<AtomicU64>()
    }

    fn place_count(connection_count: usize) -> usize {
        connection_count.div_ceil(PLACE_DIVISOR).next_power_of_two()
    }

    /// The place of a connection, by the bits of its hash above its part, and what stands there for it, by the lowest.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        (&self.places[(hash >> PART_BITS) as usize & self.index_mask], hash & PART_MASK)
    }

    /// Whether this connection may be in the set. False for nearly all that are not.
    #[inline]
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let (place, part) = self.place(hash);
        has(place.load(Relaxed), part)
    }

    /// Adds a connection, of whose hash the lower half is enough.
    pub(super) fn put(&self, hash: u64) {
        let (place, part) = self.place(hash);
        let parts = place.load(Relaxed);
        if parts & PART_MASK != part {
            let last_six = (without(parts, part) << PART_BITS | part) & (ONES * PART_MASK);
            place.store(last_six, Relaxed);
        }
    }

    /// Removes a connection, and others that cannot be distinguished from it.
    pub(super) fn remove(&self, hash: u64) {
        let (place, part) = self.place(hash);
        let parts = place.load(Relaxed);
        let kept = without(parts, part);
        if kept != parts {
            place.store(kept, Relaxed);
        }
    }

    /// Writes the set into a saved state. No other thread may be using it.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        let parts: Vec<u8> = self.places.iter().flat_map(|place| place.load(Relaxed).to_le_bytes()).collect();
        encoder.bytes(&parts);
    }

    /// Fills an empty set from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a set of this size.
    pub(super) fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        let parts = decoder.bytes()?;
        decoder.expect(
            parts.len() == size_of::<AtomicU64>() * self.places.len(),
            "a set of recent connections of another size",
        )?;
        for (place, parts) in self.places.iter().zip(parts.as_chunks().0) {
            place.store(u64::from_le_bytes(*parts), Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::mixed;

    /// The hash of a connection, of which the lower half is enough.
    fn hash(number: u64) -> u64 {
        mixed(number) >> 16
    }

    #[test]
    fn of_many_at_once_hardly_one_is_forgotten() {
        let set = RecentConnections::new(62_500);
        (0..15_600).for_each(|number| set.put(hash(number)));
        let forgotten = (0..15_600).filter(|number| !set.may_hold(hash(*number))).count();
        assert!((10..60).contains(&forgotten), "{forgotten}");
        assert_eq!((15_000..15_600).filter(|number| !set.may_hold(hash(*number))).count(), 0);
        let taken_for_one = (100_000..110_000).filter(|number| set.may_hold(hash(*number))).count();
        assert!((10..90).contains(&taken_for_one), "{taken_for_one}");
    }

    #[test]
    fn a_place_holds_the_last_six() {
        let set = RecentConnections::new(1);
        let held = || (1..=9).filter(|part| set.may_hold(*part)).collect::<Vec<_>>();
        (1..=7).for_each(|part| set.put(part));
        assert_eq!(held(), [2, 3, 4, 5, 6, 7]);
        // What comes again is the last again.
        [2, 8].into_iter().for_each(|part| set.put(part));
        assert_eq!(held(), [2, 4, 5, 6, 7, 8]);
        set.remove(5);
        assert_eq!(held(), [2, 4, 6, 7, 8]);
        [1, 3].into_iter().for_each(|part| set.put(part));
        assert_eq!(held(), [1, 2, 3, 6, 7, 8]);
        [1, 3].into_iter().for_each(|part| set.remove(part));
        assert_eq!(held(), [2, 6, 7, 8]);
    }

    proptest::proptest! {
        #[test]
        fn a_part_is_there_if_it_is_one_of_the_six(parts: [u16; PART_COUNT as usize], part: u16) {
            let parts = parts.map(|part| u64::from(part) & PART_MASK);
            let part = if part % 2 == 0 { parts[usize::from(part / 2) % parts.len()] } else { u64::from(part >> 6) };
            let word = parts.iter().rev().fold(0, |word, part| word << PART_BITS | part);
            proptest::prop_assert_eq!(has(word, part), parts.contains(&part));
            let others: Vec<u64> = parts.into_iter().filter(|there| *there != part).collect();
            let kept = others.iter().rev().fold(0, |word, part| word << PART_BITS | part);
            proptest::prop_assert_eq!(without(word, part), kept);
        }
    }

    #[test]
    fn what_is_saved_comes_back() {
        let set = RecentConnections::new(64);
        (0..40).for_each(|number| set.put(hash(number)));
        let mut encoder = Encoder::default();
        set.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let other = RecentConnections::new(64);
        other.restore(&mut Decoder::new(&bytes)).unwrap();
        assert!((0..200).all(|number| other.may_hold(hash(number)) == set.may_hold(hash(number))));
        assert!(RecentConnections::new(65).restore(&mut Decoder::new(&bytes)).is_err());
    }
}
