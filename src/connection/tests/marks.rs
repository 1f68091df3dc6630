//! What the young ring knows of its records, against a look at each.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A half-open connection: its key, when it started and came into its state, whether it was answered, and its number.
type Told = (AnyKey, u64, u64, bool, u32);

/// What is half-open by the filter, by the marks, and by the marks again when those that are over have been taken off; each once.
fn three_times(scene: &mut Scene) -> [BTreeSet<Told>; 3] {
    let writes: [fn(&mut Tracker, &mut HalfOpenRing); 3] =
        [|tracker, copy| tracker.copy_looked_up(copy), Tracker::copy_half_open, Tracker::copy_half_open];
    writes.map(|write| {
        let mut copy = HalfOpenRing::new(1 << 12);
        write(&mut scene.tracker, &mut copy);
        let told = |record: HalfOpen| {
            let HalfOpen { key, start_tick, since_tick, answered, number } = record;
            (key, start_tick, since_tick, answered, number)
        };
        copy.iter(scene.tick).map(told).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// So few connections and so little room that everything happens: repeats, answers, evictions, floods and timeouts.
    #[test]
    fn marks_are_what_a_look_finds(
        half_open_count in prop::sample::select(vec![4usize, 16, 60, 300, 2_000]),
        bucket_count in prop::sample::select(vec![1usize, 3, 40, 400]),
        connection_count in prop::sample::select(vec![5u32, 40, 600]),
        limits in prop::sample::select(vec![(0u64, 0usize), (3, 20), (1 << 20, 0), (1 << 20, 20)]),
        look_interval in prop::sample::select(vec![16usize, 300, 10_000]),
        packets in prop::collection::vec((any::<u32>(), 0usize..40, any::<bool>(), 0u32..3), 1..1_500),
    ) {
        let (connections_max, candidate_count) = limits;
        let place_count = 7 * bucket_count;
        let config = TrackerConfig { half_open_count, place_count, connections_max, candidate_count, ..config() };
        let mut scene = Scene::new(config);
        for (at, (connection, kind, from_client, number)) in packets.into_iter().enumerate() {
            let kinds = [Kind::SynAck, Kind::Completes, Kind::Ack, Kind::Fin, Kind::Rst];
            let sender = if from_client { Sender::Client } else { Sender::Server };
            match kind {
                0 => scene.pass(u64::from(number)),
                1 => scene.pass(SYN_TIMEOUT_TICKS / 2),
                2..25 => drop(scene.send(any_key(connection % connection_count), sender, Kind::Syn, number)),
                _ => drop(scene.send(any_key(connection % connection_count), sender, kinds[kind % 5], number)),
            }
            if at % look_interval == 0 {
                let [looked_up, marked, again] = three_times(&mut scene);
                prop_assert_eq!((&marked, &again), (&looked_up, &looked_up));
            }
        }
        let [looked_up, marked, again] = three_times(&mut scene);
        prop_assert_eq!((&marked, &again), (&looked_up, &looked_up));
    }
}

#[test]
fn of_steady_traffic_hardly_any_record_is_looked_up() {
    let mut scene = Scene::new(TrackerConfig { half_open_count: 2_048, place_count: 7 * 4_096, ..config() });
    for number in 0..20_000 {
        scene.play(v4(number), "S");
        if let Some(answered) = number.checked_sub(100) {
            scene.play(v4(answered), "a");
        }
        if let Some(completed) = number.checked_sub(200) {
            scene.play(v4(completed), "DR");
        }
        if number % 500 == 0 {
            scene.pass(1);
        }
        if number % 1_000 == 999 {
            let [looked_up, marked, again] = three_times(&mut scene);
            assert_eq!((&marked, &again), (&looked_up, &looked_up));
            assert_eq!(marked.len(), 200);
            assert!(scene.tracker.doubtful_count() < 64, "{} of 1,024", scene.tracker.doubtful_count());
        }
    }
}

#[test]
fn what_was_restored_is_looked_up() {
    let config = TrackerConfig { half_open_count: 500, ..config() };
    let mut scene = Scene::new(config.clone());
    (0..1_000).for_each(|number| drop(scene.play(any_key(number), ["S", "Sa", "SaD", "Sr"][number as usize % 4])));
    let mut encoder = crate::state::Encoder::default();
    scene.tracker.save(&mut encoder);
    let before = three_times(&mut scene);
    scene.tracker = Tracker::new(config);
    scene.tracker.restore(&mut crate::state::Decoder::new(&encoder.into_bytes())).expect("it fits");
    assert_eq!(three_times(&mut scene), before);
    assert!(scene.tracker.doubtful_count() > 50);
}

/// A client that nobody answers stands in the old ring for as long as others come and go.
#[test]
fn what_is_over_is_looked_up_once() {
    let config = TrackerConfig { half_open_count: 200, place_count: 7 * 400, ..config() };
    let mut scene = Scene::new(config);
    (0..40).for_each(|number| drop(scene.play(any_key(number), "S")));
    // The young ring has room for a hundred of IPv4.
    (100..210).for_each(|number| drop(scene.play(v4(number), "S")));
    (0..30).for_each(|number| drop(scene.play(any_key(number), "aD")));
    assert!(scene.tracker.old_count() >= 40);
    let [looked_up, marked, again] = three_times(&mut scene);
    assert_eq!((&marked, &again), (&looked_up, &looked_up));
    assert_eq!(marked.iter().filter(|told| (0..40).any(|number| told.0 == any_key(number))).count(), 10);
    let still = scene.tracker.old_count();
    (100..210).for_each(|number| drop(scene.play(v4(number), "r")));
    three_times(&mut scene);
    assert_eq!((still > 10, scene.tracker.old_count()), (true, 10));
}
