//! `flowpeel audit`: lists held against the kernel while connections open, end, reset and vanish.

use crate::conntrack::{rules, track};
use crate::lab::{Host, Lab, has, routed};
use crate::process::{Crowd, Process, until};
use crate::support::command::Ended;
use serde_json::Value;
use std::process::Command;

const PORT: u16 = 7000;

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
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
}

/// Ends an audit when a few more lists have been compared.
fn finish(audit: Process) -> Ended {
    std::thread::sleep(std::time::Duration::from_secs(10));
    let mut audit = audit;
    audit.signal("-INT");
    audit.wait()
}

#[test]
fn every_difference_has_a_reason_behind_a_lossy_chain() {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack")) else { return };
    let (a, router, b) = routed(&lab);
    rules(
        &router,
        "add table inet lossy
         add chain inet lossy forward { type filter hook forward priority -10 ; }
         add rule inet lossy forward numgen random mod 100 < 2 counter drop",
    );
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

#[test]
fn closings_that_the_capture_does_not_show_are_named() {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack") && has("tcpdump")) else { return };
    let (a, router, b) = routed(&lab);
    track(&router);
    // A filter that hides every FIN and RST of one client port in a hundred from the capture, and from nobody else.
    let hidden = "tcp and not (tcp[13] & 5 != 0 and (tcp[0:2] % 100 = 8 or tcp[2:2] % 100 = 8))";
    let compiled = Command::new("tcpdump").args(["-y", "EN10MB", "-ddd", hidden]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let program = lab.path("hides");
    std::fs::write(&program, compiled.stdout).unwrap();
    let mut server = Crowd::serve(&b, &[PORT]);
    let mut client = Crowd::start(&a);
    client.ask(&format!("open 400 10.0.2.1 {PORT}"));
    let bpf = format!("-i to-a -i to-b --bpf {}", program.display());
    let audits =
        [("seeing", "-i to-a -i to-b"), ("blind", &bpf)].map(|(name, options)| start(&lab, &router, name, options));
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
