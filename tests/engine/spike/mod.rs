//! More connections than `--connections`, and then fewer again: lists are right all the while, say what is missing, and
//! are complete within an interval of the end, as the paper's table is exact again when what was too much is deleted.
//!
//! - `restarts`: the same of a run that breaks off at every list and continues from its saved state
//! - `snapshots`: the same of lists made of snapshots, one by one and by an agent

mod restarts;
mod snapshots;

use crate::support::feed::{Frames, Kept, lists_of};
use crate::support::frames::frame_between;
use crate::support::oracle::{Line, List, Oracle, Rules, assert_lines, line};
use flowpeel::engine::{Config, Summary};
use flowpeel::list::Header;
use flowpeel::parse::TcpSegment;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const SECOND_US: u64 = 1_000_000;
/// When the first packet comes: a multiple of any interval here.
const BEGIN_US: u64 = 1_767_225_600 * SECOND_US;
const EVERY_US: u64 = 5 * SECOND_US;
/// The connections before and after the spike, and the most that there is room for.
const CALM_COUNT: u32 = 500;
const CONNECTIONS_MAX: u32 = 1_000;
/// The spike begins, is at its highest, and has ended at these times.
const SPIKE_US: [u64; 3] = [10 * SECOND_US, 20 * SECOND_US, 35 * SECOND_US];
/// The last packet is within an interval: one at its end would make a list of no time at all, which agents pass over.
const END_US: u64 = 51 * SECOND_US;
/// Sizes of spikes, as multiples of the connections that there is room for.
const TIMES: [u32; 4] = [2, 5, 20, 100];
/// Of so many refused connections each has a record.
const KNOWN_COUNT: usize = 60_000;

const FIN: u8 = TcpSegment::FIN;
const SYN: u8 = TcpSegment::SYN;
const RST: u8 = TcpSegment::RST;
const ACK: u8 = TcpSegment::ACK;

/// A stream of numbers without a pattern.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 33
    }

    fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    fn in_a_hundred(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// The ends of a connection: every third is over IPv6.
fn ends(number: u32) -> [SocketAddr; 2] {
    let port = 1_024 + (number % 60_000) as u16;
    if number.is_multiple_of(3) {
        let host = Ipv6Addr::from((0x2001_0db8 << 96) + u128::from(number / 60_000) + 1);
        return [
            SocketAddr::from((host, port)),
            SocketAddr::from((Ipv6Addr::from((0x2001_0db8 << 96) | 1 << 64), 443)),
        ];
    }
    let host = Ipv4Addr::from(0x0a00_0001 + number / 60_000);
    [SocketAddr::from((host, port)), SocketAddr::from(([203, 0, 113, 7], 443))]
}

/// The frames of one connection.
struct Connection<'a> {
    frames: &'a mut Frames,
    ends: [SocketAddr; 2],
    isns: [u32; 2],
}

impl Connection<'_> {
    fn send(&mut self, time_us: u64, side: usize, flags: u8, sent: [u32; 2]) {
        let numbers = [self.isns[0].wrapping_add(sent[0]), self.isns[1].wrapping_add(sent[1])];
        let ack = if flags & ACK == 0 { 0 } else { numbers[1 - side] };
        let frame = frame_between(self.ends[side], self.ends[1 - side], flags, (numbers[side], ack));
        self.frames.push((BEGIN_US + time_us, frame));
    }

    /// The handshake, with what is repeated.
    fn open(&mut self, began_us: u64, numbers: &mut Numbers) {
        self.send(began_us, 0, SYN, [0, 0]);
        if numbers.in_a_hundred(5) {
            self.send(began_us + SECOND_US, 0, SYN, [0, 0]);
        }
        let answered_us = began_us + numbers.within(100..50_000);
        self.send(answered_us, 1, SYN | ACK, [1, 0]);
        self.send(answered_us + 200, 0, ACK, [1, 1]);
        if numbers.in_a_hundred(5) {
            self.send(answered_us + SECOND_US, 1, SYN | ACK, [1, 0]);
            self.send(answered_us + SECOND_US + 300, 0, ACK, [1, 1]);
        }
        if numbers.in_a_hundred(50) {
            self.send(answered_us + 2 * SECOND_US, 0, ACK, [1, 1]);
            self.send(answered_us + 2 * SECOND_US + 200, 1, ACK, [1, 1]);
        }
    }

    /// The end, in one of many ways.
    fn close(&mut self, ended_us: u64, numbers: &mut Numbers) {
        let side = usize::from(numbers.in_a_hundred(40));
        if numbers.in_a_hundred(12) {
            self.send(ended_us, side, RST | ACK, [1, 1]);
            if numbers.in_a_hundred(30) {
                self.send(ended_us + 40_000, side, RST, [1, 1]);
            }
            return;
        }
        let between_us = if numbers.in_a_hundred(5) { 2 * SECOND_US } else { 30_000 };
        self.send(ended_us, side, FIN | ACK, [1, 1]);
        if numbers.in_a_hundred(8) {
            self.send(ended_us + 300_000, side, FIN | ACK, [1, 1]);
        }
        self.send(ended_us + between_us, 1 - side, FIN | ACK, if side == 0 { [2, 1] } else { [1, 2] });
        if numbers.in_a_hundred(10) {
            self.send(ended_us + between_us + 500, side, RST, [2, 2]);
        } else {
            self.send(ended_us + between_us + 500, side, ACK, [2, 2]);
        }
        if numbers.in_a_hundred(5) {
            self.send(ended_us + between_us + SECOND_US, 1 - side, FIN | ACK, if side == 0 { [2, 1] } else { [1, 2] });
        }
    }
}

/// A spike of so many connections over some hundred that last, with resets of connections that never were.
fn spike(connection_count: u32) -> Frames {
    let mut numbers = Numbers(u64::from(connection_count));
    let mut frames = Frames::new();
    for number in 0..CALM_COUNT + connection_count {
        let isns = [numbers.next() as u32, numbers.next() as u32];
        let mut connection = Connection { frames: &mut frames, ends: ends(number), isns };
        if number < CALM_COUNT {
            connection.open(numbers.within(0..5 * SECOND_US), &mut numbers);
            continue;
        }
        connection.open(numbers.within(SPIKE_US[0]..SPIKE_US[1]), &mut numbers);
        // Some stay: with those before, as many as there is room for.
        if number % (connection_count / 400) != 0 {
            connection.close(numbers.within(SPIKE_US[1] + 4 * SECOND_US..SPIKE_US[2] - 4 * SECOND_US), &mut numbers);
        }
        if number % 8 == 0 {
            // Scans come back as resets, and what had ended before repeats itself.
            let mut stray = Connection { frames: &mut frames, ends: ends(10_000_000 + number), isns };
            let time_us = numbers.within(0..END_US);
            stray.send(time_us, 1, if number % 16 == 0 { RST | ACK } else { FIN | ACK }, [1, 1]);
        }
    }
    let mut last = Connection { frames: &mut frames, ends: ends(0), isns: [0, 0] };
    last.send(END_US, 0, ACK, [1, 1]);
    frames.sort_by_key(|(time_us, _)| *time_us);
    frames
}

fn established(list: &List) -> impl Iterator<Item = &Line> {
    list.lines.iter().filter(|line| line.state == "established")
}

fn config(shards: usize) -> Config {
    Config {
        every: Some(Duration::from_micros(EVERY_US)),
        connections_max: CONNECTIONS_MAX.into(),
        shards,
        ..Config::default()
    }
}

/// Lists of a spike beside the exact ones, which they are held against.
fn listed(connection_count: u32) -> (Vec<Kept>, Summary) {
    let frames = spike(connection_count);
    let rules = Rules { every_us: Some(EVERY_US), ..Rules::default() };
    let exact = Oracle::lists(rules, frames.iter().map(|(time_us, bytes)| (*time_us, bytes.as_slice())));
    let (lists, summary) = lists_of(frames, &config(2));
    assert_eq!(lists.len(), exact.len());
    let most = exact.iter().map(|list| established(list).count()).max().unwrap();
    assert!(most > connection_count as usize, "all are open at once: {most}");
    for (Kept { header, rows }, exact) in lists.iter().zip(&exact) {
        let mut lines: Vec<Line> = rows.iter().map(line).collect();
        // Of a spike that is larger than there are records, what is listed again has lost its start.
        lines.iter_mut().filter(|line| line.midstream).for_each(|line| {
            let known = exact.lines.iter().find(|known| (known.client, known.server) == (line.client, line.server));
            assert!(most > KNOWN_COUNT, "{line:?}");
            *line = known.unwrap_or(line).clone();
        });
        if header.complete {
            assert_lines(header, lines, exact);
            continue;
        }
        lines.sort();
        let wrong = lines.iter().find(|line| exact.lines.binary_search(line).is_err());
        assert_eq!(wrong, None, "{header:?}");
        let missing = established(exact).count() as u64 - header.flows;
        println!("{connection_count}: {} of {missing} said to be missing", header.missing);
        assert!(header.missing > 0 && missing > 0, "{header:?}");
        // Where each that is missing has a record, their number is known.
        if most < KNOWN_COUNT {
            assert_eq!(header.missing, missing);
        }
    }
    (lists, summary)
}

/// Whether the list ends before the spike, or an interval after its end.
fn is_of_calm(header: &Header) -> bool {
    let end_us = header.figures.end_ns as u64 / 1_000 - BEGIN_US;
    end_us <= SPIKE_US[0] || end_us >= SPIKE_US[2] + EVERY_US
}

/// Checks that lists of a calm are complete, and those of the spike are not all.
fn assert_complete_but_in_the_spike<'a>(headers: impl Iterator<Item = &'a Header>) {
    let (calm, spike): (Vec<&Header>, Vec<&Header>) = headers.partition(|header| is_of_calm(header));
    assert!(calm.len() >= 5 && calm.iter().all(|header| header.complete), "{calm:?}");
    assert!(spike.iter().any(|header| !header.complete));
    assert!(calm.last().unwrap().flows >= u64::from(CALM_COUNT) + 400);
}

#[test]
fn lists_are_complete_within_an_interval_of_the_end_of_a_spike_of_any_size() {
    for times in TIMES {
        let (lists, summary) = listed(times * CONNECTIONS_MAX);
        println!("{times} times: {:?}", summary.counts);
        assert!(summary.counts.refused_open > 0);
        assert_complete_but_in_the_spike(lists.iter().map(|list| &list.header));
    }
}

#[test]
fn a_spike_gives_the_same_bytes_with_any_number_of_shards() {
    let frames = spike(20_000);
    let one = lists_of(frames.clone(), &config(1)).0;
    for shards in [2, 3, 8] {
        assert!(lists_of(frames.clone(), &config(shards)).0 == one, "with {shards} shards");
    }
}
