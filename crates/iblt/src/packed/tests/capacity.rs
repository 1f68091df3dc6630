//! How much a table lists, and how well it estimates how much is in it.

use super::*;
use crate::word_key::examples::{FiveWords, TwoWords};

/// How many of `trials` tables with `count` keys, half of them removed, do not list completely.
fn failures<K: TableKey>(trials: u64, count: u64) -> u64 {
    let site = Site::<K>::new();
    let geometry = Geometry::for_items(count);
    let mut table = Iblt::new(geometry);
    let mut peeler = Peeler::new(site.placement.clone(), geometry.cell_count());
    let mut failed = 0;
    for trial in 0..trials {
        let keys = (0..count).map(|at| key::<K>(trial << 24 | at));
        let mut sign = 1;
        site.placement.for_each(keys, |key, hash| {
            sign = -sign;
            table.apply_one(&Change { key, hash, count: sign, value: 0 });
        });
        let mut sink = Sink(0);
        let taken = peeler.peel(&mut table, &mut sink);
        assert_eq!(taken, sink.0);
        if !table.is_zero() {
            assert!((taken as u64) < count);
            failed += 1;
            table.clear();
        }
    }
    failed
}

/// A recipient that takes any value and only counts.
struct Sink(usize);

impl<K> Recipient<K> for Sink {
    fn belongs(&self, _placement: u128, _value: u64) -> bool {
        true
    }

    fn take(&mut self, _peeled: Peeled<K>) {
        self.0 += 1;
    }
}

#[test]
fn what_a_table_is_made_for_lists_in_all_but_a_few_permille() {
    let rounds = [(10, 4_000), (100, 4_000), (1_000, 1_000), (12_500, 150)];
    for (count, trials) in rounds {
        let failed = failures::<TwoWords>(trials, count) + failures::<FiveWords>(trials / 4, count);
        let per_item = Geometry::for_items(count).cell_count() as f64 / count as f64;
        let trials = trials + trials / 4;
        println!("{count} keys, {per_item:.3} cells each: {failed} of {trials} tables did not list completely");
        assert!(failed * 1_000 <= trials * 3, "{failed} of {trials} with {count} keys");
    }
}

#[test]
fn the_estimate_is_near_the_truth() {
    let site = Site::<TwoWords>::new();
    let geometry = Geometry::new(2_500);
    let capacity = geometry.item_count();
    for tenths in [1, 2, 5, 8, 10, 13, 16, 20, 25, 30] {
        let count = capacity * tenths / 10;
        let mut table = Iblt::new(geometry);
        for at in 0..count {
            table.apply_one(&site.change(Op { key: tenths << 32 | at, payload: 0, is_insert: at % 3 > 0 }));
        }
        let error = table.estimated_count() as f64 / count as f64 - 1.0;
        println!("load {:.1}: estimate {:+.1} %", tenths as f64 / 10.0, error * 100.0);
        assert!(error.abs() < 0.1, "load {tenths}/10: {error}");
    }
}

#[test]
fn the_estimate_is_zero_for_an_empty_table_only() {
    let site = Site::<FiveWords>::new();
    let mut table = Iblt::new(Geometry::new(1));
    assert_eq!(table.estimated_count(), 0);
    for key in 0..100 {
        table.apply_one(&site.change(Op { key, payload: 0, is_insert: true }));
        assert!(table.estimated_count() >= 1);
    }
}
