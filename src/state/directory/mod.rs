//! The generations of a run's state in a directory: the newest sound one is read, then new ones are written.
//!
//! It takes parts to save and gives files `state-<number>`, each written under a temporary name, forced to the disk and
//! only then renamed, so a name stands for a whole file whenever the process ends. The newest and the one before it are
//! kept.

use crate::disk::whole_file::{NewFile, Temporary, directory_of};
use crate::error::{Error, Result};
use crate::state::generation::{self, Identity};
use crate::state::lock;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Read, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// Generations of a state that are kept: the newest, and one to fall back to.
const STATE_GENERATION_COUNT: usize = 2;

const _: () = assert!(STATE_GENERATION_COUNT >= 2, "the newest may be damaged");

const PREFIX: &str = "state-";
/// The name of a file that is being written, which only the owner may read.
const TEMPORARY: Temporary = Temporary { prefix: ".state-", suffix: ".tmp", mode: 0o600 };
/// The file with the number of the run, which stands for as long as the directory does.
const RUN: &str = "run";
/// Digits in a name, so that names order as numbers do.
const DIGIT_COUNT: usize = 16;
/// The most bytes that are read of what stands beside the generations.
const KEPT_SIZE_MAX: u64 = 1 << 20;
/// Hexadecimal digits of the number of a run.
const RUN_DIGIT_COUNT: usize = 16;

/// A directory of generations, held for this process.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    identity: Identity,
    /// The numbers of the files that are there, in the order in which they are to be removed.
    numbers: Vec<u64>,
    /// The number of the next generation.
    next: u64,
    /// The lock of the directory, held as long as this value exists.
    _lock: Option<File>,
}

/// A generation that was read.
#[derive(Clone, Debug)]
pub struct Saved {
    bytes: Vec<u8>,
    /// Where each part lies in the bytes.
    parts: Vec<std::ops::Range<usize>>,
    /// The number of the generation.
    pub number: u64,
}

impl Saved {
    /// The parts, in the order in which they were saved.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.parts.iter().map(|range| &self.bytes[range.clone()])
    }
}

/// A directory that was opened, and the state in it.
#[derive(Debug)]
pub struct Opened {
    /// The directory to save to.
    pub directory: StateDirectory,
    /// The newest sound generation; `None` if nothing was saved yet.
    pub saved: Option<Saved>,
    /// Damaged generations that were passed over.
    pub warnings: Vec<Error>,
}

impl StateDirectory {
    /// Locks a directory, which is created if it does not exist, and reads the newest sound generation in it, of at
    /// most `size_max` bytes.
    ///
    /// # Errors
    ///
    /// Another process holds the directory, others may read it, it cannot be created or read, its state is of another
    /// run, or none of its generations is sound. Nothing was changed then.
    pub fn open(path: &Path, identity: Identity, size_max: u64) -> Result<Opened> {
        let cannot = |error: io::Error| Error::new("cannot keep the state here").in_file(path).because(error);
        make(path)?;
        let lock = lock(path, "another process keeps its state here: give each a directory of its own")?;
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path).map_err(cannot)? {
            numbers.extend(entry.map_err(cannot)?.file_name().to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        let mut warnings = Vec::new();
        let mut saved = None;
        for number in numbers.iter().rev() {
            let file = path.join(name_of(*number));
            saved = read(&file, *number, &identity, size_max).map_err(|error| error.in_file(&file))?;
            if saved.is_some() {
                break;
            }
            warnings.push(Error::new("this state is damaged, and is passed over").in_file(&file));
        }
        if saved.is_none() && !numbers.is_empty() {
            let what = "no state in here is sound: remove it to begin anew";
            return Err(Error::new(what).in_file(path));
        }
        if lock.is_some() {
            TEMPORARY.remove_leftovers(path).map_err(cannot)?;
        }
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        // Damaged ones are no state to fall back to, so they are removed first.
        let sound = saved.as_ref().map_or(0, |saved| saved.number);
        numbers.sort_unstable_by_key(|number| (*number <= sound, *number));
        let directory = StateDirectory { path: path.to_path_buf(), identity, numbers, next, _lock: lock };
        Ok(Opened { directory, saved, warnings })
    }

    /// The number of the run that keeps its state here: drawn when it is first asked for, and the same at every later
    /// start, whether a generation was saved meanwhile or not. It is never zero.
    ///
    /// # Errors
    ///
    /// The number cannot be read or kept.
    pub fn run_number(&self) -> Result<NonZeroU64> {
        if let Some(bytes) = self.kept(RUN)? {
            let digits = bytes.strip_suffix(b"\n").filter(|digits| digits.len() == RUN_DIGIT_COUNT);
            let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
            let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).and_then(NonZeroU64::new);
            let what = "the number of the run is damaged: remove the directory to begin anew";
            return number.ok_or_else(|| Error::new(what).in_file(self.path.join(RUN)));
        }
        // The seeds of a hash map are random numbers of the system.
        let number = NonZeroU64::new(RandomState::new().hash_one(std::process::id())).unwrap_or(NonZeroU64::MIN);
        self.keep(RUN, format!("{number:0RUN_DIGIT_COUNT$x}\n").as_bytes())?;
        Ok(number)
    }

    /// What is [kept](Self::keep) under this name; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn kept(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(KEPT_SIZE_MAX).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::new("cannot read what belongs to the state").in_file(&path).because(error)),
        }
    }

    /// Keeps something that stands beside the generations, for as long as the directory does.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let cannot = |error| Error::new("cannot keep what belongs to the state").in_file(&path).because(error);
        let file = NewFile::begin(&path, &TEMPORARY).map_err(cannot)?;
        file.file().write_all(bytes).map_err(cannot)?;
        file.finish().map(drop).map_err(cannot)
    }

    /// Saves the parts as a new generation. The one before is kept, older ones are removed. Returns the size of the
    /// file in bytes.
    ///
    /// # Errors
    ///
    /// The generation could not be written. What was saved before is still there.
    pub fn save(&mut self, parts: &[Vec<u8>]) -> Result<u64> {
        let cannot = |error: io::Error| Error::new("cannot save the state").in_file(&self.path).because(error);
        let file = NewFile::begin(&self.path.join(name_of(self.next)), &TEMPORARY).map_err(cannot)?;
        let size = generation::write(BufWriter::new(file.file()), self.next, &self.identity, parts).map_err(cannot)?;
        file.finish().map_err(cannot)?;
        self.numbers.push(self.next);
        self.next = self.next.saturating_add(1);
        let surplus = self.numbers.len().saturating_sub(STATE_GENERATION_COUNT);
        for number in self.numbers.drain(..surplus).collect::<Vec<_>>() {
            match fs::remove_file(self.path.join(name_of(number))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
                _ => {}
            }
        }
        Ok(size)
    }
}

/// Creates the directory, or checks that others cannot read the one that exists.
fn make(path: &Path) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot keep the state here").in_file(path).because(error);
    // Those above it are nothing special, and whoever may look into them learns nothing.
    fs::create_dir_all(directory_of(path)).map_err(cannot)?;
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(cannot),
    }
    let metadata = fs::metadata(path).map_err(cannot)?;
    if !metadata.is_dir() {
        return Err(Error::new("it is not a directory: the state is kept in one").in_file(path));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0 {
        return Err(
            Error::new("others may read this directory, and a state holds addresses: chmod 700 it").in_file(path)
        );
    }
    Ok(())
}

/// Reads the file of a generation; `None` if it is damaged.
fn read(path: &Path, number: u64, identity: &Identity, size_max: u64) -> Result<Option<Saved>> {
    let cannot = |error: io::Error| Error::new("cannot read the state").because(error);
    let file = File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() || metadata.len() > size_max {
        return Err(Error::new("this state is larger than --memory allows: raise it, or remove the directory"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(size_max).read_to_end(&mut bytes).map_err(cannot)?;
    let start = bytes.as_ptr() as usize;
    let parts = generation::read(&bytes, number, identity)?.map(|parts| {
        let range = |part: &[u8]| (part.as_ptr() as usize - start)..(part.as_ptr() as usize - start + part.len());
        parts.into_iter().map(range).collect()
    });
    Ok(parts.map(|parts| Saved { bytes, parts, number }))
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:0DIGIT_COUNT$}")
}

/// The number in a name, if it is exactly a name of a generation.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name_of(number) == name).then_some(number)
}

#[cfg(test)]
mod tests;
