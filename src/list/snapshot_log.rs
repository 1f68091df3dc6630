//! The sum of all deltas: what snapshot files hold.
//!
//! Decoding moves keys between the list and its residue; their sum, which is kept here, stays the same.

use crate::error::Result;
use crate::handover::Delta;
use crate::handover::{save_cells, saved_cells};
use crate::list::FlowListConfig;
use crate::list::intervals::{EndedInterval, Intervals};
use crate::signal::PARTITION_COUNT;
use crate::snapshot::{RouterPart, Shortfall, SnapshotFile};
use crate::state::{Decoder, Encoder};

/// The origin that snapshots name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// The router's name: see [`RouterPart::router`].
    pub router: String,
    /// The number that distinguishes its runs: see [`RouterPart::run`].
    pub run: u64,
    /// The length of its intervals in ns; 0 if it has none.
    pub every_ns: u64,
    /// Whether VLAN tags are part of keys.
    pub vlan_key: bool,
}

/// The snapshot of the last interval. Its tables change as deltas come in.
pub(super) struct SnapshotLog {
    file: SnapshotFile,
    /// The tick of the last interval's end in each partition.
    cut_ticks: [u64; PARTITION_COUNT],
}

impl SnapshotLog {
    /// The empty sum.
    pub(super) fn new(list: &FlowListConfig, config: &SnapshotConfig) -> Self {
        let source = RouterPart {
            router: config.router.clone(),
            run: config.run,
            every_ns: config.every_ns,
            partition_connections_max: list.partition_connections_max,
            ..RouterPart::default()
        };
        SnapshotLog {
            file: SnapshotFile::new(list.geometry, config.vlan_key, &list.secret, source),
            cut_ticks: [0; PARTITION_COUNT],
        }
    }

    /// Adds what changed in a partition.
    ///
    /// Complexity: a pass over the delta's cells.
    pub(super) fn add(&mut self, partition: usize, delta: &Delta) {
        if let Some(sums) = self.file.sums.get_mut(partition) {
            sums.add(delta);
        }
    }

    /// Records that a partition has ended the interval at this tick.
    pub(super) fn cut(&mut self, partition: usize, tick: u64) {
        if let Some(cut) = self.cut_ticks.get_mut(partition) {
            *cut = tick;
        }
    }

    /// Completes the snapshot of an interval that has ended in all partitions, before half-open connections that are
    /// established too are removed.
    pub(super) fn end_interval(&mut self, ended: &EndedInterval, intervals: &Intervals) {
        let EndedInterval { marker, figures, since, unarchived } = ended;
        let Some(source) = self.file.header.sources.first_mut() else { return };
        source.figures = *figures;
        source.shortfall = Shortfall { unsettled: 0, unarchived: *unarchived };
        source.since = *since;
        source.totals = intervals.counts();
        source.is_last = marker.is_last;
        (source.end_tick, source.within_tick_ns) = (marker.end_tick, marker.within_tick_ns);
        source.cut_ticks = self.cut_ticks;
        source.bases.clear();
        source.bases.extend_from_slice(intervals.bases().all());
        source.half_open.clear();
        for list in intervals.half_open().iter().flatten() {
            let begun = source.half_open.len();
            source.half_open.extend(list.iter(marker.end_tick));
            // Their order and duplicates would otherwise depend on whether the run was interrupted.
            source.half_open[begun..].sort_unstable_by_key(|one| (one.since_tick, *one));
        }
        source.half_open.dedup();
    }

    /// Records how many connections of the interval's list may have closed unseen.
    pub(super) fn set_unsettled(&mut self, unsettled: u64) {
        self.file.header.sources.iter_mut().for_each(|source| source.shortfall.unsettled = unsettled);
    }

    /// Encodes the sums and the number of the run for a saved state, between two intervals.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.file.header.sources.first().map_or(0, |source| source.run));
        self.cut_ticks.iter().for_each(|tick| encoder.u64(*tick));
        for sums in &self.file.sums {
            save_cells(&sums.v4, encoder);
            save_cells(&sums.v6, encoder);
        }
    }

    /// Restores what one with the same configuration saved. To readers of the snapshots it is the same run.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let run = decoder.u64()?;
        self.file.header.sources.iter_mut().for_each(|source| source.run = run);
        for tick in &mut self.cut_ticks {
            *tick = decoder.u64()?;
        }
        for sums in &mut self.file.sums {
            sums.v4 = saved_cells(sums.v4.geometry(), decoder)?;
            sums.v6 = saved_cells(sums.v6.geometry(), decoder)?;
        }
        Ok(())
    }

    /// The snapshot of the last interval, until the next delta.
    pub(super) fn file(&self) -> &SnapshotFile {
        &self.file
    }

    /// How many connections are open by the tables.
    pub(super) fn open_count(&self) -> u64 {
        u64::try_from(self.file.surplus()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::DeltaGeometry;
    use crate::list::{EvictionTimes, SnapshotList};
    use crate::queue::Marker;
    use crate::snapshot::{Figures, Since};
    use flowpeel_iblt::Geometry;
    use flowpeel_iblt::hash::Secret;

    #[test]
    fn what_only_the_router_knows_reaches_the_lists_made_elsewhere() {
        let secret = Secret::REPLAY;
        let config = FlowListConfig {
            secret: secret.clone(),
            geometry: DeltaGeometry { v4: Geometry::new(5), v6: Geometry::new(5) },
            partition_connections_max: 100,
            eviction: EvictionTimes::default(),
            inquiry_max: 0,
        };
        let since = Since { since_ns: -7, is_warming_up: true, is_sampled_early: false };
        let early = Since { is_warming_up: false, is_sampled_early: true, ..since };
        let cases = [(0, 0, None), (7, 0, Some(since)), (0, 5, Some(early)), (7, 5, None)];
        for (unsettled, unarchived, since) in cases {
            let mut log = SnapshotLog::new(&config, &SnapshotConfig::default());
            let ended = EndedInterval { marker: Marker::default(), figures: Figures::default(), since, unarchived };
            log.end_interval(&ended, &Intervals::new(None));
            log.set_unsettled(unsettled);
            let mut bytes = Vec::new();
            log.file().write(&mut bytes, &secret).unwrap();
            let read = SnapshotFile::read(bytes.as_slice(), &secret).unwrap();
            let mut list = SnapshotList::new(&read.header, &secret).unwrap();
            list.apply(read).unwrap();
            let header = list.list(|list| list.header);
            assert_eq!((header.unsettled, header.unarchived, header.since), (unsettled, unarchived, since));
        }
    }
}
