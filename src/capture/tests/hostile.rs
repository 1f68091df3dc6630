//! Files cut, damaged and made up: never a panic, never without an end, and what came before the damage is intact.

use proptest::prelude::*;

use super::build::{Dribble, Pcap, Pcapng, Seen};
use super::build::{gzip, packets, replay, replay_bytes, zstd};
use super::{MICROSECONDS, MODIFIED, NANOSECONDS, small_pcap};
use crate::capture::byte_order::ByteOrder::{self, Big, Little};

/// A pcapng file with every kind of block.
fn small_pcapng(first: ByteOrder, second: ByteOrder) -> Vec<u8> {
    Pcapng::new(first)
        .interface(1, 0, &[(2, b"eth0"), (9, &[9]), (14, &[0; 8])])
        .enhanced(0, 1, b"enhanced")
        .block(0x0bad, b"what is this")
        .simple(5, b"short")
        .section(second)
        .ethernet()
        .obsolete(0, 1, b"old")
        .enhanced(0, 2, b"")
        .bytes
}

/// Every small file with the places at which it may end: between records or blocks.
fn small_files() -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut files = Vec::new();
    for order in [Little, Big] {
        for (magic, header) in [(MICROSECONDS, 16), (NANOSECONDS, 16), (MODIFIED, 24)] {
            let ends = [0, header + 5, 2 * header + 5, 3 * header + 11].map(|end| 24 + end).to_vec();
            files.push((small_pcap(order, magic), ends));
        }
        for other in [Little, Big] {
            let bytes = small_pcapng(order, other);
            let mut ends = Vec::new();
            let mut end = 0;
            // Section headers have 28 bytes, an interface with three options 48; the rest follows from the bodies.
            for size in [28, 48, 40, 24, 24, 28, 20, 36, 32] {
                end += size;
                ends.push(end);
            }
            assert_eq!(end, bytes.len());
            files.push((bytes, ends));
        }
    }
    files
}

#[test]
fn a_file_cut_anywhere_yields_what_precedes_the_cut() {
    for (bytes, ends) in small_files() {
        let whole = packets(&bytes);
        assert_eq!(ends.last(), Some(&bytes.len()));
        for cut in 1..bytes.len() {
            let (seen, error) = replay_bytes(&bytes[..cut]);
            assert!(whole.starts_with(&seen), "cut at {cut}");
            assert_eq!(error.is_none(), ends.contains(&cut), "cut at {cut}: {error:?}");
            if let Some(error) = error {
                let start = ends.iter().rev().find(|end| **end <= cut).copied().unwrap_or(0);
                assert_eq!(error.offset(), Some(start as u64), "cut at {cut}: {error}");
            }
        }
    }
}

#[test]
fn a_compressed_file_cut_anywhere_says_so() {
    let bytes = small_pcapng(Little, Big);
    let whole = packets(&bytes);
    for stored in [gzip(&bytes), zstd(&bytes)] {
        for cut in 1..stored.len() {
            let (seen, error) = replay_bytes(&stored[..cut]);
            assert!(whole.starts_with(&seen), "cut at {cut}");
            assert!(error.is_some_and(|error| error.offset().is_some()), "cut at {cut}");
        }
    }
}

#[test]
fn every_byte_of_every_small_file_may_be_wrong() {
    for (bytes, _) in small_files() {
        for index in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, bytes[index] ^ 4] {
                let mut damaged = bytes.clone();
                damaged[index] = value;
                let (seen, _) = replay_bytes(&damaged);
                assert!(seen.len() <= damaged.len() / 12);
            }
        }
    }
}

fn stored(bytes: &[u8], compression: u8) -> Vec<u8> {
    match compression {
        0 => bytes.to_vec(),
        1 => gzip(bytes),
        _ => zstd(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn made_up_bytes_come_to_an_end(
        start in 0_usize..11, mut bytes in prop::collection::vec(any::<u8>(), 0..600), compression in 0_u8..3,
    ) {
        // Behind a good header the made-up bytes get further.
        if let Some((good, _)) = small_files().get(start) {
            bytes.splice(0..0, good[..28].iter().copied());
        }
        replay_bytes(&bytes);
        replay(std::io::Cursor::new(stored(&bytes, compression)), bytes.len());
    }

    #[test]
    fn mutated_files_come_to_an_end(
        file in 0_usize..10, mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        compression in 0_u8..3,
    ) {
        let (mut bytes, _) = small_files().swap_remove(file);
        let plain_size = bytes.len();
        for (index, value) in &mutations {
            bytes[index.index(plain_size)] = *value;
        }
        let (plain, _) = replay_bytes(&bytes);
        let (slow, _) = replay(Dribble::new(&stored(&bytes, compression)), plain_size);
        prop_assert_eq!(plain, slow);
        let mut bytes = stored(&small_files().swap_remove(file).0, compression);
        let stored_size = bytes.len();
        for (index, value) in mutations {
            bytes[index.index(stored_size)] = value;
        }
        // Damaged compression may expand to more than it was made from.
        replay(std::io::Cursor::new(bytes), 1 << 20);
    }

    #[test]
    fn what_is_written_is_read(
        written in prop::collection::vec((any::<u32>(), 0_u32..1_000_000, prop::collection::vec(any::<u8>(), 0..300)), 0..40),
        is_big in any::<bool>(), compression in 0_u8..3,
    ) {
        let order = if is_big { Big } else { Little };
        let mut pcap = Pcap::new(order, MICROSECONDS, 1);
        let mut pcapng = Pcapng::new(order).ethernet();
        let mut expected: Vec<Seen> = Vec::new();
        for (seconds, microseconds, packet) in &written {
            let time_us = u64::from(*seconds) * 1_000_000 + u64::from(*microseconds);
            pcap = pcap.packet(*seconds, *microseconds, packet);
            pcapng = pcapng.enhanced(0, time_us, packet);
            expected.push((time_us as i64 * 1000, 1, packet.clone()));
        }
        prop_assert_eq!(packets(&stored(&pcap.bytes, compression)), expected.clone());
        prop_assert_eq!(packets(&stored(&pcapng.bytes, compression)), expected);
    }
}
