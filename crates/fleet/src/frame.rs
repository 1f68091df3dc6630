//! A frame: what one interval of a router brought for one partition, signed by the router.
//!
//! It takes the image of a partition, and the one before, and gives bytes; and from bytes the same again, or the reason
//! why they are refused. A frame holds either the whole image or how it differs from an earlier one, which it names by
//! its hash: what opened and closed, listed, and beside that tables and head XORed with the earlier ones after these
//! changes. So what did not change is zero, and what peels is not in four cells but in one place. All is compressed.
//! `docs/fleet.md` has the format byte by byte.
//!
//! The law: a frame that opens is exactly one that the router of that name has sealed. The tag stands
//! before the contents and is over their size and hash, so that nothing is kept or unpacked before it is known who has
//! written it.

use crate::key::RouterKey;
use flowpeel::disk::{Check, Decoder, Encoder};
use flowpeel::error::Error;
use flowpeel::export::SnapshotName;
use flowpeel::signal::PARTITION_COUNT;
use flowpeel::snapshot::{KeyId, PartitionImage, ROUTER_NAME_SIZE_MAX, SNAPSHOT_SIZE_MAX, VERSION, is_name};
use flowpeel_iblt::hash::Secret;
use sha2::{Digest, Sha256};
use std::io::Read;

/// The first bytes of a frame.
const MAGIC: [u8; 4] = *b"\x89FPF";

/// The version of the format. A reader passes over what later versions add to the header.
pub const FRAME_VERSION: u16 = 1;

/// The earliest version whose readers understand what this one writes.
const READABLE_FROM: u16 = 1;

/// Magic, two versions, and the size of the header.
const PREAMBLE_SIZE: usize = 4 + 2 + 2 + 4;

const TAG_SIZE: usize = 32;

/// The most bytes of a header: that of this version has less than 400, with names of full length.
const HEADER_SIZE_MAX: usize = 4 << 10;

/// The most bytes of what stands before the contents of a frame.
pub const FRAME_START_SIZE_MAX: usize = PREAMBLE_SIZE + HEADER_SIZE_MAX + TAG_SIZE;

/// The most bytes of an image: a partition's part of the largest tables, and beside them all half-open connections that
/// a router can have, in one partition.
pub const IMAGE_SIZE_MAX: u64 = SNAPSHOT_SIZE_MAX / PARTITION_COUNT as u64 + (16 << 20);

/// The most bytes of a frame's contents: what compression adds to an image that does not shrink is less than this.
const CONTENTS_SIZE_MAX: u64 = IMAGE_SIZE_MAX + IMAGE_SIZE_MAX / 128 + 1_024;

/// The most bytes of a frame.
pub const FRAME_SIZE_MAX: u64 = FRAME_START_SIZE_MAX as u64 + CONTENTS_SIZE_MAX;

const _: () = assert!(FRAME_SIZE_MAX < u32::MAX as u64);

/// How far frames are compressed. Level 1 takes half the time for 2 to 4 % more, level 9 four times as long for 3 %
/// less.
const COMPRESSION_LEVEL: i32 = 3;

/// The largest window that the compression of a frame may ask for, as a power of two.
const WINDOW_LOG_MAX: u32 = 23;

/// Which run of a router something is of. Its tables begin empty with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId {
    /// The number of the run; 0 in replays.
    pub run: u64,
    /// When it began, in ns since 1970, if that is still known.
    pub origin_ns: Option<i64>,
}

impl RunId {
    /// Whether both are the same run.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let have_one_origin = match (self.origin_ns, other.origin_ns) {
            (Some(origin_ns), Some(other_ns)) => origin_ns == other_ns,
            _ => true,
        };
        self.run == other.run && have_one_origin
    }
}

/// When an interval ended, by a clock that never steps back within a run: the tick, and the time in it in ns.
pub type End = (u64, i64);

/// The SHA-256 of an image.
pub type ImageHash = [u8; 32];

/// What a frame is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The router's name.
    pub router: String,
    /// The identity of the secret under which the tables were filled.
    pub key_id: KeyId,
    /// The run.
    pub run: RunId,
    /// The number of the interval in its run.
    pub interval: u64,
    /// The end of the interval.
    pub end: End,
    /// The name of the snapshot's file.
    pub name: SnapshotName,
    /// The partition.
    pub partition: usize,
}

/// Why a frame, or a piece of one, is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is no frame.
    NoFrame,
    /// It is of a version that this reader does not understand.
    Version,
    /// It came under the subject of another router or partition.
    Subject,
    /// The router's tables were filled under another secret.
    Secret,
    /// The tag is wrong: somebody without the router's key made it.
    Tag,
    /// It claims more than any frame has.
    Size,
    /// Pieces of it are missing.
    Cut,
    /// The contents are not what was signed.
    Contents,
    /// It came already, or a later one did.
    Late,
    /// The image that it builds on is not there.
    Base,
    /// A later snapshot was there before all partitions of this one.
    Unfinished,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 11] = [
        Refusal::NoFrame,
        Refusal::Version,
        Refusal::Subject,
        Refusal::Secret,
        Refusal::Tag,
        Refusal::Size,
        Refusal::Cut,
        Refusal::Contents,
        Refusal::Late,
        Refusal::Base,
        Refusal::Unfinished,
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::NoFrame => "no_frame",
            Refusal::Version => "version",
            Refusal::Subject => "subject",
            Refusal::Secret => "secret",
            Refusal::Tag => "tag",
            Refusal::Size => "size",
            Refusal::Cut => "cut",
            Refusal::Contents => "contents",
            Refusal::Late => "late",
            Refusal::Base => "base",
            Refusal::Unfinished => "unfinished",
        }
    }

    /// The reason in words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Refusal::NoFrame => "no frames of flowpeel",
            Refusal::Version => "of a version that is not known",
            Refusal::Subject => "under another router's subject",
            Refusal::Secret => "of a router with another secret",
            Refusal::Tag => "signed with a wrong key",
            Refusal::Size => "too large",
            Refusal::Cut => "cut short",
            Refusal::Contents => "damaged",
            Refusal::Late => "late or twice",
            Refusal::Base => "without the one that they build on",
            Refusal::Unfinished => "of snapshots of which a part never came",
        }
    }
}

/// How an image is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Encoding {
    /// By itself.
    Whole = 0,
    /// As changes to an earlier image: those that are listed, and what is left XORed.
    Changes = 1,
}

/// An image and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// The image.
    pub image: PartitionImage,
    /// Its hash.
    pub hash: ImageHash,
}

impl Hashed {
    /// An image with its hash.
    ///
    /// Complexity: a pass over the image.
    #[must_use]
    pub fn new(image: PartitionImage) -> Self {
        let mut hash = Sha256::new();
        for part in [&image.head, &image.tables, &image.half_open] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Hashed { hash: hash.finalize().into(), image }
    }
}

/// The sizes of the parts of a frame's contents before compression, in bytes: the listed changes, and an image.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    changes: u32,
    head: u32,
    tables: u32,
    half_open: u32,
}

impl Sizes {
    fn sum(self) -> u64 {
        u64::from(self.changes) + u64::from(self.head) + u64::from(self.tables) + u64::from(self.half_open)
    }
}

/// The beginning of a frame, which is genuine.
#[derive(Clone, Debug)]
pub struct FrameStart {
    /// What the frame is of.
    pub place: Place,
    /// The hash of the image.
    pub hash: ImageHash,
    /// The hash of the image that it builds on; `None` if it is whole.
    pub base: Option<ImageHash>,
    sizes: Sizes,
    contents_size: usize,
    contents_hash: [u8; 32],
    /// The size of what stands before the contents.
    start_size: usize,
}

/// The keys of a router.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// The secret under which its tables are filled.
    pub secret: &'a Secret,
    /// The key that its frames are signed with.
    pub router: &'a RouterKey,
}

/// Seals the image of a partition, as changes to an earlier image of it or by itself.
///
/// Complexity: some passes over the image, the decoding of what changed, and the compression.
///
/// # Errors
///
/// The image is larger than any that would be read.
pub fn seal(place: &Place, image: &Hashed, base: Option<&Hashed>, keys: Keys) -> Result<Vec<u8>, Error> {
    let Hashed { image: parts, hash } = image;
    let changes = base.map(|base| base.image.changes_to(parts, keys.secret)).unwrap_or_default();
    let size = |part: &Vec<u8>| u32::try_from(part.len()).unwrap_or(u32::MAX);
    let sizes = Sizes {
        changes: size(&changes),
        head: size(&parts.head),
        tables: size(&parts.tables),
        half_open: size(&parts.half_open),
    };
    if sizes.sum() > IMAGE_SIZE_MAX {
        return Err(Error::new("a partition of this snapshot is too large to be sent: lower --churn"));
    }
    let plain = plain(parts, base.map(|base| &base.image), &changes, keys.secret)?;
    let contents = zstd::bulk::compress(&plain, COMPRESSION_LEVEL);
    let contents = contents.map_err(|error| Error::new("cannot compress a frame").because(error))?;
    let mut header = Encoder::with_capacity(512);
    header.u16(VERSION);
    header.put(&place.key_id.0);
    put_text(&mut header, &place.router);
    header.u64(place.run.run);
    header.option(place.run.origin_ns, Encoder::i64);
    header.u64(place.interval);
    header.u64(place.end.0);
    header.i64(place.end.1);
    put_text(&mut header, &place.name.to_string());
    header.u8(place.partition as u8);
    [sizes.changes, sizes.head, sizes.tables, sizes.half_open].into_iter().for_each(|size| header.u32(size));
    header.put(hash);
    header.u8(if base.is_some() { Encoding::Changes } else { Encoding::Whole } as u8);
    if let Some(base) = base {
        header.put(&base.hash);
    }
    header.u32(contents.len() as u32);
    header.put(&Sha256::digest(&contents));
    let header = header.into_bytes();
    let mut frame = Encoder::with_capacity(PREAMBLE_SIZE + header.len() + TAG_SIZE + contents.len());
    frame.put(&MAGIC);
    frame.u16(FRAME_VERSION);
    frame.u16(READABLE_FROM);
    frame.u32(header.len() as u32);
    frame.put(&header);
    let mut frame = frame.into_bytes();
    let tag = tag(&frame, keys.router);
    frame.extend_from_slice(&tag.sum());
    frame.extend_from_slice(&contents);
    Ok(frame)
}

fn tag(start: &[u8], key: &RouterKey) -> impl Check<Sum = [u8; TAG_SIZE]> + use<> {
    let mut code = key.0.authentication(b"flowpeel fleet frame");
    Check::update(&mut code, start);
    code
}

fn put_text(out: &mut Encoder, text: &str) {
    // Names of routers and of files are shorter than this.
    out.u8(text.len() as u8);
    out.put(text.as_bytes());
}

/// The contents of a frame before compression.
fn plain(
    parts: &PartitionImage,
    base: Option<&PartitionImage>,
    changes: &[u8],
    secret: &Secret,
) -> Result<Vec<u8>, Error> {
    let mut plain = [changes, &parts.head, &parts.tables, &parts.half_open].concat();
    if let Some(base) = base {
        let (head, rest) = plain[changes.len()..].split_at_mut(parts.head.len());
        xor(head, &base.head);
        xor(&mut rest[..parts.tables.len()], &base.tables_with(changes, secret)?);
    }
    Ok(plain)
}

/// XORs bytes with as many of others as there are. What is longer stays as it is.
fn xor(bytes: &mut [u8], others: &[u8]) {
    bytes.iter_mut().zip(others).for_each(|(byte, other)| *byte ^= other);
}

impl FrameStart {
    /// Reads the beginning of a frame that came under this subject, from the first of its bytes. `key_of` gives the key
    /// of a router.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub fn read(
        bytes: &[u8],
        (router, partition): (&str, usize),
        key_id: KeyId,
        key: &RouterKey,
    ) -> Result<Self, Refusal> {
        let start = bytes.get(..PREAMBLE_SIZE).filter(|start| start.starts_with(&MAGIC)).ok_or(Refusal::NoFrame)?;
        let readable_from = u16::from_le_bytes([start[6], start[7]]);
        if readable_from > FRAME_VERSION || start[4..6] == [0, 0] {
            return Err(Refusal::Version);
        }
        let header_size = u32::from_le_bytes(std::array::from_fn(|at| start[8 + at])) as usize;
        if header_size > HEADER_SIZE_MAX {
            return Err(Refusal::Size);
        }
        let signed = bytes.get(..PREAMBLE_SIZE + header_size).ok_or(Refusal::Cut)?;
        let start_size = signed.len() + TAG_SIZE;
        let given = bytes.get(signed.len()..start_size).ok_or(Refusal::Cut)?;
        // Which secret and version it is of says more than that the tag is wrong, and costs nothing.
        let header = &signed[PREAMBLE_SIZE..];
        if header.get(..2) != Some(&VERSION.to_le_bytes()) {
            return Err(Refusal::Version);
        }
        if header.get(2..18) != Some(&key_id.0) {
            return Err(Refusal::Secret);
        }
        if !tag(signed, key).is(given) {
            return Err(Refusal::Tag);
        }
        let read = parse_header(&mut Decoder::of_file(header, header.len() as u64), start_size);
        let read = read.map_err(|_| Refusal::NoFrame)?;
        if (read.place.router.as_str(), read.place.partition) != (router, partition) {
            return Err(Refusal::Subject);
        }
        if read.sizes.sum() > IMAGE_SIZE_MAX || read.contents_size as u64 > CONTENTS_SIZE_MAX {
            return Err(Refusal::Size);
        }
        Ok(read)
    }

    /// The size of the whole frame, in bytes.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        self.start_size + self.contents_size
    }

    /// The image in a frame with this beginning, which builds on `base` if it is not whole.
    ///
    /// Complexity: some passes over the image. No more is unpacked than was signed.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub fn image(&self, frame: &[u8], base: Option<&Hashed>, secret: &Secret) -> Result<Hashed, Refusal> {
        let contents = frame.get(self.start_size..).filter(|contents| contents.len() == self.contents_size);
        let contents = contents.ok_or(Refusal::Cut)?;
        if Sha256::digest(contents).as_slice() != self.contents_hash {
            return Err(Refusal::Contents);
        }
        let base = match self.base {
            None => None,
            Some(hash) => Some(base.filter(|base| base.hash == hash).ok_or(Refusal::Base)?),
        };
        let plain = unpacked(contents, self.sizes.sum()).ok_or(Refusal::Contents)?;
        let mut changes = plain;
        let mut head = changes.split_off(self.sizes.changes as usize);
        let mut tables = head.split_off(self.sizes.head as usize);
        let half_open = tables.split_off(self.sizes.tables as usize);
        if let Some(base) = base {
            xor(&mut head, &base.image.head);
            xor(&mut tables, &base.image.tables_with(&changes, secret).map_err(|_| Refusal::Contents)?);
        }
        let image = Hashed::new(PartitionImage { head, tables, half_open });
        if image.hash == self.hash { Ok(image) } else { Err(Refusal::Contents) }
    }
}

fn parse_header(from: &mut Decoder<&[u8]>, start_size: usize) -> Result<FrameStart, Error> {
    from.u16()?;
    let mut key_id = KeyId::default();
    from.fill(&mut key_id.0)?;
    let router = text(from)?;
    if !is_name(&router) || router.is_empty() {
        return Err(from.refuse("a router's name is no text"));
    }
    let run = RunId { run: from.u64()?, origin_ns: from.option(Decoder::i64)? };
    let (interval, end) = (from.u64()?, (from.u64()?, from.i64()?));
    let name = text(from)?;
    let name = SnapshotName::parse(&name).ok_or_else(|| from.refuse("this is no name of a snapshot"))?;
    let partition = usize::from(from.u8()?);
    let sizes = Sizes { changes: from.u32()?, head: from.u32()?, tables: from.u32()?, half_open: from.u32()? };
    let (mut hash, mut base) = ([0; 32], [0; 32]);
    from.fill(&mut hash)?;
    let base = match from.u8()? {
        encoding if encoding == Encoding::Whole as u8 => None,
        encoding if encoding == Encoding::Changes as u8 => {
            from.fill(&mut base)?;
            Some(base)
        }
        other => return Err(from.refuse(format!("encoding {other} is not known"))),
    };
    let contents_size = from.u32()? as usize;
    let mut contents_hash = [0; 32];
    from.fill(&mut contents_hash)?;
    // What follows was added by later versions.
    let place = Place { router, key_id, run, interval, end, name, partition };
    Ok(FrameStart { place, hash, base, sizes, contents_size, contents_hash, start_size })
}

fn text(from: &mut Decoder<&[u8]>) -> Result<String, Error> {
    let mut text = [0; ROUTER_NAME_SIZE_MAX];
    let size = usize::from(from.u8()?);
    let Some(text) = text.get_mut(..size) else { return Err(from.refuse("a name of too many bytes")) };
    from.fill(text)?;
    let text = std::str::from_utf8(text).map(str::to_owned);
    text.map_err(|_| from.refuse("a name is no text"))
}

/// The contents unpacked, if they are exactly so many bytes.
fn unpacked(contents: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut unpacker = zstd::stream::read::Decoder::with_buffer(contents).ok()?;
    unpacker.window_log_max(WINDOW_LOG_MAX).ok()?;
    let mut plain = Vec::new();
    unpacker.take(size + 1).read_to_end(&mut plain).ok()?;
    (plain.len() as u64 == size).then_some(plain)
}

#[cfg(test)]
mod tests;
