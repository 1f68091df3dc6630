//! Every metric that is served: its name, kind and help, and where its values come from. Those of [`Counts`] are
//! declared with the counts.
//!
//! Names follow the conventions of Prometheus: base units, and `_total`
//! for what only grows. A name that was released stays, because dashboards and alert rules read it.

use crate::handover::{CountMetric, Counts};
use crate::metrics::exposition::{Heading, Kind, Samples};
use crate::metrics::{Latency, ListFigures, Load, Reading};
use crate::parse::Unusable;
use std::fmt::Display;
use std::time::UNIX_EPOCH;

type WriteSamples = fn(&Reading, &mut Samples);

struct Family {
    heading: Heading,
    write: WriteSamples,
}

const fn counter(name: &'static str, help: &'static str, write: WriteSamples) -> Family {
    Family { heading: Heading { name, kind: Kind::Counter, help }, write }
}

const fn gauge(name: &'static str, help: &'static str, write: WriteSamples) -> Family {
    Family { heading: Heading { name, kind: Kind::Gauge, help }, write }
}

const fn summary(name: &'static str, help: &'static str, write: WriteSamples) -> Family {
    Family { heading: Heading { name, kind: Kind::Summary, help }, write }
}

/// All metrics as text.
pub(super) fn exposition(reading: &Reading) -> String {
    let mut text = String::with_capacity(16 << 10);
    for families in [RUN, CAPTURE, CONNECTIONS] {
        write(&mut text, reading, families);
    }
    write_counts(&mut text, &reading.connections);
    write(&mut text, reading, LISTS);
    text
}

fn write(text: &mut String, reading: &Reading, families: &[Family]) {
    for family in families {
        (family.write)(reading, &mut Samples::new(text, family.heading));
    }
}

/// Writes the metrics of counts. The parts of one metric are declared one after another.
fn write_counts(text: &mut String, counts: &Counts) {
    let values = Counts::ALL.iter().zip(counts.values());
    let mut all = values.filter_map(|(info, value)| Some((info, info.metric?, value))).peekable();
    let heading = |name, help| Heading { name, kind: Kind::Counter, help };
    while let Some((info, metric, value)) = all.next() {
        let (family, label) = match metric {
            CountMetric::Total(name) => {
                Samples::new(text, heading(name, info.help)).value(value);
                continue;
            }
            CountMetric::Part(family, label) => (family, label),
        };
        let mut samples = Samples::new(text, heading(family.name, family.help));
        samples.labelled(&[(family.label, label)], value);
        let is_next = |metric| matches!(metric, CountMetric::Part(next, _) if next == family);
        while let Some((_, CountMetric::Part(_, label), value)) = all.next_if(|(_, metric, _)| is_next(*metric)) {
            samples.labelled(&[(family.label, label)], value);
        }
    }
}

/// Writes a value of the last list, and nothing before the first.
fn of_list<T: Display>(reading: &Reading, samples: &mut Samples, value: impl Fn(&ListFigures) -> T) {
    if let Some(list) = &reading.list {
        samples.value(value(list));
    }
}

/// Writes a total that the list thread counts: 0 before the first list.
fn total_of_list(reading: &Reading, samples: &mut Samples, total: impl Fn(&ListFigures) -> u64) {
    samples.value(reading.list.as_ref().map_or(0, total));
}

const RUN: &[Family] = &[
    gauge("flowpeel_build_info", "Always 1; the label has the version.", |_, samples| {
        samples.labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    }),
    gauge("flowpeel_start_time_seconds", "When the run began, in seconds since 1970.", |reading, samples| {
        let since_1970 = reading.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        samples.value(since_1970.as_secs_f64());
    }),
    gauge("flowpeel_memory_plan_bytes", "Memory that each part takes at most.", |reading, samples| {
        for (part, size) in &reading.setup.memory {
            samples.labelled(&[("part", part)], size);
        }
    }),
    counter("flowpeel_states_saved_total", "States saved.", |reading, samples| samples.value(reading.states_saved)),
    counter("flowpeel_failed_states_total", "States that could not be saved.", |reading, samples| {
        samples.value(reading.states_failed);
    }),
    gauge("flowpeel_state_bytes", "Size of the last state saved; 0 before the first.", |reading, samples| {
        samples.value(reading.state_size);
    }),
    summary(
        "flowpeel_state_pause_seconds",
        "Time in which a partition did nothing but be copied into a state.",
        |reading, samples| samples.summary(&reading.latencies[Latency::Pause as usize]),
    ),
    counter("flowpeel_events_total", "Lines of events written, of all destinations.", |reading, samples| {
        samples.value(reading.events_written);
    }),
    counter(
        "flowpeel_events_lost_total",
        "Events that the queue or a destination had no room for, of all destinations.",
        |reading, samples| samples.value(reading.events_lost),
    ),
    counter("flowpeel_http_responses_total", "Requests to this server that were answered.", |reading, samples| {
        samples.value(reading.responses);
    }),
    counter(
        "flowpeel_http_abandoned_total",
        "Clients of this server that were not answered: too slow, gone, or too many at once.",
        |reading, samples| samples.value(reading.abandoned),
    ),
];

const CAPTURE: &[Family] = &[
    gauge("flowpeel_interface_up", "Whether the interface delivers packets.", |reading, samples| {
        for interface in &reading.interfaces {
            samples.labelled(&[("interface", interface.name)], u8::from(interface.is_up));
        }
    }),
    counter("flowpeel_packets_total", "Packets taken in.", |reading, samples| {
        for interface in &reading.interfaces {
            samples.labelled(&[("interface", interface.name)], interface.counts.packets);
        }
    }),
    counter("flowpeel_dropped_packets_total", "Packets lost before they were taken in.", |reading, samples| {
        for interface in &reading.interfaces {
            let labels = [("interface", interface.name), ("cause", "kernel")];
            samples.labelled(&labels, interface.counts.lost);
        }
    }),
    counter("flowpeel_unusable_packets_total", "Packets without a readable TCP header.", |reading, samples| {
        for reason in Unusable::ALL {
            samples.labelled(&[("reason", reason.name())], reading.capture.unusable[reason.index()]);
        }
    }),
    counter("flowpeel_signals_total", "Signals that went to the shards.", |reading, samples| {
        samples.value(reading.capture.signals.signals);
    }),
    counter("flowpeel_sampled_signals_total", "Those of them that are samples of packets.", |reading, samples| {
        samples.value(reading.capture.signals.sampled);
    }),
    counter("flowpeel_dropped_signals_total", "Signals that did not reach their shard.", |reading, samples| {
        samples.labelled(&[("cause", "queue_full")], reading.capture.queue_full);
    }),
    counter(
        "flowpeel_handshakes_lost_total",
        "Handshakes pushed out of the cache before their answer came.",
        |reading, samples| samples.value(reading.capture.signals.handshakes_lost),
    ),
    counter(
        "flowpeel_clock_steps_total",
        "How often the wall clock was set during the capture.",
        |reading, samples| total_of_list(reading, samples, |list| list.clock_steps),
    ),
    summary(
        "flowpeel_signal_latency_seconds",
        "Time from the capture of a packet until its signal is in the table.",
        |reading, samples| samples.summary(&reading.latencies[Latency::Signal as usize]),
    ),
];

const CONNECTIONS: &[Family] = &[
    gauge("flowpeel_connections_open", "Established connections on the last list.", |reading, samples| {
        of_list(reading, samples, |list| list.header.flows);
    }),
    gauge("flowpeel_connections_half_open", "Half-open connections on the last list.", |reading, samples| {
        of_list(reading, samples, |list| list.header.half_open);
    }),
    gauge(
        "flowpeel_connections_load_ratio",
        "Established connections on the last list, against the most that are tracked.",
        |reading, samples| {
            let limit = reading.setup.connections_max;
            of_list(reading, samples, |list| Load { used: list.header.flows, limit }.ratio());
        },
    ),
    gauge("flowpeel_filter_load_ratio", "How full the connection filters are.", |reading, samples| {
        samples.value(reading.filter.ratio());
    }),
];

const LISTS: &[Family] = &[
    gauge("flowpeel_list_complete", "Whether everything known is on the last list.", |reading, samples| {
        of_list(reading, samples, |list| u8::from(list.header.complete));
    }),
    gauge(
        "flowpeel_list_warming_up",
        "Whether connections that are older than the capture are still being found.",
        |reading, samples| of_list(reading, samples, |list| u8::from(list.header.is_warming_up())),
    ),
    gauge(
        "flowpeel_list_sampled_early",
        "Whether they are found with a sample of packets, because packets would have been lost otherwise.",
        |reading, samples| {
            let is_early = |list: &ListFigures| list.header.since.is_some_and(|since| since.is_sampled_early);
            of_list(reading, samples, |list| u8::from(is_early(list)));
        },
    ),
    gauge(
        "flowpeel_list_doubled_connections",
        "Connections of the last interval, at least, that are listed under two names, because addresses are translated.",
        |reading, samples| of_list(reading, samples, |list| list.header.doubled),
    ),
    gauge(
        "flowpeel_list_missing_connections",
        "About how many connections the last list is wrong about.",
        |reading, samples| of_list(reading, samples, |list| list.header.missing),
    ),
    gauge(
        "flowpeel_list_extraneous_connections",
        "Openings and closings that contradict the last list, deferred.",
        |reading, samples| of_list(reading, samples, |list| list.header.extraneous),
    ),
    gauge(
        "flowpeel_list_end_timestamp_seconds",
        "The time that the last list is true of, in seconds since 1970.",
        |reading, samples| of_list(reading, samples, |list| list.header.figures.end_ns as f64 / 1e9),
    ),
    gauge("flowpeel_list_age_seconds", "Time since the last list, or since the start.", |reading, samples| {
        samples.value(reading.list_age.as_secs_f64());
    }),
    gauge("flowpeel_list_interval_seconds", "Time from list to list, as configured.", |reading, samples| {
        if let Some(interval) = reading.setup.interval {
            samples.value(interval.as_secs_f64());
        }
    }),
    counter("flowpeel_lists_total", "Lists written.", |reading, samples| samples.value(reading.lists_written)),
    counter(
        "flowpeel_audit_differences_total",
        "Connections about which a list and the kernel differed, by why (--audit).",
        |reading, samples| {
            for (reason, count) in &reading.audited {
                samples.labelled(&[("reason", reason)], count);
            }
        },
    ),
    counter("flowpeel_incomplete_lists_total", "Lists that were not complete.", |reading, samples| {
        samples.value(reading.lists_incomplete);
    }),
    counter("flowpeel_failed_lists_total", "Lists that could not be written.", |reading, samples| {
        samples.value(reading.lists_failed);
    }),
    counter(
        "flowpeel_merged_intervals_total",
        "Intervals merged into the next because a shard held its changes back.",
        |reading, samples| total_of_list(reading, samples, |list| list.merged_intervals),
    ),
    gauge(
        "flowpeel_delta_load_ratio",
        "Changes in the fullest delta before the last list, against what it lists.",
        |reading, samples| of_list(reading, samples, |list| list.delta.ratio()),
    ),
    counter("flowpeel_list_deltas_left_total", "Deltas that did not empty by themselves.", |reading, samples| {
        total_of_list(reading, samples, |list| list.outcome.deltas_left);
    }),
    counter("flowpeel_list_closings_found_total", "Closings found by the list.", |reading, samples| {
        total_of_list(reading, samples, |list| list.outcome.unstuck);
    }),
    counter("flowpeel_list_starts_corrected_total", "Start times corrected.", |reading, samples| {
        total_of_list(reading, samples, |list| list.outcome.restarted);
    }),
    counter("flowpeel_list_starts_lost_total", "Decodings that gave up start times.", |reading, samples| {
        total_of_list(reading, samples, |list| list.outcome.starts_lost);
    }),
    counter("flowpeel_list_set_aside_total", "Openings and closings deferred.", |reading, samples| {
        total_of_list(reading, samples, |list| list.outcome.deferred);
    }),
    summary("flowpeel_peel_duration_seconds", "Time to decode what a partition hands over.", |reading, samples| {
        samples.summary(&reading.latencies[Latency::Peel as usize]);
    }),
    summary("flowpeel_list_duration_seconds", "Time to sort and write a list.", |reading, samples| {
        samples.summary(&reading.latencies[Latency::List as usize]);
    }),
];
