//! One partition: its connections and the delta that their events are summed into.
//!
//! What enters: its signals, new time bases and interval ends, in order. What leaves: hand-overs, at the end of an
//! interval and whenever the delta holds half of what it lists. Nothing in it depends on the thread that runs it, so
//! neither do lists.

mod saved;

use crate::config::{ANNOUNCEMENTS_MAX, DELTA_LOAD_PERCENT, DELTA_SPAN_MAX_TICKS, TICK_BITS};
use crate::connection::{Counts, Event, MIDSTREAM, Sighting, Tracker, TrackerConfig};
use crate::flow::{KeyV4, KeyV6};
use crate::hash::Secret;
use crate::record::{Ending, Inlet, Recorder};
use crate::shard::Exchange;
use crate::signal::{AnyKey, Kind, Signal, TimeBase};
use crate::sketch::{BATCH_COUNT, Batch, PAYLOAD_BITS, TableKey};
use crate::snapshot::{Changes, Delta, DeltaGeometry, Eviction, Findings, HandOver, Inquiry, IntervalEnd, Marker};

const _: () = assert!(MIDSTREAM == 1 << TICK_BITS && TICK_BITS < PAYLOAD_BITS, "a payload is a tick and a flag");

/// What a [`Partition`] is told once.
#[derive(Clone, Debug)]
pub struct PartitionConfig {
    /// Its connections.
    pub tracker: TrackerConfig,
    /// The shape of its deltas.
    pub geometry: DeltaGeometry,
}

/// Events that wait to be hashed and summed into the table of one family.
struct Pending<K: TableKey> {
    batch: Batch<K>,
    /// What the table holds when it is handed over.
    items_max: u64,
}

impl<K: TableKey> Pending<K> {
    fn new(secret: &Secret, item_count: u64) -> Self {
        Pending { batch: Batch::new(secret), items_max: (item_count * DELTA_LOAD_PERCENT / 100).max(1) }
    }

    /// Takes in a change (whether it is an opening is told last), and says whether the table holds as much now as it is to. What
    /// cancels another change in the table takes no room.
    #[inline]
    fn change(&mut self, (key, payload, is_open): (K, u32, bool), cancels: bool, changes: &mut Changes<K>) -> bool {
        changes.items = items_after(changes.items, cancels);
        if !self.batch.push(key, payload, is_open) {
            return false;
        }
        changes.table.lay_in();
        changes.updates += self.batch.step_into(&mut changes.table);
        changes.items + BATCH_COUNT as u64 > self.items_max
    }

    /// Leaves what waits to the changes that are handed over.
    fn leave_to(&mut self, changes: &mut Changes<K>) {
        changes.updates += self.batch.leave_to(&mut changes.latest);
    }
}

/// The connections of one partition and their delta. All memory is taken when it is made.
pub struct Partition {
    index: usize,
    tracker: Tracker,
    delta: Box<Delta>,
    v4: Pending<KeyV4>,
    v6: Pending<KeyV6>,
    base: TimeBase,
    now: u64,
    /// The tick at which the present delta began.
    began: u64,
    /// Open connections that packets showed, for the list's next answer, and how many it wants.
    announced: Vec<(AnyKey, u32)>,
    announcements_max: usize,
    /// What the list has asked and was not answered yet, and what is known of the answer.
    inquiry: Option<Inquiry>,
    findings: Findings,
    /// Takes down what closes, for an archive.
    recorder: Option<Recorder>,
}

impl Partition {
    /// The partition of this index, with no connection.
    #[must_use]
    pub fn new(index: usize, config: &PartitionConfig) -> Self {
        let secret = &config.tracker.secret;
        Partition {
            index,
            tracker: Tracker::new(config.tracker.clone()),
            delta: Box::new(Delta::new(config.geometry)),
            v4: Pending::new(secret, config.geometry.v4.item_count()),
            v6: Pending::new(secret, config.geometry.v6.item_count()),
            base: TimeBase { first_tick: 0, offset_ns: 0 },
            now: 0,
            began: 0,
            announced: Vec::new(),
            announcements_max: 0,
            inquiry: None,
            findings: Findings::default(),
            recorder: None,
        }
    }

    /// The same, with a record sent here of every connection that ends.
    #[must_use]
    pub fn recording(mut self, inlet: Inlet) -> Self {
        self.recorder = Some(Recorder::new(self.index, inlet));
        self
    }

    /// Its index.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let unarchived = self.recorder.as_ref().map_or(0, Recorder::dropped);
        Counts { unarchived, ..self.tracker.counts() }
    }

    /// Asks for what [`Self::handle`] will read first for this signal.
    #[inline]
    pub fn prefetch(&self, signal: &Signal) {
        self.tracker.prefetch(signal);
    }

    /// Asks for what it will read then, when the first has come.
    #[inline]
    pub fn prefetch_second(&self, signal: &Signal) {
        self.tracker.prefetch_second(signal);
    }

    /// Whether this signal refuses a connection; see [`Tracker::refuses`].
    #[inline]
    pub fn refuses(&mut self, signal: &Signal) -> bool {
        self.tracker.refuses(signal)
    }

    /// Does what a signal says.
    #[inline]
    pub fn handle(&mut self, signal: &Signal, exchange: &mut impl Exchange) {
        let tick = signal.parts().tick;
        if tick > self.now {
            self.advance(tick, exchange);
        }
        let event = self.tracker.handle(signal);
        if self.announced.len() < self.announcements_max {
            self.announced.extend(self.tracker.established(signal));
        }
        if let Some(event) = &event {
            self.record(event, || ending_of(signal.parts().kind));
            self.sum(event, exchange);
        }
    }

    /// Takes down what an event closes, if that is wanted.
    #[inline]
    fn record(&mut self, event: &Event, ending: impl FnOnce() -> Ending) {
        let Some(recorder) = &mut self.recorder else { return };
        let (key, payload, ending) = match *event {
            Event::Open(..) => return,
            Event::Close(key, payload) | Event::Pass(key, payload) => (key, payload, ending()),
            Event::Replace((key, payload), _) => (key, payload, Ending::Replaced),
        };
        recorder.record(key, payload, ending, self.now);
    }

    fn sum(&mut self, event: &Event, exchange: &mut impl Exchange) {
        let (key, payload, is_open) = match event {
            Event::Open(key, payload) => (key, *payload, true),
            Event::Close(key, payload) => (key, *payload, false),
            Event::Replace((closed, payload_before), (opened, payload)) => {
                self.sum(&Event::Close(*closed, *payload_before), exchange);
                return self.sum(&Event::Open(*opened, *payload), exchange);
            }
            Event::Pass(..) => return,
        };
        let cancels = !is_open && self.is_of_delta(payload);
        let is_full = match key {
            AnyKey::V4(key) => self.v4.change((*key, payload, is_open), cancels, &mut self.delta.v4),
            AnyKey::V6(key) => self.v6.change((*key, payload, is_open), cancels, &mut self.delta.v6),
        };
        if is_full {
            self.hand_over(exchange);
        }
    }

    /// Moves time on. Values tell the low bits of a tick only, so no delta spans more than these can tell, unless it is held
    /// back for so long.
    fn advance(&mut self, tick: u64, exchange: &mut impl Exchange) {
        if tick - self.began > DELTA_SPAN_MAX_TICKS && self.hand_over(exchange) {
            self.began = tick;
        }
        self.now = tick;
    }

    /// Whether the connection with this payload began after the present delta did, so that its opening is in it. One that began 29
    /// hours before may be taken for one that did: then the delta holds a little more than it is said to.
    fn is_of_delta(&self, payload: u32) -> bool {
        let age_ticks = (self.now as u32).wrapping_sub(payload) & ((1 << TICK_BITS) - 1);
        u64::from(age_ticks) < self.now - self.began
    }

    /// Whether nothing has changed since the last hand-over.
    fn is_untouched(&self) -> bool {
        self.delta.is_untouched() && self.v4.batch.is_idle() && self.v6.batch.is_idle()
    }

    /// A new time base begins. The list is told of the one before if anything in it may have begun that is still to open: that is told in
    /// the base in which it began, whether anything else changed there or not.
    pub fn start_base(&mut self, base: TimeBase, exchange: &mut impl Exchange) {
        let delta = self.swap(exchange);
        if delta.is_some() || !self.is_untouched() || self.tracker.has_records() {
            exchange.hand_over(self.handed(delta));
        }
        self.base = base;
        // A record knows the low bits of its tick only: it has to be taken off before many leaps together make it look young.
        self.advance(self.now.max(base.first_tick), exchange);
        self.tracker.advance(self.now);
        if let Some(recorder) = &mut self.recorder {
            recorder.start_base(base);
        }
    }

    /// An interval ends: what the list wants evicted goes, what is half-open is told, and the delta is to be handed over.
    #[must_use]
    pub fn end_interval(&mut self, marker: &Marker, exchange: &mut impl Exchange) -> HandOver {
        self.advance(self.now.max(marker.end_tick), exchange);
        self.tracker.advance(self.now);
        // Asked for first: where it is waited for, it comes behind what the list asks, and nothing depends on who is faster.
        let half_open = exchange.spare_half_open(self.index);
        self.inquiry = self.inquiry.take().or_else(|| exchange.inquiry(self.index));
        self.evict(exchange);
        let half_open = half_open.map(|mut half_open| {
            self.tracker.list_half_open(&mut half_open);
            half_open
        });
        // What has closed is on its way to the archive before any list that does not show it any more.
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
        let counts = self.counts();
        let delta = self.swap(exchange);
        // Changes that are held back are changes that the list does not know: it could make nothing of an answer. A state is cut
        // where nothing is held back, too: else the next end of an interval has to do.
        let is_held_back = !self.is_untouched();
        let findings = if is_held_back { None } else { self.findings() };
        let saved = (marker.saves && !is_held_back).then(|| self.save());
        let end = IntervalEnd { marker: *marker, half_open, counts, saved };
        HandOver { is_held_back, end: Some(end), findings, ..self.handed(delta) }
    }

    /// Closes what the list wants evicted, before the hand-over, which then tells it.
    fn evict(&mut self, exchange: &mut impl Exchange) {
        let evict = self.inquiry.as_mut().map(|inquiry| std::mem::take(&mut inquiry.evict));
        for (key, payload, reason) in evict.into_iter().flatten() {
            let event = match reason {
                Eviction::Aged => self.tracker.evict_aged(&key, payload),
                Eviction::Idle => {
                    let (sighting, event) = self.tracker.evict_idle(&key, payload);
                    self.findings.seen.extend((sighting == Sighting::Seen).then_some((key, payload)));
                    event
                }
            };
            if let Some(event) = &event {
                self.record(event, || if reason == Eviction::Aged { Ending::Evicted } else { Ending::Timeout });
                self.sum(event, exchange);
            }
        }
    }

    /// A cut of the archive: what closed before it is before it in the records of every partition.
    pub fn cut(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.cut();
        }
    }

    /// Answers what the list asks. Everything is looked up here and now, so that the answer is true at the hand-over.
    fn findings(&mut self) -> Option<Findings> {
        let Some(inquiry) = self.inquiry.take() else {
            self.announcements_max = 0;
            self.announced = Vec::new();
            return None;
        };
        self.announcements_max = inquiry.announcements_max.min(ANNOUNCEMENTS_MAX);
        let mut findings = std::mem::take(&mut self.findings);
        findings.open = std::mem::take(&mut self.announced);
        findings.open.retain(|(key, payload)| self.tracker.is_open(key, *payload));
        for (key, payload) in inquiry.listed {
            match self.tracker.look(&key, payload) {
                Sighting::Gone => findings.gone.push((key, payload)),
                Sighting::Seen => findings.seen.push((key, payload)),
                Sighting::Unseen => {}
            }
        }
        Some(findings)
    }

    /// Hands over the delta and goes on with an empty one; whether that was done. Where there is none the delta stays and goes
    /// on growing.
    fn hand_over(&mut self, exchange: &mut impl Exchange) -> bool {
        if let Some(delta) = self.swap(exchange) {
            exchange.hand_over(self.handed(Some(delta)));
        }
        self.is_untouched()
    }

    /// Goes on with an empty delta, if there is one and the present one is not empty too; the one that it replaces. What is in the
    /// delta afterwards is held back.
    fn swap(&mut self, exchange: &mut impl Exchange) -> Option<Box<Delta>> {
        let spare = if self.is_untouched() { None } else { exchange.spare(self.index) };
        let swapped = spare.map(|spare| {
            // Of both families: a busy one must not keep the other's changes for later deltas.
            self.v4.leave_to(&mut self.delta.v4);
            self.v6.leave_to(&mut self.delta.v6);
            std::mem::replace(&mut self.delta, spare)
        });
        if self.is_untouched() {
            self.began = self.now;
        }
        swapped
    }

    /// What hands this delta over.
    fn handed(&self, delta: Option<Box<Delta>>) -> HandOver {
        let (partition, tick, base) = (self.index, self.now, self.base);
        HandOver { partition, delta, is_held_back: false, tick, base, end: None, findings: None }
    }
}

/// What a table holds after one more change, when it held so much: that of an opening that is in it cancels it.
fn items_after(item_count: u64, cancels: bool) -> u64 {
    if cancels { item_count.saturating_sub(1) } else { item_count + 1 }
}

/// How a connection ended that a packet of this kind closed.
fn ending_of(kind: Kind) -> Ending {
    match kind {
        Kind::Fin => Ending::Fin,
        Kind::Rst => Ending::Rst,
        // Another handshake between the same ends.
        Kind::Syn | Kind::SynAck | Kind::Ack | Kind::Completes => Ending::Replaced,
    }
}
