//! A field in a file: written whole, read back, or looked up in place.
//!
//! The head is followed by the words of all arrays, and then by a CRC-32 for each block of 4 KiB of these (the last may
//! be shorter), over the block's number and its bytes. Nothing is trusted before its checksum and the file's length
//! have been verified. Files are read by position and not mapped: a file that is cut while it is mapped kills its
//! readers, and the pages are in the system's cache either way.

use crate::error::{FileError, Result};
use crate::header::{self, HEADER_SIZE};
use crate::{Contents, Field, Found, Plan, ReadWindows, look_up};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of a field's file under one checksum: a page, which the system reads at once.
const BFIELD_BLOCK_SIZE: usize = 4_096;

const WORD_SIZE: usize = size_of::<u64>();
const CHECK_SIZE: usize = size_of::<u32>();
const BLOCK_WORD_COUNT: usize = BFIELD_BLOCK_SIZE / WORD_SIZE;

/// The checksum of a block. It covers the block's number, so that blocks cannot change places.
fn check_of(block_index: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block_index.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Saves a field in this file, replacing an older one: at any time the path names a whole file that is on the disk.
/// Returns the file's size in bytes. Who cares for permissions and for the name of the temporary file calls
/// [`write()`].
///
/// # Errors
///
/// The file cannot be written; an older file stays as it was.
pub fn save(field: &Field, path: &Path) -> Result<u64> {
    let cannot = |error: io::Error| FileError::new("cannot write the field").in_file(path).because(error);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(directory).map_err(cannot)?;
    write(field, &mut BufWriter::new(file.as_file())).map_err(cannot)?;
    file.as_file().sync_all().map_err(cannot)?;
    let file = file.persist(path).map_err(|error| cannot(error.error))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(cannot)?;
    Ok(file.metadata().map_err(cannot)?.len())
}

/// Writes the bytes of a field's file, and flushes `out`.
///
/// # Errors
///
/// Any error of `out`.
pub fn write(field: &Field, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&header::encode(field.plan(), field.contents()))?;
    let mut words = (0..field.plan().arrays().len()).flat_map(|array_index| field.words(array_index));
    let (mut block, mut checks) = (Vec::with_capacity(BFIELD_BLOCK_SIZE), Vec::new());
    loop {
        block.clear();
        words.by_ref().take(BLOCK_WORD_COUNT).for_each(|word| block.extend_from_slice(&word.to_le_bytes()));
        if block.is_empty() {
            break;
        }
        out.write_all(&block)?;
        checks.push(check_of(checks.len() as u64, &block));
    }
    checks.iter().try_for_each(|check| out.write_all(&check.to_le_bytes()))?;
    out.flush()
}

/// A field that stays in its file. A look-up reads a few blocks, and verifies each.
#[derive(Debug)]
pub struct FieldFile {
    path: PathBuf,
    blocks: Blocks,
    plan: Plan,
    contents: Contents,
}

/// The blocks of a file, one of which is in memory.
#[derive(Debug)]
struct Blocks {
    file: File,
    /// Where each array begins and where the last one ends, in words.
    array_offsets: Vec<u64>,
    /// The length of a window, in bits.
    nu: u64,
    block_index: Option<u64>,
    block: Vec<u8>,
}

/// Why a block cannot be used.
enum Unread {
    Failed(io::Error),
    Damaged { offset: u64 },
}

impl FieldFile {
    /// Opens a file that [`save`] wrote, and reads its head.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no field file, is damaged, or has another length than its head says.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = |error: io::Error| FileError::new("cannot read the field").in_file(path).because(error);
        let mut file = File::open(path).map_err(cannot)?;
        let mut head = [0; HEADER_SIZE];
        file.read_exact(&mut head).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FileError::new("it is not a field's file").in_file(path),
            _ => cannot(error),
        })?;
        let (plan, contents) = header::decode(&head).map_err(|what| FileError::new(what).in_file(path))?;
        let mut array_offsets = vec![0];
        for array in plan.arrays() {
            array_offsets.push(array_offsets[array_offsets.len() - 1] + plan.word_count(array));
        }
        let blocks =
            Blocks { file, array_offsets, nu: u64::from(plan.code().nu()), block_index: None, block: Vec::new() };
        let (expected, found) = (blocks.file_size(), blocks.file.metadata().map_err(cannot)?.len());
        if expected != found {
            let what = format!("it has {found} bytes, and {expected} by its head: build it again");
            return Err(FileError::new(what).in_file(path));
        }
        Ok(FieldFile { path: path.to_path_buf(), blocks, plan, contents })
    }

    /// The plan that the field was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How many pairs are in the field, and whether it is settled.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// What is known of a key.
    ///
    /// Complexity: about three reads of a block for most keys that are not in the field, `k` for one that is.
    ///
    /// # Errors
    ///
    /// A block that is needed cannot be read, or is damaged.
    pub fn look_up(&mut self, hash: u128) -> Result<Found> {
        let found = look_up(&self.plan, &mut self.blocks, hash, self.contents.is_settled);
        found.map_err(|unread| unread.into_error(&self.path))
    }

    /// Verifies all blocks without looking anything up.
    ///
    /// # Errors
    ///
    /// A block cannot be read, or is damaged.
    pub fn verify(&mut self) -> Result<()> {
        let mut index = 0..self.blocks.block_count();
        let read = index.try_for_each(|block_index| self.blocks.read(block_index));
        read.map_err(|unread| unread.into_error(&self.path))
    }
}

/// Reads a field back into memory, verifying every block.
///
/// # Errors
///
/// Fails as [`FieldFile::open`] and [`FieldFile::verify`] do.
pub fn load(path: &Path) -> Result<Field> {
    let mut file = FieldFile::open(path)?;
    // The file has this length, so no head makes this larger than an existing file.
    let counts: Vec<u64> = file.plan.arrays().iter().map(|array| file.plan.word_count(array)).collect();
    let mut arrays: Vec<Vec<u64>> = counts.iter().map(|count| Vec::with_capacity(*count as usize)).collect();
    let mut array_index = 0;
    for block_index in 0..file.blocks.block_count() {
        file.blocks.read(block_index).map_err(|unread| unread.into_error(path))?;
        for bytes in file.blocks.block.chunks_exact(WORD_SIZE) {
            while arrays[array_index].len() as u64 == counts[array_index] {
                array_index += 1;
            }
            arrays[array_index].push(u64::from_le_bytes(std::array::from_fn(|at| bytes[at])));
        }
    }
    let field = Field::from_words(&file.plan, arrays, file.contents);
    field.map_err(|error| FileError::new("its head describes another field").in_file(path).because(error))
}

impl Blocks {
    fn word_count(&self) -> u64 {
        self.array_offsets.last().copied().unwrap_or(0)
    }

    fn block_count(&self) -> u64 {
        self.word_count().div_ceil(BLOCK_WORD_COUNT as u64)
    }

    /// The size of the file, in bytes. The sizes of a plan add up without overflow.
    fn file_size(&self) -> u64 {
        HEADER_SIZE as u64 + self.word_count() * WORD_SIZE as u64 + self.block_count() * CHECK_SIZE as u64
    }

    /// Reads a block, unless it was the last one read.
    fn read(&mut self, block_index: u64) -> std::result::Result<(), Unread> {
        if self.block_index == Some(block_index) {
            return Ok(());
        }
        self.block_index = None;
        let before = block_index * BLOCK_WORD_COUNT as u64;
        let word_count = (self.word_count() - before).min(BLOCK_WORD_COUNT as u64);
        let offset = HEADER_SIZE as u64 + before * WORD_SIZE as u64;
        self.block.resize(word_count as usize * WORD_SIZE, 0);
        self.file.seek(SeekFrom::Start(offset)).map_err(Unread::Failed)?;
        self.file.read_exact(&mut self.block).map_err(Unread::Failed)?;
        let checks = HEADER_SIZE as u64 + self.word_count() * WORD_SIZE as u64;
        let mut check = [0; CHECK_SIZE];
        self.file.seek(SeekFrom::Start(checks + block_index * CHECK_SIZE as u64)).map_err(Unread::Failed)?;
        self.file.read_exact(&mut check).map_err(Unread::Failed)?;
        if check_of(block_index, &self.block).to_le_bytes() != check {
            return Err(Unread::Damaged { offset });
        }
        self.block_index = Some(block_index);
        Ok(())
    }

    fn word(&mut self, index: u64) -> std::result::Result<u64, Unread> {
        self.read(index / BLOCK_WORD_COUNT as u64)?;
        let at = (index % BLOCK_WORD_COUNT as u64) as usize * WORD_SIZE;
        Ok(u64::from_le_bytes(std::array::from_fn(|byte| self.block[at + byte])))
    }
}

impl ReadWindows for Blocks {
    type Error = Unread;

    fn window(&mut self, array_index: usize, place: u64) -> std::result::Result<u64, Unread> {
        let offset = self.array_offsets[array_index];
        let bits = u64::from(u64::BITS);
        let (first, last) = (place / bits, (place + self.nu - 1) / bits);
        let low = self.word(offset + first)?;
        let high = if last == first { 0 } else { self.word(offset + last)? };
        Ok(((u128::from(high) << bits | u128::from(low)) >> (place % bits)) as u64)
    }
}

impl Unread {
    fn into_error(self, path: &Path) -> FileError {
        match self {
            Unread::Failed(error) => FileError::new("cannot read the field").in_file(path).because(error),
            Unread::Damaged { offset } => FileError::new("a block is damaged: build it again").in_file(path).at(offset),
        }
    }
}
