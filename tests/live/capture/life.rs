//! Interfaces that go down, vanish, come back, and come back as another.

use super::namespaces::{NEAR, Namespaces};
use super::{PATIENCE, config, open, packets, segments};
use flowpeel::capture::live::{self, Backend, CaptureMode, Live, LiveConfig};
use flowpeel::capture::{Condition, LiveSource, PacketSource};
use flowpeel::parse::{Addresses, TcpSegment};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Waits until the interface is like this.
fn await_condition(source: &mut Live, condition: Condition) {
    let start = Instant::now();
    while source.condition() != condition {
        while source.next_packet().unwrap().is_some() {}
        source.wait(Duration::from_millis(100));
        assert!(start.elapsed() < PATIENCE, "it is {:?} and not {condition:?}", source.condition());
    }
}

#[test]
fn an_interface_may_go_down_and_come_up() {
    let Some(namespaces) = Namespaces::new() else { return };
    for backend in [Backend::Ring, Backend::Pnet] {
        let mut source = open(&namespaces, &config(backend, CaptureMode::Headers));
        namespaces.connect("10.77.0.2", 1);
        let (before, segments) = packets(&mut source);
        assert!(segments.len() >= 8);
        assert!(namespaces.near_ip(&format!("link set {NEAR} down")));
        await_condition(&mut source, Condition::Down);
        assert!(namespaces.near_ip(&format!("link set {NEAR} up")));
        await_condition(&mut source, Condition::Up);
        namespaces.connect("10.77.0.2", 1);
        let (after, segments) = packets(&mut source);
        assert!(segments.len() >= 8);
        assert!(source.losses().received >= before + after, "what came in between was read while waiting");
    }
}

/// Does something with sources in the near namespace, on a thread that has given up its privileges if so asked.
fn watching<T: Send>(namespaces: &Namespaces, is_privileged: bool, work: impl FnOnce() -> T + Send) -> T {
    namespaces.near(|| {
        if !is_privileged {
            live::drop_privileges(None).unwrap();
            let error = live::open(&LiveConfig::new(NEAR)).err().map(|error| error.to_string());
            assert!(error.is_none_or(|error| error.contains("sudo setcap cap_net_raw+ep ") || error.contains("no interface")));
        }
        work()
    })
}

fn await_all(sources: &mut [Live], condition: Condition) {
    sources.iter_mut().for_each(|source| await_condition(source, condition));
}

fn count_all(sources: &mut [Live]) -> usize {
    sources.iter_mut().map(|source| segments(source).len()).sum()
}

#[test]
fn an_interface_may_vanish_and_come_back_even_without_privileges() {
    let Some(namespaces) = Namespaces::new() else { return };
    for (backend, fanout_count, is_privileged) in [
        (Backend::Ring, 1, true),
        (Backend::Ring, 1, false),
        (Backend::Ring, 2, true),
        (Backend::Ring, 2, false),
        (Backend::Pnet, 1, false),
        (Backend::Pnet, 3, false),
    ] {
        let config = LiveConfig { fanout_count, ..config(backend, CaptureMode::Headers) };
        let mut sources = namespaces.near(|| live::open(&config).unwrap());
        namespaces.connect("10.77.0.2", 4);
        let mut count = watching(&namespaces, is_privileged, || count_all(&mut sources));
        assert!(count >= 4 * 8);
        // More often than there are sockets in reserve.
        for _ in 0..3 {
            assert!(namespaces.near_ip(&format!("link delete {NEAR}")));
            watching(&namespaces, is_privileged, || await_all(&mut sources, Condition::Gone));
            namespaces.plug_in();
            watching(&namespaces, is_privileged, || await_all(&mut sources, Condition::Up));
            namespaces.connect("10.77.0.2", 4);
            let again = watching(&namespaces, is_privileged, || count_all(&mut sources));
            assert!(again >= 4 * 8, "{backend:?} {fanout_count} {is_privileged}: {again}");
            count += again;
        }
        let received: u64 = sources.iter_mut().map(|source| source.losses().received).sum();
        assert!(received >= count as u64, "what was counted before is kept: {received} and {count}");
    }
}

#[test]
fn a_group_that_has_no_privileges_takes_packets_of_its_interface_alone() {
    let Some(namespaces) = Namespaces::new() else { return };
    let config = LiveConfig { fanout_count: 2, ..config(Backend::Ring, CaptureMode::Headers) };
    let mut sources = namespaces.near(|| live::open(&config).unwrap());
    assert!(namespaces.near_ip(&format!("link delete {NEAR}")));
    watching(&namespaces, false, || await_all(&mut sources, Condition::Gone));
    namespaces.plug_in();
    watching(&namespaces, false, || await_all(&mut sources, Condition::Up));
    namespaces.near(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    });
    namespaces.connect("10.77.0.2", 20);
    let shares: Vec<_> = sources.iter_mut().map(segments).collect();
    assert!(shares.iter().all(|share| !share.is_empty()), "both have work");
    let is_of_loopback = |segment: &TcpSegment| match segment.addresses {
        Addresses::V4 { src, .. } => src >> 24 == 127,
        Addresses::V6 { .. } => false,
    };
    assert!(!shares.concat().iter().any(is_of_loopback), "loopback is another interface");
    // It goes down as any other does.
    assert!(namespaces.near_ip(&format!("link set {NEAR} down")));
    await_all(&mut sources, Condition::Down);
    assert!(namespaces.near_ip(&format!("link set {NEAR} up")));
    await_all(&mut sources, Condition::Up);
}

#[test]
fn an_interface_may_come_back_under_its_old_index() {
    let Some(namespaces) = Namespaces::new() else { return };
    // One that no interface has in the other namespace.
    assert!(namespaces.near_ip(&format!("link delete {NEAR}")));
    namespaces.plug_in_with("index 77");
    let mut source = open(&namespaces, &config(Backend::Ring, CaptureMode::Headers));
    let index = || namespaces.near(|| nix::net::if_::if_nametoindex(NEAR).ok());
    let before = index();
    assert!(namespaces.lend());
    await_condition(&mut source, Condition::Gone);
    assert!(namespaces.take_back());
    await_condition(&mut source, Condition::Down);
    assert!(namespaces.near_ip(&format!("link set {NEAR} up")));
    await_condition(&mut source, Condition::Up);
    assert_eq!(index(), before);
    assert!(namespaces.near_ip(&format!("address add 10.77.0.1/24 dev {NEAR}")));
    namespaces.connect("10.77.0.2", 3);
    assert!(segments(&mut source).len() >= 3 * 8);
}

#[test]
fn an_interface_may_leave_and_come_back_while_nobody_looks() {
    let Some(namespaces) = Namespaces::new() else { return };
    assert!(namespaces.near_ip(&format!("link delete {NEAR}")));
    namespaces.plug_in_with("index 77");
    for fanout_count in [1, 2] {
        let config = LiveConfig { fanout_count, ..config(Backend::Ring, CaptureMode::Headers) };
        let mut sources = namespaces.near(|| live::open(&config).unwrap());
        assert!(namespaces.lend() && namespaces.take_back());
        assert!(namespaces.near_ip(&format!("link set {NEAR} up")));
        assert!(namespaces.near_ip(&format!("address add 10.77.0.1/24 dev {NEAR}")));
        namespaces.near(|| {
            await_all(&mut sources, Condition::Down);
            await_all(&mut sources, Condition::Up);
        });
        namespaces.connect("10.77.0.2", 3);
        assert!(count_all(&mut sources) >= 3 * 8, "{fanout_count}");
    }
}

#[test]
fn what_has_another_name_is_captured_no_more() {
    let Some(namespaces) = Namespaces::new() else { return };
    let mut source = open(&namespaces, &config(Backend::Ring, CaptureMode::Headers));
    let is_promiscuous = |name: &str| {
        let flags = namespaces.near_command("cat").arg(format!("/sys/class/net/{name}/flags")).output().unwrap();
        let flags = String::from_utf8(flags.stdout).unwrap();
        i64::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap() & i64::from(nix::libc::IFF_PROMISC) != 0
    };
    assert!(is_promiscuous(NEAR));
    let rename = |from: &str, to: &str| {
        ["set {from} down", "set {from} name {to}"]
            .iter()
            .all(|what| namespaces.near_ip(&format!("link {}", what.replace("{from}", from).replace("{to}", to))))
    };
    assert!(rename(NEAR, "other0"));
    await_condition(&mut source, Condition::Gone);
    assert!(namespaces.near_ip("link set other0 up"));
    namespaces.connect("10.77.0.2", 3);
    assert!(segments(&mut source).is_empty() && !is_promiscuous("other0"));
    assert!(rename("other0", NEAR) && namespaces.near_ip(&format!("link set {NEAR} up")));
    await_condition(&mut source, Condition::Up);
    namespaces.connect("10.77.0.2", 3);
    assert!(segments(&mut source).len() >= 3 * 8 && is_promiscuous(NEAR));
}

#[test]
fn an_interface_may_be_down_when_its_capture_begins() {
    let Some(namespaces) = Namespaces::new() else { return };
    for fanout_count in [1, 2] {
        assert!(namespaces.near_ip(&format!("link set {NEAR} down")));
        let config = LiveConfig { fanout_count, ..config(Backend::Ring, CaptureMode::Flags) };
        let mut sources = namespaces.near(|| live::open(&config).unwrap());
        await_all(&mut sources, Condition::Down);
        assert!(namespaces.near_ip(&format!("link set {NEAR} up")));
        await_all(&mut sources, Condition::Up);
        namespaces.connect("10.77.0.2", 3);
        assert_eq!(count_all(&mut sources), 3 * 4, "{fanout_count}");
    }
}
