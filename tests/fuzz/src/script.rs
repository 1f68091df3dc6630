//! Bytes read as a script: what to make, then what to do with it.
//!
//! What enters: any bytes. What leaves: numbers and sums, zeros where the bytes have ended, so that every input is a
//! script and a longer one goes on where a shorter one ends.

use flowpeel_iblt::Sum;

/// The bytes not yet read.
#[derive(Clone)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// A script of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Script(bytes)
    }

    /// Whether all is read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        self.fill(&mut array);
        array
    }

    /// Fills `out` with the next bytes, and zeros.
    pub fn fill(&mut self, out: &mut [u8]) {
        let (read, rest) = self.0.split_at(out.len().min(self.0.len()));
        out[..read.len()].copy_from_slice(read);
        out[read.len()..].fill(0);
        self.0 = rest;
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// A key or a value: one of 128 that differ in their first byte, or, for an odd byte, one of which all bytes
    /// follow.
    pub fn sum<S: Sum>(&mut self) -> S {
        let first = self.byte();
        let mut bytes = vec![0; S::SIZE];
        match bytes.first_mut() {
            Some(low) if first & 1 == 0 => *low = first >> 1,
            _ => self.fill(&mut bytes),
        }
        S::read(&bytes)
    }

    /// How often: mostly a few times, and sometimes any number or one with many factors of two.
    pub fn count(&mut self) -> i64 {
        match self.byte() {
            0xff => i64::from_le_bytes(self.array()),
            0xfe => i64::from(self.byte() as i8) << (self.byte() & 63),
            few => i64::from(few % 9) - 4,
        }
    }
}
