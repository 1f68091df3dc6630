//! Snapshots of many routers -> the lists of each, in a folder of its own.
//!
//! It takes snapshots as they become whole and gives the lists that the routers would have written: the same agent
//! makes them that follows the directory of one router (`flowpeel snapshot collect`). The last snapshot of each router
//! stays on the disk, since frames to come build on it; what is in its list is on the disk before anybody hears that
//! the snapshot is done with.

use crate::checkpoint::{self, Directories};
use crate::inbox::Received;
use crate::subject;
use flowpeel::agent::{Agent, AgentConfig, AgentCounts, AgentEvent, AgentObserver};
use flowpeel::disk::whole_file::{NewFile, Temporary};
use flowpeel::error::{Error, Result};
use flowpeel::export::{Format, Keep, SnapshotName};
use flowpeel::signal::PartitionSet;
use flowpeel::snapshot::SnapshotFile;
use flowpeel_iblt::hash::Secret;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The folder for the snapshots that frames build on. No router's folder begins with a dot.
const RECEIVED: &str = ".received";

/// The temporary name of a snapshot while it is being written.
const TEMPORARY: Temporary = Temporary { prefix: ".received-", suffix: ".tmp", mode: 0o640 };

/// What the name of a snapshot gets for the file with the head of its images.
pub(crate) const HEAD: &str = ".head";

/// The file with the name of the directory of lists, by which a collector that starts again is known.
const NAME: &str = ".name";

/// The most bytes of that name.
const NAME_SIZE_MAX: u64 = 256;

/// The longest head that is read, in bytes: one of a snapshot of one router takes some hundreds.
const HEAD_SIZE_MAX: u64 = 1 << 20;

/// Where lists go, and how they are written.
#[derive(Clone, Debug)]
pub struct ListsConfig {
    /// The directory with a folder for each router.
    pub out: PathBuf,
    /// The secret under which tables are filled.
    pub secret: Secret,
    /// How lists are written.
    pub format: Format,
    /// How much of each router's lists is kept.
    pub keep: Keep,
    /// The partitions that are taken: of a share of them parts of lists are written.
    pub partitions: PartitionSet,
    /// The directory with a folder for each router with its own lists, or a copy: one of them is begun with where there
    /// is neither a list in `out` to continue from nor a checkpoint.
    pub bases: Option<PathBuf>,
}

impl ListsConfig {
    /// Where the lists of a router are.
    fn lists(&self, router: &str) -> PathBuf {
        self.out.join(subject::folder(router))
    }

    /// Where the snapshot is that a router's next frames build on.
    fn received(&self, router: &str) -> PathBuf {
        self.out.join(RECEIVED).join(subject::folder(router))
    }

    fn agent(&self, snapshots: PathBuf, router: &str) -> Result<Agent> {
        let lists = self.lists(router);
        fs::create_dir_all(&lists).map_err(|error| cannot_create(&lists, error))?;
        let (secret, format, keep) = (self.secret.clone(), self.format.clone(), self.keep);
        let part = (self.partitions != PartitionSet::ALL).then_some(self.partitions);
        let base = self.bases.as_ref().map(|bases| bases.join(subject::folder(router)));
        Agent::new(&AgentConfig { snapshots, lists, secret, format, keep, part, base })
    }
}

fn cannot_create(path: &Path, error: io::Error) -> Error {
    Error::new("cannot create it").in_file(path).because(error)
}

/// The lists of routers whose snapshots come from elsewhere.
pub struct Lists {
    config: ListsConfig,
    routers: BTreeMap<String, Desk>,
}

/// The place where one router's lists are made.
struct Desk {
    received: PathBuf,
    agent: Agent,
}

impl Lists {
    /// Continues with what is in the directory: lists that were not yet written when the process before ended are
    /// written now.
    ///
    /// # Errors
    ///
    /// The directory cannot be read or written to, or another process writes to it.
    pub fn new(config: ListsConfig, observer: &mut impl AgentObserver) -> Result<Self> {
        config.format.check()?;
        let received = config.out.join(RECEIVED);
        fs::create_dir_all(&received).map_err(|error| cannot_create(&received, error))?;
        let mut lists = Lists { config, routers: BTreeMap::new() };
        let cannot = |error| Error::new("cannot look for routers here").in_file(&received).because(error);
        for entry in fs::read_dir(&received).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            if let Some(router) = name.to_str().and_then(subject::router_of_folder) {
                let desk = lists.desk(&router)?;
                desk.agent.once(observer)?;
            }
        }
        Ok(lists)
    }

    /// The last snapshot of each router, which the next frames build on, with the head of its images where it lacks
    /// partitions. Routers of which there is none, or none that can be read, are not among them.
    ///
    /// # Errors
    ///
    /// A directory cannot be read.
    pub fn last_snapshots(&self) -> Result<Vec<(SnapshotFile, Option<Vec<u8>>)>> {
        let mut snapshots = Vec::new();
        for desk in self.routers.values() {
            let all = names(&desk.received)?.into_iter();
            let all = all.filter_map(|name| {
                let path = desk.received.join(name.to_string());
                Some((SnapshotFile::open(&path, &self.config.secret).ok()?, read_head(&head_of(&path))))
            });
            // Where a clock stepped back the last name is not the last snapshot.
            snapshots.extend(all.max_by_key(|(snapshot, _)| {
                let source = snapshot.header.sources.first();
                source.map(|source| (source.figures.end_ns, source.end_tick, source.within_tick_ns))
            }));
        }
        Ok(snapshots)
    }

    /// Writes the list of a snapshot. When this returns it is on the disk, and so is the snapshot.
    ///
    /// # Errors
    ///
    /// The list or the snapshot could not be written. Those before it are whole.
    pub fn write<T>(&mut self, received: &Received<T>, observer: &mut impl AgentObserver) -> Result<()> {
        let secret = self.config.secret.clone();
        let is_part = self.config.partitions != PartitionSet::ALL;
        let desk = self.desk(&received.router)?;
        let path = desk.received.join(received.name.to_string());
        let cannot = |error: io::Error| Error::new("cannot write the snapshot").in_file(&path).because(error);
        if is_part {
            // The half-open connections of the other partitions are in the head alone, as counts.
            let file = NewFile::begin(&head_of(&path), &TEMPORARY).map_err(cannot)?;
            file.file().write_all(&received.head).map_err(cannot)?;
            file.finish().map_err(cannot)?;
        }
        let file = NewFile::begin(&path, &TEMPORARY).map_err(cannot)?;
        received.snapshot.write(&mut io::BufWriter::new(file.file()), &secret)?;
        file.finish().map_err(cannot)?;
        desk.agent.once(observer)?;
        for name in names(&desk.received)?.into_iter().filter(|name| *name != received.name) {
            let path = desk.received.join(name.to_string());
            // There is none where all partitions are taken, or where a run was killed behind this.
            drop(fs::remove_file(head_of(&path)));
            fs::remove_file(&path).map_err(cannot)?;
        }
        Ok(())
    }

    /// The directory with a folder for each router.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.config.out
    }

    /// The name of the directory of lists, which becomes `new` if it has none.
    ///
    /// # Errors
    ///
    /// The name cannot be read or written.
    pub fn name(&self, new: &str) -> Result<String> {
        let path = self.config.out.join(RECEIVED).join(NAME);
        let cannot = |error: io::Error| Error::new("cannot name the directory of lists").in_file(&path).because(error);
        let mut name = String::new();
        match File::open(&path) {
            Ok(file) => drop(file.take(NAME_SIZE_MAX).read_to_string(&mut name).map_err(cannot)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = NewFile::begin(&path, &TEMPORARY).map_err(cannot)?;
                file.file().write_all(new.as_bytes()).map_err(cannot)?;
                file.finish().map_err(cannot)?;
                new.clone_into(&mut name);
            }
            Err(error) => return Err(cannot(error)),
        }
        Ok(name)
    }

    /// A checkpoint of a router, in a file without a name: from it another collector continues with the next list.
    ///
    /// # Errors
    ///
    /// There is no list of this router, or its files cannot be read or the checkpoint not be written.
    pub fn checkpoint(&self, router: &str) -> Result<File> {
        let none = || Error::new("there is no list of this router that a checkpoint could be made of");
        let desk = self.routers.get(router).ok_or_else(none)?;
        let name = names(&desk.received)?.pop().ok_or_else(none)?;
        let snapshot = desk.received.join(name.to_string());
        let mut files = desk.agent.files()?;
        let note = files.pop().ok_or_else(none)?;
        files.extend([head_of(&snapshot)].into_iter().filter(|head| head.is_file()));
        // Whoever is killed while files are restored has no note, and restores them again.
        files.extend([snapshot, note]);
        let cannot = |error: io::Error| Error::new("cannot write a checkpoint").in_file(&desk.received).because(error);
        let mut packed = tempfile::tempfile_in(&desk.received).map_err(cannot)?;
        let directories = Directories { lists: &self.config.lists(router), received: &desk.received };
        checkpoint::pack(&files, directories, &packed)?;
        packed.rewind().map_err(cannot)?;
        Ok(packed)
    }

    /// Continues a router's lists from a checkpoint, in the place of what is here of it.
    ///
    /// # Errors
    ///
    /// The checkpoint cannot be read, or the files of it not be written.
    pub fn restore(&mut self, router: &str, packed: impl Read, observer: &mut impl AgentObserver) -> Result<()> {
        self.routers.remove(router);
        let received = self.config.received(router);
        let lists = self.config.lists(router);
        for directory in [&received, &lists] {
            fs::create_dir_all(directory).map_err(|error| cannot_create(directory, error))?;
        }
        checkpoint::unpack(packed, Directories { lists: &lists, received: &received })?;
        self.desk(router)?.agent.once(observer)
    }

    /// What was done for all routers since the start.
    #[must_use]
    pub fn counts(&self) -> AgentCounts {
        self.routers.values().map(|desk| desk.agent.counts()).fold(AgentCounts::default(), added)
    }

    /// How many routers there are.
    #[must_use]
    pub fn router_count(&self) -> usize {
        self.routers.len()
    }

    fn desk(&mut self, router: &str) -> Result<&mut Desk> {
        if !self.routers.contains_key(router) {
            let received = self.config.received(router);
            fs::create_dir_all(&received).map_err(|error| cannot_create(&received, error))?;
            let agent = self.config.agent(received.clone(), router)?;
            self.routers.insert(router.to_owned(), Desk { received, agent });
        }
        self.routers.get_mut(router).ok_or_else(|| Error::new("a router without a place for its lists"))
    }
}

fn added(sum: AgentCounts, counts: AgentCounts) -> AgentCounts {
    AgentCounts {
        lists: sum.lists + counts.lists,
        incomplete: sum.incomplete + counts.incomplete,
        passed_over: sum.passed_over + counts.passed_over,
        covered: sum.covered + counts.covered,
        refused: sum.refused + counts.refused,
    }
}

/// The file with the head of the images of a snapshot.
fn head_of(snapshot: &Path) -> PathBuf {
    let mut name = snapshot.as_os_str().to_owned();
    name.push(HEAD);
    name.into()
}

/// The head in this file, if there is one. What is not the head on which the next frames build costs what a lost frame
/// does.
fn read_head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(HEAD_SIZE_MAX).read_to_end(&mut head)).ok()?;
    Some(head)
}

/// The names of the snapshots in a directory.
fn names(directory: &Path) -> Result<Vec<SnapshotName>> {
    let cannot = |error: io::Error| Error::new("cannot look for snapshots here").in_file(directory).because(error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        names.extend(entry.map_err(cannot)?.file_name().to_str().and_then(SnapshotName::parse));
    }
    names.sort_unstable();
    Ok(names)
}

/// The lists of routers whose directories of snapshots are here: a fleet without a broker.
pub struct LocalLists {
    config: ListsConfig,
    /// The directories of routers that are not known yet, since there is no snapshot that names one.
    unnamed: Vec<PathBuf>,
    routers: BTreeMap<String, Agent>,
}

impl LocalLists {
    /// Lists of the routers that write snapshots to these directories, one router to each.
    ///
    /// # Errors
    ///
    /// Lists cannot be written in this format.
    pub fn new(config: ListsConfig, directories: Vec<PathBuf>) -> Result<Self> {
        config.format.check()?;
        Ok(LocalLists { config, unnamed: directories, routers: BTreeMap::new() })
    }

    /// Writes the lists of the snapshots that have come since the last look.
    ///
    /// # Errors
    ///
    /// A directory cannot be read, a list cannot be written, or two directories are of one router.
    pub fn look(&mut self, is_last_look: bool, observer: &mut impl AgentObserver) -> Result<()> {
        for directory in std::mem::take(&mut self.unnamed) {
            let Some(router) = router_of(&directory, &self.config.secret)? else {
                self.unnamed.push(directory);
                continue;
            };
            if self.routers.contains_key(&router) {
                let what = "another directory is of the same router: give each router a name of its own with --router";
                return Err(Error::new(what).in_file(directory));
            }
            self.routers.insert(router.clone(), self.config.agent(directory, &router)?);
        }
        for agent in self.routers.values_mut() {
            if observer.is_stopped() {
                break;
            }
            if is_last_look { agent.once(observer) } else { agent.look(observer) }?;
        }
        if is_last_look {
            for directory in &self.unnamed {
                let what = "there is no snapshot here that names its router";
                observer.report(AgentEvent::Refused(Error::new(what).in_file(directory)));
            }
        }
        Ok(())
    }

    /// What was done for all routers since the start.
    #[must_use]
    pub fn counts(&self) -> AgentCounts {
        self.routers.values().map(Agent::counts).fold(AgentCounts::default(), added)
    }
}

/// The router of the snapshots in a directory; `None` if there is none that can be read.
fn router_of(directory: &Path, secret: &Secret) -> Result<Option<String>> {
    let all = names(directory)?.into_iter();
    let mut all = all.filter_map(|name| SnapshotFile::open(&directory.join(name.to_string()), secret).ok());
    let named = all.find_map(|snapshot| snapshot.header.sources.into_iter().next().map(|source| source.router));
    Ok(named.filter(|router| !router.is_empty()))
}
