//! Many generated connections, as lines of a list.

use flowpeel_traffic::Random;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// When the list ends, in seconds since the first of January 2026.
pub(crate) const END_S: u32 = 7_200;

/// A connection: its ends, its state (0 established, 1 SYN sent, 2 SYN received) and its start in tenths of a second
/// since the first of January 2026. It orders as in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListRow {
    pub(crate) client: (IpAddr, u16),
    pub(crate) server: (IpAddr, u16),
    pub(crate) state: u8,
    pub(crate) start: u32,
}

const PORTS: [u16; 6] = [22, 80, 443, 443, 5_432, 8_080];

fn row(random: &mut Random) -> ListRow {
    let (client, server): (IpAddr, IpAddr) = if random.below(5) == 0 {
        let of =
            |net: u128, host: u64| Ipv6Addr::from_bits((0x2001_0db8 << 96) | (net << 80) | u128::from(host)).into();
        (of(1, random.below(3_000)), of(2, random.below(64)))
    } else {
        let net = if random.below(2) == 0 { 0xcb00_7100 } else { 0xc000_0200 };
        let client = 0x0a00_0000 | (random.below(1 << 24) as u32 & 0x00ff_f00f);
        (Ipv4Addr::from_bits(client).into(), Ipv4Addr::from_bits(net | random.below(256) as u32).into())
    };
    let state = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][random.below(10) as usize];
    let start = random.below(u64::from(END_S) * 10) as u32;
    let ports = (random.below(65_535) as u16 + 1, PORTS[random.below(PORTS.len() as u64) as usize]);
    ListRow { client: (client, ports.0), server: (server, ports.1), state, start }
}

/// So many connections in the order of a list, no two between the same ends.
pub(crate) fn rows(seed: u64, count: usize) -> Vec<ListRow> {
    let mut random = Random::new(seed);
    let (mut rows, mut ends) = (Vec::with_capacity(count), BTreeSet::new());
    while rows.len() < count {
        let row = row(&mut random);
        if ends.insert((row.client, row.server)) {
            rows.push(row);
        }
    }
    rows.sort_unstable();
    rows
}

/// The line of a list that ends then.
pub(crate) fn line(row: &ListRow) -> String {
    let ListRow { client, server, state, start } = row;
    let state = ["established", "syn_sent", "syn_recv"][usize::from(*state)];
    let time = |tenths: u32| {
        let seconds = tenths / 10;
        format!("2026-01-01T{:02}:{:02}:{:02}.{}00000Z", seconds / 3_600, seconds / 60 % 60, seconds % 60, tenths % 10)
    };
    let age = f64::from(END_S * 10 - start) / 10.0;
    format!(
        "{{\"event_type\":\"flow\",\"src_ip\":\"{}\",\"src_port\":{},\"dest_ip\":\"{}\",\"dest_port\":{},\
         \"flow\":{{\"start\":\"{}\",\"age\":{age:?},\"state\":\"{state}\"}}}}",
        client.0,
        client.1,
        server.0,
        server.1,
        time(*start)
    )
}

/// For each connection its ends as one text, keys that order as addresses do, and which routers see it, by its place.
pub(crate) fn keys_csv(rows: &[ListRow], seen: impl Fn(usize) -> [bool; 2]) -> String {
    let key = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => format!("4{:08x}", ip.to_bits()),
        IpAddr::V6(ip) => format!("6{:032x}", ip.to_bits()),
    };
    let mut text = "id,client_key,server_key,east,west\n".to_owned();
    for (place, ListRow { client, server, .. }) in rows.iter().enumerate() {
        let [east, west] = seen(place).map(u8::from);
        let id = format!("{} {} {} {}", client.0, client.1, server.0, server.1);
        text += &format!("{id},{},{},{east},{west}\n", key(client.0), key(server.0));
    }
    text
}
