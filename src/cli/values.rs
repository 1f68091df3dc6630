//! Parsers of values as people write them: counts (500k), sizes (256MiB), durations (10s), ranges, and random numbers.

use crate::capture::{FANOUT_COUNT_MAX, RING_SIZE_MAX, RING_SIZE_MIN};
use crate::engine::{PICKUP_MAX, SHARDS_MAX};
use crate::error::{Error, Result};
use crate::select;
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{PLAN_FAILURE_MAX, PLAN_FAILURE_MIN};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A count: `1000`, `500k`, `2M`, `1G`, by thousands.
pub(super) fn count(text: &str) -> std::result::Result<u64, String> {
    let factors = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
    scaled(text, &factors).ok_or_else(|| "a count is a whole number, with k, M or G for thousands: 500k".to_owned())
}

/// A whole number as it is.
pub(super) fn number(text: &str) -> std::result::Result<u64, String> {
    whole(text, 0..=u64::MAX)
}

/// A whole number of this range.
fn whole<T>(text: &str, range: RangeInclusive<T>) -> std::result::Result<T, String>
where
    T: TryFrom<u64> + PartialOrd + fmt::Display,
{
    let parsed = scaled(text, &[]).and_then(|number| T::try_from(number).ok());
    let within = parsed.filter(|number| range.contains(number));
    within.ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
}

/// How many times as fast as a capture was made it is played.
pub(super) fn speed(text: &str) -> std::result::Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=10_000.0).contains(speed));
    speed.ok_or_else(|| "a factor from 0.01 to 10000".to_owned())
}

/// A number of threads.
pub(super) fn shards(text: &str) -> std::result::Result<usize, String> {
    whole(text, 1..=SHARDS_MAX)
}

/// A number of capture threads on one interface.
pub(super) fn fanout(text: &str) -> std::result::Result<usize, String> {
    whole(text, 1..=FANOUT_COUNT_MAX)
}

/// A size in bytes: `256MiB`, `1G`, by 1024.
pub(super) fn size(text: &str) -> std::result::Result<u64, String> {
    // For less than this the unit was forgotten.
    let size = bytes(text).filter(|size| *size >= 1 << 20);
    size.ok_or_else(|| "a size is a whole number of KiB, MiB or GiB, at least 1MiB: 256MiB".to_owned())
}

/// A size in bytes that may be less than 1 MiB, of something that has a range of its own.
pub(super) fn any_size(text: &str) -> std::result::Result<u64, String> {
    bytes(text).ok_or_else(|| "a size is a whole number of KiB, MiB or GiB: 1MiB, 512KiB".to_owned())
}

/// The size of a ring.
pub(super) fn ring_size(text: &str) -> std::result::Result<u64, String> {
    let (least, most) = (RING_SIZE_MIN >> 10, RING_SIZE_MAX >> 20);
    let size = any_size(text)?;
    let size = Some(size).filter(|size| (RING_SIZE_MIN..=RING_SIZE_MAX).contains(size));
    size.ok_or_else(|| format!("a ring has from {least}KiB to {most}MiB"))
}

fn bytes(text: &str) -> Option<u64> {
    let plain = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    scaled(plain, &[("k", 1 << 10), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)])
}

fn scaled(text: &str, factors: &[(&str, u64)]) -> Option<u64> {
    let factor = factors.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (digits, factor) = factor.unwrap_or((text, 1));
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A duration: `10s`, `500ms`, `1h 30m`, `5d`.
pub(super) fn duration(text: &str) -> std::result::Result<Duration, String> {
    select::duration(text).ok_or_else(|| "a duration is a number above 0 with its unit: 10s, 500ms, 1m, 5d".to_owned())
}

/// A time, in ns since 1970: `2026-01-01T00:00:00Z`, the beginning of a day in UTC, `2026-01-01`, or so long ago, `2h`.
pub(super) fn time(text: &str) -> std::result::Result<i64, String> {
    let ago = || {
        let ago_ns = i64::try_from(select::duration(text)?.as_nanos()).ok()?;
        i64::try_from(jiff::Timestamp::now().as_nanosecond()).ok()?.checked_sub(ago_ns)
    };
    let what = "a time is 2026-01-01T00:00:00Z, a day, 2026-01-01, in UTC, or so long ago: 2h, 5d";
    select::time_ns(text).or_else(ago).ok_or_else(|| what.to_owned())
}

/// How much is kept: an age or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepLimit {
    Age(Duration),
    Size(u64),
}

/// How much is kept: `7d`, `36h`, `2GiB`.
pub(super) fn keep(text: &str) -> std::result::Result<KeepLimit, String> {
    if let Ok(size) = size(text) {
        return Ok(KeepLimit::Size(size));
    }
    let age = duration(text).map(KeepLimit::Age);
    age.map_err(|_| "what is kept is an age (7d, 36h) or a size of at least 1MiB (500MiB, 2GiB)".to_owned())
}

/// A duration after which something happens; with `None` it never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(pub(super) Option<Duration>);

/// A limit: a duration, or `0` for none.
pub(super) fn limit(text: &str) -> std::result::Result<Limit, String> {
    if text == "0" {
        return Ok(Limit(None));
    }
    let limit = duration(text).map(|duration| Limit(Some(duration)));
    limit.map_err(|_| "a duration is a number with its unit, 4h or 30m, or 0 for never".to_owned())
}

/// One in how many packets.
pub(super) fn pickup(text: &str) -> std::result::Result<u32, String> {
    whole(text, 0..=PICKUP_MAX).map_err(|what| format!("{what}; 1 inspects every packet, 0 none"))
}

/// A range of counts, both ends included: `0-20`, or a single count.
pub(super) fn count_range(text: &str) -> std::result::Result<RangeInclusive<u64>, String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (count(low)?, count(high)?) {
        (low, high) if low <= high => Ok(low..=high),
        _ => Err("a range goes from the lesser to the greater: 0-20".to_owned()),
    }
}

/// A part of a whole, from 0 to 1.
pub(super) fn share(text: &str) -> std::result::Result<f64, String> {
    let parsed: Option<f64> = text.parse().ok();
    parsed.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "a share is from 0 to 1: 0.2".to_owned())
}

/// How rarely something is to fail.
pub(super) fn failure(text: &str) -> std::result::Result<f64, String> {
    let parsed: Option<f64> = text.parse().ok();
    parsed
        .filter(|failure| (PLAN_FAILURE_MIN..=PLAN_FAILURE_MAX).contains(failure))
        .ok_or_else(|| format!("a share from {PLAN_FAILURE_MIN:e} to {PLAN_FAILURE_MAX}: 1e-6"))
}

/// A secret of random bytes.
pub(super) fn random_secret() -> Result<Secret> {
    Ok(Secret::new(random_bytes()?))
}

/// A random number, different in every run.
pub(super) fn random_number() -> Result<u64> {
    Ok(u64::from_le_bytes(random_bytes()?))
}

/// Random bytes from the system.
pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::new("the system gives no random numbers").because(error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_have_their_own_units() {
        assert_eq!(count("500k"), Ok(500_000));
        assert_eq!(count("17"), Ok(17));
        assert_eq!(size("256MiB"), Ok(256 << 20));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert_eq!(size("2048KiB"), Ok(2 << 20));
        assert_eq!(size("1048576B"), Ok(1 << 20));
        assert!(size("256").is_err(), "the unit is missing");
        assert_eq!((any_size("16KiB"), any_size("256")), (Ok(16 << 10), Ok(256)));
        assert_eq!((ring_size("512KiB"), ring_size("1GiB")), (Ok(512 << 10), Ok(1 << 30)));
        assert!(ring_size("511KiB").is_err() && ring_size("1025MiB").is_err());
        for wrong in ["", "k", "-1", "+1", "1.5M", "99999999999G", "1 k", "1x"] {
            assert!(count(wrong).is_err(), "{wrong}");
            assert!(size(wrong).is_err(), "{wrong}");
            assert!(any_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_say_what_is_possible() {
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
        assert_eq!((shards("1"), shards("8")), (Ok(1), Ok(8)));
        for wrong in ["", "0", "9", "-1", "many", "1k"] {
            assert!(shards(wrong).unwrap_err().contains("from 1 to 8"), "{wrong}");
        }
        assert!(number("18446744073709551616").is_err() && number("0x1").is_err());
    }

    #[test]
    fn durations_need_a_unit_and_are_positive() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("5d"), Ok(Duration::from_secs(5 * 86_400)));
        for wrong in ["", "10", "-5s", "0s", "ten seconds"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_absolute_or_so_long_ago() {
        assert_eq!(time("1970-01-02"), Ok(86_400_000_000_000));
        assert_eq!(time("1970-01-01T00:00:01.5Z"), Ok(1_500_000_000));
        assert!(time("2h").unwrap() > time("2026-01-01").unwrap() && time("1s").unwrap() > time("1h").unwrap());
        for wrong in ["", "yesterday", "2026", "-1h", "999999999999w"] {
            assert!(time(wrong).unwrap_err().contains("so long ago"), "{wrong}");
        }
    }

    #[test]
    fn what_is_kept_is_an_age_or_a_size() {
        let days = |days: u64| Ok(KeepLimit::Age(Duration::from_secs(days * 86_400)));
        assert_eq!([keep("7d"), keep("1d 24h"), keep("2w")], [days(7), days(2), days(14)]);
        assert_eq!(keep("10m"), Ok(KeepLimit::Age(Duration::from_secs(600))));
        assert_eq!([keep("10M"), keep("10MiB")], [Ok(KeepLimit::Size(10 << 20)), Ok(KeepLimit::Size(10 << 20))]);
        for wrong in ["", "7", "0d", "-7d", "1mo", "1y", "1KiB", "7d 2GiB", "9999999999999w"] {
            assert!(keep(wrong).unwrap_err().contains("an age (7d, 36h) or a size"), "{wrong}");
        }
    }

    #[test]
    fn limits_and_samples_can_be_off() {
        assert_eq!(limit("4h"), Ok(Limit(Some(Duration::from_secs(14_400)))));
        assert_eq!((limit("0"), pickup("0"), pickup("16")), (Ok(Limit(None)), Ok(0), Ok(16)));
        for wrong in ["", "5", "-1h", "never"] {
            assert!(limit(wrong).unwrap_err().contains("0 for never"), "{wrong}");
        }
        for wrong in ["", "-1", "65537", "1k"] {
            assert!(pickup(wrong).unwrap_err().contains("from 0 to 65536"), "{wrong}");
        }
    }

    #[test]
    fn ranges_and_shares() {
        assert_eq!(count_range("0-2k"), Ok(0..=2_000));
        assert_eq!(count_range("5"), Ok(5..=5));
        assert!(count_range("5-1").is_err());
        assert_eq!(share("0.2"), Ok(0.2));
        assert_eq!(failure("1e-3"), Ok(0.001));
        for wrong in ["0", "1e-7", "0.2", "NaN", "-1e-3", "often"] {
            assert!(failure(wrong).unwrap_err().contains("from 1e-6 to 0.1"), "{wrong}");
        }
        assert!(share("1.1").is_err() && share("NaN").is_err());
    }
}
