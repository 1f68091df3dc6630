//! The ring against a queue in which records in the middle end too.

use super::super::half_open::{MarkedRing, RecordDraft, RingCounts, RingRoom, Rings};
use super::*;
use crate::flow::{FlowKey, Side};
use crate::handover::ISN_BITS;
use crate::signal::SYN_TIMEOUT_MAX_TICKS;
use crate::track::{ConnectionState, FilterSlot};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A key's number and its VLAN tags, a pause, how long before the start was, whether it was answered, and its short
/// ISN.
fn record() -> impl Strategy<Value = (u32, u32, u64, u64, bool, u32)> {
    (0u32..1_000, 0u32..4, 0u64..50, 0..=SYN_TIMEOUT_MAX_TICKS, any::<bool>(), 0u32..1 << ISN_BITS)
}

/// The numbered key, with VLAN tags or without.
fn key(number: u32, tags: u32) -> AnyKey {
    let vlan = (0..tags.saturating_sub(1)).fold(VlanTags::NONE, |vlan, tag| vlan.with(tag as u16 + 7));
    match any_key(number) {
        AnyKey::V4(key) => AnyKey::V4(KeyV4::new(key.ends()[0], key.ends()[1], vlan)),
        AnyKey::V6(key) => AnyKey::V6(KeyV6::new(key.ends()[0], key.ends()[1], vlan)),
    }
}

/// A record that is of use, as it was written, with the slot of its entry and its own place.
struct Written {
    half_open: HalfOpen,
    slot: FilterSlot,
    place: u32,
    size: usize,
}

/// Writes a record once there is room for it, and returns its place and its size.
fn push<K: FlowKey>(
    rings: &mut Rings,
    draft: &RecordDraft<K>,
    slot: FilterSlot,
    queue: &mut VecDeque<Written>,
) -> (u32, usize) {
    make_room(&mut rings.half_open, draft.size(), queue);
    let spot = rings.half_open.next_spot();
    rings.half_open.push(draft, spot, slot);
    (spot.place, draft.size())
}

/// Makes room as a tracker does.
fn make_room(ring: &mut MarkedRing, size: usize, queue: &mut VecDeque<Written>) {
    loop {
        match ring.room(size) {
            RingRoom::Enough => return,
            RingRoom::Compact => ring.compact(|slot, place| {
                queue.iter_mut().find(|written| written.slot == slot).expect("it is of use").place = place;
            }),
            RingRoom::Full => {
                let (useful, all) =
                    (queue.iter().map(|written| written.size).sum::<usize>(), 3 * ring.connection_count());
                assert!(useful + size + all / 4 >= all, "{useful} of {all} are of use, and some have to go for {size}");
                let (oldest, behind) = ring.after(ring.start()).expect("it is full");
                let is_useful = queue.front().is_some_and(|front| front.slot == ring.slot(oldest));
                ring.skip_to(behind, if is_useful { oldest.size() } else { 0 });
                if is_useful {
                    queue.pop_front();
                }
            }
        }
    }
}

proptest! {
    /// Time starts where the ring's 31 bits of it are about to wrap.
    #[test]
    fn the_ring_is_a_queue(
        connection_count in 0usize..1_000,
        records in prop::collection::vec((record(), prop::option::weighted(0.6, any::<prop::sample::Index>())), 1..3_000),
    ) {
        let mut rings = Rings::new(RingCounts { half_open: connection_count, candidates: 0, presumed: 0 });
        let mut queue: VecDeque<Written> = VecDeque::new();
        let mut now = (1 << 31) - 200;
        for (at, ((number, tags, pause, delay, answered, initial), ended)) in records.into_iter().enumerate() {
            now += pause;
            let key = key(number, tags);
            let state = if answered { ConnectionState::AnsweredUnseen } else { ConnectionState::SynSent };
            let start_tick = now - delay;
            let entry = FilterEntry { fingerprint: 0, state, client: Side::First, tick: FilterEntry::tick_of(start_tick), short_isn: initial };
            let slot = FilterSlot::from_bits(at as u32);
            let (place, size) = match key {
                AnyKey::V4(key) => push(&mut rings, &RecordDraft::new(key, &entry, now), slot, &mut queue),
                AnyKey::V6(key) => push(&mut rings, &RecordDraft::new(key, &entry, now), slot, &mut queue),
            };
            let half_open = HalfOpen { key, start_tick, since_tick: now, answered, short_isn: initial };
            queue.push_back(Written { half_open, slot, place, size });
            prop_assert_eq!(rings.with_tick(FilterEntry { tick: place, ..entry }), entry);
            if let Some(ended) = ended {
                let ended = queue.remove(ended.index(queue.len())).expect("it is within the queue");
                rings.end(&FilterEntry { tick: ended.place, ..entry });
            }
            if at % 100 == 0 {
                // It has just as much room as the ring.
                let mut list = HalfOpenList::new(connection_count);
                rings.half_open.copy_to(&mut list);
                let mut expected: Vec<HalfOpen> = queue.iter().map(|written| written.half_open).collect();
                let mut listed: Vec<HalfOpen> = list.iter(now).collect();
                expected.sort_unstable();
                listed.sort_unstable();
                prop_assert_eq!(&listed, &expected);
                list.clear();
                prop_assert!(list.is_empty() && list.iter(now).next().is_none());
            }
        }
    }
}
