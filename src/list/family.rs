//! One family of one partition: the exact list, and what could not be decoded yet.
//!
//! Deltas come in order. Each is first peeled by itself, and what comes out opens and closes connections of the list.
//! What does not come out, and what the list cannot take, is added to the residue, which is then peeled as a whole. If
//! only the residue were peeled, each interval's churn would pile up in it.
//!
//! # Recovery
//!
//! A decoder that knows what may have been removed can decode more than plain peeling. If adding a listed connection
//! back to a stuck cell leaves one other key in it, that connection has closed. A connection that closed and opened
//! again within one delta leaves no key at all, only the difference of its two values in all its cells. It is the
//! listed connection whose old value plus that difference is a valid value for it.
//!
//! # Resynchronization
//!
//! A residue that holds more than can be decoded does not shrink by itself: connections that have closed stay listed,
//! and their closings stay in the residue. The partition knows which are open but has no keys; the list has keys. So
//! the list asks about the listed connections, some at the end of each interval. The partition answers which of them
//! are gone, and announces connections that packets show to be open. Each answer moves one key between list and
//! residue, whose sum stays the same, until the residue is small enough to be peeled.

use crate::error::Result;
use crate::flow::{FlowKey as TableKey, saved_key as key};
use crate::handover::{Changes, Eviction, PRESUMED_MAX_TICKS, SidesSeen};
use crate::handover::{save_cells, saved_cells};
use crate::list::FlowListConfig;
use crate::list::connections::Connections;
use crate::list::former::FormerStarts;
use crate::list::liveness::Liveness;
use crate::list::start::Start;
use crate::signal::{Clock, SYN_TIMEOUT_MAX_TICKS, Watch};
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{KeyedHash, Purpose};
use flowpeel_iblt::{Change, Geometry, Iblt, PackedCell, Peeled, Peeler, Recipient, TableCell, ValueCode};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// The most passes over the list to recover one delta: differences that overlap take one pass each, and more than a few
/// never do.
const RECOVERY_PASSES_MAX: usize = 16;

/// The most openings and closings at odds with the list that are remembered in each partition and family: a hundred
/// times the filter errors expected in a billion packets.
const EXTRANEOUS_MAX: usize = 1_024;

/// How many peeled changes are applied together. No key comes out of a table twice, so none of them depends on another.
const WAITING_COUNT: usize = 32;

/// The longest time from the start of a connection to its coming into a table, in ticks: a SYN and its answer wait,
/// each for its timeout, and as much again is left for partitions that are cut at other times.
const OPENING_TICKS_MAX: u64 = 4 * SYN_TIMEOUT_MAX_TICKS;

/// The earliest start of what came into a table since this tick, of which these sides were seen: a server that was seen
/// alone may have said nothing for as long as its handshake is presumed to be answered.
pub(super) fn earliest_start(since: u64, sides: SidesSeen) -> u64 {
    let opening_ticks_max = if sides == SidesSeen::Server { PRESUMED_MAX_TICKS } else { OPENING_TICKS_MAX };
    since.saturating_sub(opening_ticks_max).max(Clock::FIRST_TICK)
}

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
    /// Openings and closings that contradicted the list and were deferred.
    pub deferred: u64,
}

impl Outcome {
    pub(super) fn plus(self, other: Self) -> Self {
        Outcome {
            deltas_left: self.deltas_left + other.deltas_left,
            unstuck: self.unstuck + other.unstuck,
            restarted: self.restarted + other.restarted,
            starts_lost: self.starts_lost + other.starts_lost,
            deferred: self.deferred + other.deferred,
        }
    }

    fn save(self, encoder: &mut Encoder) {
        let Outcome { deltas_left, unstuck, restarted, starts_lost, deferred } = self;
        encoder.counts([deltas_left, unstuck, restarted, starts_lost, deferred]);
    }

    fn saved(decoder: &mut Decoder) -> Result<Self> {
        let [deltas_left, unstuck, restarted, starts_lost, deferred] = decoder.counts()?;
        Ok(Outcome { deltas_left, unstuck, restarted, starts_lost, deferred })
    }
}

/// The listed connections of a family and what contradicts them: everything but its residue.
struct Ledger<K: TableKey> {
    code: ValueCode<K>,
    listed: Connections<K>,
    /// Verified openings of listed keys and closings of unlisted ones, with their counts: errors of the filter. Keys
    /// come from the wire, so the hash is seeded at random.
    deferred: HashMap<K, i32, ahash::RandomState>,
    /// The deferred keys, in the order in which they came: when there are too many, the oldest is dropped.
    deferred_order: VecDeque<K>,
    /// The starts of connections that were listed for long and are no longer.
    former: FormerStarts<K>,
    /// Peeled changes that are applied together so that their cache misses overlap; each with the hash by which the
    /// list knows its key.
    waiting: Vec<(u64, Peeled<K>)>,
    /// Changes that the list could not take, to be put back into the table that they came from.
    returned: Vec<Change<K>>,
    outcome: Outcome,
    liveness: Liveness,
    listed_max: usize,
    /// The tick at which the delta that is being applied was handed over.
    cut: u64,
    /// The tick since which all has come into a table that is in the delta, or in the residue, and not listed.
    since: u64,
    /// Whether changes that contradict the list are deferred (while the residue is peeled) or put back (while a delta
    /// is).
    defers: bool,
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
        if let Some(waiting) = self.deferred.get_mut(&key).filter(|waiting| **waiting > 0 || count > 0) {
            *waiting += count;
            if *waiting == 0 {
                self.deferred.remove(&key);
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
            self.start_of(&peeled.change.key, ValueCode::<K>::payload(peeled.change.value))
        } else {
            Start::unknown(self.cut, self.liveness.epoch(self.cut))
        };
        self.list(peeled.change.key, start)
    }

    /// Lists a connection, unless it is listed already or the list is full. Returns whether it was listed now.
    fn list(&mut self, key: K, start: Start) -> bool {
        self.listed.len() < self.listed_max && self.listed.insert(key, start)
    }

    /// Takes a connection off the list, and out of the watch. Returns its start, if it was listed.
    fn unlist(&mut self, key: &K) -> Option<Start> {
        let start = self.listed.remove(key)?;
        self.liveness.end_watch(key, start);
        if start.is_known() && start.tick() < earliest_start(self.since, start.sides()) {
            self.former.put(*key, start);
        }
        Some(start)
    }

    /// The start in a payload, of a connection that was alive in the delta that is being applied.
    fn start_of(&mut self, key: &K, payload: u32) -> Start {
        self.start_at(key, payload, self.cut)
    }

    /// The start in a payload, of a connection that was alive at the tick `cut`: the one that it had when it was listed
    /// before, if it has not ended after all.
    fn start_at(&mut self, key: &K, payload: u32, cut: u64) -> Start {
        let epoch = self.liveness.epoch(cut);
        match self.former.take(key, payload) {
            Some(start) => start.seen_in(epoch).settled(),
            None => {
                let start = Start::of_payload(payload, cut, epoch);
                start.bound_since(earliest_start(self.since, start.sides()))
            }
        }
    }

    /// Takes a connection off the list that is in the residue from now on.
    fn return_to_residue(&mut self, key: &K) -> Option<Start> {
        let start = self.unlist(key)?;
        self.since = self.since.min(start.tick());
        Some(start)
    }

    /// Puts back into the table what the list could not take. Returns whether there was any.
    fn put_back(&mut self, table: &mut Iblt<K>) -> bool {
        let any = !self.returned.is_empty();
        self.returned.drain(..).for_each(|change| table.apply_one(&change));
        any
    }

    fn contradict(&mut self, change: Change<K>) {
        if !self.defers {
            self.returned.push(change);
            return;
        }
        self.outcome.deferred += 1;
        *self.deferred.entry(change.key).or_insert(0) += change.count;
        self.deferred_order.push_back(change.key);
        if self.deferred_order.len() > EXTRANEOUS_MAX
            && let Some(oldest) = self.deferred_order.pop_front()
        {
            self.deferred.remove(&oldest);
        }
    }
}

/// Intervals for which a residue may stay before the partition is asked about it: a residue that ordinary churn settles
/// within an interval or two needs no help.
pub(super) const RESIDUE_INTERVALS_MAX: u32 = 3;

/// For how many intervals there has been a residue, and where the questions continue.
struct Resync<K> {
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
    fn new() -> Self {
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
        Ok(Resync { intervals: decoder.u32()?, asked: decoder.option(key)? })
    }
}

/// The list of one family of one partition, with its residue.
pub(super) struct FamilyList<K: TableKey> {
    ledger: Ledger<K>,
    residue: Iblt<K>,
    peeler: Peeler<K>,
    resync: Resync<K>,
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
                deferred: HashMap::default(),
                deferred_order: VecDeque::new(),
                former: FormerStarts::new(),
                waiting: Vec::with_capacity(WAITING_COUNT),
                returned: Vec::new(),
                outcome: Outcome::default(),
                liveness: Liveness::new(secret, config.eviction, watch),
                listed_max: usize::try_from(*listed_max).unwrap_or(usize::MAX),
                cut: 0,
                since: 0,
                defers: false,
            },
            residue: Iblt::new(geometry),
            peeler: Peeler::new(KeyedHash::new(secret, Purpose::Placement), geometry.cell_count()),
            resync: Resync::new(),
            residue_is_zero: true,
        }
    }

    /// Applies the changes of a delta that was handed over at the tick `cut`, and leaves its table empty. Deltas come
    /// in order. What opened in it came into its table since the tick `since`.
    ///
    /// Complexity: a pass over the delta's cells; while there is a residue, also one over its cells, and some over the
    /// list if it is stuck.
    ///
    /// # Panics
    ///
    /// The delta does not have the shape that the list was made for: its changes would be lost.
    pub(super) fn apply(&mut self, changes: &mut Changes<K>, since: u64, cut: u64) {
        self.advance(cut);
        if changes.is_untouched() {
            return;
        }
        let delta = &mut changes.table;
        self.ledger.cut = cut;
        self.ledger.since = self.unlisted_since(since);
        self.ledger.defers = false;
        self.peeler.peel(delta, &mut self.ledger);
        self.ledger.apply_waiting();
        let is_left = self.ledger.put_back(delta) || !delta.is_zero();
        if is_left {
            self.ledger.outcome.deltas_left += 1;
            self.residue.populate();
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
    fn reconcile(&mut self) {
        self.ledger.defers = true;
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

    /// The tick since which all has opened that is in a table and not listed, if all but the residue has opened since
    /// the tick `since`.
    pub(super) fn unlisted_since(&self, since: u64) -> u64 {
        if self.residue_is_zero { since } else { since.min(self.ledger.since) }
    }

    /// Takes the starts of the connections that an earlier list of the same run has too.
    ///
    /// Complexity: a pass over the list.
    pub(super) fn adopt_starts(&mut self, earlier: &Self) {
        let known = earlier.listed();
        self.ledger.listed.update_all(|key, start| {
            let same = known.get(key).filter(|known| known.is_known() && known.payload() == start.payload());
            same.unwrap_or(start)
        });
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
        self.ledger.deferred.len() as u64
    }

    /// What reconciling did since the start.
    pub(super) fn outcome(&self) -> Outcome {
        self.ledger.outcome
    }

    /// Closes the listed connections that free a stuck cell when they are added back to it, one at a time. Returns how
    /// many.
    ///
    /// Complexity: a pass over the list.
    fn unstick(&mut self) -> usize {
        let mut closed: Vec<(K, u128)> = Vec::new();
        let hash = self.peeler.hash();
        hash.for_each(self.ledger.listed.keys(), |key, placement| {
            if self.residue.live_places(placement).any(|place| self.is_freed_by(&key, placement, place)) {
                closed.push((key, placement));
            }
        });
        closed.retain(|(key, placement)| {
            let Some(start) = self.ledger.return_to_residue(key) else { return false };
            // The list loses it and the residue gains it, so their sum stays the same.
            self.residue.apply_one(&Change::insert(*key, *placement, start.value(&self.ledger.code, *placement)));
            true
        });
        self.ledger.outcome.unstuck += closed.len() as u64;
        closed.len()
    }

    /// Whether adding this key back to the cell at `place` leaves one other key alone in it.
    fn is_freed_by(&self, key: &K, placement: u128, place: usize) -> bool {
        let mut cell = self.residue.cells()[place];
        if !matches!(cell.count(), 0 | -2) || cell.is_key_free() {
            return false;
        }
        cell.add(&PackedCell::of(key, 0, placement, 1));
        let other = cell.lone_key();
        let other_placement = self.peeler.hash().of(&other);
        cell.is_lone(other_placement)
            && other != *key
            && self.residue.geometry().places(other_placement).contains(&place)
    }

    /// Finds the connections to which left-over value differences belong, and corrects their starts. Differences that
    /// belong to none are cleared once no key is left that they could belong to.
    fn correct_starts(&mut self) {
        let is_noisy = |cell: &PackedCell<K>| cell.value() != 0 && cell.is_key_free();
        for _ in 0..RECOVERY_PASSES_MAX {
            if !self.residue.cells().iter().any(is_noisy) {
                break;
            }
            let mut corrected: Vec<(K, u128, u64)> = Vec::new();
            self.peeler.hash().for_each(self.ledger.listed.keys(), |key, placement| {
                let mut places = self.residue.live_places(placement);
                if places.all(|place| self.residue.cells()[place].value() != 0) {
                    corrected.extend(self.difference_of(&key, placement).map(|value| (key, placement, value)));
                }
            });
            for (key, placement, difference) in &corrected {
                self.residue.subtract_value(*placement, *difference);
                if let Some(start) = self.ledger.unlist(key) {
                    let value = start.value(&self.ledger.code, *placement).wrapping_add(*difference);
                    let start = self.ledger.start_of(key, ValueCode::<K>::payload(value));
                    self.ledger.listed.insert(*key, start);
                }
            }
            self.ledger.outcome.restarted += corrected.len() as u64;
            if corrected.is_empty() {
                break;
            }
        }
        if self.residue.is_key_free() {
            self.ledger.outcome.starts_lost += u64::from(self.residue.clear_values() > 0);
        }
    }

    /// The value difference in this listed connection's cells, if it belongs to the connection.
    fn difference_of(&self, key: &K, placement: u128) -> Option<u64> {
        let old = self.ledger.listed.get(key)?.value(&self.ledger.code, placement);
        let cells = self.residue.live_places(placement).map(|place| self.residue.cells()[place]);
        let mut differences = cells.filter(PackedCell::is_key_free).map(|cell| cell.value());
        differences.find(|difference| self.ledger.code.belongs(placement, old.wrapping_add(*difference)))
    }

    /// Moves on to a tick, which may be far behind the last.
    fn advance(&mut self, tick: u64) {
        if let Some(leap) = self.ledger.liveness.advance(tick) {
            self.ledger.listed.update_all(|_, start| start.behind(leap));
        }
    }

    /// Records that an interval has ended at this tick.
    pub(super) fn end_interval(&mut self, tick: u64) {
        self.advance(tick);
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

    /// The next listed connections to ask about, in the order of their keys, from the first again after the last; and,
    /// instead of a question, those to take off. Connections that were not seen for some time come under watch.
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
    /// whose delta has been applied. What opened in that came into its table since the tick `since`.
    pub(super) fn apply_answers(&mut self, Answers { gone, open }: &Answers<K>, since: u64, cut: u64) {
        self.advance(cut);
        self.ledger.since = self.unlisted_since(since);
        // An empty residue holds no closing of what is gone, so all of it would come back.
        let gone = if self.is_settled() { &[] } else { gone.as_slice() };
        for (key, payload) in gone {
            if self.ledger.listed.get(key).is_some_and(|start| start.payload() == *payload)
                && let Some(start) = self.ledger.return_to_residue(key)
            {
                let placement = self.peeler.hash().of(key);
                let value = start.value(&self.ledger.code, placement);
                self.residue.apply_one(&Change::insert(*key, placement, value));
            }
        }
        for (key, payload) in open {
            let known = self.ledger.listed.get(key).filter(|known| known.is_known() && known.payload() == *payload);
            // The list knows the start of what is still the same connection for good.
            let start = match known {
                Some(known) => known.seen_in(self.ledger.liveness.epoch(cut)).settled(),
                None => self.ledger.start_at(key, *payload, cut),
            };
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

    /// Records that these connections were seen since they were last asked about, as of the tick `cut`.
    pub(super) fn see(&mut self, seen: &[(K, u32)], cut: u64) {
        self.advance(cut);
        let epoch = self.ledger.liveness.epoch(cut);
        for (key, payload) in seen {
            self.ledger.listed.update(key, |start| {
                if start.payload() != *payload {
                    return start;
                }
                self.ledger.liveness.end_watch(key, start);
                start.seen_in(epoch).settled()
            });
        }
    }

    /// Records that these connections were seen since they were last asked about, but only up to `leap_tick`, before
    /// time leaped; the present tick is `cut`.
    pub(super) fn see_before(&mut self, seen: &[(K, u32)], leap_tick: u64, cut: u64) {
        self.advance(cut);
        let (epoch, now) = (self.ledger.liveness.epoch_before(leap_tick, cut), self.ledger.liveness.epoch(cut));
        for (key, payload) in seen {
            self.ledger.listed.update(key, |start| {
                let is_later = now.since(epoch) < now.since(start.seen());
                if start.payload() != *payload || !is_later {
                    return start;
                }
                self.ledger.liveness.end_watch(key, start);
                start.seen_in(epoch).settled()
            });
        }
        if !seen.is_empty() {
            self.ledger.liveness.ask_again_if_silent_since(epoch);
        }
    }

    /// Marks connections of which one side has ended as unsettled if they were open before the run was resumed: their
    /// other side may have ended unseen. Packets of it show nothing, as a side that has ended still acknowledges.
    pub(super) fn doubt_half_closed(&mut self, half_closed: &[(K, u32)]) {
        let Ledger { listed, liveness, .. } = &mut self.ledger;
        for (key, payload) in half_closed {
            listed.update(key, |start| if start.payload() == *payload { liveness.doubt(start) } else { start });
        }
    }

    /// Lists a connection, unless it is listed. Returns what that adds to the sum of all changes.
    pub(super) fn relist(&mut self, key: K, start: Start) -> Option<Change<K>> {
        self.ledger.listed.insert(key, start).then(|| {
            let placement = self.peeler.hash().of(&key);
            Change::insert(key, placement, start.value(&self.ledger.code, placement))
        })
    }

    /// Takes a connection off the list. Returns what that adds to the sum of all changes, if it was listed.
    pub(super) fn delist(&mut self, key: &K) -> Option<Change<K>> {
        let start = self.ledger.unlist(key)?;
        let placement = self.peeler.hash().of(key);
        Some(Change::remove(*key, placement, start.value(&self.ledger.code, placement)))
    }

    /// Encodes the list for a saved state, at the end of an interval: no change waits to be put back into a table then.
    ///
    /// Complexity: linear in the list; a pass over the residue unless it is empty.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        let ledger = &self.ledger;
        debug_assert!(ledger.returned.is_empty());
        encoder.length(ledger.listed.len());
        for (key, start) in ledger.listed.iter() {
            encoder.words(key.words());
            encoder.u64(start.to_bits());
        }
        encoder.length(ledger.deferred.len());
        for (key, count) in &ledger.deferred {
            encoder.words(key.words());
            encoder.u32(*count as u32);
        }
        encoder.length(ledger.deferred_order.len());
        ledger.deferred_order.iter().for_each(|key| encoder.words(key.words()));
        ledger.former.save(encoder);
        encoder.u64(ledger.cut);
        encoder.u64(ledger.since);
        ledger.outcome.save(encoder);
        ledger.liveness.save(encoder);
        self.resync.save(encoder);
        encoder.bool(self.residue_is_zero);
        if !self.residue_is_zero {
            save_cells(&self.residue, encoder);
        }
    }

    /// Fills an empty list with what one with the same configuration saved. If this fails the list must not be used.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let ledger = &mut self.ledger;
        let key_size = K::WORD_COUNT * size_of::<u64>();
        let count = decoder.length(key_size + size_of::<u64>(), ledger.listed_max)?;
        for _ in 0..count {
            let is_new = ledger.listed.insert(key(decoder)?, Start::of_bits(decoder.u64()?));
            decoder.expect(is_new, "a connection twice")?;
        }
        for _ in 0..decoder.length(key_size + size_of::<u32>(), EXTRANEOUS_MAX)? {
            let (key, count) = (key(decoder)?, decoder.u32()? as i32);
            decoder.expect(count.unsigned_abs() < 1 << 30, "a connection deferred too often")?;
            ledger.deferred.insert(key, count);
        }
        for _ in 0..decoder.length(key_size, EXTRANEOUS_MAX)? {
            ledger.deferred_order.push_back(key(decoder)?);
        }
        ledger.former = FormerStarts::saved(decoder)?;
        ledger.cut = decoder.count()?;
        ledger.since = decoder.u64()?;
        ledger.outcome = Outcome::saved(decoder)?;
        ledger.liveness.restore(decoder)?;
        self.resync = Resync::saved(decoder)?;
        self.residue_is_zero = decoder.bool()?;
        if !self.residue_is_zero {
            self.residue = saved_cells(self.residue.geometry(), decoder)?;
        }
        Ok(())
    }

    /// Marks all listed connections as unsettled: each may have closed unseen before the tick `resumed_tick`.
    pub(super) fn unsettle(&mut self, resumed_tick: u64) {
        let ledger = &mut self.ledger;
        ledger.listed.update_all(|key, start| ledger.liveness.unsettle(key, start, resumed_tick));
        ledger.liveness.set_unsettled(!ledger.listed.is_empty());
        ledger.liveness.resume_at(resumed_tick);
    }
}
