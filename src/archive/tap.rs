//! Lists on their way to the exporter -> what the archive needs from them.
//!
//! What enters: lists. What leaves: the same lists, to the exporter; and to the archive the old connections of each,
//! and the open connections of the last list and, in a live capture, of one list a minute.

use crate::archive::ages::Ages;
use crate::archive::block::ARCHIVE_BLOCK_ENTRIES_MAX;
use crate::archive::thread::Command;
use crate::archive::{Archive, Entry, Fate};
use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::flow_list::{List, RowState};
use crate::signal::{AnyKey, TICK_NS};
use crate::snapshot::file::SnapshotFile;
use crate::sources::Report;
use crate::state::{Decoder, Encoder};
use std::time::Duration;

/// How often the archive of a live capture is told what is open: the greatest age of that knowledge after a crash.
const ARCHIVE_OPEN_INTERVAL: Duration = Duration::from_secs(60);

/// An exporter that shows an archive the lists.
pub struct Tap<'a> {
    exporter: &'a mut dyn Exporter,
    archive: Option<&'a Archive>,
    /// The end of the list whose open connections were sent last, in ns since 1970.
    told_ns: Option<i64>,
}

impl<'a> Tap<'a> {
    /// A tap that writes lists with `exporter`. The open connections of the last list go to the archive too, if there
    /// is one, and in a live capture those of one list a minute.
    #[must_use]
    pub fn new(exporter: &'a mut dyn Exporter, archive: Option<&'a Archive>) -> Self {
        Tap { exporter, archive, told_ns: None }
    }

    fn is_due(&self, list: &List, archive: &Archive) -> bool {
        let interval_ns = ARCHIVE_OPEN_INTERVAL.as_nanos() as i64;
        let end_ns = list.header.figures.end_ns;
        // A clock that stepped back makes it due as well.
        let is_time = self.told_ns.is_none_or(|told_ns| !(0..interval_ns).contains(&end_ns.saturating_sub(told_ns)));
        list.header.is_last || archive.is_live() && is_time
    }

    fn tell_open(&mut self, list: &List, archive: &Archive) {
        self.told_ns = Some(list.header.figures.end_ns);
        let end = list.header.figures.end_ns.div_euclid(TICK_NS);
        archive.send(Command::BeginOpen);
        let mut entries = Vec::with_capacity(ARCHIVE_BLOCK_ENTRIES_MAX);
        for row in list.rows().filter(|row| row.state == RowState::Established) {
            let Some(key) = AnyKey::of_ends(row.client, row.server, row.vlan) else { continue };
            let start = row.start_ns.div_euclid(TICK_NS);
            entries.push(Entry { end, key, start, fate: Fate::Open, midstream: row.midstream, may_be_older: false });
            if entries.len() == ARCHIVE_BLOCK_ENTRIES_MAX {
                let full = std::mem::replace(&mut entries, Vec::with_capacity(ARCHIVE_BLOCK_ENTRIES_MAX));
                archive.send(Command::Open(full));
            }
        }
        if !entries.is_empty() {
            archive.send(Command::Open(entries));
        }
        archive.send(Command::EndOpen);
    }
}

impl Exporter for Tap<'_> {
    fn write(&mut self, list: &List) -> Result<()> {
        self.exporter.write(list)?;
        let Some(archive) = self.archive else { return Ok(()) };
        if archive.has_failed() {
            return Err(Error::new("the archive cannot be written to any more"));
        }
        archive.send(Command::Ages(Ages::of(list)));
        if self.is_due(list, archive) {
            self.tell_open(list, archive);
        }
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &SnapshotFile) -> Result<()> {
        self.exporter.snapshot(snapshot)
    }

    fn write_sources(&mut self, report: &Report) -> Result<()> {
        self.exporter.write_sources(report)
    }

    fn warning(&mut self) -> Option<Error> {
        self.exporter.warning()
    }

    fn save(&self, encoder: &mut Encoder) {
        self.exporter.save(encoder);
    }

    fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.exporter.restore(decoder)
    }

    fn build_anew(&mut self) {
        self.exporter.build_anew();
    }
}
