//! The offline agent: a directory of snapshots -> a directory with the lists that the router would have written.
//!
//! It takes snapshots of a router, as they come or all at once, some of them missing, late, duplicated or damaged, and
//! gives for each that is newer than those before it, the list under the name that the router would have given it; and
//! a note of how far the agent is, from which the next agent continues. It removes and writes nothing in the directory
//! of snapshots, so any number of agents may follow one.

mod incoming;
mod position;
mod wake;

pub use incoming::{Incoming, Settled};
pub use position::NAME as NOTE_FILE;

use crate::error::{Error, Result};
use crate::export::{Directory, FileLine, Format, Keep, ListFile, ListName, ListSpan, SnapshotName};
use crate::flow::AnyKey;
use crate::list::{Header, SnapshotList, TickMoment};
use crate::signal::PartitionSet;
use crate::snapshot::{Kind, RouterPart, SnapshotFile};
use flowpeel_iblt::hash::Secret;
use position::{Position, Run};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wake::Wake;

/// How often the agent looks through the directory of snapshots, even if the system reported no change: often enough
/// for intervals of seconds.
const AGENT_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration of an [`Agent`].
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The directory of snapshots.
    pub snapshots: PathBuf,
    /// The directory for lists, which belongs to this agent alone.
    pub lists: PathBuf,
    /// The secret under which the snapshots were written.
    pub secret: Secret,
    /// How lists are written.
    pub format: Format,
    /// How much of the lists is kept.
    pub keep: Keep,
    /// The partitions that the snapshots hold, if not all: lists are parts of lists then.
    pub part: Option<PartitionSet>,
    /// The directory of the router's own lists, or a copy: the newest is begun with where there is none here to
    /// continue from.
    pub base: Option<PathBuf>,
}

/// What an agent has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Lists written.
    pub lists: u64,
    /// Lists written that are not complete.
    pub incomplete: u64,
    /// Intervals without a snapshot, which the next list covers.
    pub passed_over: u64,
    /// Snapshots that came late or twice: an earlier list covers them.
    pub covered: u64,
    /// Files that the agent could not use, each of them reported.
    pub refused: u64,
}

/// What an agent reports while it works.
pub enum AgentEvent<'a> {
    /// A list was written from this snapshot.
    Listed(SnapshotName, &'a Header),
    /// A file cannot be used. It is left alone until it is written to.
    Refused(Error),
    /// Something went wrong that affects no list.
    Warning(Error),
}

/// An observer of an agent, which can stop it between two snapshots.
pub trait AgentObserver {
    /// Receives a report.
    fn report(&mut self, event: AgentEvent);

    /// Whether the agent is to stop.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Follows one directory of snapshots.
pub struct Agent {
    secret: Secret,
    part: Option<PartitionSet>,
    base: Option<PathBuf>,
    incoming: Incoming,
    directory: Directory,
    lists: PathBuf,
    position: Position,
    /// The list of the run that is followed; `None` before the first snapshot.
    list: Option<SnapshotList>,
    counts: AgentCounts,
    /// A warning to report at the next look.
    warning: Option<Error>,
}

impl Agent {
    /// An agent that continues where the last one in the same directory of lists stopped, however that ended.
    ///
    /// # Errors
    ///
    /// The directory of snapshots does not exist, lists cannot be written, another process writes them, or the note of
    /// how far they are is damaged.
    pub fn new(config: &AgentConfig) -> Result<Self> {
        config.format.check()?;
        // The directory is looked for before anything is created.
        Incoming::new(config.snapshots.clone(), None)?;
        let mut directory = Directory::new(&config.lists, false, config.format.clone(), config.keep)?;
        let (position, since) = Position::read(&config.lists)?.unzip();
        let position: Position = position.unwrap_or_else(|| Position { part: config.part, ..Position::default() });
        if position.part != config.part {
            let what = "the lists here are of another share of the partitions: name another directory for them";
            return Err(Error::new(what).in_file(&config.lists));
        }
        let done = SnapshotName::parse(&position.snapshot).zip(since);
        Ok(Agent {
            secret: config.secret.clone(),
            part: config.part,
            base: config.base.clone(),
            incoming: Incoming::new(config.snapshots.clone(), done)?,
            warning: directory.warning(),
            directory,
            lists: config.lists.clone(),
            position,
            list: None,
            counts: AgentCounts::default(),
        })
    }

    /// What the agent has done so far.
    #[must_use]
    pub fn counts(&self) -> AgentCounts {
        self.counts
    }

    /// The files in the directory of lists from which the next agent continues: the last list in full, what changed
    /// since, and last the note that names them. None before the first list.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let (full, last) = (&self.position.full, &self.position.list);
        if last.is_empty() {
            return Ok(Vec::new());
        }
        let changes = if full == last { Vec::new() } else { self.directory.changes_in(ListSpan { full, last })? };
        let (full, note) = (self.lists.join(full), self.lists.join(NOTE_FILE));
        Ok([full].into_iter().chain(changes).chain([note]).collect())
    }

    /// Follows the directory until the observer stops it.
    ///
    /// # Errors
    ///
    /// A list could not be written. Those before it are whole.
    pub fn follow(&mut self, observer: &mut impl AgentObserver) -> Result<()> {
        let mut wake = Wake::new(self.incoming.path());
        let mut was_reported = false;
        while !observer.is_stopped() {
            match self.incoming.look() {
                Ok(names) => {
                    was_reported = false;
                    self.take_all(names, false, observer)?;
                }
                // The directory may be on another machine, and come back.
                Err(error) if !was_reported => {
                    was_reported = true;
                    observer.report(AgentEvent::Warning(error));
                }
                Err(_) => {}
            }
            wake.wait(AGENT_LOOK_INTERVAL, || observer.is_stopped());
        }
        for name in self.incoming.doubtful() {
            if let Err(error) = self.open(name) {
                self.counts.refused += 1;
                observer.report(AgentEvent::Refused(error));
            }
        }
        Ok(())
    }

    /// Writes the lists of the snapshots that have come since the last look. A file that cannot be read may still be
    /// arriving, and is looked at again at the next.
    ///
    /// # Errors
    ///
    /// As [`Self::once`].
    pub fn look(&mut self, observer: &mut impl AgentObserver) -> Result<()> {
        let names = self.incoming.look()?;
        self.take_all(names, false, observer)
    }

    /// Writes the lists of the snapshots that are there.
    ///
    /// # Errors
    ///
    /// The directory cannot be read, or a list could not be written.
    pub fn once(&mut self, observer: &mut impl AgentObserver) -> Result<()> {
        let names = self.incoming.look()?;
        self.take_all(names, true, observer)
    }

    fn take_all(
        &mut self,
        names: Vec<SnapshotName>,
        is_last_look: bool,
        observer: &mut impl AgentObserver,
    ) -> Result<()> {
        for name in self.incoming.ordered(names, &self.secret) {
            if observer.is_stopped() {
                break;
            }
            let opened = self.open(name);
            match self.incoming.settle(name, opened, is_last_look) {
                Settled::Read((snapshot, run)) => {
                    let header = self.write(name, snapshot, run)?;
                    self.counts.lists += 1;
                    self.counts.incomplete += u64::from(!header.complete);
                    self.incoming.done(name);
                    observer.report(AgentEvent::Listed(name, &header));
                }
                Settled::Covered => self.counts.covered += 1,
                Settled::Refused(error) => {
                    self.counts.refused += 1;
                    observer.report(AgentEvent::Refused(error));
                }
                Settled::Doubtful => {}
            }
            if let Some(warning) = self.warning.take().or_else(|| self.directory.warning()) {
                observer.report(AgentEvent::Warning(warning));
            }
        }
        Ok(())
    }

    /// Reads a snapshot, with the run that it is of; `None` if it is late or came twice, so that a list covers it
    /// already.
    fn open(&self, name: SnapshotName) -> Result<Option<(SnapshotFile, Run)>> {
        let path = self.incoming.file(name);
        let snapshot = SnapshotFile::open(&path, &self.secret)?;
        let refuse = |what: &str| Err(Error::new(what).in_file(&path));
        let (Kind::Snapshot, [source]) = (snapshot.header.kind, snapshot.header.sources.as_slice()) else {
            return refuse("this is no snapshot of one router");
        };
        if source.figures.end_ns.div_euclid(1_000_000_000) != name.end_s() {
            return refuse("its name is not that of the end of its interval: somebody has renamed it");
        }
        let (run, present) = (Run::of(source), &self.position.run);
        if self.position.follows(&run) {
            return Ok((run.end() > present.end()).then_some((snapshot, run)));
        }
        match self.position.ended.iter().find(|ended| ended.is_same(&run)) {
            Some(ended) if run.end() <= ended.end() || run.end_ns < present.end_ns => Ok(None),
            Some(ended) if ended.is_stray => {
                refuse("two runs write to this directory: give each router one of its own")
            }
            // What was taken for the run after it was a late one before it.
            _ => Ok(Some((snapshot, run))),
        }
    }

    /// Writes the list of a snapshot of this run, and the note of how far the agent is.
    fn write(&mut self, name: SnapshotName, snapshot: SnapshotFile, run: Run) -> Result<Header> {
        let is_followed = self.position.follows(&run);
        let mut list = match self.list.take().filter(|list| is_followed && list.is_of_run(&snapshot)) {
            Some(list) => list,
            None => self.begin(name, &snapshot, is_followed)?,
        };
        let known = self.position.ended.iter().find(|ended| ended.is_same(&run));
        let known = if is_followed { Some(&self.position.run) } else { known };
        let expected = known.map_or(1, |known| known.interval.saturating_add(1));
        let passed_over = run.interval.saturating_sub(expected);
        self.counts.passed_over = self.counts.passed_over.saturating_add(passed_over);
        list.apply(snapshot)?;
        let written = list.list(|list| Ok((list.header, self.directory.write_beside(list, name)?)));
        let (header, file): (Header, _) = written?;
        self.list = Some(list);
        self.position.advance(run, name.to_string(), file);
        self.directory.write_note(NOTE_FILE, &self.position.bytes())?;
        Ok(header)
    }

    /// The list to begin with: that of the agent before, if the snapshot is of the run that it followed; else the
    /// router's own before this snapshot; else an empty one, with which the router began too.
    fn begin(&mut self, name: SnapshotName, snapshot: &SnapshotFile, is_followed: bool) -> Result<SnapshotList> {
        self.directory.begin_run(snapshot.header.vlan_key);
        let empty = |part| Ok::<_, Error>(SnapshotList::new(&snapshot.header, &self.secret)?.of_part(part));
        let mut list = empty(self.part)?;
        if is_followed {
            let Err(error) = self.reload(&mut list) else { return Ok(list) };
            let warning = Error::new("cannot continue from the last list, so the next may be incomplete");
            self.warning = Some(warning.because(error));
            list = empty(self.part)?;
        }
        let source = snapshot.header.sources.first().filter(|source| source.figures.interval > 1);
        if let (Some(base), Some(source)) = (&self.base, source)
            && let Err(error) = begin_from(base, name, source, &mut list)
        {
            let warning = Error::new("cannot begin with a list of the router's own, so the next may be incomplete");
            self.warning.get_or_insert(warning.because(error));
            list = empty(self.part)?;
        }
        Ok(list)
    }

    /// Restores the list of the agent before: its last list in full, and what changed since.
    fn reload(&self, list: &mut SnapshotList) -> Result<()> {
        let (full, last) = (&self.position.full, &self.position.list);
        let mut before = ListFile::open(&self.lists.join(full))?.facts.id;
        let mut chain = vec![(self.lists.join(full), 0)];
        for path in if full == last { Vec::new() } else { self.directory.changes_in(ListSpan { full, last })? } {
            let changes = ListFile::open(&path)?;
            // Changes that build on another list are leftovers.
            if let Some((_, elapsed_ns)) = changes.base.filter(|(base, _)| *base == before) {
                before = changes.facts.id;
                chain.push((path, elapsed_ns));
            }
        }
        if chain.last().is_none_or(|(path, _)| *path != self.lists.join(last)) {
            return Err(Error::new("what changed up to this list is not all there").in_file(self.lists.join(last)));
        }
        let mut end =
            self.position.end().before(chain.iter().fold(0i64, |sum, (_, elapsed_ns)| sum.saturating_add(*elapsed_ns)));
        let mut is_complete = false;
        for (path, elapsed_ns) in chain {
            end = end.before(elapsed_ns.saturating_neg());
            let mut file = ListFile::open(&path)?;
            is_complete = file.facts.is_complete;
            load(list, &mut file, end)?;
        }
        if is_complete {
            list.set_whole_at(end);
        }
        Ok(())
    }
}

/// Applies the lines of a file to a list.
fn load(list: &mut SnapshotList, file: &mut ListFile, end: TickMoment) -> Result<()> {
    while let Some(line) = file.next_line()? {
        match line {
            FileLine::Listed(known, _) => drop(list.relist(&known, end)),
            FileLine::Delisted(key) => drop(list.delist(&key)),
            FileLine::Other => {}
        }
    }
    Ok(())
}

/// Starts the list of the run of `source` from the newest list in full in this directory that ended no later than the
/// snapshot of this name.
fn begin_from(directory: &Path, snapshot: SnapshotName, source: &RouterPart, list: &mut SnapshotList) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot look for lists here").in_file(directory).because(error);
    let names = ListName::all_in(directory).map_err(cannot)?;
    let newest = names.into_iter().rfind(|name| !name.is_changes() && name.end_s() <= snapshot.end_s());
    let none = || Error::new("there is no list in full here that ended before the snapshot").in_file(directory);
    start_from(list, source, &directory.join(newest.ok_or_else(none)?.path()))
}

/// Opens a list in full.
fn open_full(path: &Path) -> Result<ListFile> {
    let file = ListFile::open(path)?;
    let what = match (&file.base, &file.facts.part) {
        (Some(_), _) => "these are changes: name a list in full",
        (None, Some(_)) => "this is a part of a list: name a whole one",
        (None, None) => return Ok(file),
    };
    Err(Error::new(what).in_file(path))
}

/// Starts the list of the run of `source` from a list in a file, plain or compressed.
///
/// # Errors
///
/// The file holds no list in full, or one that did not end within the run.
pub fn start_from(list: &mut SnapshotList, source: &RouterPart, path: &Path) -> Result<()> {
    let mut file = open_full(path)?;
    if file.is_merged {
        return Err(Error::new("this is the list of several routers: name one of this router").in_file(path));
    }
    let Some(end) = TickMoment::of_wall_ns(source, file.facts.end_ns) else {
        let what = "this list did not end within the run that the snapshot is of, before the snapshot did";
        return Err(Error::new(what).in_file(path));
    };
    load(list, &mut file, end)?;
    if file.facts.is_complete {
        list.set_whole_at(end);
    }
    Ok(())
}

/// The established connections of a list in full, each with the number of routers that listed it: one, unless it is a
/// list of several routers.
///
/// # Errors
///
/// The file holds no list in full.
pub fn established(path: &Path) -> Result<Vec<(AnyKey, u32)>> {
    let mut file = open_full(path)?;
    let mut connections = Vec::new();
    while let Some(line) = file.next_line()? {
        if let FileLine::Listed(known, routers) = line {
            connections.push((known.key, routers));
        }
    }
    Ok(connections)
}
