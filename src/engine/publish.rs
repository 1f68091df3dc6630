//! What the threads of an engine publish in its metrics now and then, never per packet.

use super::list_thread::ListTotals;
use super::saving::Written;
use super::shard_thread::Timing;
use super::wall_clock::Clocks;
use super::{CaptureCounts, CountersCall, Plan};
use crate::handover::Counts;
use crate::list::{FlowList, Header};
use crate::metrics::{Durations, Latency, ListFigures, Load, Metrics, Setup};
use crate::signal::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The metrics of an engine with this plan, whose ports have these names.
pub(crate) fn metrics(plan: &Plan, names: Vec<String>) -> Arc<Metrics> {
    let config = plan.config();
    Metrics::new(Setup {
        interfaces: names,
        connections_max: config.connections_max,
        interval: config.every,
        memory: plan.memory_parts(),
    })
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
    pub(crate) call: CountersCall,
    pub(crate) port_count: usize,
    pub(crate) events_dropped: Arc<AtomicU64>,
}

impl OnCounters {
    pub(crate) fn report(&mut self, metrics: &Metrics, list: &FlowList) {
        let counters = Counters {
            ports: (0..self.port_count).map(|index| metrics.capture(index).counts()).collect(),
            connections: list.counts(),
            events_dropped: self.events_dropped.load(Ordering::Relaxed),
        };
        (self.call)(&counters);
    }
}

/// Publishes the counts of connections up to the last interval's end and, unless the interval was merged, the figures
/// of its list and how often the clock was set.
pub(crate) fn list(
    metrics: &Metrics,
    header: Option<&Header>,
    list: &FlowList,
    list_totals: &ListTotals,
    clock_steps: u64,
) {
    let counts = list.counts();
    // An interval that was merged has no list and so no half-open count of its own: the last one known stands in for
    // it, since 0 would make the filter look empty just when there is most to do.
    let half_open = list_totals.last.map_or(0, |last| last.half_open);
    metrics.connections(&counts, Load { used: counts.open() + half_open, limit: list_totals.filter_places });
    let Some(header) = header else { return };
    let figures = ListFigures {
        header: *header,
        outcome: list.outcome(),
        delta: list_totals.fullest_delta,
        merged_intervals: list.merged_intervals(),
        clock_steps,
    };
    if list_totals.has_failed {
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
        let list_totals = ListTotals { last: Some(header), ..ListTotals::new(&plan) };
        let metrics = Metrics::new(Setup::default());
        let load = |header| {
            list(&metrics, header, &flow_list, &list_totals, 0);
            let page = metrics.exposition(Instant::now());
            page.lines().find_map(|line| line.strip_prefix("flowpeel_filter_load_ratio ")).unwrap().to_owned()
        };
        let listed = load(Some(&header));
        assert_eq!(listed, (1_000.0 / list_totals.filter_places as f64).to_string());
        assert_eq!(load(None), listed, "the interval after it was merged into the next");
    }
}
