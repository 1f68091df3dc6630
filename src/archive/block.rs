//! Blocks of entries, of which segments and logs consist.
//!
//! It takes entries and gives bytes with their size and a checksum, stored by column and compressed; and the entries
//! again. A block is whole or it is refused: nothing in it is used before its checksum was verified.
//!
//! | bytes | header |
//! |---|---|
//! | 0..4 | `FPbk` |
//! | 4..8 | number of the file that it belongs to |
//! | 8..12 | entries |
//! | 12..16 | bytes that follow the header |
//! | 16..20 | bytes that these become |
//! | 20..24 | CRC-32 of header and what follows it, these four bytes left out |
//!
//! Numbers are little-endian. After the header comes a zstd frame of columns: a byte of flags for each entry, the ends
//! (each less the one before) and the durations as zigzag LEB128, client addresses, server addresses, client ports,
//! server ports, VLAN words, and by how much the clock was set as zigzag LEB128. Of the last two, only those that are
//! not 0.

use crate::archive::{Entry, Fate};
use crate::flow::{AnyKey, KeyV4, KeyV6, WordKey};

/// The most entries in a block of an archive: enough for compression to work well, and no more than damage may cost.
pub const ARCHIVE_BLOCK_ENTRIES_MAX: usize = 8_192;

/// The level at which archives are compressed: the default of zstd.
const ARCHIVE_COMPRESSION_LEVEL: i32 = 3;

/// The size of a header, in bytes.
pub(super) const HEADER_SIZE: usize = 24;

const MAGIC: [u8; 4] = *b"FPbk";

const MIDSTREAM: u8 = 1 << 3;
const MAY_BE_OLDER: u8 = 1 << 4;
const IPV6: u8 = 1 << 5;
const TAGGED: u8 = 1 << 6;
const CLOCK_SET: u8 = 1 << 7;

/// The most bytes of one entry: flags, three numbers of 10 bytes, two IPv6 addresses, two ports, and tags.
const ENTRY_SIZE_MAX: usize = 1 + 3 * 10 + 2 * 16 + 2 * 2 + 4;

/// The size of the largest block before compression, in bytes.
const RAW_SIZE_MAX: usize = ARCHIVE_BLOCK_ENTRIES_MAX * ENTRY_SIZE_MAX;

/// The size of the largest stored block, in bytes: zstd adds little to what it cannot compress.
pub(super) const STORED_SIZE_MAX: usize = RAW_SIZE_MAX + RAW_SIZE_MAX / 128 + 1024;

const _: () = assert!(STORED_SIZE_MAX < u32::MAX as usize);

/// The header of a block, before its checksum was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) entry_count: usize,
    pub(super) stored_size: usize,
    raw_size: usize,
    checksum: u32,
}

impl Header {
    /// The header in these bytes, if it is possible for a block of this file.
    pub(super) fn read(bytes: &[u8], number: u32) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let header = Header {
            entry_count: word(8)? as usize,
            stored_size: word(12)? as usize,
            raw_size: word(16)? as usize,
            checksum: word(20)?,
        };
        let is_possible = bytes.starts_with(&MAGIC)
            && word(4)? == number
            && (1..=ARCHIVE_BLOCK_ENTRIES_MAX).contains(&header.entry_count)
            && header.stored_size <= STORED_SIZE_MAX
            && header.raw_size <= RAW_SIZE_MAX;
        is_possible.then_some(header)
    }
}

/// Appends the block of these entries, from 1 to [`ARCHIVE_BLOCK_ENTRIES_MAX`].
pub(super) fn encode(entries: &[Entry], number: u32, out: &mut Vec<u8>) -> std::io::Result<()> {
    debug_assert!((1..=ARCHIVE_BLOCK_ENTRIES_MAX).contains(&entries.len()));
    let raw = columns(entries);
    let stored = zstd::bulk::compress(&raw, ARCHIVE_COMPRESSION_LEVEL)?;
    let at = out.len();
    out.extend_from_slice(&MAGIC);
    for word in [number, entries.len() as u32, stored.len() as u32, raw.len() as u32] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let checksum = checksum(&out[at..], &stored);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&stored);
    Ok(())
}

fn checksum(header: &[u8], stored: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(header);
    hash.update(stored);
    hash.finalize()
}

/// Decodes a block from its header, the bytes of the header, and the bytes after it; `None` if it is damaged.
pub(super) fn decode(header: &Header, header_bytes: &[u8], stored: &[u8]) -> Option<Vec<Entry>> {
    let proven = header_bytes.get(..HEADER_SIZE - 4)?;
    if stored.len() != header.stored_size || checksum(proven, stored) != header.checksum {
        return None;
    }
    let raw = zstd::bulk::decompress(stored, header.raw_size).ok()?;
    entries(&raw, header.entry_count)
}

fn columns(entries: &[Entry]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(entries.len() * 24);
    raw.extend(entries.iter().map(flags));
    let mut before = 0;
    for entry in entries {
        put_number(&mut raw, entry.end.wrapping_sub(before));
        before = entry.end;
    }
    entries.iter().for_each(|entry| put_number(&mut raw, entry.end.wrapping_sub(entry.start)));
    for which in [Column::Client, Column::Server, Column::ClientPort, Column::ServerPort, Column::Vlan] {
        for entry in entries {
            match &entry.key {
                AnyKey::V4(key) => which.put(&mut raw, &v4_bytes(key), 4),
                AnyKey::V6(key) => which.put(&mut raw, &v6_bytes(key), 16),
            }
        }
    }
    let set = entries.iter().map(|entry| entry.clock_set).filter(|ticks| *ticks != 0);
    set.for_each(|ticks| put_number(&mut raw, ticks));
    raw
}

fn flags(entry: &Entry) -> u8 {
    entry.fate.code()
        | if entry.midstream { MIDSTREAM } else { 0 }
        | if entry.may_be_older { MAY_BE_OLDER } else { 0 }
        | if matches!(entry.key, AnyKey::V6(_)) { IPV6 } else { 0 }
        | if entry.vlan().iter().next().is_some() { TAGGED } else { 0 }
        | if entry.clock_set != 0 { CLOCK_SET } else { 0 }
}

fn v4_bytes(key: &KeyV4) -> [u8; 16] {
    let words = key.words();
    (u128::from(words[0]) << 64 | u128::from(words[1])).to_be_bytes()
}

fn v6_bytes(key: &KeyV6) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes.chunks_exact_mut(8).zip(key.words()).for_each(|(place, word)| place.copy_from_slice(&word.to_be_bytes()));
    bytes
}

/// The parts of a key as its bytes hold them: address, port, address, port, tags.
#[derive(Clone, Copy)]
enum Column {
    Client,
    Server,
    ClientPort,
    ServerPort,
    Vlan,
}

impl Column {
    /// The bytes of the part in a key whose addresses have this size.
    fn range(self, address_size: usize) -> std::ops::Range<usize> {
        let second = address_size + 2;
        match self {
            Column::Client => 0..address_size,
            Column::ClientPort => address_size..second,
            Column::Server => second..second + address_size,
            Column::ServerPort => second + address_size..2 * second,
            Column::Vlan => 2 * second..2 * second + 4,
        }
    }

    fn put(self, raw: &mut Vec<u8>, key: &[u8], address_size: usize) {
        let part = &key[self.range(address_size)];
        // The tags of a key without tags are not stored.
        if !matches!(self, Column::Vlan) || part != [0; 4] {
            raw.extend_from_slice(part);
        }
    }
}

/// The entries in these columns, if there are exactly `count`.
fn entries(raw: &[u8], count: usize) -> Option<Vec<Entry>> {
    let (flags, mut rest) = raw.split_at_checked(count)?;
    let mut ends = Vec::with_capacity(count);
    let mut before = 0i64;
    for _ in 0..count {
        before = before.wrapping_add(take_number(&mut rest)?);
        ends.push(before);
    }
    let starts: Option<Vec<i64>> = ends.iter().map(|end| Some(end.wrapping_sub(take_number(&mut rest)?))).collect();
    let starts = starts?;
    let mut keys = vec![[0u8; 40]; count];
    for which in [Column::Client, Column::Server, Column::ClientPort, Column::ServerPort, Column::Vlan] {
        for (key, flags) in keys.iter_mut().zip(flags) {
            if matches!(which, Column::Vlan) && flags & TAGGED == 0 {
                continue;
            }
            let range = which.range(if flags & IPV6 == 0 { 4 } else { 16 });
            let part;
            (part, rest) = rest.split_at_checked(range.len())?;
            key[range].copy_from_slice(part);
        }
    }
    let mut entries = Vec::with_capacity(count);
    for (at, flags) in flags.iter().enumerate() {
        let mut words = [0; KeyV6::WORD_COUNT];
        for (word, bytes) in words.iter_mut().zip(keys[at].chunks_exact(8)) {
            *word = u64::from_be_bytes(bytes.try_into().ok()?);
        }
        let is_v4 = flags & IPV6 == 0;
        entries.push(Entry {
            end: ends[at],
            key: if is_v4 { AnyKey::V4(KeyV4::from_words(&words)) } else { AnyKey::V6(KeyV6::from_words(&words)) },
            start: starts[at],
            clock_set: if flags & CLOCK_SET == 0 { 0 } else { take_number(&mut rest)? },
            fate: Fate::of_code(flags & 7)?,
            midstream: flags & MIDSTREAM != 0,
            may_be_older: flags & MAY_BE_OLDER != 0,
        });
    }
    rest.is_empty().then_some(entries)
}

fn put_number(raw: &mut Vec<u8>, number: i64) {
    let mut left = (number << 1 ^ number >> 63) as u64;
    while left > 0x7f {
        raw.push(left as u8 | 0x80);
        left >>= 7;
    }
    raw.push(left as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::flow::VlanTags;
    use crate::record::Ending;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    pub(in crate::archive) fn some_entry() -> impl Strategy<Value = Entry> {
        let ends = prop_oneof![
            any::<((u32, u16), (u32, u16))>().prop_map(|(one, other)| {
                (SocketAddr::from((one.0.to_be_bytes(), one.1)), SocketAddr::from((other.0.to_be_bytes(), other.1)))
            }),
            any::<((u128, u16), (u128, u16))>().prop_map(|(one, other)| {
                (SocketAddr::from((one.0.to_be_bytes(), one.1)), SocketAddr::from((other.0.to_be_bytes(), other.1)))
            }),
        ];
        let vlan = prop::collection::vec(0u16..4096, 0..3);
        (ends, vlan, any::<(i64, i64, i64)>(), 0u8..6, any::<(bool, bool, bool)>()).prop_map(
            |(ends, tags, times, fate, flags)| {
                let vlan = tags.iter().fold(VlanTags::NONE, |vlan, tag| vlan.with(*tag));
                Entry {
                    end: times.0,
                    key: AnyKey::of_ends(ends.0, ends.1, vlan).unwrap(),
                    start: times.1,
                    clock_set: if flags.2 { times.2 } else { 0 },
                    fate: Fate::of_code(fate).unwrap(),
                    midstream: flags.0,
                    may_be_older: flags.1,
                }
            },
        )
    }

    fn decoded(bytes: &[u8], number: u32) -> Option<Vec<Entry>> {
        let header = Header::read(bytes, number)?;
        decode(&header, &bytes[..HEADER_SIZE], &bytes[HEADER_SIZE..])
    }

    proptest! {
        #[test]
        fn entries_come_back(entries in prop::collection::vec(some_entry(), 1..40), number: u32) {
            let mut bytes = Vec::new();
            encode(&entries, number, &mut bytes).unwrap();
            prop_assert_eq!(decoded(&bytes, number), Some(entries));
            prop_assert_eq!(decoded(&bytes, number.wrapping_add(1)), None);
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_noticed(
            entries in prop::collection::vec(some_entry(), 1..20),
            at: prop::sample::Index,
            bit in 0u32..8,
        ) {
            let mut bytes = Vec::new();
            encode(&entries, 7, &mut bytes).unwrap();
            prop_assert_eq!(decoded(&bytes[..at.index(bytes.len())], 7), None);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(decoded(&bytes, 7), None);
        }

        #[test]
        fn any_columns_are_read_or_refused(raw in prop::collection::vec(any::<u8>(), 0..200), count in 0usize..20) {
            if let Some(entries) = super::entries(&raw, count) {
                prop_assert_eq!(entries.len(), count);
            }
        }
    }

    #[test]
    fn ordinary_entries_take_few_bytes() {
        let entry = |index: u32| Entry {
            end: 17_672_256_000 + i64::from(index / 10),
            key: AnyKey::of_ends(
                SocketAddr::from((
                    [10, 0, (index % 7) as u8, (index % 200) as u8],
                    32_768 + (index * 7_919 % 28_000) as u16,
                )),
                SocketAddr::from(([93, 184, 216, (index % 30) as u8], 443)),
                VlanTags::NONE,
            )
            .unwrap(),
            start: 17_672_256_000 + i64::from(index / 10) - i64::from(index % 300),
            clock_set: 0,
            fate: Fate::Ended(Ending::Fin),
            midstream: false,
            may_be_older: false,
        };
        let entries: Vec<Entry> = (0..ARCHIVE_BLOCK_ENTRIES_MAX as u32).map(entry).collect();
        let mut bytes = Vec::new();
        encode(&entries, 1, &mut bytes).unwrap();
        assert!(bytes.len() < 12 * entries.len(), "{} bytes", bytes.len() / entries.len());
        assert_eq!(decoded(&bytes, 1), Some(entries));
    }
}
