//! A set of connections that something happened to lately: for a hash it says at once "not in the set", or "maybe".
//!
//! One byte for each place holds a part of the hash of the connection that came there last, so that the oldest are
//! forgotten as others come, and one in some hundred others is taken for one that is there.

use crate::error::Result;
use crate::state::{Decoder, Encoder};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The set. Its memory is fixed when it is made, and threads may share it.
pub(super) struct RecentConnections {
    /// A part of the hash of the connection that came to each place last. A power of two of places. An empty place is
    /// as one of a connection whose part is zero: to say that it is empty would cost every packet more than these do.
    places: Box<[AtomicU8]>,
}

impl RecentConnections {
    /// An empty set with at least this many places.
    pub(super) fn new(place_count: usize) -> Self {
        RecentConnections { places: (0..place_count.next_power_of_two()).map(|_| AtomicU8::new(0)).collect() }
    }

    /// The memory of a set, in bytes.
    pub(super) fn size(place_count: usize) -> usize {
        place_count.next_power_of_two()
    }

    /// The place of a connection, by the bits of its hash from the eighth on, and what stands there for it, by the
    /// others.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU8, u8) {
        (&self.places[(hash >> u8::BITS) as usize & (self.places.len() - 1)], hash as u8)
    }

    /// Whether this connection may be in the set. False for nearly all that are not.
    #[inline]
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let (place, part) = self.place(hash);
        place.load(Relaxed) == part
    }

    /// Adds a connection, of whose hash the lower half is enough.
    pub(super) fn put(&self, hash: u64) {
        let (place, part) = self.place(hash);
        place.store(part, Relaxed);
    }

    /// Removes a connection, and others that cannot be distinguished from it.
    pub(super) fn remove(&self, hash: u64) {
        let (place, part) = self.place(hash);
        if place.load(Relaxed) == part {
            place.store(0, Relaxed);
        }
    }

    /// Writes the set into a saved state. No other thread may be using it.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        let places: Vec<u8> = self.places.iter().map(|place| place.load(Relaxed)).collect();
        encoder.bytes(&places);
    }

    /// Fills an empty set from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a set of this size.
    pub(super) fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        let places = decoder.bytes()?;
        decoder.expect(places.len() == self.places.len(), "a set of recent connections of another size")?;
        self.places.iter().zip(places).for_each(|(place, part)| place.store(*part, Relaxed));
        Ok(())
    }
}
