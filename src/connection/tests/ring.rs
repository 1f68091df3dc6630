//! The ring against a queue.

use super::super::{HalfOpenRing, INITIAL_NUMBER_BITS};
use super::*;
use crate::config::SYN_TIMEOUT_MAX_TICKS;
use proptest::prelude::*;
use std::collections::VecDeque;

fn record() -> impl Strategy<Value = (u32, u64, u64, bool, u32)> {
    (0u32..1_000, 0u64..50, 0..=SYN_TIMEOUT_MAX_TICKS, any::<bool>(), 0u32..1 << INITIAL_NUMBER_BITS)
}

fn skip_one(ring: &mut HalfOpenRing) {
    let (_, behind) = ring.after(ring.start()).expect("something is in it");
    ring.skip_to(behind);
}

proptest! {
    /// Time starts where the ring's 32 bits of it are about to wrap.
    #[test]
    fn the_ring_is_a_queue(
        connection_count in 0usize..40,
        records in prop::collection::vec(record(), 1..300),
        skips in prop::collection::vec(0usize..4, 300),
    ) {
        let mut ring = HalfOpenRing::new(connection_count);
        let mut queue = VecDeque::new();
        let mut now = (1 << 32) - 200;
        for ((number, pause, delay, answered, initial), skip) in records.into_iter().zip(skips) {
            now += pause;
            let skipped = queue.drain(..skip.min(queue.len())).count();
            (0..skipped).for_each(|_| skip_one(&mut ring));
            while !ring.has_room() {
                prop_assert!(queue.len() <= connection_count.max(2));
                queue.pop_front();
                skip_one(&mut ring);
            }
            let record = HalfOpen {
                key: any_key(number),
                start_tick: now - delay,
                since_tick: now,
                answered,
                number: initial,
            };
            ring.push(&record);
            queue.push_back(record);
            prop_assert_eq!(ring.iter(now).collect::<VecDeque<_>>(), queue.clone());
        }
        ring.clear();
        prop_assert!(ring.is_empty() && ring.has_room() && ring.iter(now).next().is_none());
    }
}
