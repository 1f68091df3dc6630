//! The configuration of traffic: every share and every range by its name. [`Traffic::new`](super::Traffic::new) checks
//! it.
//!
//! Shares are between 0 and 1. The defaults are close to what real captures showed: some 5 % of the connections repeat
//! the SYN, 8 % send a FIN or RST after the close, half of them close by two FINs, and some never visibly end.

use std::ops::RangeInclusive;

/// When connections begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// This many connections, spread evenly over the duration, each at a random place in its part. Ends that come after
    /// the duration are not captured.
    Spread {
        /// The number of connections.
        connection_count: u64,
    },
    /// This many clients, each with one connection at any time: where one ends, the next begins.
    Population {
        /// The number of clients.
        client_count: u64,
    },
}

/// How connections fail to open; the others complete the handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct HandshakeShares {
    /// The server answers the SYN with a RST.
    pub refused: f64,
    /// The server does not answer, though the SYN is repeated up to four times, after 1, 2, 4 and 8 seconds.
    pub unanswered: f64,
    /// The server answers and repeats its SYN-ACK after 1, 2 and 4 seconds, but the client has gone.
    pub unacknowledged: f64,
}

/// How connections end; the others end by a FIN of each side, sent first by either.
#[derive(Clone, Debug, PartialEq)]
pub struct EndingShares {
    /// A RST of either side, without a FIN.
    pub reset: f64,
    /// A FIN of one side, then a RST of either.
    pub fin_then_reset: f64,
    /// Nothing: the packets stop.
    pub never_closed: f64,
    /// A FIN of one side; the other sends a few more packets and then stops.
    pub half_closed: f64,
}

/// Packets that come again, or too late.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatShares {
    /// Connections that repeat the SYN after a second before it is answered.
    pub syn: f64,
    /// Connections whose SYN-ACK is repeated after a second before it is acknowledged.
    pub syn_ack: f64,
    /// Connections that repeat a FIN after 0.2 to 1.2 seconds.
    pub fin: f64,
    /// Closed connections that send a FIN 1 ms to 15 s after the close.
    pub late_fin: f64,
    /// Closed connections that send a RST 1 ms to 15 s after the close.
    pub late_reset: f64,
    /// Packets that are captured twice; half of the copies follow at once, with nothing between.
    pub duplicate: f64,
    /// The longest delay of the other copies, in microseconds.
    pub duplicate_delay_us_max: u64,
}

/// Connections on ports that were used before, with a new initial sequence number.
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseShares {
    /// Connections that take the ports of one that ended seconds before.
    pub closed: f64,
    /// Connections that take the ports of one that began in the same 10 seconds and is still open, as when a client has
    /// lost its state: the old connection falls silent, and the server answers and acknowledges the new SYN.
    pub open: f64,
}

/// What a flood is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// SYNs without an answer.
    Unanswered,
    /// SYNs that the attacked server answers with a SYN-ACK each, 50 us later.
    Answered,
    /// ACKs, some with data, of connections that do not exist.
    Acks,
}

/// A flood from random sources against one server.
#[derive(Clone, Debug, PartialEq)]
pub struct FloodConfig {
    /// The kind of the flood.
    pub flood: Flood,
    /// The number of SYNs or ACKs sent; a server's answers come on top.
    pub packet_count: u64,
    /// How many of these packets are sent in a second, at equal distances.
    pub rate_per_s: u64,
    /// When the flood begins, in microseconds after the start of the traffic.
    pub begin_us: u64,
    /// The share of these packets that comes over IPv6, against the server's IPv6 address.
    pub ipv6_share: f64,
    /// The share of the ACKs that carries data.
    pub data_share: f64,
}

impl FloodConfig {
    /// Five million packets, a million a second, ten seconds after the start, over IPv4.
    #[must_use]
    pub fn new(flood: Flood) -> Self {
        FloodConfig {
            flood,
            packet_count: 5_000_000,
            rate_per_s: 1_000_000,
            begin_us: QUIET_US,
            ipv6_share: 0.0,
            data_share: 0.3,
        }
    }

    /// The time from the first packet of the flood to its last, in microseconds.
    #[must_use]
    pub fn length_us(&self) -> u64 {
        let length = u128::from(self.packet_count) * 1_000_000 / u128::from(self.rate_per_s.max(1));
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}

/// Everything that determines a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficConfig {
    /// Equal seeds (and equal values below) give equal bytes.
    pub seed: u64,
    /// When the capture starts, in microseconds since 1970.
    pub start_us: u64,
    /// How long the capture lasts, in microseconds; later packets are not captured.
    pub duration_us: u64,
    /// When connections begin.
    pub arrivals: Arrivals,
    /// The share of the connections that is over IPv6.
    pub ipv6_share: f64,
    /// The time from a SYN to the ACK of its answer, in microseconds, drawn uniformly on a logarithmic scale.
    pub round_trip_us: RangeInclusive<u64>,
    /// The time from the handshake to the first sign of the end, in microseconds, drawn uniformly on a logarithmic
    /// scale.
    pub lifetime_us: RangeInclusive<u64>,
    /// The packets between handshake and ending, of either direction: two of three carry data, the others are plain
    /// ACKs.
    pub data_packets: RangeInclusive<u64>,
    /// How connections fail to open.
    pub handshakes: HandshakeShares,
    /// How connections end.
    pub endings: EndingShares,
    /// Packets that come again, or too late.
    pub repeats: RepeatShares,
    /// Connections on ports that were used before.
    pub reuse: ReuseShares,
    /// The flood on top of the connections.
    pub flood: Option<FloodConfig>,
    /// The bytes of a frame that are captured (the snap length).
    pub captured_size_max: usize,
}

/// 2026-01-01T00:00:00Z, a multiple of any common interval.
const START_US: u64 = 1_767_225_600_000_000;
/// The quiet time before and after a flood.
const QUIET_US: u64 = 10_000_000;

impl TrafficConfig {
    /// The mixed workload: `connection_count` connections in 120 seconds, a fifth over IPv6, that open, end and fail in
    /// every way.
    #[must_use]
    pub fn mixed(seed: u64, connection_count: u64) -> Self {
        TrafficConfig {
            seed,
            start_us: START_US,
            duration_us: 120_000_000,
            arrivals: Arrivals::Spread { connection_count },
            ipv6_share: 0.2,
            round_trip_us: 100..=200_000,
            lifetime_us: 2_000..=300_000_000,
            data_packets: 0..=20,
            handshakes: HandshakeShares { refused: 0.03, unanswered: 0.04, unacknowledged: 0.005 },
            endings: EndingShares { reset: 0.12, fin_then_reset: 0.1, never_closed: 0.08, half_closed: 0.04 },
            repeats: RepeatShares {
                syn: 0.05,
                syn_ack: 0.02,
                fin: 0.03,
                late_fin: 0.04,
                late_reset: 0.04,
                duplicate: 0.01,
                duplicate_delay_us_max: 5_000,
            },
            reuse: ReuseShares { closed: 0.005, open: 0.005 },
            flood: None,
            captured_size_max: 96,
        }
    }

    /// A flood over a thousand clients that connect, talk and close all the while, 100 ms away, from ten seconds before
    /// the flood to ten seconds after it. Their connections do not fail by themselves, so what is missed of them is the
    /// flood's effect.
    #[must_use]
    pub fn flooded(seed: u64, flood: FloodConfig) -> Self {
        TrafficConfig {
            duration_us: flood.begin_us.saturating_add(flood.length_us()).saturating_add(QUIET_US),
            arrivals: Arrivals::Population { client_count: 1_000 },
            ipv6_share: 0.0,
            round_trip_us: 100_000..=100_000,
            lifetime_us: 2_000_000..=20_000_000,
            data_packets: 10..=40,
            handshakes: HandshakeShares { refused: 0.0, unanswered: 0.0, unacknowledged: 0.0 },
            endings: EndingShares { reset: 0.1, fin_then_reset: 0.0, never_closed: 0.0, half_closed: 0.0 },
            repeats: RepeatShares {
                syn: 0.0,
                syn_ack: 0.0,
                fin: 0.0,
                late_fin: 0.0,
                late_reset: 0.0,
                duplicate: 0.0,
                duplicate_delay_us_max: 0,
            },
            reuse: ReuseShares { closed: 0.0, open: 0.0 },
            flood: Some(flood),
            ..TrafficConfig::mixed(seed, 1)
        }
    }
}
