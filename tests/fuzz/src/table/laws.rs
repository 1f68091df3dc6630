//! The laws of a table, whatever it holds.
//!
//! What enters: a table, and pairs. What leaves: nothing, or a panic that names the law.

use flowpeel_iblt::{
    Difference, Entry, Got, KeyHash, Listing, Refused, Rule, Sum, Table, TableCell, Values, reconcile,
};
use std::collections::BTreeMap;

/// Folds that are tried: 0 is none, and the larger ones divide few tables.
const RUNS: std::ops::Range<u32> = 0..6;

/// Checks all of them.
pub(super) fn hold<C: TableCell>(table: &Table<C>, known: &[(C::Key, C::Value)]) {
    encoding(table);
    for rule in [Rule::Aggregates, Rule::SingleValued] {
        listing(table, known, rule);
    }
    sums(table, known);
    folds(table, known);
    getting(table, known);
    let own: BTreeMap<C::Key, C::Value> = known.iter().copied().collect();
    reconciling(table, &own.into_iter().collect::<Vec<_>>());
}

fn encoding<C: TableCell>(table: &Table<C>) {
    let bytes = table.to_bytes();
    let read = |bytes: &[u8]| Table::<C>::from_bytes(table.layout(), table.hash().clone(), bytes);
    let back = read(&bytes).unwrap();
    assert!(back == *table && back.to_bytes() == bytes, "reading what was written");
    for wrong in [&bytes[1..], &[], &[bytes.as_slice(), &[0]].concat()] {
        let refused = Refused::Length { expected: bytes.len(), found: wrong.len() };
        assert_eq!(read(wrong).err(), (wrong.len() != bytes.len()).then_some(refused));
    }
}

fn listing<C: TableCell>(table: &Table<C>, known: &[(C::Key, C::Value)], rule: Rule) {
    let mut rest = table.clone();
    let listed = rest.list(rule);
    assert_eq!(table.listing(rule), listed, "listing without taking out");
    assert!(listed.inserted.len() + listed.deleted.len() <= table.cells().len(), "more keys than cells");
    is_the_whole(table, &rest, &listed);

    let mut taken = Vec::new();
    let mut peeled = table.clone();
    let count = peeled.peel(rule, |entry| taken.push(entry));
    assert_eq!(count, taken.len());
    assert_eq!(count, listed.inserted.len() + listed.deleted.len(), "peeling takes out what listing does");

    let mut rest = table.clone();
    let listed = rest.list_knowing(known, rule);
    is_the_whole(table, &rest, &listed);
    let mut again = table.clone();
    assert_eq!(again.list_knowing(known, rule), listed);
    assert!(again == rest, "listing twice");
}

/// What is listed and what is left are what there was.
fn is_the_whole<C: TableCell>(table: &Table<C>, rest: &Table<C>, listed: &Listing<C::Key, C::Value>) {
    assert_eq!(listed.residue, rest.residue());
    assert_eq!(listed.is_complete(), rest.is_empty());
    let is_counted = C::IS_COUNTED;
    assert!(listed.inserted.iter().all(|entry| entry.count > 0));
    assert!(listed.deleted.iter().all(|entry| entry.count < 0 || !is_counted));
    let mut whole = rest.clone();
    let entries = || listed.inserted.iter().chain(&listed.deleted);
    entries().for_each(|entry| put_back(&mut whole, entry));
    let is_known = entries().all(|entry| matches!(entry.values, Values::One(_)));
    for (whole, cell) in whole.cells().iter().zip(table.cells()) {
        assert!(whole.has_keys_of(cell), "keys listed and left are not those that there were");
        assert!(whole.value() == cell.value(), "values listed and left are not those that there were");
        assert!(!is_known || whole == cell, "what is listed and left is not what there was");
    }
}

/// Adds an entry, with as much of its values as it gives.
fn put_back<C: TableCell>(table: &mut Table<C>, entry: &Entry<C::Key, C::Value>) {
    let (key, zero) = (&entry.key, C::Value::zero());
    match entry.values {
        Values::One(value) => table.update(key, value, entry.count),
        Values::Unknown => table.update(key, zero, entry.count),
        Values::Sum(sum) => put_sum_back(table, entry, sum),
        Values::Two([one, other]) => put_sum_back(table, entry, one.plus(other).times(entry.count.signum())),
    }
}

/// Adds the key as often as it was there, and the sum of its values once.
fn put_sum_back<C: TableCell>(table: &mut Table<C>, entry: &Entry<C::Key, C::Value>, sum: C::Value) {
    table.update(&entry.key, C::Value::zero(), entry.count);
    // What goes with the value is the key once too often, which the second update takes away.
    table.update(&entry.key, sum, 1);
    table.update(&entry.key, C::Value::zero(), -1);
}

fn sums<C: TableCell>(table: &Table<C>, known: &[(C::Key, C::Value)]) {
    let mut sum = table.clone();
    sum.merge(table).unwrap();
    sum.subtract(table).unwrap();
    assert!(sum == *table, "adding and subtracting");
    sum.subtract(table).unwrap();
    assert!(sum.is_empty() && sum.is_key_free() && sum == table.empty(), "subtracting all");
    let _ = (table.estimated_count(), table.residue(), table.is_key_free());

    sum.merge(table).unwrap();
    sum.insert_all(known);
    let mut one_by_one = table.clone();
    known.iter().for_each(|(key, value)| one_by_one.insert(key, *value));
    assert!(sum == one_by_one, "inserting together");
    sum.remove_all(known);
    assert!(sum == *table, "removing what was inserted");
    sum.clear();
    assert!(sum.is_empty());
}

fn folds<C: TableCell>(table: &Table<C>, known: &[(C::Key, C::Value)]) {
    let mut later = table.clone();
    later.insert_all(known);
    for run in RUNS {
        match (table.folded(run), later.folded(run)) {
            (Ok(mut folded), Ok(later)) => {
                assert_eq!(folded.cells().len() * run as usize, table.cells().len());
                folded.insert_all(known);
                assert!(folded == later, "folding before and after");
                let _ = folded.list(Rule::Aggregates);
            }
            (folded, later) => assert_eq!((folded.err(), later.err()), (Some(Refused::Layout), Some(Refused::Layout))),
        }
    }
}

fn getting<C: TableCell>(table: &Table<C>, known: &[(C::Key, C::Value)]) {
    let keys: Vec<C::Key> = known.iter().map(|pair| pair.0).collect();
    let together = table.get_all(&keys);
    assert_eq!(together.len(), keys.len());
    for (key, got) in keys.iter().zip(together) {
        assert_eq!(table.get(key), got, "getting together");
        let plain = table.get_plain(key);
        assert!(plain == Got::Unknown || plain == got, "neighbours contradict");
        let places = table.layout().places(table.hash().of(key));
        if places.iter().any(|&place| table.cells()[place as usize].is_key_free()) && C::IS_CHECKED {
            assert!(matches!(got, Got::Absent | Got::Found { .. } | Got::Deleted { .. }), "a free cell resolves");
        }
    }
}

fn reconciling<C: TableCell>(theirs: &Table<C>, ours: &[(C::Key, C::Value)]) {
    let difference: Difference<C::Key, C::Value> = reconcile(theirs, ours);
    assert_eq!(reconcile(theirs, ours), difference);
    let mut own = theirs.empty();
    own.insert_all(ours);
    assert!(reconcile(&own, ours).is_complete(), "nothing differs from the same");
    let is_known = |entry: &Entry<C::Key, C::Value>| matches!(entry.values, Values::One(_));
    let entries = difference.only_here.iter().chain(&difference.only_there);
    let is_counted = C::IS_COUNTED;
    if !is_counted || !difference.is_complete() || !entries.clone().all(is_known) {
        return;
    }
    difference
        .only_here
        .iter()
        .for_each(|entry| put_back(&mut own, &Entry { count: entry.count.saturating_neg(), ..*entry }));
    difference.only_there.iter().for_each(|entry| put_back(&mut own, entry));
    for changed in &difference.changed {
        own.remove(&changed.key, changed.here);
        own.insert(&changed.key, changed.there);
    }
    assert!(own == *theirs, "ours with what differs is not theirs");
}
