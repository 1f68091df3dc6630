//! Tables that no honest site could have filled: peeling them ends, and neither invents nor loses anything.

use super::*;
use crate::PackedCell;
use crate::word_key::examples::{FiveWords, TwoWords};

/// A change with arbitrary fields; `lie` says which of them are what an honest site would write.
#[derive(Clone, Debug)]
struct Hostile {
    words: [u64; 5],
    hash: u128,
    count: i32,
    value: u64,
    lie: u8,
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let words = prop_oneof![any::<[u64; 5]>(), prop::array::uniform5(0u64..3)];
    let count = prop_oneof![-4i32..=4, any::<i32>()];
    (words, any::<u128>(), count, any::<u64>(), 0u8..5).prop_map(|(words, hash, count, value, lie)| Hostile {
        words,
        hash,
        count,
        value,
        lie,
    })
}

/// The bits of a hash that choose cells; those above are the check.
const PLACES_MASK: u128 = (1 << 96) - 1;

impl Hostile {
    fn change<K: TableKey>(&self, site: &Site<K>) -> Change<K> {
        let key = K::from_words(&self.words);
        let honest = site.placement.of(&key);
        let hash = match self.lie {
            0 => self.hash,
            // The right check at wrong cells, and the wrong check at the right ones.
            1 => honest & !PLACES_MASK | self.hash & PLACES_MASK,
            2 => honest & PLACES_MASK | self.hash & !PLACES_MASK,
            // Some cells of its own and some of others.
            3 => honest & !0xffff_ffff_ffff | self.hash & 0xffff_ffff_ffff,
            _ => honest,
        };
        Change { key, hash, count: self.count, value: self.value }
    }
}

fn survives<K: TableKey>(changes: &[Hostile], geometry: Geometry) {
    let site = Site::<K>::new();
    let mut table = Iblt::new(geometry);
    for change in changes {
        table.apply_one(&change.change(&site));
    }
    site.peel(&mut table);
    // What is left is as hostile as before: it must still be a table.
    site.peel(&mut table);
    table.clear_values();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_table_breaks_the_peeler(changes in prop::collection::vec(hostile(), 0..150), subtable_cell_count in 1u32..40) {
        survives::<TwoWords>(&changes, Geometry::new(subtable_cell_count));
        survives::<FiveWords>(&changes, Geometry::new(subtable_cell_count));
    }
}

/// A key that stands only in some of its cells comes out, appears with the other sign in the rest, comes out of there,
/// and so on forever: the bound on the keys taken out must end it.
fn a_half_placed_key_does_not_loop<K: TableKey>() {
    let site = Site::<K>::new();
    let geometry = Geometry::new(20);
    let key = key::<K>(1);
    let honest = site.placement.of(&key);
    let mut table = Iblt::new(geometry);
    table.apply_one(&Change { key, hash: honest ^ 1 << 47 ^ 1 << 23, count: 1, value: 9 });
    assert_eq!(site.peel(&mut table).len(), geometry.cell_count());
    assert!(!table.is_zero());
}

#[test]
fn peeling_always_ends() {
    a_half_placed_key_does_not_loop::<TwoWords>();
    a_half_placed_key_does_not_loop::<FiveWords>();
}

/// Cells that count as if a thousand tables had the key zero, with a check that is no key's: all lost bits would be
/// tried in each of them. What takes few tries comes out all the same.
#[test]
fn divisions_in_vain_end_and_leave_some_for_others() {
    let site = Site::<TwoWords>::new();
    let geometry = Geometry::new(600);
    // It stands behind as many such cells as there are tries for.
    let late = |key: &TwoWords| geometry.places(site.placement.of(key))[0] > 400;
    let mut honest = (0..).map(key::<TwoWords>).filter(late);
    let (many, few) = (honest.next().unwrap(), honest.next().unwrap());
    let places = |key: &TwoWords| geometry.places(site.placement.of(key));
    // Count and check as they stand in the encoding, before and behind a key and a value of zero.
    let mut bytes = [0; PackedCell::<TwoWords>::SIZE];
    bytes[..4].copy_from_slice(&1_024u32.to_le_bytes());
    bytes[28..].copy_from_slice(&1u32.to_le_bytes());
    let of_a_thousand_tables = PackedCell::read(&bytes);
    let mut cells = vec![of_a_thousand_tables; geometry.cell_count()];
    places(&many).into_iter().chain(places(&few)).for_each(|place| cells[place] = Default::default());
    let mut table = Iblt::from_cells(geometry, &cells).unwrap();
    for (key, count) in [(many, 1_024), (few, 512)] {
        table.apply_one(&Change { key, hash: site.placement.of(&key), count, value: 0 });
    }
    let mut taken = site.recipient();
    let mut peeler = Peeler::new(site.placement.clone(), table.geometry().cell_count()).for_sum_of(1_024);
    assert_eq!(peeler.peel(&mut table, &mut taken), 1);
    assert_eq!((taken.peeled[0].change.key, taken.peeled[0].change.count), (few, 512));
    // When what is left is peeled by itself, it comes out: it was missed because of the others.
    let mut alone = Iblt::new(geometry);
    alone.apply_one(&Change { key: many, hash: site.placement.of(&many), count: 1_024, value: 0 });
    assert_eq!(peeler.peel(&mut alone, &mut taken), 1);
    assert!(alone.is_zero() && taken.peeled[1].change.key == many);
}

/// More places to continue with at once than the work list holds: the peeler notes this and scans again.
fn a_peeler_made_for_less_is_slower_but_right<K: TableKey>() {
    let site = Site::<K>::new();
    let ops: Vec<Op> = (0..5_000).map(|key| Op { key, payload: 3, is_insert: true }).collect();
    let mut table = table_of(&site, &ops, Geometry::for_items(5_500));
    let mut taken = site.recipient();
    assert_eq!(Peeler::new(site.placement.clone(), 0).peel(&mut table, &mut taken), ops.len());
    assert!(table.is_zero());
}

#[test]
fn a_short_work_list_loses_nothing() {
    a_peeler_made_for_less_is_slower_but_right::<TwoWords>();
    a_peeler_made_for_less_is_slower_but_right::<FiveWords>();
}
