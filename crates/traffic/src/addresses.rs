//! The addresses of the clients, the servers, and the sources of a flood, each in ranges of their own.
//!
//! The number of a connection determines the client's address and port, and no two of four thousand million numbers
//! share them, so ports are reused where the configuration says so and nowhere else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::random::{Random, number_at, scaled};

/// The server that a flood attacks over IPv4; some of the legitimate clients talk to it too.
pub const ATTACKED_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The server that a flood attacks over IPv6.
pub const ATTACKED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0, 0, 1);
/// The port that a flood attacks.
const ATTACKED_PORT: u16 = 443;

/// Clients of IPv6 are in `2001:db8:c::/48`, of IPv4 in `10.0.0.0/8`.
const CLIENT_PREFIX_V6: [u16; 3] = [0x2001, 0xdb8, 0xc];
/// Servers of IPv6 are in `2001:db8:5::/48`, of IPv4 in `203.0.113.0/24`.
const SERVER_PREFIX_V6: [u16; 3] = [0x2001, 0xdb8, 5];
const SERVER_COUNT: u64 = 254;
/// Ports of the servers; the more often a port is listed, the more often it is chosen.
const SERVER_PORTS: [u16; 10] = [443, 443, 443, 443, 443, 80, 80, 22, 8080, 5432];

/// The number of client hosts: few enough that each has many connections, and enough that each has ports left.
const HOST_COUNT: u64 = 1 << 16;
const PORT_MIN: u64 = 1024;
const PORT_COUNT: u64 = 65_536 - PORT_MIN;
/// The most connections: more would share their clients' ports.
pub(super) const CONNECTION_COUNT_MAX: u64 = HOST_COUNT * PORT_COUNT;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
}

/// Whether `address` is a legitimate client's: in `10.0.0.0/8` or `2001:db8:c::/48`. No flood comes from there.
#[must_use]
pub fn is_client(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.segments()[..3] == CLIENT_PREFIX_V6,
    }
}

/// Whether `address` is a server's: in `203.0.113.0/24` or `2001:db8:5::/48`.
#[must_use]
pub fn is_server(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [203, 0, 113],
        IpAddr::V6(address) => address.segments()[..3] == SERVER_PREFIX_V6,
    }
}

/// The ends of connection number `index`. Its server is drawn from `random`; servers with low numbers are drawn more
/// often.
pub(super) fn endpoints(index: u64, ipv6: bool, random: &mut Random) -> Endpoints {
    // Both multipliers are odd, so neither maps two hosts to one address.
    let host = index.wrapping_mul(40_503) % HOST_COUNT;
    let port = PORT_MIN + (index / HOST_COUNT + number_at(host, 0) % PORT_COUNT) % PORT_COUNT;
    let server = 1 + random.below(SERVER_COUNT).min(random.below(SERVER_COUNT)) as u16;
    let server_port = SERVER_PORTS[random.below(SERVER_PORTS.len() as u64) as usize];
    let (client, server) = if ipv6 {
        let [a, b, c] = CLIENT_PREFIX_V6;
        let client = Ipv6Addr::from_bits(Ipv6Addr::new(a, b, c, host as u16, 0, 0, 0, 0).to_bits() | 1);
        let [a, b, c] = SERVER_PREFIX_V6;
        (IpAddr::V6(client), IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, server)))
    } else {
        let client = Ipv4Addr::from_bits(10 << 24 | (host * 0x9e_3779) as u32 & 0x00ff_ffff);
        (IpAddr::V4(client), IpAddr::V4(Ipv4Addr::new(203, 0, 113, server as u8)))
    };
    Endpoints { client: SocketAddr::new(client, port as u16), server: SocketAddr::new(server, server_port) }
}

/// The attacked server, and a source made of two random numbers, outside of the clients' and servers' ranges.
pub(super) fn flood_endpoints(numbers: [u64; 2], ipv6: bool) -> Endpoints {
    let port = 1 + scaled(numbers[1] << 32, 65_535) as u16;
    let (client, server) = if ipv6 {
        // The second documentation prefix, 3fff::/20, holds neither clients nor servers.
        let low = u128::from(numbers[0]) << 44 | u128::from(numbers[1] >> 20);
        (IpAddr::V6(Ipv6Addr::from_bits(0x3fff_u128 << 112 | low)), IpAddr::V6(ATTACKED_V6))
    } else {
        // Any unicast address except those of clients (10), servers (203) and this host (127).
        let octet = match 1 + scaled(numbers[0], 222) as u32 {
            10 => 11,
            127 => 128,
            203 => 204,
            octet => octet,
        };
        let client = Ipv4Addr::from_bits(octet << 24 | (numbers[1] >> 32) as u32 & 0x00ff_ffff);
        (IpAddr::V4(client), IpAddr::V4(ATTACKED_V4))
    };
    Endpoints { client: SocketAddr::new(client, port), server: SocketAddr::new(server, ATTACKED_PORT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_connections_share_a_client_port() {
        let mut random = Random::new(1);
        for ipv6 in [false, true] {
            let clients: HashSet<SocketAddr> =
                (0..3 * HOST_COUNT).map(|index| endpoints(index, ipv6, &mut random).client).collect();
            assert_eq!(clients.len() as u64, 3 * HOST_COUNT);
            assert!(clients.iter().all(|client| is_client(client.ip()) && client.is_ipv6() == ipv6));
        }
    }

    #[test]
    fn a_flood_comes_from_elsewhere() {
        for index in 0..100_000 {
            let ends = flood_endpoints([number_at(5, 2 * index), number_at(5, 2 * index + 1)], index % 2 == 1);
            assert!(!is_client(ends.client.ip()) && !is_server(ends.client.ip()), "{}", ends.client);
            assert!(!ends.client.ip().is_loopback() && !ends.client.ip().is_multicast() && ends.client.port() > 0);
            assert!(is_server(ends.server.ip()));
        }
    }
}
