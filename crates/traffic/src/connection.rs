//! A legitimate connection: one packet a step, and the time until the next one.
//!
//! What it sends is drawn as a plan at the start. A connection holds its plan and its counters, never its packets.

use std::net::SocketAddr;

use crate::addresses::Endpoints;
use crate::config::{EndingShares, HandshakeShares, TrafficConfig};
use crate::packet::{ACK, FIN, PAYLOAD_SIZE_MAX, PSH, Packet, RST, SYN};
use crate::random::{Random, within};

/// The wait before a SYN or SYN-ACK is retransmitted; it doubles each time.
const RETRY_US: u64 = 1_000_000;
/// The wait before a FIN is retransmitted.
const FIN_RETRY_US: std::ops::RangeInclusive<u64> = 200_000..=1_200_000;
/// How long after the close a late FIN or RST comes: some come after any linger.
const LATE_US: std::ops::RangeInclusive<u64> = 1_000..=15_000_000;
/// The most times that a client retransmits its SYN to a server that does not answer.
const SYN_RETRY_COUNT_MAX: u64 = 4;
/// The most packets that the other side of a half-closed connection sends.
const HALF_CLOSED_COUNT_MAX: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Completes,
    Refused,
    Unanswered,
    Unacknowledged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    TwoFins,
    Reset,
    FinThenReset,
    NeverClosed,
    HalfClosed,
}

/// What is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Syn,
    Refusal,
    SynAck,
    FirstAck,
    Data,
    FirstFin,
    FirstFinAgain,
    SecondFin,
    SecondFinAgain,
    LastAck,
    Reset,
    HalfClosedData,
    Late { fin: bool },
    Nothing,
}

/// A connection and its plan.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    endpoints: Endpoints,
    began_us: u64,
    stage: Stage,
    handshake: Handshake,
    ending: Ending,
    /// Half of the round-trip time: from the router to one end and back.
    half_trip_us: u64,
    /// The mean time between two data packets.
    gap_us: u64,
    data_left_count: u64,
    retry_us: u64,
    syn_retry_count: u8,
    syn_ack_retry_count: u8,
    /// Which side sends the first FIN, or the RST.
    client_ends: bool,
    repeat_first_fin: bool,
    repeat_second_fin: bool,
    late: Stage,
    /// Whether both sides have ended the connection, or one has reset it.
    is_closed: bool,
    client_next: u32,
    server_next: u32,
}

impl Connection {
    /// Draws a plan for a connection that begins at `now_us`.
    pub(super) fn plan(endpoints: Endpoints, now_us: u64, config: &TrafficConfig, random: &mut Random) -> Self {
        let handshake = draw_handshake(&config.handshakes, random);
        let data_left_count = random.uniform(&config.data_packets);
        let lifetime_us = random.log_uniform(&config.lifetime_us);
        let repeats = &config.repeats;
        let repeat_fin = random.chance(repeats.fin);
        let repeat_first_fin = repeat_fin && random.chance(0.5);
        let late_number = random.number() as u32;
        Connection {
            endpoints,
            began_us: now_us,
            stage: Stage::Syn,
            handshake,
            ending: draw_ending(&config.endings, random),
            half_trip_us: random.log_uniform(&config.round_trip_us) / 2,
            gap_us: (lifetime_us / data_left_count.saturating_add(1)).max(1),
            data_left_count,
            retry_us: RETRY_US,
            syn_retry_count: match handshake {
                Handshake::Unanswered => random.uniform(&(0..=SYN_RETRY_COUNT_MAX)) as u8,
                _ => u8::from(random.chance(repeats.syn)),
            },
            syn_ack_retry_count: match handshake {
                Handshake::Unacknowledged => 3,
                _ => u8::from(random.chance(repeats.syn_ack)),
            },
            client_ends: random.chance(0.6),
            repeat_first_fin,
            repeat_second_fin: repeat_fin && !repeat_first_fin,
            late: if within(late_number, repeats.late_fin) {
                Stage::Late { fin: true }
            } else if within(late_number, repeats.late_fin + repeats.late_reset) {
                Stage::Late { fin: false }
            } else {
                Stage::Nothing
            },
            is_closed: false,
            client_next: random.number() as u32,
            server_next: random.number() as u32,
        }
    }

    pub(super) fn endpoints(&self) -> Endpoints {
        self.endpoints
    }

    pub(super) fn began_us(&self) -> u64 {
        self.began_us
    }

    /// Whether the handshake is complete and no end is in sight.
    pub(super) fn is_established(&self) -> bool {
        self.stage == Stage::Data
    }

    /// Whether the connection has been closed, and has not merely fallen silent or failed to open.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Makes the connection fall silent: its next step sends nothing.
    pub(super) fn abandon(&mut self) {
        self.stage = Stage::Nothing;
    }

    /// The next packet, and the time until the one after it. There is no time after the last packet, and no packet from
    /// a connection that has fallen silent.
    pub(super) fn step(&mut self, random: &mut Random) -> Option<(Packet, Option<u64>)> {
        let (packet, wait_us) = match self.stage {
            Stage::Syn | Stage::SynAck | Stage::Refusal | Stage::FirstAck => self.step_handshake(random),
            Stage::Data => {
                let from_client = random.chance(0.4);
                (self.data(from_client, random), self.after_data(random))
            }
            Stage::HalfClosedData => {
                let packet = self.data(!self.client_ends, random);
                self.data_left_count = self.data_left_count.saturating_sub(1);
                (packet, if self.data_left_count == 0 { self.finished() } else { self.gap(random) })
            }
            Stage::FirstFin | Stage::FirstFinAgain | Stage::SecondFin | Stage::SecondFinAgain | Stage::LastAck => {
                self.step_fins(random)
            }
            Stage::Reset => {
                let seq = if self.client_ends { self.client_next } else { self.server_next };
                (self.packet(self.client_ends, RST | ACK, seq, 0), self.closed(random))
            }
            Stage::Late { fin } => {
                let seq = self.sent_fin_seq();
                let flags = if fin { FIN | ACK } else { RST };
                (self.packet(self.client_ends, flags, seq, 0), self.finished())
            }
            Stage::Nothing => return None,
        };
        Some((packet, wait_us))
    }

    fn step_handshake(&mut self, random: &mut Random) -> (Packet, Option<u64>) {
        match self.stage {
            Stage::Syn => {
                let packet = self.packet(true, SYN, self.client_next, 0);
                if self.syn_retry_count > 0 {
                    self.syn_retry_count -= 1;
                    return (packet, self.retry());
                }
                self.client_next = self.client_next.wrapping_add(1);
                self.retry_us = RETRY_US;
                let wait_us = match self.handshake {
                    Handshake::Unanswered => self.finished(),
                    Handshake::Refused => self.then(Stage::Refusal, self.half_trip_us),
                    Handshake::Completes | Handshake::Unacknowledged => self.then(Stage::SynAck, self.half_trip_us),
                };
                (packet, wait_us)
            }
            Stage::SynAck => {
                let packet = self.packet(false, SYN | ACK, self.server_next, 0);
                if self.syn_ack_retry_count > 0 {
                    self.syn_ack_retry_count -= 1;
                    return (packet, self.retry());
                }
                self.server_next = self.server_next.wrapping_add(1);
                let gone = self.handshake == Handshake::Unacknowledged;
                (packet, if gone { self.finished() } else { self.then(Stage::FirstAck, self.half_trip_us) })
            }
            Stage::FirstAck => (self.packet(true, ACK, self.client_next, 0), self.enter_data(random)),
            // Only a refusal is left.
            _ => (self.packet(false, RST | ACK, 0, 0), self.finished()),
        }
    }

    fn step_fins(&mut self, random: &mut Random) -> (Packet, Option<u64>) {
        let first = self.client_ends;
        match self.stage {
            Stage::FirstFin => {
                let packet = self.fin(first);
                if self.repeat_first_fin {
                    let wait_us = random.uniform(&FIN_RETRY_US);
                    return (packet, self.then(Stage::FirstFinAgain, wait_us));
                }
                (packet, self.after_first_fin(random))
            }
            Stage::FirstFinAgain => {
                let packet = self.packet(first, FIN | ACK, self.sent_fin_seq(), 0);
                (packet, self.after_first_fin(random))
            }
            Stage::SecondFin => {
                let packet = self.fin(!first);
                if self.repeat_second_fin {
                    let wait_us = random.uniform(&FIN_RETRY_US);
                    return (packet, self.then(Stage::SecondFinAgain, wait_us));
                }
                (packet, self.then(Stage::LastAck, self.half_trip_us))
            }
            Stage::SecondFinAgain => {
                let seq = if first { self.server_next } else { self.client_next }.wrapping_sub(1);
                (self.packet(!first, FIN | ACK, seq, 0), self.then(Stage::LastAck, self.half_trip_us))
            }
            // Only the last acknowledgement is left.
            _ => {
                let seq = if first { self.client_next } else { self.server_next };
                (self.packet(first, ACK, seq, 0), self.closed(random))
            }
        }
    }

    /// Continues after the handshake: with data, or at once with the ending.
    fn enter_data(&mut self, random: &mut Random) -> Option<u64> {
        if self.data_left_count == 0 {
            return self.begin_ending(random);
        }
        self.stage = Stage::Data;
        self.gap(random)
    }

    fn after_data(&mut self, random: &mut Random) -> Option<u64> {
        self.data_left_count = self.data_left_count.saturating_sub(1);
        if self.data_left_count == 0 { self.begin_ending(random) } else { self.gap(random) }
    }

    fn begin_ending(&mut self, random: &mut Random) -> Option<u64> {
        self.stage = match self.ending {
            Ending::NeverClosed => return self.finished(),
            Ending::Reset => Stage::Reset,
            Ending::TwoFins | Ending::FinThenReset | Ending::HalfClosed => Stage::FirstFin,
        };
        self.gap(random)
    }

    fn after_first_fin(&mut self, random: &mut Random) -> Option<u64> {
        match self.ending {
            Ending::FinThenReset => {
                // Either side may follow a FIN with a RST: the other's or its own.
                self.client_ends ^= random.chance(0.5);
                self.then(Stage::Reset, self.half_trip_us)
            }
            Ending::HalfClosed => {
                self.data_left_count = 1 + random.below(HALF_CLOSED_COUNT_MAX);
                self.stage = Stage::HalfClosedData;
                self.gap(random)
            }
            _ => self.then(Stage::SecondFin, self.half_trip_us),
        }
    }

    fn closed(&mut self, random: &mut Random) -> Option<u64> {
        self.is_closed = true;
        self.stage = self.late;
        (self.stage != Stage::Nothing).then(|| random.log_uniform(&LATE_US))
    }

    fn finished(&mut self) -> Option<u64> {
        self.stage = Stage::Nothing;
        None
    }

    fn then(&mut self, stage: Stage, wait_us: u64) -> Option<u64> {
        self.stage = stage;
        Some(wait_us)
    }

    fn retry(&mut self) -> Option<u64> {
        let wait_us = self.retry_us;
        self.retry_us *= 2;
        Some(wait_us)
    }

    fn gap(&self, random: &mut Random) -> Option<u64> {
        Some(random.below(2 * self.gap_us + 1))
    }

    /// The sequence number of the FIN that the ending side has sent or would send.
    fn sent_fin_seq(&self) -> u32 {
        if self.client_ends { self.client_next } else { self.server_next }.wrapping_sub(1)
    }

    fn fin(&mut self, from_client: bool) -> Packet {
        let seq = self.advance(from_client, 1);
        self.packet(from_client, FIN | ACK, seq, 0)
    }

    fn data(&mut self, from_client: bool, random: &mut Random) -> Packet {
        let with_data = random.chance(2.0 / 3.0);
        let payload_size = if with_data { 1 + random.below(PAYLOAD_SIZE_MAX) as u16 } else { 0 };
        let seq = self.advance(from_client, u32::from(payload_size));
        self.packet(from_client, if with_data { PSH | ACK } else { ACK }, seq, payload_size)
    }

    /// Advances a side's sequence number, and returns the old one.
    fn advance(&mut self, from_client: bool, by: u32) -> u32 {
        let next = if from_client { &mut self.client_next } else { &mut self.server_next };
        std::mem::replace(next, next.wrapping_add(by))
    }

    fn packet(&self, from_client: bool, flags: u8, seq: u32, payload_size: u16) -> Packet {
        let Endpoints { client, server } = self.endpoints;
        let (src, dst, next): (SocketAddr, SocketAddr, u32) =
            if from_client { (client, server, self.server_next) } else { (server, client, self.client_next) };
        let ack = if flags & ACK != 0 { next } else { 0 };
        Packet { src, dst, to_server: from_client, flags, seq, ack, payload_size }
    }
}

fn draw_handshake(shares: &HandshakeShares, random: &mut Random) -> Handshake {
    let number = random.number() as u32;
    let unanswered = shares.refused + shares.unanswered;
    if within(number, shares.refused) {
        Handshake::Refused
    } else if within(number, unanswered) {
        Handshake::Unanswered
    } else if within(number, unanswered + shares.unacknowledged) {
        Handshake::Unacknowledged
    } else {
        Handshake::Completes
    }
}

fn draw_ending(shares: &EndingShares, random: &mut Random) -> Ending {
    let number = random.number() as u32;
    let fin_then_reset = shares.reset + shares.fin_then_reset;
    let never_closed = fin_then_reset + shares.never_closed;
    if within(number, shares.reset) {
        Ending::Reset
    } else if within(number, fin_then_reset) {
        Ending::FinThenReset
    } else if within(number, never_closed) {
        Ending::NeverClosed
    } else if within(number, never_closed + shares.half_closed) {
        Ending::HalfClosed
    } else {
        Ending::TwoFins
    }
}
