//! A connection as a `flow` line of Suricata's EVE: valid under the schema that Suricata has for them, so that what
//! reads Suricata's flows reads these.
//!
//! Ages are whole seconds, times have `+0000`, a half-open connection is `new`, and `flow_id` is the same on all lines
//! of a connection. What EVE has no field for is not in them: whether a connection was found mid-stream, is unsettled,
//! or has a bound as its start. The schema has no line for a list either; its header is an event type of ours,
//! `flow_list`.

use crate::export::community_id::{CommunityId, digest};
use crate::export::decimal::number;
use crate::export::flow_line::{ArchivedFlow, CLOSED, address};
use crate::export::timestamp::TimeFormatter;
use crate::flow::VlanTags;
use crate::list::{Row, RowState};
use crate::signal::{TICK_BITS, TICK_NS};
use flowpeel_iblt::hash::GOLDEN_64;
use std::net::SocketAddr;

/// What a line says.
struct Line<'a> {
    time_ns: i64,
    client: SocketAddr,
    server: SocketAddr,
    vlan: VlanTags,
    start_ns: i64,
    age_ns: i64,
    /// `flow.state`, one of Suricata's.
    state: &'a str,
    /// `tcp.state`.
    tcp_state: &'a str,
    /// When and why it ended, if it has.
    end: Option<(i64, &'a str)>,
}

/// Bits of a flow's number: what a double holds exactly, as some readers of JSON have nothing else.
const FLOW_ID_BITS: u32 = 53;

/// The number of a connection: the same on all its lines, in lists and events, and another for each connection between
/// the same ends but for chance (one in 2^53).
///
/// Of the start it takes what the connection filter knows, which is the same at every moment of a connection.
pub(super) fn flow_id(one: SocketAddr, other: SocketAddr, vlan: VlanTags, start_ns: i64) -> u64 {
    number_of(&digest(one, other), vlan, start_ns)
}

fn number_of(digest: &[u8], vlan: VlanTags, start_ns: i64) -> u64 {
    let start = start_ns.div_euclid(TICK_NS) as u64 & ((1 << TICK_BITS) - 1);
    let tags = vlan.iter().fold(0, |tags, tag| tags << 16 | u64::from(tag));
    let ends = digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    // The digest is spread evenly already; the rest is spread by an odd factor, and by its upper half.
    let mixed = (ends ^ (start << 32 | tags)).wrapping_mul(GOLDEN_64);
    (mixed ^ mixed >> 32) >> (u64::BITS - FLOW_ID_BITS)
}

/// Appends the line of a row of a list that ends then.
pub(super) fn append_row(line: &mut Vec<u8>, times: &mut TimeFormatter, row: &Row, end_ns: i64) {
    let state = if row.state == RowState::Established { RowState::Established.name() } else { "new" };
    let Row { client, server, vlan, start_ns, age_ns, .. } = *row;
    let (time_ns, tcp_state) = (end_ns, row.state.name());
    append(line, times, &Line { time_ns, client, server, vlan, start_ns, age_ns, state, tcp_state, end: None });
}

/// Appends the line of a connection that has ended, or was open then.
pub(super) fn append_archived(line: &mut Vec<u8>, times: &mut TimeFormatter, flow: &ArchivedFlow) {
    let state = if flow.reason.is_some() { CLOSED } else { RowState::Established.name() };
    let ArchivedFlow { client, server, vlan, start_ns, age_ns, .. } = *flow;
    let (time_ns, tcp_state) = (flow.end_ns, state);
    let end = flow.reason.map(|reason| (flow.end_ns, reason));
    append(line, times, &Line { time_ns, client, server, vlan, start_ns, age_ns, state, tcp_state, end });
}

/// Appends the line of a connection of an archive, with its newline.
pub fn append_archived_eve(line: &mut Vec<u8>, flow: &ArchivedFlow) {
    append_archived(line, &mut TimeFormatter::default(), flow);
}

fn append(line: &mut Vec<u8>, times: &mut TimeFormatter, of: &Line) {
    let digest = digest(of.client, of.server);
    line.extend_from_slice(b"{\"timestamp\":\"");
    line.extend_from_slice(&times.rfc3339(of.time_ns).eve());
    line.extend_from_slice(b"\",\"flow_id\":");
    number(line, number_of(&digest, of.vlan, of.start_ns));
    line.extend_from_slice(b",\"event_type\":\"flow\",\"src_ip\":\"");
    address(line, of.client.ip());
    line.extend_from_slice(b"\",\"src_port\":");
    number(line, u64::from(of.client.port()));
    line.extend_from_slice(b",\"dest_ip\":\"");
    address(line, of.server.ip());
    line.extend_from_slice(b"\",\"dest_port\":");
    number(line, u64::from(of.server.port()));
    // The schema wants at least one tag where there is the field.
    for (place, tag) in of.vlan.iter().enumerate() {
        line.extend_from_slice(if place == 0 { b",\"vlan\":[" } else { b"," });
        number(line, u64::from(tag));
    }
    if of.vlan != VlanTags::NONE {
        line.push(b']');
    }
    line.extend_from_slice(b",\"proto\":\"TCP\",\"community_id\":\"");
    line.extend_from_slice(CommunityId::of_digest(digest).as_bytes());
    line.extend_from_slice(b"\",\"flow\":{\"start\":\"");
    line.extend_from_slice(&times.rfc3339(of.start_ns).eve());
    if let Some((end_ns, _)) = of.end {
        line.extend_from_slice(b"\",\"end\":\"");
        line.extend_from_slice(&times.rfc3339(end_ns).eve());
    }
    line.extend_from_slice(b"\",\"age\":");
    number(line, of.age_ns.max(0) as u64 / 1_000_000_000);
    line.extend_from_slice(b",\"state\":\"");
    line.extend_from_slice(of.state.as_bytes());
    if let Some((_, reason)) = of.end {
        line.extend_from_slice(b"\",\"reason\":\"");
        line.extend_from_slice(reason.as_bytes());
    }
    line.extend_from_slice(b"\"},\"tcp\":{\"state\":\"");
    line.extend_from_slice(of.tcp_state.as_bytes());
    line.extend_from_slice(b"\"}}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// What Suricata's schema has for a line of a TCP flow, as far as it has fields that flowpeel writes. It takes no
    /// others.
    fn assert_valid(line: &Value) {
        let object = line.as_object().unwrap();
        for (name, value) in object {
            match name.as_str() {
                "timestamp" => assert_is_time(value),
                "flow_id" | "src_port" | "dest_port" => assert!(value.is_u64(), "{name}: {value}"),
                "event_type" | "src_ip" | "dest_ip" | "proto" | "community_id" => assert!(value.is_string(), "{name}"),
                "vlan" => {
                    let tags = value.as_array().unwrap();
                    assert!(!tags.is_empty() && tags.iter().all(Value::is_u64), "{value}");
                }
                "flow" => {
                    for (name, value) in value.as_object().unwrap() {
                        match name.as_str() {
                            "start" | "end" => assert_is_time(value),
                            "age" => assert!(value.is_u64(), "{value}"),
                            "state" => assert!(["new", "established", "closed"].contains(&value.as_str().unwrap())),
                            "reason" => assert!(value.is_string()),
                            _ => panic!("flow has no {name}"),
                        }
                    }
                }
                "tcp" => assert!(value["state"].is_string() && value.as_object().unwrap().len() == 1, "{value}"),
                _ => panic!("EVE has no {name}"),
            }
        }
        assert!(object.contains_key("timestamp") && object.contains_key("event_type"));
    }

    /// Suricata's pattern: `^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d+[+\-]\d+$`.
    fn assert_is_time(value: &Value) {
        let text = value.as_str().unwrap();
        let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000+0000");
    }

    fn row(state: RowState, vlan: VlanTags, start_ns: i64) -> Row {
        Row {
            vlan,
            start_ns,
            age_ns: 9_500_000_000,
            state,
            midstream: true,
            unsettled: true,
            start_is_bound: true,
            ..Row::between(["10.0.0.1:40000", "93.184.216.34:443"].map(|end| end.parse().unwrap()))
        }
    }

    fn line_of(row: &Row) -> String {
        let mut line = Vec::new();
        append_row(&mut line, &mut TimeFormatter::default(), row, 1_767_225_610_000_000_000);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_line_is_as_suricata_writes_it() {
        let open = row(RowState::Established, VlanTags::NONE.with(10), 1_767_225_600_500_000_000);
        let id = flow_id(open.server, open.client, open.vlan, open.start_ns);
        let expected = format!(
            r#"{{"timestamp":"2026-01-01T00:00:10.000000+0000","flow_id":{id},"event_type":"flow","src_ip":"10.0.0.1","src_port":40000,"dest_ip":"93.184.216.34","dest_port":443,"vlan":[10],"proto":"TCP","community_id":"1:+fu2KbftImRzbfCHYFp9WDsl/xA=","flow":{{"start":"2026-01-01T00:00:00.500000+0000","age":9,"state":"established"}},"tcp":{{"state":"established"}}}}"#
        );
        assert_eq!(line_of(&open), expected + "\n");
    }

    #[test]
    fn numbers_are_one_for_a_connection_and_many_for_its_ends() {
        let [client, server] = ["10.0.0.1:40000", "10.0.0.2:443"].map(|end| end.parse().unwrap());
        let id = |vlan, start_ns| flow_id(client, server, vlan, start_ns);
        let wrap_ns = (1 << TICK_BITS) * TICK_NS;
        assert_eq!(id(VlanTags::NONE, 5), flow_id(server, client, VlanTags::NONE, wrap_ns + 7), "a start to 100 ms");
        let ids: std::collections::BTreeSet<_> = (0..10_000)
            .map(|second| id(VlanTags::NONE, second * 1_000_000_000))
            .chain((1..100).map(|tag| id(VlanTags::NONE.with(tag), 0)))
            .collect();
        assert_eq!(ids.len(), 10_099);
        assert!(ids.last().unwrap() < &(1 << FLOW_ID_BITS));
    }

    proptest! {
        #[test]
        fn every_line_is_valid(
            client: SocketAddr, server: SocketAddr, tags in prop::collection::vec(0u16..4096, 0..3),
            start_ns: i64, age_ns: i64, half_open: bool, reason in prop::option::of(Just("fin")),
        ) {
            let vlan = tags.iter().fold(VlanTags::NONE, |vlan, tag| vlan.with(*tag));
            let state = if half_open { RowState::SynSent } else { RowState::Established };
            let row = Row { client, server, age_ns, ..row(state, vlan, start_ns) };
            assert_valid(&serde_json::from_str(&line_of(&row)).unwrap());
            let flow = ArchivedFlow {
                client, server, vlan, start_ns, end_ns: 0, age_ns, reason, midstream: false, start_is_bound: false,
            };
            let mut line = Vec::new();
            append_archived(&mut line, &mut TimeFormatter::default(), &flow);
            assert_valid(&serde_json::from_slice(&line).unwrap());
        }
    }
}
