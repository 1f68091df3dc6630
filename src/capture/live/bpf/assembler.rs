//! A small assembler: instructions by their names, and labels in place of distances.
//!
//! What enters: steps and labels, in the order of the program. What leaves: the program. Jumps go forward only, so that
//! every program ends. A label that is not placed behind its jumps, or too far behind, is a mistake of this module's
//! callers that no input can cause.

use super::{BpfProgram, Instruction, code};

/// A position in the program, known once it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A step that does not jump.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A = byte at a fixed place.
    LoadByte(u32),
    /// A = half word at a fixed place.
    LoadHalf(u32),
    /// A = byte at X plus this.
    LoadByteIndexed(u32),
    /// A = half word at X plus this.
    LoadHalfIndexed(u32),
    /// X = a number.
    LoadIndex(u32),
    /// A = A & a number.
    And(u32),
    /// A = A << a number.
    ShiftLeft(u32),
    /// A = A + X.
    AddIndex,
    /// X = A.
    IndexFromA,
    /// Take this many bytes of the packet.
    Return(u32),
}

/// A condition on A.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    /// A equals this number.
    Equal(u32),
    /// A is greater than this number.
    Greater(u32),
    /// A has any of these bits.
    AnyBits(u32),
}

/// A jump and its label, taken if its test holds; otherwise the next instruction follows.
struct Jump {
    at: usize,
    to: Label,
}

/// A program in the making.
#[derive(Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    jumps: Vec<Jump>,
    /// The position of each label, once it is placed.
    places: Vec<Option<usize>>,
}

impl Assembler {
    /// Makes a new label, which is not placed yet.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places a label before the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// Appends a step.
    pub(super) fn step(&mut self, step: Step) {
        let (code, operand) = match step {
            Step::LoadByte(at) => (code::LOAD_BYTE, at),
            Step::LoadHalf(at) => (code::LOAD_HALF, at),
            Step::LoadByteIndexed(at) => (code::LOAD_BYTE_INDEXED, at),
            Step::LoadHalfIndexed(at) => (code::LOAD_HALF_INDEXED, at),
            Step::LoadIndex(number) => (code::LOAD_INDEX, number),
            Step::And(mask) => (code::AND, mask),
            Step::ShiftLeft(count) => (code::SHIFT_LEFT, count),
            Step::AddIndex => (code::ADD_INDEX, 0),
            Step::IndexFromA => (code::INDEX_FROM_A, 0),
            Step::Return(size) => (code::RETURN, size),
        };
        self.push(code, operand);
    }

    /// Appends a jump to the label if the test holds.
    pub(super) fn jump_if(&mut self, test: Test, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        match test {
            Test::Equal(number) => self.push(code::JUMP_EQUAL, number),
            Test::Greater(number) => self.push(code::JUMP_GREATER, number),
            Test::AnyBits(mask) => self.push(code::JUMP_ANY_BITS, mask),
        }
    }

    /// Appends a jump to the label.
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        self.push(code::JUMP, 0);
    }

    /// The program, with every jump resolved.
    ///
    /// # Panics
    /// A label is not placed behind its jumps, or a conditional jump has to skip more than 255 instructions.
    pub(super) fn finish(mut self) -> BpfProgram {
        for Jump { at, to } in self.jumps {
            let place = self.places[to.0].expect("a label that is jumped to is placed");
            let distance = place.checked_sub(at + 1).expect("jumps go forward");
            let instruction = &mut self.instructions[at];
            if instruction.code == code::JUMP {
                instruction.operand = u32::try_from(distance).expect("a program is short");
            } else {
                instruction.jump_true = u8::try_from(distance).expect("a condition jumps over at most 255");
            }
        }
        BpfProgram(self.instructions)
    }

    fn push(&mut self, code: u16, operand: u32) {
        self.instructions.push(Instruction { code, jump_true: 0, jump_false: 0, operand });
    }
}
