//! The optional fields of a cell: counts, checks of keys, checks of values. Laws: checks are not linear in what they
//! check; a field of `()` holds nothing and always agrees.

use super::Mode;
use crate::hash::GOLDEN_64;
use crate::hash::mixed;
use crate::sum::{Sum, quotients};

/// The largest value that a table checks, in bytes: checks are made on the stack.
const TABLE_VALUE_SIZE_MAX: usize = 256;

/// A field that counts keys.
pub trait CountField: Sum {
    /// The count; `None` where the field does not count.
    fn count(self) -> Option<i64>;
    /// The field after `count` more.
    #[must_use]
    fn counted(self, count: i64) -> Self;
}

macro_rules! count {
    ($($number:ty),*) => {$(
        impl CountField for $number {
            #[inline]
            fn count(self) -> Option<i64> {
                Some(i64::from(self))
            }

            #[inline]
            fn counted(self, count: i64) -> Self {
                self.wrapping_add(count as $number)
            }
        }
    )*};
}

count!(i8, i16, i32, i64);

impl CountField for () {
    #[inline]
    fn count(self) -> Option<i64> {
        None
    }

    #[inline]
    fn counted(self, _count: i64) -> Self {}
}

/// A field that checks keys (hashkeySum, section 3 of the paper).
pub trait CheckField: Sum {
    /// What a key with this hash adds once: the top bits, which do not place it.
    fn of(hash: u128) -> Self;
}

macro_rules! check {
    ($($number:ty),*) => {$(
        impl CheckField for $number {
            #[inline]
            fn of(hash: u128) -> Self {
                (hash >> (u128::BITS - <$number>::BITS)) as $number
            }
        }
    )*};
}

check!(u16, u32, u64);

impl CheckField for () {
    #[inline]
    fn of(_hash: u128) -> Self {}
}

/// What is known of the values of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values<V> {
    /// The key has this value, every time that it is there.
    One(V),
    /// The key is there twice, with these two values, the smaller first.
    Two([V; 2]),
    /// The values of all insertions less those of all removals sum up to this. With one value every time, it is that
    /// value times the count.
    Sum(V),
    /// Nothing is known: in all cells of the key there are values of other keys too.
    Unknown,
}

/// A field that says more about values than their sum.
pub trait ValueField<V: Sum>: Sum {
    /// Whether it distinguishes values from noise.
    const IS_CHECK: bool;

    /// What the value adds once, for the key with this hash.
    fn of(value: V, hash: u128) -> Self;
    /// What the field says about the values of a key that is there `count` times, with `sum` as the sum of the values.
    fn values<M: Mode>(self, sum: V, hash: u128, count: i64) -> Values<V>;

    /// Whether the field is that of these values, of a key that is there `count` times. No field is that of values that
    /// are not known one by one.
    fn is_of<M: Mode>(self, values: Values<V>, hash: u128, count: i64) -> bool {
        match values {
            Values::One(value) => M::times(Self::of(value, hash), count) == self,
            Values::Two([one, other]) => {
                let both = M::plus(Self::of(one, hash), Self::of(other, hash));
                M::times(both, count.signum()) == self
            }
            Values::Sum(_) | Values::Unknown => false,
        }
    }
}

/// Without a check, the value of a key that is there once is believed.
impl<V: Sum> ValueField<V> for () {
    const IS_CHECK: bool = false;

    #[inline]
    fn of(_value: V, _hash: u128) -> Self {}

    #[inline]
    fn values<M: Mode>(self, sum: V, _hash: u128, count: i64) -> Values<V> {
        match count {
            1 | -1 => M::quotient(sum, count, 0).map_or(Values::Unknown, Values::One),
            _ => Values::Sum(sum),
        }
    }
}

/// A check of the values (hashvalueSum, section 3 of the paper), over value and key: 64 bits, so that noise passes with
/// a probability of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueCheck(u64);

/// The sum of the squares, beside the sum. Of a key with two values below 2^63 it gives both. It is no check against
/// noise, since it does not depend on the key: where a value of one key was replaced, the cell of another key that has
/// the old value shows the new one. A pair with a [`ValueCheck`] gives both values and checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squares(u128);

macro_rules! wrapped {
    ($($name:ident),*) => {$(
        impl Sum for $name {
            const SIZE: usize = size_of::<$name>();
            const WORD_COUNT: u32 = 1;

            #[inline]
            fn zero() -> Self {
                $name(0)
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                $name(self.0.plus(other.0))
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                $name(self.0.minus(other.0))
            }

            #[inline]
            fn xor(self, other: Self) -> Self {
                $name(self.0 ^ other.0)
            }

            #[inline]
            fn times(self, count: i64) -> Self {
                $name(self.0.times(count))
            }

            fn quotient(self, count: i64, lost: u64) -> Option<Self> {
                self.0.quotient(count, lost).map($name)
            }

            fn write(&self, out: &mut [u8]) {
                self.0.write(out);
            }

            fn read(bytes: &[u8]) -> Self {
                $name(Sum::read(bytes))
            }
        }
    )*};
}

wrapped!(ValueCheck, Squares);

/// The single value that, `count` times, gives this sum and passes `is_right`.
fn single<M: Mode, V: Sum>(sum: V, count: i64, is_right: impl Fn(V) -> bool) -> Option<V> {
    let candidates = quotients::<V>(count)?;
    (0..candidates).map_while(|lost| M::quotient(sum, count, lost)).find(|&value| is_right(value))
}

impl<V: Sum> ValueField<V> for ValueCheck {
    const IS_CHECK: bool = true;

    fn of(value: V, hash: u128) -> Self {
        // The upper half of the hash cannot be computed without the key's function, and all of the value goes in.
        let mut bytes = [0; TABLE_VALUE_SIZE_MAX];
        const { assert!(V::SIZE <= TABLE_VALUE_SIZE_MAX) };
        value.write(&mut bytes[..V::SIZE]);
        let words = bytes[..V::SIZE.next_multiple_of(8)].chunks(8).map(u64::read);
        ValueCheck(words.fold((hash >> 64) as u64 ^ !(hash as u64), |check, word| {
            mixed(check.wrapping_add(GOLDEN_64) ^ mixed(word))
        }))
    }

    fn values<M: Mode>(self, sum: V, hash: u128, count: i64) -> Values<V> {
        let is_right = |value: V| self.is_of::<M>(Values::One(value), hash, count);
        single::<M, V>(sum, count, is_right).map_or(Values::Sum(sum), Values::One)
    }
}

impl ValueField<u64> for Squares {
    const IS_CHECK: bool = false;

    #[inline]
    fn of(value: u64, _hash: u128) -> Self {
        Squares(u128::from(value).wrapping_mul(u128::from(value)))
    }

    fn values<M: Mode>(self, sum: u64, hash: u128, count: i64) -> Values<u64> {
        let is_right = |value: u64| self.is_of::<M>(Values::One(value), hash, count);
        if let Some(value) = single::<M, u64>(sum, count, is_right) {
            return Values::One(value);
        }
        let two = (count.unsigned_abs() == 2 && M::IS_MULTISET).then(|| self.two(sum, count)).flatten();
        two.map_or(Values::Sum(sum), Values::Two)
    }
}

impl Squares {
    /// The two values with this sum and these squares: half the sum, plus and minus half the root of what the squares
    /// leave.
    fn two(self, sum: u64, count: i64) -> Option<[u64; 2]> {
        let sign = count.signum();
        let (sum, squares) = (u128::from(sum.times(sign)), self.0.times(sign));
        let apart = squares.checked_mul(2)?.checked_sub(sum.checked_mul(sum)?)?;
        let root = apart.isqrt();
        let is_whole = root * root == apart && root <= sum && (sum - root).is_multiple_of(2);
        let pair = [(sum.checked_sub(root)?) / 2, (sum + root) / 2];
        is_whole.then_some([u64::try_from(pair[0]).ok()?, u64::try_from(pair[1]).ok()?])
    }
}

/// Two fields: what one of them knows is believed where it agrees with the other.
impl<V: Sum, A: ValueField<V>, B: ValueField<V>> ValueField<V> for (A, B) {
    const IS_CHECK: bool = A::IS_CHECK || B::IS_CHECK;

    fn of(value: V, hash: u128) -> Self {
        (A::of(value, hash), B::of(value, hash))
    }

    fn values<M: Mode>(self, sum: V, hash: u128, count: i64) -> Values<V> {
        let (first, second) = self;
        let of_first = first.values::<M>(sum, hash, count);
        if second.is_of::<M>(of_first, hash, count) {
            return of_first;
        }
        let of_second = second.values::<M>(sum, hash, count);
        if first.is_of::<M>(of_second, hash, count) { of_second } else { Values::Sum(sum) }
    }
}
