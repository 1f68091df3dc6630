//! Two routers that see one direction each: joined, each connection is there once, and whole.

use crate::site::{Site, done, fleet};
use flowpeel::engine::Config;
use flowpeel_traffic::{EndingShares, HandshakeShares, ReuseShares, TrafficConfig};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

const HEADER_SIZE: usize = 24;

/// Splits a capture into the frames of whose IP packets this is so, and the rest.
pub(crate) fn split(capture: &Path, ways: [&Path; 2], is_first: impl Fn(&[u8]) -> bool) {
    let bytes = fs::read(capture).unwrap();
    let header = &bytes[..HEADER_SIZE];
    let mut parts = [header.to_vec(), header.to_vec()];
    for record in records(&bytes) {
        parts[usize::from(!is_first(ip_of(&record[16..])))].extend_from_slice(record);
    }
    parts.iter().zip(ways).for_each(|(part, way)| fs::write(way, part).unwrap());
}

/// The records of a capture, each with its header.
fn records(capture: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = &capture[HEADER_SIZE..];
    std::iter::from_fn(move || {
        let size = 16 + u32::from_le_bytes(rest.get(8..12)?.try_into().unwrap()) as usize;
        let (record, after) = rest.split_at(size);
        rest = after;
        Some(record)
    })
}

/// The connections of which a capture has a FIN, each from both ends.
fn ended(capture: &Path) -> BTreeSet<String> {
    let bytes = fs::read(capture).unwrap();
    let of_packet = |ip: &[u8]| {
        let tcp = &ip[if ip[0] >> 4 == 4 { usize::from(ip[0] & 15) * 4 } else { 40 }..];
        let address = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
            Ok(v4) => IpAddr::from(v4),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
        };
        let ports = [0, 2].map(|at| u16::from_be_bytes([tcp[at], tcp[at + 1]]));
        let [from, to] = addresses(ip).map(address);
        let [one, other] = [format!("\"{from}\" {}", ports[0]), format!("\"{to}\" {}", ports[1])];
        (tcp[13] & 1 != 0).then(|| [format!("{one} {other}"), format!("{other} {one}")])
    };
    records(&bytes).filter_map(|record| of_packet(ip_of(&record[16..]))).flatten().collect()
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

/// Connections of which both ends say when they end, whether they say anything else or not: what one end alone says
/// only one router hears.
fn traffic(seed: u64) -> TrafficConfig {
    let mixed = TrafficConfig::mixed(seed, 3_000);
    TrafficConfig {
        data_packets: 0..=12,
        handshakes: HandshakeShares { refused: 0.0, ..mixed.handshakes },
        endings: EndingShares { reset: 0.0, fin_then_reset: 0.0, half_closed: 0.0, ..mixed.endings },
        reuse: ReuseShares { closed: 0.0, open: 0.0 },
        ..mixed
    }
}

/// Has three routers of these names write their lists: one that sees both directions, and one for each alone.
pub(crate) fn run_pair(site: &Site, seed: u64, [both, upward, downward]: [&str; 3]) {
    let capture = site.capture(traffic(seed));
    let [up, down] = ["up.pcap", "down.pcap"].map(|name| site.path(name));
    split(&capture, [&up, &down], is_upward);
    let config = |one_way| Config { every: Some(Duration::from_secs(30)), one_way, ..Config::default() };
    site.router_of(both, &capture, config(false));
    site.router_of(upward, &up, config(true));
    site.router_of(downward, &down, config(true));
}

/// Whether a connection of the joined view is of both routers, each of which saw another side.
fn is_whole(row: &Value) -> bool {
    let directions = &row["directions"];
    let is_pair = |one: &str, other: &str| directions[0] == one && directions[1] == other;
    row["routers"] == serde_json::json!(["down", "up"])
        && (is_pair("client", "server") || is_pair("server", "client"))
        && row["flow"].get("sides").is_none()
}

/// How many connections are open, and how many of them one of two routers lists alone, because the end that the other
/// hears has said its last word.
fn open_and_ended_by_one(seed: u64) -> [usize; 2] {
    let site = Site::new();
    run_pair(&site, seed, ["both", "up", "down"]);
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
    let is_in_one = |key: &&String| joined.contains_key(*key) != truth.contains_key(*key);
    let differing: Vec<_> = joined.keys().chain(truth.keys()).filter(is_in_one).collect();
    assert!(differing.is_empty(), "all are joined, and nothing else is half-open: {differing:?}");
    let [down, up] = ["down.pcap", "up.pcap"].map(|way| ended(&site.path(way)));
    let mut counts = [0, 0];
    for (key, listed) in &truth {
        let row = &joined[key];
        assert_eq!(row["flow"]["state"], listed["flow"]["state"], "{row}");
        if row["flow"]["state"] != "established" {
            continue;
        }
        counts[0] += 1;
        if !is_whole(row) {
            counts[1] += 1;
            let has_ended = if row["routers"] == serde_json::json!(["down"]) { &up } else { &down };
            assert!(has_ended.contains(key), "the other router heard no end: {row}");
        }
    }
    counts
}

#[test]
fn a_pair_of_routers_that_see_one_direction_each_is_one_view_of_whole_connections() {
    // One end may have sent its FIN when the capture ends, and the other not yet.
    for (seed, counts) in [(3, [716, 0]), (4, [732, 1])] {
        assert_eq!(open_and_ended_by_one(seed), counts, "seed {seed}");
    }
}
