//! The sequence numbers at which connections ended lately, by FIN or RST: a later packet shows by its own numbers
//! whether it comes behind the end of its side as any connection's last packets do, or the side has not ended after
//! all. Then the end was forged, or that of an earlier connection between the same ends.
//!
//! A packet has two numbers, how far its sender has come and how far it has followed the other side. An end has both
//! too. What comes late behind a FIN is near to it in both, so packets of the next connection between the same ends,
//! whose numbers are others, are not taken for it.
//!
//! A set-associative table of 16-byte records, shared by the capture threads. A byte for each of them says for nearly
//! all connections that none has ended lately, and the look-up stops there. Older ends count no longer: a connection
//! that speaks again only then can still be picked up.

use crate::error::Result;
use crate::flow::Side;
use crate::signal::ones::ones;
use crate::signal::recent::RecentConnections;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::place_of;
use flowpeel_lines::{Lines, SharedLine, prefetch};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How far a side may be from the number with which a SYN began it, in bytes, for a packet to be of the connection that
/// the SYN began: the window in a SYN-ACK is never scaled.
const BEGUN_SIZE: u32 = 1 << 16;

/// How far behind an end packets of its side may be that come late or are repeated, in bytes, and how far what they
/// acknowledge may be from what it acknowledges: what a fast and long path has under way. A packet further from an end
/// is none of that connection's.
const LATE_SIZE: u32 = 1 << 24;

/// How long after a RST packets of its side may come late, in stamps of 0.27 s: who sent it repeats nothing.
const LATE_BEHIND_RST: u64 = 8;

/// How far beyond a RST data of its side may be that it has overtaken, in bytes: a host that has forgotten a connection
/// resets it at the number that the other side acknowledges (RFC 9293, section 3.5.2), not behind what it has sent.
const OVERTAKEN_SIZE: u32 = 1 << 20;

/// How long after a RST such data may come, in stamps: packets are out of order for a quarter of a second at most. For
/// no longer, since data beyond a RST is what shows that it was forged.
const OVERTAKEN_BY_RST: u64 = 1;

const _: () = assert!(OVERTAKEN_BY_RST < LATE_BEHIND_RST && OVERTAKEN_SIZE < LATE_SIZE);

/// How long a side that has not ended is reported no more, in stamps: a second.
const REPORT_INTERVAL: u64 = 4;

/// Words of a record: what it is, and the numbers of both sides.
const RECORD_WORDS: usize = 2;

/// For so many stamps behind an end, about a second, copies of the packets of its connection may come.
const COPIES_BEHIND_END: u64 = 3;

/// How long behind its last end a connection is over for all that is likely, in stamps: 16 seconds, in which what was
/// sent before the end has come or is lost.
const OVER_BEHIND_END: u64 = 60;

/// Records in a set, which is a cache line of them.
const WAY_COUNT: usize = size_of::<SharedLine>() / size_of::<u64>() / RECORD_WORDS;

/// All places of a set, as bits.
const ALL_PLACES: u64 = (1 << WAY_COUNT) - 1;

/// Bits of a record's first word, from the lowest: whether there is one, whether it is of a RST, which sides have
/// ended, which of them were reported not to have ended, whether the next connection has begun near to it, whether the
/// next one is certain, when it was written or reported, and what distinguishes its connection. A record in which no
/// side has ended is of a SYN or SYN-ACK, of the side that was "reported": what it began is then the next one.
const USED_BIT: u64 = 1;
const RST_BIT: u64 = 1 << 1;
const ENDED_SHIFT: u32 = 2;
const REPORTED_SHIFT: u32 = 4;
const FOLLOWED_BIT: u64 = 1 << 6;
const SUCCEEDED_BIT: u64 = 1 << 7;
const STAMP_SHIFT: u32 = 8;
const STAMP_BITS: u32 = 10;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// Stamps count steps of 2^28 ns (0.27 s).
const STAMP_NS_SHIFT: u32 = 28;
const TAG_SHIFT: u32 = STAMP_SHIFT + STAMP_BITS;

/// The bits of a first word that say what kind of record it is, without whether the next connection is certain.
const KIND_SHIFT: u32 = RST_BIT.trailing_zeros();
const KIND_MASK: u64 = u64::BITS as u64 - 1;

const _: () = assert!(KIND_MASK << KIND_SHIFT == SUCCEEDED_BIT - RST_BIT, "there is a bit of a word for each kind");

/// The kinds of records of a connection that has ended: a look-up, because their bits as they come are as good as
/// random to a branch.
const ENDED_KINDS: u64 = {
    let (mut kinds, mut kind) = (0, 0);
    while kind <= KIND_MASK {
        let head = kind << KIND_SHIFT;
        let ended = (head >> ENDED_SHIFT & !(head >> REPORTED_SHIFT)) & 0b11;
        let has_ended = ended == 0b11 || ended != 0 && head & RST_BIT != 0;
        kinds |= (has_ended as u64) << kind;
        kind += 1;
    }
    kinds
};

const _: () =
    assert!(LATE_BEHIND_RST < OVER_BEHIND_END && OVER_BEHIND_END < STAMP_MASK / 16, "ends look young again seldom");

/// How a side of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether it was a RST, and not a FIN.
    pub is_rst: bool,
    /// Where the side has ended.
    pub at: Numbers,
}

/// How far a side of a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The sequence number behind everything that it has sent, a FIN included.
    pub sent: u32,
    /// The number that it acknowledges: how far it has followed the other side.
    pub acked: u32,
}

impl Numbers {
    /// These with the SYN or FIN that the packet has, which takes a number as a byte of data does.
    #[must_use]
    #[inline]
    pub fn with_flag(self) -> Numbers {
        Numbers { sent: self.sent.wrapping_add(1), ..self }
    }
}

/// What a packet without a flag shows of a connection of which a side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BehindEnd {
    /// Nothing that is news: it comes late or again, or was reported.
    Nothing,
    /// Its sender has not ended.
    GoesOn,
    /// Another connection between the same ends has begun. Of each it is the first packet of its side that shows so.
    Begins,
}

/// What the end of a side shows of the connections between its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BesideEnd {
    /// Whether the other side had ended, and both ends are of one connection by their numbers.
    pub is_second: bool,
    /// Whether it is the first packet that shows that another connection has [begun](BehindEnd::Begins).
    pub begins: bool,
}

/// What is recorded of one connection between two ends: how far its sides had come, and which have ended there. Of a
/// side that has not, it is known from what the other acknowledged.
#[derive(Clone, Copy)]
struct EndRecord {
    head: u64,
    numbers: [u32; 2],
}

impl EndRecord {
    fn new(hash: u64, side: Side, end: End, stamp: u64) -> Self {
        let ended = 1 << (ENDED_SHIFT + side as u32) | (u64::from(end.is_rst) * RST_BIT);
        let head = hash << TAG_SHIFT | stamp << STAMP_SHIFT | ended | USED_BIT;
        EndRecord { head, numbers: with_number([end.at.acked; 2], side, end.at.sent) }
    }

    #[inline]
    fn load(way: &[AtomicU64]) -> Self {
        let numbers = way[1].load(Relaxed);
        EndRecord { head: way[0].load(Relaxed), numbers: [numbers as u32, (numbers >> u32::BITS) as u32] }
    }

    /// Writes the record. Another thread may write or read the same place meanwhile: one end is lost then, as when
    /// there are too many.
    fn store(&self, way: &[AtomicU64]) {
        way[1].store(u64::from(self.numbers[0]) | u64::from(self.numbers[1]) << u32::BITS, Relaxed);
        way[0].store(self.head, Relaxed);
    }

    #[inline]
    fn is_of(&self, hash: u64) -> bool {
        Self::is_head_of(self.head, hash)
    }

    /// Whether a record with this first word is of this connection.
    #[inline]
    fn is_head_of(head: u64, hash: u64) -> bool {
        const IDENTITY: u64 = u64::MAX << TAG_SHIFT | USED_BIT;
        (head ^ (hash << TAG_SHIFT | USED_BIT)) & IDENTITY == 0
    }

    #[inline]
    fn is_rst(&self) -> bool {
        self.head & RST_BIT != 0
    }

    #[inline]
    fn has_ended(&self, side: Side) -> bool {
        self.head >> (ENDED_SHIFT + side as u32) & 1 != 0
    }

    /// Whether this side was reported not to have ended.
    #[inline]
    fn is_reported(&self, side: Side) -> bool {
        self.head >> (REPORTED_SHIFT + side as u32) & 1 != 0
    }

    /// The record of a SYN or SYN-ACK of this side, whose first byte has this number.
    fn begun(hash: u64, side: Side, first: u32, stamp: u64) -> Self {
        let head = hash << TAG_SHIFT | stamp << STAMP_SHIFT | 1 << (REPORTED_SHIFT + side as u32) | USED_BIT;
        EndRecord { head, numbers: with_number([0; 2], side, first) }
    }

    /// Whether this is the record of a SYN.
    #[inline]
    fn is_begun(&self) -> bool {
        self.head >> ENDED_SHIFT & 0b11 == 0
    }

    /// Whether a packet of this side follows the SYN of this record.
    fn is_behind_begun(&self, side: Side, at: Numbers) -> bool {
        let number = if self.is_reported(side) { at.sent } else { at.acked };
        let beginner = if self.is_reported(Side::First) { Side::First } else { Side::Second };
        (self.beyond(beginner, number) as u32) < BEGUN_SIZE
    }

    /// Whether it is of FINs of which none turned out to be no end.
    fn is_undisputed_fin(&self) -> bool {
        !self.is_rst() && self.head >> REPORTED_SHIFT & 0b11 == 0
    }

    /// Whether it turned out of every end in the record that it was none.
    fn is_disproved(&self) -> bool {
        self.head >> REPORTED_SHIFT & 0b11 == self.head >> ENDED_SHIFT & 0b11
    }

    /// Whether another connection between the same ends has certainly begun since, so that this one has ended.
    #[inline]
    fn is_succeeded(&self) -> bool {
        self.head & SUCCEEDED_BIT != 0
    }

    /// This record, of a connection that may go on.
    fn unsucceeded(self) -> Self {
        EndRecord { head: self.head & !SUCCEEDED_BIT, ..self }
    }

    /// One for a record with this first word that is of a connection that has ended, by FINs of both sides or a RST,
    /// and of no end that turned out to be none. Zero for others.
    #[inline]
    fn ended_bit(head: u64) -> u64 {
        ENDED_KINDS >> (head >> KIND_SHIFT & KIND_MASK) & 1
    }

    /// The age of the record in stamps.
    #[inline]
    fn age(&self, stamp: u64) -> u64 {
        Self::age_of_head(self.head, stamp)
    }

    #[inline]
    fn age_of_head(head: u64, stamp: u64) -> u64 {
        stamp.wrapping_sub(head >> STAMP_SHIFT) & STAMP_MASK
    }

    /// How far a number of this side is beyond where it was; negative if it is behind.
    #[inline]
    fn beyond(&self, side: Side, number: u32) -> i32 {
        // Selected: by an index it would be read from memory that was just written.
        let [first, second] = self.numbers;
        number.wrapping_sub(if side == Side::First { first } else { second }) as i32
    }

    #[inline]
    fn is_near(&self, side: Side, number: u32) -> bool {
        self.beyond(side, number).unsigned_abs() <= LATE_SIZE
    }

    /// Whether an end of this side is of the recorded connection, and of the same kind. What a RST acknowledges is
    /// often nothing. Where the next connection has begun near to the recorded one, only what is repeated is of that,
    /// and what acknowledges the other side's very end.
    fn holds(&self, side: Side, end: End) -> bool {
        if self.is_rst() != end.is_rst {
            return false;
        }
        let (is_near, is_followed) = (self.is_near(side, end.at.sent), self.head & FOLLOWED_BIT != 0);
        if end.is_rst {
            return is_near && self.has_ended(side);
        }
        if !is_followed {
            return is_near && self.is_near(side.other(), end.at.acked);
        }
        let is_repeated = self.beyond(side, end.at.sent) == 0;
        let acknowledges_end = self.beyond(side.other(), end.at.acked) == 0;
        if self.has_ended(side) { is_repeated } else { is_near && acknowledges_end }
    }

    /// Whether a packet of this side may come late, or again, behind the end of the side. The last acknowledgement of
    /// a connection is at the end's very number, however much the other side has sent since.
    #[inline]
    fn is_behind(&self, side: Side, at: Numbers) -> bool {
        let is_near = self.is_rst() || self.head & FOLLOWED_BIT == 0 && self.is_near(side.other(), at.acked);
        self.beyond(side, at.sent) == 0 || self.is_shortly_before(side, at.sent) && is_near
    }

    /// Whether a packet of this side comes late, or again, at this stamp.
    #[inline]
    fn is_late(&self, side: Side, at: Numbers, stamp: u64) -> bool {
        let is_recent = self.age(stamp) <= LATE_BEHIND_RST;
        if self.has_ended(side) && self.is_rst() {
            let is_beyond = (self.beyond(side, at.sent) as u32) <= OVERTAKEN_SIZE;
            let is_overtaken = is_beyond && self.age(stamp) <= OVERTAKEN_BY_RST;
            return !self.is_reported(side) && (is_overtaken || is_recent && self.is_behind(side, at));
        }
        if self.has_ended(side) {
            return self.is_behind(side, at);
        }
        // It may have been on its way when the other side's RST came, and goes no further than what that acknowledges.
        let has_crossed = self.is_shortly_before(side, at.sent) && self.is_near(side.other(), at.acked);
        self.is_rst() && is_recent && has_crossed
    }

    /// Whether this is a RST of this side of which nothing comes late any more, so that another one of the same side
    /// says all that it says.
    fn is_past(&self, side: Side, end: End, stamp: u64) -> bool {
        end.is_rst && self.is_rst() && self.has_ended(side) && self.age(stamp) > LATE_BEHIND_RST
    }

    /// Whether a number of this side is one that it passed shortly before its end.
    #[inline]
    fn is_shortly_before(&self, side: Side, number: u32) -> bool {
        (-(LATE_SIZE as i32)..=0).contains(&self.beyond(side, number))
    }

    /// Whether the numbers of a connection that this side answers here will be taken for those of the recorded one.
    fn is_followed_by(&self, side: Side, at: Numbers) -> bool {
        let is_passed = |side, number| self.has_ended(side) && self.is_shortly_before(side, number);
        is_passed(side, at.sent) || is_passed(side.other(), at.acked)
    }

    /// Whether a SYN-ACK of this side is of another connection than the recorded one, or than what a SYN has begun.
    fn is_parted_by(&self, side: Side, at: Numbers) -> bool {
        if self.is_begun() {
            return self.is_reported(side);
        }
        !self.is_near(side, at.sent) && !self.is_near(side.other(), at.acked)
    }

    /// This record, with an end of this side here.
    fn with_end(self, side: Side, sent: u32, stamp: u64) -> Self {
        let numbers = with_number(self.numbers, side, sent);
        // That the next connection is near does not change when the other side's end comes.
        let followed = if self.has_ended(side) { FOLLOWED_BIT } else { 0 };
        let head = self.head & !(followed | SUCCEEDED_BIT | 1 << (REPORTED_SHIFT + side as u32));
        EndRecord { head: head | 1 << (ENDED_SHIFT + side as u32), numbers }.stamped(stamp)
    }

    /// This record, in which this side is reported not to have ended.
    fn reported(self, side: Side, stamp: u64) -> Self {
        EndRecord { head: self.head | 1 << (REPORTED_SHIFT + side as u32), ..self }.stamped(stamp)
    }

    /// Notes, where this record is, that a packet is late behind it. What is repeated behind a FIN agrees with it: of
    /// many ends those make way that nothing agrees with.
    #[inline]
    fn agree(self, way: &[AtomicU64], stamp: u64) {
        if self.is_undisputed_fin() && self.age(stamp) > 0 {
            self.stamped(stamp).store(way);
        }
    }

    fn stamped(self, stamp: u64) -> Self {
        EndRecord { head: self.head & !(STAMP_MASK << STAMP_SHIFT) | stamp << STAMP_SHIFT, ..self }
    }
}

/// What becomes of an end of a side, among the records of its connection.
struct EndAmongRecords {
    /// The record to be written, and the place of the one that it replaces.
    new: EndRecord,
    place: Option<usize>,
    /// Nothing is written, because the end is known.
    is_repeated: bool,
    /// Both sides have ended.
    has_other: bool,
    /// The other side has ended in a record that holds the end.
    is_second: bool,
}

impl EndAmongRecords {
    /// Takes the records at these places into account, in turn.
    #[cold]
    fn meet_all(self, set: &SharedLine, places: u64, (side, end): (Side, End), stamp: u64) -> Self {
        let places = ones::<WAY_COUNT>(RecentEnds::steps_to(places, end)).map(|step| RecentEnds::in_turn(end, step));
        places.fold(self, |found, at| found.meet(set, at, (side, end), stamp))
    }

    /// Takes the record at this place into account.
    #[inline(always)]
    fn meet(self, set: &SharedLine, at: usize, (side, end): (Side, End), stamp: u64) -> Self {
        let there = EndRecord::load(RecentEnds::way(set, at));
        if there.is_begun() {
            return self;
        }
        let holds = there.holds(side, end);
        // A late end of a connection before ends the present one for all that flags show.
        let is_last = there.has_ended(side.other()) && (holds || !there.is_succeeded());
        // One RST is enough, of whichever side, even if its sender has gone on since: behind a forged SYN the tracker
        // may not have opened the connection again yet, so later packets still have to be looked at.
        let is_reset = there.is_rst() && !there.is_succeeded();
        let has_other = self.has_other || is_last || is_reset;
        if !holds {
            let makes_way = there.is_disproved() || there.is_past(side, end, stamp);
            let place = self.place.or(makes_way.then_some(at));
            return EndAmongRecords { place, has_other, ..self };
        }
        let is_second = self.is_second || there.has_ended(side.other());
        // What is repeated, or was sent before, changes nothing.
        let is_known = there.has_ended(side) && !there.is_reported(side) && there.beyond(side, end.at.sent) <= 0;
        let is_repeated = self.is_repeated || is_known && !there.is_succeeded() && !end.is_rst;
        let new = if is_known { there.unsucceeded().stamped(stamp) } else { there.with_end(side, end.at.sent, stamp) };
        EndAmongRecords { new, place: Some(at), is_repeated, has_other, is_second }
    }
}

/// The numbers of both sides, with this one of one side.
#[inline]
fn with_number([first, second]: [u32; 2], side: Side, number: u32) -> [u32; 2] {
    if side == Side::First { [number, second] } else { [first, number] }
}

/// The ends. The memory is fixed when it is made.
pub struct RecentEnds {
    sets: Lines<SharedLine>,
    /// The connections of which a side was reset, or both have ended.
    recent: RecentConnections,
}

impl RecentEnds {
    /// A table of the ends of at least this many connections.
    #[must_use]
    pub fn new(connection_count: usize) -> Self {
        let sets = Lines::new_huge(Self::set_count(connection_count));
        RecentEnds { sets, recent: RecentConnections::new(connection_count) }
    }

    /// The memory of a table for this many connections, in bytes.
    #[must_use]
    pub fn size(connection_count: usize) -> usize {
        Self::set_count(connection_count) * size_of::<SharedLine>() + RecentConnections::size(connection_count)
    }

    fn set_count(connection_count: usize) -> usize {
        connection_count.div_ceil(WAY_COUNT).max(1)
    }

    /// Whether no side of this connection has ended lately, so that no packet [shows](Self::shown_by) anything. True
    /// for most.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self, hash: u64) -> bool {
        !self.recent.may_hold(hash)
    }

    /// Whether nothing is recorded of this connection, so that [`Self::is_late`] would be false.
    #[must_use]
    #[inline]
    pub fn has_none(&self, hash: u64) -> bool {
        Self::places_of(self.set(hash), hash) == 0
    }

    /// Prefetches what is recorded of this connection.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.set(hash));
    }

    #[inline]
    fn set(&self, hash: u64) -> &SharedLine {
        &self.sets[place_of((hash >> u32::BITS) as u32, self.sets.len())]
    }

    /// The words of a record of a set.
    #[inline]
    fn way(set: &SharedLine, at: usize) -> &[AtomicU64] {
        &set.0[at * RECORD_WORDS..][..RECORD_WORDS]
    }

    /// The first word of a record of a set.
    #[inline]
    fn head(set: &SharedLine, at: usize) -> u64 {
        set.0[at * RECORD_WORDS].load(Relaxed)
    }

    /// The first words of all records of a set.
    #[inline]
    fn heads(set: &SharedLine) -> [u64; WAY_COUNT] {
        std::array::from_fn(|at| Self::head(set, at))
    }

    /// The places of a set that have records of this connection, as bits.
    #[inline]
    fn places_of(set: &SharedLine, hash: u64) -> u64 {
        let is_of = |at: usize| u64::from(EndRecord::is_head_of(Self::head(set, at), hash));
        (0..WAY_COUNT).map(|at| is_of(at) << at).sum()
    }

    #[inline]
    fn stamp(now_ns: i64) -> u64 {
        (now_ns >> STAMP_NS_SHIFT) as u64 & STAMP_MASK
    }

    /// Prepares for the end of a side of this connection: until it is [put](Self::put), the connection is not quiet.
    #[inline]
    pub fn announce(&self, hash: u64) {
        self.recent.put(hash);
        self.prefetch(hash);
    }

    /// Takes back that the end of a side of this connection was [announced](Self::announce): none is put.
    pub fn retract(&self, hash: u64) {
        self.recent.remove(hash);
    }

    /// Whether a RST of this side is that of an earlier connection between the same ends once more, late, as a second
    /// interface may show it: another connection with other numbers has begun for certain since. It ends nothing.
    #[must_use]
    pub fn is_of_earlier(&self, hash: u64, side: Side, sent: u32, now_ns: i64) -> bool {
        let (set, stamp) = (self.set(hash), Self::stamp(now_ns));
        ones::<WAY_COUNT>(Self::places_of(set, hash)).any(|place| {
            let there = EndRecord::load(Self::way(set, place));
            let is_left_behind = there.is_succeeded() && there.head & FOLLOWED_BIT == 0;
            there.is_rst()
                && is_left_behind
                && there.has_ended(side)
                && there.beyond(side, sent) == 0
                && there.age(stamp) <= LATE_BEHIND_RST
        })
    }

    /// Records that a side has ended. An end that is near to one of the same connection takes its place if it is behind
    /// it, and one of which it turned out that it was none is forgotten.
    #[inline]
    pub fn put(&self, hash: u64, side: Side, end: End, now_ns: i64) -> BesideEnd {
        let (set, stamp) = (self.set(hash), Self::stamp(now_ns));
        let (has_other, shown) = match Self::places_of(set, hash) {
            places if places.is_power_of_two() && Self::add_fin((set, places), side, end, stamp) => {
                (true, BesideEnd { is_second: true, begins: false })
            }
            0 => {
                let way = Self::way(set, Self::make_way((set, 0), end, stamp));
                EndRecord::new(hash, side, end, stamp).store(way);
                (end.is_rst, BesideEnd::default())
            }
            places => self.put_beside((set, places), hash, side, end, stamp),
        };
        // While the other side has not ended the connection is open, for all that this side's packets show.
        if has_other {
            self.recent.put(hash);
        } else {
            self.recent.remove(hash);
        }
        shown
    }

    /// Records that both sides have ended, `side` before the other, each with the time of its end: as [`Self::put`]
    /// twice, with less to look at where nothing is recorded of the connection and the ends are near, as nearly always.
    pub fn put_both(&self, hash: u64, side: Side, ends: [End; 2], now_ns: [i64; 2]) -> [BesideEnd; 2] {
        let [first, second] = ends;
        let (set, stamp) = (self.set(hash), Self::stamp(now_ns[1]));
        let record = EndRecord::new(hash, side, first, stamp);
        if Self::places_of(set, hash) != 0 || !record.holds(side.other(), second) {
            return [self.put(hash, side, first, now_ns[0]), self.put(hash, side.other(), second, now_ns[1])];
        }
        let place = Self::make_way((set, 0), first, stamp);
        record.with_end(side.other(), second.at.sent, stamp).store(Self::way(set, place));
        self.recent.put(hash);
        [BesideEnd::default(), BesideEnd { is_second: true, begins: false }]
    }

    /// Adds a FIN to the one record of its connection if that is of the other side's FIN and of nothing else, as nearly
    /// always, and returns whether it was: what [`EndAmongRecords::meet`] does in that case, with less to look at.
    #[inline(always)]
    fn add_fin((set, places): (&SharedLine, u64), side: Side, end: End, stamp: u64) -> bool {
        const WHAT_IT_IS: u64 = RST_BIT | 0b11 << ENDED_SHIFT | 0b11 << REPORTED_SHIFT | FOLLOWED_BIT | SUCCEEDED_BIT;
        let way = Self::way(set, places.trailing_zeros() as usize % WAY_COUNT);
        let there = EndRecord::load(way);
        let is_others_fin = there.head & WHAT_IT_IS == 1 << (ENDED_SHIFT + side.other() as u32);
        let is_added = is_others_fin && there.holds(side, end);
        if is_added {
            there.with_end(side, end.at.sent, stamp).store(way);
        }
        is_added
    }

    /// Records the end of a side of a connection that has records at these places of its set. Returns whether both
    /// sides have ended, and what it shows.
    #[inline]
    fn put_beside(
        &self,
        (set, places): (&SharedLine, u64),
        hash: u64,
        side: Side,
        end: End,
        stamp: u64,
    ) -> (bool, BesideEnd) {
        // A server that refuses a SYN acknowledges it with its RST.
        let begins = !end.is_rst && self.has_begun((set, places), hash, side, end.at);
        let places = if begins { Self::places_of(set, hash) } else { places };
        let new = EndRecord::new(hash, side, end, stamp);
        let alone = EndAmongRecords { new, place: None, is_repeated: false, has_other: end.is_rst, is_second: false };
        // Nearly always there is one record.
        let found = if places.is_power_of_two() {
            alone.meet(set, places.trailing_zeros() as usize % WAY_COUNT, (side, end), stamp)
        } else {
            alone.meet_all(set, places, (side, end), stamp)
        };
        if !found.is_repeated {
            let own = || (places == ALL_PLACES).then(|| Self::oldest_of_side(set, side, stamp)).flatten();
            let place = found.place.or_else(own).unwrap_or_else(|| Self::make_way((set, places), end, stamp));
            found.new.store(Self::way(set, place));
        }
        (found.has_other, BesideEnd { is_second: found.is_second, begins })
    }

    /// The places of a set from any of them on, or of records that are as old the first would always make way.
    #[inline]
    fn in_turn(end: End, step: usize) -> usize {
        (step + end.at.sent as usize) % WAY_COUNT
    }

    /// The steps at which [`Self::in_turn`] comes to these places, as bits.
    #[inline]
    fn steps_to(places: u64, end: End) -> u64 {
        (places | places << WAY_COUNT) >> Self::in_turn(end, 0) & ALL_PLACES
    }

    /// The place that makes way for another end of this side, in a set that is full of one connection's ends: the
    /// older of two ends or more of this side. So ends that are forged in the name of one side never push out those of
    /// the other. `None` if there are no two, or if another connection has followed: then the ends of the one before it
    /// make way.
    #[cold]
    fn oldest_of_side(set: &SharedLine, side: Side, stamp: u64) -> Option<usize> {
        let record = |at: usize| EndRecord::load(Self::way(set, at));
        if (0..WAY_COUNT).any(|at| record(at).is_succeeded()) {
            return None;
        }
        let is_of_side = |at: &usize| record(*at).has_ended(side) && !record(*at).has_ended(side.other());
        let own = || (0..WAY_COUNT).filter(is_of_side);
        own().max_by_key(|at| record(*at).age(stamp)).filter(|_| own().count() > 1)
    }

    /// The place of a full set that makes way for an end of the connection whose records are at the places `own`: that
    /// of an end of it that another connection has followed long ago, or of whichever connection is over, or the oldest
    /// of the other connections and of what has just been followed, behind which copies may come, or the oldest of its
    /// own, and of those that are as old the first in turn. So an end that is forged takes no place from a true one of
    /// its connection while there are others, and none from a connection that is half closed, which its other end will
    /// be compared with, while there are some that are over.
    #[inline]
    fn oldest((heads, own): (&[u64; WAY_COUNT], u64), end: End, stamp: u64) -> usize {
        let first = Self::in_turn(end, 0);
        // Below the rank and the age stands how many come behind it, and then the place. No branch: which is the oldest
        // is as good as random.
        let oldest = (0..WAY_COUNT).map(|at| {
            let (head, age) = (heads[at], EndRecord::age_of_head(heads[at], stamp));
            let (is_own, is_old) = (own >> at & 1, u64::from(age > OVER_BEHIND_END));
            let is_over = EndRecord::ended_bit(head) & is_old;
            let is_left = is_own & head >> SUCCEEDED_BIT.trailing_zeros();
            // One of its own is 0, another connection's 1, as what has just been followed, whichever is over 2, what
            // was followed long ago 3.
            let rank = (1 + is_over - (is_own & !is_over & !is_left)) | (3 * (is_left & is_old));
            let behind_count = first.wrapping_sub(at + 1) % WAY_COUNT;
            ((rank * (STAMP_MASK + 1) + age) as usize * WAY_COUNT + behind_count) * WAY_COUNT + at
        });
        oldest.fold(0, usize::max) % WAY_COUNT
    }

    /// A place of a set for an end of the connection whose records are at the places `own`: a free one, or that of the
    /// oldest. Of another connection nothing stays: with one of its ends alone what comes behind the other would seem
    /// not to have ended.
    #[inline(always)]
    fn make_way((set, own): (&SharedLine, u64), end: End, stamp: u64) -> usize {
        let heads = Self::heads(set);
        let free = (0..WAY_COUNT).map(|at| u64::from(heads[at] == 0) << at).sum();
        if free != 0 {
            return Self::in_turn(end, Self::steps_to(free, end).trailing_zeros() as usize);
        }
        let place = Self::oldest((&heads, own), end, stamp);
        if own >> place & 1 == 0 {
            Self::forget(set, heads[place] >> TAG_SHIFT);
        }
        place
    }

    /// Forgets what is recorded of a connection in its set.
    #[inline]
    fn forget(set: &SharedLine, hash: u64) {
        for at in ones::<WAY_COUNT>(Self::places_of(set, hash)) {
            set.0[at * RECORD_WORDS].store(0, Relaxed);
        }
    }

    /// Records that a SYN of this side, or a SYN-ACK whose SYN was not seen, may begin another connection between ends
    /// of which one has ended. Its first byte has this number, and what follows it is then of that connection.
    #[cold]
    pub fn begin(&self, hash: u64, side: Side, first: u32, now_ns: i64) {
        let (set, stamp) = (self.set(hash), Self::stamp(now_ns));
        let heads = Self::heads(set);
        let is_of = |head: u64| EndRecord::is_head_of(head, hash);
        if !heads.into_iter().any(is_of) {
            return;
        }
        let is_begun = |at: &usize| {
            let there = EndRecord::load(Self::way(set, *at));
            there.is_of(hash) && there.is_begun()
        };
        let free = heads.iter().position(|head| !is_of(*head) && head & USED_BIT == 0);
        let oldest = |makes_way: &dyn Fn(u64) -> bool| {
            let others = (0..WAY_COUNT).filter(|at| makes_way(heads[*at]));
            others.max_by_key(|at| EndRecord::age_of_head(heads[*at], stamp))
        };
        let other = || oldest(&|head| !is_of(head));
        // Of its own ends only one that another connection has followed already makes way.
        let succeeded = || oldest(&|head| head & SUCCEEDED_BIT != 0);
        let place = (0..WAY_COUNT).find(is_begun).or(free).or_else(other).or_else(succeeded);
        let Some(place) = place else { return };
        let before = heads[place];
        if before & USED_BIT != 0 && !is_of(before) {
            Self::forget(set, before >> TAG_SHIFT);
        }
        EndRecord::begun(hash, side, first, stamp).store(Self::way(set, place));
    }

    /// Records that this side answers another connection between the same ends, with the numbers of its SYN-ACK. What
    /// lies between where that begins and an old end is then not late. For a second behind an end a SYN-ACK may be a
    /// copy of that connection's own, unless it answers a SYN that came behind the end. One that is far from all ends
    /// begins the connection itself, unless a SYN has come that it does not answer: then one of both was forged.
    #[cold]
    pub fn follow(&self, hash: u64, side: Side, at: Numbers, now_ns: i64) {
        let (set, stamp) = (self.set(hash), Self::stamp(now_ns));
        let all = (0..WAY_COUNT).map(|at_way| EndRecord::load(Self::way(set, at_way)));
        let mut known = all.filter(|there| there.is_of(hash));
        let answers = known.clone().any(|there| there.is_begun() && there.is_behind_begun(side, at));
        let begins = !answers && known.all(|there| there.is_parted_by(side, at));
        for at_way in 0..WAY_COUNT {
            let way = Self::way(set, at_way);
            let there = EndRecord::load(way);
            let may_be_copy = !answers && there.age(stamp) <= COPIES_BEHIND_END;
            if there.is_of(hash) && !may_be_copy && there.is_followed_by(side, at) {
                EndRecord { head: there.head | FOLLOWED_BIT, ..there }.store(way);
            }
        }
        if begins {
            self.begin(hash, side, at.sent, now_ns);
        }
    }

    /// Whether a packet is the first of its side that shows that it is of another connection than those that have
    /// ended, because it follows the SYN that began it. These have then ended, and only what comes late is still
    /// compared with them. Behind the first packet of the side that sent the SYN nothing shows so any more; behind one
    /// of the other side that side's may still be what answers, with others before it that were forged.
    #[inline]
    fn has_begun(&self, (set, places): (&SharedLine, u64), hash: u64, side: Side, at: Numbers) -> bool {
        let begun = ones::<WAY_COUNT>(places).find(|place| {
            let there = EndRecord::load(Self::way(set, *place));
            there.is_begun() && there.is_behind_begun(side, at) && (there.is_reported(side) || !there.is_succeeded())
        });
        if let Some(begun) = begun {
            self.succeed(set, hash, (begun, side));
        }
        begun.is_some()
    }

    /// Records that another connection between the same ends has begun for certain, as a packet of this side shows, and
    /// the SYN that is recorded at this place.
    #[cold]
    fn succeed(&self, set: &SharedLine, hash: u64, (begun_at, side): (usize, Side)) {
        let begun = EndRecord::load(Self::way(set, begun_at));
        // What was recorded behind the first packet that showed it is of the connection itself.
        let is_first = !begun.is_succeeded();
        let mut has_ends = false;
        for at_way in 0..WAY_COUNT {
            let way = Self::way(set, at_way);
            let there = EndRecord::load(way);
            if !there.is_of(hash) || there.is_begun() {
                continue;
            }
            if is_first {
                EndRecord { head: there.head | SUCCEEDED_BIT, ..there }.store(way);
            }
            has_ends |= !is_first && !there.is_succeeded();
        }
        let is_over = begun.is_reported(side);
        let head = if is_over { 0 } else { begun.head | SUCCEEDED_BIT };
        EndRecord { head, ..begun }.store(Self::way(set, begun_at));
        if is_over && !has_ends {
            self.recent.remove(hash);
        }
    }

    /// Whether a packet of this side comes late, or again, behind an end that is recorded of its connection, which may
    /// be quiet. `at` has the number behind the packet.
    #[must_use]
    #[cold]
    pub fn is_late(&self, hash: u64, side: Side, at: Numbers, now_ns: i64) -> bool {
        let (set, stamp) = (self.set(hash), Self::stamp(now_ns));
        let all = (0..WAY_COUNT).map(|at_way| EndRecord::load(Self::way(set, at_way)));
        let mut known = all.filter(|there| there.is_of(hash));
        let is_of_next = known.clone().any(|there| there.is_begun() && there.is_behind_begun(side, at));
        !is_of_next && known.any(|there| there.is_late(side, at, stamp))
    }

    /// Whether a packet without a flag, with this number behind it, comes where its side has ended, so that it
    /// [shows](Self::shown_by) nothing. `to_put` is the number behind the FIN of this side that is not [put](Self::put)
    /// yet, if there is one; those of the other side need not be. Where several ends are recorded it is false.
    #[must_use]
    #[inline]
    pub fn is_at_end(&self, (hash, side): (u64, Side), sent: u32, to_put: Option<u32>, now_ns: i64) -> bool {
        let set = self.set(hash);
        let places = Self::places_of(set, hash);
        if places == 0 {
            return to_put == Some(sent);
        }
        let way = Self::way(set, places.trailing_zeros() as usize % WAY_COUNT);
        let there = EndRecord::load(way);
        if !places.is_power_of_two()
            || there.is_rst()
            || there.is_begun()
            || to_put.is_some_and(|number| number != sent)
        {
            return false;
        }
        if !there.has_ended(side) {
            return to_put.is_some();
        }
        let is_there = there.beyond(side, sent) == 0;
        if is_there {
            there.agree(way, Self::stamp(now_ns));
        }
        is_there
    }

    /// What a packet of this side shows. The side has not ended if the packet is beyond every end that was recorded of
    /// it, or far from them; that is reported at most once a second. `at` has the number behind the packet.
    #[must_use]
    pub fn shown_by(&self, hash: u64, side: Side, at: Numbers, now_ns: i64) -> BehindEnd {
        let stamp = Self::stamp(now_ns);
        let mut shown = BehindEnd::Nothing;
        let set = self.set(hash);
        let places = Self::places_of(set, hash);
        if places == 0 {
            return shown;
        }
        if self.has_begun((set, places), hash, side, at) {
            return BehindEnd::Begins;
        }
        for place in ones::<WAY_COUNT>(places) {
            let way = Self::way(set, place);
            let there = EndRecord::load(way);
            if there.is_late(side, at, stamp) {
                there.agree(way, stamp);
                return BehindEnd::Nothing;
            }
            if !there.has_ended(side) || there.is_succeeded() {
                continue;
            }
            if !there.is_reported(side) || there.age(stamp) >= REPORT_INTERVAL {
                shown = BehindEnd::GoesOn;
                there.reported(side, stamp).store(way);
            }
        }
        shown
    }

    /// Writes the ends into a saved state. No other thread may be using them.
    pub fn save(&self, encoder: &mut Encoder) {
        let ends = || self.sets.iter().flat_map(|set| &set.0).map(|end| end.load(Relaxed));
        encoder.length(ends().filter(|end| *end != 0).count());
        for (place, end) in ends().enumerate().filter(|(_, end)| *end != 0) {
            encoder.u64(place as u64);
            encoder.u64(end);
        }
        self.recent.save(encoder);
    }

    /// Fills an empty table from a saved state. After an error the table is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode ends of a table of this size.
    pub fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        let words_in_set = WAY_COUNT * RECORD_WORDS;
        let count = decoder.length(2 * size_of::<u64>(), self.sets.len() * words_in_set)?;
        for _ in 0..count {
            let (place, end) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            let set = decoder.some(self.sets.get(place / words_in_set), "an end out of place")?;
            set.0[place % words_in_set].store(end, Relaxed);
        }
        self.recent.restore(decoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::mixed as hash;
    use Side::{First, Second};
    use proptest::prelude::*;

    const SECOND_NS: i64 = 1_000_000_000;

    impl RecentEnds {
        fn goes_on(&self, hash: u64, side: Side, at: Numbers, now_ns: i64) -> bool {
            self.shown_by(hash, side, at, now_ns) == BehindEnd::GoesOn
        }
    }

    fn at(sent: u32, acked: u32) -> Numbers {
        Numbers { sent, acked }
    }

    fn fin(sent: u32, acked: u32) -> End {
        End { is_rst: false, at: at(sent, acked) }
    }

    fn rst(sent: u32) -> End {
        End { is_rst: true, at: at(sent, 0) }
    }

    /// Both sides of a connection have sent a FIN, in the second 0.
    fn closed(ends: &RecentEnds, hash: u64) {
        ends.put(hash, First, fin(1_000, 4_999), 0);
        ends.put(hash, Second, fin(5_000, 1_000), 0);
    }

    /// As above, with numbers that follow from the hash.
    fn closed_anywhere(ends: &RecentEnds, hash: u64) {
        let (first, second) = (hash as u32, (hash >> 7) as u32);
        ends.put(hash, First, fin(first, second.wrapping_sub(1)), 0);
        ends.put(hash, Second, fin(second, first), 0);
    }

    #[test]
    fn what_comes_late_behind_fins_is_no_life_and_what_is_beyond_them_is() {
        for (number, goes_on) in [
            (1_000, false),
            (999, false),
            (0, false),
            (1_000u32.wrapping_sub(LATE_SIZE), false),
            (1_001, true),
            (2_000_000_000, true),
        ] {
            let ends = RecentEnds::new(64);
            closed(&ends, hash(1));
            assert!(!ends.is_quiet(hash(1)));
            assert_eq!(ends.goes_on(hash(1), First, at(number, 5_000), 90 * SECOND_NS), goes_on, "{number}");
        }
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        assert!(ends.goes_on(hash(1), First, at(999u32.wrapping_sub(LATE_SIZE), 5_000), 0), "far behind");
        assert!(!ends.goes_on(hash(1), Second, at(5_000, 1_000), 0));
        assert!(ends.goes_on(hash(1), Second, at(5_001, 1_000), 0));
        assert!(!ends.goes_on(hash(2), First, at(77, 5_000), 0), "of another connection nothing is known");
    }

    /// What may happen to a table of one set: the connection it happens to, and when, in eighths of a second.
    #[derive(Clone, Copy, Debug)]
    enum Happens {
        End(Side, End),
        Begin(Side, u32),
        Follow(Side, Numbers),
        Packet(Side, Numbers),
    }

    fn sides() -> impl Strategy<Value = Side> {
        any::<bool>().prop_map(|is_first| if is_first { First } else { Second })
    }

    /// Numbers that are often the same, near to each other, or far apart.
    fn numbers() -> impl Strategy<Value = Numbers> {
        let number = || prop::sample::select(vec![1_000, 1_001, 1_500, 5_000, 20_000_000, 900_000_000]);
        (number(), number()).prop_map(|(sent, acked)| at(sent, acked))
    }

    fn any_end() -> impl Strategy<Value = Happens> {
        let end = (prop::bool::weighted(0.2), numbers()).prop_map(|(is_rst, at)| End { is_rst, at });
        (sides(), end).prop_map(|(side, end)| Happens::End(side, end))
    }

    fn anything() -> impl Strategy<Value = (u64, Happens, i64)> {
        let what = prop_oneof![
            4 => any_end(),
            1 => (sides(), numbers()).prop_map(|(side, at)| Happens::Begin(side, at.sent)),
            1 => (sides(), numbers()).prop_map(|(side, at)| Happens::Follow(side, at)),
            1 => (sides(), numbers()).prop_map(|(side, at)| Happens::Packet(side, at)),
        ];
        (prop_oneof![3 => Just(1), 1 => 2..5u64], what, 0..24i64)
    }

    fn happen(ends: &RecentEnds, (number, what, later): (u64, Happens, i64), now_ns: &mut i64) {
        *now_ns += later * SECOND_NS / 8;
        match what {
            Happens::End(side, end) => _ = ends.put(hash(number), side, end, *now_ns),
            Happens::Begin(side, first) => ends.begin(hash(number), side, first, *now_ns),
            Happens::Follow(side, at) => ends.follow(hash(number), side, at, *now_ns),
            Happens::Packet(side, at) => _ = ends.shown_by(hash(number), side, at, *now_ns),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_096, ..ProptestConfig::default() })]
        #[test]
        fn a_packet_at_the_end_of_its_side_shows_nothing_when_the_other_ends_are_put(
            before in prop::collection::vec(anything(), 0..8),
            own in prop::option::of(numbers()),
            own_place in 0..5usize,
            others in prop::collection::vec((prop_oneof![3 => Just(1), 1 => 2..5u64], any_end()), 0..5),
            at in numbers(),
        ) {
            let (ends, mut now_ns) = (RecentEnds::new(WAY_COUNT), 0);
            before.iter().for_each(|what| happen(&ends, *what, &mut now_ns));
            // Of this side there is one FIN at most that is not put yet.
            let of_other = |(number, what)| match what {
                Happens::End(First, _) if number == 1 => None,
                what => Some((number, what, 0)),
            };
            let mut to_put: Vec<_> = others.into_iter().filter_map(of_other).collect();
            if let Some(own) = own {
                let fin = Happens::End(First, End { is_rst: false, at: own });
                to_put.insert(own_place.min(to_put.len()), (1, fin, 0));
            }
            if ends.is_at_end((hash(1), First), at.sent, own.map(|own| own.sent), now_ns) {
                to_put.into_iter().for_each(|what| happen(&ends, what, &mut now_ns));
                prop_assert_eq!(ends.shown_by(hash(1), First, at, now_ns), BehindEnd::Nothing);
            }
        }

        #[test]
        fn both_ends_at_once_are_as_one_after_the_other(
            before in prop::collection::vec(anything(), 0..8),
            is_first in any::<bool>(),
            at in [numbers(), numbers()],
        ) {
            let tables = [(); 2].map(|()| RecentEnds::new(WAY_COUNT));
            let mut times_ns = [0; 2];
            for (ends, now_ns) in tables.iter().zip(&mut times_ns) {
                before.iter().for_each(|what| happen(ends, *what, now_ns));
            }
            let ([together, in_turn], [now_ns, _]) = (&tables, times_ns);
            let side = if is_first { First } else { Second };
            let [first, second] = at.map(|at| End { is_rst: false, at });
            let shown = together.put_both(hash(1), side, [first, second], [now_ns; 2]);
            let of_each = [in_turn.put(hash(1), side, first, now_ns), in_turn.put(hash(1), side.other(), second, now_ns)];
            prop_assert_eq!(shown, of_each);
            prop_assert_eq!(together.is_quiet(hash(1)), in_turn.is_quiet(hash(1)));
            let words = |ends: &RecentEnds| ends.sets[0].0.each_ref().map(|word| word.load(Relaxed));
            prop_assert_eq!(words(together), words(in_turn));
        }
    }

    #[test]
    fn the_last_packet_of_a_connection_is_at_the_end_of_its_side() {
        let ends = RecentEnds::new(64);
        let is_at_end = |side, sent, to_put| ends.is_at_end((hash(1), side), sent, to_put, 0);
        assert!(is_at_end(First, 1_000, Some(1_000)), "its FIN is not put yet");
        assert!(!is_at_end(First, 1_001, Some(1_000)));
        assert!(!is_at_end(First, 1_000, None), "it has not ended");
        ends.put(hash(1), First, fin(1_000, 4_999), 0);
        assert!(is_at_end(First, 1_000, None) && is_at_end(First, 1_000, Some(1_000)));
        assert!(!is_at_end(First, 999, None) && !is_at_end(First, 1_000, Some(1_001)));
        assert!(is_at_end(Second, 5_000, Some(5_000)) && !is_at_end(Second, 5_000, None));
        ends.put(hash(1), Second, rst(5_000), 0);
        assert!(!is_at_end(First, 1_000, None), "there is more to be looked at");
    }

    #[test]
    fn the_second_end_of_a_connection_is_told_from_a_first() {
        let ends = RecentEnds::new(64);
        assert!(!ends.put(hash(1), First, fin(1_000, 4_999), 0).is_second);
        assert!(!ends.put(hash(1), First, fin(1_000, 4_999), 0).is_second, "it is repeated");
        assert!(!ends.put(hash(1), Second, fin(900_000_000, 77), 0).is_second, "of another connection, or forged");
        assert!(ends.put(hash(1), Second, fin(5_000, 1_000), 0).is_second);
        assert!(ends.put(hash(1), First, fin(1_000, 4_999), 0).is_second, "as before, when both have ended");
        assert!(!ends.put(hash(2), Second, fin(5_000, 1_000), 0).is_second);
    }

    #[test]
    fn forged_ends_do_not_push_out_one_that_packets_agree_with() {
        let forged = |number: i64| number as u32 * 300_000_000;
        let ends = RecentEnds::new(64);
        ends.put(hash(1), Second, fin(5_000, 1_000), 0);
        ends.put(hash(1), Second, fin(forged(1), 77), 10 * SECOND_NS);
        for number in 2..=WAY_COUNT as i64 {
            ends.put(hash(1), First, fin(forged(number), 77), 10 * number * SECOND_NS);
            assert!(!ends.goes_on(hash(1), Second, at(5_000, 1_000), (10 * number + 1) * SECOND_NS), "{number}");
        }
        assert!(ends.goes_on(hash(1), First, at(1_000, 5_000), 200 * SECOND_NS));
    }

    #[test]
    fn rsts_of_a_side_push_out_none_but_each_other() {
        let forged = |number: i64| number as u32 * 300_000_000;
        let ends = RecentEnds::new(64);
        ends.put(hash(1), Second, fin(5_000, 1_000), 0);
        for number in 2..=2 * WAY_COUNT as i64 {
            let side = if number % 2 == 0 { First } else { Second };
            ends.put(hash(1), side, rst(forged(number)), 10 * number * SECOND_NS);
        }
        assert!(!ends.goes_on(hash(1), Second, at(5_000, 1_000), 200 * SECOND_NS), "it has ended by its FIN");
        assert!(ends.goes_on(hash(1), First, at(1_000, 5_000), 200 * SECOND_NS));
    }

    #[test]
    fn a_rst_that_comes_again_behind_the_next_beginning_is_of_the_connection_before() {
        // Where the next connection begins, and whether its numbers are others than those that the RST has.
        for (first, is_other) in [(900_000_000, true), (900, false)] {
            let ends = RecentEnds::new(64);
            ends.put(hash(1), First, rst(1_000), 0);
            ends.begin(hash(1), First, first, SECOND_NS / 10);
            ends.follow(hash(1), Second, at(700_000_001, first), SECOND_NS / 10);
            assert!(!ends.is_of_earlier(hash(1), First, 1_000, SECOND_NS / 10), "it has not begun for certain");
            assert!(!ends.goes_on(hash(1), First, at(first, 700_000_001), SECOND_NS / 5));
            for (side, sent, time_ns, expected) in [
                (First, 1_000, SECOND_NS / 5, is_other),
                (First, 1_001, SECOND_NS / 5, false),
                (Second, 1_000, SECOND_NS / 5, false),
                (First, 1_000, 4 * SECOND_NS, false),
            ] {
                assert_eq!(
                    ends.is_of_earlier(hash(1), side, sent, time_ns),
                    expected,
                    "{first} {side:?} {sent} {time_ns}"
                );
            }
            assert!(!ends.is_of_earlier(hash(2), First, 1_000, SECOND_NS / 5));
        }
    }

    #[test]
    fn what_was_on_its_way_when_a_rst_came_is_late_behind_the_next_connection_too() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), Second, End { is_rst: true, at: at(5_000, 1_000) }, 0);
        ends.put(hash(1), First, fin(900_000_000, 700_000_000), SECOND_NS / 2);
        ends.put(hash(1), Second, fin(700_000_000, 900_000_000), SECOND_NS / 2);
        assert!(!ends.goes_on(hash(1), First, at(1_000, 5_000), SECOND_NS), "of the connection before");
        assert!(ends.goes_on(hash(1), First, at(1_000, 5_000), 4 * SECOND_NS), "too late for that");
    }

    #[test]
    fn a_forged_end_takes_no_place_from_a_true_one_while_there_are_others() {
        let ends = RecentEnds::new(WAY_COUNT);
        ends.put(hash(1), First, fin(1_000, 5_000), 0);
        ends.put(hash(1), Second, fin(900_000_000, 77), 5 * SECOND_NS);
        for number in 2..4 {
            ends.put(hash(number), First, fin(1, 1), 8 * SECOND_NS);
        }
        ends.put(hash(1), First, fin(700_000_000, 77), 9 * SECOND_NS);
        ends.put(hash(1), Second, fin(5_000, 1_000), 20 * SECOND_NS);
        assert!(!ends.goes_on(hash(1), First, at(1_000, 5_000), 20 * SECOND_NS), "the last acknowledgement");
    }

    #[test]
    fn what_goes_on_behind_a_forged_rst_is_looked_at_behind_a_forged_fin_too() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), First, rst(900_000_000), 0);
        assert!(ends.goes_on(hash(1), First, at(1_000, 5_000), SECOND_NS));
        ends.put(hash(1), First, fin(700_000_000, 77), 2 * SECOND_NS);
        assert!(!ends.is_quiet(hash(1)), "what the RST has closed may not be open yet, behind a SYN that was forged");
        assert!(ends.goes_on(hash(1), First, at(1_000, 5_000), 3 * SECOND_NS));
    }

    #[test]
    fn of_the_ends_of_a_connection_those_of_the_one_before_make_way_first() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), First, fin(1_000, 5_000), 200 * SECOND_NS);
        ends.put(hash(1), Second, fin(5_000, 1_000), 200 * SECOND_NS);
        ends.begin(hash(1), First, 900_000_000, 201 * SECOND_NS);
        assert!(!ends.goes_on(hash(1), First, at(900_000_000, 700_000_000), 202 * SECOND_NS), "another has begun");
        ends.put(hash(1), First, fin(900_000_100, 700_000_100), 230 * SECOND_NS);
        // Behind a turn of the stamps the end of the one before looks younger.
        for number in 1..WAY_COUNT as u32 {
            ends.put(hash(1), First, fin(900_000_100 + number * 300_000_000, 77), 500 * SECOND_NS);
        }
        assert!(!ends.goes_on(hash(1), First, at(900_000_100, 700_000_100), 501 * SECOND_NS));
    }

    #[test]
    fn the_ends_of_what_was_just_followed_stay_where_others_are_older() {
        let ends = RecentEnds::new(WAY_COUNT);
        (2..4).for_each(|number| _ = ends.put(hash(number), First, rst(1), 0));
        ends.put(hash(1), First, fin(1_000, 4_999), 3 * SECOND_NS);
        ends.put(hash(1), Second, fin(5_000, 1_000), 3 * SECOND_NS);
        ends.begin(hash(1), First, 900_000_000, 4 * SECOND_NS);
        assert!(!ends.goes_on(hash(1), First, at(900_000_000, 700_000_000), 4 * SECOND_NS), "another has begun");
        ends.put(hash(4), First, rst(1), 4 * SECOND_NS);
        ends.put(hash(1), Second, fin(700_000_100, 900_000_099), 5 * SECOND_NS);
        ends.put(hash(1), First, fin(900_000_100, 700_000_100), 5 * SECOND_NS);
        assert!(!ends.goes_on(hash(1), Second, at(5_000, 1_000), 6 * SECOND_NS), "a copy that comes late");
    }

    #[test]
    fn a_syn_ack_that_comes_again_does_not_part_the_ends_of_a_half_closed_connection() {
        for (syn_ack, last) in [(at(4_000, 500), at(1_000, 5_000)), (at(4_800, 900), at(1_000, 5_000))] {
            let ends = RecentEnds::new(WAY_COUNT);
            ends.put(hash(1), First, fin(1_000, 4_999), 0);
            ends.follow(hash(1), Second, syn_ack, 3 * SECOND_NS);
            ends.put(hash(1), First, rst(900_000_000), 20 * SECOND_NS);
            for number in 2..4 {
                ends.put(hash(number), First, fin(1, 1), 30 * SECOND_NS);
            }
            ends.put(hash(1), Second, fin(5_000, 1_000), 60 * SECOND_NS);
            assert!(!ends.goes_on(hash(1), First, last, 60 * SECOND_NS));
            assert!(ends.goes_on(hash(1), First, at(1_300, 5_000), 60 * SECOND_NS), "beyond its end");
        }
    }

    #[test]
    fn however_many_ends_are_forged_of_one_side_that_of_the_other_is_known() {
        for (true_side, forged_side) in [(First, Second), (Second, First)] {
            let ends = RecentEnds::new(64);
            ends.put(hash(1), true_side, fin(1_000, 5_000), 0);
            for number in 1..100 {
                let forged = fin(1_000_000_000 + number * 20_000_000, number * 40_000_000);
                ends.put(hash(1), forged_side, forged, i64::from(number) * SECOND_NS);
                assert!(!ends.goes_on(hash(1), true_side, at(1_000, 5_000), i64::from(number) * SECOND_NS));
            }
        }
    }

    #[test]
    fn a_packet_that_follows_other_numbers_is_of_another_connection() {
        for (acked, goes_on) in [
            (5_000, false),
            (4_000, false),
            (5_000u32.wrapping_sub(LATE_SIZE), false),
            (4_999u32.wrapping_sub(LATE_SIZE), true),
            (5_001 + LATE_SIZE, true),
        ] {
            let ends = RecentEnds::new(64);
            closed(&ends, hash(1));
            assert_eq!(ends.goes_on(hash(1), First, at(900, acked), SECOND_NS), goes_on, "{acked}");
            let ends = RecentEnds::new(64);
            closed(&ends, hash(1));
            assert!(!ends.goes_on(hash(1), First, at(1_000, acked), SECOND_NS), "the end's very number");
        }
    }

    #[test]
    fn behind_the_start_of_the_next_connection_nothing_is_late_but_the_last_acknowledgement() {
        for (sent, acked) in [(4_000, 2_000_000_000), (2_000_000_000, 900), (4_000, 900)] {
            let ends = RecentEnds::new(64);
            closed(&ends, hash(1));
            ends.follow(hash(1), Second, at(sent, acked), 2 * SECOND_NS);
            // A late FIN of the connection before changes nothing.
            ends.put(hash(1), Second, fin(5_000, 1_000), 2 * SECOND_NS);
            ends.put(hash(1), First, fin(960, 4_400), 2 * SECOND_NS);
            assert!(ends.goes_on(hash(1), Second, at(4_500, 950), 2 * SECOND_NS), "{sent} {acked}");
            assert!(!ends.goes_on(hash(1), Second, at(5_000, 950), 4 * SECOND_NS), "{sent} {acked}");
        }
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.follow(hash(1), Second, at(5_001, 2_000_000_000), 2 * SECOND_NS);
        assert!(!ends.goes_on(hash(1), Second, at(4_500, 950), 2 * SECOND_NS), "it begins elsewhere");
    }

    #[test]
    fn ends_of_two_connections_are_not_made_one() {
        let ends = RecentEnds::new(64);
        // The server's end of the connection before, just ahead of the next one's numbers.
        ends.put(hash(1), Second, fin(9_000_000, 3_000_000_000), 0);
        ends.put(hash(1), First, fin(2_000_000_000, 5_000), SECOND_NS);
        ends.put(hash(1), Second, fin(9_000_000, 3_000_000_000), SECOND_NS);
        assert!(!ends.is_quiet(hash(1)));
        assert!(ends.goes_on(hash(1), Second, at(5_100, 2_000_000_000), 2 * SECOND_NS));
        assert!(!ends.goes_on(hash(1), First, at(2_000_000_000, 5_100), 2 * SECOND_NS));
    }

    #[test]
    fn a_copied_syn_ack_behind_a_short_connection_begins_no_other() {
        let (copy, late) = (at(4_000, 500), at(4_500, 900));
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.follow(hash(1), Second, copy, SECOND_NS / 2);
        assert!(!ends.goes_on(hash(1), Second, late, SECOND_NS / 2));
        // The same numbers answer a SYN that came behind the end: that is another connection.
        ends.begin(hash(1), First, 500, SECOND_NS / 2);
        ends.follow(hash(1), Second, copy, SECOND_NS / 2);
        assert!(ends.goes_on(hash(1), Second, at(4_500, 400), SECOND_NS / 2));
    }

    #[test]
    fn what_follows_a_syn_behind_an_end_is_of_another_connection() {
        for (side, at_next) in [(First, at(70_000, 900_001)), (Second, at(900_001, 70_000))] {
            let ends = RecentEnds::new(64);
            closed(&ends, hash(1));
            ends.begin(hash(1), First, 69_000, SECOND_NS);
            // A SYN may be forged: what is beyond the end and does not follow it is life.
            assert!(ends.goes_on(hash(1), First, at(2_000, 5_000), SECOND_NS));
            assert_eq!(ends.shown_by(hash(1), side, at_next, SECOND_NS), BehindEnd::Begins, "{side:?}");
            assert_eq!(ends.shown_by(hash(1), side, at_next, SECOND_NS), BehindEnd::Nothing, "{side:?}");
            if side == Second {
                // What the client sends next may be its answer.
                let shown = |number| ends.shown_by(hash(1), First, at(number, 900_001), SECOND_NS);
                assert_eq!([70_000, 70_000].map(shown), [BehindEnd::Begins, BehindEnd::Nothing]);
            }
            assert!(ends.is_quiet(hash(1)));
            assert!(!ends.goes_on(hash(1), Second, at(2_000_000_000, 1_000_000_000), 9 * SECOND_NS), "it is over");
            // When the next connection has ended too, both have.
            ends.put(hash(1), First, fin(80_000, 900_500), 20 * SECOND_NS);
            ends.put(hash(1), Second, fin(900_500, 80_000), 20 * SECOND_NS);
            assert!(!ends.is_quiet(hash(1)));
            assert!(!ends.goes_on(hash(1), Second, at(5_000, 1_000), 21 * SECOND_NS), "late, of the first");
            assert!(!ends.goes_on(hash(1), Second, at(900_500, 80_000), 21 * SECOND_NS), "late, of the next");
            assert!(ends.goes_on(hash(1), Second, at(900_501, 80_000), 21 * SECOND_NS));
        }
        // A late FIN of the connection before seems to end the next one, and is compared with what follows.
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.begin(hash(1), First, 69_000, SECOND_NS);
        assert!(!ends.goes_on(hash(1), First, at(69_000, 900_001), SECOND_NS));
        ends.put(hash(1), Second, fin(5_000, 1_000), 2 * SECOND_NS);
        assert!(!ends.is_quiet(hash(1)));
        assert!(ends.goes_on(hash(1), Second, at(900_001, 69_000), 3 * SECOND_NS));
        let ends = RecentEnds::new(64);
        ends.begin(hash(1), First, 69_000, SECOND_NS);
        assert!(!ends.goes_on(hash(1), First, at(70_000, 1), SECOND_NS), "nothing has ended");
    }

    #[test]
    fn what_follows_a_syn_ack_behind_an_end_is_of_another_connection_though_its_syn_was_not_seen() {
        let (syn_ack, data) = (at(900_000_001, 700_000_001), at(900_000_500, 700_000_001));
        for (side, at_next) in [(Second, data), (First, at(700_000_400, 900_000_001))] {
            let ends = RecentEnds::new(64);
            closed(&ends, hash(1));
            ends.follow(hash(1), Second, syn_ack, 10 * SECOND_NS);
            // A SYN-ACK may be forged too.
            assert!(ends.goes_on(hash(1), First, at(2_000, 5_000), 10 * SECOND_NS));
            assert_eq!(ends.shown_by(hash(1), side, at_next, 11 * SECOND_NS), BehindEnd::Begins, "{side:?}");
            assert_eq!(ends.is_quiet(hash(1)), side == Second);
            let shown = ends.shown_by(hash(1), Second, data, 12 * SECOND_NS);
            assert_eq!(shown == BehindEnd::Begins, side == First);
            assert!(ends.is_quiet(hash(1)));
            assert!(!ends.goes_on(hash(1), Second, at(900_070_000, 700_000_001), 90 * SECOND_NS), "it is over");
        }
        // Of a SYN and a SYN-ACK that does not answer it the SYN is kept.
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.begin(hash(1), First, 69_000_000, SECOND_NS);
        ends.follow(hash(1), Second, syn_ack, 10 * SECOND_NS);
        assert!(ends.goes_on(hash(1), Second, data, 11 * SECOND_NS));
        assert!(!ends.goes_on(hash(1), First, at(69_000_400, 1), 13 * SECOND_NS));
    }

    #[test]
    fn the_ends_of_a_connection_are_its_own_before_its_beginner_has_shown_that_it_began() {
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.begin(hash(1), First, 69_000, SECOND_NS);
        assert_eq!(ends.shown_by(hash(1), Second, at(900_001, 69_000), SECOND_NS), BehindEnd::Begins);
        let rst = End { is_rst: true, at: at(900_001, 69_000) };
        assert_eq!(ends.put(hash(1), Second, rst, 2 * SECOND_NS), BesideEnd::default());
        assert_eq!(ends.shown_by(hash(1), First, at(69_500, 900_001), 2 * SECOND_NS), BehindEnd::Begins);
        assert!(!ends.is_quiet(hash(1)));
        // The RST was forged.
        assert!(ends.goes_on(hash(1), Second, at(2_000_000_000, 69_500), 9 * SECOND_NS));
    }

    #[test]
    fn what_follows_a_syn_behind_many_ends_is_of_another_connection() {
        let ends = RecentEnds::new(64);
        let (mut client, mut server) = (1_000, 5_000);
        for number in 0..2 * WAY_COUNT as i64 {
            let now_ns = 60 * number * SECOND_NS;
            ends.put(hash(1), First, fin(client, server - 1), now_ns);
            ends.put(hash(1), Second, fin(server, client), now_ns);
            (client, server) = (client + 300_000_000, server + 400_000_000);
            ends.begin(hash(1), First, client, now_ns + SECOND_NS);
            let side = if number % 2 == 0 { First } else { Second };
            let at_next = if number % 2 == 0 { at(client, server) } else { at(server + 900, client) };
            assert!(!ends.goes_on(hash(1), side, at_next, now_ns + 40 * SECOND_NS), "{number}");
        }
    }

    #[test]
    fn behind_a_rst_that_is_near_to_an_old_one_data_is_late() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), Second, rst(11_000_000), 0);
        ends.put(hash(1), Second, rst(1_000), 6 * SECOND_NS);
        assert!(!ends.goes_on(hash(1), Second, at(900, 7), 6 * SECOND_NS + SECOND_NS / 2));
        assert!(ends.goes_on(hash(1), Second, at(900, 7), 10 * SECOND_NS));
    }

    #[test]
    fn of_a_connection_that_makes_way_nothing_stays() {
        let ends = RecentEnds::new(WAY_COUNT);
        ends.put(hash(1), First, fin(1_000, 4_999), 0);
        // Forged, a second later.
        ends.put(hash(1), First, fin(3_000_000_000, 2_000_000_000), SECOND_NS);
        assert!(!ends.goes_on(hash(1), First, at(1_000, 5_000), 2 * SECOND_NS), "it is late behind the first");
        for number in 2..5 {
            ends.put(hash(number), First, fin(1, 1), 3 * SECOND_NS);
        }
        assert!(!ends.goes_on(hash(1), First, at(1_000, 5_000), 9 * SECOND_NS), "nor is it life behind the other");
    }

    #[test]
    fn a_half_closed_connection_makes_no_way_while_another_is_over() {
        let close = |ends: &RecentEnds, number: u64, sent: u32, now_ns: i64| {
            ends.put(hash(number), First, fin(sent, sent + 4_000), now_ns);
            ends.put(hash(number), Second, fin(sent + 4_001, sent), now_ns);
        };
        // The three others in the set are ends of other connections, or of the one whose next end takes their place.
        let others: [[(u64, u32); 3]; 2] =
            [[(2, 1_000), (3, 1_000), (4, 1_000)], [(5, 1_000), (5, 900_000_000), (5, 1_800_000_000)]];
        for (closed, seconds, is_kept) in [(others[0], 30, true), (others[1], 30, true), (others[0], 20, false)] {
            let ends = RecentEnds::new(WAY_COUNT);
            ends.put(hash(1), First, fin(1_000, 5_000), 0);
            closed.iter().for_each(|(number, sent)| close(&ends, *number, *sent, 10 * SECOND_NS));
            ends.put(hash(5), Second, fin(3_000_000_000, 2_500_000_000), seconds * SECOND_NS);
            ends.put(hash(1), Second, fin(5_000, 1_000), 31 * SECOND_NS);
            assert_eq!(ends.goes_on(hash(1), First, at(1_300, 5_000), 32 * SECOND_NS), is_kept, "{closed:?} {seconds}");
        }
    }

    #[test]
    fn a_connection_with_one_end_is_quiet_but_for_a_rst() {
        let ends = RecentEnds::new(64);
        for _ in 0..2 {
            ends.announce(hash(1));
            ends.put(hash(1), First, fin(1_000, 7), 0);
            assert!(ends.is_quiet(hash(1)), "repeated or not");
        }
        ends.put(hash(2), First, rst(1_000), 0);
        assert!(!ends.is_quiet(hash(2)));
    }

    #[test]
    fn what_was_on_its_way_when_the_other_side_reset_comes_late_for_two_seconds() {
        let late = |end: End, sent: u32, acked: u32, seconds: i64| {
            let ends = RecentEnds::new(64);
            ends.put(hash(1), Second, end, 0);
            ends.is_late(hash(1), First, at(sent, acked), seconds * SECOND_NS)
        };
        let reset = End { is_rst: true, at: at(5_000, 1_000) };
        assert_eq!([900, 1_000, 1_001].map(|sent| late(reset, sent, 4_000, 1)), [true, true, false]);
        assert!(!late(reset, 900, 4_000, 3));
        assert!(!late(reset, 900, 2_000_000_000, 1), "of another connection");
        assert!(!late(fin(5_000, 1_000), 900, 4_000, 1), "behind a FIN the other side may go on");
    }

    #[test]
    fn behind_a_rst_a_fin_of_the_same_side_ends_nothing_less() {
        for is_rst_first in [true, false] {
            let ends = RecentEnds::new(64);
            let mut forged = [rst(900_000_000), fin(1_100_000_000, 600_000_000)];
            if !is_rst_first {
                forged.reverse();
            }
            for end in forged {
                ends.put(hash(1), Second, end, 0);
            }
            assert!(!ends.is_quiet(hash(1)));
            assert!(ends.goes_on(hash(1), Second, at(5_000, 1_000), 40 * SECOND_NS));
        }
    }

    #[test]
    fn behind_a_rst_packets_come_late_for_two_seconds() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), First, rst(1_000), 0);
        assert!(!ends.goes_on(hash(1), First, at(900, 50), SECOND_NS));
        assert!(!ends.goes_on(hash(1), First, at(1_000, 50), 2 * SECOND_NS));
        assert!(ends.goes_on(hash(1), First, at(1_000, 50), 3 * SECOND_NS));
    }

    #[test]
    fn data_that_a_rst_has_overtaken_is_late_for_a_moment() {
        for (number, after_ns, goes_on) in [
            (1_001, 0, false),
            (1_000 + OVERTAKEN_SIZE, SECOND_NS / 4, false),
            (1_001 + OVERTAKEN_SIZE, 0, true),
            (1_001, SECOND_NS, true),
        ] {
            let ends = RecentEnds::new(64);
            ends.put(hash(1), First, rst(1_000), 0);
            assert_eq!(ends.goes_on(hash(1), First, at(number, 50), after_ns), goes_on, "{number} {after_ns}");
        }
    }

    #[test]
    fn life_is_reported_once_a_second() {
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        let alive = |step: &i64| ends.goes_on(hash(1), First, at(2_000 + *step as u32, 5_000), step * SECOND_NS / 100);
        let count = (0..1_000).filter(alive).count();
        assert!((8..=12).contains(&count), "{count} in ten seconds");
    }

    #[test]
    fn forged_ends_do_not_take_the_place_of_true_ones() {
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.put(hash(1), First, fin(3_000_000_000, 77), 0);
        assert!(!ends.goes_on(hash(1), First, at(1_000, 5_000), 0), "the last acknowledgement of the true end");
        assert!(ends.goes_on(hash(1), First, at(1_000_000_000, 5_000), 0));
        // After life was seen, the next end is one again.
        ends.put(hash(1), First, fin(1_000_000_100, 5_000), 0);
        assert!(!ends.goes_on(hash(1), First, at(1_000_000_100, 5_000), 0));
    }

    #[test]
    fn the_latest_ends_are_known_and_hardly_any_other_connection_is_taken_for_one() {
        let ends = RecentEnds::new(4_096);
        (0..100_000).for_each(|number| closed_anywhere(&ends, hash(number)));
        let goes_on = |hash: u64| ends.goes_on(hash, First, at((hash as u32).wrapping_add(1_000), 0), 0);
        let known = (99_000..100_000).filter(|number| goes_on(hash(*number))).count();
        assert!(known > 700 && !ends.is_quiet(hash(99_999)), "{known} of the last 1,000");
        let quiet = (1_000_000..1_010_000).filter(|number| ends.is_quiet(hash(*number))).count();
        assert!(quiet > 9_900, "{quiet} of 10,000 that never ended are quiet");
    }

    #[test]
    fn what_is_saved_comes_back() {
        let ends = RecentEnds::new(256);
        for number in 0..100 {
            closed(&ends, hash(number));
        }
        let mut encoder = Encoder::default();
        ends.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let other = RecentEnds::new(256);
        other.restore(&mut Decoder::new(&bytes)).unwrap();
        for number in 0..200 {
            assert_eq!(other.is_quiet(hash(number)), ends.is_quiet(hash(number)));
            let goes_on = |ends: &RecentEnds| ends.goes_on(hash(number), First, at(1_001, 5_000), SECOND_NS);
            assert_eq!(goes_on(&other), goes_on(&ends));
        }
        assert!(RecentEnds::new(64).restore(&mut Decoder::new(&bytes)).is_err());
    }
}
