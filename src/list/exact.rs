//! The exact list: which connections are open, in all partitions.
//!
//! The law: what the partitions know = the list + the residue of what could not be decoded.

use crate::error::Result;
use crate::flow::{AnyKey, ByFamily, KeyV4, KeyV6, WordKey};
use crate::handover::{ANNOUNCEMENTS_MAX, Delta, Findings, Inquiry};
use crate::list::FlowListConfig;
use crate::list::family::{Answers, FamilyList, Outcome, Questions};
use crate::signal::{PARTITION_COUNT, Watch};
use crate::state::{Decoder, Encoder};
use std::sync::Arc;

/// The lists of one partition.
pub(super) type PartitionList = ByFamily<FamilyList<KeyV4>, FamilyList<KeyV6>>;

/// The lists of all partitions.
pub(super) struct ExactList {
    partitions: Vec<PartitionList>,
    inquiry_max: usize,
}

impl ExactList {
    /// An empty list. With an idle timeout it needs the watch that the capture threads have, unless they sample every
    /// packet.
    pub(super) fn new(config: &FlowListConfig, watch: Option<&Arc<Watch>>) -> Self {
        let partition = |_| ByFamily {
            v4: FamilyList::new(config, config.geometry.v4, watch.cloned()),
            v6: FamilyList::new(config, config.geometry.v6, watch.cloned()),
        };
        ExactList { partitions: (0..PARTITION_COUNT).map(partition).collect(), inquiry_max: config.inquiry_max }
    }

    /// The lists of the partitions, by their indexes.
    pub(super) fn partitions(&self) -> &[PartitionList] {
        &self.partitions
    }

    /// The lists of a partition, to change them.
    pub(super) fn partition_mut(&mut self, partition: usize) -> Option<&mut PartitionList> {
        self.partitions.get_mut(partition)
    }

    /// Applies the changes of a delta that was handed over at the tick `cut`, and leaves it empty. Its latest changes
    /// must have been summed before. What opened in it came into its table since the tick `since`.
    ///
    /// # Panics
    ///
    /// The delta does not have the configured shape.
    pub(super) fn apply(&mut self, partition: usize, delta: &mut Delta, since: u64, cut: u64) {
        if let Some(list) = self.partitions.get_mut(partition) {
            list.v4.apply(&mut delta.v4, since, cut);
            list.v6.apply(&mut delta.v6, since, cut);
            delta.begin_again();
        }
    }

    /// The tick of a partition since which all has opened that is in a table and not listed, if all else has opened
    /// since the tick `since`.
    pub(super) fn unlisted_since(&self, partition: usize, since: u64) -> u64 {
        let list = self.partitions.get(partition);
        list.map_or(since, |list| list.v4.unlisted_since(since).min(list.v6.unlisted_since(since)))
    }

    /// Takes the starts of the connections that an earlier list of the same run has too.
    pub(super) fn adopt_starts(&mut self, earlier: &Self) {
        for (list, earlier) in self.partitions.iter_mut().zip(&earlier.partitions) {
            list.v4.adopt_starts(&earlier.v4);
            list.v6.adopt_starts(&earlier.v6);
        }
    }

    /// Applies a partition's answer to an inquiry, as of the hand-over at the tick `cut`, whose openings came into its
    /// table since the tick `since`.
    pub(super) fn answer(&mut self, partition: usize, findings: Findings, since: u64, cut: u64) {
        let Some(list) = self.partitions.get_mut(partition) else { return };
        let Findings { gone, open, seen, seen_before, half_closed, leap_tick } = findings;
        let [gone, open, seen, before, half_closed] =
            [gone, open, seen, seen_before, half_closed].map(ByFamily::<Vec<_>, Vec<_>>::from_iter);
        list.v4.apply_answers(&Answers { gone: gone.v4, open: open.v4 }, since, cut);
        list.v6.apply_answers(&Answers { gone: gone.v6, open: open.v6 }, since, cut);
        list.v4.see(&seen.v4, cut);
        list.v6.see(&seen.v6, cut);
        list.v4.see_before(&before.v4, leap_tick, cut);
        list.v6.see_before(&before.v6, leap_tick, cut);
        list.v4.doubt_half_closed(&half_closed.v4);
        list.v6.doubt_half_closed(&half_closed.v6);
    }

    /// Records that the interval whose list was made has ended at this tick.
    pub(super) fn end_interval(&mut self, tick: u64) {
        for list in &mut self.partitions {
            list.v4.end_interval(tick);
            list.v6.end_interval(tick);
        }
    }

    /// What to ask a partition: whether listed connections are still alive, and more if the residue does not resolve by
    /// itself. The answer comes with the end of the partition's next interval.
    pub(super) fn inquiry(&mut self, partition: usize) -> Option<Inquiry> {
        let list = self.partitions.get_mut(partition)?;
        if !list.v4.has_questions() && !list.v6.has_questions() {
            return None;
        }
        let needs_answers = list.v4.needs_answers() || list.v6.needs_answers();
        let announcements_max = if needs_answers { ANNOUNCEMENTS_MAX } else { 0 };
        let mut inquiry = Inquiry { announcements_max, ..Inquiry::default() };
        if list.v4.has_questions() {
            ask(&mut inquiry, list.v4.questions(self.inquiry_max), AnyKey::V4);
        }
        if list.v6.has_questions() {
            ask(&mut inquiry, list.v6.questions(self.inquiry_max), AnyKey::V6);
        }
        Some(inquiry)
    }

    /// About how many openings and closings are not in the list yet; 0 only when there are none.
    pub(super) fn missing(&self) -> u64 {
        self.partitions.iter().map(|list| list.v4.missing() + list.v6.missing()).sum()
    }

    /// How many openings and closings contradict the list and wait for their opposite.
    pub(super) fn extraneous(&self) -> u64 {
        self.partitions.iter().map(|list| list.v4.extraneous() + list.v6.extraneous()).sum()
    }

    /// What reconciling did since the start.
    pub(super) fn outcome(&self) -> Outcome {
        let families = self.partitions.iter().flat_map(|list| [list.v4.outcome(), list.v6.outcome()]);
        families.fold(Outcome::default(), Outcome::plus)
    }

    /// About how many bytes [`Self::save`] writes while there is no residue.
    pub(super) fn saved_size(&self) -> usize {
        let entry_size = |word_count: usize| (word_count + 1) * size_of::<u64>();
        let sizes = self.partitions.iter().map(|list| {
            list.v4.listed().len() * entry_size(KeyV4::WORD_COUNT)
                + list.v6.listed().len() * entry_size(KeyV6::WORD_COUNT)
        });
        sizes.sum()
    }

    /// Encodes the list for a saved state, at the end of an interval.
    ///
    /// Complexity: linear in the list.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        for list in &self.partitions {
            list.v4.save(encoder);
            list.v6.save(encoder);
        }
    }

    /// Fills an empty list with what one with the same configuration saved. If this fails the list must not be used.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        for list in &mut self.partitions {
            list.v4.restore(decoder)?;
            list.v6.restore(decoder)?;
        }
        Ok(())
    }

    /// Marks all listed connections as unsettled: each may have closed unseen before the tick `resumed_tick`.
    pub(super) fn unsettle(&mut self, resumed_tick: u64) {
        for list in &mut self.partitions {
            list.v4.unsettle(resumed_tick);
            list.v6.unsettle(resumed_tick);
        }
    }
}

/// Adds the questions about one family to an inquiry.
fn ask<K>(inquiry: &mut Inquiry, questions: Questions<K>, any: impl Fn(K) -> AnyKey) {
    inquiry.listed.extend(questions.listed.into_iter().map(|(key, payload)| (any(key), payload)));
    inquiry.evict.extend(questions.evict.into_iter().map(|(key, payload, reason)| (any(key), payload, reason)));
}
