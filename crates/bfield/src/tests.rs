//! Fields compared with a plain map.

use super::*;
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn hash(key: u64) -> u128 {
    SecretHash::new(&Secret::REPLAY).of(&key)
}

fn pair(key: u64, value: u32) -> Pair {
    Pair { hash: hash(key), value }
}

fn plan(false_positive_rate: f64, key_count: u64, value_count: u64) -> Plan {
    Plan::new(&Goal { false_positive_rate, key_count, value_count }).unwrap()
}

/// Compares a finished field with the map of what was inserted: each key with one value, or with several.
fn hold(field: &Field, map: &BTreeMap<u64, BTreeSet<u32>>, strangers: impl Iterator<Item = u64>) -> (usize, usize) {
    let mut undecided_count = 0;
    for (key, values) in map {
        match (field.look_up(hash(*key)), values.len()) {
            (Found::Value(value), 1) => assert!(values.contains(&value), "key {key}"),
            (Found::Indeterminate, 1) => undecided_count += 1,
            (Found::Indeterminate, _) => {}
            (found, _) => panic!("key {key} of {values:?}: {found:?}"),
        }
    }
    let keys: Vec<u64> = map.keys().copied().chain(strangers.filter(|key| !map.contains_key(key))).collect();
    let hashes: Vec<u128> = keys.iter().map(|key| hash(*key)).collect();
    let mut found = vec![Found::Absent; hashes.len()];
    field.look_up_all(&hashes, &mut found);
    hashes.iter().zip(&found).for_each(|(hash, found)| assert_eq!(field.look_up(*hash), *found));
    let false_positive_count = found[map.len()..].iter().filter(|found| **found != Found::Absent).count();
    (undecided_count, false_positive_count)
}

fn mapped(pairs: &[(u64, u32)]) -> BTreeMap<u64, BTreeSet<u32>> {
    let mut map = BTreeMap::<u64, BTreeSet<u32>>::new();
    for (key, value) in pairs {
        map.entry(*key).or_default().insert(*value);
    }
    map
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_built_field_is_the_map(
        pairs in prop::collection::vec((0u64..600, 0u32..500), 0..800),
        expected in 0u64..1_000,
        bits in 4i32..30,
    ) {
        let plan = plan(2f64.powi(-bits), expected, 500);
        let built = Field::build(&plan, || pairs.iter().map(|(key, value)| pair(*key, *value))).unwrap();
        let map = mapped(&pairs);
        let (undecided, _) = hold(&built.field, &map, 0..2_000);
        // The pairs of keys that the field cannot decide are counted.
        let counted = pairs.iter().filter(|(key, _)| built.field.look_up(hash(*key)) == Found::Indeterminate).count();
        prop_assert_eq!((built.pair_count, built.indeterminate_count), (pairs.len() as u64, counted as u64));
        let has_one_value = map.values().all(|values| values.len() == 1);
        prop_assert!(!has_one_value || map.len() as u64 > plan.arrays()[0].key_count || undecided == 0);
    }

    #[test]
    fn a_field_that_grows_never_denies_a_key(
        pairs in prop::collection::vec((0u64..600, 0u32..500), 1..800),
        bits in 4i32..30,
        settled in 0usize..800,
    ) {
        let mut field = Field::new(&plan(2f64.powi(-bits), 400, 500));
        for (at, (key, value)) in pairs.iter().enumerate() {
            field.insert(&[pair(*key, *value)]).unwrap();
            if at == settled.min(pairs.len() / 2) {
                for (key, value) in &pairs[..=at] {
                    field.settle(&pair(*key, *value));
                }
            }
        }
        for (key, _) in &pairs {
            prop_assert_ne!(field.look_up(hash(*key)), Found::Absent);
        }
        // Settled again and again, it is the field that is built at once.
        let pairs: Vec<Pair> = pairs.iter().map(|(key, value)| pair(*key, *value)).collect();
        while pairs.iter().fold(false, |is_changed, pair| field.settle(pair).is_changed | is_changed) {}
        let built = Field::build(field.plan(), || pairs.iter().copied()).unwrap();
        for array in 0..field.plan().arrays().len() {
            prop_assert_eq!(field.words(array), built.field.words(array));
        }
    }
}

#[test]
fn rates_are_as_planned() {
    let plan = plan(0.001, 40_000, 500);
    let pairs: Vec<(u64, u32)> = (0..40_000).map(|key| (key, (key % 500) as u32)).collect();
    let built = Field::build(&plan, || pairs.iter().map(|(key, value)| pair(*key, *value))).unwrap();
    let (undecided_count, false_positive_count) = hold(&built.field, &mapped(&pairs), 1 << 32..(1 << 32) + 2_000_000);
    assert_eq!((undecided_count, built.indeterminate_count), (0, 0));
    // Five standard deviations.
    let expected = 2e6 * plan.false_positive_rate();
    assert!(
        (false_positive_count as f64 - expected).abs() < 5.0 * expected.sqrt(),
        "{false_positive_count}, not {expected}"
    );
}

#[test]
fn beta_is_as_planned() {
    let plan = plan(0.001, 100_000, 500);
    let mut field = Field::new(&plan);
    let pairs: Vec<Pair> = (0..100_000).map(|key| pair(key, (key % 500) as u32)).collect();
    field.insert(&pairs).unwrap();
    let mut undecided_count = 0;
    field.undecided_in_first(&pairs, |_| undecided_count += 1);
    let expected = 1e5 * plan.indeterminate_rate();
    assert!((f64::from(undecided_count) - expected).abs() < 5.0 * expected.sqrt(), "{undecided_count}, not {expected}");
}

#[test]
fn even_steps_fail_small_arrays() {
    // Two keys with equal steps share their windows. The fewer keys there are, the more this exceeds what chance does
    // to keys of scattered steps.
    let goal = Goal { false_positive_rate: 1e-8, key_count: 500, value_count: 500 };
    let count = |steps| {
        let plan = Plan::new(&goal).unwrap().with_steps(steps);
        let built = Field::build(&plan, || (0..500).map(|key| pair(key, (key % 500) as u32))).unwrap();
        (1 << 32..(1u64 << 32) + 4_000_000).filter(|key| built.field.look_up(hash(*key)) != Found::Absent).count()
    };
    let (even, scattered) = (count(Steps::Even), count(Steps::Scattered));
    assert!(even > 10 && scattered <= 1, "{even} and {scattered} of 4,000,000");
}

#[test]
fn many_keys_with_several_values_take_more_passes() {
    let plan = plan(1e-6, 2_000, 500);
    let mut builder = Builder::new(&plan);
    let pairs: Vec<Pair> = (0..4_000).map(|at| pair(at % 2_000, (at / 1_000) as u32)).collect();
    let mut pass_count = 1;
    loop {
        pairs.chunks(100).for_each(|pairs| builder.add(pairs).unwrap());
        if builder.end_pass() == Pass::Done {
            break;
        }
        pass_count += 1;
    }
    assert!((3..=plan.arrays().len() + 2).contains(&pass_count), "{pass_count}");
    let built = builder.finish();
    assert_eq!(built.indeterminate_count, 4_000);
    assert!((0..2_000).all(|key| built.field.look_up(hash(key)) == Found::Indeterminate));
}

#[test]
fn a_value_that_is_too_large_changes_nothing() {
    let plan = plan(0.01, 10, 500);
    let wrong = ValueTooLarge { value: 500, value_count: 500 };
    let mut field = Field::new(&plan);
    assert_eq!(field.insert(&[pair(1, 2), pair(2, 500)]), Err(wrong));
    assert_eq!(field, Field::new(&plan));
    assert_eq!(Field::build(&plan, || [pair(1, 2), pair(2, 500)]), Err(wrong));
}

#[test]
fn all_widths_of_codes_work() {
    for value_count in [1, 2, 10, 11, 1_000, 1 << 16, 1 << 20, 1 << 24, 1 << 32] {
        let plan = plan(1e-5, 300, value_count);
        let value = |key: u64| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % value_count) as u32;
        let built = Field::build(&plan, || (0..300).map(|key| pair(key, value(key)))).unwrap();
        assert_eq!(built.indeterminate_count, 0, "{value_count} values");
        assert!((0..300).all(|key| built.field.look_up(hash(key)) == Found::Value(value(key))));
        let strangers = (1 << 40..(1u64 << 40) + 20_000).filter(|key| built.field.look_up(hash(*key)) != Found::Absent);
        assert!(strangers.count() <= 3, "{value_count} values");
    }
}

#[test]
fn words_of_another_length_are_refused() {
    let plan = plan(0.01, 10, 500);
    let field = Field::new(&plan);
    let mut words: Vec<Vec<u64>> = (0..plan.arrays().len()).map(|array| field.words(array).to_vec()).collect();
    assert_eq!(Field::from_words(&plan, words.clone(), field.contents()), Ok(field.clone()));
    words[0].push(0);
    assert_eq!(Field::from_words(&plan, words, field.contents()), Err(Unplannable::Parts));
}
