//! Every operation of a general table, compared with a plain map of its contents.

mod changed;
mod encoding;
mod get;
mod hostile;
mod laws;
mod paper;
mod values;

use super::{
    CheckedCell, Got, Layout, Placement, Rule, Squares, Sums, Table, TableCell, ValueCheck, Values, XorCell, Xoring,
};
use crate::hash::Secret;
use crate::hash::mixed;
use crate::placement::Degrees;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a table holds: for every key its count, and its values with their signs (negative for removals).
type Map = BTreeMap<u64, (i64, u64)>;

/// One insertion or removal.
#[derive(Clone, Copy, Debug)]
struct Op {
    key: u64,
    value: u64,
    count: i64,
}

/// Updates of `key_count` keys with few values, so that counts grow and values cancel.
fn ops(key_count: u64, length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Op>> {
    let op = (0..key_count, 0u64..3, -3i64..=3);
    let op = op.prop_map(|(key, value, count)| Op { key: mixed(key), value: mixed(value ^ key << 8), count });
    prop::collection::vec(op, length)
}

fn placements() -> impl Strategy<Value = Placement> {
    prop_oneof![
        (2u32..8).prop_map(|hash_count| Placement::Subtables { hash_count }),
        (2u32..8).prop_map(|hash_count| Placement::Distinct { hash_count }),
        (3u32..6, 3u32..9, any::<bool>()).prop_map(|(hash_count, segment_count, half_ends)| Placement::Coupled {
            hash_count,
            segment_count,
            half_ends
        }),
        Just(Placement::Irregular(Degrees::FEW)),
        Just(Placement::Irregular(Degrees::MANY)),
        Just(Placement::Chosen(Degrees::FEW)),
    ]
}

fn layouts(cells: std::ops::Range<u32>) -> impl Strategy<Value = Layout> {
    (placements(), cells).prop_map(|(placement, cell_count)| Layout::new(placement, cell_count))
}

fn table<C: TableCell>(layout: Layout) -> Table<C> {
    Table::with_secret(layout, &Secret::REPLAY)
}

fn subtables(hash_count: u32, cell_count: u32) -> Layout {
    Layout::new(Placement::Subtables { hash_count }, cell_count)
}

/// Pairs with keys and values that use all bits.
fn pairs(range: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    range.map(|at| (mixed(at), mixed(!at))).collect()
}

fn filled<C: TableCell<Key = u64, Value = u64>>(layout: Layout, ops: &[Op]) -> Table<C> {
    let mut table = table(layout);
    ops.iter().for_each(|op| table.update(&op.key, op.value, op.count));
    table
}

fn map_of(ops: &[Op]) -> Map {
    let mut map = Map::new();
    for op in ops {
        let (count, sum) = map.entry(op.key).or_default();
        *count += op.count;
        *sum = sum.wrapping_add(op.value.wrapping_mul(op.count as u64));
    }
    map.retain(|_, part| *part != (0, 0));
    map
}

/// Lists the table and checks each entry against the map. Also checks that what was listed plus what is left is what
/// there was, up to sums of values. Returns the number of keys.
fn check_listing<C: TableCell<Key = u64, Value = u64>>(whole: &Table<C>, map: &Map, rule: Rule) -> usize {
    let mut rest = whole.clone();
    let listing = rest.list(rule);
    assert_eq!(listing.residue, rest.residue());
    assert_eq!(listing.is_complete(), rest.is_empty());
    let mut keys = Vec::new();
    // A key that left only values, and shares all its cells with another, cannot be distinguished from it.
    let is_noisy = map.values().any(|part| part.0 == 0);
    for entry in listing.inserted.iter().chain(&listing.deleted) {
        let (count, sum) = map[&entry.key];
        assert_eq!(entry.count, count);
        // Values that passed no check are certain when nothing is left.
        let is_checked = C::IS_VALUE_CHECKED && !matches!(entry.values, Values::Sum(_));
        let is_sure = is_checked || listing.is_complete() && !is_noisy;
        match entry.values {
            _ if !is_sure => {}
            Values::One(value) => assert_eq!(value.wrapping_mul(count as u64), sum),
            Values::Two([one, other]) => assert_eq!(one.wrapping_add(other).wrapping_mul((count / 2) as u64), sum),
            Values::Sum(listed) => assert_eq!(listed, sum),
            Values::Unknown => {}
        }
        keys.push(entry.key);
    }
    assert!(
        listing.inserted.iter().all(|entry| entry.count > 0) && listing.deleted.iter().all(|entry| entry.count < 0)
    );
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "a key came out twice");
    count
}
