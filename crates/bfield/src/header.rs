//! The head of a field's file: the plan and the contents of the field, everything but the bits. All numbers are
//! little-endian:
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `FPBFIELD` |
//! | 8..32 | version, nu, kappa, hash functions, steps (0 even, 1 scattered), arrays: 32 bits each |
//! | 32..40 | 1 if every key is settled, and zeros |
//! | 40..72 | pairs inserted, keys expected, values, false positive rate: 64 bits each |
//! | 72..488 | for each array keys expected and places: 64 bits each; then zeros |
//! | 508..512 | CRC-32 of what precedes it |

use crate::BFIELD_ARRAY_COUNT_MAX;
use crate::{ArrayPlan, Code, CodeShape, Contents, Goal, Plan, Steps};

/// The size of the head, in bytes.
pub(super) const HEADER_SIZE: usize = 512;

const MAGIC: &[u8; 8] = b"FPBFIELD";
const VERSION: u32 = 1;
const ARRAYS_OFFSET: usize = 72;
const CHECK_OFFSET: usize = HEADER_SIZE - 4;

const _: () = assert!(ARRAYS_OFFSET + 16 * BFIELD_ARRAY_COUNT_MAX <= CHECK_OFFSET);

/// Encodes the head of this field's file.
pub(super) fn encode(plan: &Plan, contents: Contents) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    let mut put = |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
    let (goal, code) = (plan.goal(), plan.code());
    let steps = match plan.steps() {
        Steps::Even => 0,
        Steps::Scattered => 1,
    };
    put(0, MAGIC);
    let small = [VERSION, code.nu(), code.kappa(), plan.hash_count(), steps, plan.arrays().len() as u32];
    let small = small.into_iter().chain([u32::from(contents.is_settled)]);
    small.enumerate().for_each(|(index, number)| put(8 + 4 * index, &number.to_le_bytes()));
    let large = [contents.pair_count, goal.key_count, goal.value_count, goal.false_positive_rate.to_bits()];
    let arrays = plan.arrays().iter().flat_map(|array| [array.key_count, array.start_count]);
    let large = large.into_iter().chain(arrays);
    large.enumerate().for_each(|(index, number)| put(40 + 8 * index, &number.to_le_bytes()));
    let check = crc32fast::hash(&bytes[..CHECK_OFFSET]);
    bytes[CHECK_OFFSET..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Decodes the head of a file, or says what is wrong with it.
pub(super) fn decode(bytes: &[u8; HEADER_SIZE]) -> Result<(Plan, Contents), &'static str> {
    let small = |index: usize| u32::from_le_bytes(std::array::from_fn(|at| bytes[8 + 4 * index + at]));
    let large = |index: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[40 + 8 * index + at]));
    if !bytes.starts_with(MAGIC) {
        return Err("it is not a field's file");
    }
    if small(0) != VERSION {
        return Err("it is of another version of flowpeel: build it again");
    }
    if crc32fast::hash(&bytes[..CHECK_OFFSET]).to_le_bytes() != bytes[CHECK_OFFSET..] {
        return Err("its head is damaged: build it again");
    }
    // The checksum only shows that the head is what was written, not that the writer was honest.
    let wrong = "its head describes no field";
    let array_count = small(5) as usize;
    if array_count > BFIELD_ARRAY_COUNT_MAX {
        return Err(wrong);
    }
    let code = Code::new(CodeShape { bit_count: small(1), one_count: small(2) }).ok_or(wrong)?;
    let steps = match small(4) {
        0 => Steps::Even,
        1 => Steps::Scattered,
        _ => return Err(wrong),
    };
    let goal = Goal { key_count: large(1), value_count: large(2), false_positive_rate: f64::from_bits(large(3)) };
    let array = |index: usize| ArrayPlan { key_count: large(4 + 2 * index), start_count: large(5 + 2 * index) };
    let arrays: Vec<ArrayPlan> = (0..array_count).map(array).collect();
    let plan = Plan::from_parts(&goal, code, small(3), steps, &arrays).map_err(|_| wrong)?;
    Ok((plan, Contents { pair_count: large(0), is_settled: small(6) == 1 }))
}
