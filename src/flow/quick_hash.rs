//! A keyed hash of connections that costs a tenth of a block cipher, for tables in which a collision does no harm.

use super::{Family, FlowKey, VlanTags};
use flowpeel_iblt::hash::{Purpose, Secret};

/// A keyed hash for the handshake cache, where every packet is hashed and a collision costs next to nothing.
///
/// Words are mixed with secret words and multiplied, and the halves of the product are folded together; that takes a
/// tenth of the time of a block cipher. Nobody without the secret can predict it; with the secret it is the same on
/// every machine.
#[derive(Clone)]
pub struct QuickHash {
    secret: [u64; 2],
}

impl QuickHash {
    /// The function under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        let words = u128::from_be_bytes(secret.cipher_key(Purpose::Handshake, 0));
        QuickHash { secret: [(words >> 64) as u64, words as u64] }
    }

    /// The hash of a connection, the same from either end: a packet's key need not be reversed for a look-up.
    #[must_use]
    #[inline]
    pub fn of<K: FlowKey>(&self, key: &K) -> u64 {
        self.of_ends::<K>(key.ends(), key.vlan())
    }

    /// The hash of the connection between these ends, in either order.
    #[must_use]
    #[inline]
    pub fn of_ends<K: FlowKey>(&self, ends: [(K::Address, u16); 2], vlan: VlanTags) -> u64 {
        // A product does not depend on the order of its factors.
        let [one, other] = ends;
        let [one, other] = [self.of_end::<K>(one) ^ self.secret[0], self.of_end::<K>(other) ^ self.secret[0]];
        fold(fold(one, other) ^ self.secret[1] ^ u64::from(vlan.number()), self.secret[0])
    }

    /// One end as a word: an IPv4 end as it is, an IPv6 end hashed. The bytes are in the order of a packet, so what is
    /// read there need not be swapped.
    #[inline(always)]
    fn of_end<K: FlowKey>(&self, (address, port): (K::Address, u16)) -> u64 {
        let (address, port): (u128, u64) = (address.into(), u64::from(port.swap_bytes()));
        match K::FAMILY {
            Family::V4 => u64::from((address as u32).swap_bytes()) << u16::BITS | port,
            Family::V6 => {
                let [first, second] = [(address >> 64) as u64, address as u64].map(u64::swap_bytes);
                fold(first ^ self.secret[0], second ^ self.secret[1]).rotate_left(u16::BITS) ^ port
            }
        }
    }
}

/// The exclusive or of the halves of the product.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::KeyV4;

    #[test]
    fn the_quick_hash_spreads_near_keys_and_depends_on_the_secret() {
        let quick = QuickHash::new(&Secret::REPLAY);
        let key = |client: u32, port: u16| KeyV4::new((client, port), (0x0a00_0001, 443), VlanTags::NONE);
        let keys = (0..256).flat_map(|client| (0..256).map(move |port| key(client, port)));
        let mut tops = vec![0u32; 4_096];
        let mut hashes: Vec<u64> = keys.map(|key| quick.of(&key)).collect();
        hashes.iter().for_each(|hash| tops[(hash >> 52) as usize] += 1);
        // 65,536 keys over 4,096 places: 16 each, and seldom more than six standard deviations above.
        assert!(tops.iter().all(|&count| count < 40), "{:?}", tops.iter().max());
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 1 << 16);
        assert_ne!(quick.of(&key(1, 1)), QuickHash::new(&Secret::new([1; 16])).of(&key(1, 1)));
    }
}
