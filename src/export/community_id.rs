//! Community ID, version 1: the same short name for a connection in every tool that knows its addresses and ports.
//!
//! Written here rather than taken from a crate because a list has a line for each of a million connections, and this needs no
//! allocation for any of them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use std::net::{IpAddr, SocketAddr};

/// The protocol number of TCP.
const TCP: u8 = 6;
/// The version, and the base64 form of a SHA-1 hash.
const TEXT_SIZE: usize = 2 + 28;

/// The Community ID of the TCP connection between two ends, in either order, with seed 0.
///
/// ```
/// let id = flowpeel::export::community_id("128.232.110.120:34855".parse()?, "66.35.250.204:80".parse()?);
/// assert_eq!(id.as_str(), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn community_id(one: SocketAddr, other: SocketAddr) -> CommunityId {
    let (first, second) =
        if (one.ip(), one.port()) <= (other.ip(), other.port()) { (one, other) } else { (other, one) };
    let mut hash = Sha1::new();
    hash.update([0, 0]);
    for end in [first, second] {
        match end.ip() {
            IpAddr::V4(addr) => hash.update(addr.octets()),
            IpAddr::V6(addr) => hash.update(addr.octets()),
        }
    }
    hash.update([TCP, 0]);
    hash.update(first.port().to_be_bytes());
    hash.update(second.port().to_be_bytes());
    let mut text = *b"1:0000000000000000000000000000";
    // The text has just the room that the hash takes.
    let written = STANDARD.encode_slice(hash.finalize(), &mut text[2..]);
    debug_assert!(written.is_ok_and(|size| size == TEXT_SIZE - 2));
    CommunityId(text)
}

/// A Community ID as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunityId([u8; TEXT_SIZE]);

impl CommunityId {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_have_one_id() {
        // The IPv6 vector is that of the specification's baseline.
        let one: SocketAddr = "[2001:470:e5bf:dead:4957:2174:e82c:4887]:63943".parse().unwrap();
        let other: SocketAddr = "[2607:f8b0:400c:c03::1a]:25".parse().unwrap();
        assert_eq!(community_id(one, other), community_id(other, one));
        assert_eq!(community_id(one, other).as_str(), "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=");
    }
}
