//! Connections that ended lately, so that one which goes on after all is listed again as it was: its closed entry in
//! the filter has lost when it started.
//!
//! Where there is no room the oldest makes way. What made way is found as a connection that is older than the start, if
//! it is picked up.

use crate::error::Result;
use crate::flow::Side;
use crate::signal::{ConnectionHash, TICK_BITS};
use crate::state::{Decoder, Encoder};
use crate::track::hashed_words::HashedWords;
use crate::track::{ConnectionState, FilterEntry};
use flowpeel_lines::Line;

/// From how many ticks after its end on, at least, a connection is old. Those that are not have started less than a
/// turn of a tick's bits ago, if they were never listed.
const OLD_TICKS: u64 = 1 << (TICK_BITS - 2);

/// How often the ages of all are looked at, in ticks.
const AGE_INTERVAL_TICKS: u64 = OLD_TICKS / 2;

/// Bits of a record, from the lowest: the short ISN, the tick of the start, that of the end, the client,
/// the FINs of both sides, their RSTs, whether it is old, and whether there is a record.
const START_SHIFT: u32 = ISN_WIDTH;
const END_SHIFT: u32 = START_SHIFT + TICK_BITS;
const CLIENT_SHIFT: u32 = END_SHIFT + TICK_BITS;
const FIN_SHIFT: u32 = CLIENT_SHIFT + 1;
const RST_SHIFT: u32 = FIN_SHIFT + 2;
const OLD_SHIFT: u32 = RST_SHIFT + 2;
const USED_SHIFT: u32 = OLD_SHIFT + 1;
const ISN_WIDTH: u32 = crate::handover::ISN_BITS;
const TICK_MASK: u64 = (1 << TICK_BITS) - 1;

const _: () = assert!(USED_SHIFT < u64::BITS);

/// A connection that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) client: Side,
    /// The low bits of the tick of its start.
    pub(super) start_tick: u32,
    pub(super) short_isn: u32,
    /// Whether the first and the second end of the canonical key have sent a FIN.
    pub(super) has_fin: [bool; 2],
    /// Whether they have sent a RST.
    pub(super) has_rst: [bool; 2],
    /// Whether it ended so long ago that the ticks of its start may have come round.
    pub(super) is_old: bool,
}

impl Ended {
    /// What is left of an open connection with this entry that has ended, with the FINs and RSTs of its sides.
    pub(super) fn of(entry: &FilterEntry, has_fin: [bool; 2], has_rst: [bool; 2]) -> Self {
        let FilterEntry { client, tick: start_tick, short_isn, .. } = *entry;
        Ended { client, start_tick, short_isn, has_fin, has_rst, is_old: false }
    }

    /// The state in which the connection is open when this side turns out not to have ended.
    pub(super) fn state_without_end_of(&self, side: Side) -> ConnectionState {
        let other = side.other();
        match (self.has_fin[other as usize], other == self.client) {
            (false, _) => ConnectionState::Established,
            (true, true) => ConnectionState::EstablishedClientFin,
            (true, false) => ConnectionState::EstablishedServerFin,
        }
    }

    fn to_word(self, now: u64) -> u64 {
        u64::from(self.short_isn)
            | u64::from(self.start_tick) << START_SHIFT
            | (now & TICK_MASK) << END_SHIFT
            | u64::from(self.client == Side::Second) << CLIENT_SHIFT
            | u64::from(self.has_fin[0]) << FIN_SHIFT
            | u64::from(self.has_fin[1]) << (FIN_SHIFT + 1)
            | u64::from(self.has_rst[0]) << RST_SHIFT
            | u64::from(self.has_rst[1]) << (RST_SHIFT + 1)
            | u64::from(self.is_old) << OLD_SHIFT
            | 1 << USED_SHIFT
    }

    fn of_word(word: u64) -> Self {
        Ended {
            client: if word >> CLIENT_SHIFT & 1 == 0 { Side::First } else { Side::Second },
            start_tick: (word >> START_SHIFT & TICK_MASK) as u32,
            short_isn: word as u32 & ((1 << ISN_WIDTH) - 1),
            has_fin: [0, 1].map(|side| word >> (FIN_SHIFT + side) & 1 != 0),
            has_rst: [0, 1].map(|side| word >> (RST_SHIFT + side) & 1 != 0),
            is_old: word >> OLD_SHIFT & 1 != 0,
        }
    }
}

/// The connections that ended lately, of one partition. The memory is fixed when it is made.
pub(super) struct EndedConnections {
    records: HashedWords<1>,
    /// The tick at which the ages of all were looked at last.
    aged_at: u64,
    /// Whether there may be any: of an empty table nothing grows old, and its memory is not touched.
    is_used: bool,
}

impl EndedConnections {
    /// A table for at least this many.
    pub(super) fn new(connection_count: usize) -> Self {
        EndedConnections { records: HashedWords::new_huge(connection_count), aged_at: 0, is_used: false }
    }

    /// The memory of a table for this many, in bytes.
    pub(super) fn size(connection_count: usize) -> usize {
        HashedWords::<1>::size(connection_count)
    }

    /// The set of a connection, to prefetch it.
    #[inline]
    pub(super) fn set(&self, hash: ConnectionHash) -> &Line {
        self.records.first_set(hash)
    }

    /// Records that a connection has ended now, in place of what was recorded of one with the same key.
    pub(super) fn put(&mut self, hash: ConnectionHash, ended: Ended, now: u64) {
        self.is_used = true;
        let word = ended.to_word(now);
        match self.records.find(hash) {
            Some(place) => self.records.set(place, word),
            None => drop(self.records.insert(hash, word, |word| now.wrapping_sub(word >> END_SHIFT) & TICK_MASK)),
        }
    }

    /// Marks what is old at the tick `now`. To be called whenever time has passed.
    #[inline]
    pub(super) fn age(&mut self, now: u64) {
        if now.saturating_sub(self.aged_at) >= AGE_INTERVAL_TICKS {
            self.mark_old(now);
        }
    }

    #[cold]
    fn mark_old(&mut self, now: u64) {
        // After a leap the ticks of the ends say nothing: all were before it.
        let is_leap = now.saturating_sub(self.aged_at) >= OLD_TICKS;
        self.aged_at = now;
        if !self.is_used {
            return;
        }
        self.records.update(|word| {
            let is_old = is_leap || now.wrapping_sub(word >> END_SHIFT) & TICK_MASK >= OLD_TICKS;
            word | u64::from(is_old) << OLD_SHIFT
        });
    }

    /// What is recorded of a connection.
    pub(super) fn get(&self, hash: ConnectionHash) -> Option<Ended> {
        self.records.find(hash).map(|place| Ended::of_word(self.records.get(place)))
    }

    /// How many ticks ago the recorded connection ended, if it has this client and number. Of one that is old
    /// this is not known.
    pub(super) fn age_of(&self, hash: ConnectionHash, (client, short_isn): (Side, u32), now: u64) -> Option<u64> {
        let word = self.records.get(self.records.find(hash)?);
        let ended = Ended::of_word(word);
        let is_it = (ended.client, ended.short_isn) == (client, short_isn) && !ended.is_old;
        is_it.then(|| now.wrapping_sub(word >> END_SHIFT) & TICK_MASK)
    }

    /// Removes what is recorded of a connection.
    pub(super) fn take(&mut self, hash: ConnectionHash) -> Option<Ended> {
        let place = self.records.find(hash)?;
        let ended = Ended::of_word(self.records.get(place));
        self.records.set(place, 0);
        Some(ended)
    }

    /// Takes back the end of this side of a connection, which goes on. Returns the connection, which is then recorded
    /// no longer, unless a RST of the other side has ended it all the same.
    pub(super) fn take_back(&mut self, hash: ConnectionHash, side: Side) -> Option<Ended> {
        let place = self.records.find(hash)?;
        let word = self.records.get(place);
        if Ended::of_word(word).has_rst[side.other() as usize] {
            self.records.set(place, word & !(1 << (FIN_SHIFT + side as u32) | 1 << (RST_SHIFT + side as u32)));
            return None;
        }
        self.take(hash)
    }

    /// Records a FIN of this side that came after the connection had ended.
    pub(super) fn put_fin(&mut self, hash: ConnectionHash, side: Side) {
        self.mark(hash, 1 << (FIN_SHIFT + side as u32));
    }

    /// Records a RST of this side that came after the connection had ended.
    pub(super) fn put_rst(&mut self, hash: ConnectionHash, side: Side) {
        self.mark(hash, 1 << (RST_SHIFT + side as u32));
    }

    fn mark(&mut self, hash: ConnectionHash, bit: u64) {
        if let Some(place) = self.records.find(hash) {
            self.records.set(place, self.records.get(place) | bit);
        }
    }

    /// Writes the table into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.aged_at);
        self.records.save(encoder);
    }

    /// Fills an empty table from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a table of this size.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.is_used = true;
        self.aged_at = decoder.count()?;
        self.records.restore(decoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::numbered as hash;

    fn ended(number: u32) -> Ended {
        let client = if number.is_multiple_of(2) { Side::First } else { Side::Second };
        let has_fin = [number.is_multiple_of(3), number.is_multiple_of(5)];
        // Without one of the second side, whose RST would keep it ended.
        let has_rst = [number.is_multiple_of(7), false];
        let (start_tick, short_isn) = (number * 77 % (1 << TICK_BITS), number % (1 << ISN_WIDTH));
        Ended { client, start_tick, short_isn, has_fin, has_rst, is_old: false }
    }

    fn take(table: &mut EndedConnections, number: u64) -> Option<Ended> {
        table.take_back(hash(number), Side::First)
    }

    #[test]
    fn the_latest_are_known_as_they_were() {
        let mut table = EndedConnections::new(4_000);
        for number in 0..40_000 {
            table.put(hash(number), ended(number as u32), number / 10);
        }
        let known: Vec<u64> =
            (0..40_000).filter(|number| take(&mut table, *number) == Some(ended(*number as u32))).collect();
        assert!(known.len() > 3_000, "{}", known.len());
        assert!(known.iter().filter(|number| **number >= 38_000).count() > 1_900, "the last are there");
        assert!((0..40_000).all(|number| take(&mut table, number).is_none()), "each is taken once");
    }

    #[test]
    fn what_ended_long_ago_is_old() {
        let (first, mut table) = (1 << TICK_BITS, EndedConnections::new(64));
        for (number, step) in [(1, OLD_TICKS - 1), (2, OLD_TICKS), (3, 3 << TICK_BITS)] {
            table.age(first);
            table.put(hash(number), ended(2), first);
            // In steps, as time passes, and at once.
            (0..step).step_by(10_000).for_each(|ticks| table.age(first + ticks));
            table.age(first + step + AGE_INTERVAL_TICKS);
            assert!(take(&mut table, number).unwrap().is_old, "{number}");
            table = EndedConnections::new(64);
            table.age(first);
            table.put(hash(number), ended(2), first);
            table.age(first + step);
            assert_eq!(take(&mut table, number).unwrap().is_old, step >= OLD_TICKS, "{number}");
            table = EndedConnections::new(64);
        }
    }

    #[test]
    fn of_one_key_the_last_counts() {
        let mut table = EndedConnections::new(4);
        table.put(hash(1), ended(1), 1);
        table.put(hash(1), ended(2), 2);
        assert_eq!((take(&mut table, 1), take(&mut table, 1)), (Some(ended(2)), None));
    }

    #[test]
    fn a_side_that_ends_later_has_ended() {
        let mut table = EndedConnections::new(4);
        let open = Ended { has_fin: [false; 2], ..ended(2) };
        table.put(hash(1), open, 1);
        table.put_fin(hash(1), Side::Second);
        table.put_fin(hash(2), Side::First);
        let found = take(&mut table, 1).unwrap();
        assert_eq!(found.has_fin, [false, true]);
        assert_eq!(found.state_without_end_of(Side::First), ConnectionState::EstablishedServerFin);
        assert_eq!(found.state_without_end_of(Side::Second), ConnectionState::Established);
    }

    #[test]
    fn a_rst_of_the_other_side_ends_it_all_the_same() {
        let mut table = EndedConnections::new(4);
        let open = Ended { has_fin: [false, true], has_rst: [false; 2], ..ended(2) };
        table.put(hash(1), open, 1);
        table.put_rst(hash(1), Side::First);
        assert_eq!(table.take_back(hash(1), Side::Second), None);
        let found = take(&mut table, 1).unwrap();
        assert_eq!((found.has_fin, found.has_rst), ([false; 2], [true, false]), "the second side goes on");
    }
}
