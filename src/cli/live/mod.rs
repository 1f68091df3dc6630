//! `flowpeel live`: interfaces in, lists out, until a signal ends it.

mod conntrack;
mod messages;
mod status_line;
mod watch;

use crate::archive::Archive;
use crate::capture::live::{self, Backend, BpfProgram, CaptureMode, LiveConfig};
use crate::cli::report::{self, Voice};
use crate::cli::run_options::{Defaults, RunOptions, with_default};
use crate::cli::{Failure, Outcome, Status, archive, heading, state, values};

use crate::engine::{Config, LiveInput, Plan, Summary};
use crate::error::{Error, Result};
use crate::metrics::http::{Server, is_exposed, serve};
use crate::metrics::{Metrics, Setup};
use crate::queue::WhenFull;
use crate::run::SystemView;
use crate::snapshot::ROUTER_NAME_SIZE_MAX;
use clap::{Args, ValueEnum};
use conntrack::{ConntrackOptions, Following, ToFollow};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use watch::LiveWatch;

/// The default of `--every`.
const EVERY_DEFAULT: Duration = Duration::from_secs(10);

/// What the kernel is to pass on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CaptureKind {
    /// The headers of all TCP packets
    Headers,
    /// SYN, FIN and RST alone: the least work, but a SYN-ACK then counts as a connection, and what is idle is not known
    Flags,
    /// All packets, and enough of each to find connections inside tunnels
    Tunnels,
}

/// How packets are read.
#[derive(Clone, Copy, ValueEnum)]
enum BackendKind {
    /// From a ring shared with the kernel
    Ring,
    /// One by one, with pnet
    Pnet,
}

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
    /// An interface to capture on; may be repeated
    ///
    /// A packet that several of them show counts once. flowpeel interfaces lists what
    /// there is.
    #[arg(short, long = "interface", required = true, value_name = "IFACE")]
    interfaces: Vec<String>,

    /// What the kernel passes on
    #[arg(long, value_name = "WHAT", default_value = "headers", hide_short_help = true)]
    capture: CaptureKind,

    /// A filter program for the kernel in place of flowpeel's own
    ///
    /// A file as `tcpdump -i eth0 -ddd 'tcp port 443'` prints it. --capture then says what the program passes on.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    bpf: Option<PathBuf>,

    /// Capture threads for each interface
    ///
    /// The kernel spreads connections between them. From 1 to 64.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::fanout, hide_short_help = true)]
    fanout: usize,

    /// The ring of each capture thread
    ///
    /// What the kernel can hold while nobody reads, from 512KiB to 1GiB. It is part of --memory.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = values::ring_size, hide_short_help = true)]
    ring_size: u64,

    /// How packets are read
    #[arg(long, value_name = "HOW", default_value = "ring", hide_short_help = true)]
    backend: BackendKind,

    /// Leave promiscuous mode off
    ///
    /// The interface then passes only packets to this host, which is enough on a router.
    #[arg(long, hide_short_help = true)]
    no_promiscuous: bool,

    /// Continue as this user once the interfaces are open
    ///
    /// All capabilities are given up as well.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    user: Option<String>,

    #[command(flatten)]
    conntrack: ConntrackOptions,

    #[command(flatten)]
    options: RunOptions,

    /// Serve Prometheus metrics at this address
    ///
    /// At http://ADDR:PORT/metrics, and whether lists are still made at /healthz: 127.0.0.1:9464.
    #[arg(long, value_name = "ADDR:PORT", help_heading = heading::MESSAGES)]
    metrics: Option<SocketAddr>,
}

impl Arguments {
    /// The sources that the arguments ask for, one for each interface.
    fn sources(&self) -> Result<Vec<LiveConfig>> {
        let capture = match (&self.bpf, self.capture) {
            (Some(path), _) => CaptureMode::Program(BpfProgram::read(path)?),
            (None, CaptureKind::Headers) => CaptureMode::Headers,
            (None, CaptureKind::Flags) => CaptureMode::Flags,
            (None, CaptureKind::Tunnels) => CaptureMode::Everything,
        };
        let backend = match self.backend {
            BackendKind::Ring => Backend::Ring,
            BackendKind::Pnet => Backend::Pnet,
        };
        if self.options.has_vlan_key() && backend == Backend::Pnet {
            return Err(Error::new(
                "pnet never sees the outermost VLAN tag, which the kernel passes beside the packet: take --backend \
                 ring, or no --vlan-key",
            ));
        }
        for (index, interface) in self.interfaces.iter().enumerate() {
            if self.interfaces[..index].contains(interface) {
                let what = format!(
                    "{} is given twice: --fanout N captures one interface with N threads",
                    interface.escape_debug()
                );
                return Err(Error::new(what));
            }
        }
        let source = |interface: &String| LiveConfig {
            backend,
            capture: capture.clone(),
            fanout_count: self.fanout,
            ring_size: self.ring_size,
            promiscuous: !self.no_promiscuous,
            ..LiveConfig::new(interface.as_str())
        };
        Ok(self.interfaces.iter().map(source).collect())
    }

    /// Gives up privileges, if that is asked for, and begins to follow the kernel's table of connections, if that is.
    fn follow(&self, prepared: &Prepared) -> Result<Option<(Following, SystemView)>> {
        let (user, translations_max) = (self.user.as_deref(), prepared.plan.config().translations_max);
        let Some(translations_max) = translations_max else {
            // Before there is any thread, because each has privileges of its own.
            return user.map_or(Ok(()), |user| live::drop_privileges(Some(user))).map(|()| None);
        };
        if user.is_some() {
            live::drop_privileges_but_net_admin(user)?;
        }
        let vlan_key = prepared.plan.config().vlan_key;
        let following = Following::start(ToFollow { interfaces: self.interfaces.clone(), vlan_key, translations_max })?;
        // The thread that reads the table keeps what it needs, and no other that is started from here on has it.
        if user.is_some() {
            live::drop_privileges(None)?;
        }
        Ok(Some(following))
    }

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
        let sources = self.sources()?;
        // Where the kernel passes nothing but SYN, FIN and RST, no acknowledgement completes a handshake.
        let config = Config {
            answer_opens: self.capture == CaptureKind::Flags,
            translations_max: self.conntrack.translations_max(config.connections_max),
            ..config
        };
        if self.conntrack.conntrack && config.format.changes.is_some() {
            return Err(Error::new(
                "--changes writes no other names of connections, which --conntrack makes known: leave one of them out",
            ));
        }
        let input = LiveInput {
            capture_count: sources.iter().map(|source| source.fanout_count).sum(),
            rings_size: sources.iter().map(LiveConfig::memory_size).sum(),
        };
        Ok(Prepared { plan: Plan::live(&config, input)?, sources })
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
        let is_taken = |(part, _): &(&str, u64)| match *part {
            "sources" => config.sources_max.is_some(),
            "translations" => config.translations_max.is_some(),
            _ => true,
        };
        Metrics::new(Setup {
            interfaces: self.interfaces(),
            connections_max: config.connections_max,
            interval: config.every,
            memory: self.plan.memory().parts().into_iter().filter(is_taken).collect(),
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
    let mut sources = Vec::new();
    for source in &prepared.sources {
        sources.extend(live::open(source)?);
    }
    let nat_warning =
        if arguments.conntrack.conntrack { None } else { conntrack::nat_warning(arguments.interfaces.len()) };
    let (following, system) = arguments.follow(prepared)?.unzip();
    let mut saving = arguments.options.state.of_live(&prepared.plan, voice)?;
    let mut outputs = arguments.options.lists.outputs(prepared.plan.config(), voice)?;
    let archive = arguments.options.archive.start(WhenFull::Drop, saving.as_mut(), voice)?;
    let plan = archive.iter().fold(prepared.plan.clone(), |plan, archive| plan.recording(archive.inlet()));
    let metrics = prepared.metrics();
    let server = arguments.metrics.map(|address| serve(address, Arc::clone(&metrics))).transpose()?;
    let lists_on_terminal = arguments.options.lists.are_on_terminal();
    let watch = LiveWatch::new(voice, prepared, Arc::clone(&metrics), lists_on_terminal)?;
    if voice > Voice::Quiet {
        report::memory(&prepared.plan);
        nat_warning.into_iter().for_each(report::warning);
        announce(arguments, server.as_ref().map(Server::local_addr));
    }
    if let Some(archive) = &archive {
        outputs.feed(archive);
    }
    let summary = crate::run::live(&plan, sources, &mut outputs, &metrics, &watch, saving, system.unwrap_or_default());
    let followed = following.map(Following::stop);
    let is_followed = followed.as_ref().is_none_or(Result::is_ok);
    let aftermath = outputs.aftermath();
    let archived = archive.map(Archive::finish);
    let is_archived = archived.as_ref().is_none_or(Result::is_ok);
    let is_captured = summary.as_ref().is_ok_and(|summary| summary.errors.is_empty());
    let is_saved = summary.as_ref().is_ok_and(|summary| state::is_saved(summary.saving.as_ref()));
    watch.finish(move || {
        followed.into_iter().for_each(|followed| report_followed(followed, voice));
        archived.into_iter().for_each(|archived| archive::report_end(archived, voice));
        print_end(&summary, &aftermath, voice);
    });
    Ok(if is_captured && is_archived && is_saved && is_followed { Status::Done } else { Status::Failed })
}

/// Prints how following the kernel's table went.
fn report_followed(followed: Result<u64>, voice: Voice) {
    match followed {
        Err(error) => report::error(&error, "; lists since then are not complete"),
        Ok(reread_count) if reread_count > 0 && voice > Voice::Quiet => report::warning(&format!(
            "the kernel had more changes of connections than were read, and its table was read again {}",
            report::times(reread_count)
        )),
        Ok(_) => {}
    }
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
    let interfaces: Vec<_> = arguments.interfaces.iter().map(|name| name.escape_debug().to_string()).collect();
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
