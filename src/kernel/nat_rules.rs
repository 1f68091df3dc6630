//! Whether this host translates addresses.

use crate::kernel::netlink::NetlinkSocket;
use netlink_packet_core::NetlinkHeader;
use netlink_packet_netfilter::nftables::{ChainAttribute, ChainMessage, NfTablesMessage};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::fs;

/// The tables that the older iptables has loaded, for root to read.
const OLD_TABLES: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

/// Whether the host has chains of rules that translate addresses, as far as this process may see.
#[must_use]
pub fn translates() -> bool {
    let is_nat = |table: &str| table == "nat";
    OLD_TABLES.iter().any(|path| fs::read_to_string(path).is_ok_and(|tables| tables.lines().any(is_nat)))
        || has_nat_chains()
}

/// Whether nftables has a chain of that type.
fn has_nat_chains() -> bool {
    let Ok(mut socket) = NetlinkSocket::open(NETLINK_NETFILTER) else { return false };
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    let request = NetfilterMessage::new(header, NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() }));
    let mut is_found = false;
    let each = |_: &NetlinkHeader, answer: NetfilterMessage| {
        if let NetfilterMessageInner::NfTables(NfTablesMessage::NewChain(chain)) = answer.inner {
            is_found |= chain.attributes.contains(&ChainAttribute::Type("nat".to_owned()));
        }
    };
    // Who may not read the rules cannot be warned.
    drop(socket.dump(request, each));
    is_found
}
