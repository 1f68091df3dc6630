//! Keys with several values, and keys inserted several times: the question that the paper leaves open.

use super::*;

type Plain = Sums<u64, u64>;
type Squared = Sums<u64, u64, i32, u32, Squares>;

#[test]
fn keys_with_several_values_are_listed_with_their_counts_and_sums() {
    let mut table = table::<Plain>(subtables(4, 2_800));
    let mut map = Map::new();
    for at in 0..2_000u64 {
        let count = if at % 10 == 0 { 2 + at / 10 % 3 } else { 1 };
        for nth in 0..count {
            let value = mixed(at << 8 | nth);
            table.insert(&mixed(at), value);
            let part = map.entry(mixed(at)).or_default();
            *part = (part.0 + 1, part.1.wrapping_add(value));
        }
    }
    assert_eq!(check_listing(&table, &map, Rule::Aggregates), 2_000);
}

#[test]
fn a_key_any_number_of_times_lists_even_and_negative_ones_too() {
    let counts = [1i64, -1, 2, -2, 3, 4, -6, 7, 8, -64, 100, 4_096, -65_536, 1_000_003, i64::from(i32::MAX)];
    let mut table = table::<CheckedCell<u64>>(subtables(3, 60));
    for (at, count) in (0u64..).zip(counts) {
        table.update(&mixed(at), mixed(!at), count);
    }
    for (at, count) in (0u64..).zip(counts) {
        let expected = |found: i64, values| match found {
            1.. => Got::Found { count: found, values },
            _ => Got::Deleted { count: -found, values },
        };
        let got = table.get(&mixed(at));
        assert!(got == Got::Unknown || got == expected(count, Values::One(mixed(!at))), "{got:?}");
    }
    let listing = table.list(Rule::SingleValued);
    assert!(listing.is_complete());
    let entries = listing.inserted.iter().chain(&listing.deleted);
    let mut listed: Vec<_> = entries.map(|entry| (entry.key, entry.count, entry.value())).collect();
    let mut expected: Vec<_> = (0u64..).zip(counts).map(|(at, count)| (mixed(at), count, Some(mixed(!at)))).collect();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn long_keys_several_times_list_too() {
    let key = |at: u64| -> [u8; 21] { std::array::from_fn(|byte| mixed(at << 5 | byte as u64) as u8) };
    let mut table = table::<Sums<[u8; 21], [u8; 3], i16, u32>>(subtables(4, 300));
    (0..100).for_each(|at| table.update(&key(at), [at as u8; 3], 12 - (at as i64 % 5)));
    let listing = table.list(Rule::Aggregates);
    assert!(listing.is_complete());
    assert_eq!(listing.inserted.len(), 100);
    assert!(listing.inserted.iter().all(|entry| (0..100).any(|at| key(at) == entry.key)));
}

#[test]
fn two_values_of_a_key_come_back_one_by_one() {
    let mut table = table::<Squared>(subtables(4, 200));
    for at in 0..100u64 {
        table.insert(&at, mixed(at) >> 1);
        if at % 2 == 0 {
            table.insert(&at, mixed(!at) >> 1);
        }
        if at % 10 == 0 {
            table.insert(&at, 5);
        }
    }
    for entry in table.list(Rule::Aggregates).complete().unwrap().0 {
        let (one, other) = (mixed(entry.key) >> 1, mixed(!entry.key) >> 1);
        let expected = match entry.key {
            key if key % 10 == 0 => Values::Sum(one + other + 5),
            key if key % 2 == 0 => Values::Two([one.min(other), one.max(other)]),
            _ => Values::One(one),
        };
        assert_eq!(entry.values, expected);
    }
}

#[test]
fn the_noise_of_one_value_is_not_taken_for_another_value() {
    // Another key's value without its key: to sums and squares a key with zeros has two values then, zero and that one.
    type Both = Sums<u64, u64, i32, u32, (ValueCheck, Squares)>;
    fn seen<C: TableCell<Key = u64, Value = u64>>(value: u64, count: i64, noise: &[(u64, i64)]) -> Values<u64> {
        let mut cell = C::of(&7, value, mixed(7).into(), count);
        for &(other, count) in noise {
            cell.add(&C::of(&8, other, mixed(8).into(), count).without_keys());
        }
        cell.values(mixed(7).into(), count)
    }
    for (value, count, noise) in [(0, 2, [(50, 1), (0, 1)]), (0, -2, [(50, -1), (0, 1)]), (3, 1, [(50, 1), (3, -1)])] {
        let believed = seen::<Squared>(value, count, &noise);
        assert!(matches!(believed, Values::Two([0, 50]) | Values::One(50)), "{believed:?}");
        assert!(matches!(seen::<Both>(value, count, &noise), Values::Sum(_)));
        assert_eq!(seen::<Both>(value, count, &[]), Values::One(value));
    }
    let mut cell = Both::of(&7, 50, mixed(7).into(), -1);
    cell.add(&Both::of(&7, 9, mixed(7).into(), -1));
    assert_eq!(cell.values(mixed(7).into(), -2), Values::Two([9, 50]));
}

proptest! {
    #[test]
    fn any_two_values_come_back(one in 0..1u64 << 63, other in 0..1u64 << 63, is_deleted in any::<bool>()) {
        let mut table = table::<Squared>(subtables(3, 9));
        let count = if is_deleted { -1 } else { 1 };
        table.update(&7, one, count);
        table.update(&7, other, count);
        let listing = table.list(Rule::Aggregates);
        let entry = listing.inserted.iter().chain(&listing.deleted).next().unwrap();
        let expected = if one == other { Values::One(one) } else { Values::Two([one.min(other), one.max(other)]) };
        prop_assert_eq!((entry.count, entry.values), (2 * count, expected));
    }
}

#[test]
fn the_value_noise_of_one_key_does_not_spoil_the_value_of_another() {
    let mut table = table::<CheckedCell<u64>>(subtables(4, 1_000));
    table.insert_all(&pairs(0..200));
    for at in 1_000..1_020u64 {
        table.insert(&at, mixed(at));
        table.remove(&at, !at);
    }
    let listing = table.list(Rule::Aggregates);
    assert_eq!(listing.residue.key_cell_count, 0);
    assert!(listing.residue.noise_cell_count > 20);
    let mut listed: Vec<_> = listing.inserted.iter().map(|entry| (entry.key, entry.value().unwrap())).collect();
    let mut expected = pairs(0..200);
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}
