//! Which packets become signals, and of which kind.

use super::*;
use crate::flow::{AnyKey, FlowKey};
use crate::signal::sampler::RECOVERY_INTERVAL_PACKETS;
use proptest::prelude::*;

const ACK: u8 = TcpSegment::ACK;
const FIN: u8 = TcpSegment::FIN;
const SYN: u8 = TcpSegment::SYN;

fn segment(from: (u32, u16), to: (u32, u16), flags: u8) -> TcpSegment {
    TcpSegment {
        addresses: Addresses::V4 { src: from.0, dst: to.0 },
        src_port: from.1,
        dst_port: to.1,
        vlan: VlanTags::NONE.with(7),
        flags,
        seq: 100,
        ack: 200,
        payload_size: Some(0),
    }
}

const CONFIG: SignallerConfig = SignallerConfig {
    secret: Secret::REPLAY,
    vlan_key: false,
    one_way: false,
    syn_timeout_ns: 60_000_000_000,
    pickup: 0,
    answer_opens: false,
    seen_syn_count: 0,
};

fn signaller(one_way: bool, handshake_count: usize) -> Signaller {
    signaller_of(SignallerConfig { one_way, ..CONFIG }, handshake_count, None)
}

fn signaller_of(config: SignallerConfig, handshake_count: usize, watch: Option<Arc<Watch>>) -> Signaller {
    let cache = HandshakeCache::new(handshake_count, config.syn_timeout_ns);
    Signaller::new(config, Arc::new(cache), Arc::new(RecentEnds::new(1_024)), watch)
}

fn kinds(signaller: &mut Signaller, segments: &[TcpSegment]) -> Vec<SignalKind> {
    signals(signaller, segments).iter().map(Signal::kind).collect()
}

fn signals(signaller: &mut Signaller, segments: &[TcpSegment]) -> Vec<Signal> {
    let mut signals = Vec::new();
    segments.iter().for_each(|segment| signaller.push(segment, || (1, 0), |signal| signals.push(*signal)));
    signaller.flush(|signal| signals.push(*signal));
    signals
}

const CLIENT: (u32, u16) = (9, 40000);
const SERVER: (u32, u16) = (5, 80);

#[test]
fn of_the_packets_without_a_flag_only_the_answer_goes_on() {
    let there = |flags, seq| TcpSegment { seq, ..segment(CLIENT, SERVER, flags) };
    let back = |flags| TcpSegment { ack: 101, ..segment(SERVER, CLIENT, flags) };
    let packets = [
        there(ACK, 101),
        there(SYN, 100),
        there(ACK, 101),
        back(SYN | ACK),
        back(ACK),
        there(ACK, 101),
        there(ACK, 101),
        back(ACK),
        there(FIN | ACK, 101),
    ];
    let kinds = kinds(&mut signaller(false, 1024), &packets);
    assert_eq!(kinds, [SignalKind::Syn, SignalKind::SynAck, SignalKind::Completes, SignalKind::Fin]);
}

#[test]
fn behind_a_packet_that_does_not_follow_the_handshake_one_more_goes_on() {
    let there = |flags, seq| TcpSegment { seq, ..segment(CLIENT, SERVER, flags) };
    let syn_ack = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, SYN | ACK) };
    let server_fin = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, FIN | ACK) };
    let packets =
        [there(SYN, 100), syn_ack, server_fin, there(ACK, 77_000), there(ACK, 101), there(ACK, 102), there(ACK, 300)];
    let mut in_one_stage = signaller(false, 1024);
    let mut each_alone = signaller(false, 1024);
    let each: Vec<Signal> = packets.iter().flat_map(|packet| signals(&mut each_alone, &[*packet])).collect();
    for (signals, what) in [(signals(&mut in_one_stage, &packets), "in one stage"), (each, "each alone")] {
        let shown: Vec<_> = signals.iter().map(|signal| (signal.kind(), signal.is_awaited())).collect();
        let expected = [
            (SignalKind::Syn, false),
            (SignalKind::SynAck, false),
            (SignalKind::Fin, false),
            (SignalKind::Ack, true),
            (SignalKind::Completes, false),
        ];
        assert_eq!(shown, expected, "{what}");
        assert!(signals[2].is_before_answer() && !signals[3].is_before_answer(), "{what}");
        assert_eq!(signals[2].parts().isn, 100, "{what}");
    }
}

#[test]
fn what_came_before_an_end_in_the_stage_is_not_late_behind_it() {
    let there = |flags, seq| TcpSegment { seq, ..segment(CLIENT, SERVER, flags) };
    let forged = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, SYN | ACK) };
    // The last comes late, behind its FIN.
    let packets = [forged, there(ACK, 77_000), there(FIN | ACK, 78_000), there(ACK, 77_500)];
    let mut each_alone = signaller(false, 1024);
    let each: Vec<Signal> = packets.iter().flat_map(|packet| signals(&mut each_alone, &[*packet])).collect();
    for signals in [signals(&mut signaller(false, 1024), &packets), each] {
        let shown: Vec<_> = signals.iter().map(|signal| (signal.kind(), signal.is_awaited())).collect();
        assert_eq!(shown, [(SignalKind::SynAck, false), (SignalKind::Ack, true), (SignalKind::Fin, false)]);
    }
}

#[test]
fn the_second_fin_of_a_connection_is_none_before_the_answer_to_another_syn_ack() {
    let there = |flags, seq, ack| TcpSegment { seq, ack, ..segment(CLIENT, SERVER, flags) };
    let back = |flags, seq, ack| TcpSegment { seq, ack, ..segment(SERVER, CLIENT, flags) };
    // In the client's name, so that its own FIN seems to be a server's.
    let forged = there(SYN | ACK, 77_000_000, 88_000_000);
    for (server_number, is_before_answer) in [(200, false), (900_000_000, true)] {
        let mut signaller = signaller(false, 1024);
        let first = [back(FIN | ACK, server_number, 101), forged, back(ACK, server_number.wrapping_add(1), 101)];
        signals(&mut signaller, &first);
        let fin = signals(&mut signaller, &[there(FIN | ACK, 101, 201)]);
        assert_eq!(fin.iter().map(Signal::is_before_answer).collect::<Vec<_>>(), [is_before_answer], "{server_number}");
    }
}

#[test]
fn the_first_packet_of_another_connection_behind_an_end_says_so() {
    let there = |flags, seq, ack| TcpSegment { seq, ack, ..segment(CLIENT, SERVER, flags) };
    let back = |flags, seq, ack| TcpSegment { seq, ack, ..segment(SERVER, CLIENT, flags) };
    let reset = back(TcpSegment::RST | ACK, 200, 101);
    let syn = there(SYN, 700_000_000, 0);
    for (packet, says_so) in [
        (there(ACK, 700_000_001, 900_000_001), true),
        (back(ACK, 900_000_001, 700_000_001), true),
        (back(FIN | ACK, 900_000_001, 700_000_001), true),
        (there(FIN | ACK, 700_000_001, 900_000_001), true),
        (back(FIN | ACK, 900_000_001, 77), false),
        (back(TcpSegment::RST | ACK, 0, 700_000_001), false),
        (back(ACK, 900_000_000, 77), false),
    ] {
        let mut signaller = signaller(false, 1024);
        signals(&mut signaller, &[reset]);
        signals(&mut signaller, &[syn]);
        let shown = signals(&mut signaller, &[packet]);
        assert_eq!(shown.iter().map(Signal::begins_another).collect::<Vec<_>>(), [says_so], "{packet:?}");
        let again = signals(&mut signaller, &[packet]);
        assert!(!again.iter().any(Signal::begins_another), "it is said once");
    }
    // Behind a packet of the server, and what is forged, the client's still is the answer.
    let mut signaller = signaller(false, 1024);
    signals(&mut signaller, &[reset]);
    let syn_ack = back(SYN | ACK, 900_000_000, 700_000_001);
    let forged = there(ACK, 300_000_000, 400_000_000);
    signals(&mut signaller, &[syn, syn_ack, forged, back(ACK, 900_000_001, 700_000_001), forged, forged]);
    let answer = there(ACK, 700_000_001, 900_000_001);
    let shown = [answer; 2].map(|packet| signals(&mut signaller, &[packet]).iter().any(Signal::begins_another));
    assert_eq!(shown, [true, false]);
}

#[test]
fn a_fin_may_be_the_first_packet_of_the_client() {
    let syn_ack = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, SYN | ACK) };
    let fin = TcpSegment { seq: 101, ..segment(CLIENT, SERVER, FIN | ACK) };
    for (packets, is_awaited) in [(&[syn_ack, fin][..], true), (&[fin], false), (&[syn_ack, fin, fin], false)] {
        let mut signaller = signaller(false, 1024);
        let mut last = None;
        packets.iter().for_each(|packet| signaller.push(packet, || (1, 0), |_| ()));
        signaller.flush(|signal| last = Some((signal.kind(), signal.is_awaited(), signal.is_before_answer())));
        assert_eq!(last, Some((SignalKind::Fin, is_awaited, false)), "{} packets", packets.len());
    }
}

#[test]
fn the_answer_goes_on_although_another_packet_was_taken_for_it() {
    use SignalKind::{Ack, Completes, Fin, Syn, SynAck};
    let of_client = |flags, seq, ack| TcpSegment { seq, ack, ..segment(CLIENT, SERVER, flags) };
    let of_server = |flags, seq, ack| TcpSegment { seq, ack, ..segment(SERVER, CLIENT, flags) };
    const NEXT: u32 = 9 << 20;
    let mut signaller = signaller(false, 1 << 10);
    let opened = [of_client(SYN, 100, 0), of_server(SYN | ACK, 199, 101), of_client(ACK, 101, 200)];
    assert_eq!(kinds(&mut signaller, &opened), [Syn, SynAck, Completes]);
    let ended = [of_client(FIN | ACK, 101, 200), of_server(FIN | ACK, 200, 102)];
    assert_eq!(kinds(&mut signaller, &ended), [Fin, Fin]);
    // A number of which the cache knows the same.
    let forged = (1 << 30..).find(|seq| {
        let cache = HandshakeCache::new(1, 1_000_000_000);
        cache.put(1, Side::First, Some(NEXT), 0);
        cache.answer(1, Side::First, seq - 1, 0, || false) == Some(Answer::Completes)
    });
    let next = [
        of_client(SYN, NEXT, 0),
        of_server(SYN | ACK, 7 << 20, NEXT + 1),
        of_client(ACK, forged.unwrap(), 1),
        of_client(ACK, NEXT + 1, (7 << 20) + 1),
        of_client(ACK, NEXT + 1, (7 << 20) + 900),
    ];
    let shown: Vec<_> = next.iter().flat_map(|packet| kinds(&mut signaller, &[*packet])).collect();
    assert_eq!(shown, [Syn, SynAck, Completes, Ack]);
}

#[test]
fn behind_a_fin_nothing_completes_the_handshake() {
    let there = |flags| segment(CLIENT, SERVER, flags);
    let packets = [there(SYN), segment(SERVER, CLIENT, SYN | ACK), there(FIN | ACK), there(ACK)];
    let expected = [SignalKind::Syn, SignalKind::SynAck, SignalKind::Fin];
    assert_eq!(kinds(&mut signaller(false, 1024), &packets), expected, "all in one stage");
    let mut signaller = signaller(false, 1024);
    let apart: Vec<SignalKind> = packets.iter().flat_map(|packet| kinds(&mut signaller, &[*packet])).collect();
    assert_eq!(apart, expected, "each by itself");
}

#[test]
fn what_comes_late_behind_an_end_does_not_answer_for_the_next_connection() {
    use SignalKind::{Completes, Fin, Rst, Syn, SynAck};
    let of_client = |flags, seq, ack| TcpSegment { seq, ack, ..segment(CLIENT, SERVER, flags) };
    let of_server = |flags, seq, ack| TcpSegment { seq, ack, ..segment(SERVER, CLIENT, flags) };
    for (ends, kind) in [
        (of_client(TcpSegment::RST, 600, 200), Rst),
        (of_server(TcpSegment::RST | ACK, 300, 600), Rst),
        (of_client(FIN | ACK, 600, 200), Fin),
    ] {
        for is_flushed in [false, true] {
            let mut signaller = signaller(false, 1 << 10);
            let opened = [of_client(SYN, 100, 0), of_server(SYN | ACK, 199, 101), of_client(ACK, 101, 200), ends];
            assert_eq!(kinds(&mut signaller, &opened), [Syn, SynAck, Completes, kind]);
            let mut next = vec![of_client(SYN, 9 << 20, 0), of_server(SYN | ACK, 7 << 20, (9 << 20) + 1)];
            let mut found = Vec::new();
            if is_flushed {
                found = kinds(&mut signaller, &std::mem::take(&mut next));
            }
            next.extend([of_client(ACK, 500, 250), of_client(ACK, (9 << 20) + 1, (7 << 20) + 1)]);
            found.extend(kinds(&mut signaller, &next));
            assert_eq!(found, [Syn, SynAck, Completes], "{ends:?}, {is_flushed}");
        }
    }
}

#[test]
fn behind_its_answer_a_side_answers_only_what_comes_behind_that() {
    use SignalKind::{Completes, Syn, SynAck};
    let of_client = |flags, seq| TcpSegment { seq, ..segment(CLIENT, SERVER, flags) };
    let of_server = |ack| TcpSegment { ack, ..segment(SERVER, CLIENT, SYN | ACK) };
    let mut signaller = signaller(false, 1 << 10);
    assert_eq!(kinds(&mut signaller, &[of_client(SYN, 100), of_server(101)]), [Syn, SynAck]);
    let packets = [of_client(ACK, 101), of_client(ACK, 150), of_server(901), of_client(ACK, 901), of_client(ACK, 950)];
    assert_eq!(kinds(&mut signaller, &packets), [Completes, SynAck, Completes]);
}

#[test]
fn an_answer_counts_that_was_overtaken() {
    use SignalKind::{Ack, Completes, Fin, Syn, SynAck};
    let of_client = |flags, seq| TcpSegment { seq, ..segment(CLIENT, SERVER, flags) };
    let syn_ack = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, SYN | ACK) };
    let mut signaller = signaller(false, 1 << 10);
    assert_eq!(kinds(&mut signaller, &[of_client(SYN, 100), syn_ack]), [Syn, SynAck]);
    // The server acknowledges the FIN while all are in the stage.
    let acknowledged = TcpSegment { seq: 200, ack: 152, ..segment(SERVER, CLIENT, ACK) };
    let packets = [of_client(ACK, 150), of_client(ACK, 101), of_client(FIN | ACK, 151), acknowledged];
    assert_eq!(kinds(&mut signaller, &packets), [Ack, Completes, Fin]);
}

#[test]
fn what_comes_late_uses_up_no_syn_that_another_thread_reads_the_answer_to() {
    let of_client = |flags, seq, ack| TcpSegment { seq, ack, ..segment(CLIENT, SERVER, flags) };
    for is_flushed in [false, true] {
        let mut signaller = signaller_of(SignallerConfig { seen_syn_count: 1 << 10, ..CONFIG }, 1 << 10, None);
        let opened = [of_client(SYN, 100, 0), of_client(ACK, 101, 200), of_client(TcpSegment::RST, 600, 200)];
        assert_eq!(kinds(&mut signaller, &opened), [SignalKind::Syn, SignalKind::Ack, SignalKind::Rst]);
        let mut isns = Vec::new();
        let next = [of_client(SYN, 9 << 20, 0), of_client(ACK, 500, 250), of_client(ACK, (9 << 20) + 1, 1)];
        for segment in next {
            signaller.push(&segment, || (1, 0), |signal| isns.push(signal.parts().isn));
            if is_flushed {
                signaller.flush(|signal| isns.push(signal.parts().isn));
            }
        }
        signaller.flush(|signal| isns.push(signal.parts().isn));
        assert_eq!(isns, [9 << 20, 9 << 20], "flushed: {is_flushed}");
    }
}

#[test]
fn one_way_waits_for_the_client_after_its_syn() {
    let packets = [segment(CLIENT, SERVER, SYN), segment(CLIENT, SERVER, ACK), segment(CLIENT, SERVER, ACK)];
    assert_eq!(kinds(&mut signaller(true, 1024), &packets), [SignalKind::Syn, SignalKind::Ack]);
    assert_eq!(kinds(&mut signaller(false, 1024), &packets), [SignalKind::Syn]);
}

#[test]
fn a_lost_handshake_makes_samples_of_the_others() {
    let mut signaller = signaller(false, 8);
    let flood: Vec<_> = (0..100).map(|port| segment(SERVER, (77, port), SYN | ACK)).collect();
    assert_eq!(kinds(&mut signaller, &flood).len(), 100);
    assert!(signaller.counts().handshakes_lost > 0);
    let others: Vec<_> = (0..160).map(|port| segment((1, port), (2, 2), ACK)).collect();
    let handed_on_count = kinds(&mut signaller, &others).len();
    assert_eq!(signaller.counts().sampled, u64::from(160 / RECOVERY_INTERVAL_PACKETS));
    assert_eq!(handed_on_count, 160 / RECOVERY_INTERVAL_PACKETS as usize);
}

#[test]
fn a_clock_that_steps_back_does_not_make_the_sampling_last() {
    const TIMEOUT_NS: i64 = 60_000_000_000;
    let mut signaller = signaller(false, 8);
    for port in 0..100 {
        signaller.push(&segment(SERVER, (77, port), SYN | ACK), || (1, 1_000 * TIMEOUT_NS), |_| ());
    }
    signaller.flush(|_| ());
    let mut samples = |now_ns| {
        let (before, mut handed_on_count) = (signaller.counts().sampled, 0);
        for port in 0..160 {
            signaller.push(&segment((1, port), (2, 2), ACK), || (1, now_ns), |_| handed_on_count += 1);
        }
        signaller.flush(|_| handed_on_count += 1);
        (signaller.counts().sampled - before, handed_on_count)
    };
    let expected = u64::from(160 / RECOVERY_INTERVAL_PACKETS);
    assert_eq!(samples(0), (expected, expected), "a timeout from here on");
    assert_eq!(samples(TIMEOUT_NS + 1), (0, 0));
}

#[test]
fn both_directions_have_one_key_without_tags_unless_asked() {
    let mut signals = Vec::new();
    let mut signaller = signaller(false, 64);
    for segment in [segment(CLIENT, SERVER, SYN), segment(SERVER, CLIENT, SYN | ACK)] {
        signaller.push(&segment, || (1, 0), |signal| signals.push(*signal));
    }
    signaller.flush(|signal| signals.push(*signal));
    assert_eq!(signals[0].key(), signals[1].key());
    assert_eq!(signals[0].hash(), signals[1].hash());
    assert_eq!(signals[0].parts().sender, signals[1].parts().sender.other());
    assert_eq!((signals[0].parts().isn, signals[1].parts().isn), (100, 199));
    let AnyKey::V4(key) = signals[0].key() else { panic!("an IPv4 key") };
    assert_eq!(key.vlan(), VlanTags::NONE);
}

#[test]
fn what_completes_a_handshake_differs_from_what_comes_later() {
    for (seq, kind) in [(200, SignalKind::Completes), (201, SignalKind::Ack), (5_000, SignalKind::Ack)] {
        let answer = TcpSegment { seq, ..segment(CLIENT, SERVER, ACK) };
        let packets = [segment(CLIENT, SERVER, SYN), segment(SERVER, CLIENT, SYN | ACK), answer];
        assert_eq!(kinds(&mut signaller(false, 1024), &packets), [SignalKind::Syn, SignalKind::SynAck, kind], "{seq}");
    }
}

#[test]
fn with_pickup_one_in_so_many_of_the_others_goes_on() {
    for pickup in [1, 4, 16] {
        let mut signaller = signaller_of(SignallerConfig { pickup, ..CONFIG }, 1024, None);
        let others: Vec<_> = (0..160).map(|port| segment((1, port), (2, 2), ACK)).collect();
        let kinds = kinds(&mut signaller, &others);
        assert_eq!((kinds.len(), signaller.counts().sampled), (160 / pickup as usize, u64::from(160 / pickup)));
        assert!(kinds.iter().all(|kind| *kind == SignalKind::Ack));
    }
}

#[test]
fn of_a_connection_under_watch_the_next_packet_goes_on() {
    let watch = Arc::new(Watch::new(100));
    let mut signaller = signaller_of(CONFIG, 1024, Some(Arc::clone(&watch)));
    let (key, _) = KeyV4::new(CLIENT, SERVER, VlanTags::NONE).canonical();
    let hash = QuickHash::new(&Secret::REPLAY).of(&key);
    let packets = [segment(SERVER, CLIENT, ACK), segment(CLIENT, SERVER, ACK), segment((3, 3), SERVER, ACK)];
    assert_eq!(kinds(&mut signaller, &packets), []);
    assert!(watch.put(hash));
    assert_eq!(kinds(&mut signaller, &packets), [SignalKind::Ack]);
    assert_eq!(kinds(&mut signaller, &packets), []);
    assert_eq!(signaller.counts().watched, 1);
    assert!(!watch.take(hash));
}

/// Packets of one connection: any flags, and numbers that follow each other or do not.
fn packets_of_one_connection() -> impl Strategy<Value = Vec<TcpSegment>> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, ACK, ACK, FIN | ACK, TcpSegment::RST]);
    let packet = (flags, 0..3u32, 0..3u32, 0..3u8).prop_map(|(flags, seq, ack, side)| {
        let is_of_client = (flags == SYN || side > 0) && flags != SYN | ACK;
        let (from, to) = if is_of_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        TcpSegment { seq: 100 + seq * 900, ack: 101 + ack * 900, ..segment(from, to, flags) }
    });
    prop::collection::vec(packet, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn a_watch_over_nobody_changes_no_signal(stages in prop::collection::vec(packets_of_one_connection(), 4)) {
        let mut signallers = [None, Some(Arc::new(Watch::new(100)))].map(|watch| signaller_of(CONFIG, 1 << 10, watch));
        for packets in stages {
            let [without, with] = signallers.each_mut().map(|signaller| {
                let all = signals(signaller, &packets);
                all.iter().map(|signal| (signal.kind(), signal.is_awaited(), signal.parts().isn)).collect::<Vec<_>>()
            });
            prop_assert_eq!(without, with);
        }
    }
}

#[test]
fn what_is_behind_an_answer_is_watched_and_sampled_as_all_others() {
    let of_client = |flags, seq| TcpSegment { seq, ..segment(CLIENT, SERVER, flags) };
    let syn_ack = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, SYN | ACK) };
    let (key, _) = KeyV4::new(CLIENT, SERVER, VlanTags::NONE).canonical();
    let hash = QuickHash::new(&Secret::REPLAY).of(&key);
    let watch = Arc::new(Watch::new(100));
    let mut signaller = signaller_of(CONFIG, 1024, Some(Arc::clone(&watch)));
    assert_eq!(kinds(&mut signaller, &[of_client(SYN, 100), syn_ack]).len(), 2);
    signaller.push(&of_client(ACK, 101), || (1, 0), |_| ());
    assert!(watch.put(hash));
    let data: Vec<TcpSegment> = (1..20).map(|at| of_client(ACK, 101 + at)).collect();
    assert_eq!(kinds(&mut signaller, &data), [SignalKind::Completes, SignalKind::Ack]);
    assert_eq!((signaller.counts().watched, watch.take(hash)), (1, false));
    // All packets are taken where all are sampled.
    let mut signaller = signaller_of(SignallerConfig { pickup: 1, ..CONFIG }, 1024, None);
    let packets = [&[of_client(SYN, 100), syn_ack], &[of_client(ACK, 101)][..], &data].concat();
    assert_eq!(kinds(&mut signaller, &packets).len(), packets.len());
}

/// Ports of clients whose connections share a place in the stage.
fn ports_of_one_place(count: usize) -> Vec<u16> {
    let hasher = QuickHash::new(&Secret::REPLAY);
    let hash = |port| hasher.of(&KeyV4::new((CLIENT.0, port), SERVER, VlanTags::NONE).canonical().0);
    (1..=u16::MAX).filter(|port| hash(*port) % STAGE_COUNT as u64 == 0).take(count).collect()
}

/// A number far from all others there.
const FAR: u32 = 900_000_000;

/// A packet, behind its handshake, of one of a few connections that share a place in the stage.
fn packet_behind_a_handshake() -> impl Strategy<Value = TcpSegment> {
    let number = || prop::sample::select(vec![100, 101, 102, 5_000, FAR]);
    let flags = prop_oneof![4 => Just(ACK), 4 => Just(FIN | ACK), 1 => Just(TcpSegment::RST)];
    let port = prop::sample::select(ports_of_one_place(3));
    (port, any::<bool>(), flags, number(), number()).prop_map(|(port, is_back, flags, seq, ack)| {
        let client = (CLIENT.0, port);
        let (from, to) = if is_back { (SERVER, client) } else { (client, SERVER) };
        TcpSegment { seq, ack, ..segment(from, to, flags) }
    })
}

/// The signals of these packets, each of which has its number as its tick and comes 5 ms behind the one before; before
/// each, this is done to the signaller.
fn numbered(packets: &[TcpSegment], before: impl Fn(&mut Signaller)) -> Vec<Signal> {
    let (mut signaller, mut signals) = (signaller(false, 1024), Vec::new());
    for (number, packet) in (1..).zip(packets) {
        before(&mut signaller);
        signaller.push(packet, || (number, number as i64 * 5_000_000), |signal| signals.push(*signal));
    }
    signaller.flush(|signal| signals.push(*signal));
    signals
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn what_shows_life_behind_recorded_ends_does_behind_those_in_the_stage(
        packets in prop::collection::vec(packet_behind_a_handshake(), 0..60)
    ) {
        let staged = numbered(&packets, |_| ());
        let recorded = numbered(&packets, Signaller::settle);
        let ticks = |signals: &[Signal], is_alive: bool| {
            let of_kind = signals.iter().filter(|signal| (signal.kind() == SignalKind::Alive) == is_alive);
            of_kind.map(|signal| signal.parts().tick).collect::<Vec<_>>()
        };
        prop_assert_eq!(ticks(&staged, false), ticks(&recorded, false));
        // Of a connection of which one side has sent its FIN packets are looked at only while that is in the stage. If
        // there is another FIN far from it, one that comes late behind one of them tells that the other is none.
        let has_ended = |key: KeyV4, tick: u64| {
            let is_end = |signal: &&Signal| matches!(signal.kind(), SignalKind::Fin | SignalKind::Rst);
            let is_before = |signal: &&Signal| signal.key_words::<KeyV4>() == key && signal.parts().tick < tick;
            let ends: Vec<SignalParts> = recorded.iter().filter(is_end).filter(is_before).map(Signal::parts).collect();
            let of = |kind, sender| ends.iter().any(|end| (end.kind, end.sender) == (kind, sender));
            let is_near = |end: &SignalParts| {
                let TcpSegment { seq, ack, .. } = packets[end.tick as usize - 1];
                seq.max(ack) < FAR
            };
            let sides = [Side::First, Side::Second];
            let is_reset = sides.iter().any(|side| of(SignalKind::Rst, *side));
            ends.iter().all(is_near) && (is_reset || sides.iter().all(|side| of(SignalKind::Fin, *side)))
        };
        // Where that was looked at in one of both only, what is recorded of its FIN is not the same any more.
        let mut parted = Vec::new();
        for signal in recorded.iter().filter(|signal| signal.kind() == SignalKind::Alive) {
            let (key, tick) = (signal.key_words::<KeyV4>(), signal.parts().tick);
            let is_it = |other: &Signal| (other.kind(), other.key_words::<KeyV4>()) == (SignalKind::Alive, key);
            let is_shown = staged.iter().any(|other| is_it(other) && other.parts().tick <= tick);
            prop_assert!(is_shown || !has_ended(key, tick) || parted.contains(&key), "{signal:?}");
            if !is_shown {
                parted.push(key);
            }
        }
    }
}

#[test]
fn what_completes_a_handshake_in_the_stage_comes_before_it_has_timed_out() {
    let syn_ack = TcpSegment { ack: 101, ..segment(SERVER, CLIENT, SYN | ACK) };
    let answer = TcpSegment { seq: 101, ..segment(CLIENT, SERVER, ACK) };
    let config = || SignallerConfig { syn_timeout_ns: 1_000_000_000, ..CONFIG };
    for (late_ns, kind) in [(900_000_000, SignalKind::Completes), (1_100_000_000, SignalKind::Ack)] {
        for is_settled in [false, true] {
            let (mut signaller, mut kinds) = (signaller_of(config(), 1024, None), Vec::new());
            signaller.push(&syn_ack, || (1, 0), |signal| kinds.push(signal.kind()));
            if is_settled {
                signaller.settle();
            }
            signaller.push(&answer, || (1, late_ns), |signal| kinds.push(signal.kind()));
            signaller.flush(|signal| kinds.push(signal.kind()));
            assert_eq!(kinds, [SignalKind::SynAck, kind], "{late_ns} ns late, settled: {is_settled}");
        }
    }
}

/// Packets of so many connections, with handshakes and ends among them, each of which follows another or contradicts
/// it. Of ends that are cut the size is not known. SYN-ACKs of one side contradict each other only where ends are cut,
/// and no more than two: which of more wait depends on what is in the cache.
fn packets_with_handshakes(connection_count: usize, are_ends_cut: bool) -> impl Strategy<Value = Vec<TcpSegment>> {
    let number = || prop::sample::select(vec![101, 5_000]);
    let rst_weight = u32::from(!are_ends_cut);
    let flags = prop_oneof![
        4 => Just(SYN | ACK), 6 => Just(ACK), 4 => Just(FIN | ACK), 1 => Just(SYN), rst_weight => Just(TcpSegment::RST)
    ];
    let port = prop::sample::select(ports_of_one_place(connection_count));
    let packet = (port, any::<bool>(), flags, number(), number(), 0..8u8);
    let packet = packet.prop_map(move |(port, is_back, flags, seq, ack, place)| {
        let client = (CLIENT.0, port);
        let (from, to) = if is_back { (SERVER, client) } else { (client, SERVER) };
        let payload_size = (!are_ends_cut && place > 0).then_some(0);
        let only = if is_back { 101 } else { 5_000 };
        let ack = if flags == SYN | ACK && !are_ends_cut { only } else { ack };
        TcpSegment { seq, ack, payload_size, ..segment(from, to, flags) }
    });
    prop::collection::vec(packet, 0..40)
}

/// What signals say of handshakes and ends. Which of the packets that follow nothing are handed on, and whether an end
/// begins another connection where one side alone had ended, depends on what is in the stage.
fn certain(signals: &[Signal]) -> Vec<(SignalParts, bool)> {
    let is_certain = |signal: &&Signal| !matches!(signal.kind(), SignalKind::Ack | SignalKind::Alive);
    signals.iter().filter(is_certain).map(|signal| (signal.parts(), signal.is_before_answer())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]
    #[test]
    fn what_is_completed_in_the_stage_would_be_in_the_cache(packets in packets_with_handshakes(1, false)) {
        let with = numbered(&packets, |_| ());
        let without = numbered(&packets, |signaller| signaller.completes_in_stage = false);
        prop_assert_eq!(certain(&with), certain(&without));
    }

    #[test]
    fn packets_of_a_handshake_are_in_order_in_one_stage_as_in_several(packets in packets_with_handshakes(3, true)) {
        let settled = numbered(&packets, Signaller::settle);
        prop_assert_eq!(certain(&numbered(&packets, |_| ())), certain(&settled));
    }
}
