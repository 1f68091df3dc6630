//! Addresses as keys of counters: their sums can be divided by any count that occurs.

use flowpeel_iblt::{Key, Wide};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 address as a key.
pub(super) type SourceKeyV4 = Wide<4, 8>;
/// An IPv6 address as a key.
pub(super) type SourceKeyV6 = Wide<16, 20>;

/// A key that is an address.
pub(super) trait AddressKey: Key {
    /// The address.
    fn address(&self) -> IpAddr;
}

impl AddressKey for SourceKeyV4 {
    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(u32::from_le_bytes(self.key())))
    }
}

impl AddressKey for SourceKeyV6 {
    fn address(&self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(u128::from_le_bytes(self.key())))
    }
}

/// The key of an IPv4 address.
#[inline]
pub(super) fn key_v4(address: Ipv4Addr) -> SourceKeyV4 {
    Wide::new(address.to_bits().to_le_bytes())
}

/// The key of an IPv6 address.
#[inline]
pub(super) fn key_v6(address: Ipv6Addr) -> SourceKeyV6 {
    Wide::new(address.to_bits().to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_their_addresses(v4: Ipv4Addr, v6: Ipv6Addr) {
            prop_assert_eq!(key_v4(v4).address(), IpAddr::V4(v4));
            prop_assert_eq!(key_v6(v6).address(), IpAddr::V6(v6));
        }
    }
}
