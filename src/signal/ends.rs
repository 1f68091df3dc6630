//! The sequence numbers at which sides of connections ended lately, by FIN or RST: a later packet of the side shows by
//! its own number whether it comes behind the end as any connection's last packets do, or the side has not ended after
//! all. Then the end was forged, or that of an earlier connection between the same ends.
//!
//! A set-associative table of 8-byte ends, one for each side, shared by the capture threads. A byte for each of
//! them says for nearly all connections that none has ended lately, and the look-up stops there. Older ends count no
//! longer: a connection that speaks again only then can still be picked up.

use crate::error::Result;
use crate::flow::Side;
use crate::signal::recent::RecentConnections;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::place_of;
use flowpeel_lines::{Lines, SharedLine, prefetch};
use std::sync::atomic::Ordering::Relaxed;

/// How far behind an end packets of its side may be that come late or are repeated, in bytes: what a fast and long path
/// has under way. A packet further behind is none of that connection's.
const LATE_SIZE: u32 = 1 << 24;

/// How long after a RST packets of its side may come late, in stamps of 0.27 s: who sent it repeats nothing.
const LATE_BEHIND_RST: u64 = 8;

/// How long a side that has not ended is reported no more, in stamps: a second.
const REPORT_INTERVAL: u64 = 4;

/// RecentEnds in a set, which is a cache line of them.
const WAY_COUNT: usize = size_of::<SharedLine>() / size_of::<u64>();

/// Bits of an end, from the lowest: whether there is one, its side, whether it was a RST, whether the side was reported
/// not to have ended, when it came or was reported, what distinguishes its connection, and the number behind it.
const SIDE_BIT: u64 = 1 << 1;
const RST_BIT: u64 = 1 << 2;
const REPORTED_BIT: u64 = 1 << 3;
const STAMP_SHIFT: u32 = 4;
const STAMP_BITS: u32 = 10;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// Stamps count steps of 2^28 ns (0.27 s).
const STAMP_NS_SHIFT: u32 = 28;
const TAG_SHIFT: u32 = STAMP_SHIFT + STAMP_BITS;
const NUMBER_SHIFT: u32 = 32;

const _: () = assert!(LATE_BEHIND_RST < STAMP_MASK / 16, "an end looks young again seldom");

/// The bits that are the same in all ends of one side of a connection.
const SAME_MASK: u64 = ((1 << NUMBER_SHIFT) - (1 << TAG_SHIFT)) | SIDE_BIT | 1;

/// How a side of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether it was a RST, and not a FIN.
    pub is_rst: bool,
    /// The sequence number behind everything that the side has sent, its FIN included.
    pub number: u32,
}

/// The ends. The memory is fixed when it is made.
pub struct RecentEnds {
    sets: Lines<SharedLine>,
    /// The connections of which a side was reset, or both have ended.
    recent: RecentConnections,
}

impl RecentEnds {
    /// A table of the ends of at least this many sides.
    #[must_use]
    pub fn new(side_count: usize) -> Self {
        RecentEnds { sets: Lines::new(Self::set_count(side_count)), recent: RecentConnections::new(side_count) }
    }

    /// The memory of a table for this many sides, in bytes.
    #[must_use]
    pub fn size(side_count: usize) -> usize {
        Self::set_count(side_count) * size_of::<SharedLine>() + RecentConnections::size(side_count)
    }

    fn set_count(side_count: usize) -> usize {
        side_count.div_ceil(WAY_COUNT).max(1)
    }

    /// Whether no side of this connection has ended lately, so that [`Self::goes_on`] would be false. True for most.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self, hash: u64) -> bool {
        !self.recent.may_hold(hash)
    }

    #[inline]
    fn set(&self, hash: u64) -> &SharedLine {
        &self.sets[place_of((hash >> u32::BITS) as u32, self.sets.len())]
    }

    #[inline]
    fn stamp(now_ns: i64) -> u64 {
        (now_ns >> STAMP_NS_SHIFT) as u64 & STAMP_MASK
    }

    /// The age of an end in stamps.
    #[inline]
    fn age(end: u64, stamp: u64) -> u64 {
        stamp.wrapping_sub(end >> STAMP_SHIFT) & STAMP_MASK
    }

    /// The bits that are the same in all ends of this side of a connection.
    #[inline]
    fn side_of(hash: u64, side: Side) -> u64 {
        (hash << TAG_SHIFT) & SAME_MASK & !SIDE_BIT | (u64::from(side == Side::Second) * SIDE_BIT) | 1
    }

    /// Prepares for the end of a side of this connection: until it is [put](Self::put), the connection is not quiet.
    #[inline]
    pub fn announce(&self, hash: u64) {
        self.recent.put(hash);
        prefetch(self.set(hash));
    }

    /// Records that a side has ended. An end that is near to one of the same side takes its place if it is behind it,
    /// and one of which it turned out that it was none is forgotten.
    pub fn put(&self, hash: u64, side: Side, end: End, now_ns: i64) {
        let (same, stamp) = (Self::side_of(hash, side), Self::stamp(now_ns));
        let new =
            u64::from(end.number) << NUMBER_SHIFT | stamp << STAMP_SHIFT | (u64::from(end.is_rst) * RST_BIT) | same;
        let ways = &self.set(hash).0;
        let mut place = None;
        let mut oldest = (0, 0);
        let mut has_other = end.is_rst;
        for step in 0..WAY_COUNT {
            // From any of them on, or of those that are as old the first would always make way.
            let way = (step + end.number as usize) % WAY_COUNT;
            let there = ways[way].load(Relaxed);
            if there & SAME_MASK == same {
                let behind = end.number.wrapping_sub((there >> NUMBER_SHIFT) as u32) as i32;
                let is_same_kind = (there & RST_BIT != 0) == end.is_rst;
                if is_same_kind && there & REPORTED_BIT == 0 && (-(LATE_SIZE as i32)..=0).contains(&behind) {
                    // What is repeated, or sent before, changes nothing.
                    return;
                }
                if there & REPORTED_BIT != 0 || is_same_kind && behind.unsigned_abs() < LATE_SIZE {
                    place = Some(way);
                }
            } else if there & SAME_MASK == same ^ SIDE_BIT {
                has_other = true;
            }
            let age = if there == 0 { STAMP_MASK + 1 } else { Self::age(there, stamp) };
            if step == 0 || age > oldest.1 {
                oldest = (way, age);
            }
        }
        // Two threads may write the same place: one end is lost then, as when there are too many.
        ways[place.unwrap_or(oldest.0)].store(new, Relaxed);
        // While the other side has not ended the connection is open, for all that this side's packets show.
        if has_other { self.recent.put(hash) } else { self.recent.remove(hash) }
    }

    /// Whether a packet of this side shows that the side has not ended: it is beyond every end that was recorded of it,
    /// or far from them. `number` is the sequence number behind the packet. Reported at most once a second.
    #[must_use]
    pub fn goes_on(&self, hash: u64, side: Side, number: u32, now_ns: i64) -> bool {
        let (same, stamp) = (Self::side_of(hash, side), Self::stamp(now_ns));
        let mut is_reported = false;
        for slot in &self.set(hash).0 {
            let there = slot.load(Relaxed);
            if there & SAME_MASK != same {
                continue;
            }
            let beyond = number.wrapping_sub((there >> NUMBER_SHIFT) as u32) as i32;
            let is_late = (-(LATE_SIZE as i32)..=0).contains(&beyond);
            let age = Self::age(there, stamp);
            let has_reported = there & REPORTED_BIT != 0;
            if is_late && (there & RST_BIT == 0 || !has_reported && age <= LATE_BEHIND_RST) {
                return false;
            }
            if !has_reported || age >= REPORT_INTERVAL {
                is_reported = true;
                slot.store(there & !(STAMP_MASK << STAMP_SHIFT) | stamp << STAMP_SHIFT | REPORTED_BIT, Relaxed);
            }
        }
        is_reported
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
        let count = decoder.length(2 * size_of::<u64>(), self.sets.len() * WAY_COUNT)?;
        for _ in 0..count {
            let (place, end) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            let set = decoder.some(self.sets.get(place / WAY_COUNT), "an end out of place")?;
            set.0[place % WAY_COUNT].store(end, Relaxed);
        }
        self.recent.restore(decoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Side::{First, Second};

    const SECOND_NS: i64 = 1_000_000_000;

    fn fin(number: u32) -> End {
        End { is_rst: false, number }
    }

    fn rst(number: u32) -> End {
        End { is_rst: true, number }
    }

    fn hash(seed: u64) -> u64 {
        let word = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    /// Both sides of a connection have sent a FIN, in the second 0.
    fn closed(ends: &RecentEnds, hash: u64) {
        ends.put(hash, First, fin(1_000), 0);
        ends.put(hash, Second, fin(5_000), 0);
    }

    /// As above, with numbers that follow from the hash.
    fn closed_anywhere(ends: &RecentEnds, hash: u64) {
        ends.put(hash, First, fin(hash as u32), 0);
        ends.put(hash, Second, fin((hash >> 7) as u32), 0);
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
            assert_eq!(ends.goes_on(hash(1), First, number, 90 * SECOND_NS), goes_on, "{number}");
        }
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        assert!(ends.goes_on(hash(1), First, 999u32.wrapping_sub(LATE_SIZE), 0), "far behind");
        assert!(!ends.goes_on(hash(1), Second, 5_000, 0) && ends.goes_on(hash(1), Second, 5_001, 0));
        assert!(!ends.goes_on(hash(2), First, 77, 0), "of another connection nothing is known");
    }

    #[test]
    fn a_connection_with_one_end_is_quiet_but_for_a_rst() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), First, fin(1_000), 0);
        assert!(ends.is_quiet(hash(1)));
        ends.put(hash(2), First, rst(1_000), 0);
        assert!(!ends.is_quiet(hash(2)));
    }

    #[test]
    fn behind_a_rst_packets_come_late_for_two_seconds() {
        let ends = RecentEnds::new(64);
        ends.put(hash(1), First, rst(1_000), 0);
        assert!(!ends.goes_on(hash(1), First, 900, SECOND_NS) && !ends.goes_on(hash(1), First, 1_000, 2 * SECOND_NS));
        assert!(ends.goes_on(hash(1), First, 1_000, 3 * SECOND_NS));
        ends.put(hash(2), First, rst(1_000), 0);
        assert!(ends.goes_on(hash(2), First, 1_001, 0));
    }

    #[test]
    fn life_is_reported_once_a_second() {
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        let reported = (0..1_000).filter(|at| ends.goes_on(hash(1), First, 2_000 + *at as u32, at * SECOND_NS / 100));
        let count = reported.count();
        assert!((8..=12).contains(&count), "{count} in ten seconds");
    }

    #[test]
    fn forged_ends_do_not_take_the_place_of_true_ones() {
        let ends = RecentEnds::new(64);
        closed(&ends, hash(1));
        ends.put(hash(1), First, fin(3_000_000_000), 0);
        assert!(!ends.goes_on(hash(1), First, 1_000, 0), "the last acknowledgement of the true end");
        assert!(ends.goes_on(hash(1), First, 1_000_000_000, 0));
        // After life was seen, the next end is one again.
        ends.put(hash(1), First, fin(1_000_000_100), 0);
        assert!(!ends.goes_on(hash(1), First, 1_000_000_100, 0));
    }

    #[test]
    fn the_latest_ends_are_known_and_hardly_any_other_connection_is_taken_for_one() {
        let ends = RecentEnds::new(8_192);
        (0..100_000).for_each(|number| closed_anywhere(&ends, hash(number)));
        let goes_on = |hash: u64| ends.goes_on(hash, First, (hash as u32).wrapping_add(1_000), 0);
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
            let goes_on = |ends: &RecentEnds| ends.goes_on(hash(number), First, 1_001, SECOND_NS);
            assert_eq!(goes_on(&other), goes_on(&ends));
        }
        assert!(RecentEnds::new(64).restore(&mut Decoder::new(&bytes)).is_err());
    }
}
