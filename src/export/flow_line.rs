//! A connection as a line of NDJSON: of a list, of changes, of an archive, of several routers.
//!
//! A list may have a million lines every ten seconds, and they are most of an exporter's work. All in them is digits,
//! dots, colons and names of ours, so nothing needs escaping, and they are put together byte by byte: a general
//! serializer took three times as long.

use crate::export::community_id;
use crate::export::decimal::{append_start, number, seconds};
use crate::export::eve::flow_id;
use crate::export::timestamp::TimeFormatter;
use crate::flow::VlanTags;
use crate::handover::SidesSeen;
use crate::list::{End, Nat, Row, RowState};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// How a line is written.
#[derive(Clone, Copy)]
pub(super) struct Style<'a> {
    /// The beginning of every line of the list, as [`begin`] appends it.
    pub(super) head: &'a [u8],
    /// Whether it names the VLAN tags.
    pub(super) vlan_key: bool,
    /// What became of the connection since the list before, for a line of changes.
    pub(super) mark: Option<Mark>,
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Opened,
    /// It is no longer listed, and if it is known has ended like this.
    Closed(Option<End>),
}

/// The ends of a connection.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) vlan: VlanTags,
}

/// Appends the line of a row, with its newline.
pub(super) fn append(line: &mut Vec<u8>, times: &mut TimeFormatter, row: &Row, style: Style) {
    line.extend_from_slice(style.head);
    if let Some(mark) = style.mark {
        line.extend_from_slice(match mark {
            Mark::Opened => b"\"change\":\"opened\",",
            Mark::Closed(_) => b"\"change\":\"closed\",",
        });
    }
    connection(line, &Ends { client: row.client, server: row.server, vlan: row.vlan }, style.vlan_key);
    let (state, known_end) = match style.mark {
        Some(Mark::Closed(known_end)) => (CLOSED, known_end),
        Some(Mark::Opened) | None => (row.state.name(), None),
    };
    row_course(line, times, row, (state, known_end));
    if let Some(nat) = &row.nat {
        other_name(line, nat);
    }
    line.extend_from_slice(b"}\n");
}

/// Appends what is known of the course of a row, in this state, and with this end.
#[inline]
fn row_course(line: &mut Vec<u8>, times: &mut TimeFormatter, row: &Row, (state, known_end): (&str, Option<End>)) {
    start(line, times, row.start_ns);
    known_end.iter().for_each(|known| end(line, times, known.end_ns));
    age_and_state(line, row.age_ns, state);
    known_end.iter().for_each(|known| named(line, REASON, known.ending.name()));
    flag(line, ",\"midstream\":true", row.midstream);
    flag(line, ",\"unsettled\":true", row.unsettled);
    flag(line, ",\"start_is_bound\":true", row.start_is_bound);
    if row.sides != SidesSeen::Both {
        named(line, ",\"sides\":\"", row.sides.name());
    }
    line.push(b'}');
}

/// Appends the other name of a translated connection.
fn other_name(line: &mut Vec<u8>, nat: &Nat) {
    line.extend_from_slice(b",\"nat\":{\"name\":\"");
    line.extend_from_slice(nat.name().as_bytes());
    line.extend_from_slice(b"\",");
    addresses(line, nat.client, nat.server);
    line.push(b'}');
}

/// A connection of an archive.
#[derive(Clone, Copy, Debug)]
pub struct ArchivedFlow {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The VLAN tags, where they are part of the key.
    pub vlan: VlanTags,
    /// When it started, in ns since 1970.
    pub start_ns: i64,
    /// When it ended, or was last known to be open, in ns since 1970.
    pub end_ns: i64,
    /// How long it lasted, in ns: another time than lies between the two if the clock was set.
    pub age_ns: i64,
    /// Why it ended; `None` while it is open.
    pub reason: Option<&'static str>,
    /// Whether its handshake was not seen.
    pub midstream: bool,
    /// Whether it may have started earlier.
    pub start_is_bound: bool,
}

impl ArchivedFlow {
    /// The number of the connection, the same on all its lines.
    #[must_use]
    pub fn id(&self) -> u64 {
        flow_id(self.client, self.server, self.vlan, self.start_ns)
    }
}

/// Appends the line of a connection of an archive, with its newline.
pub fn append_archived(line: &mut Vec<u8>, flow: &ArchivedFlow) {
    let mut times = TimeFormatter::default();
    let end = times.rfc3339(flow.end_ns);
    begin(line, end.as_str(), "flow");
    let ends = Ends { client: flow.client, server: flow.server, vlan: flow.vlan };
    connection(line, &ends, flow.vlan != VlanTags::NONE);
    course(line, &mut times, flow, flow.reason.is_some());
    line.extend_from_slice(b"}}\n");
}

/// Appends what is known of the course of a connection, up to the end of its fields.
fn course(line: &mut Vec<u8>, times: &mut TimeFormatter, flow: &ArchivedFlow, has_ended: bool) {
    start(line, times, flow.start_ns);
    if has_ended {
        end(line, times, flow.end_ns);
    }
    age_and_state(line, flow.age_ns, if has_ended { CLOSED } else { RowState::Established.name() });
    flow.reason.iter().for_each(|name| named(line, REASON, name));
    flag(line, ",\"midstream\":true", flow.midstream);
    flag(line, ",\"start_is_bound\":true", flow.start_is_bound);
}

/// Appends the line of a connection that these routers see, with its newline: that of a list with `routers` in it.
/// `routers` is a JSON array of their names, `end` the end of the list in RFC 3339.
pub fn append_joined(line: &mut Vec<u8>, times: &mut TimeFormatter, row: &Row, end: &str, routers: &[u8]) {
    begin(line, end, "flow");
    let ends = Ends { client: row.client, server: row.server, vlan: row.vlan };
    connection(line, &ends, row.vlan != VlanTags::NONE);
    line.extend_from_slice(b",\"routers\":");
    line.extend_from_slice(routers);
    row_course(line, times, row, (row.state.name(), None));
    line.extend_from_slice(b"}\n");
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It was established.
    Opened,
    /// It has ended.
    Closed,
    /// It has not ended: the event of its end was wrong.
    Reopened,
    /// The input ended before it did.
    Unfinished,
}

impl Change {
    /// Its name in output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Change::Opened => "opened",
            Change::Closed => "closed",
            Change::Reopened => "reopened",
            Change::Unfinished => "unfinished",
        }
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
pub struct FlowEvent {
    /// What happened.
    pub change: Change,
    /// The connection. It has a reason if it has ended, or the input has.
    pub flow: ArchivedFlow,
    /// The number of the event, from 1.
    pub sequence: u64,
    /// Which sides were seen, of one that has ended, where that is known.
    pub seen: Option<SidesSeen>,
    /// The other name of a translated connection, where that is known.
    pub nat: Option<Nat>,
}

/// Appends the line of an event, with its newline.
pub(super) fn append_event(line: &mut Vec<u8>, times: &mut TimeFormatter, event: &FlowEvent) {
    let FlowEvent { change, flow, sequence, seen, nat } = event;
    let time = times.rfc3339(flow.end_ns);
    begin(line, time.as_str(), "flow");
    line.extend_from_slice(b"\"change\":\"");
    line.extend_from_slice(change.name().as_bytes());
    line.extend_from_slice(b"\",\"seq\":");
    number(line, *sequence);
    line.extend_from_slice(b",\"flow_id\":");
    number(line, flow.id());
    line.push(b',');
    let ends = Ends { client: flow.client, server: flow.server, vlan: flow.vlan };
    connection(line, &ends, flow.vlan != VlanTags::NONE);
    course(line, times, flow, *change == Change::Closed);
    if let Some(seen) = seen {
        named(line, ",\"seen\":\"", seen.name());
    }
    line.push(b'}');
    if let Some(nat) = nat {
        other_name(line, nat);
    }
    line.extend_from_slice(b"}\n");
}

/// The state of a connection that has ended.
pub(super) const CLOSED: &str = "closed";

/// Appends the beginning of the fields about the connection's course.
#[inline]
fn start(line: &mut Vec<u8>, times: &mut TimeFormatter, start_ns: i64) {
    line.extend_from_slice(b",\"flow\":{\"start\":\"");
    line.extend_from_slice(times.rfc3339(start_ns).as_bytes());
    line.push(b'"');
}

/// Appends when the connection ended.
fn end(line: &mut Vec<u8>, times: &mut TimeFormatter, end_ns: i64) {
    line.extend_from_slice(b",\"end\":\"");
    line.extend_from_slice(times.rfc3339(end_ns).as_bytes());
    line.push(b'"');
}

/// The beginning of the field that says how a connection ended.
const REASON: &str = ",\"reason\":\"";

/// Appends a name of ours behind the beginning of its field, up to the quotation mark.
fn named(line: &mut Vec<u8>, field: &str, name: &str) {
    line.extend_from_slice(field.as_bytes());
    line.extend_from_slice(name.as_bytes());
    line.push(b'"');
}

#[inline]
fn age_and_state(line: &mut Vec<u8>, age_ns: i64, state: &str) {
    line.extend_from_slice(b",\"age\":");
    seconds(line, age_ns);
    line.extend_from_slice(b",\"state\":\"");
    line.extend_from_slice(state.as_bytes());
    line.push(b'"');
}

/// Appends a field that is only there if it is true.
#[inline]
fn flag(line: &mut Vec<u8>, field: &str, is_set: bool) {
    if is_set {
        line.extend_from_slice(field.as_bytes());
    }
}

/// Appends the beginning of a line.
pub(super) fn begin(line: &mut Vec<u8>, timestamp: &str, event_type: &str) {
    line.extend_from_slice(b"{\"timestamp\":\"");
    line.extend_from_slice(timestamp.as_bytes());
    line.extend_from_slice(b"\",\"event_type\":\"");
    line.extend_from_slice(event_type.as_bytes());
    line.extend_from_slice(b"\",");
}

/// Appends the fields that identify the connection.
pub(super) fn connection(line: &mut Vec<u8>, ends: &Ends, vlan_key: bool) {
    addresses(line, ends.client, ends.server);
    if vlan_key {
        line.extend_from_slice(b",\"vlan\":[");
        for (place, tag) in ends.vlan.iter().enumerate() {
            if place > 0 {
                line.push(b',');
            }
            number(line, u64::from(tag));
        }
        line.push(b']');
    }
    line.extend_from_slice(b",\"proto\":\"TCP\",\"community_id\":\"");
    line.extend_from_slice(community_id(ends.client, ends.server).as_bytes());
    line.push(b'"');
}

/// Appends the addresses and ports of both ends.
fn addresses(line: &mut Vec<u8>, client: SocketAddr, server: SocketAddr) {
    line.extend_from_slice(b"\"src_ip\":\"");
    address(line, client.ip());
    line.extend_from_slice(b"\",\"src_port\":");
    number(line, u64::from(client.port()));
    line.extend_from_slice(b",\"dest_ip\":\"");
    address(line, server.ip());
    line.extend_from_slice(b"\",\"dest_port\":");
    number(line, u64::from(server.port()));
}

/// The size of the longest octet of an address with the dot after it.
const OCTET_SIZE_MAX: usize = 4;

/// Every octet of an address as text with the dot after it, and the size of that.
static OCTETS: [([u8; OCTET_SIZE_MAX], usize); 256] = {
    let mut octets = [([b'.'; OCTET_SIZE_MAX], 2); 256];
    let mut octet = 0;
    while octet < octets.len() {
        let (ones, tens, hundreds) = (octet % 10, octet / 10 % 10, octet / 100);
        let (text, size) = &mut octets[octet];
        *size = 2 + (octet >= 10) as usize + (octet >= 100) as usize;
        text[*size - 2] = b'0' + ones as u8;
        if octet >= 10 {
            text[*size - 3] = b'0' + tens as u8;
        }
        if octet >= 100 {
            text[0] = b'0' + hundreds as u8;
        }
        octet += 1;
    }
    octets
};

pub(super) fn address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for octet in address.octets() {
                let (octet, octet_size) = &OCTETS[usize::from(octet)];
                append_start(line, *octet, *octet_size);
            }
            // The last dot.
            line.pop();
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => drop(write!(line, "{address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn text(row: &Row, vlan_key: bool) -> String {
        let (mut line, mut head) = (Vec::new(), Vec::new());
        begin(&mut head, "2026-01-01T00:00:10.000000Z", "flow");
        append(&mut line, &mut TimeFormatter::default(), row, Style { head: &head, vlan_key, mark: None });
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_line_is_as_the_contract_says() {
        let row = Row {
            vlan: VlanTags::NONE.with(10),
            start_ns: 1_767_225_600_500_000_000,
            age_ns: 9_500_000_000,
            ..Row::between(["10.0.0.1:40000", "93.184.216.34:443"].map(|end| end.parse().unwrap()))
        };
        let head = r#"{"timestamp":"2026-01-01T00:00:10.000000Z","event_type":"flow","src_ip":"10.0.0.1","src_port":40000,"dest_ip":"93.184.216.34","dest_port":443,"#;
        let tail = r#""proto":"TCP","community_id":"1:+fu2KbftImRzbfCHYFp9WDsl/xA=","flow":{"start":"2026-01-01T00:00:00.500000Z","age":9.5,"state":"established"}}"#;
        assert_eq!(text(&row, false), format!("{head}{tail}\n"));
        assert_eq!(text(&row, true), format!("{head}\"vlan\":[10],{tail}\n"));
        let untagged = Row { vlan: VlanTags::NONE, ..row };
        assert!(text(&untagged, true).contains("\"vlan\":[],"));
        let midstream = Row { midstream: true, ..row };
        assert!(text(&midstream, false).ends_with("\"state\":\"established\",\"midstream\":true}}\n"));
        let unsettled = Row { unsettled: true, ..row };
        assert!(text(&unsettled, false).ends_with("\"state\":\"established\",\"unsettled\":true}}\n"));
        let (client, server) = ("198.51.100.1:40000".parse().unwrap(), row.server);
        let masqueraded = Row { nat: Some(Nat { client, server, is_original: false }), ..row };
        let nat = r#"}},"nat":{"name":"translated","src_ip":"198.51.100.1","src_port":40000,"dest_ip":"93.184.216.34","dest_port":443}}"#;
        assert!(text(&masqueraded, false).ends_with(&format!("\"established\"{}\n", &nat[1..])));
        let one_way = Row { sides: SidesSeen::Server, ..row };
        assert!(text(&one_way, false).ends_with("\"state\":\"established\",\"sides\":\"server\"}}\n"));
        let bound = Row { midstream: true, start_is_bound: true, ..row };
        assert!(text(&bound, false).ends_with("\"midstream\":true,\"start_is_bound\":true}}\n"));
    }

    #[test]
    fn an_archived_connection_has_its_end_and_the_reason() {
        let flow = ArchivedFlow {
            client: "10.0.0.1:40000".parse().unwrap(),
            server: "93.184.216.34:443".parse().unwrap(),
            vlan: VlanTags::NONE,
            start_ns: 1_767_225_600_500_000_000,
            end_ns: 1_767_225_610_000_000_000,
            age_ns: 9_500_000_000,
            reason: Some("fin"),
            midstream: false,
            start_is_bound: false,
        };
        let text = |flow: ArchivedFlow| {
            let mut line = Vec::new();
            append_archived(&mut line, &flow);
            String::from_utf8(line).unwrap()
        };
        let head = r#"{"timestamp":"2026-01-01T00:00:10.000000Z","event_type":"flow","src_ip":"10.0.0.1","src_port":40000,"dest_ip":"93.184.216.34","dest_port":443,"proto":"TCP","community_id":"1:+fu2KbftImRzbfCHYFp9WDsl/xA=","flow":{"start":"2026-01-01T00:00:00.500000Z","#;
        let closed = r#""end":"2026-01-01T00:00:10.000000Z","age":9.5,"state":"closed","reason":"fin"}}"#;
        assert_eq!(text(flow), format!("{head}{closed}\n"));
        let open = ArchivedFlow { reason: None, ..flow };
        assert_eq!(text(open), format!("{head}\"age\":9.5,\"state\":\"established\"}}}}\n"));
        let bound = ArchivedFlow { midstream: true, start_is_bound: true, ..open };
        assert!(text(bound).ends_with("\"established\",\"midstream\":true,\"start_is_bound\":true}}\n"));
        let tagged = ArchivedFlow { vlan: VlanTags::NONE.with(10), ..flow };
        assert!(text(tagged).contains("443,\"vlan\":[10],\"proto\""));
    }

    #[test]
    fn every_octet_is_written_as_it_is_read() {
        for octet in 0..=255 {
            let (mut line, ip) = (Vec::new(), [octet, 0, octet, 255 - octet].into());
            address(&mut line, IpAddr::V4(ip));
            assert_eq!(String::from_utf8(line).unwrap(), ip.to_string());
        }
    }

    proptest! {
        #[test]
        fn every_line_is_json_and_says_what_the_row_says(
            client: SocketAddr,
            server: SocketAddr,
            tags in prop::collection::vec(0u16..4096, 0..3),
            age_us in 0i64..1 << 50,
        ) {
            let vlan = tags.iter().fold(VlanTags::NONE, |vlan, tag| vlan.with(*tag));
            let (age_ns, state) = (age_us * 1_000, RowState::SynRecv);
            let row = Row { vlan, age_ns, state, ..Row::between([client, server]) };
            let parsed: serde_json::Value = serde_json::from_str(&text(&row, true)).unwrap();
            let expected = json!({
                "timestamp": "2026-01-01T00:00:10.000000Z", "event_type": "flow",
                "src_ip": client.ip(), "src_port": client.port(), "dest_ip": server.ip(), "dest_port": server.port(),
                "vlan": tags, "proto": "TCP", "community_id": community_id(client, server).as_str(),
                "flow": { "start": "1970-01-01T00:00:00.000000Z", "age": age_us as f64 / 1e6, "state": "syn_recv" },
            });
            prop_assert_eq!(parsed, expected);
        }
    }
}
