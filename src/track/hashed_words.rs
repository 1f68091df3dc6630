//! A set-associative table of words, each known by the hash of a connection: 16 bytes a word, four to a cache line.
//! Where there is no place, the word that its owner can best do without makes way.
//!
//! With one set a word, a look-up reads one line, and sets are full long before the table is. With the emptier of two,
//! none is full before half of the table is used.

use crate::error::Result;
use crate::signal::ConnectionHash;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{GOLDEN_32, place_of};
use flowpeel_lines::{Line, Lines, prefetch};

/// Words in a set: a cache line of them, each behind the hash that it is known by.
const SET_WORD_COUNT: usize = 4;

const _: () = assert!(size_of::<Line>() == SET_WORD_COUNT * 2 * size_of::<u64>());

/// Where a word is. Valid until the table is changed other than by [`HashedWords::set`].
#[derive(Clone, Copy, Debug)]
pub(super) struct WordPlace {
    set: usize,
    /// The index of its hash in the line; the word follows.
    at: usize,
}

/// The table, in which a word has so many sets to be in. Its memory is fixed when it is made. A word of zero is none.
pub(super) struct HashedWords<const CHOICE_COUNT: usize> {
    sets: Lines,
}

impl<const CHOICE_COUNT: usize> HashedWords<CHOICE_COUNT> {
    /// An empty table for at least this many words.
    pub(super) fn new(word_count: usize) -> Self {
        HashedWords { sets: Lines::new(Self::set_count(word_count)) }
    }

    /// As [`Self::new`], in huge pages, as [`Lines::new_huge`].
    pub(super) fn new_huge(word_count: usize) -> Self {
        HashedWords { sets: Lines::new_huge(Self::set_count(word_count)) }
    }

    /// The memory of a table for this many words, in bytes.
    pub(super) fn size(word_count: usize) -> usize {
        Self::set_count(word_count) * size_of::<Line>()
    }

    fn set_count(word_count: usize) -> usize {
        word_count.div_ceil(SET_WORD_COUNT).max(1)
    }

    #[inline]
    fn sets_of(&self, hash: ConnectionHash) -> [usize; CHOICE_COUNT] {
        std::array::from_fn(|choice| match choice {
            0 => hash.bucket(self.sets.len()),
            // The bits that choose the first set are none of these.
            _ => place_of(hash.fingerprint().wrapping_mul(GOLDEN_32), self.sets.len()),
        })
    }

    /// The first set of a connection, to prefetch it.
    #[inline]
    pub(super) fn first_set(&self, hash: ConnectionHash) -> &Line {
        &self.sets[self.sets_of(hash)[0]]
    }

    /// Prefetches the sets of a connection.
    #[inline]
    pub(super) fn prefetch(&self, hash: ConnectionHash) {
        self.sets_of(hash).into_iter().for_each(|set| prefetch(&self.sets[set]));
    }

    /// Where the word of a connection is, if there is one.
    pub(super) fn find(&self, hash: ConnectionHash) -> Option<WordPlace> {
        self.sets_of(hash).into_iter().find_map(|set| {
            let places = self.places_where(set, |there, word| there == hash.to_bits() && word != 0);
            (places != 0).then(|| Self::first_place(set, places))
        })
    }

    /// The places of a set whose hash and word are such, as bits. All are looked at, because a branch for each costs
    /// more.
    #[inline]
    fn places_where(&self, set: usize, is_such: impl Fn(u64, u64) -> bool) -> u32 {
        let words = &self.sets[set].0;
        (0..SET_WORD_COUNT).fold(0, |bits, at| bits | u32::from(is_such(words[2 * at], words[2 * at + 1])) << at)
    }

    /// The first of some places of a set.
    #[inline]
    fn first_place(set: usize, places: u32) -> WordPlace {
        WordPlace { set, at: 2 * (places.trailing_zeros() as usize % SET_WORD_COUNT) }
    }

    fn places(set: usize) -> impl Iterator<Item = WordPlace> {
        (0..2 * SET_WORD_COUNT).step_by(2).map(move |at| WordPlace { set, at })
    }

    /// The word at a place.
    #[inline]
    pub(super) fn get(&self, place: WordPlace) -> u64 {
        self.sets[place.set].0[place.at + 1]
    }

    /// Replaces the word at a place.
    #[inline]
    pub(super) fn set(&mut self, place: WordPlace, word: u64) {
        self.sets[place.set].0[place.at + 1] = word;
    }

    /// Adds the word of a connection that has none: in the emptiest of its sets, or where all are full in place of the
    /// word with the greatest `age`, which is returned.
    pub(super) fn insert(&mut self, hash: ConnectionHash, word: u64, age: impl Fn(u64) -> u64) -> Option<u64> {
        let (mut chosen, mut most_free) = (None, 0);
        for set in self.sets_of(hash) {
            let free = self.places_where(set, |_, word| word == 0);
            if free.count_ones() > most_free {
                (chosen, most_free) = (Some(Self::first_place(set, free)), free.count_ones());
            }
        }
        let chosen = chosen.unwrap_or_else(|| self.oldest(hash, age));
        let before = self.get(chosen);
        self.sets[chosen.set].0[chosen.at] = hash.to_bits();
        self.set(chosen, word);
        (before != 0).then_some(before)
    }

    /// The place of the word with the greatest `age` in the sets of a connection, the first of those that are as old.
    fn oldest(&self, hash: ConnectionHash, age: impl Fn(u64) -> u64) -> WordPlace {
        let (mut oldest, mut oldest_age) = (WordPlace { set: 0, at: 0 }, None);
        for place in self.sets_of(hash).into_iter().flat_map(Self::places) {
            let age = Some(age(self.get(place)));
            if age > oldest_age {
                (oldest, oldest_age) = (place, age);
            }
        }
        oldest
    }

    /// All words.
    ///
    /// Complexity: a pass over the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.sets.iter().flat_map(|set| set.0.into_iter().skip(1).step_by(2)).filter(|word| *word != 0)
    }

    /// Removes the words that are not wanted.
    ///
    /// Complexity: a pass over the table.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(u64) -> bool) {
        for set in self.sets.iter_mut() {
            for word in set.0.iter_mut().skip(1).step_by(2).filter(|word| **word != 0 && !is_wanted(**word)) {
                *word = 0;
            }
        }
    }

    /// Changes every word, none of them to zero.
    ///
    /// Complexity: a pass over the table.
    pub(super) fn update(&mut self, change: impl Fn(u64) -> u64) {
        let words = self.sets.iter_mut().flat_map(|set| set.0.iter_mut().skip(1).step_by(2));
        words.filter(|word| **word != 0).for_each(|word| *word = change(*word));
    }

    /// Writes the table into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        let words = || self.sets.iter().flat_map(|set| set.0);
        encoder.length(words().filter(|word| *word != 0).count());
        for (index, word) in words().enumerate().filter(|(_, word)| *word != 0) {
            encoder.u64(index as u64);
            encoder.u64(word);
        }
    }

    /// Fills an empty table from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a table of this size.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let words_in_set = 2 * SET_WORD_COUNT;
        let count = self.sets.len() * words_in_set;
        for _ in 0..decoder.length(2 * size_of::<u64>(), count)? {
            let (index, word) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            decoder.expect(index < count, "a connection's word out of place")?;
            self.sets[index / words_in_set].0[index % words_in_set] = word;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::numbered as hash;

    #[test]
    fn with_two_sets_a_word_half_of_the_table_is_used_before_one_makes_way() {
        let mut table = HashedWords::<2>::new(1 << 14);
        let lost_at = (1..1 << 14).find(|number| table.insert(hash(*number), *number, |_| 0).is_some()).unwrap();
        println!("one made way at {lost_at}");
        assert!(lost_at > 1 << 13);
        let found = (1..=lost_at).filter(|number| table.find(hash(*number)).is_some_and(|at| table.get(at) == *number));
        assert_eq!(found.count() as u64, lost_at - 1);
        let even_count = table.iter().filter(|word| word % 2 == 0).count();
        table.retain(|word| word % 2 == 0);
        assert!(table.iter().all(|word| word % 2 == 0) && table.iter().count() == even_count);
    }
}
