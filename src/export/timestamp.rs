//! Times as RFC 3339 in UTC, to the microsecond: `2026-01-01T00:00:10.000000Z`.
//!
//! A list has one or two times for each connection, nearly all of one day. The calendar is asked once a day, and the
//! time of day is a matter of digits. (With a calendar's formatter for each time, half of the time for a list went into
//! them.)

use crate::export::decimal::digits;
use jiff::Timestamp;
use jiff::fmt::strtime;

const DATE_SIZE: usize = 11;
const TEXT_SIZE: usize = DATE_SIZE + 16;
/// UTC, as EVE writes it.
const EVE_ZONE: &[u8; 5] = b"+0000";
const DAY_US: i64 = 86_400_000_000;

/// A time in ns since 1970 as RFC 3339 in UTC, to the microsecond.
///
/// ```
/// assert_eq!(flowpeel::export::rfc3339(1_767_225_610_100_000_000), "2026-01-01T00:00:10.100000Z");
/// ```
#[must_use]
pub fn rfc3339(time_ns: i64) -> String {
    TimeFormatter::default().rfc3339(time_ns).as_str().to_owned()
}

/// The text of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text([u8; TEXT_SIZE]);

impl Text {
    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The time as EVE has it: with `+0000` for UTC instead of `Z`.
    pub(super) fn eve(&self) -> [u8; TEXT_SIZE + EVE_ZONE.len() - 1] {
        let mut text = [0; TEXT_SIZE + EVE_ZONE.len() - 1];
        text[..TEXT_SIZE].copy_from_slice(&self.0);
        text[TEXT_SIZE - 1..].copy_from_slice(EVE_ZONE);
        text
    }

    /// The text of these bytes, if they are of that size and valid UTF-8.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        str::from_utf8(bytes).ok()?;
        bytes.try_into().ok().map(Text)
    }
}

/// Formats times. It remembers the date of the last one.
#[derive(Default)]
pub struct TimeFormatter {
    day: Option<(i64, [u8; DATE_SIZE])>,
}

impl TimeFormatter {
    /// A time in ns since 1970 as text.
    pub(super) fn rfc3339(&mut self, time_ns: i64) -> Text {
        let time_us = time_ns.div_euclid(1_000);
        let (day, of_day_us) = (time_us.div_euclid(DAY_US), time_us.rem_euclid(DAY_US));
        let date = match self.day {
            Some((known, date)) if known == day => date,
            _ => date(time_ns),
        };
        self.day = Some((day, date));
        let seconds = of_day_us / 1_000_000;
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        text[..DATE_SIZE].copy_from_slice(&date);
        put(&mut text[11..13], seconds / 3_600);
        put(&mut text[14..16], seconds / 60 % 60);
        put(&mut text[17..19], seconds % 60);
        put(&mut text[20..26], of_day_us % 1_000_000);
        Text(text)
    }
}

/// The date of a time, with the T after it.
fn date(time_ns: i64) -> [u8; DATE_SIZE] {
    // The calendar covers every i64 of nanoseconds (1677 to 2262), and its years have four digits.
    let time = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    let text = strtime::format("%Y-%m-%dT", time).unwrap_or_default();
    text.as_bytes().try_into().unwrap_or(*b"1970-01-01T")
}

/// Writes a number in decimal, padded with zeros to the width of `place`.
#[inline(always)]
fn put(place: &mut [u8], number: i64) {
    place.copy_from_slice(&digits(number as u64, place.len())[..place.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_utc_to_the_microsecond() {
        let mut times = TimeFormatter::default();
        for (time_ns, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_767_225_610_123_456_789, "2026-01-01T00:00:10.123456Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775Z"),
            (-1_000, "1969-12-31T23:59:59.999999Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224Z"),
        ] {
            assert_eq!(times.rfc3339(time_ns).as_str(), text);
        }
    }

    proptest! {
        #[test]
        fn the_calendar_agrees(all in prop::collection::vec(any::<i64>(), 1..20)) {
            let mut times = TimeFormatter::default();
            for time_ns in all {
                let time = Timestamp::from_microsecond(time_ns.div_euclid(1_000)).unwrap();
                let text = strtime::format("%Y-%m-%dT%H:%M:%S.%6fZ", time).unwrap();
                let formatted = times.rfc3339(time_ns);
                prop_assert_eq!(formatted.as_str(), text);
            }
        }
    }
}
