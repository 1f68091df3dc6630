//! Two interfaces that see the same packets, or one direction each, on queues that overtake each other.

use super::*;
use crate::parse::{Addresses, TcpSegment};
use crate::signal::{HandshakeCache, Moment, RecentEnds, Signaller, SignallerConfig};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const CLIENT: (u32, u16) = (0x0a00_0001, 40_000);
const SERVER: (u32, u16) = (0x0b00_0001, 443);
const TIMEOUT_NS: i64 = 60_000_000_000;

/// The packets of a conversation, with the letters of [`Scene::play`]: each side counts its bytes.
fn segments(script: &str) -> Vec<(i64, TcpSegment)> {
    let (mut client, mut server) = (1_000, 5_000);
    let mut ended = String::new();
    let segment = |letter: char| {
        let from_client = letter.is_ascii_uppercase();
        let has_ended = ended.contains(if from_client { 'F' } else { 'f' });
        ended.push(letter);
        let (flags, length) = match letter.to_ascii_uppercase() {
            'S' => (TcpSegment::SYN, 1),
            'A' => (TcpSegment::SYN | TcpSegment::ACK, 1),
            'C' => (TcpSegment::ACK, 0),
            'D' if has_ended => (TcpSegment::ACK, 0),
            'D' => (TcpSegment::ACK, 100),
            'F' => (TcpSegment::FIN | TcpSegment::ACK, 1),
            _ => (TcpSegment::RST, 0),
        };
        let payload_size = Some(if flags == TcpSegment::ACK { length } else { 0 });
        let (own, other) = if from_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
        // SYN and SYN-ACK are retransmitted with their own sequence numbers.
        let (seq, ack) = match letter {
            'S' => (1_000, 0),
            'a' => (5_000, *other),
            _ => (*own, *other),
        };
        *own = (*own).max(seq + length);
        let ((src, src_port), (dst, dst_port)) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        TcpSegment {
            addresses: Addresses::V4 { src, dst },
            src_port,
            dst_port,
            vlan: VlanTags::NONE,
            flags,
            seq,
            ack,
            payload_size,
        }
    };
    (0..).step_by(1_000_000).zip(script.chars().map(segment)).collect()
}

/// The packets of two connections between the same ends: the client loses the first before it begins the second.
fn lost_and_begun_anew() -> Vec<(i64, TcpSegment)> {
    let mut packets = segments("SaCDd");
    let mut at = |like: usize, seq: u32, ack: u32, flags: u8| {
        let (_, segment) = packets[like];
        let time_ns = packets.len() as i64 * 1_000_000;
        packets.push((time_ns, TcpSegment { seq, ack, flags, payload_size: Some(0), ..segment }));
    };
    let (client, server) = (0, 1);
    let [(old, old_answer), (new, new_answer)] = [(1_101, 5_101), (500_000_000, 707_000_000)];
    at(client, new, 0, TcpSegment::SYN);
    at(server, old_answer, old, TcpSegment::ACK);
    at(client, old, 0, TcpSegment::RST);
    at(client, new, 0, TcpSegment::SYN);
    at(server, new_answer, new + 1, TcpSegment::SYN | TcpSegment::ACK);
    at(client, new + 1, new_answer + 1, TcpSegment::ACK);
    at(client, new + 2, new_answer + 1, TcpSegment::ACK);
    at(server, new_answer + 1, new + 2, TcpSegment::ACK);
    packets
}

/// The packets of two interfaces, each with the time in ns at which it came.
type Copies = [Vec<(i64, TcpSegment)>; 2];

/// The signals that two interfaces make of these packets, each in its own queue. Each choice says at which of them the
/// next packet is read, as long as both have packets left.
fn signals_of(copies: Copies, seen: &[bool], pickup: u32) -> [VecDeque<Signal>; 2] {
    signals_in_order(copies, seen, pickup, &mut Vec::new())
}

/// As above, with the interface of each signal in the order in which they are made.
fn signals_in_order(copies: Copies, seen: &[bool], pickup: u32, order: &mut Vec<usize>) -> [VecDeque<Signal>; 2] {
    let cache = Arc::new(HandshakeCache::new(1_024, TIMEOUT_NS));
    let ends = Arc::new(RecentEnds::new(1_024));
    let config = SignallerConfig {
        secret: Secret::REPLAY,
        vlan_key: false,
        one_way: false,
        syn_timeout_ns: TIMEOUT_NS,
        pickup,
        answer_opens: false,
        seen_syn_count: 1_024,
    };
    let mut signallers = [(); 2].map(|()| Signaller::new(config.clone(), Arc::clone(&cache), Arc::clone(&ends), None));
    let mut copies = copies.map(VecDeque::from);
    let mut queues = [VecDeque::new(), VecDeque::new()];
    let mut choices = seen.iter();
    while let Some(at) = next(&copies, &mut choices) {
        let (now_ns, segment) = copies[at].pop_front().unwrap();
        signallers[at].push(&segment, || (FIRST_TICK, now_ns), |signal| queues[at].push_back(*signal));
        signallers[at].flush(|signal| queues[at].push_back(*signal));
        order.resize(queues.iter().map(VecDeque::len).sum(), at);
    }
    queues
}

/// The open connections after two interfaces have seen these packets. Choices are as above, and there are others for
/// what comes next at the shard.
fn open_after(copies: Copies, seen: &[bool], handled: &[bool], pickup: u32) -> Option<u32> {
    let mut queues = signals_of(copies, seen, pickup);
    let mut choices = handled.iter();
    let signals = std::iter::from_fn(|| next(&queues, &mut choices).and_then(|at| queues[at].pop_front()));
    open_after_signals(signals, pickup)
}

fn open_after_signals(signals: impl Iterator<Item = Signal>, pickup: u32) -> Option<u32> {
    let mut tracker = Tracker::new(TrackerConfig { candidate_count: 100 * pickup as usize, ..super::config() });
    let mut open = None;
    for signal in signals {
        match tracker.handle(&signal) {
            Some(Event::Open(_, payload) | Event::Reopen(_, payload)) => assert_eq!(open.replace(payload), None),
            Some(Event::Close(_, payload)) => assert_eq!(open.take(), Some(payload)),
            Some(Event::Replace((_, before), (_, payload))) => assert_eq!(open.replace(payload), Some(before)),
            Some(Event::CloseAndPass((_, before), _)) => assert_eq!(open.take(), Some(before)),
            None | Some(Event::Pass(..) | Event::Turn(..)) => {}
        }
    }
    open
}

fn next<'a, T>(queues: &[VecDeque<T>; 2], choices: &mut impl Iterator<Item = &'a bool>) -> Option<usize> {
    match [queues[0].is_empty(), queues[1].is_empty()] {
        [true, true] => None,
        [true, false] => Some(1),
        [false, true] => Some(0),
        [false, false] => Some(usize::from(choices.next().copied().unwrap_or(false))),
    }
}

const CONVERSATIONS: [&str; 22] = [
    "S",
    "Sr",
    "Sa",
    "SaC",
    "SaD",
    "SSaaC",
    "SaCDdDd",
    "SaCF",
    "SaCf",
    "SaCFf",
    "SaCfFC",
    "SaCDdFdfD",
    "SaCR",
    "SaCDdr",
    "SafCF",
    "SafDF",
    "SaF",
    "SaFfD",
    "SaR",
    "SaCDDddDFDfDd",
    "SaCFdddfC",
    "SaDdrD",
];

fn is_from_client((_, segment): &(i64, TcpSegment)) -> bool {
    segment.src_port == CLIENT.1
}

fn understood() -> Vec<&'static str> {
    CONVERSATIONS.into_iter().filter(|script| !script.contains(['r', 'R']) && !script.starts_with("SaF")).collect()
}

/// The open connection after two interfaces have seen these packets, each of which the shard gets at once. The second
/// one is as late as the choices say, but for the first packets.
fn open_after_late_copies(packets: &[(i64, TcpSegment)], in_time_count: usize, seen: &[bool]) -> Option<u32> {
    let in_time = [false, true].into_iter().cycle().take(2 * in_time_count);
    let seen: Vec<bool> = in_time.chain(seen.iter().copied()).collect();
    let mut order = Vec::new();
    let queues = signals_in_order([packets.to_vec(), packets.to_vec()], &seen, 0, &mut order);
    let mut queues = queues.map(VecDeque::into_iter);
    open_after_signals(order.into_iter().filter_map(|at| queues[at].next()), 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn two_copies_list_what_one_does(
        script in prop::sample::select(CONVERSATIONS.to_vec()),
        seen in prop::collection::vec(any::<bool>(), 40),
        handled in prop::collection::vec(any::<bool>(), 40),
        pickup in 0u32..2,
    ) {
        let packets = segments(script);
        let one = open_after([packets.clone(), vec![]], &[], &[], pickup);
        let two = open_after([packets.clone(), packets], &seen, &handled, pickup);
        prop_assert_eq!(two, one, "{}", script);
    }

    /// Each direction comes in at its own interface. (A RST of the server that overtakes the client, or a FIN that is
    /// the client's only answer and overtakes the SYN-ACK, is forgotten before it can be understood.)
    #[test]
    fn two_directions_list_what_one_interface_does(
        script in prop::sample::select(understood()),
        handled in prop::collection::vec(any::<bool>(), 40),
    ) {
        let packets = segments(script);
        let one = open_after([packets.clone(), vec![]], &[], &[], 0);
        let from_client: Vec<bool> = packets.iter().map(is_from_client).collect();
        let (there, back) = packets.into_iter().partition(is_from_client);
        let seen: Vec<bool> = from_client.iter().map(|from_client| !from_client).collect();
        prop_assert_eq!(open_after([there, back], &seen, &handled, 0), one, "{}", script);
    }

    /// As above, with either interface read late, so that an answer may be read before what it answers. The shard gets
    /// everything in the order in which it came.
    #[test]
    fn two_directions_are_understood_in_whatever_order_they_are_read(
        script in prop::sample::select(understood()),
        seen in prop::collection::vec(any::<bool>(), 40),
    ) {
        let packets = segments(script);
        let one = open_after([packets.clone(), vec![]], &[], &[], 0);
        let (there, back) = packets.into_iter().partition(is_from_client);
        let mut signals: Vec<Signal> = signals_of([there, back], &seen, 0).into_iter().flatten().collect();
        signals.sort_by_key(|signal| signal.moment().since_ns(Moment::of(0)));
        prop_assert_eq!(open_after_signals(signals.into_iter(), 0), one, "{}", script);
    }

    /// A client that has lost its connection begins another one from the same port: the server still has the old one
    /// and says where it is, the client refuses that, and begins again. The second interface shows it late.
    #[test]
    fn a_connection_that_follows_a_lost_one_is_open_whatever_comes_late(
        seen in prop::collection::vec(any::<bool>(), 20),
    ) {
        let packets = lost_and_begun_anew();
        prop_assert!(open_after([packets.clone(), vec![]], &[], &[], 0).is_some());
        prop_assert!(open_after_late_copies(&packets, 5, &seen).is_some());
    }
}
