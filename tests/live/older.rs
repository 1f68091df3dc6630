//! Connections that are older than the capture: what the first lists say of them, without help and with the kernel's
//! own table.

use crate::lab::{Host, Lab, routed};
use crate::process::Crowd;
use crate::sockets::{Connection, settled};
use crate::watch::{Watch, connections, is_warming_up};
use std::collections::BTreeSet;

const PORT: u16 = 7000;

/// The server's addresses.
const SERVER: [&str; 2] = ["10.0.2.1", "fd00:2::1"];

/// 200 connections of several kinds between two hosts, half of them of IPv6.
pub(crate) struct Older {
    /// Those over which both sides speak when asked to.
    busy: Crowd,
    busy_server: Crowd,
    others: Vec<Crowd>,
}

impl Older {
    /// Opens 80 busy ones, 80 idle ones, and 40 that one side has closed, 20 by each.
    pub(crate) fn open(a: &Host, b: &Host) -> Self {
        let (busy_port, idle_port, closed_port) = (PORT, PORT + 1, PORT + 2);
        let (busy_server, idle_server) = (Crowd::serve(b, &[busy_port]), Crowd::serve(b, &[idle_port]));
        let mut closing_server = Crowd::serve(b, &[closed_port]);
        let (mut busy, mut idle, mut closing) = (Crowd::start(a), Crowd::start(a), Crowd::start(a));
        for crowd in [&mut closing, &mut closing_server] {
            crowd.ask("at-end hold");
        }
        for address in SERVER {
            busy.ask(&format!("open 40 {address} {busy_port}"));
            idle.ask(&format!("open 40 {address} {idle_port}"));
            closing.ask(&format!("open 20 {address} {closed_port}"));
        }
        closing_server.ask("held 40");
        closing.ask("half-close 20");
        closing_server.ask("held 20");
        closing_server.ask("half-close 20");
        closing.ask("held 0");
        Older { busy, busy_server, others: vec![idle_server, closing_server, idle, closing] }
    }

    /// Lets both sides of each busy one say something.
    pub(crate) fn speak(&mut self) {
        self.busy.ask("say");
        self.busy_server.ask("say");
    }

    /// Ends all: the programs end without a warning, and their kernels close what they held.
    pub(crate) fn end(self) {
        drop((self.busy, self.busy_server, self.others));
    }
}

/// Those of the connections that are busy.
fn busy_of(all: &BTreeSet<Connection>) -> BTreeSet<Connection> {
    all.iter().filter(|(_, _, server, _)| server.port() == PORT).cloned().collect()
}

#[test]
fn every_older_connection_that_speaks_is_on_the_first_list_behind_it() {
    let Some(lab) = Lab::new() else { return };
    let (a, router, b) = routed(&lab);
    let mut older = Older::open(&a, &b);
    let all = settled(&[(&a, &[]), (&b, &[])]);
    assert_eq!(all.len(), 200);
    let mut watch = Watch::start(&lab, &router, "lists", "-i to-a --every 2s --connections 10k");
    let first = watch.list_when(|_| true);
    assert!(is_warming_up(&first) && first.header["flow_list"]["complete"] == false, "{}", first.header);
    // A packet of each side, once: a sample of one in 16 would find few of them.
    older.speak();
    let found = watch.list_when(|list| list.count("flows") > 0);
    assert_eq!(connections(&found), busy_of(&all), "{}", found.header);
    assert!(is_warming_up(&found) && found.count("missing") >= 80, "{}", found.header);
    let warm = watch.list_when(|list| !is_warming_up(list));
    assert_eq!(connections(&warm), busy_of(&all));
    let header = &warm.header["flow_list"];
    assert!(header["complete"] == true && header["missing"] == 0, "{}", warm.header);
    assert_eq!(header["since"], first.header["flow_list"]["since"]);
    assert!(header["since"].as_str() <= first.header["flow_list"]["end"].as_str());
    assert!(header.get("sampled_early").is_none());
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("no more connections older than the start are found"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("lists are not complete"), "{}", ended.stderr);
}
