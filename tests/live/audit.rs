//! `flowpeel audit`: lists held against the kernel while connections open, end, reset and vanish.

use crate::conntrack::{rules, track};
use crate::lab::{Host, Lab, has, routed};
use crate::process::{Crowd, Process, until};
use crate::support::command::Ended;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 7000;

/// Two packets in a hundred are lost on the way through the router.
const LOSSY: &str = "add table inet lossy
     add chain inet lossy forward { type filter hook forward priority -10 ; }
     add rule inet lossy forward numgen random mod 100 < 2 counter drop";

/// A line of the audit, and its object of this name.
fn lines(ended: &Ended, event_type: &str) -> Vec<Value> {
    let text = String::from_utf8(ended.stdout.clone()).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["event_type"] == event_type).collect()
}

/// An audit that runs on a host with these options.
fn start(lab: &Lab, host: &Host, name: &str, options: &str) -> Process {
    let options = format!("audit --every 3s --connections 10k {options}");
    let command = host.command(crate::support::command::FLOWPEEL, options.split_whitespace());
    let audit = Process::start(command, &lab.path(name));
    until(|| audit.said(), || audit.said().contains("list 1 ").then_some(()));
    audit
}

/// Lets connections open, end, reset and vanish, in turns.
fn churn(server: &mut Crowd, clients: &mut [Crowd], address: &str, rounds: usize) {
    for round in 0..rounds {
        for client in &mut *clients {
            client.ask(&format!("open 15 {address} {PORT}"));
            match round % 4 {
                0 => client.ask("close 4"),
                1 => client.ask("reset 4"),
                2 => client.ask("half-close 2"),
                _ => client.ask("vanish 2"),
            }
            client.ask("say");
        }
        server.ask(["close 6", "reset 6"][round % 2]);
        std::thread::sleep(Duration::from_millis(400));
    }
}

/// Ends an audit when a few more lists have been compared.
fn finish(audit: Process) -> Ended {
    std::thread::sleep(Duration::from_secs(10));
    let mut audit = audit;
    audit.signal("-INT");
    audit.wait()
}

#[test]
fn every_difference_has_a_reason_behind_a_lossy_chain() {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack")) else { return };
    let (a, router, b) = routed(&lab);
    rules(&router, LOSSY);
    track(&router);
    let mut server = Crowd::serve(&b, &[PORT]);
    let mut clients: Vec<Crowd> = (0..3).map(|_| Crowd::start(&a)).collect();
    clients.iter_mut().for_each(|client| client.ask(&format!("open 20 10.0.2.1 {PORT}")));
    let audit = start(&lab, &router, "audit", "-i to-a -i to-b");
    churn(&mut server, &mut clients, "10.0.2.1", 12);
    let ended = finish(audit);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let audits = lines(&ended, "audit");
    assert!(audits.len() > 3 && audits.iter().all(|line| line["audit"]["against"] == "conntrack"), "{audits:?}");
    assert!(audits.iter().any(|line| line["audit"]["open"].as_u64() > Some(100)), "{audits:?}");
    assert!(lines(&ended, "difference").iter().all(|line| line["difference"]["reason"].is_string()));
}

/// The options of an audit that does not see every FIN and RST of one client port in a hundred: a filter hides them
/// from its capture, and from nobody else.
fn blind_options(lab: &Lab) -> String {
    let hidden = "tcp and not (tcp[13] & 5 != 0 and (tcp[0:2] % 100 = 8 or tcp[2:2] % 100 = 8))";
    let compiled = Command::new("tcpdump").args(["-y", "EN10MB", "-ddd", hidden]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let program = lab.path("hides");
    std::fs::write(&program, compiled.stdout).unwrap();
    format!("-i to-a -i to-b --bpf {}", program.display())
}

/// One of many clients, each of which has about a hundred connections: they open, end, reset and vanish.
fn client_for_long(mut client: Crowd, address: &str, until: Instant) {
    client.ask(&format!("open 100 {address} {PORT}"));
    for round in 0.. {
        if Instant::now() > until {
            return;
        }
        client.ask(&format!("open 12 {address} {PORT}"));
        client.ask(["close 16", "reset 16", "half-close 10", "vanish 1"][round % 4]);
        client.ask("say");
        // So many a second that the ports of those before are free again.
        std::thread::sleep(Duration::from_millis(1_500));
    }
}

#[test]
#[ignore = "takes ten minutes"]
fn every_difference_of_two_thousand_connections_has_a_reason_for_ten_minutes() {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack") && has("tcpdump")) else { return };
    let (a, router, b) = routed(&lab);
    rules(&router, LOSSY);
    track(&router);
    let server = Crowd::serve(&b, &[PORT]);
    let hidden = blind_options(&lab);
    let audits =
        [("seeing", "-i to-a -i to-b"), ("blind", &hidden)].map(|(name, options)| start(&lab, &router, name, options));
    let until = Instant::now() + Duration::from_secs(600);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let client = Crowd::start(&a);
            scope.spawn(move || client_for_long(client, "10.0.2.1", until));
        }
    });
    let [seeing, blind] = audits.map(finish);
    drop(server);
    for (name, ended) in [("seeing", &seeing), ("blind", &blind)] {
        let differences = lines(ended, "difference");
        let unexplained: Vec<_> = differences.iter().filter(|line| line["difference"]["reason"].is_null()).collect();
        if name == "seeing" {
            unexplained.iter().for_each(|line| println!("{line}"));
        }
        let unexplained = unexplained.len();
        let open = lines(ended, "audit").iter().filter_map(|line| line["audit"]["open"].as_u64()).max();
        println!(
            "{name}: status {:?}, {} lists, at most {open:?} open, {} differences, {unexplained} without a reason; {}",
            ended.status.code(),
            lines(ended, "audit").len(),
            differences.len(),
            ended.stderr.lines().last().unwrap_or_default()
        );
    }
    assert_eq!((seeing.status.code(), blind.status.code()), (Some(0), Some(1)));
}

#[test]
fn closings_that_the_capture_does_not_show_are_named() {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack") && has("tcpdump")) else { return };
    let (a, router, b) = routed(&lab);
    track(&router);
    let mut server = Crowd::serve(&b, &[PORT]);
    let mut client = Crowd::start(&a);
    client.ask(&format!("open 400 10.0.2.1 {PORT}"));
    let blind = blind_options(&lab);
    let audits =
        [("seeing", "-i to-a -i to-b"), ("blind", &blind)].map(|(name, options)| start(&lab, &router, name, options));
    client.ask("close 400");
    server.ask("held 0");
    let [seeing, blind] = audits.map(finish);
    assert_eq!(seeing.status.code(), Some(0), "{}", seeing.stderr);
    assert_eq!(blind.status.code(), Some(1), "{}", blind.stderr);
    let differences = lines(&blind, "difference");
    let unexplained: Vec<_> = differences.iter().filter(|line| line["difference"]["reason"].is_null()).collect();
    // The kernel gives clients even ports, from anywhere in its range: one in 50 of them ends in 08.
    assert!((1..=30).contains(&unexplained.len()), "{differences:?}");
    for line in unexplained {
        let difference = &line["difference"];
        assert!(["src_port", "dest_port"].iter().any(|port| line[port].as_u64().unwrap() % 100 == 8), "{line}");
        assert!(difference["listed"] == true && difference["kernel"] == "ended", "{line}");
    }
}

#[test]
fn a_host_that_does_not_forward_is_audited_by_its_sockets() {
    let Some(lab) = Lab::new() else { return };
    let (a, router, b) = routed(&lab);
    let mut server = Crowd::serve(&b, &[PORT]);
    let mut clients = [Crowd::start(&a)];
    clients[0].ask(&format!("open 50 10.0.2.1 {PORT}"));
    let audit = start(&lab, &b, "audit", "-i eth0 --against sockets");
    // Those that are older say nothing yet.
    churn(&mut server, &mut clients, "10.0.2.1", 8);
    let ended = finish(audit);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let audits = lines(&ended, "audit");
    assert!(audits.iter().all(|line| line["audit"]["against"] == "sockets"), "{audits:?}");
    assert!(audits.iter().any(|line| line["audit"]["listed"].as_u64() > Some(80)), "{audits:?}");
    drop(router);
}
