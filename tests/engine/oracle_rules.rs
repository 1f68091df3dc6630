//! The oracle against the state table, packet by packet, because other tests rely on it.

use std::net::{Ipv4Addr, SocketAddr};

use crate::support::frames::plain_frame;
use crate::support::oracle::{List, Oracle, Rules};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const SECOND_US: u64 = 1_000_000;

/// A packet at this tenth of a second: of the client or not, its flags, sequence and acknowledgement numbers.
type Sent = (u64, bool, u8, u32, u32);
const CLIENT: bool = true;
const SERVER: bool = false;

fn ends() -> [SocketAddr; 2] {
    [(Ipv4Addr::new(192, 0, 2, 1), 40_000).into(), (Ipv4Addr::new(192, 0, 2, 2), 443).into()]
}

fn frame((_, from_client, flags, seq, ack): Sent) -> Vec<u8> {
    let (src, dst) = if from_client { ((1, 40_000u16), (2, 443u16)) } else { ((2, 443), (1, 40_000)) };
    plain_frame(src, dst, flags, (seq, ack))
}

fn lists(every_us: Option<u64>, packets: &[Sent]) -> Vec<List> {
    let frames: Vec<_> = packets.iter().map(|sent| (sent.0 * 100_000, frame(*sent))).collect();
    let rules = Rules { every_us, ..Rules::default() };
    Oracle::lists(rules, frames.iter().map(|(time_us, bytes)| (*time_us, bytes.as_slice())))
}

/// The only line at the end: whether it names the client first, its state, its start in ticks.
fn at_end(packets: &[Sent]) -> Option<(bool, &'static str, u64)> {
    let last = lists(None, packets).pop().expect("a list at the end");
    assert!(last.lines.len() <= 1);
    let line = last.lines.first()?;
    assert_eq!(
        {
            let mut both = [line.client, line.server];
            both.sort();
            both
        },
        ends()
    );
    Some((line.client == ends()[0], line.state, line.start_us / 100_000))
}

const OPENING: [Sent; 3] = [(10, CLIENT, SYN, 100, 0), (11, SERVER, SYN | ACK, 500, 101), (12, CLIENT, ACK, 101, 501)];

fn after_opening(more: &[Sent]) -> Option<(bool, &'static str, u64)> {
    at_end(&[&OPENING, more].concat())
}

#[test]
fn a_handshake_goes_through_its_states() {
    assert_eq!(at_end(&OPENING[..1]), Some((true, "syn_sent", 10)));
    assert_eq!(at_end(&OPENING[..2]), Some((true, "syn_recv", 10)));
    assert_eq!(at_end(&OPENING), Some((true, "established", 10)));
    assert_eq!(at_end(&OPENING[1..]), Some((true, "established", 11)), "a SYN-ACK shows who the client is");
    assert_eq!(at_end(&OPENING[2..]), None);
    assert_eq!(at_end(&[OPENING[0], OPENING[1], (12, SERVER, ACK, 501, 101)]), Some((true, "syn_recv", 10)));
    assert_eq!(at_end(&[OPENING[0], OPENING[1], (12, CLIENT, FIN | ACK, 101, 501)]), Some((true, "established", 10)));
    assert_eq!(at_end(&[OPENING[0], (11, CLIENT, SYN | ACK, 500, 101)]), Some((true, "syn_sent", 10)));
}

#[test]
fn repeats_change_nothing_and_another_syn_starts_over() {
    let repeats = [(10, CLIENT, SYN, 100, 0), (20, CLIENT, SYN, 100, 0)];
    assert_eq!(at_end(&repeats), Some((true, "syn_sent", 10)));
    assert_eq!(at_end(&[OPENING[0], (20, CLIENT, SYN, 200, 0)]), Some((true, "syn_sent", 20)));
    assert_eq!(at_end(&[OPENING[0], OPENING[1], (20, CLIENT, SYN, 200, 0)]), Some((true, "syn_recv", 10)));
    assert_eq!(after_opening(&OPENING[..2]), Some((true, "established", 10)));
}

#[test]
fn a_connection_closes_by_two_fins_or_one_rst() {
    assert_eq!(after_opening(&[(13, CLIENT, FIN | ACK, 101, 501)]), Some((true, "established", 10)));
    assert_eq!(
        after_opening(&[(13, CLIENT, FIN | ACK, 101, 501), (14, CLIENT, FIN | ACK, 101, 501)]),
        Some((true, "established", 10))
    );
    assert_eq!(after_opening(&[(13, CLIENT, FIN | ACK, 101, 501), (14, SERVER, FIN | ACK, 501, 102)]), None);
    assert_eq!(after_opening(&[(13, SERVER, RST, 501, 0)]), None);
    assert_eq!(at_end(&[OPENING[0], (11, SERVER, RST | ACK, 0, 101)]), None);
    assert_eq!(at_end(&[OPENING[0], (11, CLIENT, FIN, 101, 0)]), None);
    // A RST counts before a SYN, and a SYN before a FIN.
    assert_eq!(after_opening(&[(13, CLIENT, RST | SYN, 300, 0)]), None);
    assert_eq!(at_end(&[(10, CLIENT, SYN | FIN, 100, 0)]), Some((true, "syn_sent", 10)));
}

#[test]
fn a_blind_syn_or_syn_ack_closes_nothing_but_the_clients_answer_does() {
    let again = [(20, CLIENT, SYN, 900, 0), (21, SERVER, SYN | ACK, 700, 901), (22, CLIENT, ACK, 901, 701)];
    assert_eq!(after_opening(&again[..1]), Some((true, "established", 10)));
    assert_eq!(after_opening(&again[..2]), Some((true, "established", 10)));
    assert_eq!(after_opening(&again), Some((true, "established", 21)));
    let goes_on = [again[1], (22, CLIENT, ACK, 101, 501), again[2]];
    assert_eq!(after_opening(&goes_on), Some((true, "established", 10)));
    let last = lists(None, &[&OPENING[..], &again].concat()).pop().unwrap();
    assert_eq!((last.opened, last.closed), (2, 1));
}

#[test]
fn a_closed_connection_lingers_for_ten_seconds() {
    let closed = |more: &[Sent]| after_opening(&[&[(13, SERVER, RST, 501, 0)], more].concat());
    assert_eq!(closed(&[(113, CLIENT, SYN, 100, 0)]), None);
    assert_eq!(closed(&[(114, CLIENT, SYN, 100, 0)]), Some((true, "syn_sent", 114)));
    assert_eq!(closed(&[(20, CLIENT, SYN, 300, 0)]), Some((true, "syn_sent", 20)));
    assert_eq!(closed(&[(20, SERVER, SYN, 300, 0)]), Some((false, "syn_sent", 20)), "ends may change places");
    assert_eq!(closed(&[(113, SERVER, SYN | ACK, 500, 101)]), None);
    assert_eq!(closed(&[(20, SERVER, SYN | ACK, 500, 301)]), Some((true, "syn_recv", 20)));
}

#[test]
fn half_open_ones_expire_after_sixty_seconds() {
    let elsewhere = |tick| (tick, CLIENT, ACK, 1, 1);
    assert_eq!(at_end(&[OPENING[0], elsewhere(610)]), Some((true, "syn_sent", 10)));
    assert_eq!(at_end(&[OPENING[0], elsewhere(611)]), None);
    let answered = [OPENING[0], OPENING[1], (19, SERVER, SYN | ACK, 500, 101)];
    assert_eq!(at_end(&[&answered[..], &[(611, SERVER, ACK, 501, 101)]].concat()), Some((true, "syn_recv", 10)));
    assert_eq!(at_end(&[&answered[..], &[(612, SERVER, ACK, 501, 101)]].concat()), None);
    assert_eq!(at_end(&[&answered[..], &[elsewhere(612)]].concat()), None, "its ACK came too late");
    let repeated = [OPENING[0], OPENING[1], (300, SERVER, SYN | ACK, 500, 101)];
    assert_eq!(at_end(&[&repeated[..], &[(900, SERVER, ACK, 501, 101)]].concat()), Some((true, "syn_recv", 10)));
    assert_eq!(at_end(&[&repeated[..], &[(901, SERVER, ACK, 501, 101)]].concat()), None);
}

#[test]
fn time_stands_while_packets_are_older() {
    let packets = [(100, CLIENT, SYN, 100, 0), (50, CLIENT, SYN, 200, 0)];
    assert_eq!(at_end(&packets), Some((true, "syn_sent", 100)));
    assert_eq!(lists(Some(SECOND_US), &packets).len(), 1);
}

#[test]
fn intervals_are_aligned_and_empty_ones_give_no_list() {
    let packets = [
        (5, CLIENT, SYN, 100, 0),
        (9, SERVER, SYN | ACK, 500, 101),
        (10, CLIENT, ACK, 101, 501),
        (73, CLIENT, RST, 9, 0),
    ];
    let found: Vec<_> = lists(Some(SECOND_US), &packets)
        .iter()
        .map(|list| (list.end_us, list.lines.first().map(|line| line.state), list.opened, list.closed))
        .collect();
    assert_eq!(
        found,
        [(SECOND_US, Some("syn_recv"), 0, 0), (2 * SECOND_US, Some("established"), 1, 0), (7_300_000, None, 0, 1)]
    );
    assert_eq!(Oracle::new(Rules::default()).finish(), None);
}
