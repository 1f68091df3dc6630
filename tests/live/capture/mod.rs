//! Live capture on real interfaces: two network namespaces with a cable between them, and real connections over it.
//!
//! Without root there can be no namespaces: the tests say so then and are skipped.
#![cfg(target_os = "linux")]

mod life;
mod namespaces;

use crate::support::frames::{ipv4_tcp, tagged};
use crate::support::say::skipped;
use flowpeel::capture::live::{self, Backend, BpfProgram, CaptureMode, Live, LiveConfig};
use flowpeel::capture::{LiveSource, PacketSource, RING_SIZE_MAX, RING_SIZE_MIN, Replay};
use flowpeel::parse::{Addresses, TcpSegment, parse_frame};
use namespaces::{NEAR, Namespaces};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes; a test that waits for this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Silence after which nothing more is expected: many times what a block of the ring is held back.
const SILENCE: Duration = Duration::from_millis(500);

/// Packets wait until the traffic is over, and each block of a ring takes what comes in some milliseconds.
const AMPLE: u64 = 64 << 20;

fn config(backend: Backend, capture: CaptureMode) -> LiveConfig {
    LiveConfig { backend, capture, ring_size: AMPLE, ..LiveConfig::new(NEAR) }
}

fn open(namespaces: &Namespaces, config: &LiveConfig) -> Live {
    namespaces.near(|| live::open(config).unwrap().remove(0))
}

/// The packets that come until there is silence: their number, and the TCP segments among them. A filter may let others
/// pass, above all IPv6 with extension headers.
fn packets(source: &mut Live) -> (u64, Vec<TcpSegment>) {
    let mut count = 0;
    let mut segments = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < SILENCE {
        while let Some(packet) = source.next_packet().unwrap() {
            count += 1;
            if let Ok(segment) = parse_frame(packet.link, packet.bytes) {
                segments.push(packet.vlan.map_or(segment, |tag| segment.behind_tag(tag)));
            }
            last = Instant::now();
        }
        source.wait(Duration::from_millis(50));
    }
    (count, segments)
}

fn segments(source: &mut Live) -> Vec<TcpSegment> {
    packets(source).1
}

/// Asserts that both are the same segments, in whatever order the two directions were seen.
#[track_caller]
fn assert_same(mut segments: Vec<TcpSegment>, mut expected: Vec<TcpSegment>) {
    for list in [&mut segments, &mut expected] {
        list.sort_by_cached_key(|segment| format!("{segment:?}"));
    }
    let first = segments.iter().zip(&expected).find(|(segment, expected)| segment != expected);
    assert_eq!(segments.len(), expected.len(), "the first that differ: {first:?}");
    assert_eq!(first, None);
}

#[test]
fn both_backends_see_what_tcpdump_sees() {
    let Some(namespaces) = Namespaces::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tcpdump.pcap");
    let mut tcpdump = namespaces.near_command("tcpdump");
    tcpdump.args(["-i", NEAR, "-Z", "root", "-U", "-w"]).arg(&file).args(["tcp or (ip6 proto 6)"]);
    let Ok(mut tcpdump) = tcpdump.stderr(Stdio::null()).spawn() else {
        skipped("there is no tcpdump");
        return;
    };
    let start = Instant::now();
    while !file.exists() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut ring = open(&namespaces, &config(Backend::Ring, CaptureMode::Headers));
    let mut pnet = open(&namespaces, &config(Backend::Pnet, CaptureMode::Headers));
    namespaces.connect("10.77.0.2", 20);
    namespaces.connect("fd77::2", 20);
    let ((ring_count, ring_segments), (pnet_count, pnet_segments)) = (packets(&mut ring), packets(&mut pnet));
    let pid = tcpdump.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    tcpdump.wait().unwrap();
    let mut replay = Replay::open(&file).unwrap();
    let mut expected = Vec::new();
    while let Some(packet) = replay.next_packet().unwrap() {
        expected.extend(parse_frame(packet.link, packet.bytes));
    }
    assert!(expected.len() >= 40 * 8, "{} packets of 40 connections", expected.len());
    assert_same(ring_segments, expected.clone());
    assert_same(pnet_segments, expected);
    for (source, count) in [(&mut ring, ring_count), (&mut pnet, pnet_count)] {
        let losses = source.losses();
        // The systems' own IPv6 goes on.
        assert!(losses.received >= count && losses.dropped == 0, "{losses:?} of {count}");
    }
}

#[test]
fn times_are_the_kernels_and_run_forward() {
    let Some(namespaces) = Namespaces::new() else { return };
    let mut source = open(&namespaces, &config(Backend::Ring, CaptureMode::Headers));
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let before = now();
    namespaces.connect("10.77.0.2", 3);
    let after = now();
    std::thread::sleep(SILENCE);
    let mut times = Vec::new();
    while let Some(packet) = source.next_packet().unwrap() {
        times.push(packet.time_ns);
    }
    assert!(times.len() >= 3 * 8);
    assert!(times.iter().all(|time| (before..=after + 1_000_000_000).contains(time)), "{before} {times:?} {after}");
}

#[test]
fn the_flags_mode_passes_what_opens_and_closes() {
    let Some(namespaces) = Namespaces::new() else { return };
    for backend in [Backend::Ring, Backend::Pnet] {
        let mut all = open(&namespaces, &config(backend, CaptureMode::Headers));
        let mut flags = open(&namespaces, &config(backend, CaptureMode::Flags));
        namespaces.connect("10.77.0.2", 10);
        namespaces.connect("fd77::2", 10);
        let mut expected = segments(&mut all);
        let total = expected.len();
        expected.retain(|segment| segment.flags & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) != 0);
        assert!(expected.len() >= 20 * 4 && expected.len() < total);
        assert_same(segments(&mut flags), expected);
        assert_eq!(flags.losses().dropped, 0, "{backend:?}: {:?}", flags.losses());
    }
}

#[test]
fn a_program_of_tcpdump_takes_the_filters_place() {
    let Some(namespaces) = Namespaces::new() else { return };
    let listing = namespaces.near_command("tcpdump").args(["-ddd", "-i", NEAR, "tcp[13] & 2 != 0"]).output();
    let Some(listing) = listing.ok().filter(|output| output.status.success()) else {
        skipped("there is no tcpdump");
        return;
    };
    let program = BpfProgram::from_listing(&String::from_utf8(listing.stdout).unwrap()).unwrap();
    let mut source = open(&namespaces, &config(Backend::Ring, CaptureMode::Program(program)));
    namespaces.connect("10.77.0.2", 7);
    let segments = segments(&mut source);
    assert_eq!(segments.len(), 14, "a SYN and its answer each");
    assert!(segments.iter().all(|segment| segment.flags & TcpSegment::SYN != 0));
}

#[test]
fn a_program_that_the_kernel_refuses_is_an_error_that_says_so() {
    let Some(namespaces) = Namespaces::new() else { return };
    let program = BpfProgram::from_listing("2\n7777 0 0 0\n6 0 0 0\n").unwrap();
    let config = config(Backend::Ring, CaptureMode::Program(program));
    let error = namespaces.near(|| live::open(&config).err().unwrap().to_string());
    assert!(error.contains("the kernel does not take this program"), "{error}");
}

#[test]
fn vlan_tags_come_outermost_first_wherever_the_kernel_has_put_them() {
    let Some(namespaces) = Namespaces::new() else { return };
    let lists: [&[(u16, u16)]; 4] =
        [&[], &[(0x8100, 5)], &[(0x8100, 5), (0x8100, 0x6007)], &[(0x88a8, 5), (0x8100, 7), (0x8100, 9)]];
    let frames: Vec<Vec<u8>> =
        lists.iter().zip(1..).map(|(list, port)| tagged(&ipv4_tcp(port, TcpSegment::SYN), list)).collect();
    for (backend, capture) in [
        (Backend::Ring, CaptureMode::Headers),
        (Backend::Ring, CaptureMode::Flags),
        (Backend::Ring, CaptureMode::Everything),
    ] {
        let mut source = open(&namespaces, &config(backend, capture.clone()));
        namespaces.send(frames.iter().map(Vec::as_slice));
        let tags: BTreeMap<u16, Vec<u16>> =
            segments(&mut source).iter().map(|segment| (segment.src_port, segment.vlan.iter().collect())).collect();
        let expected = BTreeMap::from([(1, vec![]), (2, vec![5]), (3, vec![5, 7]), (4, vec![5, 7])]);
        assert_eq!(tags, expected, "{capture:?}");
    }
}

#[test]
fn shared_packets_come_once_and_connections_stay_together() {
    let Some(namespaces) = Namespaces::new() else { return };
    for backend in [Backend::Ring, Backend::Pnet] {
        let mut whole = open(&namespaces, &config(backend, CaptureMode::Headers));
        let shared = LiveConfig { fanout_count: 2, ..config(backend, CaptureMode::Headers) };
        let mut sources = namespaces.near(|| live::open(&shared).unwrap());
        // Another group on the same interface takes nothing from this one.
        let others = namespaces.near(|| live::open(&shared).unwrap());
        namespaces.connect("10.77.0.2", 30);
        namespaces.connect("fd77::2", 30);
        let shares: Vec<Vec<TcpSegment>> = sources.iter_mut().map(segments).collect();
        let clients = |share: &Vec<TcpSegment>| -> BTreeSet<(bool, u16)> {
            let opening = share.iter().filter(|segment| segment.flags & TcpSegment::SYN != 0);
            let client = |segment: &TcpSegment| match segment.flags & TcpSegment::ACK {
                0 => segment.src_port,
                _ => segment.dst_port,
            };
            opening.map(|segment| (matches!(segment.addresses, Addresses::V6 { .. }), client(segment))).collect()
        };
        let both: Vec<(bool, u16)> = clients(&shares[0]).intersection(&clients(&shares[1])).copied().collect();
        assert_eq!(both, [], "a connection's SYN and its answer are in one share");
        assert_eq!(clients(&shares[0]).len() + clients(&shares[1]).len(), 60);
        assert!(shares.iter().all(|share| share.len() > 60), "both have work");
        assert_same(shares.concat(), segments(&mut whole));
        assert_eq!(others.len(), 2);
    }
}

#[test]
fn what_nobody_reads_is_counted_as_dropped() {
    let Some(namespaces) = Namespaces::new() else { return };
    const SENT: u16 = 20_000;
    // IPv4 alone: nothing that the systems themselves send, as they do in IPv6.
    let program = BpfProgram::from_listing("4\n40 0 0 12\n21 0 1 2048\n6 0 0 192\n6 0 0 0\n").unwrap();
    for backend in [Backend::Ring, Backend::Pnet] {
        let capture = CaptureMode::Program(program.clone());
        let small = LiveConfig { ring_size: RING_SIZE_MIN, ..config(backend, capture) };
        let mut source = open(&namespaces, &small);
        let frames: Vec<Vec<u8>> = (0..SENT).map(|port| ipv4_tcp(port, TcpSegment::SYN)).collect();
        namespaces.send(frames.iter().map(Vec::as_slice));
        let losses = source.losses();
        assert_eq!(losses.received + losses.dropped, u64::from(SENT), "{backend:?}: {losses:?}");
        assert!(losses.received > 0 && losses.dropped > 0, "{backend:?}: {losses:?}");
        assert_eq!(losses.freezes > 0, backend == Backend::Ring);
        assert_eq!(segments(&mut source).len() as u64, losses.received, "{backend:?}: what was kept can be read");
        // A ring that was full goes on.
        namespaces.send(frames.iter().take(100).map(Vec::as_slice));
        assert_eq!(segments(&mut source).len(), 100);
        assert_eq!(source.losses().received, losses.received + 100);
    }
}

#[test]
fn promiscuity_ends_with_the_source() {
    let Some(namespaces) = Namespaces::new() else { return };
    let promiscuity = || {
        let output = namespaces.near_command("ip").args(["-d", "link", "show", NEAR]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split("promiscuity ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    let plain = LiveConfig { promiscuous: false, ..LiveConfig::new(NEAR) };
    let unasked = open(&namespaces, &plain);
    assert_eq!(promiscuity(), "0");
    let asked = open(&namespaces, &LiveConfig::new(NEAR));
    assert_eq!(promiscuity(), "1");
    drop((asked, unasked));
    assert_eq!(promiscuity(), "0");
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_says_what_to_do() {
    let error = live::open(&LiveConfig::new("no\x1bne")).err().unwrap().to_string();
    assert_eq!(error, "there is no interface no\\u{1b}ne: flowpeel interfaces lists them");
    assert!(live::open(&LiveConfig::new("a name that is far too long")).is_err());
    assert!(live::open(&LiveConfig { fanout_count: 0, ..LiveConfig::new("lo") }).is_err());
    for ring_size in [RING_SIZE_MIN - 1, RING_SIZE_MAX + 1] {
        let error = live::open(&LiveConfig { ring_size, ..LiveConfig::new("lo") }).err().unwrap().to_string();
        assert_eq!(error, "a ring has from 512 KiB to 1024 MiB");
    }
}

/// Makes an interface without a link header, and for every line of its input writes a SYN to port 81 that comes in
/// there.
const TUNNEL: &str = r"
import fcntl, struct, sys
tun = open('/dev/net/tun', 'r+b', buffering=0)
fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH', b'tun0', 0x1001))
print('ready', flush=True)
for line in sys.stdin:
    tun.write(bytes.fromhex('450000280000000040060000' '0a5900020a590001' '03e80051' '0000000100000000' '5002010000000000'))
";

#[test]
fn packets_without_a_link_header_are_read_in_both_directions() {
    let Some(namespaces) = Namespaces::new() else { return };
    let mut tunnel = namespaces.near_command("python3");
    let tunnel = tunnel.args(["-c", TUNNEL]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tunnel = tunnel.spawn().unwrap();
    let (mut input, output) = (tunnel.stdin.take().unwrap(), tunnel.stdout.take().unwrap());
    let mut ready = String::new();
    BufReader::new(output).read_line(&mut ready).unwrap();
    if ready.trim() != "ready" {
        skipped("no tunnel can be made here (it takes python3 and /dev/net/tun)");
        tunnel.wait().unwrap();
        return;
    }
    assert!(namespaces.near_ip("link set tun0 up") && namespaces.near_ip("address add 10.89.0.1/24 dev tun0"));
    for backend in [Backend::Ring, Backend::Pnet] {
        for capture in [CaptureMode::Headers, CaptureMode::Flags] {
            let config = LiveConfig { interface: "tun0".to_owned(), ..config(backend, capture) };
            let mut source = open(&namespaces, &config);
            writeln!(input).unwrap();
            // There is no answer.
            namespaces.near(|| {
                let server = "10.89.0.3:82".parse().unwrap();
                TcpStream::connect_timeout(&server, Duration::from_millis(200)).unwrap_err();
            });
            let ports: BTreeSet<u16> = segments(&mut source).iter().map(|segment| segment.dst_port).collect();
            assert!(ports.contains(&81) && ports.contains(&82), "{backend:?} {ports:?}");
        }
    }
    drop(input);
    tunnel.wait().unwrap();
}
