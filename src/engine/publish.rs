//! What the threads of an engine publish in its metrics now and then, never per packet.

use super::list_thread::ListTotals;
use super::saving::Written;
use super::shard_thread::Timing;
use super::wall_clock::Clocks;
use super::{CaptureCounts, Plan};
use crate::connection::Counts;
use crate::flow_list::{FlowList, Header};
use crate::metrics::{self, ConnectionCounts, Durations, Latency, ListFigures, Metrics, Setup};
use crate::parse::Unusable;
use crate::signal::{Moment, SignalCounts};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The metrics of an engine with this plan, whose ports have these names.
pub(crate) fn metrics(plan: &Plan, names: Vec<String>) -> Arc<Metrics> {
    let config = plan.config();
    let is_taken = |(part, _): &(&str, u64)| *part != "sources" || config.sources_max.is_some();
    Metrics::new(Setup {
        interfaces: names,
        unusable_reasons: Unusable::ALL.iter().map(|reason| reason.name()).collect(),
        connections_max: config.connections_max,
        interval: config.every,
        memory: plan.memory().parts().into_iter().filter(is_taken).collect(),
    })
}

/// Publishes what a port counted.
pub(crate) fn capture(metrics: &Metrics, index: usize, counts: &CaptureCounts) {
    let published = metrics::CaptureCounts {
        packets: counts.packets,
        dropped_packets: counts.lost,
        signals: counts.signals.signals,
        sampled: counts.signals.sampled,
        dropped_signals: counts.queue_full,
        handshakes_lost: counts.signals.handshakes_lost,
    };
    metrics.capture(index).publish(&published, &counts.unusable);
}

/// What a port has published.
pub(crate) fn counts(metrics: &Metrics, index: usize) -> CaptureCounts {
    let published = metrics.capture(index).counts();
    let mut unusable = [0; Unusable::COUNT];
    unusable.iter_mut().zip(metrics.capture(index).unusable()).for_each(|(count, published)| *count = published);
    CaptureCounts {
        packets: published.packets,
        lost: published.dropped_packets,
        queue_full: published.dropped_signals,
        unusable,
        signals: SignalCounts {
            signals: published.signals,
            sampled: published.sampled,
            handshakes_lost: published.handshakes_lost,
            ..SignalCounts::default()
        },
        steps_back: 0,
    }
}

/// What an engine has counted, as of the end of an interval or somewhat later.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// What each port has counted.
    pub ports: Vec<CaptureCounts>,
    /// What happened to connections, up to the end of the interval.
    pub connections: Counts,
    /// How many events have been lost because the queue was full.
    pub events_dropped: u64,
}

/// What is called with all counters.
pub(crate) struct OnCounters {
    pub(crate) call: Box<dyn FnMut(&Counters) + Send>,
    pub(crate) port_count: usize,
    pub(crate) events_dropped: Arc<AtomicU64>,
}

impl OnCounters {
    pub(crate) fn report(&mut self, metrics: &Metrics, list: &FlowList) {
        let counters = Counters {
            ports: (0..self.port_count).map(|index| counts(metrics, index)).collect(),
            connections: list.counts(),
            events_dropped: self.events_dropped.load(Ordering::Relaxed),
        };
        (self.call)(&counters);
    }
}

/// Publishes the counts of connections up to the last interval's end and, unless the interval was merged, the figures
/// of its list and how often the clock was set.
pub(crate) fn list(metrics: &Metrics, header: Option<&Header>, list: &FlowList, told: &ListTotals, clock_steps: u64) {
    let counts = list.counts();
    let open = counts.opened - counts.closed - counts.evicted_idle - counts.evicted_aged;
    // An interval that was merged has no list and so no half-open count of its own: the last one known stands in for
    // it, since 0 would make the filter look empty just when there is most to do.
    let half_open = told.last.map_or(0, |last| last.half_open);
    let filter_used = open + half_open;
    metrics.connections().publish(&ConnectionCounts {
        opened: counts.opened,
        closed: counts.closed,
        evicted_idle: counts.evicted_idle,
        evicted_aged: counts.evicted_aged,
        refused: counts.refused,
        expired: counts.expired,
        recycled: counts.recycled,
        repeats: counts.repeats,
        late: counts.late,
        unmatched_fins: counts.unmatched_fins,
        unmatched_resets: counts.unmatched_resets,
        forgotten: counts.forgotten,
        refused_open: counts.refused_open,
        refused_pickups: counts.refused_pickups,
        unplaced: counts.unplaced,
        one_sided: counts.one_sided,
        unarchived: counts.unarchived,
        filter_used,
        filter_places: told.filter_places,
    });
    let Some(header) = header else { return };
    let outcome = list.outcome();
    let figures = ListFigures {
        complete: header.complete,
        missing: header.missing,
        connections: header.flows,
        half_open: header.half_open,
        extraneous: header.extraneous,
        dropped: header.figures.dropped,
        end_ns: header.figures.end_ns,
        delta: told.fullest_delta,
        merged_intervals: list.merged_intervals(),
        clock_steps,
        deltas_left: outcome.deltas_left,
        closings_found: outcome.unstuck,
        starts_corrected: outcome.restarted,
        starts_lost: outcome.starts_lost,
        set_aside: outcome.set_aside,
    };
    if told.has_failed {
        metrics.list_failed();
    } else {
        metrics.list(&figures, Instant::now());
    }
}

/// Publishes whether a state was saved.
pub(crate) fn state(metrics: &Metrics, written: Written) {
    match written {
        Ok(size) => metrics.state_saved(size),
        Err(_) => metrics.state_failed(),
    }
}

/// How long a shard's signals took to reach its tables.
pub(crate) struct ShardTiming {
    clocks: Clocks,
    took: Durations,
    metrics: Arc<Metrics>,
}

impl ShardTiming {
    pub(crate) fn new(clocks: Clocks, metrics: Arc<Metrics>) -> Self {
        ShardTiming { clocks, took: Durations::new(), metrics }
    }
}

impl Timing for ShardTiming {
    fn moment(&self) -> Moment {
        self.clocks.moment()
    }

    fn handled(&mut self, first: Moment) {
        let took_ns = self.moment().since_ns(first).max(0) as u64;
        self.took.record(Duration::from_nanos(took_ns));
    }

    fn ended(&mut self) {
        self.metrics.merge(Latency::Signal, &mut self.took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Plan};
    use crate::metrics::Setup;

    #[test]
    fn a_merged_interval_leaves_the_filter_as_full_as_the_last_list_knew_it() {
        let plan = Plan::new(&Config::default()).unwrap();
        let flow_list = plan.flow_list(None);
        let header = Header { half_open: 1_000, complete: true, ..Header::default() };
        let told = ListTotals { last: Some(header), ..ListTotals::new(&plan) };
        let metrics = Metrics::new(Setup::default());
        let load = |header| {
            list(&metrics, header, &flow_list, &told, 0);
            let page = metrics.exposition(Instant::now());
            page.lines().find_map(|line| line.strip_prefix("flowpeel_filter_load_ratio ")).unwrap().to_owned()
        };
        let listed = load(Some(&header));
        assert_eq!(listed, (1_000.0 / told.filter_places as f64).to_string());
        assert_eq!(load(None), listed, "the interval after it was merged into the next");
    }
}
