//! One family of one partition: the exact list, and what could not be decoded yet.
//!
//! What enters: deltas in order. What leaves: the connections that are open, and how much is missing. A delta is first
//! peeled by itself, and what comes out opens and closes connections of the list. What does not come out, and what the
//! list cannot take, is added to the residue, which is then peeled as a whole. If only the residue were peeled, each
//! interval's churn would pile up in it.

mod saved;

use crate::hash::{KeyedHash, Purpose};
use crate::list::FlowListConfig;
use crate::list::connections::Connections;
use crate::list::liveness::Liveness;
use crate::list::recovery::RECOVERY_PASSES_MAX;
use crate::list::resync::Resync;
use crate::list::start::Start;
use crate::signal::Watch;
use crate::sketch::{Change, Geometry, Iblt, Peeled, Peeler, Recipient, TableKey, ValueCode};
use crate::snapshot::Changes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The most openings and closings at odds with the list that are remembered in each partition and family: a hundred
/// times the filter errors expected in a billion packets.
pub(super) const EXTRANEOUS_MAX: usize = 1_024;

/// How many peeled changes are applied together. No key comes out of a table twice, so none of them depends on another.
const WAITING_COUNT: usize = 32;

/// What reconciling did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Deltas that did not empty when peeled by themselves.
    pub deltas_left: u64,
    /// Closings found with the help of the list.
    pub unstuck: u64,
    /// Connections that closed and opened again within one delta, whose start was corrected.
    pub restarted: u64,
    /// Decodings after which starts were given up because the values left belonged to no listed connection.
    pub starts_lost: u64,
    /// Openings and closings that contradicted the list and were set aside.
    pub set_aside: u64,
}

impl Outcome {
    pub(super) fn plus(self, other: Self) -> Self {
        Outcome {
            deltas_left: self.deltas_left + other.deltas_left,
            unstuck: self.unstuck + other.unstuck,
            restarted: self.restarted + other.restarted,
            starts_lost: self.starts_lost + other.starts_lost,
            set_aside: self.set_aside + other.set_aside,
        }
    }
}

/// The listed connections of a family and what contradicts them: everything but its residue.
pub(super) struct Ledger<K: TableKey> {
    pub(super) code: ValueCode<K>,
    pub(super) listed: Connections<K>,
    /// Verified openings of listed keys and closings of unlisted ones, with their counts: errors of the filter. Keys
    /// come from the wire, so the hash is seeded at random.
    pub(super) set_aside: HashMap<K, i32, ahash::RandomState>,
    /// The keys set aside, in the order in which they came: when there are too many, the oldest is dropped.
    set_aside_order: VecDeque<K>,
    /// Peeled changes that are applied together so that their cache misses overlap; each with the hash by which the
    /// list knows its key.
    waiting: Vec<(u64, Peeled<K>)>,
    /// Changes that the list could not take, to be put back into the table that they came from.
    pub(super) returned: Vec<Change<K>>,
    pub(super) outcome: Outcome,
    pub(super) liveness: Liveness,
    listed_max: usize,
    /// The tick at which the delta that is being applied was handed over.
    cut: u64,
    /// Whether changes that contradict the list are set aside (while the residue is peeled) or put back (while a delta
    /// is).
    sets_aside: bool,
}

impl<K: TableKey> Recipient<K> for Ledger<K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn belong(&self, placements: &[u128], values: &[u64], verdicts: &mut [bool]) {
        self.code.belong(placements, values, verdicts);
    }

    /// A listed connection closes with the value that it opened with.
    fn expected(&self, key: &K, placement: u128, count: i32) -> Option<u64> {
        let start = self.listed.get(key).filter(|_| count == -1)?;
        Some(start.value(&self.code, placement).wrapping_neg())
    }

    fn take(&mut self, peeled: Peeled<K>) {
        self.waiting.push((self.listed.prefetch(&peeled.change.key), peeled));
        if self.waiting.len() == WAITING_COUNT {
            self.apply_waiting();
        }
    }
}

impl<K: TableKey> Ledger<K> {
    /// Applies what was peeled so far.
    fn apply_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.iter().for_each(|(hash, _)| self.listed.prefetch_entry(*hash));
        waiting.drain(..).for_each(|(_, peeled)| self.apply(&peeled));
        self.waiting = waiting;
    }

    fn apply(&mut self, peeled: &Peeled<K>) {
        let Change { key, count, .. } = peeled.change;
        if let Some(waiting) = self.set_aside.get_mut(&key).filter(|waiting| **waiting > 0 || count > 0) {
            *waiting += count;
            if *waiting == 0 {
                self.set_aside.remove(&key);
            }
            return;
        }
        match count {
            1 if self.open(peeled) => (),
            -1 if self.unlist(&key).is_some() => (),
            // A full list contradicts nothing: the connection is missing until there is room.
            1 if !self.listed.contains(&key) => self.returned.push(peeled.change),
            _ => self.contradict(peeled.change),
        }
    }

    /// Lists a connection that opened, unless it is listed already or the list is full. Returns whether it was listed
    /// now.
    fn open(&mut self, peeled: &Peeled<K>) -> bool {
        let start = if peeled.value_known {
            self.start_of(ValueCode::<K>::payload(peeled.change.value))
        } else {
            Start::unknown(self.cut, self.liveness.epoch(self.cut))
        };
        self.list(peeled.change.key, start)
    }

    /// Lists a connection, unless it is listed already or the list is full. Returns whether it was listed now.
    pub(super) fn list(&mut self, key: K, start: Start) -> bool {
        self.listed.len() < self.listed_max && self.listed.insert(key, start)
    }

    /// The start that a payload tells, of a connection that was alive in the delta that is being applied.
    pub(super) fn start_of(&self, payload: u32) -> Start {
        Start::of_payload(payload, self.cut, self.liveness.epoch(self.cut))
    }

    /// Puts back into the table what the list could not take. Returns whether there was any.
    fn put_back(&mut self, table: &mut Iblt<K>) -> bool {
        let any = !self.returned.is_empty();
        self.returned.drain(..).for_each(|change| table.apply_one(&change));
        any
    }

    fn contradict(&mut self, change: Change<K>) {
        if !self.sets_aside {
            self.returned.push(change);
            return;
        }
        self.outcome.set_aside += 1;
        *self.set_aside.entry(change.key).or_insert(0) += change.count;
        self.set_aside_order.push_back(change.key);
        if self.set_aside_order.len() > EXTRANEOUS_MAX
            && let Some(oldest) = self.set_aside_order.pop_front()
        {
            self.set_aside.remove(&oldest);
        }
    }
}

/// The list of one family of one partition, with its residue.
pub(super) struct FamilyList<K: TableKey> {
    pub(super) ledger: Ledger<K>,
    pub(super) residue: Iblt<K>,
    pub(super) peeler: Peeler<K>,
    pub(super) resync: Resync<K>,
    residue_is_zero: bool,
}

impl<K: TableKey> FamilyList<K> {
    /// An empty list for deltas of this shape.
    pub(super) fn new(config: &FlowListConfig, geometry: Geometry, watch: Option<Arc<Watch>>) -> Self {
        let FlowListConfig { secret, partition_connections_max: listed_max, .. } = config;
        FamilyList {
            ledger: Ledger {
                code: ValueCode::new(KeyedHash::new(secret, Purpose::Value)),
                listed: Connections::new(),
                set_aside: HashMap::default(),
                set_aside_order: VecDeque::new(),
                waiting: Vec::with_capacity(WAITING_COUNT),
                returned: Vec::new(),
                outcome: Outcome::default(),
                liveness: Liveness::new(secret, config.eviction, watch),
                listed_max: usize::try_from(*listed_max).unwrap_or(usize::MAX),
                cut: 0,
                sets_aside: false,
            },
            residue: Iblt::new(geometry),
            peeler: Peeler::new(KeyedHash::new(secret, Purpose::Placement), geometry.cell_count()),
            resync: Resync::new(),
            residue_is_zero: true,
        }
    }

    /// Applies the changes of a delta that was handed over at the tick `cut`, and leaves its table empty. Deltas come
    /// in order.
    ///
    /// Complexity: a pass over the delta's cells; while there is a residue, also one over its cells, and some over the
    /// list if it is stuck.
    ///
    /// # Panics
    ///
    /// The delta does not have the shape that the list was made for: its changes would be lost.
    pub(super) fn apply(&mut self, changes: &mut Changes<K>, cut: u64) {
        if changes.is_untouched() {
            return;
        }
        let delta = &mut changes.table;
        self.ledger.cut = cut;
        self.ledger.sets_aside = false;
        self.peeler.peel(delta, &mut self.ledger);
        self.ledger.apply_waiting();
        let is_left = self.ledger.put_back(delta) || !delta.is_zero();
        if is_left {
            self.ledger.outcome.deltas_left += 1;
            self.residue.lay_in();
            let is_added = self.residue.merge(delta).is_ok();
            assert!(is_added, "all deltas have the shape of the residue");
            delta.clear();
            self.residue_is_zero = false;
        }
        if !self.residue_is_zero {
            self.reconcile();
        }
    }

    /// Peels the residue, with the help of the list if it is stuck.
    pub(super) fn reconcile(&mut self) {
        self.ledger.sets_aside = true;
        for _ in 0..RECOVERY_PASSES_MAX {
            self.peeler.peel(&mut self.residue, &mut self.ledger);
            self.ledger.apply_waiting();
            if self.residue.is_key_free() || self.unstick() == 0 {
                break;
            }
        }
        // What found the list full goes back only now: earlier, every pass would take it out again.
        self.ledger.put_back(&mut self.residue);
        self.correct_starts();
        self.residue_is_zero = self.residue.is_zero();
    }

    /// The listed connections.
    pub(super) fn listed(&self) -> &Connections<K> {
        &self.ledger.listed
    }

    /// How many listed connections may have closed unseen.
    pub(super) fn unsettled_count(&self) -> u64 {
        if !self.ledger.liveness.has_unsettled() {
            return 0;
        }
        self.ledger.listed.iter().filter(|(_, start)| start.is_unsettled()).count() as u64
    }

    /// Whether all openings and closings are in the list.
    pub(super) fn is_settled(&self) -> bool {
        self.residue_is_zero || self.residue.is_key_free()
    }

    /// About how many openings and closings are not in the list yet; 0 only when there are none.
    pub(super) fn missing(&self) -> u64 {
        if self.residue_is_zero { 0 } else { self.residue.estimated_count() }
    }

    /// How many openings and closings contradict the list and wait for their opposite.
    pub(super) fn extraneous(&self) -> u64 {
        self.ledger.set_aside.len() as u64
    }

    /// What reconciling did since the start.
    pub(super) fn outcome(&self) -> Outcome {
        self.ledger.outcome
    }
}
