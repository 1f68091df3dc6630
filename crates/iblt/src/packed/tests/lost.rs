//! Tables of which subtables are lost: what the others list comes out, and nothing else.

use super::*;
use crate::word_key::examples::{FiveWords, TwoWords};
use crate::{Batch, HASH_COUNT, Refused};

/// Every set of lost subtables that leaves one.
fn losses() -> impl Iterator<Item = Vec<usize>> {
    (0..(1 << HASH_COUNT) - 1).map(|mask: usize| (0..HASH_COUNT).filter(|at| mask >> at & 1 == 1).collect())
}

fn what_is_left_lists<K: TableKey>(ops: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    let map = map_of(&site, ops);
    for lost in losses() {
        check_listing_without(&site, &map, geometry, &lost);
    }
}

#[test]
fn a_table_lists_whole_without_any_one_of_its_subtables() {
    let site = Site::<TwoWords>::new();
    let ops: Vec<Op> = (0..2_000).map(|key| Op { key, payload: mixed(key) as u32, is_insert: key % 3 != 0 }).collect();
    let map = map_of(&site, &ops);
    for lost in 0..HASH_COUNT {
        let mut table = site.encode(&map, Geometry::for_items(2_600));
        let surplus = table.surplus();
        table.lose_subtable(lost).unwrap();
        assert_eq!(table.surplus(), surplus);
        assert!((1_700..2_300).contains(&table.estimated_count()), "{} of 2000", table.estimated_count());
        let peeled = site.peel(&mut table);
        assert!(table.is_zero() && peeled.len() == 2_000 && peeled.iter().all(|peeled| peeled.value_known));
        assert_eq!(table.estimated_count(), 0);
    }
}

#[test]
fn the_last_subtable_cannot_be_lost() {
    let site = Site::<TwoWords>::new();
    let mut table = site.encode(&map_of(&site, &[Op { key: 1, payload: 2, is_insert: true }]), Geometry::new(7));
    assert_eq!(table.lose_subtable(HASH_COUNT), Err(Refused::Subtable));
    (0..3).for_each(|at| table.lose_subtable(at).unwrap());
    let before = table.clone();
    assert_eq!(table.lose_subtable(3), Err(Refused::Subtable));
    let mut other = Iblt::new(Geometry::new(7));
    other.lose_subtable(3).unwrap();
    assert_eq!((table.merge(&other), table.subtract(&other)), (Err(Refused::Subtable), Err(Refused::Subtable)));
    assert!(table == before && site.peel(&mut table).len() == 1);
    assert_eq!(Iblt::<TwoWords>::from_subtables(Geometry::new(7), &Default::default()), Err(Refused::Subtable));
}

/// The table after the loss of these subtables.
fn without<K: TableKey>(table: &Iblt<K>, lost: &[usize]) -> Iblt<K> {
    let mut table = table.clone();
    lost.iter().for_each(|at| table.lose_subtable(*at).unwrap());
    table
}

/// A loss before the updates, one after them and one of the file are the same.
fn a_loss_can_come_at_any_time<K: TableKey>(ops: &[Op], others: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    let (whole, other) = (table_of(&site, ops, geometry), table_of(&site, others, geometry));
    for lost in losses() {
        let without = |table: &Iblt<K>| without(table, &lost);
        let mut early = without(&Iblt::new(geometry));
        ops.iter().for_each(|op| early.apply_one(&site.change(*op)));
        assert!(early == without(&whole));
        let mut batched = without(&Iblt::new(geometry));
        let mut batch = Batch::new(&Secret::REPLAY);
        for op in ops {
            if batch.push(key::<K>(op.key), op.payload, op.is_insert) {
                batch.step_into(&mut batched);
            }
        }
        while !batch.is_idle() {
            batch.step_into(&mut batched);
        }
        assert!(batched == early);
        let subtables = std::array::from_fn(|at| {
            let mut bytes = Vec::new();
            let put = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok::<(), ()>(())
            };
            whole.write_subtable(at, put).unwrap();
            let mut rest = bytes.as_slice();
            let read = Iblt::<K>::read_subtable(geometry, |piece| {
                let (taken, left) = rest.split_at(piece.len());
                piece.copy_from_slice(taken);
                rest = left;
                Ok::<(), ()>(())
            });
            (!lost.contains(&at)).then(|| read.unwrap())
        });
        assert!(Iblt::from_subtables(geometry, &subtables).unwrap() == early);
        let both = |one: &Iblt<K>, another: &Iblt<K>| {
            let mut sum = one.clone();
            sum.merge(another).unwrap();
            sum
        };
        let expected = without(&both(&whole, &other));
        assert!(both(&early, &other) == expected && both(&other, &early) == expected);
        let mut back = expected;
        back.subtract(&other).unwrap();
        assert!(back == early);
        assert!(geometry.folded(3).is_none() || early.folded(3) == Some(without(&whole.folded(3).unwrap())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_left_lists_as_the_oracle_says(ops in ops(40, 0..120), subtable_cell_count in 1u32..60) {
        what_is_left_lists::<TwoWords>(&ops, Geometry::new(subtable_cell_count));
        what_is_left_lists::<FiveWords>(&ops, Geometry::new(subtable_cell_count));
    }

    #[test]
    fn when_it_is_lost_does_not_matter(ops in ops(40, 0..80), others in ops(40, 0..80), subtable_cell_count in 1u32..60) {
        a_loss_can_come_at_any_time::<TwoWords>(&ops, &others, Geometry::new(subtable_cell_count));
        a_loss_can_come_at_any_time::<FiveWords>(&ops, &others, Geometry::new(subtable_cell_count));
    }
}
