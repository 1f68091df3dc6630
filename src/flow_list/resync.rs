//! How a list that lost track finds it again.
//!
//! What enters: the ends of intervals, and what a partition answers. What leaves: what to ask it, and a residue that
//! shrinks.
//!
//! A residue that holds more than can be decoded does not shrink by itself: connections that have closed stay listed, and their
//! closings stay in the residue. The partition knows better, but has no keys; the list has keys. So the list asks about what
//! it lists, a part at a time, and the partition answers what is gone; and it announces what packets show to be open. Each
//! answer moves one key between list and residue, whose sum stays what it was, and the residue shrinks until it peels.

use crate::config::RESIDUE_INTERVALS_MAX;
use crate::flow_list::FamilyList;
use crate::flow_list::difference::Start;
use crate::sketch::{Change, TableKey};
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

/// How long a residue has stayed, and how far the questions have come.
pub(super) struct Resync<K> {
    intervals: u32,
    /// The last key that was asked about; none at the beginning of a round.
    asked: Option<K>,
}

/// What a partition answers of one family: each connection with the payload that it opened with.
pub(super) struct Settlement<K> {
    /// Connections that are listed and not open.
    pub(super) gone: Vec<(K, u32)>,
    /// Connections that are open.
    pub(super) open: Vec<(K, u32)>,
}

impl<K> Resync<K> {
    pub(super) fn new() -> Self {
        Resync { intervals: 0, asked: None }
    }
}

impl<K: TableKey> FamilyList<K> {
    /// Takes note that an interval has ended.
    pub(super) fn end_interval(&mut self) {
        let is_settled = self.missing() == 0;
        self.resync.intervals = if is_settled { 0 } else { self.resync.intervals.saturating_add(1) };
        if is_settled {
            self.resync.asked = None;
        }
    }

    /// Whether the residue has stayed for so long that the partition has to be asked.
    pub(super) fn needs_answers(&self) -> bool {
        self.resync.intervals >= RESIDUE_INTERVALS_MAX
    }

    /// The next listed connections to ask about, in the order of their keys, and after the last the first again.
    ///
    /// Complexity: a pass over the list; no more is held than is asked.
    pub(super) fn questions(&mut self, count_max: usize) -> Vec<(K, u32)> {
        let asked = self.resync.asked;
        let listed = self.ledger.listed.iter().filter(|(key, _)| asked.is_none_or(|asked| **key > asked));
        let mut first = BinaryHeap::with_capacity(count_max + 1);
        for (key, start) in listed {
            first.push((*key, start.payload()));
            if first.len() > count_max {
                first.pop();
            }
        }
        let questions = first.into_sorted_vec();
        self.resync.asked = if questions.len() == count_max { questions.last().map(|last| last.0) } else { None };
        questions
    }

    /// Takes what the partition says is gone off the list, and lists what it says is open, as of a hand-over at the tick
    /// `cut` whose delta has been applied.
    pub(super) fn settle(&mut self, Settlement { gone, open }: &Settlement<K>, cut: u64) {
        for (key, payload) in gone {
            if let Entry::Occupied(listed) = self.ledger.listed.entry(*key)
                && listed.get().payload() == *payload
            {
                let placement = self.peeler.hash().of(key);
                let value = listed.remove().value(&self.ledger.code, placement);
                self.residue.apply_one(&Change::insert(*key, placement, value));
            }
        }
        for (key, payload) in open {
            let start = Start::of_payload(*payload, cut);
            let placement = self.peeler.hash().of(key);
            let value = start.value(&self.ledger.code, placement);
            match self.ledger.listed.entry(*key) {
                Entry::Vacant(vacant) => {
                    vacant.insert(start);
                    self.residue.apply_one(&Change::remove(*key, placement, value));
                }
                Entry::Occupied(mut listed) => {
                    // It closed and opened again: the residue has the difference of the values, and no key.
                    let before = listed.insert(start).value(&self.ledger.code, placement);
                    self.residue.subtract_value(placement, value.wrapping_sub(before));
                }
            }
        }
        if !gone.is_empty() || !open.is_empty() {
            self.reconcile();
        }
    }
}
