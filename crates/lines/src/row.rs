//! Rows of words: a cache line, or half of one.

// What may be made of zeroed memory is declared here.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::AtomicU64;

/// A cache line of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

/// Half a cache line of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct HalfLine(pub [u64; 4]);

/// A cache line of words that several threads write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SharedLine(pub [AtomicU64; 8]);

/// A type that arrays of lines can be made of.
///
/// # Safety
///
/// The type must divide cache lines evenly, be aligned to its size or less, and be valid with every bit zero.
pub unsafe trait Words: Default + Send + Sync + 'static {}

// SAFETY: it consists of words, and is as large as a line.
unsafe impl Words for Line {}
// SAFETY: it consists of words, and is half as large as a line.
unsafe impl Words for HalfLine {}
// SAFETY: it is laid out as a line.
unsafe impl Words for SharedLine {}

/// A type that is a row of words and nothing else.
pub trait Row: Words + Copy + PartialEq + fmt::Debug {
    /// How many words these are.
    const WORD_COUNT: usize;

    /// The row of what `word` gives for each position.
    fn from_fn(word: impl FnMut(usize) -> u64) -> Self;
    /// The words.
    fn words(&self) -> &[u64];
    /// The words, to be changed.
    fn words_mut(&mut self) -> &mut [u64];
}

macro_rules! row {
    ($name:ident, $word_count:literal) => {
        impl Row for $name {
            const WORD_COUNT: usize = $word_count;

            #[inline]
            fn from_fn(word: impl FnMut(usize) -> u64) -> Self {
                $name(std::array::from_fn(word))
            }

            #[inline]
            fn words(&self) -> &[u64] {
                &self.0
            }

            #[inline]
            fn words_mut(&mut self) -> &mut [u64] {
                &mut self.0
            }
        }
    };
}

row!(Line, 8);
row!(HalfLine, 4);
