//! The check of a [`TrafficConfig`](crate::TrafficConfig) before any traffic is made.

use std::fmt;
use std::ops::RangeInclusive;

use crate::addresses::CONNECTION_COUNT_MAX;
use crate::config::{Arrivals, TrafficConfig};
use crate::packet::HEADERS_SIZE_MAX;

/// The end of generated time, in microseconds since 1970: seconds in a pcap file have 32 bits (the year 2106).
const GENERATED_TIME_MAX_US: u64 = (u32::MAX as u64) * 1_000_000;

/// The longest time from one packet of a connection to the next that can be asked for, in microseconds: a day. Times up
/// to it add up without overflow, and longer ones are a mistake.
const GENERATED_WAIT_MAX_US: u64 = 86_400_000_000;

/// The most packets of a flood, and data packets of a connection, that can be asked for: at a packet a microsecond they
/// last for twelve days, and times computed from their number stay within 64 bits.
const GENERATED_PACKETS_MAX: u64 = 1 << 40;

/// The most bytes of a generated frame that can be captured: more than any of them has.
pub const GENERATED_CAPTURED_SIZE_MAX: usize = 65_535;

const _: () = assert!(GENERATED_PACKETS_MAX.checked_mul(1_000_000).is_some());

/// A configuration that no traffic can be made from: which value cannot be used, and what it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Checks the whole configuration before any traffic is made.
pub(super) fn check(config: &TrafficConfig) -> Result<(), Refused> {
    shares(config)?;
    let (name, count) = match config.arrivals {
        Arrivals::Spread { connection_count } => ("connections", connection_count),
        Arrivals::Population { client_count } => ("clients", client_count),
    };
    require(count <= CONNECTION_COUNT_MAX, || format!("the number of {name} may be at most {CONNECTION_COUNT_MAX}"))?;
    range("the round trip", &config.round_trip_us, GENERATED_WAIT_MAX_US)?;
    range("the lifetime", &config.lifetime_us, GENERATED_WAIT_MAX_US)?;
    range("the number of data packets", &config.data_packets, GENERATED_PACKETS_MAX)?;
    require(config.repeats.duplicate_delay_us_max <= GENERATED_WAIT_MAX_US, || {
        "a duplicate may come a day later at most".into()
    })?;
    require((HEADERS_SIZE_MAX..=GENERATED_CAPTURED_SIZE_MAX).contains(&config.captured_size_max), || {
        format!("{HEADERS_SIZE_MAX} to {GENERATED_CAPTURED_SIZE_MAX} bytes of a frame may be captured")
    })?;
    let end = config.start_us.checked_add(config.duration_us);
    require(config.duration_us > 0 && end.is_some_and(|end| end <= GENERATED_TIME_MAX_US), || {
        "the capture must last for some time and end before the year 2106".into()
    })?;
    flood(config)
}

fn flood(config: &TrafficConfig) -> Result<(), Refused> {
    let Some(flood) = &config.flood else { return Ok(()) };
    require(flood.rate_per_s > 0 && flood.packet_count <= GENERATED_PACKETS_MAX, || {
        format!("a flood must have a rate and at most {GENERATED_PACKETS_MAX} packets")
    })?;
    let end =
        flood.begin_us.checked_add(flood.length_us()).and_then(|end| end.checked_add(crate::flood::ANSWER_DELAY_US));
    require(end.is_some_and(|end| end <= config.duration_us), || {
        "the flood must end before the capture does: give a longer duration or a higher rate".into()
    })
}

fn shares(config: &TrafficConfig) -> Result<(), Refused> {
    let (opens, ends, again, reuse) = (&config.handshakes, &config.endings, &config.repeats, &config.reuse);
    sum("IPv6", &[config.ipv6_share])?;
    sum("failing handshakes", &[opens.refused, opens.unanswered, opens.unacknowledged])?;
    sum("endings", &[ends.reset, ends.fin_then_reset, ends.never_closed, ends.half_closed])?;
    sum("repeated SYNs", &[again.syn])?;
    sum("repeated SYN-ACKs", &[again.syn_ack])?;
    sum("repeated FINs", &[again.fin])?;
    sum("late FINs and RSTs", &[again.late_fin, again.late_reset])?;
    sum("duplicates", &[again.duplicate])?;
    sum("reused ports", &[reuse.closed, reuse.open])?;
    match &config.flood {
        Some(flood) => sum("the flood's IPv6", &[flood.ipv6_share]).and(sum("the flood's data", &[flood.data_share])),
        None => Ok(()),
    }
}

/// Checks shares that exclude each other: each is at least 0, and together they are at most 1, give or take the
/// rounding of a sum.
fn sum(name: &str, shares: &[f64]) -> Result<(), Refused> {
    let good = shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares.iter().sum::<f64>() <= 1.000_001;
    require(good, || format!("the shares of {name} must be between 0 and 1, and their sum too"))
}

fn range(name: &str, range: &RangeInclusive<u64>, max: u64) -> Result<(), Refused> {
    require(!range.is_empty() && *range.end() <= max, || format!("{name} must be a range that ends at {max} at most"))
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Refused> {
    if holds { Ok(()) } else { Err(Refused(what())) }
}
