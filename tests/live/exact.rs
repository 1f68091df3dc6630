//! Lists compared with the kernels of the hosts: 500 connections that are opened, used and ended in every way.

use crate::lab::{End, Host, Lab, has, join, routed, run, traffic};
use crate::process::{Crowd, Process, until};
use crate::sockets::{Connection, settled};
use crate::support::command::{lists, replay};
use crate::watch::{Watch, assert_listed, connections};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Where servers listen: one that stays, and one that is killed.
const STAYS: u16 = 7000;
const IS_KILLED: u16 = 7001;
/// Nothing that is sent to this port arrives.
const HOLE: u16 = 7002;

/// The server's addresses.
const SERVER: [&str; 2] = ["10.0.2.1", "fd00:2::1"];

/// Opens 500 connections to these addresses of `b` and ends them in every way, and calls `check` whenever traffic
/// rests.
fn lead_a_life(a: &Host, b: &Host, addresses: &[&str], mut check: impl FnMut(&str)) {
    b.drop_port("eth0", HOLE);
    let mut server = Crowd::serve(b, &[STAYS]);
    let mut killed_server = Crowd::serve(b, &[IS_KILLED]);
    let (mut client, mut killed_client) = (Crowd::start(a), Crowd::start(a));
    let share = |count: usize| count / addresses.len();
    for address in addresses {
        client.ask(&format!("open {} {address} {STAYS}", share(300)));
        killed_client.ask(&format!("open {} {address} {STAYS}", share(100)));
        client.ask(&format!("open {} {address} {IS_KILLED}", share(100)));
        client.ask(&format!("try {} {address} {HOLE}", share(4)));
    }
    check("500 connections opened");

    for crowd in [&mut client, &mut server] {
        crowd.ask("close 60");
        crowd.ask("reset 40");
    }
    check("200 of them closed and reset by either side");

    for crowd in [&mut client, &mut server, &mut killed_server] {
        crowd.ask("at-end hold");
    }
    client.ask("half-close 30");
    // The server is to choose others, and so has to know of these.
    check("30 closed by their client only");
    server.ask("half-close 20");
    client.ask("say");
    check("50 closed by one side only");

    killed_client.kill();
    check("a client killed whose server goes on");

    killed_server.ask("read off");
    client.ask("say");
    killed_server.kill();
    check("a server killed that had not read everything");

    client.ask("at-end close");
    drop(server);
    check("a server killed whose client closes");
}

/// Compares the lists of all captures with the hosts' sockets.
fn compare(watches: &mut [Watch], hosts: &[(&Host, &[u64])], when: &str) -> BTreeSet<Connection> {
    // The kernel of a killed program may need another moment; then these lists are discarded, and the next are taken.
    let mut tries = 0;
    let (known, listed) = loop {
        let known = settled(hosts);
        let then = Timestamp::now();
        let listed: Vec<_> = watches.iter_mut().map(|watch| (watch.list_after(then), watch.options.clone())).collect();
        if settled(hosts) == known {
            break (known, listed);
        }
        tries += 1;
        assert!(tries < 5, "{when}: the sockets do not come to rest");
    };
    for (list, options) in listed {
        assert_listed(&list, &known, &format!("{when}: live {options}"));
        assert_eq!(list.count("dropped"), 0, "{when}: live {options}");
    }
    known
}

fn stop(watches: impl IntoIterator<Item = Watch>) {
    for watch in watches {
        let options = watch.options.clone();
        let (ended, lists) = watch.stop("-INT");
        assert_eq!(ended.status.code(), Some(0), "live {options}: {}", ended.stderr);
        let last = lists.last().unwrap();
        assert_eq!(last.header["flow_list"]["complete"], true, "live {options}: {}", last.header);
    }
}

/// 500 connections over a router, captured on the hosts and on the router, which sees each packet once or twice.
fn hosts_and_router(backend: &str) {
    let Some(lab) = Lab::new() else { return };
    let (a, router, b) = routed(&lab);
    let at_router = ["-i to-a", "-i to-a -i to-b", "-i to-b -i to-a --fanout 2 --shards 2"];
    let places = [(&a, "-i eth0"), (&b, "-i eth0 --capture flags")].into_iter();
    let places = places.chain(at_router.into_iter().map(|interfaces| (&router, interfaces)));
    let mut watches: Vec<Watch> = places
        .filter(|(_, interfaces)| backend == "ring" || !interfaces.contains("--fanout"))
        .enumerate()
        .map(|(number, (host, interfaces))| {
            let options = format!("{interfaces} --backend {backend} --every 1s --connections 10k");
            Watch::start(&lab, host, &format!("lists{number}"), &options)
        })
        .collect();
    let mut open_counts = Vec::new();
    lead_a_life(&a, &b, &SERVER, |when| {
        open_counts.push(compare(&mut watches, &[(&a, &[]), (&b, &[])], when).len());
    });
    assert_eq!(open_counts[..4], [504, 304, 304, 304], "{open_counts:?}");
    stop(watches);
}

#[test]
fn the_ring_lists_what_the_kernels_know() {
    hosts_and_router("ring");
}

#[test]
fn pnet_lists_what_the_kernels_know() {
    hosts_and_router("pnet");
}

/// Two networks on one trunk, with the same addresses in both; listed with their tags or without.
fn vlans(backend: &str, has_tags: bool) {
    let Some(lab) = Lab::new() else { return };
    let (switch, other_switch) = (lab.host("switch"), lab.host("switch2"));
    join(&End(&switch, "trunk", &[]), &End(&other_switch, "trunk", &[]), 1508);
    let networks = ["10", "20"].map(|tag| {
        let (a, b) = (lab.host(&format!("a{tag}")), lab.host(&format!("b{tag}")));
        let port = format!("v{tag}");
        join(&End(&a, "eth0", &["10.0.2.2/24", "fd00:2::2/64"]), &End(&switch, &port, &[]), 1500);
        join(&End(&b, "eth0", &["10.0.2.1/24", "fd00:2::1/64"]), &End(&other_switch, &port, &[]), 1500);
        (a, b)
    });
    for host in networks.iter().flat_map(|(a, b)| [a, b]) {
        // A program carries the tags, and does neither checksums nor segmentation.
        run(host.command(traffic("pcaps/traffic/offload"), ["eth0"]));
    }
    let carriers = [(&switch, "carrier"), (&other_switch, "carrier2")].map(|(host, name)| {
        run(host.command(traffic("pcaps/traffic/offload"), ["trunk", "v10", "v20"]));
        let ports = ["trunk", "v10=vlan:10", "v20=vlan:20"];
        let carrier = Process::start(host.command(traffic("pcaps/traffic/wire"), ports), &lab.path(name));
        until(|| carrier.said(), || (carrier.printed() == b"ready\n").then_some(()));
        carrier
    });
    let key = if has_tags { "--vlan-key" } else { "" };
    let options = format!("-i trunk --backend {backend} {key} --every 1s --connections 10k");
    let mut watches = [Watch::start(&lab, &switch, "lists", &options)];
    let [(a10, b10), (a20, b20)] = &networks;
    let tags: [&[u64]; 2] = if has_tags { [&[10], &[20]] } else { [&[], &[]] };
    // Without tags, another port keeps the networks apart.
    let port = if has_tags { STAYS } else { HOLE + 1 };
    let (mut other_server, mut other_client) = (Crowd::serve(b20, &[port]), Crowd::start(a20));
    SERVER.iter().for_each(|address| other_client.ask(&format!("open 50 {address} {port}")));
    lead_a_life(a10, b10, &SERVER, |when| {
        other_client.ask("half-close 1");
        other_server.ask("reset 1");
        compare(&mut watches, &[(a10, tags[0]), (b10, tags[0]), (a20, tags[1]), (b20, tags[1])], when);
    });
    stop(watches);
    drop(carriers);
}

#[test]
fn the_ring_lists_connections_on_vlans_with_their_tags() {
    vlans("ring", true);
}

#[test]
fn pnet_lists_connections_on_vlans() {
    vlans("pnet", false);
}

#[test]
fn connections_older_than_the_capture_are_picked_up() {
    let Some(lab) = Lab::new() else { return };
    let (a, router, b) = routed(&lab);
    let (mut server, mut client) = (Crowd::serve(&b, &[STAYS]), Crowd::start(&a));
    SERVER.iter().for_each(|address| client.ask(&format!("open 100 {address} {STAYS}")));
    server.ask("held 200");
    let mut watches = ["ring", "pnet"].map(|backend| {
        let options = format!("-i to-a -i to-b --backend {backend} --pickup 1 --every 1s --connections 10k");
        Watch::start(&lab, &router, backend, &options)
    });
    let hosts: [(&Host, &[u64]); 2] = [(&a, &[]), (&b, &[])];
    for watch in &mut watches {
        let list = watch.list_when(|_| true);
        assert!(list.flows.is_empty(), "nothing was sent: live {}: {}", watch.options, list.header);
    }
    let older = settled(&hosts);
    client.ask("say");
    server.ask("say");
    assert_eq!(compare(&mut watches, &hosts, "both sides spoke"), older);
    client.ask(&format!("open 10 {} {STAYS}", SERVER[0]));
    let all = compare(&mut watches, &hosts, "ten more");
    assert_eq!(all.len(), 210);
    for watch in &mut watches {
        let list = watch.list_when(|_| true);
        let (midstream, seen): (Vec<_>, Vec<_>) =
            list.flows.into_iter().partition(|row| row["flow"]["midstream"] == true);
        assert_eq!((midstream.len(), seen.len()), (200, 10), "live {}", watch.options);
    }
    server.ask("close 50");
    client.ask("reset 50");
    assert_eq!(compare(&mut watches, &hosts, "ended by either side").len(), 110);
    stop(watches);
}

#[test]
fn a_recording_of_the_same_packets_replays_to_what_the_kernels_know() {
    let Some(lab) = Lab::new().filter(|_| has("tcpdump")) else { return };
    let (a, router, b) = routed(&lab);
    let (recording, log) = (lab.path("recording.pcap"), lab.path("tcpdump"));
    let options = ["-Z", "root", "-U", "--immediate-mode", "-n", "-s", "128", "-i", "any", "-w"];
    let mut recorder = router.command("tcpdump", options);
    recorder.arg(&recording);
    let mut recorder = Process::start(recorder, &log);
    until(|| recorder.said(), || recorder.said().contains("listening on").then_some(()));
    let hosts: [(&Host, &[u64]); 2] = [(&a, &[]), (&b, &[])];
    lead_a_life(&a, &b, &SERVER, |when| {
        let known = settled(&hosts);
        // Packets are in the file in the order in which they came; one that is still on its way comes soon.
        until(
            || format!("{when}: no replay of the recording lists what the kernels know"),
            || {
                let ended = replay([&recording]);
                let list = lists(&ended.stdout).pop()?;
                (connections(&list) == known).then_some(())
            },
        );
    });
    recorder.signal("-INT");
    assert_eq!(recorder.wait().status.code(), Some(0));
}
