//! Classic BPF: the programs by which the kernel decides which packets are worth copying, and how much of each.
//!
//! A program is assembled from instructions by their names, with labels in place of distances, or read from a listing
//! in numbers as `tcpdump -ddd` prints it. What is read is checked so far as the kernel's own check would not say what
//! is wrong.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

mod filters;

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

    /// This program for the packets of the interface with this index; those of others are not wanted.
    pub(super) fn of_interface(&self, index: i32) -> Self {
        const SKIP_VERDICT: u8 = 1;
        let step = |code, operand| Instruction { code, jump_true: 0, jump_false: 0, operand };
        let mut instructions = vec![
            step(code::LOAD_WORD, INTERFACE_INDEX),
            Instruction { jump_true: SKIP_VERDICT, ..step(code::JUMP_EQUAL, index as u32) },
            step(code::RETURN, 0),
            // A program begins with a zero in A.
            step(code::LOAD_NUMBER, 0),
        ];
        // Distances are counted from each jump, so they stay as they are.
        instructions.extend_from_slice(&self.0);
        BpfProgram(instructions)
    }

    /// Reads a listing in the form of `tcpdump -ddd`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not such a listing: the error names the line.
    pub fn read(path: &Path) -> Result<Self> {
        let cannot = |error: std::io::Error| Error::new("cannot read the program").in_file(path).because(error);
        let file = File::open(path).map_err(cannot)?;
        let mut text = String::new();
        // One byte more than allowed distinguishes what is too long from what just fits.
        file.take(BPF_FILE_SIZE_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
        if text.len() as u64 > BPF_FILE_SIZE_MAX {
            return Err(Error::new("it is too long for a program as tcpdump -ddd prints it").in_file(path));
        }
        BpfProgram::from_listing(&text).map_err(|error| error.in_file(path))
    }

    /// Reads the text of such a listing.
    ///
    /// # Errors
    ///
    /// The text is not such a listing, an instruction jumps out of the program, or the last one does not return: the
    /// error names the line.
    ///
    /// # Examples
    ///
    /// ```
    /// use flowpeel::capture::live::BpfProgram;
    ///
    /// assert!(BpfProgram::from_listing("1\n6 0 0 262144\n").is_ok());
    /// let error = BpfProgram::from_listing("2\n21 9 0 6\n6 0 0 0\n").unwrap_err();
    /// assert_eq!(error.to_string(), "line 2: it jumps behind the end of the program");
    /// ```
    pub fn from_listing(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let count = lines.next().and_then(|line| line.trim().parse::<usize>().ok());
        let Some(count) = count.filter(|count| (1..=BPF_INSTRUCTION_COUNT_MAX).contains(count)) else {
            let what = format!(
                "a program as tcpdump -ddd prints it begins with the number of its instructions, from 1 to \
                 {BPF_INSTRUCTION_COUNT_MAX}"
            );
            return Err(wrong(1, &what));
        };
        let mut instructions = Vec::new();
        for (at, line) in lines.enumerate() {
            let instruction = read_instruction(line)
                .ok_or_else(|| wrong(at + 2, "an instruction is four whole numbers: code, two jumps, operand"))?;
            if at >= count {
                return Err(wrong(at + 2, &format!("there are more instructions than the {count} of line 1")));
            }
            if !stays_inside(&instruction, count - at - 1) {
                return Err(wrong(at + 2, "it jumps behind the end of the program"));
            }
            instructions.push(instruction);
        }
        if instructions.len() < count {
            let what = format!("there are fewer instructions than the {count} of line 1");
            return Err(wrong(instructions.len() + 1, &what));
        }
        match instructions.last() {
            Some(last) if last.code & code::CLASS_MASK == code::CLASS_RETURN => Ok(BpfProgram(instructions)),
            _ => Err(wrong(count + 1, "the last instruction has to return")),
        }
    }
}

/// The encoding of instructions: a class in the low three bits; the meaning of the others depends on the class.
pub(super) mod code {
    /// The bits of the class.
    pub(super) const CLASS_MASK: u16 = 0x07;
    /// The class of jumps.
    pub(super) const CLASS_JUMP: u16 = 0x05;
    /// The class of returns.
    pub(super) const CLASS_RETURN: u16 = 0x06;
    /// A = a number.
    pub(super) const LOAD_NUMBER: u16 = 0x00;
    /// A = word at a fixed place.
    pub(super) const LOAD_WORD: u16 = 0x20;
    /// A = half word at a fixed place.
    pub(super) const LOAD_HALF: u16 = 0x28;
    /// A = byte at a fixed place.
    pub(super) const LOAD_BYTE: u16 = 0x30;
    /// A = half word at X plus a number.
    pub(super) const LOAD_HALF_INDEXED: u16 = 0x48;
    /// A = byte at X plus a number.
    pub(super) const LOAD_BYTE_INDEXED: u16 = 0x50;
    /// X = a number.
    pub(super) const LOAD_INDEX: u16 = 0x01;
    /// A = A & a number.
    pub(super) const AND: u16 = 0x54;
    /// A = A << a number.
    pub(super) const SHIFT_LEFT: u16 = 0x64;
    /// A = A + X.
    pub(super) const ADD_INDEX: u16 = 0x0c;
    /// X = A.
    pub(super) const INDEX_FROM_A: u16 = 0x07;
    /// Skip this many instructions, without condition.
    pub(super) const JUMP: u16 = 0x05;
    /// Whether A equals a number.
    pub(super) const JUMP_EQUAL: u16 = 0x15;
    /// Whether A is greater than a number.
    pub(super) const JUMP_GREATER: u16 = 0x25;
    /// Whether A has any of these bits.
    pub(super) const JUMP_ANY_BITS: u16 = 0x45;
    /// The verdict on the packet: take this many bytes.
    pub(super) const RETURN: u16 = 0x06;
}

/// The place beyond all packets at which programs find the index of the interface (SKF_AD_OFF + SKF_AD_IFINDEX).
const INTERFACE_INDEX: u32 = (-0x1000_i32 + 8) as u32;

/// The longest `--bpf` file, in bytes: the most instructions, each with the longest numbers.
const BPF_FILE_SIZE_MAX: u64 = 32 * (BPF_INSTRUCTION_COUNT_MAX as u64 + 1);

fn wrong(line: usize, what: &str) -> Error {
    Error::new(format!("line {line}: {what}"))
}

fn read_instruction(line: &str) -> Option<Instruction> {
    let mut numbers = line.split_ascii_whitespace();
    let instruction = Instruction {
        code: numbers.next()?.parse().ok()?,
        jump_true: numbers.next()?.parse().ok()?,
        jump_false: numbers.next()?.parse().ok()?,
        operand: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(instruction)
}

/// Whether the instruction stays inside a program that has `behind` instructions after it.
fn stays_inside(instruction: &Instruction, behind: usize) -> bool {
    let distance = match instruction.code {
        code if code & code::CLASS_MASK != code::CLASS_JUMP => return true,
        code::JUMP => instruction.operand,
        _ => u32::from(instruction.jump_true.max(instruction.jump_false)),
    };
    // A 32-bit number fits into a `usize` wherever flowpeel runs.
    (distance as usize) < behind
}

/// A position in the program, known once it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BpfLabel(usize);

/// A step that does not jump.
#[derive(Clone, Copy, Debug)]
enum BpfStep {
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
enum BpfTest {
    /// A equals this number.
    Equal(u32),
    /// A is greater than this number.
    Greater(u32),
    /// A has any of these bits.
    AnyBits(u32),
}

/// A jump and its label, taken if its test holds; otherwise the next instruction follows.
struct BpfJump {
    at: usize,
    to: BpfLabel,
}

/// A program in the making.
#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    jumps: Vec<BpfJump>,
    /// The position of each label, once it is placed.
    places: Vec<Option<usize>>,
}

impl Assembler {
    /// Makes a new label, which is not placed yet.
    fn label(&mut self) -> BpfLabel {
        self.places.push(None);
        BpfLabel(self.places.len() - 1)
    }

    /// Places a label before the next instruction.
    fn place(&mut self, label: BpfLabel) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// Appends a step.
    fn step(&mut self, step: BpfStep) {
        let (code, operand) = match step {
            BpfStep::LoadByte(at) => (code::LOAD_BYTE, at),
            BpfStep::LoadHalf(at) => (code::LOAD_HALF, at),
            BpfStep::LoadByteIndexed(at) => (code::LOAD_BYTE_INDEXED, at),
            BpfStep::LoadHalfIndexed(at) => (code::LOAD_HALF_INDEXED, at),
            BpfStep::LoadIndex(number) => (code::LOAD_INDEX, number),
            BpfStep::And(mask) => (code::AND, mask),
            BpfStep::ShiftLeft(count) => (code::SHIFT_LEFT, count),
            BpfStep::AddIndex => (code::ADD_INDEX, 0),
            BpfStep::IndexFromA => (code::INDEX_FROM_A, 0),
            BpfStep::Return(size) => (code::RETURN, size),
        };
        self.push(code, operand);
    }

    /// Appends a jump to the label if the test holds.
    fn jump_if(&mut self, test: BpfTest, to: BpfLabel) {
        self.jumps.push(BpfJump { at: self.instructions.len(), to });
        match test {
            BpfTest::Equal(number) => self.push(code::JUMP_EQUAL, number),
            BpfTest::Greater(number) => self.push(code::JUMP_GREATER, number),
            BpfTest::AnyBits(mask) => self.push(code::JUMP_ANY_BITS, mask),
        }
    }

    /// Appends a jump to the label.
    fn jump(&mut self, to: BpfLabel) {
        self.jumps.push(BpfJump { at: self.instructions.len(), to });
        self.push(code::JUMP, 0);
    }

    /// The program, with every jump resolved.
    ///
    /// # Panics
    /// A label is not placed behind its jumps, or a conditional jump has to skip more than 255 instructions.
    fn finish(mut self) -> BpfProgram {
        for BpfJump { at, to } in self.jumps {
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

#[cfg(test)]
mod tests;
