//! Connections that were open and could not be tracked, because there were too many or the filter had no place.
//!
//! The paper's table takes any number of pairs, and is exact again once all but as many as it was made for were deleted
//! (section 1.3 of the paper on IBLTs). So are lists: a refused connection is added to sums of its own ([`SideSums`]),
//! and what ends is taken off. When all have ended the sums are empty, and lists are complete again. When few are left,
//! these are listed out of the sums, and tracked once there is room.
//!
//! # Records
//!
//! Sums cannot say whether a connection is in them, and what closes is often repeated: a FIN is retransmitted, and a
//! RST follows it. So the connections refused last have a record each, by which each side is added once and removed
//! once, and a packet that shows that a side has not ended adds it again. While no open connection's record had to make
//! way, what has no record was never refused, and all is exact: how many are open, and that scans and stray ends are
//! none of theirs.
//!
//! # Beyond the records
//!
//! After that, an end without a record is taken off whether or not its connection was ever added, and gets a record
//! that is not certain, so that it is taken off once. What was taken off and never added is left with a negative count.
//! Once all that is in the sums can be listed, what is negative goes, and all that is left has records again.
//!
//! What cannot be decided keeps lists incomplete: sums that hold too much to be listed; a side that was added twice;
//! and a connection found midstream while there was no room, of which it cannot be known whether it is in the sums.

use crate::error::Result;
use crate::flow::{AnyKey, Side};
use crate::handover::ISN_BITS;
use crate::signal::{ConnectionHash, TICK_BITS};
use crate::state::{Decoder, Encoder};
use crate::track::hashed_words::{HashedWords, WordPlace};
use crate::track::side_sums::{SideSums, Sides};
use crate::track::{ConnectionState, FilterEntry, ISN_UNKNOWN};
use flowpeel_iblt::hash::Secret;

/// Bits of a record, from the lowest: the short ISN, the tick of the start, that of the last change, the client, the
/// open sides, those that have sent a FIN, whether the sides are certain, and whether there is a record.
const START_SHIFT: u32 = ISN_BITS;
const CHANGED_SHIFT: u32 = START_SHIFT + TICK_BITS;
const CLIENT_SHIFT: u32 = CHANGED_SHIFT + TICK_BITS;
const OPEN_SHIFT: u32 = CLIENT_SHIFT + 1;
const FIN_SHIFT: u32 = OPEN_SHIFT + 2;
const CERTAIN_SHIFT: u32 = FIN_SHIFT + 2;
const USED_SHIFT: u32 = CERTAIN_SHIFT + 1;
const TICK_MASK: u64 = (1 << TICK_BITS) - 1;

const _: () = assert!(USED_SHIFT + 1 == u64::BITS);

/// For how long the ticks of records are of one time, from the first refusal: after that a start may be that of a wrap
/// before.
const STARTS_KNOWN_TICKS: u64 = 1 << (TICK_BITS - 1);

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCounts {
    /// Refused connections that have a record.
    pub records: usize,
    /// Refused connections that can be listed, of IPv4; half as many of IPv6.
    pub listed: usize,
}

/// What is known of a refused connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedRecord {
    pub(super) short_isn: u32,
    /// The low bits of the ticks of its start, and of the last change of its sides.
    pub(super) start_tick: u32,
    pub(super) changed_tick: u32,
    pub(super) client: Side,
    /// The sides that have not ended. Where that is not certain: those that have not ended since there is a record.
    pub(super) open: Sides,
    /// The sides that have sent a FIN.
    pub(super) fins: Sides,
    /// Whether the sums hold exactly the open sides.
    pub(super) is_certain: bool,
}

impl RefusedRecord {
    /// The record of a connection of which nothing is known at this tick.
    fn unknown(now: u64) -> Self {
        RefusedRecord {
            short_isn: ISN_UNKNOWN,
            start_tick: FilterEntry::tick_of(now),
            changed_tick: FilterEntry::tick_of(now),
            client: Side::First,
            open: Sides::BOTH,
            fins: Sides::NONE,
            is_certain: false,
        }
    }

    fn to_word(self) -> u64 {
        u64::from(self.short_isn)
            | u64::from(self.start_tick) << START_SHIFT
            | u64::from(self.changed_tick) << CHANGED_SHIFT
            | u64::from(self.client == Side::Second) << CLIENT_SHIFT
            | self.open.to_bits() << OPEN_SHIFT
            | self.fins.to_bits() << FIN_SHIFT
            | u64::from(self.is_certain) << CERTAIN_SHIFT
            | 1 << USED_SHIFT
    }

    fn of_word(word: u64) -> Self {
        RefusedRecord {
            short_isn: word as u32 & ((1 << ISN_BITS) - 1),
            start_tick: (word >> START_SHIFT & TICK_MASK) as u32,
            changed_tick: (word >> CHANGED_SHIFT & TICK_MASK) as u32,
            client: if word >> CLIENT_SHIFT & 1 == 0 { Side::First } else { Side::Second },
            open: Sides::of_bits(word >> OPEN_SHIFT),
            fins: Sides::of_bits(word >> FIN_SHIFT),
            is_certain: word >> CERTAIN_SHIFT & 1 != 0,
        }
    }

    /// Whether the connection is certainly open.
    pub(super) fn is_open(&self) -> bool {
        self.is_certain && self.open != Sides::NONE
    }

    /// Whether the connection was seen to open since there is a record, and has not ended.
    fn claims_open(&self) -> bool {
        self.open != Sides::NONE && (self.is_certain || self.short_isn != ISN_UNKNOWN)
    }

    /// How many ticks ago a side was added or removed, up to the wrap.
    pub(super) fn unchanged_ticks(&self, now: u64) -> u64 {
        now.wrapping_sub(u64::from(self.changed_tick)) & TICK_MASK
    }

    /// Which record to do without first: the oldest of those that have ended, then the oldest.
    fn dispensability(word: u64, now: u64) -> u64 {
        let record = RefusedRecord::of_word(word);
        record.unchanged_ticks(now) + if record.open == Sides::NONE { TICK_MASK + 1 } else { 0 }
    }
}

/// The sides of a connection with this entry that have to end before it has.
fn open_sides(entry: &FilterEntry) -> Sides {
    let (client, server) = (Sides::of(entry.client), Sides::of(entry.client.other()));
    match entry.state {
        // A side that was never seen need not end.
        ConnectionState::EstablishedServerFin | ConnectionState::OneWayClient => client,
        ConnectionState::EstablishedClientFin | ConnectionState::OneWayServer => server,
        _ => Sides::BOTH,
    }
}

/// The state of a connection with this client of which these sides are open.
pub(super) fn state_of(open: Sides, client: Side) -> ConnectionState {
    match (open.has(client), open.has(client.other())) {
        (true, false) => ConnectionState::EstablishedServerFin,
        (false, true) => ConnectionState::EstablishedClientFin,
        _ => ConnectionState::Established,
    }
}

/// What ended of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedSides {
    sides: Sides,
    /// Those of them that sent a FIN.
    pub(super) fins: Sides,
}

impl EndedSides {
    /// Both sides, without a FIN.
    pub(super) const ALL: Self = EndedSides { sides: Sides::BOTH, fins: Sides::NONE };

    /// The side of which this is the FIN.
    pub(super) fn fin(side: Side) -> Self {
        EndedSides { sides: Sides::of(side), fins: Sides::of(side) }
    }
}

/// A connection that was taken out of the sums, with its record if it had one.
#[derive(Clone, Copy, Debug)]
pub struct LeftConnection {
    /// The canonical key.
    pub(super) key: AnyKey,
    /// How often the side of each end was in the sums: added, or, if negative, removed.
    counts: [i32; 2],
    pub(super) record: Option<RefusedRecord>,
}

impl LeftConnection {
    /// The sides that are open. `None` where a side was added twice: it may have ended once since.
    pub(super) fn open(&self) -> Option<Sides> {
        let [first, second] = self.counts;
        let open = |count: i32, side| if count == 1 { Sides::of(side) } else { Sides::NONE };
        (first.max(second) <= 1).then(|| open(first, Side::First).or(open(second, Side::Second)))
    }
}

/// The refused connections of a partition. The memory is fixed when it is made.
pub(super) struct Refused {
    records: HashedWords<2>,
    sums: SideSums,
    counts: RefusedCounts,
    /// Whether there are records or sums, and the tick since which there have been.
    is_in_use: bool,
    since: u64,
    /// Connections that were added more often than removed: as many as are open, while no record was lost.
    open: i64,
    /// Records of open connections that had to make way since all had one.
    lost_record_count: u64,
    /// Whether something could not be decided.
    is_in_doubt: bool,
    /// The tick at which one was refused last, and that of the last change.
    refused_tick: u64,
    changed_tick: u64,
}

impl Refused {
    pub(super) fn new(secret: &Secret, counts: RefusedCounts) -> Self {
        Refused {
            records: HashedWords::new(counts.records),
            sums: SideSums::new(secret, counts.listed),
            counts,
            is_in_use: false,
            since: 0,
            open: 0,
            lost_record_count: 0,
            is_in_doubt: false,
            refused_tick: 0,
            changed_tick: 0,
        }
    }

    /// The memory for so many, in bytes.
    pub(super) fn size(counts: RefusedCounts) -> usize {
        HashedWords::<2>::size(counts.records) + SideSums::size(counts.listed, size_of::<LeftConnection>())
    }

    /// Whether any connection was refused that may matter yet.
    #[inline]
    pub(super) fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Prefetches the record of a connection.
    #[inline]
    pub(super) fn prefetch(&self, hash: ConnectionHash) {
        self.records.prefetch(hash);
    }

    /// How many refused connections are open. Exact while none has lost its record; after that about as many, and at
    /// least one until all have been listed.
    pub(super) fn connections(&self) -> u64 {
        let at_least = u64::from(!self.is_exact() || self.is_in_doubt);
        u64::try_from(self.open).unwrap_or(0).max(at_least)
    }

    /// Whether each open connection has a record.
    fn is_exact(&self) -> bool {
        self.lost_record_count == 0
    }

    /// Moves time on. What was refused more than this many ticks ago, and nothing since, counts no longer: every list
    /// would have taken it off for being silent or old. Records of what has ended go when nothing repeats it any more.
    pub(super) fn advance(&mut self, now: u64, kept_ticks: Option<u64>, linger_ticks: u32) {
        let is_over = kept_ticks.is_some_and(|kept_ticks| now.saturating_sub(self.refused_tick) > kept_ticks);
        let is_empty = self.connections() == 0 && now.saturating_sub(self.changed_tick) > u64::from(linger_ticks);
        if is_over || is_empty {
            self.records.retain(|_| false);
            self.sums.clear();
            (self.is_in_use, self.open, self.lost_record_count, self.is_in_doubt) = (false, 0, 0, false);
        }
    }

    /// The record of a connection.
    pub(super) fn record(&self, hash: ConnectionHash) -> Option<RefusedRecord> {
        self.found(hash).map(|(_, record)| record)
    }

    fn found(&self, hash: ConnectionHash) -> Option<(WordPlace, RefusedRecord)> {
        let place = self.records.find(hash)?;
        Some((place, RefusedRecord::of_word(self.records.get(place))))
    }

    fn insert(&mut self, hash: ConnectionHash, record: RefusedRecord, now: u64) {
        let lost = self.records.insert(hash, record.to_word(), |word| RefusedRecord::dispensability(word, now));
        let Some(lost) = lost.map(RefusedRecord::of_word).filter(|lost| lost.open != Sides::NONE) else { return };
        self.lost_record_count += 1;
        // It opened, and whether the sums have it depends on whether what ended before had been added.
        self.is_in_doubt |= lost.claims_open() && !lost.is_certain;
    }

    /// Writes a record with other open sides, and adds to the sums or removes from them what that changes.
    fn change(&mut self, key: &AnyKey, place: WordPlace, before: RefusedRecord, after: RefusedRecord, now: u64) {
        self.sums.add(key, after.open.without(before.open), 1);
        self.sums.add(key, before.open.without(after.open), -1);
        self.open += i64::from(after.open != Sides::NONE) - i64::from(before.open != Sides::NONE);
        self.records.set(place, RefusedRecord { changed_tick: FilterEntry::tick_of(now), ..after }.to_word());
        self.changed_tick = now;
    }

    /// Adds an open connection with this canonical key and this entry, in which `now` is the tick. Returns whether it
    /// was not there: packets of a handshake are repeated.
    pub(super) fn refuse(&mut self, key: &AnyKey, hash: ConnectionHash, entry: &FilterEntry, now: u64) -> bool {
        if !self.is_in_use {
            (self.is_in_use, self.since) = (true, now);
        }
        self.refused_tick = now;
        let open = open_sides(entry);
        let is_one_way = entry.state.is_one_way();
        let new = RefusedRecord {
            short_isn: entry.short_isn,
            start_tick: entry.tick,
            changed_tick: FilterEntry::tick_of(now),
            client: entry.client,
            open,
            fins: if is_one_way { Sides::NONE } else { Sides::BOTH.without(open) },
            is_certain: true,
        };
        match self.found(hash) {
            Some((place, before)) if before.is_open() && [before.short_isn, ISN_UNKNOWN].contains(&new.short_isn) => {
                let after = RefusedRecord {
                    open: if is_one_way { before.open } else { before.open.and(open) },
                    fins: before.fins.or(new.fins),
                    ..before
                };
                self.change(key, place, before, after, now);
                false
            }
            Some((place, before)) => {
                self.change(key, place, before, RefusedRecord { is_certain: before.is_certain, ..new }, now);
                true
            }
            None => {
                self.sums.add(key, open, 1);
                self.open += 1;
                self.changed_tick = now;
                self.insert(hash, new, now);
                true
            }
        }
    }

    /// Adds a connection that was found midstream, as [`Self::refuse`] does. If it may be one whose record was lost it
    /// cannot be known whether it is there.
    pub(super) fn refuse_found(&mut self, key: &AnyKey, hash: ConnectionHash, entry: &FilterEntry, now: u64) -> bool {
        if self.is_exact() || self.record(hash).is_some_and(|record| record.is_certain) {
            return self.refuse(key, hash, entry, now);
        }
        self.is_in_doubt = true;
        self.refused_tick = now;
        true
    }

    /// Ends these sides of a connection, if it is there. Without a record, `may_be_there` says whether it can be one
    /// whose record was lost.
    pub(super) fn end(&mut self, key: &AnyKey, hash: ConnectionHash, ended: EndedSides, may_be_there: bool, now: u64) {
        let EndedSides { sides, fins } = ended;
        let of = |before: RefusedRecord| RefusedRecord {
            open: before.open.without(sides),
            fins: before.fins.or(fins),
            ..before
        };
        match self.found(hash) {
            Some((place, before)) => self.change(key, place, before, of(before), now),
            None if self.is_exact() || !may_be_there => {}
            None => {
                self.sums.add(key, sides, -1);
                self.open -= i64::from(sides == Sides::BOTH);
                self.changed_tick = now;
                self.insert(hash, of(RefusedRecord::unknown(now)), now);
            }
        }
    }

    /// Takes back the end of the connection with this record, because the sender of a packet has not ended: only a FIN
    /// of its other side still counts.
    pub(super) fn take_back_end(&mut self, key: &AnyKey, hash: ConnectionHash, sender: Side, now: u64) {
        let Some((place, before)) = self.found(hash).filter(|(_, record)| !record.open.has(sender)) else { return };
        let fins = before.fins.without(Sides::of(sender));
        let open = if before.open == Sides::NONE { Sides::BOTH.without(fins) } else { Sides::BOTH };
        self.refused_tick = now;
        self.change(key, place, before, RefusedRecord { open, fins, ..before }, now);
    }

    /// Removes a connection that is tracked from now on, and returns its record if it was certainly open.
    pub(super) fn remove(&mut self, key: &AnyKey, hash: ConnectionHash, now: u64) -> Option<RefusedRecord> {
        let (place, before) = self.found(hash)?;
        self.change(key, place, before, RefusedRecord { open: Sides::NONE, ..before }, now);
        self.records.set(place, 0);
        before.is_open().then_some(before)
    }

    /// Removes a connection that was found midstream and is tracked from now on: without a record it most likely is one
    /// whose record was lost.
    pub(super) fn remove_found(&mut self, key: &AnyKey, hash: ConnectionHash, now: u64) {
        if !self.is_exact() && self.record(hash).is_none() {
            self.sums.add(key, Sides::BOTH, -1);
            self.open -= 1;
            self.changed_tick = now;
        }
    }

    /// The start of a connection with this record as an entry has it, and its short ISN: now and unknown if the start
    /// is too long ago.
    pub(super) fn start_of(&self, record: &RefusedRecord, now: u64) -> (u32, u32) {
        if now - self.since < STARTS_KNOWN_TICKS {
            (record.start_tick, record.short_isn)
        } else {
            (FilterEntry::tick_of(now), ISN_UNKNOWN)
        }
    }

    /// Takes all that is left out of the sums, in the order of keys, if it can be listed and that helps: where a record
    /// was lost, or where there is room for this many connections. What is not tracked then is to be put back.
    pub(super) fn take_left(&mut self, room: u64, hash_of: impl Fn(&AnyKey) -> ConnectionHash) -> Vec<LeftConnection> {
        let is_listable = (1..=2 * self.counts.listed as i64).contains(&self.open);
        if !self.is_in_use || self.is_exact() && (room == 0 || !is_listable) {
            return Vec::new();
        }
        let (sums, records, mut left) = (&mut self.sums, &self.records, Vec::new());
        let is_listed = sums.take_all(|key, counts| {
            let place = records.find(hash_of(&key));
            let record = place.map(|place| RefusedRecord::of_word(records.get(place)));
            left.push(LeftConnection { key, counts, record });
        });
        if !is_listed {
            return Vec::new();
        }
        // What ended without a record may never have been added: then the sums lack what opened behind it.
        let are_claimed = left.iter().filter(|left| left.record.is_some_and(|record| record.claims_open()));
        let found_count = are_claimed.filter(|left| left.record.map(|record| record.open) == left.open()).count();
        let claimed_count = self.records.iter().filter(|word| RefusedRecord::of_word(*word).claims_open()).count();
        self.is_in_doubt |= found_count < claimed_count;
        // Those that are put back get records again, and then each has one.
        self.records.retain(|word| {
            let record = RefusedRecord::of_word(word);
            record.is_certain && record.open == Sides::NONE
        });
        (self.open, self.lost_record_count) = (0, 0);
        left
    }

    /// Puts back a connection that was taken out.
    pub(super) fn put_back(&mut self, left: &LeftConnection, hash: ConnectionHash, now: u64) {
        let Some(open) = left.open() else {
            self.sums.put_back(&left.key, left.counts);
            self.is_in_doubt = true;
            return;
        };
        self.sums.add(&left.key, open, 1);
        self.open += 1;
        let unknown = RefusedRecord { fins: Sides::BOTH.without(open), ..RefusedRecord::unknown(now) };
        let record = RefusedRecord { open, is_certain: true, ..left.record.unwrap_or(unknown) };
        match self.records.find(hash) {
            Some(place) => self.records.set(place, record.to_word()),
            None => self.insert(hash, record, now),
        }
    }

    /// Writes the connections into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.bool(self.is_in_use);
        if self.is_in_use {
            [self.since, self.lost_record_count, self.refused_tick, self.changed_tick]
                .into_iter()
                .for_each(|number| encoder.u64(number));
            encoder.i64(self.open);
            encoder.bool(self.is_in_doubt);
            self.records.save(encoder);
            self.sums.save(encoder);
        }
    }

    /// Reads the connections from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode as much as there is room for.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.is_in_use = decoder.bool()?;
        if self.is_in_use {
            [self.since, self.lost_record_count, self.refused_tick, self.changed_tick] = decoder.counts()?;
            self.open = decoder.i64()?;
            self.is_in_doubt = decoder.bool()?;
            self.records.restore(decoder)?;
            self.sums.restore(decoder)?;
        }
        Ok(())
    }

    /// About how many bytes [`Self::save`] writes.
    pub(super) fn saved_size(&self) -> usize {
        if self.is_in_use { Self::state_size(self.counts) } else { 0 }
    }

    /// The most that a saved state takes for so many, in bytes.
    pub(super) fn state_size(counts: RefusedCounts) -> usize {
        HashedWords::<2>::size(counts.records) + SideSums::tables_size(counts.listed)
    }
}
