//! `flowpeel live`: interfaces in, lists out, until a signal ends it.

#[cfg(all(target_os = "linux", feature = "kernel"))]
pub(super) mod audit;
mod kernel;
mod messages;
mod status_line;
mod watch;

use crate::archive::Archive;
use crate::capture::live::LiveConfig;
use crate::cli::capture::{CaptureOptions, InterfaceOptions, input_of, open_all};
use crate::cli::events::EventRun;
use crate::cli::report::{self, Voice};
use crate::cli::run_options::{Defaults, RunOptions, with_default};
use crate::cli::{Failure, Outcome, Status, archive, events, heading, state, values};
use crate::engine::{Config, Plan, Summary};
use crate::error::Result;
use crate::event_log::EventLog;
use crate::metrics::http::{Server, is_exposed, serve};
use crate::metrics::{Metrics, Setup};
use crate::queue::WhenFull;
use crate::snapshot::ROUTER_NAME_SIZE_MAX;
use crate::view::{Board, ControlServer};
use clap::Args;
use kernel::{Kernel, KernelOptions, ToAsk};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use watch::LiveWatch;

/// The default of `--every`.
const EVERY_DEFAULT: Duration = Duration::from_secs(10);

/// List the TCP connections through interfaces, at every interval
///
/// Captures until SIGINT or SIGTERM, then writes the last list. Lists end at multiples of the interval by the wall
/// clock. Opening an interface takes the capability CAP_NET_RAW.
///
/// Exit status: 0 a signal ended it, 1 something failed, 2 wrong usage, 130 a second signal ended it at once.
#[derive(Args)]
#[command(
    display_name = "flowpeel live",
    next_help_heading = heading::CAPTURE,
    mut_arg("every", |every| with_default(every, "10s")),
    mut_arg("snapshots", |snapshots| snapshots.hide_short_help(false)),
    mut_arg("pickup", |pickup| with_default(pickup, "16")),
    mut_arg("idle_timeout", |idle_timeout| with_default(idle_timeout, "4h")),
    mut_arg("max_age", |max_age| with_default(max_age, "5d")),
    mut_arg("router", |router| with_default(router, "the name of the host")),
    after_help = "Example: flowpeel live -i eth0 --every 10s --out lists/ --compress --keep 7d",
    after_long_help = "Examples:\n  flowpeel live -i eth0 --every 10s --out lists/ --compress --keep 7d\n  \
    flowpeel live -i lan -i wan --user nobody --metrics 127.0.0.1:9464 --out lists/\n  \
    flowpeel live -i eth0 | jq -c 'select(.event_type==\"flow_list\")'"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    interfaces: InterfaceOptions,

    #[command(flatten)]
    capture: CaptureOptions,

    #[command(flatten)]
    kernel: KernelOptions,

    #[command(flatten)]
    options: RunOptions,

    /// Let flowpeel top attach through this socket
    ///
    /// A Unix socket that only its owner can use; --user is then its owner. The rows that are looked at are copied,
    /// which takes memory, and is announced with the rest.
    #[arg(long, value_name = "PATH", help_heading = heading::MESSAGES, conflicts_with = "no_list", hide_short_help = true)]
    control: Option<PathBuf>,

    /// Serve Prometheus metrics at this address
    ///
    /// At http://ADDR:PORT/metrics, and whether lists are still made at /healthz: 127.0.0.1:9464.
    #[arg(long, value_name = "ADDR:PORT", help_heading = heading::MESSAGES)]
    metrics: Option<SocketAddr>,
}

impl Arguments {
    /// Checks all that can be checked before anything is done, and plans the run.
    fn prepare(&self) -> Result<Prepared> {
        let defaults = Defaults {
            config: Config::live_defaults(),
            every: Some(EVERY_DEFAULT),
            run: values::random_number()?,
            router: host_name,
            secret: values::random_secret,
            is_live: true,
        };
        let config = self.options.config(defaults)?;
        let sources = self.capture.sources(&self.interfaces.interfaces, self.options.has_vlan_key())?;
        // Where the kernel passes nothing but SYN, FIN and RST, no acknowledgement completes a handshake.
        let translations_max = self.kernel.translations_max(config.connections_max);
        let names_size = translations_max.map_or(0, |_| self.options.events.names_size());
        let config = Config {
            answer_opens: self.capture.shows_flags_alone(),
            has_view: self.control.is_some(),
            translations_max,
            event_log_size: config.event_log_size + names_size,
            ..config
        };
        self.kernel.check()?;
        Ok(Prepared { plan: Plan::live(&config, input_of(&sources))?, sources })
    }
}

/// The name of the host, or nothing where the system has none. From the system call, because a service may see only the
/// processes in /proc.
fn host_name() -> String {
    #[cfg(target_os = "linux")]
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    #[cfg(not(target_os = "linux"))]
    let name = String::new();
    name.trim().chars().take(ROUTER_NAME_SIZE_MAX).filter(char::is_ascii_graphic).collect()
}

/// A live capture whose options were checked.
struct Prepared {
    plan: Plan,
    sources: Vec<LiveConfig>,
}

impl Prepared {
    /// The interface of each capture thread.
    fn interfaces(&self) -> Vec<String> {
        let threads = |source: &LiveConfig| std::iter::repeat_n(source.interface.clone(), source.fanout_count);
        self.sources.iter().flat_map(threads).collect()
    }

    fn metrics(&self) -> Arc<Metrics> {
        let config = self.plan.config();
        Metrics::new(Setup {
            interfaces: self.interfaces(),
            connections_max: config.connections_max,
            interval: config.every,
            memory: self.plan.memory_parts(),
        })
    }
}

/// Captures what the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let prepared = arguments.prepare().map_err(Failure::wrong_usage)?;
    Ok(capture(arguments, &prepared, voice)?)
}

fn capture(arguments: &Arguments, prepared: &Prepared, voice: Voice) -> Result<Status> {
    prepared.plan.check_addresses()?;
    let sources = open_all(&prepared.sources)?;
    let nat_warning = arguments.kernel.nat_warning(prepared.sources.len());
    let metrics = prepared.metrics();
    // Before there is any other thread, because each has privileges of its own.
    let mut kernel = Kernel::ask(ToAsk {
        user: arguments.capture.user(),
        interfaces: arguments.interfaces.interfaces.clone(),
        vlan_key: prepared.plan.config().vlan_key,
        translations_max: prepared.plan.config().translations_max,
        reports_ends: prepared.plan.config().format.changes.is_some() || arguments.options.events.are_asked_for(),
        audit: arguments.kernel.audit(&metrics, voice),
    })?;
    let mut saving = arguments.options.state.of_live(&prepared.plan, voice)?;
    let mut outputs = arguments.options.lists.outputs(prepared.plan.config(), voice)?;
    let archive = arguments.options.archive.start(WhenFull::Drop, saving.as_mut(), voice)?;
    let event_run = EventRun { is_live: true, counts: Arc::clone(metrics.events()), is_stopped: Arc::default() };
    let events = arguments.options.events.start(event_run, saving.as_mut(), voice)?;
    let plan = archive.iter().fold(prepared.plan.clone(), |plan, archive| plan.recording(archive.inlet()));
    let plan = events.iter().fold(plan, |plan, events| plan.recording(events.inlet()));
    let system = kernel.take_view();
    let control = arguments.control.as_deref().map(|path| {
        let (board, feed) = Board::new();
        outputs.show(feed);
        system.translations.iter().for_each(|names| board.set_translations(Arc::clone(names)));
        ControlServer::listen(path, board)
    });
    let _control = control.transpose()?;
    let server = arguments.metrics.map(|address| serve(address, Arc::clone(&metrics))).transpose()?;
    let lists_on_terminal = arguments.options.lists.are_on_terminal();
    let watch = LiveWatch::new(voice, prepared, Arc::clone(&metrics), lists_on_terminal)?;
    if voice > Voice::Quiet {
        report::memory(&prepared.plan);
        nat_warning.iter().for_each(|what| report::warning(what));
        announce(arguments, server.as_ref().map(Server::local_addr));
    }
    if let Some(archive) = &archive {
        outputs.feed(archive);
    }
    if let Some(events) = &events {
        outputs.feed_events(events);
    }
    if let (Some(events), Some(translations)) = (&events, &system.translations) {
        events.set_translations(Arc::clone(translations));
    }
    let summary = {
        let mut exporter = kernel.exporter(&mut outputs);
        crate::run::live(&plan, sources, exporter.as_mut(), &metrics, &watch, saving, system)
    };
    let asked = kernel.finish();
    let is_asked = asked.is_sound();
    let aftermath = outputs.aftermath();
    let archived = archive.map(Archive::finish);
    let events = events.map(EventLog::finish);
    let is_archived = archived.as_ref().is_none_or(Result::is_ok);
    let is_captured = summary.as_ref().is_ok_and(|summary| summary.errors.is_empty());
    let is_saved = summary.as_ref().is_ok_and(|summary| state::is_saved(summary.saving.as_ref()));
    watch.finish(move || {
        asked.report(voice);
        archived.into_iter().for_each(|archived| archive::report_end(archived, voice));
        print_end(&summary, &aftermath, voice);
        if let Some(counts) = &events {
            events::report_end(counts, voice);
        }
    });
    Ok(if is_captured && is_archived && is_saved && is_asked { Status::Done } else { Status::Failed })
}

/// Prints what the capture came to.
fn print_end(summary: &Result<Summary>, aftermath: &str, voice: Voice) {
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => return report::error(error, aftermath),
    };
    for error in &summary.errors {
        report::error(error, "; what was captured before is listed");
    }
    if voice > Voice::Quiet {
        report::summary(summary, voice);
    }
    state::report_failure(summary.saving.as_ref());
}

/// Prints what is captured, and where metrics are served.
fn announce(arguments: &Arguments, metrics: Option<SocketAddr>) {
    let interfaces: Vec<_> =
        arguments.interfaces.interfaces.iter().map(|name| name.escape_debug().to_string()).collect();
    report::line(format_args!("capturing on {}", interfaces.join(", ")));
    if let Some(address) = metrics {
        report::line(format_args!("metrics at http://{address}/metrics"));
        if is_exposed(address) {
            report::warning(&format!("metrics at {address} can be read by anybody who reaches that address"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_host_has_the_name_that_the_kernel_knows() {
        let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") else { return };
        assert_eq!(host_name(), name.trim());
    }
}
