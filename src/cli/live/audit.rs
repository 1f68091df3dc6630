//! `flowpeel audit`: every list held against what the kernel knows.

use super::kernel::{Kernel, ToAsk, translations_default};
use super::watch::LiveWatch;
use super::{EVERY_DEFAULT, Prepared};
use crate::audit::{Against, Difference, Reason, Report};
use crate::cli::capture::{CaptureOptions, InterfaceOptions, input_of, open_all};
use crate::cli::report::{self, Voice};
use crate::cli::tracking::option_of;
use crate::cli::{Failure, Outcome, Status, heading, values};
use crate::engine::{Config, Plan, Summary};
use crate::error::Result;
use crate::export::rfc3339;
use crate::list::List;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What lists are held against.
#[derive(Clone, Copy, ValueEnum)]
enum AgainstKind {
    /// The connections that the kernel of a router tracks
    Conntrack,
    /// The sockets of this host, as ss shows them
    Sockets,
}

/// Hold lists of live traffic against what the kernel knows
///
/// Captures as flowpeel live does, and compares every list with the connections that the kernel tracks (on a host that
/// does not forward packets, with its sockets). Each difference is a line on standard output, with its reason:
/// not_yet_seen, just_ended (within the last round trips), lost (the list says that it is not complete) or
/// unknown_to_kernel. One without a reason is a defect.
///
/// Exit status: 0 every difference has a reason, 1 one has none or something failed, 2 wrong usage.
#[derive(Args)]
#[command(display_name = "flowpeel audit", after_help = "Example: flowpeel audit -i lan --for 1h")]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    interfaces: InterfaceOptions,

    #[command(flatten)]
    capture: CaptureOptions,

    /// How long to audit [default: until a signal ends it]
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration, help_heading = heading::OUTPUT)]
    lasts: Option<Duration>,

    /// The time between two lists
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration, help_heading = heading::OUTPUT)]
    every: Duration,

    /// What lists are held against [default: conntrack where packets are forwarded, otherwise sockets]
    #[arg(long, value_name = "WHAT", help_heading = heading::OUTPUT)]
    against: Option<AgainstKind>,

    /// Connections open at once, at most
    #[arg(long, value_name = "N", default_value = "500k", value_parser = values::count, help_heading = heading::SIZE)]
    connections: u64,

    /// The most memory to take
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = values::size, help_heading = heading::SIZE)]
    memory: u64,
}

const _: () = assert!(EVERY_DEFAULT.as_secs() == 10, "the default of --every");

impl Arguments {
    fn against(&self) -> Against {
        match self.against {
            Some(AgainstKind::Conntrack) => Against::Conntrack,
            Some(AgainstKind::Sockets) => Against::Sockets,
            None => Against::of_host(),
        }
    }

    fn prepare(&self) -> Result<Prepared> {
        let sources = self.capture.sources(&self.interfaces.interfaces, false)?;
        let follows = self.against() == Against::Conntrack;
        let config = Config {
            every: Some(self.every),
            connections_max: self.connections,
            memory_size_max: self.memory,
            answer_opens: self.capture.shows_flags_alone(),
            translations_max: follows.then(|| translations_default(self.connections) as usize),
            secret: values::random_secret()?,
            names: option_of,
            ..Config::live_defaults()
        };
        Ok(Prepared { plan: Plan::live(&config, input_of(&sources))?, sources })
    }
}

/// Audits what the arguments name.
pub(in crate::cli) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let prepared = arguments.prepare().map_err(Failure::wrong_usage)?;
    Ok(audit(arguments, &prepared, voice)?)
}

fn audit(arguments: &Arguments, prepared: &Prepared, voice: Voice) -> Result<Status> {
    let plan = &prepared.plan;
    plan.check_addresses()?;
    let sources = open_all(&prepared.sources)?;
    let against = arguments.against();
    let mut kernel = Kernel::ask(ToAsk {
        user: arguments.capture.user(),
        interfaces: arguments.interfaces.interfaces.clone(),
        vlan_key: false,
        translations_max: plan.config().translations_max,
        reports_ends: false,
        audit: Some((against, Box::new(move |report| print(report, against)))),
    })?;
    let metrics = prepared.metrics();
    let mut watch = LiveWatch::new(voice, prepared, std::sync::Arc::clone(&metrics), false)?;
    if let Some(lasts) = arguments.lasts {
        watch.stop_at(Instant::now() + lasts);
    }
    if voice > Voice::Quiet {
        report::memory(plan);
        report::line(format_args!("lists are held against {}", against.name()));
    }
    let system = kernel.take_view();
    let mut nowhere = |_: &List| Ok(());
    let summary = {
        let mut exporter = kernel.exporter(&mut nowhere);
        crate::run::live(plan, sources, exporter.as_mut(), &metrics, &watch, None, system)
    };
    let asked = kernel.finish();
    let is_explained = matches!(&asked.audited, Some(Ok(audited)) if audited.unexplained == 0);
    let is_sound = asked.is_sound() && summary.as_ref().is_ok_and(|summary: &Summary| summary.errors.is_empty());
    watch.finish(move || {
        super::print_end(&summary, "", voice);
        asked.report(voice);
    });
    Ok(if is_sound && is_explained { Status::Done } else { Status::Failed })
}

#[derive(Serialize)]
struct ReportLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    audit: ReportFields,
}

#[derive(Serialize)]
struct ReportFields {
    against: &'static str,
    listed: usize,
    open: usize,
    differences: usize,
    unexplained: usize,
}

#[derive(Serialize)]
struct DifferenceLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    src_ip: std::net::IpAddr,
    src_port: u16,
    dest_ip: std::net::IpAddr,
    dest_port: u16,
    difference: DifferenceFields<'a>,
}

#[derive(Serialize)]
struct DifferenceFields<'a> {
    since: &'a str,
    listed: bool,
    kernel: &'static str,
    reason: Option<&'static str>,
}

/// What the kernel says of the connection of a difference.
fn kernel_says(difference: &Difference) -> &'static str {
    difference.kernel.map_or("open", |says| says.name())
}

/// Prints what came of a list: a line for each difference, and one for all.
fn print(report: &Report, against: Against) {
    let mut out = std::io::stdout().lock();
    let end = rfc3339(report.end_ns);
    for difference in &report.differences {
        let [client, server]: [SocketAddr; 2] = [difference.key.client(), difference.key.server()];
        let since = rfc3339(difference.since_ns);
        let line = DifferenceLine {
            timestamp: end.as_str(),
            event_type: "difference",
            src_ip: client.ip(),
            src_port: client.port(),
            dest_ip: server.ip(),
            dest_port: server.port(),
            difference: DifferenceFields {
                since: since.as_str(),
                listed: difference.is_listed,
                kernel: kernel_says(difference),
                reason: difference.reason.map(Reason::name),
            },
        };
        write_line(&mut out, &line);
    }
    let unexplained = report.differences.iter().filter(|difference| difference.reason.is_none()).count();
    let fields = ReportFields {
        against: against.name(),
        listed: report.listed,
        open: report.open,
        differences: report.differences.len(),
        unexplained,
    };
    write_line(&mut out, &ReportLine { timestamp: end.as_str(), event_type: "audit", audit: fields });
    drop(out.flush());
}

/// Writes a line of JSON. Where nobody reads any more, the count at the end and the exit status remain.
fn write_line(out: &mut impl Write, line: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(line) {
        drop(writeln!(out, "{text}"));
    }
}

/// A difference without a reason, in words.
pub(super) fn in_words(difference: &Difference) -> String {
    let (client, server) = (difference.key.client(), difference.key.server());
    if difference.is_listed {
        format!("{client} to {server} is listed, and of the kernel: {}", kernel_says(difference))
    } else {
        format!("{client} to {server} is open by the kernel, and not listed")
    }
}

/// Differences by their reason, since the start.
#[derive(Default)]
pub(super) struct ReasonCounts {
    by_reason: [u64; Reason::ALL.len()],
    without: u64,
}

impl ReasonCounts {
    /// Adds those of a list.
    pub(super) fn add(&mut self, report: &Report) {
        for difference in &report.differences {
            match difference.reason {
                Some(reason) => self.by_reason[reason as usize] += 1,
                None => self.without += 1,
            }
        }
    }

    /// The counts with their names.
    pub(super) fn by_name(&self) -> Vec<(&'static str, u64)> {
        let named = Reason::ALL.iter().map(|reason| (reason.name(), self.by_reason[*reason as usize]));
        named.chain([("none", self.without)]).collect()
    }
}
