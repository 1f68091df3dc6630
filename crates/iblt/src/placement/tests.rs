//! Places stay within their range, and placements list as many keys as is documented.

use super::*;
use crate::hash::mixed;
use proptest::prelude::*;

fn placements() -> impl Strategy<Value = Placement> {
    prop_oneof![
        any::<u32>().prop_map(|hash_count| Placement::Subtables { hash_count }),
        (0u32..30).prop_map(|hash_count| Placement::Subtables { hash_count }),
        (0u32..30).prop_map(|hash_count| Placement::Distinct { hash_count }),
        (0u32..30, 0u32..300, any::<bool>()).prop_map(|(hash_count, segment_count, half_ends)| Placement::Coupled {
            hash_count,
            segment_count,
            half_ends
        }),
        prop::collection::vec((1u8..=24, 0u16..9), 1..=3)
            .prop_filter_map("nothing is shared out", |shares| Degrees::new(&shares).map(Placement::Irregular)),
        prop::collection::vec((1u8..=24, 0u16..9), 1..=3)
            .prop_filter_map("nothing is shared out", |shares| Degrees::new(&shares).map(Placement::Chosen)),
    ]
}

proptest! {
    #[test]
    fn places_are_distinct_and_inside(placement in placements(), cells in 0u32..5_000, hash in any::<u128>()) {
        let layout = Layout::new(placement, cells);
        let places = layout.places(hash);
        prop_assert!(!places.is_empty() && places.len() <= layout.placement().degree_max());
        prop_assert!(places.iter().all(|&place| (place as usize) < layout.cell_count()));
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(sorted.len(), places.len());
        prop_assert!(layout.cell_count() == cells as usize || cells < 600);
    }

    #[test]
    fn subtables_split_the_cells_and_each_has_one_place(hash_count in 2u32..=24, cells in 24u32..5_000, hash in any::<u128>()) {
        let layout = Layout::new(Placement::Subtables { hash_count }, cells);
        let mut end = 0;
        for (at, &place) in (0..).zip(layout.places(hash).iter()) {
            let range = layout.subtable(at).unwrap();
            prop_assert_eq!(range.start, end);
            end = range.end;
            prop_assert!(range.contains(&(place as usize)));
        }
        prop_assert_eq!(end, cells as usize);
        prop_assert_eq!(layout.subtable(hash_count), None);
        let without = layout.without(1).unwrap();
        let places: Vec<u32> = layout.places(hash).iter().copied().enumerate().filter(|at| at.0 != 1).map(|at| at.1).collect();
        prop_assert_eq!(without.places(hash).to_vec(), places);
    }

    #[test]
    fn segments_split_the_cells(hash in any::<u64>(), cells in 600u32..100_000, segment_count in 4u32..300, half_ends: bool) {
        let layout = Layout::new(Placement::Coupled { hash_count: 4, segment_count, half_ends }, cells);
        let size = f64::from(cells) / f64::from(segment_count - u32::from(half_ends));
        let places = layout.places(u128::from(hash)).to_vec();
        // Neighbouring segments: each place is within a segment of the one before.
        prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1] && f64::from(pair[1] - pair[0]) < 2.0 * size + 2.0));
    }
}

#[test]
fn every_cell_is_used_equally_where_it_should_be() {
    for placement in [
        Placement::Subtables { hash_count: 5 },
        Placement::Distinct { hash_count: 4 },
        Placement::Irregular(Degrees::FEW),
        Placement::Irregular(Degrees::MANY),
    ] {
        let layout = Layout::new(placement, 500);
        let mut counts = vec![0u32; 500];
        let keys = 40_000;
        (0..keys)
            .for_each(|key| layout.places(mixed(key).into()).iter().for_each(|&place| counts[place as usize] += 1));
        let mean = keys as f64 * placement.degree_mean() / 500.0;
        let off = counts.iter().map(|&count| (f64::from(count) - mean).abs() / mean.sqrt()).fold(0.0, f64::max);
        assert!(off < 4.5, "{placement}: {off}");
    }
}

#[test]
fn wrong_degrees_are_refused() {
    assert_eq!(Degrees::new(&[]), None);
    assert_eq!(Degrees::new(&[(3, 0)]), None);
    assert_eq!(Degrees::new(&[(0, 1)]), None);
    assert_eq!(Degrees::new(&[(25, 1)]), None);
    assert_eq!(Degrees::new(&[(3, 1); 4]), None);
    assert_eq!(Degrees::new(&[(3, 700), (4, 200), (21, 100)]), Some(Degrees::FEW));
}

fn failures(placement: Placement, item_count: u32, per_item: f64, trial_count: u64) -> u64 {
    let cell_count = (f64::from(item_count) * per_item) as u32;
    Simulation { placement, item_count, cell_count, trial_count, seed: 1 }.run().failure_count
}

#[test]
fn the_best_placements_list_in_all_but_a_thousandth_with_few_cells() {
    for (items, per_item, trials, failed_max) in
        [(1_000, 1.29, 10_000, 10), (10_000, 1.14, 1_000, 2), (100_000, 1.11, 60, 0), (1_000_000, 1.07, 6, 0)]
    {
        let plan = plan(u64::from(items), 0.001);
        assert!(f64::from(plan.cell_count) <= per_item * f64::from(items), "{plan:?}");
        let failed = failures(plan.placement, items, per_item, trials);
        assert!(failed <= failed_max, "{failed} of {trials} at {items}");
    }
}

#[test]
#[ignore = "the same at full size takes minutes"]
fn the_best_placements_at_full_size() {
    for (items, per_item, trials, failed_max) in
        [(1_000, 1.29, 20_000, 20), (10_000, 1.14, 4_000, 4), (100_000, 1.11, 2_000, 2), (1_000_000, 1.07, 200, 0)]
    {
        let failed = failures(plan(u64::from(items), 0.001).placement, items, per_item, trials);
        println!("{items} items, {per_item} cells each: {failed} of {trials} failed");
        assert!(failed <= failed_max, "{failed} of {trials} at {items}");
    }
}

#[test]
fn plans_hold_between_what_was_measured_too() {
    for (item_count, failure, trials) in [
        (1, 0.01, 20_000),
        (7, 0.001, 40_000),
        (30, 0.001, 40_000),
        (75, 0.01, 20_000),
        (100, 0.001, 40_000),
        (150, 0.0001, 100_000),
        (700, 0.001, 10_000),
        (3_500, 0.01, 2_000),
        (30_000, 0.01, 200),
    ] {
        for plan in [plan(item_count, failure), Plan::with_subtables(item_count, failure)] {
            let Plan { placement, cell_count, .. } = plan;
            let simulation =
                Simulation { placement, item_count: item_count as u32, cell_count, trial_count: trials, seed: 3 };
            // Twice what was asked for, and three standard deviations of so few trials.
            let expected = failure * trials as f64;
            let failed = simulation.run().failure_count as f64;
            assert!(failed <= 1.5 * expected + 3.0 * expected.sqrt(), "{failed} of {trials}: {plan:?}");
        }
    }
}

#[test]
fn plans_grow_with_the_items_and_with_the_certainty() {
    let mut cells = 0;
    for items in [0, 1, 10, 99, 100, 101, 1_000, 10_000, 100_000, 1_000_000, 100_000_000] {
        let next = plan(items, 0.001).cell_count;
        assert!(next >= cells);
        cells = next;
        let certain: Vec<u32> =
            [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-6, 0.0].map(|failure| plan(items, failure).cell_count).into();
        assert!(certain.is_sorted());
    }
    assert!(plan(u64::MAX, 0.01).failure >= 1.0);
    assert_eq!(plan(1_000, 0.001).placement, Placement::Irregular(Degrees::FEW));
    assert!(Plan::with(Placement::Irregular(Degrees::FEW), 10, 0.01).is_none());
    assert!(Plan::with(Placement::Distinct { hash_count: 11 }, 10, 0.01).is_none());
}

#[test]
fn thresholds_are_those_of_the_theory() {
    // Just below nearly no table lists, just above nearly all.
    for (hash_count, threshold) in [(3, 1.2218), (4, 1.2949), (5, 1.4250), (6, 1.5697), (7, 1.7189)] {
        let placement = Placement::Subtables { hash_count };
        assert_eq!(failures(placement, 50_000, threshold - 0.015, 4), 4);
        assert_eq!(failures(placement, 50_000, threshold + 0.015, 4), 0);
    }
}
