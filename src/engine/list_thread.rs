//! The list on its thread: hand-overs in, lists out to the exporter.
//!
//! Partitions end an interval at different moments. Hand-overs of a partition that is ahead wait until all have ended
//! it. They are few, because a partition that is ahead soon runs out of empty deltas.

use crate::engine::saving::{Instants, ListSaving, SavingCounts, save_inquiry, saved_inquiry};
use crate::engine::shard_thread::Returns;
use crate::engine::{Latencies, Plan};
use crate::error::Result;
use crate::export::{Exporter, Output};
use crate::handover::{Counts, HandOver, Inquiry};
use crate::list::{FlowList, Header, List, Outcome, TranslationSource};
use crate::metrics::{Durations, Load};
use crate::queue::Marker;
use crate::signal::{PARTITION_COUNT, TwoNames, WarmUp, Watch};
use crate::state::{Decoder, Encoder};
use crossbeam::channel::Receiver;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the list thread counted.
pub(crate) struct ListTotals {
    pub(crate) counts: Counts,
    pub(crate) outcome: Outcome,
    pub(crate) latencies: Latencies,
    /// The latencies since [`OnList`] took them last.
    pub(crate) recent: Latencies,
    /// The fullest delta since the list before: what it holds, and how much it plainly lists.
    pub(crate) fullest_delta: Load,
    /// How many places all filters have.
    pub(crate) filter_places: u64,
    /// Whether a list could not be written.
    pub(crate) has_failed: bool,
    pub(crate) lists: u64,
    /// Those that were not complete, for another reason than that older connections were still being found.
    pub(crate) incomplete: u64,
    pub(crate) last: Option<Header>,
    /// The counts of saving, that this thread knows.
    pub(crate) saving: Option<SavingCounts>,
}

impl ListTotals {
    pub(crate) fn new(plan: &Plan) -> Self {
        ListTotals {
            counts: Counts::default(),
            outcome: Outcome::default(),
            latencies: Latencies::default(),
            recent: Latencies::default(),
            fullest_delta: Load::default(),
            filter_places: (PARTITION_COUNT * plan.partition.tracker.place_count) as u64,
            has_failed: false,
            lists: 0,
            incomplete: 0,
            last: None,
            saving: None,
        }
    }

    /// Records how long something took, among the latencies of the run and among those of late.
    fn record(&mut self, took: Duration, of: impl Fn(&mut Latencies) -> &mut Durations) {
        [&mut self.latencies, &mut self.recent].into_iter().for_each(|latencies| of(latencies).record(took));
    }
}

/// The number of lists that a run may have written since its state was saved.
pub(crate) struct SkippedLists(pub(crate) u64);

/// A callback for every interval that has ended. It gets the header of its list, unless the interval was merged into
/// the next, the list itself, and the counts so far.
pub(crate) type OnList<'a> = Box<dyn FnMut(Option<&Header>, &FlowList, &mut ListTotals) + Send + 'a>;

/// The exporter of a run, its own or the caller's.
pub(crate) enum Lists<'a> {
    Owned(Box<dyn Exporter>),
    Borrowed(&'a mut dyn Exporter),
}

impl Lists<'_> {
    fn exporter(&mut self) -> &mut dyn Exporter {
        match self {
            Lists::Owned(exporter) => &mut **exporter,
            Lists::Borrowed(exporter) => *exporter,
        }
    }
}

/// The list with what it takes to receive hand-overs and to write it.
pub(crate) struct ListThread<'a> {
    list: FlowList,
    /// Hand-overs of partitions that are an interval ahead.
    early: Vec<VecDeque<HandOver>>,
    returns: Returns,
    lists: Lists<'a>,
    on_list: OnList<'a>,
    error: Option<crate::error::Error>,
    list_totals: ListTotals,
    /// The marker of the interval that is ending.
    marker: Marker,
    saving: Option<ListSaving>,
}

impl<'a> ListThread<'a> {
    pub(crate) fn new(
        plan: &Plan,
        watch: Option<&Arc<Watch>>,
        lists: Lists<'a>,
        returns: Returns,
        on_list: OnList<'a>,
    ) -> Self {
        ListThread {
            list: plan.flow_list(watch),
            early: (0..PARTITION_COUNT).map(|_| VecDeque::with_capacity(1 + plan.spare_count)).collect(),
            returns,
            lists,
            on_list,
            error: None,
            list_totals: ListTotals::new(plan),
            marker: Marker::default(),
            saving: None,
        }
    }

    /// Has the state saved from now on.
    pub(crate) fn set_saving(&mut self, saving: ListSaving) {
        self.saving = Some(saving);
    }

    /// Lists a translated connection once, by what this source knows.
    pub(crate) fn set_translations(&mut self, translations: Arc<dyn TranslationSource>) {
        self.list.set_translations(translations);
    }

    /// Has lists say how many connections this finds under two names.
    pub(crate) fn set_two_names(&mut self, two_names: TwoNames) {
        self.list.set_two_names(two_names);
    }

    /// The list of a capture that began at this time, in ns since 1970.
    pub(crate) fn set_since(&mut self, since_ns: i64, warm_up: Option<Arc<WarmUp>>) {
        self.list.set_since(since_ns, warm_up);
    }

    /// Takes over the saved list of another run of the same configuration. With `asks_again` the questions that it had
    /// just asked are asked again.
    ///
    /// # Errors
    ///
    /// The bytes are no such list.
    pub(crate) fn restore(&mut self, part: &[u8], asks_again: bool) -> Result<()> {
        let mut decoder = Decoder::new(part);
        Instants::saved(&mut decoder)?;
        self.list_totals.lists = decoder.count()?;
        self.list_totals.incomplete = decoder.count()?;
        self.list.restore(&mut decoder)?;
        for partition in 0..PARTITION_COUNT {
            if let Some(inquiry) = decoder.option(saved_inquiry)?.filter(|_| asks_again) {
                self.returns.ask(partition, inquiry);
            }
        }
        if let Some(resumable) = self.lists.exporter().resumable() {
            resumable.restore(&mut decoder)?;
        }
        decoder.end()
    }

    /// Packets have passed up to this tick that nobody saw, and the run before may have written as many lists as are
    /// skipped.
    pub(crate) fn resume_behind(&mut self, resumed_tick: u64, skipped: SkippedLists) {
        self.list.unsettle(resumed_tick);
        self.list.skip_intervals(skipped.0);
        if let Some(resumable) = self.lists.exporter().resumable() {
            resumable.build_anew();
        }
    }

    /// Takes hand-overs until all shards have ended. When a list cannot be written, `has_failed` is set, and what comes
    /// after is taken but not written: the shards must be able to end.
    ///
    /// # Errors
    ///
    /// The first error of the exporter.
    pub(crate) fn run(mut self, hand_overs: Receiver<HandOver>, has_failed: &AtomicBool) -> Result<ListTotals> {
        for hand_over in hand_overs {
            let partition = hand_over.partition;
            if self.list.has_ended(partition) {
                self.early[partition].push_back(hand_over);
                continue;
            }
            self.apply(hand_over);
            while self.list.is_due() {
                self.write(has_failed);
                self.catch_up();
            }
        }
        self.list_totals.counts = self.list.counts();
        self.list_totals.outcome = self.list.outcome();
        self.list_totals.saving = self.saving.map(ListSaving::counts);
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.list_totals),
        }
    }

    fn apply(&mut self, mut hand_over: HandOver) {
        let partition = hand_over.partition;
        if let Some(end) = &mut hand_over.end {
            self.marker = end.marker;
            if let (Some(saving), Some(saved)) = (&mut self.saving, end.saved.take()) {
                self.list_totals.record(saved.took, |latencies| &mut latencies.pause);
                saving.put(partition, saved.bytes);
            }
        }
        if let Some(delta) = &hand_over.delta {
            let loads = [(delta.v4.items, delta.v4.table.geometry()), (delta.v6.items, delta.v6.table.geometry())];
            for (used, geometry) in loads {
                let load = Load { used, limit: geometry.item_count() };
                if load.ratio() >= self.list_totals.fullest_delta.ratio() {
                    self.list_totals.fullest_delta = load;
                }
            }
        }
        let began = Instant::now();
        if let Some(delta) = self.list.apply(hand_over) {
            self.list_totals.record(began.elapsed(), |latencies| &mut latencies.peel);
            self.returns.delta(partition, delta);
        }
    }

    /// Applies early hand-overs, up to the end of the interval that is now the present one.
    fn catch_up(&mut self) {
        for partition in 0..PARTITION_COUNT {
            while !self.list.has_ended(partition)
                && let Some(hand_over) = self.early[partition].pop_front()
            {
                self.apply(hand_over);
            }
        }
    }

    fn write(&mut self, has_failed: &AtomicBool) {
        let began = Instant::now();
        let Self { list, lists, error, returns, .. } = self;
        let exporter = lists.exporter();
        let write = |list: &List| {
            if error.is_none() {
                *error = exporter.write(Output::List(list)).err();
            }
        };
        let mut emptied = Vec::with_capacity(PARTITION_COUNT);
        let listed = list.end_interval(write, |partition, half_open| emptied.push((partition, half_open)));
        let mut asked = Vec::with_capacity(PARTITION_COUNT);
        for partition in 0..PARTITION_COUNT {
            let inquiry = list.inquiry(partition);
            if self.marker.saves {
                asked.push(inquiry.clone());
            }
            if let Some(inquiry) = inquiry {
                returns.ask(partition, inquiry);
            }
        }
        // These go after the questions: a shard that waits for its half-open list then has them, and lists depend on no
        // thread's pace.
        for (partition, half_open) in emptied {
            returns.half_open(partition, half_open);
        }
        if let Some(snapshot) = list.snapshot().filter(|_| listed.is_some() && error.is_none()) {
            *error = exporter.write(Output::Snapshot(snapshot)).err();
        }
        if let Some(report) = returns.sources.as_mut().and_then(|sources| sources.end_interval(listed.as_ref()))
            && error.is_none()
        {
            *error = exporter.write(Output::Sources(&report)).err();
        }
        if let Some(header) = listed {
            self.list_totals.record(began.elapsed(), |latencies| &mut latencies.list);
            self.list_totals.lists += 1;
            self.list_totals.incomplete += u64::from(!header.complete && !header.is_warming_up());
            self.list_totals.last = Some(header);
        }
        self.list_totals.has_failed = self.error.is_some();
        self.save(listed.is_some(), &asked);
        (self.on_list)(listed.as_ref(), &self.list, &mut self.list_totals);
        self.list_totals.fullest_delta = Load { used: 0, ..self.list_totals.fullest_delta };
        if self.error.is_some() {
            has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Saves the state, if that was asked for at this end of an interval.
    fn save(&mut self, is_listed: bool, asked: &[Option<Inquiry>]) {
        let Self { saving, list, list_totals, lists, error, marker, .. } = self;
        let Some(saving) = saving else { return };
        saving.cut(marker, is_listed && error.is_none(), || {
            let mut encoder = Encoder::with_capacity(list.saved_size());
            Instants::of(marker).save(&mut encoder);
            encoder.u64(list_totals.lists);
            encoder.u64(list_totals.incomplete);
            list.save(&mut encoder);
            for asked in asked {
                encoder.option(asked.as_ref(), |encoder, asked| save_inquiry(asked, encoder));
            }
            if let Some(resumable) = lists.exporter().resumable() {
                resumable.save(&mut encoder);
            }
            encoder
        });
    }
}
