//! The listing of a program in numbers, as `tcpdump -ddd` prints it: the number of instructions, then one instruction a
//! line.
//!
//! What enters: a file or its text. What leaves: the program, or the line that is wrong.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{BpfProgram, Instruction, code};
use crate::capture::live::bpf::BPF_INSTRUCTION_COUNT_MAX;
use crate::error::{Error, Result};

/// The longest `--bpf` file, in bytes: the most instructions, each with the longest numbers.
const BPF_FILE_SIZE_MAX: u64 = 32 * (BPF_INSTRUCTION_COUNT_MAX as u64 + 1);

impl BpfProgram {
    /// Reads a listing in the form of `tcpdump -ddd`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not such a listing: the error names the line.
    pub fn read(path: &Path) -> Result<Self> {
        let cannot = |error: std::io::Error| Error::new("cannot read the program").in_file(path).because(error);
        let file = File::open(path).map_err(cannot)?;
        let mut text = String::new();
        // One byte more than allowed tells what is too long from what just fits.
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
