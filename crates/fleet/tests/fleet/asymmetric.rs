//! Two routers that see one direction each: joined, each connection is there once, and whole.

use crate::site::{Site, done, fleet};
use flowpeel::engine::Config;
use flowpeel_traffic::{EndingShares, HandshakeShares, ReuseShares, TrafficConfig};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Splits a capture into the frames of whose IP packets this is so, and the rest.
pub(crate) fn split(capture: &Path, ways: [&Path; 2], is_first: impl Fn(&[u8]) -> bool) {
    const HEADER_SIZE: usize = 24;
    let bytes = fs::read(capture).unwrap();
    let (header, mut rest) = bytes.split_at(HEADER_SIZE);
    let mut parts = [header.to_vec(), header.to_vec()];
    while rest.len() >= 16 {
        let size = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (record, after) = rest.split_at(size);
        parts[usize::from(!is_first(ip_of(&record[16..])))].extend_from_slice(record);
        rest = after;
    }
    parts.iter().zip(ways).for_each(|(part, way)| fs::write(way, part).unwrap());
}

/// The IP packet in an Ethernet frame.
fn ip_of(frame: &[u8]) -> &[u8] {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0] || frame[at..at + 2] == [0x88, 0xa8] {
        at += 4;
    }
    &frame[at + 2..]
}

/// The addresses of an IP packet: from where, and to where.
pub(crate) fn addresses(ip: &[u8]) -> [&[u8]; 2] {
    if ip[0] >> 4 == 4 { [&ip[12..16], &ip[16..20]] } else { [&ip[8..24], &ip[24..40]] }
}

/// Whether an IP packet goes to a higher address than it comes from.
fn is_upward(ip: &[u8]) -> bool {
    let [from, to] = addresses(ip);
    from < to
}

type Rows = BTreeMap<String, Value>;

/// The header and the connections of a file of lines.
fn read(path: &Path) -> (Value, Rows) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    let key = |line: &Value| {
        let part = |name: &str| line[name].to_string();
        format!("{} {} {} {}", part("src_ip"), part("src_port"), part("dest_ip"), part("dest_port"))
    };
    (header, lines.map(|line| (key(&line), line)).collect())
}

/// Connections in which both ends speak and both say when they end: what one end alone says only one router hears.
fn traffic() -> TrafficConfig {
    let mixed = TrafficConfig::mixed(3, 3_000);
    TrafficConfig {
        data_packets: 6..=12,
        handshakes: HandshakeShares { refused: 0.0, ..mixed.handshakes },
        endings: EndingShares { reset: 0.0, fin_then_reset: 0.0, half_closed: 0.0, ..mixed.endings },
        reuse: ReuseShares { closed: 0.0, open: 0.0 },
        ..mixed
    }
}

/// Has three routers of these names write their lists: one that sees both directions, and one for each alone.
pub(crate) fn run_pair(site: &Site, [both, upward, downward]: [&str; 3]) {
    let capture = site.capture(traffic());
    let [up, down] = ["up.pcap", "down.pcap"].map(|name| site.path(name));
    split(&capture, [&up, &down], is_upward);
    let config = |one_way| Config { every: Some(Duration::from_secs(30)), one_way, ..Config::default() };
    site.router_of(both, &capture, config(false));
    site.router_of(upward, &up, config(true));
    site.router_of(downward, &down, config(true));
}

#[test]
fn a_pair_of_routers_that_see_one_direction_each_is_one_view_of_whole_connections() {
    let site = Site::new();
    run_pair(&site, ["both", "up", "down"]);
    let join = |routers: &[&str]| {
        let out = site.path("view.ndjson");
        let mut join = fleet("join");
        for router in routers {
            join.arg("--from").arg(site.path("expected").join(router));
        }
        done(join.arg("--out").arg(&out));
        read(&out)
    };
    let (_, truth) = join(&["both"]);
    let (header, joined) = join(&["down", "up"]);
    assert_eq!(header["flow_list"]["routers"].as_array().unwrap().len(), 2);
    assert!(truth.values().all(|row| row.get("directions").is_none() && row["flow"].get("sides").is_none()));
    let differing: Vec<_> = joined
        .iter()
        .filter(|(key, _)| !truth.contains_key(*key))
        .chain(truth.iter().filter(|(key, _)| !joined.contains_key(*key)))
        .map(|(_, row)| row.to_string())
        .collect();
    // A server that says nothing between its SYN-ACK and its FIN has not opened anything for who hears it alone.
    assert!(differing.iter().all(|row| row.contains("\"syn_recv\"")), "{differing:#?}");
    assert!(differing.len() * 200 <= truth.len(), "{} of {} differ", differing.len(), truth.len());
    let (mut open_count, mut pair_count) = (0, 0);
    for (key, listed) in &truth {
        let row = &joined[key];
        assert_eq!(row["flow"]["state"], listed["flow"]["state"], "{row}");
        if row["flow"]["state"] != "established" {
            continue;
        }
        open_count += 1;
        if row["routers"] == serde_json::json!(["down", "up"]) {
            pair_count += 1;
            let directions = &row["directions"];
            let is_pair = |one: &str, other: &str| directions[0] == one && directions[1] == other;
            assert!(is_pair("client", "server") || is_pair("server", "client"), "{row}");
            assert!(row["flow"].get("sides").is_none(), "together they saw both: {row}");
        } else {
            let sides = &row["flow"]["sides"];
            assert!(sides == "client" || sides == "server", "the other side has ended, or said nothing yet: {row}");
        }
    }
    assert!(open_count > 500, "{open_count} are open");
    assert!(pair_count * 10 > open_count * 9, "of {open_count} both saw {pair_count}");
}
