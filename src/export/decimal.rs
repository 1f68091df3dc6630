//! Numbers in decimal, put together in words: a call for each copy of a few bytes took longer than the digits.

/// Appends the first `size` bytes of a text: all of it, which takes no call for a copy, and then the rest is cut off.
#[inline]
pub(super) fn append_start<const SIZE: usize>(line: &mut Vec<u8>, text: [u8; SIZE], size: usize) {
    line.extend_from_slice(&text);
    line.truncate(line.len() - (SIZE - size));
}

/// The most digits that are put together in a word.
const WORD_DIGITS_MAX: usize = size_of::<u64>();

/// The first number that has more digits.
const WORD_NUMBERS: u64 = 10u64.pow(WORD_DIGITS_MAX as u32);

/// The last `count` digits of a number, at most [`WORD_DIGITS_MAX`], from the first byte on; the others are zero bytes.
#[inline]
pub(super) fn digits(mut number: u64, count: usize) -> [u8; WORD_DIGITS_MAX] {
    let mut digits = 0;
    for _ in 0..count {
        digits = (digits << u8::BITS) | (u64::from(b'0') + number % 10);
        number /= 10;
    }
    digits.to_le_bytes()
}

/// A number in decimal.
pub(super) fn number(line: &mut Vec<u8>, number: u64) {
    if number < WORD_NUMBERS {
        let count = number.checked_ilog10().map_or(1, |last| last as usize + 1);
        append_start(line, digits(number, count), count);
    } else {
        self::number(line, number / WORD_NUMBERS);
        line.extend_from_slice(&digits(number, WORD_DIGITS_MAX));
    }
}

/// A duration in seconds, to the microsecond and with at least one decimal.
pub(super) fn seconds(line: &mut Vec<u8>, duration_ns: i64) {
    let duration_us = duration_ns.max(0) as u64 / 1_000;
    number(line, duration_us / 1_000_000);
    line.push(b'.');
    let (mut fraction, mut count) = (duration_us % 1_000_000, 6);
    while count > 1 && fraction.is_multiple_of(10) {
        (fraction, count) = (fraction / 10, count - 1);
    }
    append_start(line, digits(fraction, count), count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_lengths_are_written_as_they_are_read() {
        let powers = (0..20).map(|exponent| 10u64.pow(exponent));
        for number in powers.flat_map(|power| [power - 1, power, power + 1]).chain([u64::MAX]) {
            let mut line = b"0".to_vec();
            super::number(&mut line, number);
            assert_eq!(String::from_utf8(line).unwrap(), format!("0{number}"));
        }
        for (duration_us, text) in [(0, "0.0"), (1, "0.000001"), (100_000, "0.1"), (12_000_340, "12.00034")] {
            let mut line = Vec::new();
            seconds(&mut line, duration_us * 1_000);
            assert_eq!(String::from_utf8(line).unwrap(), text);
        }
    }
}
