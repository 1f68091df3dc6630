//! What a collector needs to continue the lists of a router, as bytes and back.
//!
//! It takes the files from which a collector that starts again continues (the last list, the note of how far it is, the
//! snapshot that the next frames build on) and gives one compressed stream of them; and beside it a [`Description`],
//! by which another collector knows that all of it is there. What is read was written by whoever has the key of the
//! fleet: names and sizes are checked all the same.

use crate::lists::HEAD;
use flowpeel::agent::NOTE_FILE;
use flowpeel::disk::whole_file::{NewFile, Temporary};
use flowpeel::error::{Error, Result};
use flowpeel::export::{ListName, SnapshotName};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The first bytes of a checkpoint, before compression: the last is the version of the format.
const MAGIC: [u8; 4] = *b"FPC\x01";

/// The most files of a checkpoint: a list in full and a day of changes every ten seconds are fewer.
const FILE_COUNT_MAX: usize = 16_384;

/// How far checkpoints are compressed: to 42 bytes a connection, of which level 3 saves a hundredth.
const COMPRESSION_LEVEL: i32 = 1;

/// The largest window that the compression of a checkpoint may ask for, as a power of two.
const WINDOW_LOG_MAX: u32 = 23;

/// The temporary name of a file while it is being restored.
const TEMPORARY: Temporary = Temporary { prefix: ".restored-", suffix: ".tmp", mode: 0o640 };

/// Where the files of a router are.
#[derive(Clone, Copy, Debug)]
pub struct Directories<'a> {
    /// The lists, and the note of how far they are.
    pub lists: &'a Path,
    /// The snapshot that the next frames build on, and the head of its images.
    pub received: &'a Path,
}

/// A checkpoint of a router: what it is of, and where its pieces are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// When its list ended by the router's clock, in ns since 1970.
    pub end_ns: i64,
    /// The number of the last message of the stream of frames that is in it.
    pub after: u64,
    /// The number of the first of its pieces, which follow each other.
    pub first_piece: u64,
    /// How many pieces it has.
    pub piece_count: u64,
    /// Its bytes.
    pub size: u64,
    /// The SHA-256 of these.
    pub hash: [u8; 32],
}

/// In which of its directories a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    Lists = 1,
    Received = 2,
}

/// Writes these files as a checkpoint, in this order.
///
/// Complexity: reading and compressing them; memory for the compression alone.
///
/// # Errors
///
/// A file cannot be read, or `out` not be written to.
pub fn pack(files: &[PathBuf], directories: Directories, out: impl Write) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot compress a checkpoint").because(error);
    let mut out = zstd::stream::write::Encoder::new(out, COMPRESSION_LEVEL).map_err(cannot)?;
    out.write_all(&MAGIC).map_err(cannot)?;
    for path in files {
        let cannot_read =
            |error: io::Error| Error::new("cannot copy it into a checkpoint").in_file(path).because(error);
        let place = if path.parent() == Some(directories.received) { Place::Received } else { Place::Lists };
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_name(place, name));
        let name = name.ok_or_else(|| Error::new("this file belongs in no checkpoint").in_file(path))?;
        let file = File::open(path).map_err(cannot_read)?;
        let size = file.metadata().map_err(cannot_read)?.len();
        // All names that are ours are shorter than 256 bytes.
        out.write_all(&[place as u8, name.len() as u8]).map_err(cannot)?;
        out.write_all(name.as_bytes()).map_err(cannot)?;
        out.write_all(&size.to_le_bytes()).map_err(cannot)?;
        if io::copy(&mut file.take(size), &mut out).map_err(cannot_read)? != size {
            return Err(Error::new("it became shorter while it was copied into a checkpoint").in_file(path));
        }
    }
    out.write_all(&[0]).map_err(cannot)?;
    out.finish().map(drop).map_err(cannot)
}

/// Puts the files of a checkpoint into these directories, each whole or not at all, in the order in which they were
/// packed.
///
/// # Errors
///
/// It is no checkpoint, or a file cannot be written. The files before it are there.
pub fn unpack(from: impl Read, directories: Directories) -> Result<()> {
    let damaged = |error: io::Error| Error::new("the checkpoint is damaged").because(error);
    let mut from = zstd::stream::read::Decoder::new(from).map_err(damaged)?;
    from.window_log_max(WINDOW_LOG_MAX).map_err(damaged)?;
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(damaged)?;
    if magic != MAGIC {
        return Err(Error::new("this is no checkpoint, or one of a version that is not known"));
    }
    for _ in 0..FILE_COUNT_MAX {
        let mut place = [0];
        from.read_exact(&mut place).map_err(damaged)?;
        let (place, directory) = match place[0] {
            0 => return Ok(()),
            place if place == Place::Lists as u8 => (Place::Lists, directories.lists),
            place if place == Place::Received as u8 => (Place::Received, directories.received),
            _ => break,
        };
        let (mut name_size, mut name, mut size) = ([0], Vec::new(), [0; 8]);
        from.read_exact(&mut name_size).map_err(damaged)?;
        from.by_ref().take(u64::from(name_size[0])).read_to_end(&mut name).map_err(damaged)?;
        from.read_exact(&mut size).map_err(damaged)?;
        let name = std::str::from_utf8(&name).ok().filter(|name| is_name(place, name));
        let Some(name) = name else { break };
        restore(&directory.join(name), from.by_ref().take(u64::from_le_bytes(size)))?;
    }
    Err(Error::new("the checkpoint has files that belong in none"))
}

/// Writes a file whole or not at all.
fn restore(path: &Path, mut from: io::Take<impl Read>) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot restore it from a checkpoint").in_file(path).because(error);
    let file = NewFile::begin(path, &TEMPORARY).map_err(cannot)?;
    io::copy(&mut from, &mut file.file()).map_err(cannot)?;
    if from.limit() > 0 {
        return Err(Error::new("the checkpoint was cut short within this file").in_file(path));
    }
    file.finish().map(drop).map_err(cannot)
}

/// Whether a checkpoint has files of this name there.
fn is_name(place: Place, name: &str) -> bool {
    match place {
        Place::Lists => name == NOTE_FILE || ListName::parse(name).is_some(),
        Place::Received => SnapshotName::parse(name.strip_suffix(HEAD).unwrap_or(name)).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    struct Places {
        lists: TempDir,
        received: TempDir,
    }

    impl Places {
        fn new() -> Self {
            let [lists, received] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            Places { lists, received }
        }

        fn directories(&self) -> Directories<'_> {
            Directories { lists: self.lists.path(), received: self.received.path() }
        }

        /// The files of a router, with something in them.
        fn fill(&self) -> Vec<PathBuf> {
            let snapshot = "snapshot-20260101T000010Z.flowpeel";
            let lists = ["flows-20260101T000000Z.ndjson.zst", "changes-20260101T000010Z.ndjson.zst"];
            let received = [snapshot.to_owned(), format!("{snapshot}{HEAD}")];
            let files = lists.iter().map(|name| self.lists.path().join(name));
            let files = files.chain(received.iter().map(|name| self.received.path().join(name)));
            let files: Vec<_> = files.chain([self.lists.path().join(NOTE_FILE)]).collect();
            files.iter().enumerate().for_each(|(at, path)| fs::write(path, vec![at as u8; 1_000 * at]).unwrap());
            files
        }
    }

    #[test]
    fn files_come_back_as_they_were() {
        let [from, to] = [(); 2].map(|()| Places::new());
        let files = from.fill();
        let mut packed = Vec::new();
        pack(&files, from.directories(), &mut packed).unwrap();
        unpack(&packed[..], to.directories()).unwrap();
        for path in files {
            let is_list = path.parent() == Some(from.lists.path());
            let directory = if is_list { to.lists.path() } else { to.received.path() };
            assert_eq!(fs::read(directory.join(path.file_name().unwrap())).unwrap(), fs::read(&path).unwrap());
        }
        assert_eq!(fs::read_dir(to.lists.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_is_cut_or_damaged_is_refused() {
        let [from, to] = [(); 2].map(|()| Places::new());
        let mut packed = Vec::new();
        pack(&from.fill(), from.directories(), &mut packed).unwrap();
        for size in 0..packed.len() {
            assert!(unpack(&packed[..size], to.directories()).is_err(), "{size}");
        }
        packed[10] ^= 0x40;
        // Whoever reads one compares its hash before: here nothing must break.
        drop(unpack(&packed[..], to.directories()));
    }

    #[test]
    fn no_name_leads_elsewhere() {
        let places = Places::new();
        for (place, name) in [(1u8, "../x"), (1, "/etc/passwd"), (1, ""), (1, ".bashrc"), (2, NOTE_FILE), (3, "x")] {
            let mut plain = [&MAGIC[..], &[place, name.len() as u8], name.as_bytes(), &1u64.to_le_bytes()].concat();
            plain.extend_from_slice(b"x\0");
            let packed = zstd::bulk::compress(&plain, 1).unwrap();
            let error = unpack(&packed[..], places.directories()).unwrap_err();
            assert!(error.to_string().contains("files that belong in none"), "{name}: {error}");
        }
        let path = places.lists.path().join("notes.txt");
        fs::write(&path, "x").unwrap();
        assert!(pack(&[path], places.directories(), Vec::new()).is_err());
    }
}
