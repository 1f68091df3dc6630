//! LOOKUP (section "Implementation Details", 5a of the paper), in memory or in a file: the arrays are read through
//! [`ReadWindows`].

use crate::Plan;
use crate::places::{Whitening, WindowStarts};

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The key was never inserted: that is certain.
    Absent,
    /// The key has this value, or (at the false positive rate) was never inserted.
    Value(u32),
    /// The field cannot decide. In a finished field, the key was inserted with several values, or had bad luck in every
    /// array.
    Indeterminate,
}

/// A reader of the arrays of a field.
pub trait ReadWindows {
    /// Why a window cannot be read.
    type Error;

    /// The bits of the window that begins at this place of an array; bits above its length are meaningless.
    ///
    /// # Errors
    ///
    /// The window cannot be read.
    fn window(&mut self, array_index: usize, place: u64) -> Result<u64, Self::Error>;
}

/// What one array says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrayAnswer {
    /// The key is not in this array.
    Absent,
    /// The key is in this array with this value, or it looks so by chance.
    Value(u32),
    /// More bits are set than one value has.
    TooMany,
}

impl ArrayAnswer {
    /// Interprets the bits that all windows of a key have in common.
    #[inline]
    pub(super) fn of(plan: &Plan, array_index: usize, hash: u128, bits: u64) -> Self {
        let code = plan.code();
        let ones = bits.count_ones();
        if ones != code.kappa() {
            return if ones < code.kappa() { ArrayAnswer::Absent } else { ArrayAnswer::TooMany };
        }
        // By chance, the bits may spell the number of no value.
        let value = Whitening::new(code, array_index, hash).decode(bits);
        if value < plan.goal().value_count { ArrayAnswer::Value(value as u32) } else { ArrayAnswer::Absent }
    }
}

/// Looks a key up. `is_settled` says that every key that one array leaves undecided is in the next one. Without that, a
/// key that is missing in the next array may just not have been moved there yet.
///
/// Complexity: about three windows for most keys that are not in the field, `k` for one that is.
///
/// # Errors
///
/// A window cannot be read.
pub fn look_up<R: ReadWindows>(plan: &Plan, reader: &mut R, hash: u128, is_settled: bool) -> Result<Found, R::Error> {
    for (array_index, array) in plan.arrays().iter().enumerate() {
        let mut bits = plan.code().mask();
        for place in WindowStarts::new(plan, array, array_index, hash) {
            bits &= reader.window(array_index, place)?;
            if bits.count_ones() < plan.code().kappa() {
                break;
            }
        }
        match ArrayAnswer::of(plan, array_index, hash, bits) {
            ArrayAnswer::Value(value) => return Ok(Found::Value(value)),
            ArrayAnswer::Absent if array_index == 0 || is_settled => return Ok(Found::Absent),
            ArrayAnswer::Absent => return Ok(Found::Indeterminate),
            ArrayAnswer::TooMany => {}
        }
    }
    Ok(Found::Indeterminate)
}
