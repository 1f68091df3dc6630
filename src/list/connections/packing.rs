//! A listed connection in as few bytes as it needs.
//!
//! From the bytes of an entry follow exactly the same key and start. What is nearly always zero stands last and is left
//! out of all entries until one needs it: VLAN tags, and the upper bits of the distance from a start to the list's
//! first tick.
//!
//! | bytes | of |
//! |---|---|
//! | 12, for IPv6 36 | the key without its VLAN tags |
//! | 6 | the start without the upper bits of its tick |
//! | 4, or left out | the VLAN tags |
//! | 2, or left out | the upper bits of the tick |

use crate::flow::FlowKey as TableKey;
use crate::flow::VlanTags;
use crate::list::start::{NEAR_SIZE as NEAR_START_SIZE, NEAR_TICKS, Start};
use std::marker::PhantomData;

const VLAN_SIZE: usize = size_of::<VlanTags>();
const FAR_TICK_SIZE: usize = size_of::<u64>() - NEAR_START_SIZE;

/// Words of the longest key.
const WORD_COUNT_MAX: usize = 5;

/// The largest spread of starts for which the first tick is moved. An eighth of the range of six bytes is then free at
/// either end, and the first tick has moved by at least as much.
const SPREAD_TICKS_MAX: u64 = NEAR_TICKS / 4 * 3;

/// `SIZE` bytes from the offset `at`; zeros if the slice is too short.
#[inline(always)]
fn bytes_at<const SIZE: usize>(bytes: &[u8], at: usize) -> [u8; SIZE] {
    bytes.get(at..at + SIZE).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or([0; SIZE])
}

/// Writes bytes at the offset `at`, unless the slice is too short.
#[inline(always)]
fn put_at<const SIZE: usize>(bytes: &mut [u8], at: usize, value: [u8; SIZE]) {
    if let Some(place) = bytes.get_mut(at..at + SIZE) {
        place.copy_from_slice(&value);
    }
}

/// How the entries of a list are packed.
#[derive(Clone, Copy)]
pub(super) struct Packing<K> {
    entry_size: usize,
    /// The tick from which the ticks of starts are counted.
    first_tick: u64,
    key: PhantomData<K>,
}

impl<K: TableKey> Packing<K> {
    const KEY_SIZE: usize = K::WORD_COUNT * size_of::<u64>() - VLAN_SIZE;
    const NEAR_SIZE: usize = Self::KEY_SIZE + NEAR_START_SIZE;
    const TAGGED_SIZE: usize = Self::NEAR_SIZE + VLAN_SIZE;
    const WHOLE_SIZE: usize = Self::TAGGED_SIZE + FAR_TICK_SIZE;

    /// A packing for connections without VLAN tags that start in the first [`NEAR_TICKS`].
    pub(super) fn new() -> Self {
        const { assert!(K::WORD_COUNT <= WORD_COUNT_MAX) };
        Packing { entry_size: Self::NEAR_SIZE, first_tick: 0, key: PhantomData }
    }

    /// The size of an entry in bytes.
    #[inline]
    pub(super) fn entry_size(self) -> usize {
        self.entry_size
    }

    /// Whether six bytes are enough for this start.
    #[inline]
    fn is_near(self, start: Start) -> bool {
        start.to_packed(self.first_tick) >> (NEAR_START_SIZE * 8) == 0
    }

    /// The size in bytes of an entry for this connection.
    #[inline]
    fn needed_size(self, key: &K, start: Start) -> usize {
        match (self.is_near(start), key.vlan()) {
            (true, VlanTags::NONE) => Self::NEAR_SIZE,
            (true, _) => Self::TAGGED_SIZE,
            (false, _) => Self::WHOLE_SIZE,
        }
    }

    /// Whether entries have room for this connection.
    #[inline]
    pub(super) fn fits(self, key: &K, start: Start) -> bool {
        self.needed_size(key, start) <= self.entry_size
    }

    /// A packing that this connection fits, as well as those with the other starts.
    ///
    /// Complexity: linear in the other starts. Either entries become longer, which happens at most twice; or the first
    /// tick moves on by at least an eighth of [`NEAR_TICKS`], so that a connection sees at most eight moves, for any
    /// leaps of the clock.
    pub(super) fn fitting(self, key: &K, start: Start, others: impl Iterator<Item = Start>) -> Self {
        let ticks = others.chain([start]).map(Start::tick);
        let (earliest, latest) =
            ticks.fold((u64::MAX, 0), |(earliest, latest), tick| (earliest.min(tick), latest.max(tick)));
        let spread = latest - earliest;
        let moves = start.tick() >= self.first_tick + NEAR_TICKS && spread <= SPREAD_TICKS_MAX;
        let first_tick = match moves {
            true => (earliest + spread / 2).saturating_sub(NEAR_TICKS / 2),
            false => self.first_tick,
        };
        let moved = Packing { first_tick, ..self };
        Packing { entry_size: self.entry_size.max(moved.needed_size(key, start)), ..moved }
    }

    /// Writes the entry of this connection, which has to fit.
    #[inline]
    pub(super) fn write(self, entry: &mut [u8], key: &K, start: Start) {
        let (near, rest) = entry.split_at_mut(Self::NEAR_SIZE);
        let words = key.words();
        for (index, word) in words.iter().enumerate().take(K::WORD_COUNT - 1) {
            put_at(near, index * size_of::<u64>(), word.to_le_bytes());
        }
        let last = words[K::WORD_COUNT - 1];
        put_at(near, Self::KEY_SIZE - VLAN_SIZE, ((last >> u32::BITS) as u32).to_le_bytes());
        let start = start.to_packed(self.first_tick);
        put_at(near, Self::KEY_SIZE, (start as u32).to_le_bytes());
        put_at(near, Self::KEY_SIZE + 4, ((start >> 32) as u16).to_le_bytes());
        if !rest.is_empty() {
            put_at(rest, 0, (last as u32).to_le_bytes());
            put_at(rest, VLAN_SIZE, ((start >> 48) as u16).to_le_bytes());
        }
    }

    /// The first word of an entry's key.
    #[inline]
    pub(super) fn first_word(entry: &[u8]) -> u64 {
        u64::from_le_bytes(bytes_at(entry, 0))
    }

    /// The key of an entry.
    #[inline]
    pub(super) fn key(self, entry: &[u8]) -> K {
        let (near, rest) = entry.split_at(Self::NEAR_SIZE);
        let mut words = [0; WORD_COUNT_MAX];
        for (index, word) in words.iter_mut().enumerate().take(K::WORD_COUNT - 1) {
            *word = u64::from_le_bytes(bytes_at(near, index * size_of::<u64>()));
        }
        let (high, vlan) = (bytes_at(near, Self::KEY_SIZE - VLAN_SIZE), bytes_at(rest, 0));
        words[K::WORD_COUNT - 1] =
            u64::from(u32::from_le_bytes(high)) << u32::BITS | u64::from(u32::from_le_bytes(vlan));
        K::from_words(&words[..K::WORD_COUNT])
    }

    /// The start of an entry.
    #[inline]
    pub(super) fn start(self, entry: &[u8]) -> Start {
        let (near, rest) = entry.split_at(Self::NEAR_SIZE);
        let low = u64::from(u32::from_le_bytes(bytes_at(near, Self::KEY_SIZE)));
        let middle = u64::from(u16::from_le_bytes(bytes_at(near, Self::KEY_SIZE + 4)));
        let high = u64::from(u16::from_le_bytes(bytes_at(rest, VLAN_SIZE)));
        Start::of_packed(high << 48 | middle << 32 | low, self.first_tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, WordKey};
    use proptest::prelude::*;

    /// A packing that began at this tick and has met a start `earliest` after it, and another `spread` after that.
    fn after(first_tick: u64, [earliest, spread]: [u64; 2]) -> Packing<KeyV4> {
        let [earliest, latest] =
            [first_tick + earliest, first_tick + earliest + spread].map(|tick| Start::at(tick, false));
        let before = Packing { first_tick, ..Packing::new() };
        before.fitting(&key(), latest, [earliest].into_iter())
    }

    fn key() -> KeyV4 {
        KeyV4::from_words(&[1, 2 << 32])
    }

    proptest! {
        #[test]
        fn the_first_tick_moves_by_much_or_not_at_all(
            first in 0u64..1 << 42,
            earliest in NEAR_TICKS / 4..NEAR_TICKS,
            spread in 0..=SPREAD_TICKS_MAX,
            slack in 0..NEAR_TICKS / 8,
        ) {
            let packing = after(first, [earliest, spread]);
            let moves = earliest + spread >= NEAR_TICKS;
            prop_assert_eq!(packing.entry_size(), Packing::<KeyV4>::NEAR_SIZE);
            prop_assert_eq!(packing.first_tick >= first + NEAR_TICKS / 8, moves);
            prop_assert!(moves || packing.first_tick == first);
            let (earliest, latest) = (first + earliest, first + earliest + spread);
            let are_to_fit = if moves { [earliest - slack, latest + slack] } else { [earliest, latest] };
            prop_assert!(are_to_fit.iter().all(|tick| packing.fits(&key(), Start::at(*tick, true))));
        }

        #[test]
        fn where_starts_are_too_far_apart_entries_become_longer(
            first in 1u64..1 << 42,
            earliest in 0..NEAR_TICKS / 4,
            spread in NEAR_TICKS..1 << 43,
            ago in 1u64..1 << 43,
        ) {
            let packing = after(first, [earliest, spread]);
            prop_assert_eq!((packing.entry_size(), packing.first_tick), (Packing::<KeyV4>::WHOLE_SIZE, first));
            let before = Packing { first_tick: first, ..Packing::new() };
            let packing = before.fitting(&key(), Start::at(first.saturating_sub(ago), false), std::iter::empty());
            prop_assert_eq!((packing.entry_size(), packing.first_tick), (Packing::<KeyV4>::WHOLE_SIZE, first));
        }
    }
}
