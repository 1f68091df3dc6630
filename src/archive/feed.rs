//! What an archive needs from the lists: the old connections of each, and the open connections of the last list and, in
//! a live capture, of one list a minute.

use crate::archive::ages::Ages;
use crate::archive::block::ARCHIVE_BLOCK_ENTRIES_MAX;
use crate::archive::thread::Command;
use crate::archive::{Archive, Entry, Fate};
use crate::error::{Error, Result};
use crate::flow::AnyKey;
use crate::list::{List, RowState};
use crate::signal::TICK_NS;
use std::sync::Arc;
use std::time::Duration;

/// How often the open connections are sent to the archive of a live capture: the greatest age of that knowledge after a
/// crash.
const ARCHIVE_OPEN_INTERVAL: Duration = Duration::from_secs(60);

/// Feeds an archive from lists.
pub struct ListFeed<'a> {
    archive: &'a Archive,
    /// The end of the list whose open connections were sent last, in ns since 1970.
    sent_ns: Option<i64>,
}

impl<'a> ListFeed<'a> {
    /// A feed of this archive.
    #[must_use]
    pub fn new(archive: &'a Archive) -> Self {
        ListFeed { archive, sent_ns: None }
    }

    /// Sends what the archive needs from a list, with its [`Ages`].
    ///
    /// # Errors
    ///
    /// The archive has failed.
    pub fn list(&mut self, list: &List, ages: Arc<Ages>) -> Result<()> {
        if self.archive.has_failed() {
            return Err(Error::new("the archive cannot be written to any more"));
        }
        self.archive.send(Command::Ages(ages));
        if self.is_due(list) {
            self.send_open(list);
        }
        Ok(())
    }

    fn is_due(&self, list: &List) -> bool {
        let interval_ns = ARCHIVE_OPEN_INTERVAL.as_nanos() as i64;
        let end_ns = list.header.figures.end_ns;
        // A clock that stepped back makes it due as well.
        let is_time = self.sent_ns.is_none_or(|sent_ns| !(0..interval_ns).contains(&end_ns.saturating_sub(sent_ns)));
        list.header.is_last || self.archive.is_live() && is_time
    }

    fn send_open(&mut self, list: &List) {
        self.sent_ns = Some(list.header.figures.end_ns);
        self.archive.send(Command::BeginOpen);
        in_parts(list, |entries| self.archive.send(Command::Open(entries)));
        self.archive.send(Command::EndOpen);
    }
}

/// Passes the open connections of a list to `take`, up to [`ARCHIVE_BLOCK_ENTRIES_MAX`] at a time.
pub(crate) fn in_parts(list: &List, mut take: impl FnMut(Vec<Entry>)) {
    let mut entries = Vec::with_capacity(ARCHIVE_BLOCK_ENTRIES_MAX);
    let end = list.header.figures.end_ns.div_euclid(TICK_NS);
    for row in list.tracked().filter(|row| row.state == RowState::Established) {
        let Some(key) = AnyKey::of_ends(row.client, row.server, row.vlan) else { continue };
        let start = row.start_ns.div_euclid(TICK_NS);
        let set_ns = list.header.figures.end_ns.saturating_sub(row.start_ns).saturating_sub(row.age_ns);
        // The clock is set by whole ticks. Less is what lies between two readings of it.
        let clock_set = set_ns.saturating_add(TICK_NS / 2).div_euclid(TICK_NS);
        let (midstream, may_be_older) = (row.midstream, row.start_is_bound);
        entries.push(Entry { end, key, start, clock_set, fate: Fate::Open, midstream, may_be_older });
        if entries.len() == ARCHIVE_BLOCK_ENTRIES_MAX {
            take(std::mem::replace(&mut entries, Vec::with_capacity(ARCHIVE_BLOCK_ENTRIES_MAX)));
        }
    }
    if !entries.is_empty() {
        take(entries);
    }
}
