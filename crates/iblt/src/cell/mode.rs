//! How fields are combined: by sums or by exclusive ors. Both are groups; only sums keep a key that is there twice
//! (section 3 of the paper: "we cannot use XORs"), and only exclusive ors never carry.

use crate::sum::Sum;

/// How fields are combined.
pub trait Mode: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Whether the same element twice differs from nothing.
    const IS_MULTISET: bool;

    /// The two elements combined.
    fn plus<S: Sum>(one: S, other: S) -> S;
    /// The first element without the second.
    fn minus<S: Sum>(one: S, other: S) -> S;
    /// The element, `count` times.
    fn times<S: Sum>(one: S, count: i64) -> S;
    /// One of the elements that give `sum` when taken `count` times, as [`Sum::quotient`].
    fn quotient<S: Sum>(sum: S, count: i64, lost: u64) -> Option<S>;
}

/// Wrapping sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adding;

impl Mode for Adding {
    const IS_MULTISET: bool = true;

    #[inline]
    fn plus<S: Sum>(one: S, other: S) -> S {
        one.plus(other)
    }

    #[inline]
    fn minus<S: Sum>(one: S, other: S) -> S {
        one.minus(other)
    }

    #[inline]
    fn times<S: Sum>(one: S, count: i64) -> S {
        one.times(count)
    }

    #[inline]
    fn quotient<S: Sum>(sum: S, count: i64, lost: u64) -> Option<S> {
        match count {
            1 => Some(sum),
            -1 => Some(S::zero().minus(sum)),
            _ => sum.quotient(count, lost),
        }
    }
}

/// Exclusive ors. Adding and removing are the same; only a count distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xoring;

impl Mode for Xoring {
    const IS_MULTISET: bool = false;

    #[inline]
    fn plus<S: Sum>(one: S, other: S) -> S {
        one.xor(other)
    }

    #[inline]
    fn minus<S: Sum>(one: S, other: S) -> S {
        one.xor(other)
    }

    #[inline]
    fn times<S: Sum>(one: S, count: i64) -> S {
        if count & 1 == 1 { one } else { S::zero() }
    }

    #[inline]
    fn quotient<S: Sum>(sum: S, count: i64, _lost: u64) -> Option<S> {
        (count & 1 == 1).then_some(sum)
    }
}
