//! The start of a run that saves its state: what was saved is restored before there is any thread.

use super::list_part::{Instants, ListSaving};
use super::writer::{Writer, Written};
use super::{Reading, Saving};
use crate::engine::PacketTime;
use crate::engine::list_thread::{ListThread, SkippedLists};
use crate::engine::port::Port;
use crate::engine::shard_thread::ShardThread;
use crate::error::{Error, Result};
use crate::signal::TICK_NS;

/// Where a replay begins.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// The index of the first input.
    pub(crate) input: usize,
    /// The packets of it that are to be passed over.
    pub(crate) packets: u64,
    /// What was wrong with the inputs before it.
    pub(crate) errors: Vec<Error>,
}

/// The clock of a live capture that continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResumedClock {
    /// The tick at which it continues, behind what was saved.
    pub(crate) first_tick: u64,
    /// The length of its intervals.
    pub(crate) every_ns: Option<i64>,
}

impl ResumedClock {
    /// The lists that the run before may have written since its state was cut: one for each interval that has passed,
    /// and one where it was stopped.
    fn lists_since(self, saved: Instants) -> SkippedLists {
        let passed_ns = u128::from(self.first_tick.saturating_sub(saved.end_tick)) * TICK_NS as u128;
        let intervals = self.every_ns.map_or(0, |every_ns| passed_ns / every_ns.max(1) as u128);
        SkippedLists(u64::try_from(intervals).unwrap_or(u64::MAX).saturating_add(1))
    }
}

impl Saving {
    /// Restores a replay, and has its state saved from now on. Returns where the replay continues, and the writer of
    /// states.
    ///
    /// # Errors
    ///
    /// The saved state does not fit after all.
    pub(crate) fn begin_replay<'a>(
        mut self,
        port: &mut Port<PacketTime>,
        shards: &mut [ShardThread],
        list: &mut ListThread,
    ) -> Result<(Start, Writer<'a>)> {
        let mut start = Start::default();
        if let Some(position) = self.position.take() {
            port.restore(&position.port)?;
            let errors = position.errors.into_iter().map(Error::new).collect();
            start = Start { input: position.input, packets: position.packets, errors };
        }
        self.restore(shards, list, true)?;
        port.set_saving(self.saver(), Reading::default());
        Ok((start, self.begin(list, Box::new(|_| ()))))
    }

    /// Restores a live capture, and has its state saved from now on. Returns the writer of states. Packets up to
    /// where its clock continues have passed unseen.
    ///
    /// # Errors
    ///
    /// The saved state does not fit after all.
    pub(crate) fn begin_live<'a>(
        self,
        shards: &mut [ShardThread],
        list: &mut ListThread,
        clock: ResumedClock,
        on_written: Box<dyn Fn(Written) + Send + 'a>,
    ) -> Result<Writer<'a>> {
        // Whether to take connections off is asked anew: what was seen before the break says nothing any more.
        self.restore(shards, list, false)?;
        if let Some(saved) = self.instants()? {
            shards.iter_mut().for_each(ShardThread::forget_seen);
            list.resume_behind(clock.first_tick, clock.lists_since(saved));
        }
        Ok(self.begin(list, on_written))
    }

    fn restore(&self, shards: &mut [ShardThread], list: &mut ListThread, asks_again: bool) -> Result<()> {
        shards.iter_mut().try_for_each(|shard| shard.restore(|index| self.partition(index)))?;
        self.list().map_or(Ok(()), |part| list.restore(part, asks_again))
    }

    fn begin<'a>(self, list: &mut ListThread, on_written: Box<dyn Fn(Written) + Send + 'a>) -> Writer<'a> {
        let (sender, cuts) = crossbeam::channel::bounded(1);
        list.set_saving(ListSaving::new(self.saver(), sender, self.outside));
        Writer { directory: self.directory, saver: self.saver, cuts, on_written }
    }
}
