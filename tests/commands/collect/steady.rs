//! Packets of any number of open connections.
//!
//! What enters: how many are to be open and how many open and close in an interval. What leaves: packets, made as they
//! are asked for.

use flowpeel::capture::{Packet, PacketSource, Progress};
use flowpeel::error::Result;
use flowpeel::parse::LinkType;

pub(crate) const INTERVAL_US: u64 = 10_000_000;
const BEGIN_US: u64 = 1_767_225_600_000_000;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// How many connections open and close in each interval.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Openings in an interval until all are open.
    pub(crate) filled: u64,
    /// The connections that are to be open.
    pub(crate) open: u64,
    /// Openings, and as many closings, in each interval after that.
    pub(crate) changed: u64,
    /// The intervals.
    pub(crate) intervals: u64,
}

impl Pace {
    /// How many connections open and close in this interval.
    fn of(&self, interval: u64) -> (u64, u64) {
        let before = (interval * self.filled).min(self.open);
        match self.filled.min(self.open - before) {
            0 => (self.changed, self.changed),
            filled => (filled, 0),
        }
    }
}

/// The packets.
pub(crate) struct Steady {
    pace: Pace,
    interval: u64,
    /// The packet of the interval that comes next.
    step: u64,
    opened: u64,
    closed: u64,
    frame: Vec<u8>,
}

impl Steady {
    pub(crate) fn new(pace: Pace) -> Self {
        Steady { pace, interval: 0, step: 0, opened: 0, closed: 0, frame: Vec::new() }
    }
}

/// A packet of a numbered connection; of five one is over IPv6.
fn build(frame: &mut Vec<u8>, number: u64, from_client: bool, flags: u8, (seq, ack): (u32, u32)) {
    frame.clear();
    frame.extend([0; 12]);
    let (client, port) = ((number / 50_000) as u32, 10_000 + (number % 50_000) as u16);
    let (src_port, dst_port) = if from_client { (port, 443) } else { (443, port) };
    let client = |prefix: &[u8], size: usize| {
        let mut address = prefix.to_vec();
        address.resize(size - 4, 0);
        address.extend((client + 1).to_be_bytes());
        address
    };
    if number.is_multiple_of(5) {
        let (client, server) = (client(&[0x20, 1, 0x0d, 0xb8], 16), [0x20; 16].to_vec());
        let (src, dst) = if from_client { (client, server) } else { (server, client) };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        frame.extend(src.into_iter().chain(dst));
    } else {
        let (mut client, server) = (client(&[], 4), [192, 0, 2, 1].to_vec());
        client[0] = 10;
        let (src, dst) = if from_client { (client, server) } else { (server, client) };
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend(src.into_iter().chain(dst));
    }
    frame.extend([src_port, dst_port].iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([seq, ack].iter().flat_map(|number| number.to_be_bytes()));
    frame.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
}

impl PacketSource for Steady {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        if self.is_finished() {
            return Ok(None);
        }
        let (opened, closed) = self.pace.of(self.interval);
        let steps = 3 * opened + closed;
        let time_us = BEGIN_US + self.interval * INTERVAL_US + self.step * (INTERVAL_US - 1_000_000) / steps;
        let number = u32::try_from(self.opened % (1 << 30)).unwrap();
        if self.step < 3 * opened {
            let handshake =
                [(true, SYN, (number, 0)), (false, SYN | ACK, (9, number + 1)), (true, ACK, (number + 1, 10))];
            let (from_client, flags, numbers) = handshake[(self.step % 3) as usize];
            build(&mut self.frame, self.opened, from_client, flags, numbers);
            self.opened += u64::from(self.step % 3 == 2);
        } else {
            build(&mut self.frame, self.closed, true, RST, (1, 0));
            self.closed += 1;
        }
        self.step += 1;
        if self.step == steps {
            (self.interval, self.step) = (self.interval + 1, 0);
        }
        Ok(Some(Packet::whole(time_us as i64 * 1_000, LinkType::ETHERNET, &self.frame)))
    }

    fn is_finished(&self) -> bool {
        self.interval == self.pace.intervals
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}
