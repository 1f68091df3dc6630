//! One partition: a tracker whose events are summed into a delta, and the answers to the list's questions.

use crate::error::Result;
use crate::flow::FlowKey as TableKey;
use crate::flow::{AnyKey, KeyV4, KeyV6};
use crate::handover::{
    ANNOUNCEMENTS_MAX, Changes, Counts, Delta, DeltaGeometry, Ended, Ending, Ends, Eviction, Findings, HandOver,
    Inquiry, IntervalEnd, MIDSTREAM, PRESUMED_MAX_TICKS, SavedPartition, ticks_since,
};
use crate::queue::Marker;
use crate::record::{Inlet, RecordedTime, Recorder};
use crate::signal::{SYN_TIMEOUT_MAX_TICKS, Signal, SignalKind, TICK_BITS, TimeBase};
use crate::state::{Decoder, Encoder};
use crate::track::{Event, Exchange, Sighting, Tracker, TrackerConfig};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{BATCH_COUNT, Batch, PAYLOAD_BITS};
use std::time::Instant;

/// How full a delta may become before it is handed over, in percent of what it plainly lists: it then lists nearly
/// always, and holds two connections with the same four cells once in a million times.
pub const DELTA_LOAD_PERCENT: u64 = 50;

/// The longest time that one delta may span, in ticks: half of what the start time in a value can express. The other
/// half is for connections that were half-open when the delta began.
pub const DELTA_SPAN_MAX_TICKS: u64 = 1 << (TICK_BITS - 1);

// A client repeats its SYN for one timeout, the last is answered within another, and that within a third.
const _: () = assert!(DELTA_SPAN_MAX_TICKS + 3 * SYN_TIMEOUT_MAX_TICKS < 1 << TICK_BITS);
// A handshake that is presumed to be answered opens when its server says something.
const _: () = assert!(DELTA_SPAN_MAX_TICKS + PRESUMED_MAX_TICKS < 1 << TICK_BITS);

const _: () = assert!(MIDSTREAM == 1 << TICK_BITS && TICK_BITS + 3 <= PAYLOAD_BITS, "a payload is a tick and flags");

/// The configuration of a [`Partition`].
#[derive(Clone, Debug)]
pub struct PartitionConfig {
    /// The configuration of its tracker.
    pub tracker: TrackerConfig,
    /// The shape of its deltas.
    pub geometry: DeltaGeometry,
    /// After how long a silence the list takes connections off, in ticks, if it does.
    pub idle_ticks: Option<u64>,
}

/// Leaps of time that matter are this part of the idle timeout, as long as the list's epochs: what was seen before one
/// must not count as seen behind it.
const LEAPS_IN_IDLE: u64 = 16;

/// The shortest leap that matters, in ticks: a minute. Each costs two passes over the filter.
const LEAP_MIN_TICKS: u64 = 600;

/// An opening or a closing, for a table.
struct TableUpdate<K> {
    key: K,
    payload: u32,
    is_open: bool,
    /// Whether it cancels an update in the table, and so takes no room.
    cancels: bool,
}

/// Events that wait to be hashed and summed into the table of one family.
struct PendingUpdates<K: TableKey> {
    batch: Batch<K>,
    /// How many changes the table holds when it is handed over.
    items_max: u64,
}

impl<K: TableKey> PendingUpdates<K> {
    fn new(secret: &Secret, item_count: u64) -> Self {
        PendingUpdates { batch: Batch::new(secret), items_max: (item_count * DELTA_LOAD_PERCENT / 100).max(1) }
    }

    /// Takes in an update, and returns whether the table is now to be handed over.
    #[inline]
    fn update(&mut self, update: TableUpdate<K>, changes: &mut Changes<K>) -> bool {
        changes.items = items_after(changes.items, update.cancels);
        if !self.batch.push(update.key, update.payload, update.is_open) {
            return false;
        }
        changes.table.populate();
        changes.updates += self.batch.step_into(&mut changes.table);
        changes.items + BATCH_COUNT as u64 > self.items_max
    }

    /// Moves the waiting updates to the changes that are handed over.
    fn move_waiting_to(&mut self, changes: &mut Changes<K>) {
        changes.updates += self.batch.drain_into(&mut changes.latest);
    }
}

/// The connections of one partition and their delta. All memory is allocated when it is made.
pub struct Partition {
    index: usize,
    tracker: Tracker,
    delta: Box<Delta>,
    v4: PendingUpdates<KeyV4>,
    v6: PendingUpdates<KeyV6>,
    base: TimeBase,
    now: u64,
    /// The tick at which the present delta began.
    began: u64,
    /// How far time leaps so that what was seen before is kept apart, in ticks, if silence is ever a reason to evict.
    /// Then the tick before the last such leap.
    leap_ticks: Option<u64>,
    leap_tick: u64,
    /// Open connections that packets showed, for the next answer to the list, and the most that the list wants.
    announced: Vec<(AnyKey, u32)>,
    announcements_max: usize,
    /// The list's question that is not answered yet, and what is known of the answer.
    inquiry: Option<Inquiry>,
    findings: Findings,
    /// What has ended in the interval, if lists say what closed.
    ends: Option<Ends>,
    /// Record the connections that close, for an archive, and those that open too, for whom events are reported to.
    recorders: Vec<Recorder>,
}

impl Partition {
    /// A partition without a connection, of this index.
    #[must_use]
    pub fn new(index: usize, config: &PartitionConfig) -> Self {
        let secret = &config.tracker.secret;
        Partition {
            index,
            tracker: Tracker::new(config.tracker.clone()),
            delta: Box::new(Delta::new(config.geometry)),
            v4: PendingUpdates::new(secret, config.geometry.v4.item_count()),
            v6: PendingUpdates::new(secret, config.geometry.v6.item_count()),
            base: TimeBase { first_tick: 0, offset_ns: 0 },
            now: 0,
            began: 0,
            leap_ticks: config.idle_ticks.map(|idle_ticks| (idle_ticks / LEAPS_IN_IDLE).max(LEAP_MIN_TICKS)),
            leap_tick: 0,
            announced: Vec::new(),
            announcements_max: 0,
            inquiry: None,
            findings: Findings::default(),
            ends: None,
            recorders: Vec::new(),
        }
    }

    /// Makes the partition send a record of every connection that ends, here besides where it does already.
    #[must_use]
    pub fn recording(mut self, inlet: Inlet) -> Self {
        self.recorders.push(Recorder::new(self.index, inlet));
        self
    }

    /// Makes the partition hand over what ended in an interval, up to so many.
    #[must_use]
    pub fn with_ends(self, count_max: usize) -> Self {
        Partition { ends: Some(Ends::new(count_max)), ..self }
    }

    /// The index of the partition.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let archived = self.recorders.iter().filter(|recorder| recorder.is_of_archive());
        let unarchived = archived.map(Recorder::dropped).sum();
        Counts { unarchived, ..self.tracker.counts() }
    }

    /// Prefetches what [`Self::handle`] reads first for this signal.
    #[inline]
    pub fn prefetch(&self, signal: &Signal) {
        self.tracker.prefetch(signal);
    }

    /// Prefetches what [`Self::handle`] reads next for this signal, once the first has arrived.
    #[inline]
    pub fn prefetch_second(&self, signal: &Signal) {
        self.tracker.prefetch_second(signal);
    }

    /// Whether this signal refuses a connection, as [`Tracker::refuses`] says.
    #[inline]
    pub fn refuses(&mut self, signal: &Signal) -> bool {
        self.tracker.refuses(signal)
    }

    /// Applies a signal.
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

    /// Records the connections that an event closes and opens, where that is wanted.
    #[inline]
    fn record(&mut self, event: &Event, ending: impl FnOnce() -> Ending) {
        if self.recorders.is_empty() && self.ends.is_none() {
            return;
        }
        match *event {
            Event::Open(key, payload) => self.record_in_order(None, None, Some((key, payload))),
            Event::Close(key, payload) => self.record_in_order(None, Some((key, payload, ending())), None),
            Event::Reopen(key, payload) => self.record_in_order(None, Some((key, payload, Ending::Reopened)), None),
            Event::Replace((key, payload), opened) => {
                self.record_in_order(None, Some((key, payload, Ending::Replaced)), Some(opened));
            }
            // It has neither opened nor closed.
            Event::Turn(..) => {}
            Event::Pass(key, payload) => {
                self.record_in_order(Some((key, payload)), Some((key, payload, ending())), None);
            }
            Event::CloseAndPass((before, payload_before), (key, payload)) => {
                self.record_in_order(None, Some((before, payload_before, Ending::Replaced)), None);
                self.record_in_order(Some((key, payload)), Some((key, payload, ending())), None);
            }
        }
    }

    /// Records that a connection opens, then that one closes, and then that one opens.
    fn record_in_order(
        &mut self,
        before: Option<(AnyKey, u32)>,
        closed: Option<(AnyKey, u32, Ending)>,
        behind: Option<(AnyKey, u32)>,
    ) {
        if let (Some(ends), Some((key, payload, ending))) = (&mut self.ends, closed) {
            ends.push(Ended { key, payload, tick: self.now, ending });
        }
        let seen = closed.and_then(|(_, payload, ending)| match ending {
            Ending::Reopened => None,
            _ => self.tracker.sides_seen(payload),
        });
        for recorder in &mut self.recorders {
            if let Some((key, payload)) = before.filter(|_| recorder.takes_openings()) {
                recorder.record(key, payload, None, None, self.now);
            }
            if let Some((key, payload, ending)) = closed {
                recorder.record(key, payload, Some(ending), seen, self.now);
            }
            if let Some((key, payload)) = behind.filter(|_| recorder.takes_openings()) {
                recorder.record(key, payload, None, None, self.now);
            }
        }
    }

    fn sum(&mut self, event: &Event, exchange: &mut impl Exchange) {
        let (key, payload, is_open) = match event {
            Event::Open(key, payload) | Event::Reopen(key, payload) => (key, *payload, true),
            Event::Close(key, payload) | Event::CloseAndPass((key, payload), _) => (key, *payload, false),
            Event::Replace((closed, payload_before), (opened, payload)) => {
                self.sum(&Event::Close(*closed, *payload_before), exchange);
                return self.sum(&Event::Open(*opened, *payload), exchange);
            }
            Event::Turn(key, payload_before, payload) => {
                self.sum(&Event::Close(*key, *payload_before), exchange);
                return self.sum(&Event::Open(*key, *payload), exchange);
            }
            Event::Pass(..) => return,
        };
        let cancels = !is_open && self.is_of_delta(payload);
        let is_full = match key {
            AnyKey::V4(key) => self.v4.update(TableUpdate { key: *key, payload, is_open, cancels }, &mut self.delta.v4),
            AnyKey::V6(key) => self.v6.update(TableUpdate { key: *key, payload, is_open, cancels }, &mut self.delta.v6),
        };
        if is_full {
            self.hand_over(exchange);
        }
    }

    /// Moves time on, and removes what has timed out. Values have only the low bits of a tick, so a delta is handed
    /// over before it spans more ticks than these can express, if the exchange has an empty one.
    fn advance(&mut self, tick: u64, exchange: &mut impl Exchange) {
        if tick - self.began > DELTA_SPAN_MAX_TICKS && self.hand_over(exchange) {
            self.began = tick;
        }
        if self.leap_ticks.is_some_and(|leap_ticks| tick - self.now >= leap_ticks) && self.tracker.keep_seen() {
            self.leap_tick = self.now;
        }
        self.now = tick;
        self.tracker.advance(tick);
    }

    /// Whether the connection with this payload began after the present delta did, so that its opening is in the delta.
    /// A connection that began a wrap of 29 hours earlier may be mistaken for one that did; the delta then holds a
    /// little more than its count says.
    fn is_of_delta(&self, payload: u32) -> bool {
        u64::from(ticks_since(payload, self.now)) < self.now - self.began
    }

    /// Whether nothing has changed since the last hand-over.
    fn is_untouched(&self) -> bool {
        self.delta.is_untouched() && self.v4.batch.is_idle() && self.v6.batch.is_idle()
    }

    /// Begins a new time base. The one before is handed over if a connection that began in it may still open: its
    /// start is reported in that base, even if nothing else changed there.
    pub fn start_base(&mut self, base: TimeBase, exchange: &mut impl Exchange) {
        let delta = self.swap(exchange);
        if delta.is_some() || !self.is_untouched() || self.tracker.has_records() {
            exchange.hand_over(self.handed(delta));
        }
        self.base = base;
        // A record knows the low bits of its tick only: it has to be taken off before many leaps together make it look
        // young.
        self.advance(self.now.max(base.first_tick), exchange);
        self.recorders.iter_mut().for_each(|recorder| recorder.start_base(base));
    }

    /// Ends an interval: evicts what the list wants evicted, lists what is half-open, and returns the last hand-over.
    #[must_use]
    pub fn end_interval(&mut self, marker: &Marker, exchange: &mut impl Exchange) -> HandOver {
        self.advance(self.now.max(marker.end_tick), exchange);
        // Requested first: the list provides it only after its question, so nothing depends on which thread is faster.
        let half_open = exchange.spare_half_open(self.index);
        self.inquiry = self.inquiry.take().or_else(|| exchange.inquiry(self.index));
        self.evict(exchange);
        self.track_refused(exchange);
        let half_open = half_open.map(|mut half_open| {
            self.tracker.list_half_open(&mut half_open);
            half_open
        });
        // The records of closed connections are on their way to the archive before any list that no longer shows them.
        for recorder in &mut self.recorders {
            // Where the state is saved there is a cut. Events have one at every end of an interval, so that their order
            // does not depend on when that is; but none at the last, which is somewhere else in a run that is stopped.
            match (marker.saves, recorder.is_of_archive() || marker.is_last) {
                (true, _) => recorder.cut_for_save(),
                (false, false) => recorder.cut(),
                (false, true) => recorder.flush(),
            }
        }
        let counts = self.counts();
        let delta = self.swap(exchange);
        // While changes are held back, the list does not know them and could make nothing of an answer. A state is not
        // saved then either: the next end of an interval has to do.
        let is_held_back = !self.is_untouched();
        let findings = if is_held_back { None } else { self.findings() };
        let saved = (marker.saves && !is_held_back).then(|| self.save());
        let ends = self.ends.as_mut().map(Ends::take).unwrap_or_default();
        let end = IntervalEnd { marker: *marker, half_open, counts, ends, saved };
        HandOver { is_held_back, end: Some(end), findings, ..self.handed(delta) }
    }

    /// Evicts what the list wants evicted, before the hand-over, which then has these closings.
    fn evict(&mut self, exchange: &mut impl Exchange) {
        let evict = self.inquiry.as_mut().map(|inquiry| std::mem::take(&mut inquiry.evict));
        for (key, payload, reason) in evict.into_iter().flatten() {
            let event = match reason {
                Eviction::Aged => self.tracker.evict_aged(&key, payload),
                Eviction::Idle => {
                    let (sighting, event) = self.tracker.evict_idle(&key, payload);
                    add_sighting(&mut self.findings, (key, payload), sighting);
                    event
                }
            };
            if let Some(event) = &event {
                self.record(event, || if reason == Eviction::Aged { Ending::Evicted } else { Ending::Timeout });
                self.sum(event, exchange);
            }
        }
    }

    /// Tracks connections that were refused and are still open, where there is room now.
    fn track_refused(&mut self, exchange: &mut impl Exchange) {
        for left in self.tracker.take_refused() {
            if let Some(event) = self.tracker.track_left(&left) {
                // It opens, and ends in no way.
                self.record(&event, || Ending::Replaced);
                self.sum(&event, exchange);
            }
        }
    }

    /// Makes a cut of the archive: in every partition the records of what has closed come before it.
    pub fn cut(&mut self) {
        self.recorders.iter_mut().for_each(Recorder::cut);
    }

    /// Answers the list's question. Everything is looked up now, so that the answer is true at the hand-over.
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
            match self.tracker.sighting(&key, payload) {
                Sighting::Gone => findings.gone.push((key, payload)),
                sighting => add_sighting(&mut findings, (key, payload), sighting),
            }
        }
        findings.leap_tick = self.leap_tick;
        Some(findings)
    }

    /// Hands the delta over, continues with an empty one, and returns whether it did. If there is no empty one, the
    /// delta stays and keeps growing.
    fn hand_over(&mut self, exchange: &mut impl Exchange) -> bool {
        if let Some(delta) = self.swap(exchange) {
            exchange.hand_over(self.handed(Some(delta)));
        }
        self.is_untouched()
    }

    /// Puts an empty delta in the place of the present one, if there is one and the present one is not empty too, and
    /// returns the present one. Otherwise what is in the delta is held back.
    fn swap(&mut self, exchange: &mut impl Exchange) -> Option<Box<Delta>> {
        let spare = if self.is_untouched() { None } else { exchange.spare(self.index) };
        let swapped = spare.map(|spare| {
            // Both families: a busy one must not push the other's waiting changes into later deltas.
            self.v4.move_waiting_to(&mut self.delta.v4);
            self.v6.move_waiting_to(&mut self.delta.v6);
            std::mem::replace(&mut self.delta, spare)
        });
        if self.is_untouched() {
            self.began = self.now;
        }
        swapped
    }

    /// The hand-over of this delta.
    fn handed(&self, delta: Option<Box<Delta>>) -> HandOver {
        let (partition, tick, base) = (self.index, self.now, self.base);
        HandOver { partition, delta, is_held_back: false, tick, base, end: None, findings: None }
    }

    /// The state from which the partition can continue. Its delta must have been handed over.
    ///
    /// Complexity: a pass over its memory.
    fn save(&self) -> SavedPartition {
        debug_assert!(self.is_untouched() && self.announced.is_empty() && self.inquiry.is_none());
        let began = Instant::now();
        let mut encoder = Encoder::with_capacity(self.tracker.saved_size() + 1_024);
        self.base.save(&mut encoder);
        encoder.u64(self.now);
        encoder.u64(self.began);
        encoder.u64(self.leap_tick);
        encoder.length(self.announcements_max);
        self.tracker.save(&mut encoder);
        encoder.option(self.recorders.last(), |encoder, recorder| recorder.save(encoder));
        SavedPartition { bytes: encoder.into_bytes(), took: began.elapsed() }
    }

    /// Continues from a saved state of the same configuration. After an error the partition is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode such a partition.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let mut decoder = Decoder::new(bytes);
        self.base = TimeBase::saved(&mut decoder)?;
        self.now = decoder.count()?;
        self.began = decoder.count()?;
        decoder.expect(self.began <= self.now, "a time before its beginning")?;
        self.leap_tick = decoder.count()?;
        let announcements_max = usize::try_from(decoder.count()?).unwrap_or(usize::MAX);
        self.announcements_max = announcements_max.min(ANNOUNCEMENTS_MAX);
        self.tracker.restore(&mut decoder)?;
        let recorded = decoder.option(RecordedTime::saved)?;
        for recorder in &mut self.recorders {
            match &recorded {
                Some(recorded) => recorder.restore(recorded),
                None => recorder.start_base(self.base),
            }
        }
        decoder.end()
    }

    /// Forgets which connections were seen: what was seen before a restart says nothing about the time after it.
    pub fn forget_seen(&mut self) {
        self.tracker.forget_seen();
    }
}

/// The number of changes in a table after one more update, which may cancel one of them.
fn items_after(item_count: u64, cancels: bool) -> u64 {
    if cancels { item_count.saturating_sub(1) } else { item_count + 1 }
}

/// Adds to the findings a connection that was seen since it was last asked about.
fn add_sighting(findings: &mut Findings, connection: (AnyKey, u32), sighting: Sighting) {
    let (seen, is_half_closed) = match sighting {
        Sighting::Seen { is_half_closed } => (&mut findings.seen, is_half_closed),
        Sighting::SeenBefore { is_half_closed } => (&mut findings.seen_before, is_half_closed),
        Sighting::Gone | Sighting::Unseen => return,
    };
    seen.push(connection);
    if is_half_closed {
        findings.half_closed.push(connection);
    }
}

/// How a connection ended that a packet of this kind closed.
fn ending_of(kind: SignalKind) -> Ending {
    match kind {
        SignalKind::Fin => Ending::Fin,
        SignalKind::Rst => Ending::Rst,
        // Another handshake between the same ends.
        SignalKind::Syn
        | SignalKind::SynAck
        | SignalKind::Ack
        | SignalKind::Completes
        | SignalKind::Alive
        | SignalKind::Known => Ending::Replaced,
    }
}
