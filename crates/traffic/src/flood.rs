//! A flood: packets from random sources to one server, and the server's answers, in order of time.
//!
//! Each packet is a function of the seed and its number, so answers need no memory of what they answer: they repeat the
//! same numbers a little later.

use crate::addresses::flood_endpoints;
use crate::config::{Flood, FloodConfig, TrafficConfig};
use crate::packet::{ACK, PAYLOAD_SIZE_MAX, PSH, Packet, SYN};
use crate::random::{number_at, scaled, within};

/// How long the attacked server takes to answer.
pub(super) const ANSWER_DELAY_US: u64 = 50;
/// How many random numbers each packet of a flood takes.
const NUMBER_COUNT: u64 = 4;

/// A flood under way.
pub(super) struct FloodPackets {
    config: FloodConfig,
    seed: u64,
    begin_us: u64,
    /// The SYNs or ACKs sent so far.
    sent_count: u64,
    /// The answers sent so far, and how many there are in all.
    answered_count: u64,
    answers_count: u64,
}

impl FloodPackets {
    /// The flood of this traffic, if it has one.
    pub(super) fn of(traffic: &TrafficConfig) -> Option<Self> {
        let config = traffic.flood.clone()?;
        Some(FloodPackets {
            begin_us: traffic.start_us + config.begin_us,
            // This is far from the legitimate traffic's numbers, which start at the same seed.
            seed: number_at(traffic.seed, u64::MAX),
            sent_count: 0,
            answered_count: 0,
            answers_count: if config.flood == Flood::Answered { config.packet_count } else { 0 },
            config,
        })
    }

    /// When the next packet is due; `None` when the flood is over.
    pub(super) fn next_us(&self) -> Option<u64> {
        match (self.next_sent_us(), self.next_answer_us()) {
            (Some(sent), Some(answer)) => Some(sent.min(answer)),
            (sent, answer) => sent.or(answer),
        }
    }

    /// The next packet.
    pub(super) fn next_packet(&mut self) -> Option<Packet> {
        let answer_first = match (self.next_sent_us(), self.next_answer_us()) {
            (Some(sent), Some(answer)) => answer < sent,
            (sent, answer) => sent.is_none() && answer.is_some(),
        };
        if answer_first {
            self.answered_count += 1;
            return Some(self.packet(self.answered_count - 1, true));
        }
        if self.sent_count == self.config.packet_count {
            return None;
        }
        self.sent_count += 1;
        Some(self.packet(self.sent_count - 1, false))
    }

    fn next_sent_us(&self) -> Option<u64> {
        (self.sent_count < self.config.packet_count).then(|| self.time_us(self.sent_count))
    }

    fn next_answer_us(&self) -> Option<u64> {
        (self.answered_count < self.answers_count).then(|| self.time_us(self.answered_count) + ANSWER_DELAY_US)
    }

    fn time_us(&self, index: u64) -> u64 {
        // The configuration was checked: this many packets times a million fit in 64 bits.
        self.begin_us + index * 1_000_000 / self.config.rate_per_s
    }

    fn packet(&self, index: u64, is_answer: bool) -> Packet {
        let number = |at: u64| number_at(self.seed, index * NUMBER_COUNT + at);
        let choices = number(3);
        let ipv6 = within((choices >> 32) as u32, self.config.ipv6_share);
        let ends = flood_endpoints([number(0), number(1)], ipv6);
        let (seq, ack) = ((number(2) >> 32) as u32, number(2) as u32);
        let (src, dst) = if is_answer { (ends.server, ends.client) } else { (ends.client, ends.server) };
        let packet = Packet { src, dst, to_server: !is_answer, flags: SYN, seq, ack: 0, payload_size: 0 };
        match self.config.flood {
            Flood::Unanswered => packet,
            Flood::Answered if is_answer => Packet { flags: SYN | ACK, seq: ack, ack: seq.wrapping_add(1), ..packet },
            Flood::Answered => packet,
            Flood::Acks if within(choices as u32, self.config.data_share) => {
                let payload_size = 1 + scaled(choices << 32, PAYLOAD_SIZE_MAX) as u16;
                Packet { flags: PSH | ACK, ack, payload_size, ..packet }
            }
            Flood::Acks => Packet { flags: ACK, ack, ..packet },
        }
    }
}
