//! Community ID, version 1: a short identifier of a connection that every tool computes from its addresses and ports.
//!
//! It is not taken from a crate because a list may have a million lines with one each, and this allocates nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::block_api::compress;
use std::net::{IpAddr, SocketAddr};

/// The protocol number of TCP.
const TCP: u8 = 6;

/// The initial state of SHA-1 (FIPS 180-4).
const SHA1_BEGIN: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
/// The size of a block of SHA-1. The input of an ID fits one block with its length.
const BLOCK_SIZE: usize = 64;

/// The size of a SHA-1 hash.
pub(super) const DIGEST_SIZE: usize = 20;

/// The size of the version and the base64 form of a SHA-1 hash.
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
    CommunityId::of_digest(digest(one, other))
}

/// The hash of the connection between two ends, in either order, that its Community ID consists of.
pub(super) fn digest(one: SocketAddr, other: SocketAddr) -> [u8; DIGEST_SIZE] {
    let (first, second) =
        if (one.ip(), one.port()) <= (other.ip(), other.port()) { (one, other) } else { (other, one) };
    // In an array, so that it is not copied to be compressed.
    let (mut blocks, mut size) = ([[0; BLOCK_SIZE]], 2);
    let block = &mut blocks[0];
    let mut put = |bytes: &[u8]| {
        block[size..size + bytes.len()].copy_from_slice(bytes);
        size += bytes.len();
    };
    for end in [first, second] {
        match end.ip() {
            IpAddr::V4(addr) => put(&addr.octets()),
            IpAddr::V6(addr) => put(&addr.octets()),
        }
    }
    put(&[TCP, 0]);
    put(&first.port().to_be_bytes());
    put(&second.port().to_be_bytes());
    // The end of the message, and its length in bits at the end of the block.
    block[size] = 0x80;
    block[BLOCK_SIZE - 2..].copy_from_slice(&(8 * size as u16).to_be_bytes());
    let mut state = SHA1_BEGIN;
    compress(&mut state, &blocks);
    let mut hash = [0; DIGEST_SIZE];
    hash.as_chunks_mut().0.iter_mut().zip(state).for_each(|(bytes, word)| *bytes = word.to_be_bytes());
    hash
}

/// A Community ID as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunityId([u8; TEXT_SIZE]);

impl CommunityId {
    pub(super) fn of_digest(hash: [u8; DIGEST_SIZE]) -> Self {
        let mut text = *b"1:0000000000000000000000000000";
        // The text has exactly the room that the hash takes.
        let written = STANDARD.encode_slice(hash, &mut text[2..]);
        debug_assert!(written.is_ok_and(|size| size == TEXT_SIZE - 2));
        CommunityId(text)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The ID as text.
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
