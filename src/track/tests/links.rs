//! Entries of the filter and records of the rings name each other.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A half-open connection: its key, when it started and came into its state, whether it was answered, and its short
/// ISN.
type Shown = (AnyKey, u64, u64, bool, u32);

/// The half-open connections by the rings' marks, and by a look-up in the filter for each record's key; each connection
/// once.
fn both_ways(scene: &Scene) -> [BTreeSet<Shown>; 2] {
    let shown = |record: HalfOpen| {
        let HalfOpen { key, start_tick, since_tick, answered, short_isn } = record;
        (key, start_tick, since_tick, answered, short_isn)
    };
    let (mut marked, mut looked_up) = (HalfOpenList::new(1 << 12), HalfOpenList::new(1 << 12));
    scene.tracker.list_half_open(&mut marked);
    scene.tracker.list_looked_up(&mut looked_up);
    let marked_count = marked.iter(scene.tick).count();
    let sets = [marked, looked_up].map(|copy| copy.iter(scene.tick).map(shown).collect::<BTreeSet<Shown>>());
    assert_eq!(marked_count, sets[0].len(), "each connection has one record that is of use");
    sets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// So few connections and so little room that everything happens: retransmissions, answers, moves, evictions,
    /// floods and timeouts.
    #[test]
    fn records_are_what_a_look_finds(
        half_open_count in prop::sample::select(vec![4usize, 16, 60, 300, 2_000]),
        bucket_count in prop::sample::select(vec![1usize, 3, 40, 400]),
        connection_count in prop::sample::select(vec![5u32, 40, 600]),
        limits in prop::sample::select(vec![(0u64, 0usize), (3, 20), (1 << 20, 0), (1 << 20, 20)]),
        one_way_max in prop::sample::select(vec![0u64, 3, 1 << 20]),
        packets in prop::collection::vec((any::<u32>(), 0usize..40, any::<bool>(), 0u32..3), 1..1_500),
    ) {
        let (connections_max, candidate_count) = limits;
        let place_count = 7 * bucket_count;
        let limits = TrackerConfig { connections_max, candidate_count, one_way_max, ..config() };
        let mut scene = Scene::new(TrackerConfig { half_open_count, place_count, ..limits });
        for (at, (connection, kind, from_client, isn)) in packets.into_iter().enumerate() {
            let kinds = [SignalKind::SynAck, SignalKind::Completes, SignalKind::Ack, SignalKind::Fin, SignalKind::Rst];
            let sender = if from_client { Sender::Client } else { Sender::Server };
            match kind {
                0 => scene.pass(u64::from(isn)),
                1 => scene.pass(SYN_TIMEOUT_TICKS / 2),
                2..25 => drop(scene.send(any_key(connection % connection_count), sender, SignalKind::Syn, isn)),
                _ => drop(scene.send(any_key(connection % connection_count), sender, kinds[kind % 5], isn)),
            }
            if at % 16 == 0 {
                scene.tracker.check_links();
                let [marked, looked_up] = both_ways(&scene);
                prop_assert_eq!(marked, looked_up);
            }
        }
        scene.tracker.check_links();
        let [marked, looked_up] = both_ways(&scene);
        prop_assert_eq!(marked, looked_up);
    }
}

#[test]
fn what_is_restored_is_what_was_saved() {
    let config = TrackerConfig { half_open_count: 500, ..config() };
    let mut scene = Scene::new(config.clone());
    (0..1_000).for_each(|number| drop(scene.play(any_key(number), ["S", "Sa", "SaD", "Sr"][number as usize % 4])));
    let mut encoder = crate::state::Encoder::default();
    scene.tracker.save(&mut encoder);
    let before = both_ways(&scene);
    assert!(before[0].len() > 100);
    scene.tracker = Tracker::new(config);
    scene.tracker.restore(&mut crate::state::Decoder::new(&encoder.into_bytes())).expect("it fits");
    scene.tracker.check_links();
    assert_eq!(both_ways(&scene), before);
}

/// The record of a client without an answer stays in the ring while far more others come and go than the ring has room
/// for.
#[test]
fn what_is_over_leaves_its_place_to_others() {
    let config = TrackerConfig { half_open_count: 200, place_count: 7 * 400, ..config() };
    let mut scene = Scene::new(config);
    (0..40).for_each(|number| drop(scene.play(v4(number), "S")));
    (0..30).for_each(|number| drop(scene.play(v4(number), "aD")));
    for number in 100..2_000 {
        scene.play(v4(number), "SaDFf");
    }
    scene.tracker.check_links();
    let [marked, _] = both_ways(&scene);
    assert_eq!(marked.iter().map(|shown| shown.0).collect::<BTreeSet<_>>(), (30..40).map(v4).collect());
}
