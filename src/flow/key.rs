//! Flow keys: the client's address and port, the server's, and up to two VLAN tags, as big-endian words.

use flowpeel_iblt::{TableKey, WordKey};
use flowpeel_lines::{HalfLine, Line};
use std::hint::select_unpredictable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The address family of a connection. Each family has tables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4: 16-byte keys.
    V4,
    /// IPv6: 40-byte keys.
    V6,
}

/// One of the two ends of a connection, in the order in which a key names them.
///
/// In an oriented key [`Side::First`] is the client; in a canonical key it is the smaller endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that the key names first.
    First,
    /// The end that the key names second.
    Second,
}

impl Side {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// Up to two VLAN identifiers (12 bits each), outermost first.
///
/// Deeper tags are not part of a key. The number holds the count of tags in its top byte, then 12 bits a tag, and is
/// the last four bytes of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanTags(u32);

impl VlanTags {
    /// No tag.
    pub const NONE: Self = VlanTags(0);

    /// These tags and one more inside them; a third tag and any after it change nothing.
    #[must_use]
    #[inline]
    pub fn with(self, tag: u16) -> Self {
        let tag = u32::from(tag & 0x0fff);
        match self.0 >> 24 {
            0 => VlanTags(1 << 24 | tag << 12),
            1 => VlanTags(2 << 24 | (self.0 & 0x00ff_f000) | tag),
            _ => self,
        }
    }

    /// These tags and one more outside them. Of three the innermost is not kept.
    #[must_use]
    #[inline]
    pub fn outside(self, tag: u16) -> Self {
        self.iter().fold(VlanTags::NONE.with(tag), VlanTags::with)
    }

    /// The tags and their count, as one number.
    #[must_use]
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The tags, outermost first.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let count = (self.0 >> 24).min(2) as usize;
        [(self.0 >> 12 & 0x0fff) as u16, (self.0 & 0x0fff) as u16].into_iter().take(count)
    }
}

/// A connection's key: fixed-size words that order, sum and hash alike on every machine.
///
/// The words are the big-endian reading of: first address, first port, second address, second port, VLAN tags.
/// Comparing words therefore orders keys by client address, client port, server address, server port, VLAN.
pub trait FlowKey: TableKey {
    /// The family whose keys these are.
    const FAMILY: Family;
    /// An address as a number, in host order.
    type Address: Copy + Ord + Into<u128>;

    /// The key with these ends, in this order.
    #[must_use]
    fn between(ends: [(Self::Address, u16); 2], vlan: VlanTags) -> Self;

    /// Which end of the canonical key the sender of a packet is, of whose ends it is the first.
    #[must_use]
    #[inline]
    fn side_of_sender([sender, receiver]: [(Self::Address, u16); 2]) -> Side {
        if sender <= receiver { Side::First } else { Side::Second }
    }

    /// The canonical key of a packet with these ends, whose sender is [this end](Self::side_of_sender) of it.
    #[must_use]
    #[inline]
    fn canonical_of(ends: [(Self::Address, u16); 2], side: Side, vlan: VlanTags) -> Self {
        // Either side sends as often, so a branch would be foretold wrongly every other time.
        let in_order = side == Side::First;
        let [(sender, sender_port), (receiver, receiver_port)] = ends;
        let first = select_unpredictable(in_order, sender, receiver);
        let second = select_unpredictable(in_order, receiver, sender);
        let first_port = select_unpredictable(in_order, sender_port, receiver_port);
        let second_port = select_unpredictable(in_order, receiver_port, sender_port);
        Self::between([(first, first_port), (second, second_port)], vlan)
    }

    /// The same connection named from the other end.
    #[must_use]
    fn reversed(&self) -> Self;
    /// The addresses and ports of both ends, in the order in which the key names them.
    fn ends(&self) -> [(Self::Address, u16); 2];
    /// The address and port of the end named first.
    fn first(&self) -> SocketAddr;
    /// The address and port of the end named second.
    fn second(&self) -> SocketAddr;
    /// The VLAN tags; [`VlanTags::NONE`] unless they are part of the key.
    fn vlan(&self) -> VlanTags;

    /// The same key without VLAN tags.
    #[must_use]
    fn untagged(&self) -> Self;

    /// The one of `self` and `self.reversed()` that is the same for both directions, and which of its ends `self`
    /// names first.
    #[must_use]
    #[inline]
    fn canonical(&self) -> (Self, Side) {
        let reversed = self.reversed();
        if *self <= reversed { (*self, Side::First) } else { (reversed, Side::Second) }
    }
}

/// The key of an IPv4 connection: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyV4([u64; 2]);

impl KeyV4 {
    /// The key with `first` and `second` as its ends; addresses in host order.
    #[must_use]
    #[inline]
    pub fn new(first: (u32, u16), second: (u32, u16), vlan: VlanTags) -> Self {
        KeyV4([
            u64::from(first.0) << 32 | u64::from(first.1) << 16 | u64::from(second.0 >> 16),
            u64::from(second.0 & 0xffff) << 48 | u64::from(second.1) << 32 | u64::from(vlan.0),
        ])
    }

    #[inline]
    fn parts(&self) -> ((u32, u16), (u32, u16)) {
        let [high, low] = self.0;
        (((high >> 32) as u32, (high >> 16) as u16), ((high << 16) as u32 | (low >> 48) as u32, (low >> 32) as u16))
    }
}

impl WordKey for KeyV4 {
    const WORD_COUNT: usize = 2;
    const CIPHER_TAG: u8 = 4;

    #[inline]
    fn words(&self) -> &[u64] {
        &self.0
    }

    #[inline]
    fn from_words(words: &[u64]) -> Self {
        KeyV4(std::array::from_fn(|at| words.get(at).copied().unwrap_or(0)))
    }
}

/// A cell takes 32 bytes: two lie in a cache line.
impl TableKey for KeyV4 {
    type Row = HalfLine;
}

impl FlowKey for KeyV4 {
    const FAMILY: Family = Family::V4;
    type Address = u32;

    #[inline]
    fn between([first, second]: [(u32, u16); 2], vlan: VlanTags) -> Self {
        KeyV4::new(first, second, vlan)
    }

    #[inline]
    fn reversed(&self) -> Self {
        let (first, second) = self.parts();
        KeyV4::new(second, first, self.vlan())
    }

    /// The ends are 48 bits each, side by side, so they are compared before anything is reversed.
    #[inline]
    fn canonical(&self) -> (Self, Side) {
        let [high, low] = self.0;
        let (first, second) = (high >> 16, (high & 0xffff) << 32 | low >> 32);
        if first <= second {
            return (*self, Side::First);
        }
        (KeyV4([second << 16 | first >> 32, first << 32 | low & 0xffff_ffff]), Side::Second)
    }

    #[inline]
    fn ends(&self) -> [(Self::Address, u16); 2] {
        self.parts().into()
    }

    fn first(&self) -> SocketAddr {
        let (addr, port) = self.parts().0;
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(addr)), port)
    }

    fn second(&self) -> SocketAddr {
        let (addr, port) = self.parts().1;
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(addr)), port)
    }

    #[inline]
    fn vlan(&self) -> VlanTags {
        VlanTags(self.0[1] as u32)
    }

    #[inline]
    fn untagged(&self) -> Self {
        KeyV4([self.0[0], self.0[1] >> u32::BITS << u32::BITS])
    }
}

/// The key of an IPv6 connection: 40 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyV6([u64; 5]);

impl KeyV6 {
    /// The key with `first` and `second` as its ends; addresses as the number their 16 bytes read big-endian.
    #[must_use]
    #[inline]
    pub fn new(first: (u128, u16), second: (u128, u16), vlan: VlanTags) -> Self {
        KeyV6([
            (first.0 >> 64) as u64,
            first.0 as u64,
            u64::from(first.1) << 48 | (second.0 >> 80) as u64,
            (second.0 >> 16) as u64,
            (second.0 as u64) << 48 | u64::from(second.1) << 32 | u64::from(vlan.0),
        ])
    }

    #[inline]
    fn parts(&self) -> ((u128, u16), (u128, u16)) {
        let [a, b, c, d, e] = self.0;
        let first = (u128::from(a) << 64 | u128::from(b), (c >> 48) as u16);
        let second =
            (u128::from(c & 0xffff_ffff_ffff) << 80 | u128::from(d) << 16 | u128::from(e >> 48), (e >> 32) as u16);
        (first, second)
    }
}

impl WordKey for KeyV6 {
    const WORD_COUNT: usize = 5;
    const CIPHER_TAG: u8 = 6;

    #[inline]
    fn words(&self) -> &[u64] {
        &self.0
    }

    #[inline]
    fn from_words(words: &[u64]) -> Self {
        KeyV6(std::array::from_fn(|at| words.get(at).copied().unwrap_or(0)))
    }
}

/// The 56 bytes of a cell lie in a cache line of their own.
impl TableKey for KeyV6 {
    type Row = Line;
}

impl FlowKey for KeyV6 {
    const FAMILY: Family = Family::V6;
    type Address = u128;

    #[inline]
    fn between([first, second]: [(u128, u16); 2], vlan: VlanTags) -> Self {
        KeyV6::new(first, second, vlan)
    }

    #[inline]
    fn reversed(&self) -> Self {
        let (first, second) = self.parts();
        KeyV6::new(second, first, self.vlan())
    }

    #[inline]
    fn ends(&self) -> [(Self::Address, u16); 2] {
        self.parts().into()
    }

    fn first(&self) -> SocketAddr {
        let (addr, port) = self.parts().0;
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(addr)), port)
    }

    fn second(&self) -> SocketAddr {
        let (addr, port) = self.parts().1;
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(addr)), port)
    }

    #[inline]
    fn vlan(&self) -> VlanTags {
        VlanTags(self.0[4] as u32)
    }

    #[inline]
    fn untagged(&self) -> Self {
        let [a, b, c, d, e] = self.0;
        KeyV6([a, b, c, d, e >> u32::BITS << u32::BITS])
    }
}

/// A key of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyKey {
    /// An IPv4 connection.
    V4(KeyV4),
    /// An IPv6 connection.
    V6(KeyV6),
}

impl AnyKey {
    /// The key of the connection from `client` to `server`, or `None` if their addresses are of different families.
    #[must_use]
    pub fn of_ends(client: SocketAddr, server: SocketAddr, vlan: VlanTags) -> Option<Self> {
        match (client, server) {
            (SocketAddr::V4(client), SocketAddr::V4(server)) => {
                let end = |addr: SocketAddrV4| (addr.ip().to_bits(), addr.port());
                Some(AnyKey::V4(KeyV4::new(end(client), end(server), vlan)))
            }
            (SocketAddr::V6(client), SocketAddr::V6(server)) => {
                let end = |addr: SocketAddrV6| (addr.ip().to_bits(), addr.port());
                Some(AnyKey::V6(KeyV6::new(end(client), end(server), vlan)))
            }
            _ => None,
        }
    }

    /// The key that is the same for both directions.
    #[must_use]
    pub fn canonical(&self) -> Self {
        match self {
            AnyKey::V4(key) => AnyKey::V4(key.canonical().0),
            AnyKey::V6(key) => AnyKey::V6(key.canonical().0),
        }
    }

    /// The end that is named first: the client's, in an oriented key.
    #[must_use]
    pub fn client(&self) -> SocketAddr {
        match self {
            AnyKey::V4(key) => key.first(),
            AnyKey::V6(key) => key.first(),
        }
    }

    /// The end that is named second: the server's, in an oriented key.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        match self {
            AnyKey::V4(key) => key.second(),
            AnyKey::V6(key) => key.second(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_of_two_families_make_no_key() {
        let [v4, v6] = ["10.0.0.1:1", "[::1]:2"].map(|end| end.parse().unwrap());
        assert_eq!(AnyKey::of_ends(v4, v6, VlanTags::NONE), None);
        assert!(AnyKey::of_ends(v6, v6, VlanTags::NONE).is_some());
    }

    fn v4() -> impl Strategy<Value = ((u32, u16), (u32, u16), Vec<u16>)> {
        (any::<(u32, u16)>(), any::<(u32, u16)>(), prop::collection::vec(0u16..4096, 0..4))
    }

    fn tags(list: &[u16]) -> VlanTags {
        list.iter().fold(VlanTags::NONE, |tags, &tag| tags.with(tag))
    }

    proptest! {
        #[test]
        fn ipv4_parts_come_back((first, second, list) in v4()) {
            let key = KeyV4::new(first, second, tags(&list));
            prop_assert_eq!(key.parts(), (first, second));
            prop_assert_eq!(key.vlan().iter().collect::<Vec<_>>(), list.iter().copied().take(2).collect::<Vec<_>>());
            prop_assert_eq!(KeyV4::from_words(key.words()), key);
            prop_assert_eq!(key.reversed().reversed(), key);
        }

        #[test]
        fn ipv6_parts_come_back(first in any::<(u128, u16)>(), second in any::<(u128, u16)>(), list in prop::collection::vec(0u16..4096, 0..4)) {
            let key = KeyV6::new(first, second, tags(&list));
            prop_assert_eq!(key.parts(), (first, second));
            prop_assert_eq!(key.vlan(), tags(&list));
            prop_assert_eq!(KeyV6::from_words(key.words()), key);
            prop_assert_eq!(key.reversed().reversed(), key);
        }

        #[test]
        fn both_directions_have_one_canonical_key((first, second, list) in v4()) {
            let key = KeyV4::new(first, second, tags(&list));
            let (there, side) = key.canonical();
            let (back, other) = key.reversed().canonical();
            prop_assert_eq!(there, back);
            if first != second {
                prop_assert_eq!(side, other.other());
            }
            prop_assert_eq!(KeyV4::side_of_sender([first, second]), side);
            prop_assert_eq!(KeyV4::canonical_of([first, second], side, tags(&list)), there);
        }

        #[test]
        fn both_directions_have_one_canonical_ipv6_key(first in any::<(u128, u16)>(), second in any::<(u128, u16)>()) {
            let key = KeyV6::new(first, second, VlanTags::NONE);
            let side = KeyV6::side_of_sender([first, second]);
            prop_assert_eq!((KeyV6::canonical_of([first, second], side, VlanTags::NONE), side), key.canonical());
            prop_assert_eq!(key.canonical().0, key.reversed().canonical().0);
        }

        #[test]
        fn a_tag_outside_comes_first(tag in 0u16..4096, list in prop::collection::vec(0u16..4096, 0..4)) {
            let outermost_first: Vec<u16> = std::iter::once(tag).chain(list.iter().copied()).collect();
            prop_assert_eq!(tags(&list).outside(tag), tags(&outermost_first));
        }

        #[test]
        fn keys_order_by_client_then_server(a in v4(), b in v4()) {
            let key = |(first, second, _): &((u32, u16), (u32, u16), Vec<u16>)| KeyV4::new(*first, *second, VlanTags::NONE);
            prop_assert_eq!(key(&a).cmp(&key(&b)), (a.0, a.1).cmp(&(b.0, b.1)));
        }
    }
}
