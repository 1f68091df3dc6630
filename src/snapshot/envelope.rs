//! The envelope of a snapshot: what proves who wrote each of its parts, and where they stand.
//!
//! A file is a preamble, a head, a directory, the tag of these three, and the sections. The directory has the tag of
//! each section, so the one tag proves the whole, and a section that was damaged is known and costs nothing but itself.
//! The tag of a section is over the head as well (its router, run and interval) and over what the section is, so none
//! can stand in for another, of this file or of any other.
//!
//! Nothing is parsed before it is known to have been written by somebody with the secret, and no more memory is taken
//! than there are bytes, up to the limit.

use super::header::HEAD_SIZE_MAX;
use super::{KeyId, Kind};
use crate::disk::{Check, Checked, Decoder, Encoder};
use crate::error::{Error, Result};
use crate::flow::Family;
use crate::signal::PARTITION_COUNT;
use crate::snapshot::file_format::SNAPSHOT_SIZE_MAX;
use flowpeel_iblt::HASH_COUNT;
use flowpeel_iblt::hash::Secret;
use hmac::Hmac;
use sha2::Sha256;
use std::fmt;
use std::io::{self, Read, Write};
use std::ops::Range;

/// The first bytes of a file. The first of them is not text, and a transfer that treats the file as text damages the
/// last.
const MAGIC: [u8; 8] = *b"\x89FPSNAP\n";

/// The version of the format.
pub const VERSION: u16 = 2;

/// How keys are placed and checked: full AES-128 as a CBC-MAC, 24 bits for each place, 32 for the check of a key and 40
/// for the check of a value.
pub const HASH_ID: u16 = 1;

pub(super) const PREAMBLE_SIZE: usize = 48;
pub(super) const TAG_SIZE: usize = 32;

/// The part of the preamble that does not depend on how the sections are packed.
const PREAMBLE_FIXED_SIZE: usize = 32;

/// The size of an entry of the directory, in bytes: the size of a section, its size packed, and its tag.
const ENTRY_SIZE: usize = 4 + 4 + TAG_SIZE;

/// What packing can add to sections that do not shrink: zstd adds 3 bytes to each 128 KiB, and less than 32 to a frame.
const PACKING_SIZE_MAX: u64 = SNAPSHOT_SIZE_MAX / 1_024 + 32 * Section::count(PARTITION_COUNT) as u64;

const _: () = assert!(SNAPSHOT_SIZE_MAX + PACKING_SIZE_MAX <= u32::MAX as u64);

/// How the sections are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Packing {
    /// They are not packed.
    Plain = 0,
    /// Each is one zstd frame.
    Zstd = 1,
}

/// A part of a file that can be read without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The half-open connections of a partition, those of one router after another.
    HalfOpen {
        /// The partition.
        partition: usize,
    },
    /// A subtable of one of the two tables of a partition.
    Subtable {
        /// Which subtable.
        at: usize,
        /// The table.
        family: Family,
        /// The partition.
        partition: usize,
    },
}

impl Section {
    /// How many sections a file with tables for so many partitions has.
    pub(super) const fn count(partition_count: usize) -> usize {
        partition_count * (1 + 2 * HASH_COUNT)
    }

    /// All sections of a file with tables for so many partitions, in their order. The first subtables of all tables
    /// come before the second ones, so that a file that was cut lists while a quarter of it or less is missing.
    pub(super) fn all(partition_count: usize) -> impl Iterator<Item = Section> {
        let half_open = (0..partition_count).map(|partition| Section::HalfOpen { partition });
        let subtables = (0..HASH_COUNT).flat_map(move |at| {
            let tables = (0..partition_count).flat_map(|partition| [(Family::V4, partition), (Family::V6, partition)]);
            tables.map(move |(family, partition)| Section::Subtable { at, family, partition })
        });
        half_open.chain(subtables)
    }

    /// Its place among all.
    pub(super) fn index(self, partition_count: usize) -> usize {
        match self {
            Section::HalfOpen { partition } => partition,
            Section::Subtable { at, family, partition } => {
                partition_count + 2 * (at * partition_count + partition) + usize::from(family == Family::V6)
            }
        }
    }

    /// What it is, as its tag covers it: what it holds, the subtable, and the partition in two bytes.
    fn name_bytes(self) -> [u8; 4] {
        let (holds, at, partition) = match self {
            Section::HalfOpen { partition } => (0, 0, partition),
            Section::Subtable { at, family: Family::V4, partition } => (1, at, partition),
            Section::Subtable { at, family: Family::V6, partition } => (2, at, partition),
        };
        let [low, high] = (partition as u16).to_le_bytes();
        [holds, at as u8, low, high]
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Section::HalfOpen { partition } => write!(f, "the half-open connections of partition {partition}"),
            Section::Subtable { at, family, partition } => {
                let family = if *family == Family::V4 { "IPv4" } else { "IPv6" };
                write!(f, "subtable {at} of the {family} table of partition {partition}")
            }
        }
    }
}

/// What the first bytes of a file say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preamble {
    pub(super) kind: Kind,
    pub(super) packing: Packing,
    pub(super) key_id: KeyId,
}

impl Preamble {
    fn fixed_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::with_capacity(PREAMBLE_FIXED_SIZE);
        encoder.put(&MAGIC);
        encoder.u16(VERSION);
        encoder.u16(HASH_ID);
        encoder.put(&[self.kind as u8, self.packing as u8, 0, 0]);
        encoder.put(&self.key_id.0);
        encoder.into_bytes()
    }
}

/// Makes and checks the tags of sections, of one file.
struct Proof {
    code: Hmac<Sha256>,
}

impl Proof {
    /// The proof of sections under this head.
    fn new(secret: &Secret, preamble_fixed: &[u8], head: &[u8]) -> Self {
        let mut of_head = secret.authentication(b"flowpeel snapshot head");
        of_head.update(preamble_fixed);
        of_head.update(head);
        let mut code = secret.authentication(b"flowpeel snapshot section");
        code.update(&of_head.sum());
        Proof { code }
    }

    fn of(&self, section: Section, packed: &[u8]) -> Hmac<Sha256> {
        let mut code = self.code.clone();
        code.update(&section.name_bytes());
        code.update(packed);
        code
    }
}

/// A section, packed.
pub(super) struct PackedSection {
    /// Its size before it was packed.
    pub(super) size: u64,
    pub(super) bytes: Vec<u8>,
}

/// Writes a file with this head and these sections, which are all, in their order.
pub(super) fn write_envelope(
    out: &mut impl Write,
    preamble: &Preamble,
    head: &[u8],
    sections: &[(Section, PackedSection)],
    secret: &Secret,
) -> io::Result<()> {
    let fixed = preamble.fixed_bytes();
    let proof = Proof::new(secret, &fixed, head);
    let mut encoder = Encoder::to(Checked::new(&mut *out, secret.authentication(b"flowpeel snapshot file")));
    encoder.put(&fixed);
    encoder.u32(head.len() as u32);
    encoder.u32(sections.len() as u32);
    encoder.u64(sections.iter().map(|(_, packed)| packed.bytes.len() as u64).sum());
    encoder.put(head);
    for (section, packed) in sections {
        encoder.u32(packed.size as u32);
        encoder.u32(packed.bytes.len() as u32);
        encoder.put(&proof.of(*section, &packed.bytes).sum());
    }
    encoder.finish()?.0.finish()?;
    sections.iter().try_for_each(|(_, packed)| out.write_all(&packed.bytes))?;
    out.flush()
}

/// An entry of the directory.
struct Entry {
    /// The size of the section before it was packed.
    size: u64,
    /// Where the section stands among the bytes of all.
    range: Range<usize>,
    tag: [u8; TAG_SIZE],
}

/// What was read of a file: its head and directory, which are genuine, and what stands behind them, which may not be.
pub(super) struct Envelope {
    pub(super) preamble: Preamble,
    /// The head.
    pub(super) head: Vec<u8>,
    entries: Vec<Entry>,
    proof: Proof,
    /// Where the first section begins in the file.
    begin: u64,
    /// The size of all sections, packed.
    packed_size: usize,
    /// The bytes that follow the head, and at most one more.
    bytes: Vec<u8>,
}

impl Envelope {
    /// Reads a file to its end.
    pub(super) fn read(mut input: impl Read, secret: &Secret) -> Result<Self> {
        let mut first = Vec::new();
        fill(&mut input, &mut first, PREAMBLE_SIZE as u64)?;
        let (preamble, sizes) = parse_preamble(&first, secret)?;
        let (head_size, directory_size) = (sizes.head as usize, sizes.section_count as usize * ENTRY_SIZE);
        let mut directory = Vec::new();
        let wanted = head_size + directory_size + TAG_SIZE;
        fill(&mut input, &mut directory, wanted as u64)?;
        if directory.len() < wanted {
            return Err(cut_short(wanted - directory.len() + sizes.packed as usize, PREAMBLE_SIZE + directory.len()));
        }
        let tag = directory.split_off(head_size + directory_size);
        let mut code = secret.authentication(b"flowpeel snapshot file");
        code.update(&first);
        code.update(&directory);
        if !code.is(&tag) {
            let what = "the snapshot was damaged or forged: the authentication code of its head is wrong";
            return Err(Error::new(what));
        }
        let entries = parse_directory(&directory[head_size..], &preamble, &sizes)?;
        directory.truncate(head_size);
        let proof = Proof::new(secret, &first[..PREAMBLE_FIXED_SIZE], &directory);
        let mut bytes = Vec::new();
        // One byte more shows whether something follows.
        fill(&mut input, &mut bytes, sizes.packed + 1)?;
        bytes.shrink_to_fit();
        let begin = (PREAMBLE_SIZE + wanted) as u64;
        Ok(Envelope { preamble, head: directory, entries, proof, begin, packed_size: sizes.packed as usize, bytes })
    }

    /// Checks that what follows the head has the size that the head says.
    pub(super) fn check_size(&self) -> Result<()> {
        let (expected, found) = (self.packed_size, self.bytes.len());
        if found < expected {
            return Err(cut_short(expected - found, self.begin as usize + found));
        }
        if found > expected {
            return Err(Error::new("something follows the snapshot").at(self.begin + expected as u64));
        }
        Ok(())
    }

    /// How many sections there are.
    pub(super) fn section_count(&self) -> usize {
        self.entries.len()
    }

    /// The size of a section before it was packed.
    pub(super) fn size(&self, index: usize) -> u64 {
        self.entries.get(index).map_or(0, |entry| entry.size)
    }

    /// Where the section with this index begins in a file that is whole.
    pub(super) fn offset(&self, index: usize) -> u64 {
        self.begin + self.entries.get(index).map_or(self.packed_size, |entry| entry.range.start) as u64
    }

    /// The packed bytes of a section, if they are genuine. Where bytes are missing from a file the sections behind them
    /// are found by their distance from its end.
    ///
    /// Complexity: a pass over the section, or two where bytes are missing.
    pub(super) fn genuine(&self, section: Section, index: usize) -> Option<&[u8]> {
        let entry = self.entries.get(index)?;
        let missing = self.packed_size.saturating_sub(self.bytes.len());
        let places = [Some(entry.range.clone()), shifted(&entry.range, missing)];
        let mut found = places.into_iter().flatten().filter_map(|range| self.bytes.get(range));
        found.find(|packed| self.proof.of(section, packed).is(&entry.tag))
    }
}

/// The range this much earlier, where that is another.
fn shifted(range: &Range<usize>, missing: usize) -> Option<Range<usize>> {
    let start = range.start.checked_sub(missing).filter(|_| missing > 0)?;
    Some(start..range.end - missing)
}

/// Reads up to this many bytes more.
fn fill(input: &mut impl Read, bytes: &mut Vec<u8>, size: u64) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot read the snapshot").because(error);
    input.take(size).read_to_end(bytes).map(drop).map_err(cannot)
}

fn cut_short(missing: usize, at: usize) -> Error {
    Error::new(format!("the snapshot was cut short: {missing} bytes are missing")).at(at as u64)
}

/// The sizes in a preamble, each within its limit.
struct Sizes {
    head: u32,
    section_count: u32,
    packed: u64,
}

fn parse_preamble(bytes: &[u8], secret: &Secret) -> Result<(Preamble, Sizes)> {
    let refuse = |at: usize, what: String| Err(Error::new(what).at(at as u64));
    if !bytes.starts_with(&MAGIC) {
        return refuse(0, "this is no snapshot of flowpeel".to_owned());
    }
    let Ok(bytes) = <&[u8; PREAMBLE_SIZE]>::try_from(bytes) else {
        return refuse(bytes.len(), "the snapshot was cut short in its first bytes".to_owned());
    };
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let (version, hash_id) = (u16_at(8), u16_at(10));
    if version != VERSION {
        return refuse(
            8,
            format!("version {version} of the format is not known: this flowpeel reads version {VERSION}"),
        );
    }
    if hash_id != HASH_ID {
        return refuse(10, format!("hash id {hash_id} is not known: this flowpeel places keys by hash id {HASH_ID}"));
    }
    let Some(kind) = Kind::of_byte(bytes[12]) else {
        return refuse(12, format!("a snapshot of kind {} is not known", bytes[12]));
    };
    let packing = match bytes[13] {
        0 => Packing::Plain,
        1 => Packing::Zstd,
        other => return refuse(13, format!("packing {other} is not known")),
    };
    if u16_at(14) != 0 {
        return refuse(14, "two bytes that must be zero are not".to_owned());
    }
    let (key_id, own) = (KeyId(std::array::from_fn(|at| bytes[16 + at])), KeyId::of(secret));
    if key_id != own {
        let what = format!("it was written under another secret (key id {key_id}, not {own}): name its --secret-file");
        return refuse(16, what);
    }
    let sizes = Sizes { head: u32_at(32), section_count: u32_at(36), packed: u64_at(40) };
    if sizes.head as usize > HEAD_SIZE_MAX {
        return refuse(32, format!("the snapshot claims a head of {} bytes: {HEAD_SIZE_MAX} are the most", sizes.head));
    }
    if ![1, PARTITION_COUNT].iter().any(|partitions| Section::count(*partitions) == sizes.section_count as usize) {
        return refuse(36, format!("a snapshot of {} sections is not known", sizes.section_count));
    }
    if sizes.packed > SNAPSHOT_SIZE_MAX + PACKING_SIZE_MAX {
        return refuse(40, format!("the snapshot claims {} bytes: more than is read", sizes.packed));
    }
    Ok((Preamble { kind, packing, key_id }, sizes))
}

/// The entries, whose sizes add up to what the preamble says.
fn parse_directory(bytes: &[u8], preamble: &Preamble, sizes: &Sizes) -> Result<Vec<Entry>> {
    let mut from = Decoder::of_file(bytes, bytes.len() as u64);
    let mut entries = Vec::new();
    let (mut end, mut unpacked) = (0u64, u64::from(sizes.head));
    for _ in 0..sizes.section_count {
        let (size, packed_size) = (from.u32()?, from.u32()?);
        let mut tag = [0; TAG_SIZE];
        from.fill(&mut tag)?;
        let start = end;
        end += u64::from(packed_size);
        unpacked += u64::from(size);
        if preamble.packing == Packing::Plain && size != packed_size {
            return Err(from.refuse("two sizes that must be equal are not"));
        }
        if end > sizes.packed || unpacked > SNAPSHOT_SIZE_MAX {
            return Err(from.refuse(format!("the sections have {unpacked} bytes, packed in {end}: more than is said")));
        }
        entries.push(Entry { size: u64::from(size), range: start as usize..end as usize, tag });
    }
    if end != sizes.packed {
        return Err(from.refuse("the sections have fewer bytes than is said"));
    }
    Ok(entries)
}
