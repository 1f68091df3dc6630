//! A set of connections that something happened to lately: for a hash it says at once "not in the set", or "maybe".
//!
//! Two bytes for each place hold parts of the hashes of the last two connections that came there, so that the oldest
//! are forgotten as others come, and one in some hundred others is taken for one that is there. Of so many at once that
//! one in a hundred meets another in its place, one in 20,000 is forgotten.

use crate::error::Result;
use crate::state::{Decoder, Encoder};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The set. Its memory is fixed when it is made, and threads may share it.
pub(super) struct RecentConnections {
    /// Parts of the hashes of the last two connections that came to each place, the last one's in the lower byte. A
    /// power of two of places. An empty byte is as one of a connection whose part is zero: to say that it is empty
    /// would cost every packet more than these do.
    places: Box<[AtomicU16]>,
    /// The bits of a place's index: a packet that reads a place does not work them out.
    index_mask: usize,
}

/// Connections of a place.
const PLACE_SIZE: usize = size_of::<AtomicU16>();

impl RecentConnections {
    /// An empty set for at least this many connections.
    pub(super) fn new(connection_count: usize) -> Self {
        let place_count = Self::place_count(connection_count);
        RecentConnections { places: (0..place_count).map(|_| AtomicU16::new(0)).collect(), index_mask: place_count - 1 }
    }

    /// The memory of a set, in bytes.
    pub(super) fn size(connection_count: usize) -> usize {
        Self::place_count(connection_count) * PLACE_SIZE
    }

    fn place_count(connection_count: usize) -> usize {
        connection_count.div_ceil(PLACE_SIZE).next_power_of_two()
    }

    /// The place of a connection, by the bits of its hash from the eighth on, and what stands there for it, by the
    /// others.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU16, u8) {
        (&self.places[(hash >> u8::BITS) as usize & self.index_mask], hash as u8)
    }

    /// Whether this connection may be in the set. False for nearly all that are not.
    #[inline]
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let (place, part) = self.place(hash);
        let [last, before] = place.load(Relaxed).to_le_bytes();
        last == part || before == part
    }

    /// Adds a connection, of whose hash the lower half is enough.
    pub(super) fn put(&self, hash: u64) {
        let (place, part) = self.place(hash);
        let [last, _] = place.load(Relaxed).to_le_bytes();
        if last != part {
            place.store(u16::from_le_bytes([part, last]), Relaxed);
        }
    }

    /// Removes a connection, and others that cannot be distinguished from it.
    pub(super) fn remove(&self, hash: u64) {
        let (place, part) = self.place(hash);
        let parts = place.load(Relaxed).to_le_bytes();
        if parts.contains(&part) {
            let kept = parts.into_iter().find(|kept| *kept != part).unwrap_or(0);
            place.store(u16::from_le_bytes([kept, 0]), Relaxed);
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
        decoder.expect(parts.len() == PLACE_SIZE * self.places.len(), "a set of recent connections of another size")?;
        let places = parts.chunks_exact(PLACE_SIZE).map(|parts| u16::from_le_bytes([parts[0], parts[1]]));
        self.places.iter().zip(places).for_each(|(place, parts)| place.store(parts, Relaxed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of a connection: places and parts are spread evenly.
    fn hash(number: u64) -> u64 {
        (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes()
    }

    #[test]
    fn of_many_at_once_hardly_one_is_forgotten() {
        let set = RecentConnections::new(62_500);
        (0..600).for_each(|number| set.put(hash(number)));
        assert_eq!((0..600).filter(|number| !set.may_hold(hash(*number))).count(), 0);
        let taken_for_one = (1_000..11_000).filter(|number| set.may_hold(hash(*number))).count();
        assert!(taken_for_one < 300, "{taken_for_one}");
    }

    #[test]
    fn what_is_removed_is_there_no_more_and_what_shared_its_place_is() {
        let set = RecentConnections::new(1);
        (1..=3).for_each(|part| set.put(part));
        assert_eq!([1, 2, 3].map(|part| set.may_hold(part)), [false, true, true]);
        set.remove(3);
        assert_eq!([2, 3].map(|part| set.may_hold(part)), [true, false]);
        set.put(2);
        set.remove(2);
        assert!(!set.may_hold(2), "it was there once");
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
