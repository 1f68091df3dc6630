//! LOOKUP (section "Implementation Details", 5a of the paper), wherever the arrays are.
//!
//! What enters: a plan, the hash of a key, and who can read windows: memory or a file. What leaves: whether the key is
//! in, and with which value.

use super::Plan;
use super::places::{Whitening, WindowStarts};

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was never inserted: that is certain.
    Absent,
    /// It has this value, or (at the false positive rate) was never inserted.
    Value(u32),
    /// It can not be told. Of a finished field: it was inserted with several values, or chance was against it in every
    /// array.
    Indeterminate,
}

/// Who reads the arrays of a field.
pub trait ReadWindows {
    /// Why a window can not be read.
    type Error;

    /// The bits of the window that begins at this place of an array; what lies above its length is of no meaning.
    ///
    /// # Errors
    ///
    /// It can not be read.
    fn window(&mut self, array_index: usize, place: u64) -> Result<u64, Self::Error>;
}

/// What one array says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrayAnswer {
    /// It is not in this array.
    Absent,
    /// It is in with this value, or by chance.
    Value(u32),
    /// There are too many bits.
    TooMany,
}

impl ArrayAnswer {
    /// What the bits say that all windows of a key have in common.
    #[inline]
    pub(super) fn of(plan: &Plan, array_index: usize, hash: u128, bits: u64) -> Self {
        let code = plan.code();
        let ones = bits.count_ones();
        if ones != code.kappa() {
            return if ones < code.kappa() { ArrayAnswer::Absent } else { ArrayAnswer::TooMany };
        }
        // Chance may spell the number of no value.
        let value = Whitening::new(code, array_index, hash).decode(bits);
        if value < plan.goal().value_count { ArrayAnswer::Value(value as u32) } else { ArrayAnswer::Absent }
    }
}

/// Looks a key up. `is_settled` says that every key that an array can not tell is in the next one; without that, a key
/// that is not in the next one may be on its way there.
///
/// Complexity: some three windows for most keys that are not in, `k` for one that is.
///
/// # Errors
///
/// A window can not be read.
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
