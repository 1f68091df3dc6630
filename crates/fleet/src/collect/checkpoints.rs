//! What a collector writes down at the broker, so that another can go on from there on another machine.
//!
//! For each router it knows which messages are not in a checkpoint yet, and when the next is due. The first message of
//! all these stands in the record of who holds the share: another collector restores the checkpoints and begins there.
//! What it takes again that a checkpoint has it passes over.

use crate::broker::Broker;
use crate::checkpoint::Description;
use crate::collect::{CollectObserver, Holding};
use crate::hold::{Hold, HoldConfig, HoldError};
use crate::lists::Lists;
use flowpeel::agent::{AgentEvent, AgentObserver};
use flowpeel::error::{Error, Result as DiskResult};
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom};
use std::time::{Duration, Instant};

/// How long what was listed may be without a checkpoint. A router that says no more is not taken again from its last
/// words on, for as long as it is away.
const UNSAVED_MAX: Duration = Duration::from_secs(600);

type Result<T> = std::result::Result<T, HoldError>;

/// What was written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointCounts {
    /// Checkpoints written.
    pub written: u64,
    /// Their bytes.
    pub size: u64,
    /// Checkpoints that could not be written.
    pub failed: u64,
    /// Routers that were continued from a checkpoint of another collector.
    pub restored: u64,
}

/// How far a router is in its checkpoints.
#[derive(Debug)]
struct Progress {
    /// The first message that is not in its checkpoint, and the first that is not in a list.
    unsaved: Option<u64>,
    unlisted: Option<u64>,
    /// Lists since the checkpoint.
    list_count: u64,
    /// The end of its last list, and the last message of that.
    listed: (i64, u64),
    checked: Instant,
}

/// The checkpoints of the share that this collector holds.
pub(super) struct Checkpoints {
    /// After how many lists of a router its next is due.
    every: u64,
    hold: Hold,
    routers: BTreeMap<String, Progress>,
    /// The last message that was taken: all before it were.
    position: u64,
    counts: CheckpointCounts,
}

impl Checkpoints {
    /// Looks at the share, which is not taken by that.
    pub(super) async fn open(broker: &Broker, config: HoldConfig, every: u64) -> Result<Self> {
        let hold = Hold::open(broker, config).await?;
        let (routers, counts) = (BTreeMap::new(), CheckpointCounts::default());
        Ok(Checkpoints { every, hold, routers, position: 0, counts })
    }

    /// What was written down so far.
    pub(super) fn counts(&self) -> CheckpointCounts {
        self.counts
    }

    /// Waits until the share is free, and nothing has come from its holder for so long if it is not. Returns whether it
    /// is; otherwise the observer is to stop.
    pub(super) async fn wait(&self, patience: Duration, observer: &mut impl CollectObserver) -> Result<bool> {
        let mut watch = self.hold.watch();
        let mut is_reported = false;
        while !observer.is_stopped() {
            if self.hold.is_free(&mut watch, patience).await? {
                return Ok(true);
            }
            if !is_reported {
                is_reported = true;
                observer.holds(Holding::Waiting);
            }
        }
        Ok(false)
    }

    /// Takes the share, and continues from the checkpoints of whoever had it, if that was another. Returns the message
    /// at which consumers are to begin; without it they begin behind what is acknowledged.
    pub(super) async fn take(&mut self, lists: &mut Lists, observer: &mut impl CollectObserver) -> Result<Option<u64>> {
        let before = self.hold.take().await?;
        let ends = ends(lists)?;
        let is_own = before.as_ref().is_none_or(|before| before.directory == self.hold.directory());
        let is_continued = is_own && before.as_ref().is_none_or(|before| before.is_begun);
        let mut start = before.map_or(1, |before| before.start);
        if !is_continued {
            start = self.restore(lists, &ends, start, observer).await?;
        }
        if !is_own {
            observer.holds(Holding::TakenOver { router_count: self.counts.restored });
        }
        self.position = start.saturating_sub(1);
        for (router, end_ns) in ends {
            let is_saved = self.hold.summaries().get(&router).is_some_and(|summary| summary.newest.end_ns >= end_ns);
            if !is_saved {
                let listed = (end_ns, self.position);
                let progress = Progress { unsaved: Some(start), list_count: self.every, listed, ..Progress::new() };
                self.routers.insert(router, progress);
            }
        }
        Ok((!is_continued).then_some(start))
    }

    /// Restores the routers whose checkpoints are newer than what is here. Returns where consumers are to begin.
    async fn restore(
        &mut self,
        lists: &mut Lists,
        ends: &BTreeMap<String, i64>,
        mut start: u64,
        observer: &mut impl AgentObserver,
    ) -> Result<u64> {
        for (router, summary) in self.hold.summaries().clone() {
            let here = ends.get(&router).copied();
            let both =
                [Some((&summary.newest, None)), summary.before.as_ref().map(|before| (before, Some(before.after + 1)))];
            let mut is_there = false;
            for (described, from) in both.into_iter().flatten() {
                if here.is_none_or(|here| here < described.end_ns) {
                    match self.restore_one(lists, &router, described, observer).await {
                        Ok(()) => self.counts.restored += 1,
                        Err(HoldError::Other(error)) => {
                            let what = format!("the lists of {router} cannot be continued from this checkpoint");
                            observer.report(AgentEvent::Warning(Error::new(what).because(error)));
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                start = from.map_or(start, |from| from.min(start));
                is_there = true;
                break;
            }
            if !is_there {
                let what = format!("the lists of {router} may be incomplete until its next run: no checkpoint is left");
                observer.report(AgentEvent::Warning(Error::new(what)));
            }
        }
        Ok(start)
    }

    async fn restore_one(
        &self,
        lists: &mut Lists,
        router: &str,
        described: &Description,
        observer: &mut impl AgentObserver,
    ) -> Result<()> {
        let cannot = |error: std::io::Error| Error::new("cannot keep a checkpoint").because(error);
        let mut packed = tempfile::tempfile_in(lists.path()).map_err(cannot)?;
        self.hold.get(described, &mut packed).await?;
        packed.seek(SeekFrom::Start(0)).map_err(cannot)?;
        Ok(lists.restore(router, packed, observer)?)
    }

    /// A message of a router that has signed something was taken.
    pub(super) fn taken(&mut self, router: &str, sequence: u64) {
        if !self.routers.contains_key(router) {
            self.routers.insert(router.to_owned(), Progress::new());
        }
        if let Some(progress) = self.routers.get_mut(router) {
            for first in [&mut progress.unsaved, &mut progress.unlisted] {
                *first = Some(first.map_or(sequence, |first| first.min(sequence)));
            }
        }
    }

    /// All messages up to this one were taken.
    pub(super) fn reached(&mut self, sequence: u64) {
        self.position = sequence;
    }

    /// A list of a router was written that ended then, made of messages up to this one.
    pub(super) fn listed(&mut self, router: &str, end_ns: i64, sequence: u64) {
        if let Some(progress) = self.routers.get_mut(router) {
            progress.unlisted = None;
            progress.list_count += 1;
            progress.listed = (end_ns, sequence);
        }
    }

    /// Writes the checkpoint of a router if it is due.
    pub(super) async fn save_if_due(
        &mut self,
        router: &str,
        lists: &Lists,
        observer: &mut impl AgentObserver,
    ) -> Result<()> {
        let is_first = !self.hold.summaries().contains_key(router);
        let Some(progress) = self.routers.get_mut(router) else { return Ok(()) };
        let is_old = progress.checked.elapsed() > UNSAVED_MAX;
        if progress.list_count == 0 {
            if is_old {
                // Pieces whose others did not come: whoever sent them begins anew.
                (progress.unsaved, progress.unlisted) = (None, None);
            }
            return Ok(());
        }
        if is_first || is_old || progress.list_count >= self.every {
            self.save(router, lists, observer).await
        } else {
            Ok(())
        }
    }

    async fn save(&mut self, router: &str, lists: &Lists, observer: &mut impl AgentObserver) -> Result<()> {
        let Some(progress) = self.routers.get_mut(router) else { return Ok(()) };
        progress.checked = Instant::now();
        let saved = match lists.checkpoint(router) {
            Ok(packed) => self.hold.put(router, progress.listed, packed).await,
            Err(error) => Err(error.into()),
        };
        match saved {
            Ok(size) => {
                (progress.unsaved, progress.list_count) = (progress.unlisted, 0);
                self.counts.written += 1;
                self.counts.size += size;
            }
            Err(HoldError::Replaced) => return Err(HoldError::Replaced),
            Err(error) => {
                self.counts.failed += 1;
                let what = "a checkpoint cannot be written, so another collector would begin at the one before it";
                observer.report(AgentEvent::Warning(Error::new(what).because(error)));
                // It is tried again with a list to come.
                progress.list_count = progress.list_count.min(self.every - 1);
            }
        }
        Ok(())
    }

    /// Where another collector would begin.
    fn start(&self) -> u64 {
        let unsaved = self.routers.values().filter_map(|progress| progress.unsaved).min();
        unsaved.unwrap_or(u64::MAX).min(self.position + 1)
    }

    /// Renews the record if that is due, and writes the checkpoints of routers that say no more.
    pub(super) async fn renew_if_due(&mut self, lists: &Lists, observer: &mut impl AgentObserver) -> Result<()> {
        if !self.hold.is_due() {
            return Ok(());
        }
        let old = self.routers.iter().filter(|(_, progress)| progress.checked.elapsed() > UNSAVED_MAX);
        for router in old.map(|(router, _)| router.clone()).collect::<Vec<_>>() {
            self.save_if_due(&router, lists, observer).await?;
        }
        self.renew().await
    }

    /// Renews the record.
    pub(super) async fn renew(&mut self) -> Result<()> {
        let start = self.start();
        self.hold.renew(start).await
    }

    /// Writes the checkpoints of all that was listed since the last, and that this collector has ended.
    pub(super) async fn release(&mut self, lists: &Lists, observer: &mut impl AgentObserver) -> Result<()> {
        let unsaved = self.routers.iter().filter(|(_, progress)| progress.list_count > 0);
        for router in unsaved.map(|(router, _)| router.clone()).collect::<Vec<_>>() {
            self.save(&router, lists, observer).await?;
        }
        let start = self.start();
        self.hold.release(start).await
    }
}

impl Progress {
    fn new() -> Self {
        Progress { unsaved: None, unlisted: None, list_count: 0, listed: (0, 0), checked: Instant::now() }
    }
}

/// When the last list of each router that is here ended.
fn ends(lists: &Lists) -> DiskResult<BTreeMap<String, i64>> {
    let all = lists.last_snapshots()?.into_iter();
    Ok(all
        .filter_map(|(snapshot, _)| snapshot.header.sources.into_iter().next())
        .map(|source| (source.router, source.figures.end_ns))
        .collect())
}
