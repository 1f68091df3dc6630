//! How a list that lost track finds it again.
//!
//! What enters: the ends of intervals, and a partition's answers. What leaves: questions to it, and a residue that
//! shrinks.
//!
//! A residue that holds more than can be decoded does not shrink by itself: connections that have closed stay listed,
//! and their closings stay in the residue. The partition knows which are open but has no keys; the list has keys. So
//! the list asks about the listed connections, a part at a time. The partition answers which of them are gone, and
//! announces connections that packets show to be open. Each answer moves one key between list and residue, whose sum
//! stays the same, until the residue is small enough to be peeled.

use crate::error::Result;
use crate::list::FamilyList;
use crate::list::start::Start;
use crate::sketch::{Change, TableKey};
use crate::snapshot::Eviction;
use crate::state::{Decoder, Encoder};
use std::collections::BinaryHeap;

/// Intervals for which a residue may stay before the partition is asked about it: a residue that ordinary churn settles
/// within an interval or two needs no help.
pub(super) const RESIDUE_INTERVALS_MAX: u32 = 3;

/// For how many intervals there has been a residue, and how far the questions have come.
pub(super) struct Resync<K> {
    intervals: u32,
    /// The last key that was asked about; `None` at the beginning of a round.
    asked: Option<K>,
}

/// The answers of a partition for one family, each connection with the payload that it opened with.
pub(super) struct Answers<K> {
    /// Connections that are listed and not open.
    pub(super) gone: Vec<(K, u32)>,
    /// Connections that are open.
    pub(super) open: Vec<(K, u32)>,
}

/// The questions to a partition about one family, each connection with the payload that it opened with.
pub(super) struct Questions<K> {
    /// Connections to ask about: whether they are open, and whether they were seen.
    pub(super) listed: Vec<(K, u32)>,
    /// Connections to take off.
    pub(super) evict: Vec<(K, u32, Eviction)>,
}

impl<K> Resync<K> {
    pub(super) fn new() -> Self {
        Resync { intervals: 0, asked: None }
    }
}

impl<K: TableKey> Resync<K> {
    /// Encodes it for a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u32(self.intervals);
        encoder.option(self.asked, |encoder, key| encoder.words(key.words()));
    }

    /// Decodes what was saved.
    pub(super) fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(Resync { intervals: decoder.u32()?, asked: decoder.option(super::saved::key)? })
    }
}

impl<K: TableKey> FamilyList<K> {
    /// Notes that an interval has ended at this tick.
    pub(super) fn end_interval(&mut self, tick: u64) {
        let is_settled = self.is_settled();
        self.resync.intervals = if is_settled { 0 } else { self.resync.intervals.saturating_add(1) };
        if self.ledger.liveness.has_unsettled() {
            let has_unsettled = self.ledger.listed.iter().any(|(_, start)| start.is_unsettled());
            self.ledger.liveness.set_unsettled(has_unsettled);
        }
        let begins_round = self.ledger.liveness.end_interval(tick);
        if begins_round || is_settled && !self.ledger.liveness.is_asking() {
            self.resync.asked = None;
        }
    }

    /// Whether there has been a residue for so long that the partition has to be asked.
    pub(super) fn needs_answers(&self) -> bool {
        self.resync.intervals >= RESIDUE_INTERVALS_MAX
    }

    /// Whether there is something to ask, because of the residue or about which listed connections are still alive.
    pub(super) fn has_questions(&self) -> bool {
        self.needs_answers() || self.ledger.liveness.is_asking()
    }

    /// The next listed connections to ask about, in the order of their keys and round and round; and, instead of a
    /// question, those to take off. Connections that were not seen for some time come under watch.
    ///
    /// Complexity: a pass over the list, in memory for `count_max` keys.
    pub(super) fn questions(&mut self, count_max: usize) -> Questions<K> {
        let asked = self.resync.asked;
        let asks_all = self.needs_answers();
        let listed = self.ledger.listed.iter().filter(|(key, start)| {
            asked.is_none_or(|asked| *key > asked) && (asks_all || self.ledger.liveness.concerns(*start))
        });
        let mut first = BinaryHeap::with_capacity(count_max + 1);
        for (key, _) in listed {
            first.push(key);
            if first.len() > count_max {
                first.pop();
            }
        }
        let keys = first.into_sorted_vec();
        self.resync.asked = keys.last().copied().filter(|_| keys.len() == count_max);
        if self.resync.asked.is_none() {
            self.ledger.liveness.end_round();
        }
        let mut questions = Questions { listed: Vec::new(), evict: Vec::new() };
        for key in keys {
            let mut eviction = None;
            let judge = |start| {
                let judged;
                (eviction, judged) = self.ledger.liveness.judge(&key, start);
                judged
            };
            if let Some(start) = self.ledger.listed.update(&key, judge) {
                match eviction {
                    Some(reason) => questions.evict.push((key, start.payload(), reason)),
                    None => questions.listed.push((key, start.payload())),
                }
            }
        }
        questions
    }

    /// Takes off what the partition says is gone, and lists what it says is open, as of a hand-over at the tick `cut`
    /// whose delta has been applied.
    pub(super) fn apply_answers(&mut self, Answers { gone, open }: &Answers<K>, cut: u64) {
        // An empty residue holds no closing of what is gone, so all of it would come back.
        let gone = if self.is_settled() { &[] } else { gone.as_slice() };
        for (key, payload) in gone {
            if self.ledger.listed.get(key).is_some_and(|start| start.payload() == *payload)
                && let Some(start) = self.ledger.unlist(key)
            {
                let placement = self.peeler.hash().of(key);
                let value = start.value(&self.ledger.code, placement);
                self.residue.apply_one(&Change::insert(*key, placement, value));
            }
        }
        for (key, payload) in open {
            let start = Start::of_payload(*payload, cut, self.ledger.liveness.epoch(cut));
            let placement = self.peeler.hash().of(key);
            let value = start.value(&self.ledger.code, placement);
            if let Some(before) = self.ledger.listed.update(key, |_| start) {
                // It closed and opened again: the residue holds the difference of the two values, and no key.
                self.ledger.liveness.end_watch(key, before);
                let before = before.value(&self.ledger.code, placement);
                self.residue.subtract_value(placement, value.wrapping_sub(before));
            } else if self.ledger.list(*key, start) {
                self.residue.apply_one(&Change::remove(*key, placement, value));
            }
        }
        if !gone.is_empty() || !open.is_empty() {
            self.reconcile();
        }
    }
}
