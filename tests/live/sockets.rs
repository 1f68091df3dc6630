//! The connections that the kernels of the hosts know: the truth for the lists.

use crate::lab::Host;
use crate::process::until;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Servers listen below this port; clients are given ports above it.
const SERVER_PORTS_END: u16 = 10_000;

/// A connection as in lists and kernels: tags, client, server, state.
pub(crate) type Connection = (Vec<u64>, SocketAddr, SocketAddr, &'static str);

/// The states that last while traffic rests. One side's end leaves a connection established.
fn lasting(state: &str) -> Option<&'static str> {
    match state {
        "ESTAB" | "FIN-WAIT-2" | "CLOSE-WAIT" => Some("established"),
        "SYN-SENT" => Some("syn_sent"),
        _ => None,
    }
}

/// The states in which the other side's kernel is about to answer.
const PASSING: [&str; 4] = ["SYN-RECV", "FIN-WAIT-1", "CLOSING", "LAST-ACK"];

fn endpoint(text: &str) -> SocketAddr {
    let (address, port) = text.rsplit_once(':').unwrap();
    let address = address.trim_matches(['[', ']']).split('%').next().unwrap();
    SocketAddr::new(address.parse::<IpAddr>().unwrap().to_canonical(), port.parse().unwrap())
}

/// The open connections of these hosts; `None` while they are changing.
fn sockets(hosts: &[(&Host, &[u64])]) -> Option<BTreeSet<Connection>> {
    let mut found = BTreeSet::new();
    for (host, tags) in hosts {
        for line in host.run("ss -Htan").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if PASSING.contains(&words[0]) {
                return None;
            }
            if let Some(state) = lasting(words[0]) {
                let (one, other) = (endpoint(words[3]), endpoint(words[4]));
                let (client, server) = if other.port() < SERVER_PORTS_END { (one, other) } else { (other, one) };
                found.insert((tags.to_vec(), client, server, state));
            }
        }
    }
    Some(found)
}

/// The open connections of these hosts, once nothing changes any more. Traffic of a host with tags is on that VLAN.
pub(crate) fn settled(hosts: &[(&Host, &[u64])]) -> BTreeSet<Connection> {
    let mut before = None;
    until(
        || "the sockets of the hosts do not come to rest".to_owned(),
        || {
            let now = sockets(hosts);
            let is_settled = now.is_some() && now == before;
            before = now;
            if is_settled { before.take() } else { None }
        },
    )
}
