//! The laws of the group, for every kind of sum, compared with plain arithmetic.

use super::*;
use crate::word_key::WordKey;
use crate::word_key::examples::{FiveWords, TwoWords};
use proptest::prelude::*;

/// Checks the laws on three elements and a count; `false` where no quotient was looked for.
fn check<S: Sum>(one: S, other: S, third: S, count: i64) {
    assert_eq!(one.plus(other), other.plus(one));
    assert_eq!(one.plus(other).plus(third), one.plus(other.plus(third)));
    assert_eq!(one.plus(other).minus(other), one);
    assert_eq!(one.plus(S::zero()), one);
    assert_eq!(one.xor(other).xor(other), one);
    assert_eq!(one.plus(other).times(count), one.times(count).plus(other.times(count)));
    assert_eq!(one.times(count).plus(one), one.times(count.wrapping_add(1)));
    assert_eq!((one.times(1), one.times(0), one.times(-1)), (one, S::zero(), S::zero().minus(one)));
    let mut bytes = vec![0; S::SIZE];
    one.write(&mut bytes);
    assert_eq!(S::read(&bytes), one);
    assert_eq!(one.quotient(0, 0), None);
    let Some(quotients) = quotients::<S>(count) else { return };
    let all: Vec<S> = (0..quotients).map_while(|lost| one.times(count).quotient(count, lost)).collect();
    assert!(all.len() as u64 == quotients || S::SIZE * 8 <= count.trailing_zeros() as usize);
    assert!(all.iter().all(|quotient| quotient.times(count) == one.times(count)));
    assert!(all.is_empty() || all.contains(&one));
    // What does not divide gives no quotient that multiplies back.
    if let Some(quotient) = other.quotient(count, 0) {
        assert_eq!(quotient.times(count), other);
    }
}

fn counts() -> impl Strategy<Value = i64> {
    prop_oneof![-20i64..20, any::<i64>(), any::<i32>().prop_map(i64::from), (0u32..63).prop_map(|bit| -(1 << bit))]
}

macro_rules! laws {
    ($($name:ident: $sum:ty),* $(,)?) => {
        proptest! {$(
            #[test]
            fn $name(one: $sum, other: $sum, third: $sum, count in counts()) {
                check(one, other, third, count);
            }
        )*}
    };
}

laws! {
    bytes_of_eight_bits: u8,
    signed_words: i64,
    words: u64,
    long_words: u128,
    short_strings: [u8; 3],
    strings_of_a_word: [u8; 8],
    strings_with_a_rest: [u8; 21],
    pairs: (u16, [u8; 5]),
}

proptest! {
    #[test]
    fn rows_of_words(words: [[u64; 5]; 3], count in counts()) {
        let [one, other, third] = words.map(|words| TwoWords::from_words(&words));
        check(one, other, third, count);
        let [one, other, third] = words.map(|words| FiveWords::from_words(&words));
        check(one, other, third, count);
    }

    #[test]
    fn strings_are_little_endian_numbers(one: u128, other: u128, count in counts()) {
        let string = |number: u128| number.to_le_bytes();
        prop_assert_eq!(string(one).plus(string(other)), string(one.wrapping_add(other)));
        prop_assert_eq!(string(one).minus(string(other)), string(one.wrapping_sub(other)));
        prop_assert_eq!(string(one).times(count), string(one.times(count)));
        for lost in 0..3 {
            prop_assert_eq!(string(one).quotient(count, lost), one.quotient(count, lost).map(string));
        }
        prop_assert_eq!(string(one).block(0), one.block(0));
    }
}

#[test]
fn nothing_is_a_sum_too() {
    assert_eq!(().quotient(3, 0), Some(()));
    assert_eq!(().quotient(0, 0), None);
    assert_eq!(quotients::<()>(1 << 40), Some(1));
    assert_eq!(quotients::<u64>(1 << 17), None);
}
