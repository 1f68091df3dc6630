//! Classic BPF: the programs by which the kernel decides which packets are worth copying, and how much of each.
//!
//! What enters: what is to be captured, or a program from elsewhere. What leaves: instructions, checked so far as the
//! kernel's own check would not say what is wrong.

mod assembler;
mod filters;
mod listing;
#[cfg(test)]
mod tests;

pub(super) use filters::{everything, flags, headers, nothing};

/// The most instructions of a `--bpf` program: what the kernel takes (BPF_MAXINSNS).
pub const BPF_INSTRUCTION_COUNT_MAX: usize = 4096;

/// One instruction of the BPF machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// What to do.
    pub(super) code: u16,
    /// How many instructions to skip when a comparison holds.
    pub(super) jump_true: u8,
    /// How many instructions to skip when it does not hold.
    pub(super) jump_false: u8,
    /// The operand.
    pub(super) operand: u32,
}

/// A program that the kernel runs on every packet. It returns how many bytes of the packet to take, 0 if it is not
/// wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfProgram(Vec<Instruction>);

impl BpfProgram {
    /// The instructions; there is at least one, and no more than
    /// [`BPF_INSTRUCTION_COUNT_MAX`](crate::capture::live::bpf::BPF_INSTRUCTION_COUNT_MAX).
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.0
    }
}

/// The encoding of instructions: a class in the low three bits; the meaning of the others depends on the class.
pub(super) mod code {
    /// The bits of the class.
    pub(in crate::capture::live) const CLASS_MASK: u16 = 0x07;
    /// The class of jumps.
    pub(in crate::capture::live) const CLASS_JUMP: u16 = 0x05;
    /// The class of returns.
    pub(in crate::capture::live) const CLASS_RETURN: u16 = 0x06;
    /// A = half word at a fixed place.
    pub(in crate::capture::live) const LOAD_HALF: u16 = 0x28;
    /// A = byte at a fixed place.
    pub(in crate::capture::live) const LOAD_BYTE: u16 = 0x30;
    /// A = half word at X plus a number.
    pub(in crate::capture::live) const LOAD_HALF_INDEXED: u16 = 0x48;
    /// A = byte at X plus a number.
    pub(in crate::capture::live) const LOAD_BYTE_INDEXED: u16 = 0x50;
    /// X = a number.
    pub(in crate::capture::live) const LOAD_INDEX: u16 = 0x01;
    /// A = A & a number.
    pub(in crate::capture::live) const AND: u16 = 0x54;
    /// A = A << a number.
    pub(in crate::capture::live) const SHIFT_LEFT: u16 = 0x64;
    /// A = A + X.
    pub(in crate::capture::live) const ADD_INDEX: u16 = 0x0c;
    /// X = A.
    pub(in crate::capture::live) const INDEX_FROM_A: u16 = 0x07;
    /// Skip this many instructions, without condition.
    pub(in crate::capture::live) const JUMP: u16 = 0x05;
    /// Whether A equals a number.
    pub(in crate::capture::live) const JUMP_EQUAL: u16 = 0x15;
    /// Whether A is greater than a number.
    pub(in crate::capture::live) const JUMP_GREATER: u16 = 0x25;
    /// Whether A has any of these bits.
    pub(in crate::capture::live) const JUMP_ANY_BITS: u16 = 0x45;
    /// The verdict on the packet: take this many bytes.
    pub(in crate::capture::live) const RETURN: u16 = 0x06;
}
