//! The keys that prove which router a frame is from.
//!
//! Tables are placed under one secret for the whole network, which every router has. So that a router that was stolen
//! cannot speak for the others, frames are signed under another: each router has a key that is derived from the key of
//! the fleet and its name, and only collectors have the fleet's. From a router's key neither the fleet's key nor that
//! of another router can be computed. A new router needs nothing at the collectors.
//!
//! It is HMAC-SHA256 like the tags of snapshots, and no signature with a pair of keys: who holds a collector writes the
//! lists anyway, and a code is checked at the speed of hashing.

use flowpeel::disk::Check;
use flowpeel_iblt::hash::{SECRET_SIZE, Secret};

/// The key of a fleet, which collectors hold.
#[derive(Clone, Debug)]
pub struct FleetKey(Secret);

impl FleetKey {
    /// The fleet's key in a file that `flowpeel keygen` made.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        FleetKey(secret)
    }

    /// The bytes of the key of the router with this name, for a file that goes to the router.
    #[must_use]
    pub fn bytes_of_router(&self, router: &str) -> [u8; SECRET_SIZE] {
        let label = [b"flowpeel fleet router ".as_slice(), router.as_bytes()].concat();
        let derived = self.0.derived(&label);
        std::array::from_fn(|at| derived[at])
    }

    /// The key of the router with this name.
    #[must_use]
    pub fn of_router(&self, router: &str) -> RouterKey {
        RouterKey(Secret::new(self.bytes_of_router(router)))
    }

    /// The tag of what collectors write for each other, to be computed over it. No router can make it.
    pub(crate) fn tag(&self) -> impl Check<Sum = [u8; 32]> + use<> {
        self.0.authentication(b"flowpeel fleet checkpoint")
    }
}

/// The key of a router, under which it signs its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterKey(pub(crate) Secret);

impl RouterKey {
    /// The key in a file that `flowpeel-fleet key` made.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        RouterKey(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_router_of_each_fleet_has_a_key_of_its_own() {
        let fleets = [1, 2].map(|byte| FleetKey::new(Secret::new([byte; SECRET_SIZE])));
        let keys = [("east", 0), ("west", 0), ("east", 1)].map(|(router, fleet)| fleets[fleet].of_router(router));
        assert!(keys[0] != keys[1] && keys[0] != keys[2]);
        assert_eq!(RouterKey::new(Secret::new(fleets[0].bytes_of_router("east"))), keys[0]);
    }
}
