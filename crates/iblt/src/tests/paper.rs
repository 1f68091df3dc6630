//! The paper's experiments in a quick form; a command reproduces its tables and figures at full size.

use super::*;

/// One trial of the paper's Table 2: `count` keys, of which the first `damaged` have a second value. Returns how many
/// valid keys and how many damaged ones were not listed.
fn damaged_trial(trial: u64, count: u64, damaged: u64, rule: Rule) -> (u64, u64) {
    let mut table = table::<CheckedCell<u64>>(subtables(5, count as u32 * 8));
    let word = |at: u64| mixed(trial << 32 | at);
    let pairs: Vec<(u64, u64)> = (0..count).map(|at| (word(at), word(!at))).collect();
    let seconds: Vec<(u64, u64)> = (0..damaged).map(|at| (word(at), word(1 << 31 | at))).collect();
    table.insert_all(&pairs);
    table.insert_all(&seconds);
    let mut unlisted = (count - damaged, damaged);
    table.peel(rule, |entry| match entry.values {
        Values::One(_) => unlisted.0 -= 1,
        _ => {
            assert_eq!(entry.count, 2);
            unlisted.1 -= 1;
        }
    });
    assert_eq!(rule == Rule::Aggregates && unlisted == (0, 0), rule == Rule::Aggregates && table.is_empty());
    unlisted
}

#[test]
fn keys_with_two_values_poison_under_the_papers_rule() {
    // Experiment 2 of Table 2: 2,000 of 10,000 keys. In 83.5 % of the trials no valid key is lost, and seldom more than
    // one.
    let trials = 150;
    let lost = (0..trials).map(|trial| damaged_trial(trial, 10_000, 2_000, Rule::SingleValued));
    let lost: Vec<_> = lost.inspect(|lost| assert_eq!(lost.1, 2_000)).map(|lost| lost.0).collect();
    let whole = lost.iter().filter(|&&lost| lost == 0).count();
    assert!((112..=139).contains(&whole), "{whole} of {trials}");
    assert!(lost.iter().all(|&lost| lost <= 4));
}

#[test]
fn with_aggregates_nothing_is_poisoned_and_damaged_keys_are_listed_too() {
    for (trials, count, damaged) in [(200, 10_000, 1_000), (200, 10_000, 2_000), (10, 100_000, 10_000)] {
        for trial in 0..trials {
            assert_eq!(damaged_trial(trial, count, damaged, Rule::Aggregates), (0, 0));
        }
    }
}

#[test]
fn duplicates_and_extraneous_deletions_list_like_anything_else() {
    // One key in five twice, one in five deleted instead of inserted; 80,000 cells, five hashes: always complete.
    for trial in 0..20u64 {
        let mut table = table::<CheckedCell<u64>>(subtables(5, 80_000));
        let mut map = Map::new();
        for at in 0..10_000u64 {
            let key = mixed(trial << 32 | at);
            let (is_deleted, is_twice) = (mixed(key).is_multiple_of(5), mixed(!key).is_multiple_of(5));
            let count = if is_deleted { -1 } else { 1 } * if is_twice { 2 } else { 1 };
            table.update(&key, !key, count);
            map.insert(key, (count, (!key).wrapping_mul(count as u64)));
        }
        assert_eq!(check_listing(&table, &map, Rule::SingleValued), 10_000);
    }
}

#[test]
fn around_the_threshold_of_five_hashes_listing_fails_as_in_figure_one() {
    // Measured with other hashes: complete in 2622 of 4000 at 14,300 cells, 3933 at 14,400, all at 14,600.
    let complete = |cell_count: u32| {
        let mut table = table::<Sums<u64, ()>>(subtables(5, cell_count));
        let trial = |trial: u64| {
            table.clear();
            let keys: Vec<_> = (0..10_000).map(|at| (mixed(trial << 32 | at), ())).collect();
            table.insert_all(&keys);
            table.peel(Rule::Aggregates, |_| ()) == 10_000
        };
        (0..200).map(trial).filter(|&is_complete| is_complete).count()
    };
    assert_eq!(complete(14_600), 200);
    assert!((190..=200).contains(&complete(14_400)));
    assert!((105..=157).contains(&complete(14_300)));
    assert_eq!(complete(14_000), 0);
}
