//! Tables with arbitrary content: nothing panics, work is bounded, and what comes out maps to where it was found.

use super::*;
use crate::reconcile;

fn exercise<C: TableCell<Key = u64, Value = u64>>(layout: Layout, bytes: &[u8]) {
    let empty = table::<C>(layout);
    let filler = bytes.iter().copied().cycle().take(layout.cell_count() * C::SIZE).collect::<Vec<u8>>();
    let bytes = if bytes.is_empty() { vec![0; layout.cell_count() * C::SIZE] } else { filler };
    let table = Table::<C>::from_bytes(layout, empty.hash().clone(), &bytes).unwrap();
    for rule in [Rule::Aggregates, Rule::SingleValued] {
        let listing = table.listing(rule);
        assert!(listing.inserted.len() + listing.deleted.len() <= layout.cell_count());
        assert!(listing.inserted.iter().chain(&listing.deleted).all(|entry| entry.count != 0));
    }
    let known: Vec<(u64, u64)> = (0..40).map(|at| (mixed(at), at)).collect();
    let _ = table.clone().list_knowing(&known, Rule::Aggregates);
    let _ = reconcile(&table, &known);
    known.iter().for_each(|(key, _)| _ = table.get(key));
    let _ = (table.estimated_count(), table.residue());
    let mut twice = table.clone();
    twice.merge(&table).unwrap();
    twice.subtract(&table).unwrap();
    assert_eq!(twice, table);
    assert_eq!(table.to_bytes(), bytes);
}

fn exercise_all(layout: Layout, bytes: &[u8]) {
    exercise::<Sums<u64, u64>>(layout, bytes);
    exercise::<CheckedCell<u64>>(layout, bytes);
    exercise::<crate::PlainCell<u64>>(layout, bytes);
    exercise::<Sums<u64, u64, i8, u16, (ValueCheck, Squares)>>(layout, bytes);
    exercise::<Sums<u64, u64, (), u64, ValueCheck, Xoring>>(layout, bytes);
    exercise::<Sums<u64, u64, i64, (), (), Xoring>>(layout, bytes);
}

proptest! {
    #[test]
    fn any_content_without_a_subtable_is_survived(
        hash_count in 3u32..6, lost in 0u32..3, cells in 0u32..40, bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let layout = subtables(hash_count, cells).without(lost).unwrap();
        let table = table::<CheckedCell<u64>>(layout);
        let bytes: Vec<u8> = bytes.into_iter().chain(std::iter::repeat(7)).take(table.to_bytes().len()).collect();
        let mut table = Table::<CheckedCell<u64>>::from_bytes(layout, table.hash().clone(), &bytes).unwrap();
        // What stood in the lost subtable is not read.
        let range = layout.subtable(lost).unwrap();
        prop_assert!(table.cells()[range].iter().all(TableCell::is_zero));
        let listed = table.peel(Rule::Aggregates, |_| ());
        prop_assert!(listed <= layout.cell_count());
        let _ = (table.get(&1), table.estimated_count());
    }

    #[test]
    fn any_content_is_survived(layout in layouts(0..40), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        exercise_all(layout, &bytes);
    }

    #[test]
    fn small_numbers_everywhere_are_survived(
        layout in layouts(0..40),
        bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), Just(2), Just(254)], 1..400),
    ) {
        exercise_all(layout, &bytes);
    }
}

#[test]
fn extreme_counts_and_layouts_are_survived() {
    for (placement, cells) in [
        (Placement::Subtables { hash_count: 0 }, 0),
        (Placement::Subtables { hash_count: u32::MAX }, 3),
        (Placement::Distinct { hash_count: 24 }, 24),
        (Placement::Coupled { hash_count: 9, segment_count: 0, half_ends: true }, 0),
        (Placement::Irregular(Degrees::FEW), 0),
    ] {
        let layout = Layout::new(placement, cells);
        for byte in [0x00, 0x80, 0x7f, 0xff] {
            exercise_all(layout, &[byte]);
        }
        let mut table = table::<Sums<u64, u64, i64, u64>>(layout);
        for count in [i64::MIN, i64::MAX, i64::MIN + 1, 0] {
            table.update(&1, 2, count);
            let _ = table.listing(Rule::Aggregates);
            let _ = table.get(&1);
        }
    }
}
