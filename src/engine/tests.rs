//! Engines as a router uses them: what is pushed is listed, and nobody waits for a port.

use super::*;
use crate::capture::{PacketSource, Replay};
use crate::export::{Format, Stream};
use crate::flow::VlanTags;
use crate::list::{Header, List};
use crate::parse::{LinkType, TcpSegment, parse_frame};
use crate::record::Ending;
use flowpeel_traffic::{Traffic, TrafficConfig};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn frames(seed: u64, connections: u64) -> Vec<(i64, Vec<u8>)> {
    let mut traffic = Traffic::new(TrafficConfig::mixed(seed, connections)).unwrap();
    let frame = || traffic.next_frame().map(|frame| (frame.time_us as i64 * 1_000, frame.bytes.to_vec()));
    std::iter::from_fn(frame).collect()
}

fn config(every: Option<Duration>, shards: usize) -> Config {
    Config { every, shards, connections_max: 20_000, churn: Some(20_000), ..Config::default() }
}

/// What a sink was given.
#[derive(Default)]
struct Taken {
    headers: Vec<Header>,
    /// The rows of the last list.
    open: Vec<(SocketAddr, SocketAddr, &'static str)>,
    events: Vec<Event>,
    batches: Vec<usize>,
    counters: Vec<Counters>,
}

fn sink() -> (Sink, Arc<Mutex<Taken>>) {
    let taken = Arc::new(Mutex::new(Taken::default()));
    let [lists, events, counters] = [(); 3].map(|()| Arc::clone(&taken));
    let sink = Sink::lists(move |list: &List| {
        let mut taken = lists.lock();
        taken.headers.push(list.header);
        taken.open = list.rows().map(|row| (row.client, row.server, row.state.name())).collect();
        Ok(())
    })
    .events(move |batch: &Events| {
        let mut taken = events.lock();
        taken.events.extend_from_slice(batch.events);
        taken.batches.push(batch.events.len());
        assert_eq!(batch.dropped, 0);
    })
    .counters(move |now| counters.lock().counters.push(now.clone()));
    (sink, taken)
}

/// The connections that events leave open, after a check that each opens and closes in turn.
fn open_after(events: &[Event]) -> Vec<(SocketAddr, SocketAddr)> {
    let mut open = BTreeMap::new();
    for event in events {
        let key = (event.client, event.server, event.vlan.number());
        match event.kind {
            EventKind::Opened | EventKind::Reopened => assert_eq!(open.insert(key, event.start_ns), None, "{event:?}"),
            EventKind::Closed(_) => assert_eq!(open.remove(&key), Some(event.start_ns), "{event:?}"),
        }
        assert!(event.start_ns <= event.time_ns, "{event:?}");
    }
    open.into_keys().map(|(client, server, _)| (client, server)).collect()
}

/// A buffer that a test reads when the engine has stopped.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn stream(buffer: &Buffer) -> Stream<Buffer> {
    Stream::new(buffer.clone(), "a buffer", false, Format::default())
}

#[test]
fn what_is_pushed_makes_the_bytes_of_a_replay() {
    let frames = frames(5, 3_000);
    for shards in [1, 3] {
        let config = config(Some(Duration::from_secs(1)), shards);
        let pushed = |by_header: bool| {
            let buffer = Buffer::default();
            let (engine, mut port) = Engine::replay(&config, Sink::lists(stream(&buffer))).unwrap();
            for (time_ns, bytes) in &frames {
                match parse_frame(LinkType::ETHERNET, bytes) {
                    Ok(header) if by_header => port.header(*time_ns, &header),
                    _ => port.frame(*time_ns, LinkType::ETHERNET, bytes),
                }
            }
            drop(port);
            assert_eq!(engine.stop().unwrap().packets, frames.len() as u64);
            buffer.0.lock().clone()
        };
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.pcap");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut traffic = Traffic::new(TrafficConfig::mixed(5, 3_000)).unwrap();
        flowpeel_traffic::write_pcap(&mut traffic, &mut file).unwrap();
        let replayed = Buffer::default();
        crate::run::replay(&[path], &config, &mut stream(&replayed), &mut ()).unwrap();
        let replayed = replayed.0.lock().clone();
        assert!(replayed.len() > 10_000);
        assert!(pushed(false) == replayed && pushed(true) == replayed, "{shards} shards");
    }
}

#[test]
fn events_depend_on_packets_alone_and_explain_the_list() {
    // More packets than lie between two cuts.
    let frames = frames(8, 12_000);
    assert!(frames.len() as u64 > RECORD_CUT_PACKETS);
    let run = |shards| {
        let (sink, taken) = sink();
        let (engine, mut port) = Engine::replay(&config(Some(Duration::from_secs(1)), shards), sink).unwrap();
        frames.iter().for_each(|(time_ns, bytes)| port.frame(*time_ns, LinkType::ETHERNET, bytes));
        drop(port);
        let summary = engine.stop().unwrap();
        let taken = std::mem::take(&mut *taken.lock());
        (summary, taken)
    };
    let (summary, one) = run(1);
    let established = one.open.iter().filter(|(.., state)| *state == "established");
    let expected: Vec<_> = established.map(|(client, server, _)| (*client, *server)).collect();
    assert!(expected.len() > 100 && open_after(&one.events) == expected);
    let kinds = |kind: fn(&EventKind) -> bool| one.events.iter().filter(|event| kind(&event.kind)).count() as u64;
    assert_eq!(kinds(|kind| *kind == EventKind::Opened), summary.counts.opened);
    assert_eq!(kinds(|kind| *kind != EventKind::Opened), summary.counts.closed);
    for ending in [Ending::Fin, Ending::Rst] {
        assert!(one.events.iter().any(|event| event.kind == EventKind::Closed(ending)), "{ending:?}");
    }
    assert!(one.events.is_sorted_by_key(|event| event.time_ns) && one.batches.len() > 1);
    let last = one.counters.last().unwrap();
    assert_eq!((last.ports[0].packets, last.connections.opened), (frames.len() as u64, summary.counts.opened));
    assert_eq!((last.events_dropped, summary.events_dropped), (0, 0));
    let (_, three) = run(3);
    assert!(one.events == three.events && one.batches == three.batches);
}

#[test]
fn a_port_by_packets_time_ends_before_its_engine() {
    let (sink, taken) = sink();
    let (engine, port) = Engine::replay(&config(None, 1), sink).unwrap();
    let error = engine.stop().unwrap_err();
    assert!(error.to_string().contains("drop it"), "{error}");
    drop(port);
    until(|| taken.lock().headers.len() == 1);
}

#[test]
fn a_configuration_that_is_wrong_names_its_field() {
    let config = Config { connections_max: 1, ..Config::default() };
    let error = Engine::replay(&config, sink().0).err().unwrap();
    assert!(error.to_string().starts_with("connections_max must be from"), "{error}");
    let error = Engine::live(&Config::default(), 1, sink().0).err().unwrap();
    assert!(error.to_string().contains("every"), "{error}");
}

fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn until(mut is_done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < Duration::from_secs(20), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const EVERY: Duration = Duration::from_millis(200);

/// Which of two ports a frame goes to: each direction of a connection has its own.
fn port_of(frame: &[u8]) -> usize {
    parse_frame(LinkType::ETHERNET, frame).map_or(0, |header| usize::from(header.src_port < header.dst_port))
}

#[test]
fn two_ports_on_the_wall_clock_list_what_one_replay_does() {
    let frames = frames(9, 2_000);
    let (replay_sink, expected) = sink();
    // All packets come within the time that half-open connections are kept, so the replay has to keep its as long.
    let config = Config { syn_timeout: Duration::from_secs(60), ..config(Some(EVERY), 2) };
    let (engine, mut port) = Engine::replay(&Config { every: None, ..config.clone() }, replay_sink).unwrap();
    frames.iter().for_each(|(_, bytes)| port.frame(1_000_000_000, LinkType::ETHERNET, bytes));
    drop(port);
    let replayed = engine.stop().unwrap();

    let (sink, taken) = sink();
    let (engine, mut ports) = Engine::live(&config, 2, sink).unwrap();
    // One packet after another, each some time after the one before: of packets at the same moment nobody knows which
    // came first. Where the test itself does not get on, the ports say what they have.
    let mut stamp_ns = wall_ns();
    for (at, (_, bytes)) in frames.iter().enumerate() {
        stamp_ns = wall_ns().max(stamp_ns + 2_048);
        ports[port_of(bytes)].frame(stamp_ns, LinkType::ETHERNET, bytes);
        if at % 16 == 0 {
            ports.iter_mut().for_each(|port| port.idle(stamp_ns));
        }
    }
    until(|| {
        ports.iter_mut().for_each(|port| port.idle(wall_ns()));
        taken.lock().headers.len() > 2
    });
    drop(ports);
    let summary = engine.stop().unwrap();
    let (taken, expected) = (taken.lock(), expected.lock());
    assert_eq!((summary.packets, summary.queue_full), (frames.len() as u64, 0));
    assert_eq!((summary.counts.opened, summary.counts.closed), (replayed.counts.opened, replayed.counts.closed));
    assert!(taken.open.len() > 100 && taken.open == expected.open);
    let (every_ns, headers) = (EVERY.as_nanos() as i64, &taken.headers);
    assert!(headers[..headers.len() - 1].iter().all(|header| header.figures.end_ns % every_ns == 0));
    assert!(headers.windows(2).all(|pair| pair[0].figures.end_ns == pair[1].figures.start_ns));
    assert!(headers.iter().all(|header| header.complete), "{headers:?}");
    let established = taken.open.iter().filter(|(.., state)| *state == "established");
    assert_eq!(open_after(&taken.events), established.map(|open| (open.0, open.1)).collect::<Vec<_>>());
    let seen: u64 = taken.counters.last().unwrap().ports.iter().map(|port| port.packets).sum();
    assert_eq!(seen, frames.len() as u64);
}

#[test]
fn a_port_with_a_clock_of_its_own_lists_what_the_wall_clock_would() {
    let frames: Vec<_> = frames(11, 300);
    for ahead_ns in [-1_700_000_000_000_000_000, 7_200_000_000_000] {
        let (sink, taken) = sink();
        let config = Config { syn_timeout: Duration::from_secs(60), ..config(Some(EVERY), 1) };
        let (engine, mut ports) = Engine::live(&config, 2, sink).unwrap();
        ports[1].set_own_clock();
        let stamp_ns = |port: usize| wall_ns() + if port == 1 { ahead_ns } else { 0 };
        let began_ns = wall_ns();
        for (_, bytes) in &frames {
            let port = port_of(bytes);
            ports[port].frame(stamp_ns(port), LinkType::ETHERNET, bytes);
            ports.iter_mut().enumerate().for_each(|(at, port)| port.idle(stamp_ns(at)));
            // A packet's answer has a later time, also where the two clocks are compared.
            std::thread::sleep(Duration::from_micros(50));
        }
        let opened = taken.lock().headers.len();
        until(|| {
            ports.iter_mut().enumerate().for_each(|(at, port)| port.idle(stamp_ns(at)));
            taken.lock().headers.len() > opened + 1
        });
        drop(ports);
        engine.stop().unwrap();
        let taken = taken.lock();
        let mut expected: BTreeMap<_, _> = BTreeMap::new();
        let (replay_sink, replayed) = self::sink();
        let (engine, mut port) = Engine::replay(&Config { every: None, ..config.clone() }, replay_sink).unwrap();
        frames.iter().for_each(|(_, bytes)| port.frame(1_000_000_000, LinkType::ETHERNET, bytes));
        drop(port);
        engine.stop().unwrap();
        expected.extend(replayed.lock().open.iter().map(|open| ((open.0, open.1), open.2)));
        let listed: BTreeMap<_, _> = taken.open.iter().map(|open| ((open.0, open.1), open.2)).collect();
        assert!(listed.len() > 20 && listed == expected, "{ahead_ns}");
        let opened = taken.events.iter().filter(|event| event.kind == EventKind::Opened);
        assert!(opened.clone().all(|event| (began_ns - 1_000_000_000..=wall_ns()).contains(&event.start_ns)));
    }
}

#[test]
fn no_port_holds_up_an_interval_and_what_it_sends_late_is_not_lost() {
    let (sink, taken) = sink();
    let (engine, mut ports) = Engine::live(&config(Some(EVERY), 2), 2, sink).unwrap();
    let mut silent = ports.remove(1);
    // The second port neither sends nor says that it has nothing: lists come all the same.
    until(|| {
        ports[0].idle(wall_ns());
        taken.lock().headers.len() > 4
    });
    {
        let headers = &taken.lock().headers;
        assert!(headers.windows(2).all(|pair| pair[0].figures.end_ns == pair[1].figures.start_ns));
        assert!(headers.iter().all(|header| header.complete), "{headers:?}");
    }
    // Its packets are stamped with a time long ago.
    let frames = frames(3, 500);
    let long_ago_ns = wall_ns() - 500_000_000;
    frames.iter().for_each(|(_, bytes)| silent.frame(long_ago_ns, LinkType::ETHERNET, bytes));
    until(|| {
        ports[0].idle(wall_ns());
        silent.idle(wall_ns());
        !taken.lock().open.is_empty()
    });
    // Both are still there, and say nothing any more.
    let summary = engine.stop().unwrap();
    assert_eq!((summary.packets, summary.queue_full), (frames.len() as u64, 0));
    assert!(summary.last.unwrap().is_last && summary.incomplete == 0);
    assert!(summary.counts.opened > 300 && summary.unusable.is_empty());
    let opened: u64 = taken.lock().headers.iter().map(|header| header.figures.opened).sum();
    assert_eq!(opened, summary.counts.opened);
    // Nobody takes this any more.
    silent.frame(wall_ns(), LinkType::ETHERNET, &frames[0].1);
}

#[test]
fn a_full_queue_is_counted_and_the_list_says_so() {
    let (sink, taken) = sink();
    let (engine, mut ports) = Engine::live(&config(Some(Duration::from_secs(1)), 1), 1, sink).unwrap();
    let port = &mut ports[0];
    let syn = TcpSegment::between("10.0.0.1:1".parse().unwrap(), "10.0.0.2:80".parse().unwrap()).unwrap();
    let mut sent = 0_u64;
    // As fast as it goes: sooner or later the shard does not keep up, or was not woken yet.
    let began = Instant::now();
    while port.counts().queue_full == 0 && began.elapsed() < Duration::from_secs(10) {
        let now_ns = wall_ns();
        for _ in 0..100_000 {
            let syn = TcpSegment { src_port: sent as u16, flags: TcpSegment::SYN, ..syn };
            port.header(now_ns, &syn);
            sent += 1;
        }
    }
    let dropped = port.counts().queue_full;
    drop(ports);
    let summary = engine.stop().unwrap();
    assert_eq!((summary.packets, summary.queue_full), (sent, dropped));
    assert!(dropped > 0, "{sent} packets fitted");
    let headers = &taken.lock().headers;
    assert_eq!(headers.iter().map(|header| header.figures.dropped).sum::<u64>(), dropped);
    assert!(headers.iter().any(|header| !header.complete && header.figures.dropped > 0));
}

#[test]
fn an_engine_that_nobody_stops_ends_when_it_is_dropped() {
    let (sink, taken) = sink();
    let (engine, ports) = Engine::live(&config(Some(EVERY), 2), 2, sink).unwrap();
    drop(engine);
    assert!(taken.lock().headers.last().unwrap().is_last);
    drop(ports);
}

#[test]
fn a_list_that_can_not_be_taken_fails_the_engine() {
    let sink = Sink::lists(|_: &List| Err(Error::new("no room")));
    let (engine, ports) = Engine::live(&config(Some(EVERY), 1), 1, sink).unwrap();
    until(|| engine.has_failed());
    drop(ports);
    assert!(engine.stop().unwrap_err().to_string().contains("no room"));
}

#[test]
fn captures_of_the_repository_open_what_their_events_say() {
    let (sink, taken) = sink();
    let (engine, mut port) = Engine::replay(&config(None, 2), sink).unwrap();
    let mut capture = Replay::open("pcaps/ssh.pcap".as_ref()).unwrap();
    while let Some(packet) = capture.next_packet().unwrap() {
        port.packet(&packet);
    }
    drop(port);
    engine.stop().unwrap();
    let taken = taken.lock();
    assert_eq!(open_after(&taken.events).len(), taken.open.len());
    assert!(taken.events.iter().all(|event| event.vlan == VlanTags::NONE && !event.may_be_older));
}
