//! Cells: the sums that a table is made of.
//!
//! The laws: what a key adds to a cell is the same in all its cells; it depends only on the key, its values and its
//! count; and additions commute. So a cell that holds a key alone shows the key's whole part, in all its fields, and
//! that part can be subtracted from the key's other cells.

mod field;
mod mode;
mod packed;

pub use field::{CheckField, CountField, Squares, ValueCheck, ValueField, Values};
pub use mode::{Adding, Mode, Xoring};
pub use packed::{PackedCell, TableKey};

use super::sum::{Key, Sum};
use std::marker::PhantomData;

/// The sums of everything that was placed in one cell.
pub trait TableCell: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The keys it sums.
    type Key: Key;
    /// The values it sums.
    type Value: Sum;
    /// Bytes of the encoding.
    const SIZE: usize;
    /// Whether it counts keys.
    const IS_COUNTED: bool;
    /// Whether a lone key can be recognised with certainty: there is a check.
    const IS_CHECKED: bool;
    /// Whether a value can be distinguished from noise: there is a check of the values.
    const IS_VALUE_CHECKED: bool;
    /// Whether there is a field about the values beside their sum.
    const HAS_VALUE_FIELD: bool;
    /// Whether a key can be in it more than once.
    const IS_MULTISET: bool;

    /// The cell of nothing.
    fn zero() -> Self;
    /// What the pair adds to a cell when inserted `count` times; `hash` is the key's.
    fn of(key: &Self::Key, value: Self::Value, hash: u128, count: i64) -> Self;
    /// Adds another cell's sums to those of this cell.
    fn add(&mut self, other: &Self);
    /// Takes another cell's sums from those of this cell.
    fn subtract(&mut self, other: &Self);
    /// How many times keys were added less how many times they were removed, which wraps at the width of the field. A
    /// cell that does not count gives 1 while a key is in it, and 0 otherwise.
    fn count(&self) -> i64;
    /// The sum of the values.
    fn value(&self) -> Self::Value;
    /// Whether all sums are zero.
    fn is_zero(&self) -> bool;
    /// Whether no key is left in the cell; there may be values. A count of zero alone does not prove it.
    fn is_key_free(&self) -> bool;
    /// Whether the cell has the same sums of keys, counts and checks as another. Values may differ.
    fn has_keys_of(&self, other: &Self) -> bool;
    /// The key, if this cell holds only one, `count` times; see [`Sum::quotient`] for `lost`.
    fn candidate(&self, count: i64, lost: u64) -> Option<Self::Key>;
    /// Whether the checks are those of this key, `count` times.
    fn agrees(&self, hash: u128, count: i64) -> bool;
    /// What is known of the values of the key that this cell holds alone, `count` times.
    fn values(&self, hash: u128, count: i64) -> Values<Self::Value>;
    /// The cell without its keys: only the sums of the values.
    fn without_keys(&self) -> Self;
    /// Writes [`Self::SIZE`] bytes, little-endian, field after field in the order count, key, value, check, value
    /// check.
    fn write(&self, out: &mut [u8]);
    /// Reads what [`Self::write`] wrote.
    fn read(bytes: &[u8]) -> Self;
}

/// A cell made of fields, each of which may be `()` and then costs nothing.
///
/// | parameter | field of the paper | choices |
/// |---|---|---|
/// | `K` | keySum | any [`Key`] |
/// | `V` | valueSum | any [`Sum`]; `()` for sets of keys |
/// | `C` | count | `i32` (default), `i8`, `i16`, `i64`; `()` with [`Xoring`] |
/// | `G` | hashkeySum (section 3) | `u32` (default), `u16`, `u64`; `()` where nothing is ever deleted that was not inserted |
/// | `H` | hashvalueSum (section 3) | `()` (default), [`ValueCheck`], [`Squares`], or both as a pair |
/// | `M` | sums or exclusive ors (section 4) | [`Adding`] (default), [`Xoring`] where no key is in a table twice |
///
/// ```
/// use flowpeel_iblt::{Sums, ValueCheck, Xoring};
///
/// assert_eq!(size_of::<Sums<u64, u64>>(), 24);
/// assert_eq!(size_of::<Sums<u64, (), i32, ()>>(), 16);
/// assert_eq!(size_of::<Sums<u64, (), (), u32, (), Xoring>>(), 16);
/// assert_eq!(size_of::<Sums<[u8; 12], [u8; 8], i8, u16>>(), 24);
/// assert_eq!(size_of::<Sums<u64, u64, i32, u32, ValueCheck>>(), 32);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums<K, V = u64, C = i32, G = u32, H = (), M = Adding> {
    count: C,
    key: K,
    value: V,
    check: G,
    extra: H,
    mode: PhantomData<M>,
}

/// The cell of the paper's section 2: count, keys and values. It takes a count of one for a lone key, so nothing may be
/// deleted that was not inserted.
pub type PlainCell<K, V = u64> = Sums<K, V, i32, ()>;

/// The cell of the paper's section 3: keys and values with a check each.
pub type CheckedCell<K, V = u64> = Sums<K, V, i32, u32, ValueCheck>;

/// The smallest cell for the difference of two sets of keys: exclusive ors of keys and checks.
pub type XorCell<K> = Sums<K, (), (), u64, (), Xoring>;

impl<K, V, C, G, H, M> TableCell for Sums<K, V, C, G, H, M>
where
    K: Key,
    V: Sum,
    C: CountField,
    G: CheckField,
    H: ValueField<V>,
    M: Mode,
{
    type Key = K;
    type Value = V;
    const SIZE: usize = C::SIZE + K::SIZE + V::SIZE + G::SIZE + H::SIZE;
    const IS_COUNTED: bool = C::SIZE > 0;
    const IS_CHECKED: bool = G::SIZE > 0;
    const IS_VALUE_CHECKED: bool = H::IS_CHECK;
    const HAS_VALUE_FIELD: bool = H::SIZE > 0;
    const IS_MULTISET: bool = M::IS_MULTISET && C::SIZE > 0 && G::SIZE > 0;

    #[inline]
    fn zero() -> Self {
        let (count, key, value) = (C::zero(), K::zero(), V::zero());
        Sums { count, key, value, check: G::zero(), extra: H::zero(), mode: PhantomData }
    }

    #[inline]
    fn of(key: &K, value: V, hash: u128, count: i64) -> Self {
        Sums {
            count: C::zero().counted(count),
            key: M::times(*key, count),
            value: M::times(value, count),
            check: M::times(G::of(hash), count),
            extra: M::times(H::of(value, hash), count),
            mode: PhantomData,
        }
    }

    #[inline]
    fn add(&mut self, other: &Self) {
        self.count = self.count.plus(other.count);
        self.key = M::plus(self.key, other.key);
        self.value = M::plus(self.value, other.value);
        self.check = M::plus(self.check, other.check);
        self.extra = M::plus(self.extra, other.extra);
    }

    #[inline]
    fn subtract(&mut self, other: &Self) {
        self.count = self.count.minus(other.count);
        self.key = M::minus(self.key, other.key);
        self.value = M::minus(self.value, other.value);
        self.check = M::minus(self.check, other.check);
        self.extra = M::minus(self.extra, other.extra);
    }

    #[inline]
    fn count(&self) -> i64 {
        self.count.count().unwrap_or_else(|| i64::from(!self.is_key_free()))
    }

    #[inline]
    fn value(&self) -> V {
        self.value
    }

    #[inline]
    fn is_zero(&self) -> bool {
        self.is_key_free() && self.value == V::zero() && self.extra == H::zero()
    }

    #[inline]
    fn is_key_free(&self) -> bool {
        self.count == C::zero() && self.key == K::zero() && self.check == G::zero()
    }

    #[inline]
    fn has_keys_of(&self, other: &Self) -> bool {
        self.count == other.count && self.key == other.key && self.check == other.check
    }

    #[inline]
    fn candidate(&self, count: i64, lost: u64) -> Option<K> {
        M::quotient(self.key, count, lost)
    }

    #[inline]
    fn agrees(&self, hash: u128, count: i64) -> bool {
        self.check == M::times(G::of(hash), count)
    }

    fn values(&self, hash: u128, count: i64) -> Values<V> {
        H::values::<M>(self.extra, self.value, hash, count)
    }

    fn without_keys(&self) -> Self {
        Sums { value: self.value, extra: self.extra, ..Self::zero() }
    }

    fn write(&self, out: &mut [u8]) {
        let mut rest = out;
        let mut field = |size: usize| -> &mut [u8] {
            let (field, after) = std::mem::take(&mut rest).split_at_mut(size);
            rest = after;
            field
        };
        self.count.write(field(C::SIZE));
        self.key.write(field(K::SIZE));
        self.value.write(field(V::SIZE));
        self.check.write(field(G::SIZE));
        self.extra.write(field(H::SIZE));
        assert!(rest.is_empty());
    }

    fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::SIZE);
        let mut rest = bytes;
        let mut field = |size: usize| {
            let (field, after) = rest.split_at(size);
            rest = after;
            field
        };
        Sums {
            count: C::read(field(C::SIZE)),
            key: K::read(field(K::SIZE)),
            value: V::read(field(V::SIZE)),
            check: G::read(field(G::SIZE)),
            extra: H::read(field(H::SIZE)),
            mode: PhantomData,
        }
    }
}
