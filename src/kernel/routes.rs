//! Through which interfaces the packets of a connection go, as the kernel routes them.

use crate::kernel::netlink::NetlinkSocket;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// Addresses whose interface is remembered, at most: then they are forgotten, and asked for again.
const ADDRESSES_MAX: usize = 1 << 16;

/// Interfaces that lie on one another, at most: a VLAN on a bond on a card, and some more.
const LAYERS_MAX: usize = 8;

/// The part of a request and of its answer before the attributes.
const HEAD_SIZE: usize = 12;

/// A question for the route to an address.
struct RouteTo(IpAddr);

impl RouteTo {
    fn destination(&self) -> DefaultNla {
        let bytes = match self.0 {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        DefaultNla::new(libc::RTA_DST, bytes)
    }
}

impl NetlinkSerializable for RouteTo {
    fn message_type(&self) -> u16 {
        libc::RTM_GETROUTE
    }

    fn buffer_len(&self) -> usize {
        HEAD_SIZE + self.destination().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (family, bits) = match self.0 {
            IpAddr::V4(_) => (libc::AF_INET, 32),
            IpAddr::V6(_) => (libc::AF_INET6, 128),
        };
        let (head, attributes) = buffer.split_at_mut(HEAD_SIZE);
        head.fill(0);
        (head[0], head[1]) = (family as u8, bits);
        self.destination().emit(attributes);
    }
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind the interface of this number.
    Behind(u32),
    /// On this host.
    Here,
    /// Nowhere that the kernel knows.
    Unknown,
}

impl NetlinkDeserializable for Place {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        /// Where the type of the route stands.
        const TYPE_OFFSET: usize = 7;
        let attributes = payload.get(HEAD_SIZE..).unwrap_or(&[]);
        if payload.get(TYPE_OFFSET) == Some(&libc::RTN_LOCAL) {
            return Ok(Place::Here);
        }
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute?;
            if attribute.kind() == libc::RTA_OIF
                && let Some(number) = attribute.value().first_chunk()
            {
                return Ok(Place::Behind(u32::from_ne_bytes(*number)));
            }
        }
        Ok(Place::Unknown)
    }
}

/// The interfaces that are captured, and which connections go through them.
pub struct Routes {
    socket: NetlinkSocket,
    places: HashMap<IpAddr, Place>,
    captured: HashSet<u32>,
    /// Interfaces that lie on captured ones or on others: whether packets through them pass a captured one.
    passes: HashMap<u32, bool>,
    is_exact: bool,
}

impl Routes {
    /// The routes through these interfaces. With `is_exact` an interface that lies on a captured one, as a VLAN does,
    /// does not count as captured.
    ///
    /// # Errors
    ///
    /// There is no netlink socket.
    pub fn through(interfaces: &[String], is_exact: bool) -> io::Result<Self> {
        let captured = interfaces.iter().filter_map(|name| number_of(name)).collect();
        let socket = NetlinkSocket::open(NETLINK_ROUTE)?;
        Ok(Routes { socket, places: HashMap::new(), captured, passes: HashMap::new(), is_exact })
    }

    /// Where an address is.
    pub fn place_of(&mut self, address: IpAddr) -> Place {
        if let Some(place) = self.places.get(&address) {
            return *place;
        }
        // An address without a route is one that cannot be reached now.
        let place = self.socket.ask(RouteTo(address)).ok().flatten().unwrap_or(Place::Unknown);
        if self.places.len() >= ADDRESSES_MAX {
            self.places.clear();
        }
        self.places.insert(address, place);
        place
    }

    /// Whether packets to this address pass a captured interface.
    pub fn is_captured(&mut self, address: IpAddr) -> bool {
        match self.place_of(address) {
            Place::Behind(number) => self.passes_captured(number),
            Place::Here | Place::Unknown => false,
        }
    }

    /// Whether an address is one of this host.
    pub fn is_here(&mut self, address: IpAddr) -> bool {
        self.place_of(address) == Place::Here
    }

    /// Whether packets between two addresses of this host are captured.
    pub fn is_loopback_captured(&mut self) -> bool {
        number_of("lo").is_some_and(|number| self.captured.contains(&number))
    }

    fn passes_captured(&mut self, number: u32) -> bool {
        if self.captured.contains(&number) {
            return true;
        }
        if self.is_exact {
            return false;
        }
        let captured = &self.captured;
        *self
            .passes
            .entry(number)
            .or_insert_with(|| name_of(number).is_some_and(|name| lies_on(&name, captured, LAYERS_MAX)))
    }
}

/// The kernel's files about interfaces.
const INTERFACES: &str = "/sys/class/net";

fn number_of(name: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(name).ok()
}

fn name_of(number: u32) -> Option<String> {
    nix::net::if_::if_indextoname(number).ok()?.into_string().ok()
}

/// Whether an interface lies on one of these.
fn lies_on(name: &str, captured: &HashSet<u32>, layers: usize) -> bool {
    let entries = std::fs::read_dir(Path::new(INTERFACES).join(name)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let lower: Vec<String> = names.filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned())).collect();
    layers > 0
        && lower.iter().any(|name| {
            number_of(name).is_some_and(|number| captured.contains(&number)) || lies_on(name, captured, layers - 1)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_knows_its_own_addresses() {
        let Ok(mut routes) = Routes::through(&["lo".to_owned()], false) else { return };
        for address in ["127.0.0.1", "127.9.9.9"] {
            assert_eq!(routes.place_of(address.parse().unwrap()), Place::Here, "{address}");
        }
        assert!(routes.is_loopback_captured() && !routes.is_captured("127.0.0.1".parse().unwrap()));
    }
}
