//! Traffic that deceives a tracker: clocks that lie, forged and late ends, numbers that come again, SYNs that are
//! repeated, and floods that are answered. What is listed is what is open, with its own start, or the list says that it
//! is not complete.

use crate::support::feed::{Frames, Kept, lists_of};
use crate::support::frames::plain_frame;
use flowpeel::engine::Config;
use flowpeel::list::{Row, RowState};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const SECOND_US: i64 = 1_000_000;
/// When the first packet comes.
pub(crate) const BEGIN_US: i64 = 1_767_225_600 * SECOND_US;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A stream of numbers without a pattern, for each seed its own.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) as u32
    }

    fn within(&mut self, range: std::ops::Range<i64>) -> i64 {
        range.start + i64::from(self.next()) % (range.end - range.start)
    }
}

/// Frames without their stamps in order: the times are what their clocks showed.
pub(crate) type Packets = Vec<(i64, Vec<u8>)>;

/// A connection of a client with this port, and the numbers of both sides.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    port: u16,
    isn: u32,
    server_isn: u32,
}

impl Connection {
    pub(crate) fn new(numbers: &mut Numbers, port: u16) -> Self {
        Connection { port, isn: numbers.next(), server_isn: numbers.next() }
    }

    fn client(&self, flags: u8, seq: u32) -> Vec<u8> {
        let ack = if flags & ACK == 0 { 0 } else { self.server_isn.wrapping_add(1) };
        plain_frame((1, self.port), (2, 443), flags, (seq, ack))
    }

    fn server(&self, flags: u8, seq: u32) -> Vec<u8> {
        plain_frame((2, 443), (1, self.port), flags, (seq, self.isn.wrapping_add(1)))
    }

    /// A packet of the client that follows `sent` bytes of data.
    fn client_at(&self, flags: u8, sent: u32) -> Vec<u8> {
        self.client(flags, self.isn.wrapping_add(1 + sent))
    }

    /// A SYN-ACK in the name of the server, to a SYN that the client has not sent.
    fn forged_syn_ack(&self, numbers: &mut Numbers) -> Vec<u8> {
        let forged = Connection::new(numbers, self.port);
        forged.server(SYN | ACK, forged.server_isn)
    }

    /// A SYN-ACK in the name of the client, as if that were a server.
    fn forged_syn_ack_of_client(&self, (seq, ack): (u32, u32)) -> Vec<u8> {
        plain_frame((1, self.port), (2, 443), SYN | ACK, (seq, ack))
    }

    fn server_at(&self, flags: u8, sent: u32) -> Vec<u8> {
        self.server(flags, self.server_isn.wrapping_add(1 + sent))
    }

    pub(crate) fn handshake(&self, time_us: i64) -> Packets {
        vec![
            (time_us, self.client(SYN, self.isn)),
            (time_us + 10_000, self.server(SYN | ACK, self.server_isn)),
            (time_us + 20_000, self.client_at(ACK, 0)),
        ]
    }

    /// Both sides say something, after this many bytes.
    pub(crate) fn talk(&self, time_us: i64, sent: u32) -> Packets {
        vec![(time_us, self.client_at(ACK, sent)), (time_us + 1_000, self.server_at(ACK, sent))]
    }

    /// Both sides end, after this many bytes.
    pub(crate) fn end(&self, time_us: i64, sent: u32) -> Packets {
        vec![(time_us, self.client_at(FIN | ACK, sent)), (time_us + 1_000, self.server_at(FIN | ACK, sent))]
    }
}

fn connections(numbers: &mut Numbers, count: u16) -> Vec<Connection> {
    (0..count).map(|number| Connection::new(numbers, 40_000 + number)).collect()
}

/// The lists of packets in this order, whatever their stamps.
fn lists(packets: Packets, config: &Config) -> Vec<Kept> {
    let frames: Frames = packets.into_iter().map(|(time_us, frame)| (time_us as u64, frame)).collect();
    lists_of(frames, config).0
}

/// The last list of packets in this order.
fn last(packets: Packets) -> Kept {
    lists(packets, &Config::default()).pop().expect("there is a list at the end")
}

fn in_order(mut packets: Packets) -> Packets {
    packets.sort_by_key(|(time_us, _)| *time_us);
    packets
}

fn established(list: &Kept) -> BTreeSet<u16> {
    let rows = list.rows.iter().filter(|row| row.state == RowState::Established);
    rows.map(|row| row.client.port()).collect()
}

fn only_row(list: &Kept) -> Row {
    assert_eq!(list.rows.len(), 1, "{:?}", list.rows);
    list.rows[0]
}

/// That the only connection is open since the first packet, as a list knows that is complete.
fn assert_open_since_the_beginning(list: &Kept) {
    let row = only_row(list);
    assert_eq!((row.state, row.midstream), (RowState::Established, false));
    assert_eq!(row.start_ns, BEGIN_US * 1_000);
    assert!(list.header.complete);
}

/// Lists at every ten seconds, and connections taken off after four hours of silence or five days.
pub(crate) fn evicting() -> Config {
    Config {
        every: Some(Duration::from_secs(10)),
        idle_timeout: Some(Duration::from_secs(4 * 3_600)),
        max_age: Some(Duration::from_secs(5 * 86_400)),
        ..Config::default()
    }
}

const SEEDS: std::ops::Range<u64> = 0..8;

#[test]
fn two_clocks_that_disagree_list_everything() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let size = numbers.within(61..900) * if seed % 3 == 0 { 86_400 } else { 1 };
        let offset_us = if seed % 2 == 0 { size } else { -size } * SECOND_US;
        let mut packets = Vec::new();
        for (number, connection) in connections(&mut numbers, 200).iter().enumerate() {
            let at = BEGIN_US + number as i64 * SECOND_US / 2;
            packets.extend(connection.handshake(at).into_iter().chain(connection.talk(at + 30_000, 1)));
        }
        let is_of_server = |frame: &[u8]| frame[29] == 2;
        let packets = packets.into_iter().map(|(time_us, frame)| {
            let skew_us = if is_of_server(&frame) { offset_us } else { 0 };
            (time_us + skew_us, frame)
        });
        let list = last(packets.collect());
        assert_eq!(established(&list).len(), 200, "{offset_us}");
        assert!(list.header.complete && !list.header.figures.time_uncertain);
        assert!(list.rows.iter().all(|row| row.age_ns < 101 * SECOND_US * 1_000), "no one is older than the capture");
    }
}

/// Connections that talk for 200 seconds.
fn talking(connections: &[Connection]) -> Packets {
    let mut packets = Vec::new();
    for (number, connection) in connections.iter().enumerate() {
        packets.extend(connection.handshake(BEGIN_US + number as i64 * 10_000));
        for round in 0..40 {
            packets
                .extend(connection.talk(BEGIN_US + (5 + round * 5) * SECOND_US + number as i64 * 2_000, round as u32));
        }
    }
    in_order(packets)
}

#[test]
fn one_wrong_stamp_takes_nobody_off_and_ages_nobody() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let connections = connections(&mut numbers, 100);
        let mut packets = talking(&connections);
        let ranges = [-1_000_000_000..-10_000_000, 10_000_000..1_000_000_000, -3_600..-61, 3_600..2_000_000];
        let leap_us = numbers.within(ranges[seed as usize % 4].clone()) * SECOND_US;
        let at = numbers.within(1_000..packets.len() as i64) as usize;
        packets[at].0 += leap_us;
        let lists = lists(packets, &evicting());
        assert!(lists.len() > 20);
        for list in &lists {
            assert_eq!(list.rows.len(), 100, "{leap_us} at {at}");
            assert!(list.rows.iter().all(|row| row.age_ns <= 211 * SECOND_US * 1_000));
        }
    }
}

#[test]
fn a_clock_that_is_set_after_boot_is_no_time() {
    let mut numbers = Numbers(5);
    let connections = connections(&mut numbers, 50);
    let set_us = 20 * SECOND_US - BEGIN_US;
    let packets = talking(&connections)
        .into_iter()
        .map(|(time_us, frame)| (if time_us < BEGIN_US + 40 * SECOND_US { time_us + set_us } else { time_us }, frame));
    for list in lists(packets.collect(), &evicting()) {
        assert_eq!(list.rows.len(), 50);
        assert!(list.rows.iter().all(|row| row.age_ns <= 211 * SECOND_US * 1_000));
    }
}

#[test]
fn hours_and_days_without_a_packet_have_passed() {
    // In eight days the numbers of the epochs come round in which silence is counted, to where they were.
    for (seed, gaps_s) in SEEDS.flat_map(|seed| [(seed, 18_000..32_400), (seed, 689_000..696_000)]) {
        let mut numbers = Numbers(seed);
        let connections = connections(&mut numbers, 100);
        let gap_us = numbers.within(gaps_s) * SECOND_US;
        let mut packets = talking(&connections);
        for (number, connection) in connections[..50].iter().enumerate() {
            for round in 0..30 {
                let at = BEGIN_US + gap_us + round * 180 * SECOND_US + number as i64 * 10_000;
                packets.extend(connection.talk(at, 40 + round as u32));
            }
        }
        let list = lists(in_order(packets), &Config { max_age: None, ..evicting() }).pop().unwrap();
        assert_eq!(established(&list), connections[..50].iter().map(|one| one.port).collect());
    }
}

#[test]
fn of_a_gap_that_nothing_follows_nobody_knows_whether_it_has_passed() {
    let mut numbers = Numbers(1);
    let connections = connections(&mut numbers, 10);
    let mut packets = talking(&connections);
    packets.extend(connections[0].talk(BEGIN_US + 9 * 3_600 * SECOND_US, 40));
    let list = lists(packets, &evicting()).pop().unwrap();
    assert_eq!(list.rows.len(), 10);
    assert!(list.header.figures.time_uncertain);
}

#[test]
fn a_connection_that_goes_on_behind_forged_ends_is_open_as_before() {
    for seed in SEEDS {
        for forge in ["client rst", "server rst", "fins", "server rst, then fins", "server rst, then one of its own"] {
            let mut numbers = Numbers(seed);
            let connection = Connection::new(&mut numbers, 40_000);
            let mut packets = [connection.handshake(BEGIN_US), connection.talk(BEGIN_US + SECOND_US, 1)].concat();
            let at = BEGIN_US + 2 * SECOND_US;
            if forge.contains("client rst") {
                packets.push((at, connection.client(RST | ACK, numbers.next())));
            }
            if forge.contains("server rst") {
                packets.push((at, connection.server(RST, numbers.next())));
            }
            if forge.contains("one of its own") {
                packets.push((at + 10_000, connection.server(FIN | ACK, numbers.next())));
            }
            if forge.contains("fins") {
                packets.push((at + 10_000, connection.client(FIN | ACK, numbers.next())));
                packets.push((at + 20_000, connection.server(FIN | ACK, numbers.next())));
            }
            packets.extend(
                (0..60).flat_map(|round| connection.talk(BEGIN_US + (3 + i64::from(round)) * SECOND_US, 2 + round)),
            );
            let list = last(packets.clone());
            assert_open_since_the_beginning(&list);
            assert_eq!(list.header.figures.reopened, 1, "{forge}");
            // It can still end.
            let at = BEGIN_US + 64 * SECOND_US;
            packets.push((at, connection.client_at(FIN | ACK, 63)));
            packets.push((at + 1_000, connection.server_at(FIN | ACK, 63)));
            packets.push((at + 2_000, connection.client_at(ACK, 64)));
            assert!(last(packets).rows.is_empty(), "{forge}: it has ended");
        }
    }
}

#[test]
fn what_comes_late_behind_an_end_opens_nothing() {
    for ends in ["fin", "rst"] {
        let mut numbers = Numbers(3);
        let connection = Connection::new(&mut numbers, 40_000);
        let mut packets = [connection.handshake(BEGIN_US), connection.talk(BEGIN_US + SECOND_US, 100)].concat();
        let at = BEGIN_US + 2 * SECOND_US;
        if ends == "fin" {
            packets.push((at, connection.client_at(FIN | ACK, 200)));
            packets.push((at + 1_000, connection.server_at(FIN | ACK, 300)));
            packets.push((at + 2_000, connection.client_at(ACK, 201)));
            // Repeated data, repeated FINs, and acknowledgements of them, for a minute.
            for late in 0..60 {
                packets.push((at + late * SECOND_US + 3_000, connection.server_at(ACK, 150)));
                packets.push((at + late * SECOND_US + 4_000, connection.server_at(FIN | ACK, 300)));
                packets.push((at + late * SECOND_US + 5_000, connection.client_at(ACK, 201)));
            }
        } else {
            packets.push((at, connection.client_at(RST, 200)));
            packets.push((at + 1_000, connection.client_at(ACK, 150)));
            packets.push((at + 900_000, connection.client_at(ACK, 200)));
        }
        let list = last(packets);
        assert_eq!((list.rows.len(), list.header.figures.reopened), (0, 0), "{ends}");
    }
}

#[test]
fn what_ends_while_it_seems_to_have_ended_does_not_stay_open() {
    for forges_syn in [false, true] {
        for pause_s in [3, 20] {
            let connection = Connection::new(&mut Numbers(7), 40_000);
            let second = |at: i64| BEGIN_US + at * SECOND_US;
            let mut packets = [connection.handshake(second(0)), connection.talk(second(1), 1)].concat();
            packets.push((second(2), connection.server(RST, 99)));
            if forges_syn {
                packets.push((second(2) + 1_000, connection.server(SYN, 55)));
            }
            // The client ends it first, and the server shows that it had not.
            let at = second(2 + pause_s);
            packets.push((at, connection.client_at(FIN | ACK, 1)));
            packets.push((at + 1_000, connection.server_at(ACK, 1)));
            packets.push((at + 2_000, connection.server_at(ACK, 100)));
            packets.push((at + 3_000, connection.server_at(FIN | ACK, 100)));
            packets.push((at + 4_000, connection.client_at(ACK, 2)));
            assert!(last(packets).rows.is_empty(), "{forges_syn}, {pause_s} s");
        }
    }
}

#[test]
fn data_that_crosses_a_rst_does_not_take_it_back() {
    let connection = Connection::new(&mut Numbers(7), 40_000);
    let mut packets = [connection.handshake(BEGIN_US), connection.talk(BEGIN_US + SECOND_US, 1)].concat();
    let at = BEGIN_US + 2 * SECOND_US;
    packets.push((at, connection.server(FIN | ACK, 77)));
    packets.push((at + SECOND_US, connection.client_at(RST | ACK, 1)));
    packets.push((at + SECOND_US + 1_000, connection.server_at(ACK, 500)));
    let list = last(packets);
    assert_eq!((list.rows.len(), list.header.figures.reopened), (0, 0));
}

#[test]
fn data_that_a_rst_has_overtaken_does_not_take_it_back() {
    for seed in SEEDS {
        let connection = Connection::new(&mut Numbers(seed), 40_000);
        let mut packets = [connection.handshake(BEGIN_US), connection.talk(BEGIN_US + SECOND_US, 1)].concat();
        let at = BEGIN_US + 2 * SECOND_US;
        // The server has forgotten the connection, and answers where the client is.
        packets.push((at, connection.server_at(RST, 1)));
        packets.push((at + 3_000, connection.server_at(ACK, 927)));
        let list = last(packets);
        assert_eq!((list.rows.len(), list.header.figures.reopened), (0, 0));
    }
}

#[test]
fn data_that_comes_late_behind_an_end_does_not_answer_for_the_next_connection() {
    for seed in SEEDS {
        for end in ["client rst", "server rst", "client fin"] {
            let mut numbers = Numbers(seed);
            let (old, new) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_000));
            let second = |at: i64| BEGIN_US + at * SECOND_US;
            let mut packets = [old.handshake(second(0)), old.talk(second(1), 0)].concat();
            packets.push(match end {
                "client rst" => (second(2), old.client_at(RST | ACK, 400)),
                "server rst" => (second(2), old.server_at(RST | ACK, 400)),
                // The server's is not captured.
                _ => (second(2), old.client_at(FIN | ACK, 400)),
            });
            let handshake = new.handshake(second(2) + 200_000);
            packets.extend_from_slice(&handshake[..2]);
            packets.push((second(2) + 215_000, old.client_at(ACK, 0)));
            packets.extend_from_slice(&handshake[2..]);
            packets.extend((0..20).flat_map(|round| new.talk(second(3 + i64::from(round)), round)));
            let list = last(packets);
            let row = only_row(&list);
            assert_eq!((row.state, row.start_ns), (RowState::Established, (second(2) + 200_000) * 1_000), "{end}");
            assert_eq!(list.header.figures.reopened, 0);
        }
    }
}

#[test]
fn data_that_is_forged_before_an_answer_does_not_put_a_reset_connection_in_its_place() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let (old, new) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_000));
        let second = |at: i64| BEGIN_US + at * SECOND_US;
        let mut packets = [old.handshake(second(0)), old.talk(second(1), 0)].concat();
        packets.push((second(2), old.client_at(RST | ACK, 400)));
        // The RST is older than what closed connections linger.
        let handshake = new.handshake(second(22));
        packets.extend_from_slice(&handshake[..2]);
        packets.push((second(22) + 15_000, new.client(ACK, numbers.next())));
        packets.extend_from_slice(&handshake[2..]);
        packets.extend((0..20).flat_map(|round| new.talk(second(23 + i64::from(round)), round)));
        let row = only_row(&last(packets.clone()));
        let began = second(22) * 1_000..=second(23) * 1_000;
        assert!(row.state == RowState::Established && began.contains(&row.start_ns), "{row:?}");
        packets.extend(new.end(second(50), 20));
        assert_eq!(last(packets).rows, []);
    }
}

#[test]
fn an_answer_counts_behind_all_data_that_was_forged_before_it() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let (old, new) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_000));
        let second = |at: i64| BEGIN_US + at * SECOND_US;
        let mut packets = [old.handshake(second(0)), old.talk(second(1), 0)].concat();
        packets.push((second(2), old.client_at(RST | ACK, 400)));
        packets.extend_from_slice(&new.handshake(second(6))[..2]);
        packets.push((second(7), new.client(ACK, numbers.next())));
        // What the server says to that.
        packets.push((second(7) + 1_000, new.server_at(ACK, 0)));
        packets.extend((8..13).map(|at| (second(at), new.client(ACK, numbers.next()))));
        packets.push((second(13), new.client_at(ACK, 0)));
        packets.extend((0..20).flat_map(|round| new.talk(second(14 + i64::from(round)), round)));
        let row = only_row(&last(packets.clone()));
        let began = second(6) * 1_000..=second(13) * 1_000;
        assert!(row.state == RowState::Established && began.contains(&row.start_ns), "{row:?}");
        packets.extend(new.end(second(60), 20));
        assert_eq!(last(packets).rows, []);
    }
}

#[test]
fn what_the_last_of_many_connections_between_two_ends_says_is_none_of_those_before() {
    let mut numbers = Numbers(5);
    let (mut packets, mut at) = (Vec::new(), BEGIN_US);
    for _ in 0..4 {
        let connection = Connection::new(&mut numbers, 40_000);
        packets.extend([connection.handshake(at), connection.end(at + SECOND_US, 0)].concat());
        at += 40 * SECOND_US;
    }
    // Its client is not captured behind the SYN.
    let connection = Connection::new(&mut numbers, 40_000);
    packets.extend_from_slice(&connection.handshake(at)[..2]);
    packets.extend((0..20).map(|round| (at + (200 + i64::from(round)) * SECOND_US, connection.server_at(ACK, round))));
    let list = last(packets);
    assert_eq!((established(&list).len(), list.header.figures.reopened), (0, 0));
}

#[test]
fn a_fin_of_the_connection_before_does_not_close_the_next() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let (old, new) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_000));
        let second = |at: i64| BEGIN_US + at * SECOND_US;
        let mut packets = old.handshake(second(0));
        packets.push((second(1), old.client_at(FIN | ACK, 0)));
        packets.push((second(1) + 100_000, old.server_at(FIN | ACK, 0)));
        packets.extend(new.handshake(second(2)));
        packets.push((second(3), old.server_at(FIN | ACK, 0)));
        packets.push((second(4), new.client_at(FIN | ACK, 0)));
        packets.extend((0..60).map(|round| (second(5 + i64::from(round)), new.server_at(ACK, round))));
        let list = last(packets);
        let row = only_row(&list);
        assert_eq!((row.state, row.start_ns), (RowState::Established, second(2) * 1_000));
    }
}

/// A connection, and the next between the same ends, into which a FIN of the first comes. Then its client ends the
/// second, and the server speaks on. `is_repeated` says whether the late FIN was seen before the second began.
fn late_fin(old: Connection, new: Connection, is_repeated: bool) -> Packets {
    let second = |at: i64| BEGIN_US + at * SECOND_US;
    let mut packets = old.handshake(second(0));
    packets.push((second(1), old.client_at(FIN | ACK, 0)));
    if is_repeated {
        packets.push((second(1) + 100_000, old.server_at(FIN | ACK, 0)));
    }
    packets.extend(new.handshake(second(2)));
    packets.push((second(3), old.server_at(FIN | ACK, 0)));
    packets.push((second(4), new.client_at(FIN | ACK, 0)));
    packets.extend((0..60).map(|round| (second(5 + i64::from(round)), new.server_at(ACK, round))));
    packets
}

/// Both connections of many pairs of ends at once, with the starts of the second of each.
fn late_fins(seed: u64, is_repeated: bool, new_isn: impl Fn(&Connection, u32) -> u32) -> (Packets, usize) {
    let mut numbers = Numbers(seed);
    let pairs = 150;
    let mut packets = Vec::new();
    for number in 0..pairs {
        let old = Connection::new(&mut numbers, 40_000 + number);
        let mut new = Connection::new(&mut numbers, 40_000 + number);
        new.server_isn = new_isn(&old, new.server_isn);
        packets.extend(late_fin(old, new, is_repeated));
    }
    (in_order(packets), usize::from(pairs))
}

#[test]
fn however_near_the_numbers_a_fin_of_the_connection_before_does_not_close_the_next() {
    for seed in 0..16 {
        for is_repeated in [true, false] {
            // One in 256 of these begins less than 16 MiB behind the old FIN, and all of those after it do. Where it
            // was not seen before, nothing but what it acknowledges shows that it is none of theirs: for 127 in 128.
            let anywhere = late_fins(seed, is_repeated, |_, isn| isn);
            let behind = late_fins(seed, is_repeated, |old, isn| old.server_isn.wrapping_sub(100 + isn % (1 << 24)));
            for ((packets, count), hidden_max) in [(anywhere, 0), (behind, if is_repeated { 0 } else { 8 })] {
                // The tables have room for all ends: what they forget when many end at once is no matter of numbers.
                let config = Config { connections_max: 2_000_000, memory_size_max: 1 << 30, ..Config::default() };
                let list = lists(packets, &config).pop().expect("there is a list at the end");
                let hidden = count - established(&list).len();
                assert!(hidden <= hidden_max, "seed {seed}, {is_repeated}: {hidden}");
                let starts: BTreeSet<i64> = list.rows.iter().map(|row| row.start_ns / 1_000).collect();
                assert_eq!(starts, [BEGIN_US + 2 * SECOND_US].into(), "seed {seed}, {is_repeated}");
            }
        }
    }
}

/// A connection that speaks for a minute, with forged packets two seconds after its start.
fn with_forged(connection: Connection, forged: &[Vec<u8>]) -> Packets {
    let mut packets = [connection.handshake(BEGIN_US), connection.talk(BEGIN_US + SECOND_US, 1)].concat();
    let at = BEGIN_US + 2 * SECOND_US;
    packets.extend(forged.iter().enumerate().map(|(number, frame)| (at + 10_000 * number as i64, frame.clone())));
    packets.extend((0..60).flat_map(|round| connection.talk(at + (1 + i64::from(round)) * SECOND_US, 2 + round)));
    packets
}

#[test]
fn a_forged_syn_ack_does_not_take_a_start_away() {
    // One in 256 acknowledges a number that the handshake cache can't distinguish from the client's.
    for seed in 0..600 {
        let mut numbers = Numbers(seed);
        let connection = Connection::new(&mut numbers, 40_000);
        let isn = numbers.next();
        let forged = |flags: u8, from_server: bool, numbers: &mut Numbers| {
            let (client, server) = ((1, 40_000), (2, 443));
            let (src, dst) = if from_server { (server, client) } else { (client, server) };
            let ack = if flags & SYN != 0 && from_server { isn.wrapping_add(1) } else { numbers.next() };
            let seq = if flags == SYN { isn } else { numbers.next() };
            plain_frame(src, dst, flags, (seq, ack))
        };
        let kinds: &[(u8, bool)] = [
            &[(SYN | ACK, true)][..],
            &[(SYN, false), (SYN | ACK, true)],
            &[(RST | ACK, true), (SYN | ACK, true)],
            &[(RST | ACK, true), (SYN, false), (SYN | ACK, true)],
            &[(FIN | ACK, true), (FIN | ACK, false), (SYN | ACK, true)],
            &[(SYN | ACK, true), (FIN | ACK, true)],
        ][seed as usize % 6];
        let frames: Vec<_> = kinds.iter().map(|(flags, side)| forged(*flags, *side, &mut numbers)).collect();
        let mut packets = with_forged(connection, &frames);
        let list = last(packets.clone());
        assert_open_since_the_beginning(&list);
        // It can still end, and then stays ended.
        let at = BEGIN_US + 64 * SECOND_US;
        packets.push((at, connection.client_at(FIN | ACK, 63)));
        packets.push((at + 1_000, connection.server_at(FIN | ACK, 63)));
        packets.push((at + 2_000, connection.client_at(ACK, 64)));
        assert!(last(packets).rows.is_empty(), "seed {seed}: it has ended");
    }
}

#[test]
fn a_half_closed_connection_ends_behind_a_forged_syn_ack() {
    for seed in SEEDS {
        for server_first in [true, false] {
            let mut numbers = Numbers(seed);
            let connection = Connection::new(&mut numbers, 40_000);
            let second = |at: i64| BEGIN_US + at * SECOND_US;
            let fins = [connection.server_at(FIN | ACK, 0), connection.client_at(FIN | ACK, 0)];
            let [first, then] = if server_first { fins } else { [fins[1].clone(), fins[0].clone()] };
            let syn_ack = connection.forged_syn_ack(&mut numbers);
            let mut packets = connection.handshake(second(0));
            packets.extend([(second(1), first), (second(2), syn_ack)]);
            let list = last(packets.clone());
            assert_open_since_the_beginning(&list);
            packets.extend([(second(3), then), (second(3) + 1_000, connection.client_at(ACK, 1))]);
            let list = last(packets);
            assert!(list.rows.is_empty() && list.header.complete, "server first: {server_first}");
        }
    }
}

#[test]
fn a_connection_of_days_ago_that_has_not_ended_has_its_own_start() {
    const HOUR_S: i64 = 3_600;
    // The bits of a start's tick wrap after 29 hours: one that is listed again looks younger, once like a new one.
    for hours in [29, 31, 60] {
        let mut numbers = Numbers(hours as u64);
        let connections = connections(&mut numbers, 2);
        let mut packets: Packets = connections.iter().flat_map(|one| one.handshake(BEGIN_US)).collect();
        let silent_s = hours * HOUR_S..(hours + 1) * HOUR_S + 600;
        for (number, at_s) in (50..silent_s.end + HOUR_S).step_by(50).enumerate() {
            let at = BEGIN_US + at_s * SECOND_US;
            let speaking = if silent_s.contains(&at_s) { &connections[1..] } else { &connections[..] };
            packets.extend(speaking.iter().flat_map(|one| one.talk(at, 1 + number as u32)));
        }
        packets.push((BEGIN_US + silent_s.start * SECOND_US + 1, connections[0].server(RST, numbers.next())));
        let config = Config { every: Some(Duration::from_secs(HOUR_S as u64)), ..Config::default() };
        let lists = lists(in_order(packets), &config);
        assert_eq!(lists.iter().filter(|list| list.rows.len() == 1).count(), 1, "it seemed to have ended");
        let list = lists.last().unwrap();
        assert_eq!((list.rows.len(), list.header.complete), (2, true));
        for row in &list.rows {
            assert_eq!((row.start_ns, row.start_is_bound), (BEGIN_US * 1_000, false), "{hours} hours");
        }
    }
}

#[test]
fn who_opens_a_connection_anew_is_listed_with_its_second_start() {
    for seed in SEEDS {
        // The client's first packet may not have been captured.
        for lost in [0, 1, 3] {
            let mut numbers = Numbers(seed);
            let (old, new) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_000));
            let second = |at: i64| BEGIN_US + at * SECOND_US;
            let mut packets = [old.handshake(second(0)), old.talk(second(1), 1)].concat();
            packets.extend(new.handshake(second(30)).into_iter().take(2));
            packets.extend((lost..20).map(|round| (second(31 + i64::from(round)), new.client_at(ACK, round * 1_400))));
            let list = last(packets);
            let row = only_row(&list);
            assert_eq!((row.state, row.start_ns / 1_000), (RowState::Established, second(30)), "{lost} lost");
        }
    }
}

#[test]
fn a_first_packet_that_overtakes_another_is_not_of_the_connection_before() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let [old, lost, new] = [(); 3].map(|()| Connection::new(&mut numbers, 40_000));
        let second = |at: i64| BEGIN_US + at * SECOND_US;
        let mut packets = [old.handshake(second(0)), old.talk(second(16), 0)].concat();
        packets.push((second(18), old.server_at(RST | ACK, 0)));
        // Nothing answers it.
        packets.push((second(26), lost.handshake(0).remove(0).1));
        packets.extend(new.handshake(second(52)).into_iter().take(2));
        packets
            .extend([(second(52) + 260_000, new.client_at(ACK, 854)), (second(52) + 266_000, new.client_at(ACK, 0))]);
        let list = last(packets);
        let row = only_row(&list);
        assert_eq!((row.state, row.start_ns / 1_000), (RowState::Established, second(52)));
        assert_eq!(list.header.figures.reopened, 0);
    }
}

#[test]
fn a_syn_ack_that_passes_behind_its_answer_opens_the_connection_where_every_packet_is_looked_at() {
    let config = Config { idle_timeout: evicting().idle_timeout, ..Config::default() };
    for seed in SEEDS {
        let connection = Connection::new(&mut Numbers(seed), 40_000);
        let [syn, syn_ack, _] = connection.handshake(BEGIN_US).try_into().unwrap();
        let early = |sent: u32| (BEGIN_US + 5_000, connection.client_at(ACK, sent));
        let passed = |sent: u32| vec![syn.clone(), early(sent), syn_ack.clone()];
        let list = lists(passed(0), &config).pop().unwrap();
        assert_open_since_the_beginning(&list);
        // What does not follow the SYN is no answer.
        let list = lists(passed(1), &config).pop().unwrap();
        assert_eq!(only_row(&list).state, RowState::SynRecv);
        let list = lists([passed(1), connection.talk(BEGIN_US + SECOND_US, 1)].concat(), &config).pop().unwrap();
        assert_open_since_the_beginning(&list);
    }
}

#[test]
fn who_opens_a_connection_anew_may_end_it_before_the_answer_or_with_it() {
    for seed in SEEDS {
        // Data of the client may not have been captured that the server's FIN acknowledges.
        let cases = [(true, false), (false, true), (true, true)];
        for ((server_ends, client_ends), unseen) in cases.into_iter().flat_map(|case| [(case, 0), (case, 2_800)]) {
            let mut numbers = Numbers(seed);
            let (old, new) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_000));
            let second = |at: i64| BEGIN_US + at * SECOND_US;
            let mut packets = [old.handshake(second(0)), old.talk(second(1), 1)].concat();
            packets.extend(new.handshake(second(30)).into_iter().take(2));
            if server_ends {
                let numbers = (new.server_isn.wrapping_add(1), new.isn.wrapping_add(1 + unseen));
                packets.push((second(31), plain_frame((2, 443), (1, 40_000), FIN | ACK, numbers)));
            }
            packets.push((second(32), new.client_at(if client_ends { FIN | ACK } else { ACK }, 0)));
            packets.push((second(33), new.client_at(ACK, 1)));
            let open = last(packets.clone());
            if server_ends && client_ends {
                assert_eq!((open.rows.len(), open.header.complete), (0, true));
                continue;
            }
            let row = only_row(&open);
            assert_eq!((row.state, row.start_ns / 1_000), (RowState::Established, second(30)), "{client_ends}");
            packets.push(match server_ends {
                true => (second(40), new.client_at(FIN | ACK, 1)),
                false => (second(40), new.server_at(FIN | ACK, 0)),
            });
            assert!(last(packets).rows.is_empty(), "{client_ends}");
        }
    }
}

#[test]
fn the_same_numbers_on_the_same_ports_are_another_connection() {
    for pause_s in [2, 3, 9] {
        for ends in ["fin", "rst"] {
            let connection = Connection { port: 40_000, isn: 7, server_isn: 77 };
            let second = |at: i64| BEGIN_US + at * SECOND_US;
            let mut packets = [connection.handshake(second(0)), connection.talk(second(1), 1)].concat();
            if ends == "fin" {
                packets.push((second(2), connection.client_at(FIN | ACK, 1)));
                packets.push((second(2) + 1_000, connection.server_at(FIN | ACK, 1)));
            } else {
                packets.push((second(2), connection.client_at(RST | ACK, 1)));
            }
            packets.extend(connection.handshake(second(2 + pause_s)));
            packets.extend(connection.talk(second(3 + pause_s), 1));
            let list = last(packets);
            assert_eq!(only_row(&list).start_ns, second(2 + pause_s) * 1_000, "{ends}");
            assert!(list.header.complete);
        }
    }
}

#[test]
fn a_client_that_repeats_its_syn_for_two_minutes_started_with_the_first() {
    let mut numbers = Numbers(1);
    let connection = Connection::new(&mut numbers, 40_000);
    let mut packets: Packets =
        [0, 1, 3, 7, 15, 31, 63].map(|at| (BEGIN_US + at * SECOND_US, connection.client(SYN, connection.isn))).into();
    assert_eq!(only_row(&last(packets.clone())).state, RowState::SynSent);
    packets.push((BEGIN_US + 122 * SECOND_US, connection.server(SYN | ACK, connection.server_isn)));
    packets.push((BEGIN_US + 122 * SECOND_US + 10_000, connection.client_at(ACK, 0)));
    assert_open_since_the_beginning(&last(packets));
}

#[test]
fn a_server_that_repeats_its_syn_ack_for_two_minutes_answered_the_first_syn() {
    let mut numbers = Numbers(1);
    let connection = Connection::new(&mut numbers, 40_000);
    let mut packets = vec![(BEGIN_US, connection.client(SYN, connection.isn))];
    let syn_ack = |at: &i64| (BEGIN_US + at * SECOND_US + 10_000, connection.server(SYN | ACK, connection.server_isn));
    packets.extend([0, 1, 3, 7, 15, 31, 63].iter().map(syn_ack));
    assert_eq!(only_row(&last(packets.clone())).state, RowState::SynRecv);
    packets.push((BEGIN_US + 122 * SECOND_US, connection.client_at(ACK, 0)));
    assert_open_since_the_beginning(&last(packets));
}

#[test]
fn a_fin_that_does_not_follow_a_forged_syn_ack_opens_nothing() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        // It is older than the start and half closed, and its client seems to be another's server.
        let connection = Connection::new(&mut numbers, 40_000);
        let mut packets = connection.talk(BEGIN_US, 100);
        packets.push((BEGIN_US + SECOND_US, connection.client_at(FIN | ACK, 100)));
        let forged = connection.forged_syn_ack_of_client((numbers.next(), numbers.next()));
        packets.push((BEGIN_US + 2 * SECOND_US, forged));
        packets.push((BEGIN_US + 3 * SECOND_US, connection.server_at(FIN | ACK, 100)));
        packets.push((BEGIN_US + 3 * SECOND_US + 1_000, connection.client_at(ACK, 101)));
        let list = last(packets);
        assert_eq!(established(&list), BTreeSet::new(), "seed {seed}: {:?}", list.rows);
    }
}

#[test]
fn a_fin_of_a_client_in_whose_name_a_syn_ack_was_forged_ends_it() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let connection = Connection::new(&mut numbers, 40_000);
        let mut packets = connection.handshake(BEGIN_US);
        packets.extend(connection.talk(BEGIN_US + SECOND_US, 0));
        // It happens to acknowledge shortly less than what the client sends next.
        let acknowledged = connection.isn.wrapping_sub(numbers.within(0..60_000) as u32);
        let forged = connection.forged_syn_ack_of_client((numbers.next(), acknowledged));
        packets.push((BEGIN_US + 3 * SECOND_US, forged));
        packets.push((BEGIN_US + 4 * SECOND_US, connection.server_at(ACK, 0)));
        assert_open_since_the_beginning(&last(packets.clone()));
        packets.extend(connection.end(BEGIN_US + 5 * SECOND_US, 0));
        let list = last(packets);
        assert!(list.rows.is_empty() && list.header.complete, "seed {seed}: {:?}", list.rows);
    }
}

#[test]
fn a_fin_forged_before_the_answer_to_a_syn_ack_hides_nothing() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let connection = Connection::new(&mut numbers, 40_000);
        // Of its SYN nothing is known.
        let mut packets = vec![(BEGIN_US, connection.server(SYN | ACK, connection.server_isn))];
        packets.push((BEGIN_US + 1_000, connection.client(FIN | ACK, numbers.next())));
        packets.push((BEGIN_US + 10_000, connection.client_at(ACK, 0)));
        packets.extend(connection.talk(BEGIN_US + SECOND_US, 0));
        assert_open_since_the_beginning(&last(packets));
    }
}

#[test]
fn a_syn_ack_of_hours_ago_is_not_waited_for_again() {
    for turn in 1..=5 {
        let mut numbers = Numbers(turn);
        // It is older than the start and half closed; and another that talks all the time.
        let (connection, other) = (Connection::new(&mut numbers, 40_000), Connection::new(&mut numbers, 40_001));
        let mut packets = other.handshake(BEGIN_US);
        packets.push((BEGIN_US + SECOND_US, connection.client_at(FIN | ACK, 5_000_000)));
        let forged = connection.forged_syn_ack(&mut numbers);
        let forged_us = BEGIN_US + 600 * SECOND_US;
        packets.push((forged_us, forged));
        packets.push((forged_us + 1_000, connection.client_at(ACK, 5_000_001)));
        // The time that the cache of handshakes can tell apart, so many times.
        let end_us = forged_us + (turn as i64) * (1 << 42) / 1_000 + 15 * SECOND_US;
        packets.extend((0..10).flat_map(|round| other.talk(end_us + i64::from(round) * 100_000, 1 + round)));
        let (seq, ack) = (connection.server_isn.wrapping_add(9_000_000), connection.isn.wrapping_add(1 + 5_000_001));
        let fin = plain_frame((2, 443), (1, connection.port), FIN | ACK, (seq, ack));
        packets.push((end_us + 2 * SECOND_US, fin));
        packets.push((end_us + 2 * SECOND_US + 1_000, connection.client_at(ACK, 5_000_001)));
        assert_eq!(only_row(&last(packets)).client.port(), other.port, "turn {turn}");
    }
}

#[test]
fn a_syn_ack_that_is_forged_behind_the_answer_completes_nothing() {
    // Every packet is looked at.
    let config = Config { idle_timeout: evicting().idle_timeout, ..Config::default() };
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let connection = Connection::new(&mut numbers, 40_000);
        // The server's answer comes late, or is not captured.
        let mut packets = connection.handshake(BEGIN_US);
        let (_, answer) = packets.remove(1);
        let forged = connection.forged_syn_ack(&mut numbers);
        packets.push((BEGIN_US + 30_000, forged));
        let list = lists(packets.clone(), &config).pop().unwrap();
        assert_eq!(established(&list), BTreeSet::new(), "seed {seed}");
        packets.push((BEGIN_US + 40_000, answer));
        assert_open_since_the_beginning(&lists(packets, &config).pop().unwrap());
    }
}

#[test]
fn a_syn_ack_forged_before_the_end_is_not_completed_behind_it() {
    let mut numbers = Numbers(1);
    // So many that the numbers of some agree in the bits that the handshake cache keeps.
    let mut packets = Packets::new();
    for (number, connection) in connections(&mut numbers, 3_000).into_iter().enumerate() {
        let begin_us = BEGIN_US + number as i64 * 1_000;
        packets.extend(connection.handshake(begin_us));
        let forged = connection.forged_syn_ack(&mut numbers);
        packets.push((begin_us + SECOND_US, forged));
        packets.extend(connection.end(begin_us + 2 * SECOND_US, 0));
        packets.push((begin_us + 2 * SECOND_US + 2_000, connection.client_at(ACK, 1)));
    }
    assert_eq!(last(in_order(packets)).rows, vec![]);
}

/// The host and port of this packet of a flood.
fn flooder(number: u32) -> (u8, u16) {
    (3 + (number >> 14) as u8 % 200, 1_024 + (number & 0x3fff) as u16)
}

/// Lists at every second of slow handshakes and what they say later, beside a flood that the server answers, and the
/// ports of the clients.
fn beside_answered_flood(flood_count: u32, config: &Config) -> (Vec<Kept>, BTreeSet<u16>) {
    let mut numbers = Numbers(1);
    let real: Vec<Connection> = connections(&mut numbers, 500);
    let mut packets = Vec::new();
    for (number, connection) in real.iter().enumerate() {
        let mut handshake = connection.handshake(BEGIN_US + number as i64 * 1_000);
        let syn_us = handshake[0].0;
        (handshake[1].0, handshake[2].0) = (syn_us + 100_000, syn_us + 4 * SECOND_US);
        packets.extend(handshake);
        packets.extend((0..40).flat_map(|round| {
            connection.talk(BEGIN_US + (10 + i64::from(round)) * SECOND_US + number as i64 * 500, 1 + round)
        }));
    }
    // Before the real ones are complete.
    for number in 0..flood_count {
        let at = BEGIN_US + SECOND_US + i64::from(number);
        packets.push((at, plain_frame((2, 443), flooder(number), SYN | ACK, (1, numbers.next()))));
    }
    let config = Config { every: Some(Duration::from_secs(1)), ..config.clone() };
    (lists(in_order(packets), &config), real.iter().map(|one| one.port).collect())
}

/// Whether a list lacks one of these, all of which are open by then.
fn is_short(list: &Kept, ports: &BTreeSet<u16>) -> bool {
    list.header.figures.end_ns > (BEGIN_US + 6 * SECOND_US) * 1_000 && !ports.is_subset(&established(list))
}

#[test]
fn a_flood_that_is_answered_pushes_out_no_slow_handshake() {
    let config = Config { connections_max: 20_000, ..Config::default() };
    let (lists, ports) = beside_answered_flood(300_000, &config);
    assert!(lists.iter().all(|list| !is_short(list, &ports)));
    let lost = lists.last().unwrap().header.figures.handshakes_lost;
    assert!(lost < 30, "{lost} of 300,000 met in sets that were full");
}

#[test]
fn what_a_larger_flood_makes_forget_leaves_lists_incomplete() {
    let (lists, ports) = beside_answered_flood(1_500_000, &Config::default());
    let short = lists.iter().filter(|list| is_short(list, &ports)).count();
    assert!(short > 0, "it made it forget some");
    for list in lists.iter().filter(|list| is_short(list, &ports)) {
        assert!(!list.header.complete && list.header.figures.handshakes_lost > 0, "{:?}", list.header);
    }
}

#[test]
fn a_syn_ack_forged_in_place_of_one_that_a_flood_pushed_out_hides_nothing() {
    for seed in SEEDS {
        let mut numbers = Numbers(seed);
        let connection = Connection::new(&mut numbers, 40_000);
        let (mut handshake, forged_us) = (connection.handshake(BEGIN_US), BEGIN_US + 900_000);
        handshake[2].0 = BEGIN_US + SECOND_US;
        let mut packets = handshake;
        // In the name of the server, or of the client.
        let forged = if seed % 2 == 0 {
            connection.forged_syn_ack(&mut numbers)
        } else {
            connection.forged_syn_ack_of_client((numbers.next(), numbers.next()))
        };
        packets.push((forged_us, forged));
        for number in 0..100_000 {
            let at = BEGIN_US + 100_000 + i64::from(number) * 8;
            packets.push((at, plain_frame(flooder(number), (2, 443), SYN, (numbers.next(), 0))));
        }
        let config = Config { half_open_max: Some(16_384), ..Config::default() };
        let list = lists(in_order(packets), &config).pop().expect("there is a list at the end");
        assert!(list.header.figures.recycled > 0, "seed {seed}: {:?}", list.header);
        assert_eq!(established(&list), BTreeSet::from([connection.port]), "seed {seed}");
    }
}
