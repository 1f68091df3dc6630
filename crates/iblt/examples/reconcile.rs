//! Two replicas of a map find how they differ, for the bytes of the difference and not of the map.

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{CheckedCell, Estimator, Refused, Table, plan, reconcile};
use std::collections::BTreeMap;

fn main() -> Result<(), Refused> {
    let secret = Secret::new(*b"both sides know!");
    let (here, there) = replicas();
    let pairs = |map: &BTreeMap<u64, u64>| map.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>();

    // They send an estimator: how many pairs differ?
    let mut estimators = [Estimator::new(&secret), Estimator::new(&secret)];
    here.iter().for_each(|(key, value)| estimators[0].insert(key, value));
    there.iter().for_each(|(key, value)| estimators[1].insert(key, value));
    let estimate_size = estimators[1].to_bytes().len();
    let estimate = estimators[0].difference(&Estimator::from_bytes(&secret, &estimators[1].to_bytes())?);

    // They send a table that lists twice as many, since an estimate may be off by a third.
    let layout = plan(2 * estimate + 50, 0.001).layout();
    let mut theirs: Table<CheckedCell<u64>> = Table::with_secret(layout, &secret);
    theirs.insert_all(&pairs(&there));
    let sent = theirs.to_bytes();

    // We subtract our pairs, and list what is left.
    let received = Table::from_bytes(layout, theirs.hash().clone(), &sent)?;
    let difference = reconcile::<CheckedCell<u64>, _>(&received, &pairs(&here));
    assert!(difference.is_complete());
    println!("{} pairs here, {} there: about {estimate} differ", here.len(), there.len());
    println!(
        "sent: {estimate_size} bytes of estimator, {} of table; all pairs would be {}",
        sent.len(),
        16 * there.len()
    );
    println!(
        "only here: {}, only there: {}, changed: {}",
        difference.only_here.len(),
        difference.only_there.len(),
        difference.changed.len()
    );

    // With the difference our map becomes theirs.
    let mut ours = here;
    difference.only_here.iter().for_each(|entry| _ = ours.remove(&entry.key));
    difference.only_there.iter().for_each(|entry| ours.extend(entry.value().map(|value| (entry.key, value))));
    difference.changed.iter().for_each(|changed| _ = ours.insert(changed.key, changed.there));
    assert_eq!(ours, there);
    Ok(())
}

/// Two maps of a hundred thousand keys: thirty are on one side only, and twenty have other values.
fn replicas() -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
    let here: BTreeMap<u64, u64> = (0..100_000).map(|key| (key, key * key)).collect();
    let mut there = here.clone();
    (0..15).for_each(|key| _ = there.remove(&(key * 1_000)));
    there.extend((0..15).map(|key| (1_000_000 + key, key)));
    (0..20).for_each(|key| _ = there.insert(key * 777 + 1, 0));
    (here, there)
}
