//! The generator: its promises, checked against what it really sends.

mod census;

use std::collections::HashMap;

use crate::support::oracle::{List, Oracle, Rules, Segment, frames_of_pcap, segment};
use census::{Census, Sent, conversations, initial_numbers, take_census};
use flowpeel_traffic::{
    ATTACKED_V4, Arrivals, Flood, FloodConfig, Traffic, TrafficConfig, TrafficCounts, is_client, is_server, write_pcap,
};

const SECOND_US: u64 = 1_000_000;

fn capture(config: TrafficConfig) -> (Vec<u8>, TrafficCounts) {
    let mut traffic = Traffic::new(config).expect("a good configuration");
    let mut bytes = Vec::new();
    let counts = write_pcap(&mut traffic, &mut bytes).expect("memory does not fail");
    (bytes, counts)
}

fn lists(config: TrafficConfig, every_us: u64) -> Vec<List> {
    let (bytes, _) = capture(config);
    Oracle::lists(Rules { every_us: Some(every_us), ..Rules::default() }, frames_of_pcap(&bytes))
}

/// FNV-1a, enough to see that not one byte has changed.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn equal_seeds_give_equal_bytes() {
    let (first, counts) = capture(TrafficConfig::mixed(1, 500));
    assert_eq!(capture(TrafficConfig::mixed(1, 500)).0, first);
    assert_ne!(capture(TrafficConfig::mixed(2, 500)).0, first);
    assert_eq!(frames_of_pcap(&first).count() as u64, counts.frame_count);
    // Pinned, so that a machine or compiler that makes other bytes is noticed. A change to the generator changes it.
    assert_eq!(digest(&first), DIGEST_OF_SEED_1);
}

const DIGEST_OF_SEED_1: u64 = 8_949_742_769_476_476_318;

#[test]
fn times_never_step_back_and_stay_in_the_capture() {
    let config = TrafficConfig::mixed(3, 5_000);
    let (start_us, end_us) = (config.start_us, config.start_us + config.duration_us);
    let mut traffic = Traffic::new(config).unwrap();
    let mut last_us = start_us;
    while let Some(frame) = traffic.next_frame() {
        assert!(last_us <= frame.time_us && frame.time_us < end_us);
        last_us = frame.time_us;
    }
    assert!(end_us - last_us < SECOND_US, "busy to the end");
}

#[test]
fn frames_are_whole_and_their_checksums_right() {
    let whole = TrafficConfig { captured_size_max: 65_535, ..TrafficConfig::mixed(4, 1_000) };
    let cut = TrafficConfig { captured_size_max: 96, ..whole.clone() };
    let (mut whole, mut cut) = (Traffic::new(whole).unwrap(), Traffic::new(cut).unwrap());
    let (mut v4_count, mut v6_count, mut cut_count) = (0, 0, 0);
    while let Some(frame) = whole.next_frame() {
        assert_eq!(frame.bytes.len(), frame.wire_size);
        assert!(frame.wire_size <= 1514);
        if check_headers(frame.bytes) {
            v4_count += 1
        } else {
            v6_count += 1
        }
        let short = cut.next_frame().expect("the cut changes no packet");
        assert_eq!((short.time_us, short.wire_size), (frame.time_us, frame.wire_size));
        assert_eq!(short.bytes, &frame.bytes[..frame.wire_size.min(96)]);
        cut_count += usize::from(short.bytes.len() < short.wire_size);
    }
    assert!(cut.next_frame().is_none());
    assert!(v4_count > 1_000 && v6_count > 200 && cut_count > 1_000, "{v4_count} {v6_count} {cut_count}");
}

/// Checks lengths and checksums; true for IPv4.
fn check_headers(frame: &[u8]) -> bool {
    use pnet::packet::{Packet, ethernet::*, ipv4::*, ipv6::*, tcp::*};
    let ethernet = EthernetPacket::new(frame).unwrap();
    if ethernet.get_ethertype() == EtherTypes::Ipv4 {
        let ip = Ipv4Packet::new(ethernet.payload()).unwrap();
        assert_eq!(usize::from(ip.get_total_length()), ethernet.payload().len());
        assert_eq!(ip.get_checksum(), pnet::packet::ipv4::checksum(&ip));
        let tcp = TcpPacket::new(ip.payload()).unwrap();
        assert_eq!(tcp.get_checksum(), pnet::packet::tcp::ipv4_checksum(&tcp, &ip.get_source(), &ip.get_destination()));
        return true;
    }
    assert_eq!(ethernet.get_ethertype(), EtherTypes::Ipv6);
    let ip = Ipv6Packet::new(ethernet.payload()).unwrap();
    assert_eq!(usize::from(ip.get_payload_length()) + 40, ethernet.payload().len());
    let tcp = TcpPacket::new(ip.payload()).unwrap();
    assert_eq!(tcp.get_checksum(), pnet::packet::tcp::ipv6_checksum(&tcp, &ip.get_source(), &ip.get_destination()));
    false
}

/// The mixed workload with lives short enough that most connections end in sight.
fn short_lived(seed: u64, connection_count: u64) -> TrafficConfig {
    TrafficConfig { lifetime_us: 2_000..=20_000_000, ..TrafficConfig::mixed(seed, connection_count) }
}

#[test]
fn connections_open_end_and_fail_in_every_way() {
    let config = short_lived(5, 20_000);
    let (repeats, endings, handshakes) = (config.repeats.clone(), config.endings.clone(), config.handshakes.clone());
    let began_before_us = config.start_us + 60 * SECOND_US;
    let (bytes, _) = capture(config);
    let mut census = Census::default();
    let mut count = 0;
    for packets in conversations(&bytes).values() {
        if packets[0].0 < began_before_us && initial_numbers(packets).len() == 1 {
            take_census(packets, &mut census);
            count += 1;
        }
    }
    assert!(count > 9_000, "{count}");
    let opened = f64::from(count) * (1.0 - handshakes.refused - handshakes.unanswered - handshakes.unacknowledged);
    let two_fins = 1.0 - endings.reset - endings.fin_then_reset - endings.never_closed - endings.half_closed;
    let closed = opened * (two_fins + endings.reset + endings.fin_then_reset);
    let near = |name: &str, found: usize, expected: f64| {
        let found = found as f64;
        assert!(
            (expected * 0.8 - 8.0..expected * 1.25 + 8.0).contains(&found),
            "{name}: {found}, not {expected}; {census:?}"
        );
    };
    near("IPv6", census.ipv6, f64::from(count) * 0.2);
    near("refused", census.refused, f64::from(count) * handshakes.refused);
    near("unanswered", census.unanswered, f64::from(count) * handshakes.unanswered);
    near("unacknowledged", census.unacknowledged, f64::from(count) * handshakes.unacknowledged);
    near("two FINs", census.two_fins, opened * two_fins);
    near("reset", census.reset, opened * endings.reset);
    near("FIN then RST", census.fin_then_reset, opened * endings.fin_then_reset);
    near("half closed", census.half_closed, opened * endings.half_closed);
    near("never closed", census.never_closed, opened * endings.never_closed);
    near("repeated SYN", census.repeated_syn, opened * repeats.syn);
    near("repeated SYN-ACK", census.repeated_syn_ack, opened * repeats.syn_ack);
    // A late FIN is a repeat too, when it comes late enough; some late ones come too early to be recognized.
    assert!(census.repeated_fin as f64 > opened * repeats.fin * 0.7, "{census:?}");
    assert!(census.late_fin as f64 > closed * repeats.late_fin * 0.3, "{census:?}");
    assert!(census.late_reset as f64 > closed * repeats.late_reset * 0.3, "{census:?}");
}

#[test]
fn ports_are_reused_after_the_close_and_while_open() {
    let (bytes, counts) = capture(TrafficConfig::mixed(6, 20_000));
    let (mut open_count, mut closed_count, mut answered_count) = (0, 0, 0);
    for packets in conversations(&bytes).values() {
        let numbers = initial_numbers(packets);
        for number in numbers.iter().skip(1) {
            let is_syn = |segment: &Segment| segment.syn && !segment.ack_flag && segment.seq == *number;
            let at = packets.iter().position(|(.., segment)| is_syn(segment)).unwrap();
            let fins = |side| packets[..at].iter().any(|(_, from_client, segment)| *from_client == side && segment.fin);
            let closed = fins(true) && fins(false) || packets[..at].iter().any(|(.., segment)| segment.rst);
            if closed {
                closed_count += 1
            } else {
                open_count += 1
            }
            if !closed {
                let same_interval = packets[0].0 / (10 * SECOND_US) == packets[at].0 / (10 * SECOND_US);
                assert!(same_interval || numbers.len() > 2, "an open one began in the same ten seconds");
            }
            let answer = |(_, from_client, segment): &Sent| {
                !from_client && segment.syn && segment.ack_flag && segment.ack == number.wrapping_add(1)
            };
            let acknowledged = packets
                .iter()
                .skip_while(|packet| !answer(packet))
                .any(|(_, from_client, segment)| *from_client && !segment.syn && !segment.rst && segment.ack_flag);
            answered_count += u64::from(acknowledged);
        }
    }
    assert_eq!((open_count, closed_count), (counts.reused_open_count, counts.reused_closed_count));
    assert!((60..140).contains(&open_count) && (60..140).contains(&closed_count), "{open_count} {closed_count}");
    assert!(answered_count > (open_count + closed_count) * 3 / 4, "{answered_count}");
    assert_eq!(counts.connection_count, 20_000);
}

#[test]
fn some_packets_come_twice() {
    let (bytes, counts) = capture(TrafficConfig::mixed(7, 5_000));
    let frames: Vec<_> = frames_of_pcap(&bytes).collect();
    let at_once = frames.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    let mut last_us: HashMap<&[u8], u64> = HashMap::new();
    let mut delayed = 0;
    for (time_us, frame) in &frames {
        let before_us = last_us.insert(frame, *time_us);
        delayed += u64::from(before_us.is_some_and(|before_us| (1..=5_000).contains(&(time_us - before_us))));
    }
    let share = counts.duplicate_frame_count as f64 / counts.frame_count as f64;
    assert!((0.008..0.012).contains(&share), "{counts:?}");
    assert!(at_once > counts.duplicate_frame_count * 2 / 5, "{at_once} of {counts:?}");
    assert!(delayed > counts.duplicate_frame_count * 2 / 5, "{delayed} of {counts:?}");
}

#[test]
fn handshakes_take_a_tenth_to_two_hundred_milliseconds() {
    let (bytes, _) = capture(short_lived(8, 5_000));
    let mut round_trips_us = Vec::new();
    for packets in conversations(&bytes).values() {
        if let [(syn_us, true, syn), (_, false, syn_ack), (ack_us, true, ack), ..] = packets[..]
            && syn.syn
            && syn_ack.syn
            && !ack.syn
            && !ack.rst
        {
            round_trips_us.push(ack_us - syn_us);
        }
    }
    let (min, max) = (round_trips_us.iter().min().unwrap(), round_trips_us.iter().max().unwrap());
    // Half of a round trip is a whole number of microseconds.
    assert!((98..200).contains(min) && (150_000..=200_000).contains(max), "{min} {max}");
}

#[test]
fn data_packets_are_as_many_as_asked_for() {
    let config = TrafficConfig { data_packets: 50..=50, lifetime_us: 1_000..=50_000, ..TrafficConfig::mixed(9, 2_000) };
    let counts = capture(config).1;
    let mean = counts.frame_count as f64 / counts.connection_count as f64;
    assert!((48.0..58.0).contains(&mean), "{counts:?}");
}

#[test]
fn memory_grows_with_what_is_alive_not_with_the_capture() {
    let brief = TrafficConfig { duration_us: 20 * SECOND_US, ..short_lived(10, 5_000) };
    let long = TrafficConfig { duration_us: 200 * SECOND_US, ..short_lived(10, 50_000) };
    let (brief, long) = (capture(brief).1, capture(long).1);
    assert!(long.frame_count > 9 * brief.frame_count);
    // About 250 begin in a second and live some two seconds; failed ones repeat their SYNs for up to fifteen.
    assert!(brief.alive_count_max < 1_500, "{brief:?}");
    assert!(long.alive_count_max < 2 * brief.alive_count_max, "{long:?} after {brief:?}");
}

#[test]
fn the_oracle_lists_both_families_and_all_states() {
    let lists = lists(TrafficConfig::mixed(11, 20_000), 10 * SECOND_US);
    assert_eq!(lists.len(), 12);
    let last = lists.last().unwrap();
    for state in ["established", "syn_recv", "syn_sent"] {
        assert!(last.lines.iter().any(|line| line.state == state), "{state}");
    }
    assert!(last.lines.iter().any(|line| line.client.is_ipv4()) && last.lines.iter().any(|line| line.client.is_ipv6()));
    assert!(last.lines.iter().all(|line| is_client(line.client.ip()) && is_server(line.server.ip())));
    assert!(last.lines.is_sorted() && last.lines.windows(2).all(|pair| pair[0] != pair[1]));
    // What opened and did not close is what is listed, at the end of every interval.
    let mut open = 0;
    for list in &lists {
        assert!(list.opened > 1_000 && list.closed > 100, "{} {}", list.opened, list.closed);
        open += list.opened - list.closed;
        assert_eq!(list.lines.iter().filter(|line| line.state == "established").count() as u64, open);
    }
}

fn small_flood(flood: Flood) -> FloodConfig {
    FloodConfig {
        packet_count: 50_000,
        begin_us: 5 * SECOND_US,
        ipv6_share: 0.1,
        rate_per_s: 25_000,
        ..FloodConfig::new(flood)
    }
}

/// Flood packets by whether the server sent them and over which family; their times' range; how many carried data.
fn count_flood(config: &TrafficConfig) -> ([u64; 2], u64, (u64, u64)) {
    let (bytes, counts) = capture(config.clone());
    let (mut sent, mut answered, mut ipv6, mut times) = (0, 0, 0, (u64::MAX, 0));
    for (time_us, frame) in frames_of_pcap(&bytes) {
        let segment = segment(frame).unwrap();
        if is_client(segment.src.ip()) || is_client(segment.dst.ip()) {
            continue;
        }
        times = (times.0.min(time_us - config.start_us), times.1.max(time_us - config.start_us));
        ipv6 += u64::from(segment.src.is_ipv6());
        if is_server(segment.src.ip()) {
            answered += 1
        } else {
            sent += 1
        }
        let attacked = if is_server(segment.src.ip()) { segment.src } else { segment.dst };
        assert!(attacked.port() == 443 && (attacked.is_ipv6() || attacked.ip() == ATTACKED_V4));
        let flood = config.flood.as_ref().unwrap().flood;
        assert_eq!(segment.syn, flood != Flood::Acks);
        assert_eq!(segment.ack_flag, flood == Flood::Acks || is_server(segment.src.ip()));
    }
    assert_eq!(counts.flood_frame_count, sent + answered);
    ([sent, answered], ipv6, times)
}

#[test]
fn floods_are_counted_exactly() {
    for (flood, answers) in [(Flood::Unanswered, 0), (Flood::Answered, 50_000), (Flood::Acks, 0)] {
        let config = TrafficConfig::flooded(12, small_flood(flood));
        let (counts, ipv6, times) = count_flood(&config);
        assert_eq!(counts, [50_000, answers]);
        let ipv6_share = ipv6 as f64 / (50_000 + answers) as f64;
        assert!((0.09..0.11).contains(&ipv6_share), "{ipv6_share}");
        let last_answer_us = if answers > 0 { 50 } else { 0 };
        assert_eq!(times, (5 * SECOND_US, 7 * SECOND_US - 40 + last_answer_us));
    }
}

#[test]
fn clients_connect_before_during_and_after_a_flood() {
    let config = TrafficConfig::flooded(13, small_flood(Flood::Unanswered));
    assert_eq!(config.arrivals, Arrivals::Population { client_count: 1_000 });
    let lists = lists(config, SECOND_US);
    assert_eq!(lists.len(), 17);
    for list in &lists[2..] {
        let open = list.lines.iter().filter(|line| is_client(line.client.ip())).count();
        assert!((985..=1_000).contains(&open), "{open} at {}", list.end_us);
        assert!(list.opened > 50 && list.closed > 50, "{} {}", list.opened, list.closed);
    }
    let flood = lists[7].lines.iter().filter(|line| !is_client(line.client.ip()));
    assert_eq!(flood.filter(|line| line.state == "syn_sent").count(), 50_000);
}

#[test]
fn a_flood_of_acks_opens_nothing_and_carries_some_data() {
    let config = TrafficConfig::flooded(14, small_flood(Flood::Acks));
    let mut traffic = Traffic::new(config.clone()).unwrap();
    let mut with_data = 0;
    while let Some(frame) = traffic.next_frame() {
        let segment = segment(frame.bytes).unwrap();
        let headers_size = if segment.src.is_ipv6() { 74 } else { 54 };
        let is_flood = !is_client(segment.src.ip()) && !is_server(segment.src.ip());
        with_data += u64::from(is_flood && frame.wire_size > headers_size);
    }
    assert!((14_000..16_000).contains(&with_data), "{with_data}");
    let last = lists(config, SECOND_US).pop().unwrap();
    assert!(last.lines.len() > 900 && last.lines.iter().all(|line| is_client(line.client.ip())));
}

#[test]
fn what_can_not_be_followed_is_refused_with_its_reason() {
    let good = TrafficConfig::mixed(1, 10);
    let why = |config: TrafficConfig| Traffic::new(config).err().expect("a bad configuration").to_string();
    let mut config = good.clone();
    config.endings.reset = 0.9;
    assert!(why(config).contains("endings"));
    assert!(why(TrafficConfig { ipv6_share: f64::NAN, ..good.clone() }).contains("IPv6"));
    assert!(why(TrafficConfig { duration_us: 0, ..good.clone() }).contains("last"));
    assert!(why(TrafficConfig { start_us: u64::MAX, ..good.clone() }).contains("2106"));
    assert!(why(TrafficConfig { captured_size_max: 60, ..good.clone() }).contains("captured"));
    #[expect(clippy::reversed_empty_ranges)]
    let empty = TrafficConfig { lifetime_us: 2..=1, ..good.clone() };
    assert!(why(empty).contains("lifetime"));
    let flood = FloodConfig { rate_per_s: 0, ..FloodConfig::new(Flood::Acks) };
    assert!(why(TrafficConfig::flooded(1, flood)).contains("rate"));
    assert!(
        why(TrafficConfig { duration_us: SECOND_US, ..TrafficConfig::flooded(1, FloodConfig::new(Flood::Acks)) })
            .contains("longer")
    );
    let none = capture(TrafficConfig::mixed(1, 0));
    assert_eq!((none.0.len(), none.1), (24, TrafficCounts::default()));
}
