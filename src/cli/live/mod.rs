//! `flowpeel live`: interfaces in, lists out, until it is told to stop.

mod speaker;
mod status;

use crate::archive::Archive;
use crate::capture::live::{self, Backend, BpfProgram, CaptureMode, LiveConfig};
use crate::cli::archive::{self, ArchiveOptions};
use crate::cli::lists::Lists;
use crate::cli::report::{self, Voice};
use crate::cli::state::{self, State};
use crate::cli::tracking::Tracking;
use crate::cli::{Failure, Outcome, Status, values};
use crate::error::{Error, Result};
use crate::metrics::{Metrics, Setup};
use crate::pipeline::{self, Config, LiveInput, Plan, Summary};
use crate::queue::WhenFull;
use crate::serve::{Server, is_exposed, serve};
use crate::snapshot::ROUTER_NAME_SIZE_MAX;
use clap::{Args, ValueEnum};
use status::LiveWatch;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the kernel is to pass on.
#[derive(Clone, Copy, ValueEnum)]
enum CaptureKind {
    /// The headers of all TCP packets
    Headers,
    /// SYN, FIN and RST alone: the least work, but a SYN-ACK then counts as a connection, and what is idle is not known
    Flags,
}

/// How packets are read.
#[derive(Clone, Copy, ValueEnum)]
enum BackendKind {
    /// From a ring shared with the kernel
    Ring,
    /// One by one, with pnet
    Pnet,
}

/// Lists the TCP connections through interfaces, at every interval
///
/// Captures until SIGINT or SIGTERM, then writes the last list. Lists end at multiples of the interval by the wall
/// clock. Opening an interface takes the capability CAP_NET_RAW.
///
/// Exit status: 0 when it was told to stop, 1 when something failed, 2 when the command line is wrong, 130 when a
/// second signal ended it at once.
#[derive(Args)]
#[command(
    display_name = "flowpeel live",
    after_help = "Examples:\n  flowpeel live -i eth0 --every 10s --out lists/ --compress --keep 7d\n  \
    flowpeel live -i lan -i wan --user nobody --metrics 127.0.0.1:9464 --out lists/\n  \
    flowpeel live -i eth0 | jq -c 'select(.event_type==\"flow_list\")'"
)]
pub(super) struct Arguments {
    /// The interface to capture on; may be given several times (flowpeel interfaces lists them)
    #[arg(short, long = "interface", required = true, value_name = "IFACE")]
    interfaces: Vec<String>,

    /// Write a list for every such interval, at its multiples by the wall clock
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration)]
    every: Duration,

    #[command(flatten)]
    lists: Lists,

    /// What the kernel passes on
    #[arg(long, value_name = "WHAT", default_value = "headers", conflicts_with_all = ["tunnels", "bpf"])]
    capture: CaptureKind,

    /// Look into tunnels: the kernel passes everything on, and all of it is parsed
    #[arg(long, conflicts_with = "bpf")]
    tunnels: bool,

    /// A file with a filter program for the kernel instead, as `tcpdump -ddd` prints it
    #[arg(long, value_name = "FILE")]
    bpf: Option<PathBuf>,

    /// Capture threads for each interface, between which the kernel spreads connections
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::fanout)]
    fanout: usize,

    /// How packets are read
    #[arg(long, value_name = "HOW", default_value = "ring")]
    backend: BackendKind,

    /// The ring of each capture thread, from 512KiB to 1GiB: what the kernel can hold while nobody reads
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = values::ring_size)]
    ring_size: u64,

    /// Do not ask the interface for packets to other hosts
    #[arg(long)]
    no_promiscuous: bool,

    /// Once the interfaces are open, go on as this user and without capabilities
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Serve Prometheus metrics and /healthz at this address, such as 127.0.0.1:9464 [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,

    #[command(flatten)]
    state: State,

    #[command(flatten)]
    tracking: Tracking,

    #[command(flatten)]
    archive: ArchiveOptions,
}

impl Arguments {
    /// The sources that the arguments ask for, one for each interface.
    fn sources(&self) -> Result<Vec<LiveConfig>> {
        let capture = match (&self.bpf, self.tunnels, self.capture) {
            (Some(path), ..) => CaptureMode::Program(BpfProgram::read(path)?),
            (None, true, _) => CaptureMode::Everything,
            (None, false, CaptureKind::Headers) => CaptureMode::Headers,
            (None, false, CaptureKind::Flags) => CaptureMode::Flags,
        };
        let backend = match self.backend {
            BackendKind::Ring => Backend::Ring,
            BackendKind::Pnet => Backend::Pnet,
        };
        if self.tracking.vlan_key && backend == Backend::Pnet {
            return Err(Error::new("pnet does not tell the outermost VLAN tag: take --backend ring, or no --vlan-key"));
        }
        for (index, interface) in self.interfaces.iter().enumerate() {
            if self.interfaces[..index].contains(interface) {
                let what = format!("{} is named twice: --fanout spreads an interface", interface.escape_debug());
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

    /// Checks all that can be checked before anything is done, and plans the run.
    fn prepare(&self) -> Result<Prepared> {
        self.lists.keep()?;
        self.state.check(Some(self.every), self.tracking.has_secret())?;
        archive::check_directories(&self.state, &self.lists, &self.archive)?;
        self.archive.check(&self.lists)?;
        if self.lists.snapshot_directory().is_some() && !self.tracking.has_secret() {
            return Err(Error::new(
                "nobody could read snapshots under a secret that is not kept: make one with flowpeel keygen FILE, \
                 and name it with --secret-file FILE",
            ));
        }
        let config =
            self.tracking.config(Config::live_defaults(), Some(self.every), &self.lists, values::random_secret)?;
        let snapshots = self.lists.snapshots(host_name, values::random_number()?);
        let saves_state = self.state.directory().is_some();
        let archive_size = self.archive.memory_size(saves_state)?;
        let sources = self.sources()?;
        // Where the kernel passes nothing but SYN, FIN and RST, no acknowledgement completes a handshake.
        let answer_opens = sources.iter().any(|source| source.capture == CaptureMode::Flags);
        let config = Config { answer_opens, saves_state, snapshots, archive_size, ..config };
        let input = LiveInput {
            capture_count: sources.iter().map(|source| source.fanout_count).sum(),
            rings_size: sources.iter().map(LiveConfig::memory_size).sum(),
        };
        Ok(Prepared { plan: Plan::live(&config, input)?, sources })
    }
}

/// The name of the host, or nothing where the system does not tell. The system call is used because a service may see
/// nothing of /proc but processes.
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
        let is_taken = |(part, _): &(&str, u64)| *part != "sources" || config.sources_max.is_some();
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
    let mut sources = Vec::new();
    for source in &prepared.sources {
        sources.extend(live::open(source)?);
    }
    // Before there is any thread, because each has privileges of its own.
    if arguments.user.is_some() {
        live::drop_privileges(arguments.user.as_deref())?;
    }
    let mut saving = arguments.state.of_live(&prepared.plan, voice)?;
    let mut outputs = arguments.lists.outputs(prepared.plan.config(), voice)?;
    let archive = arguments.archive.start(WhenFull::Drop, saving.as_mut(), voice)?;
    let plan = archive.iter().fold(prepared.plan.clone(), |plan, archive| plan.recording(archive.inlet()));
    let metrics = prepared.metrics();
    let server = arguments.metrics.map(|address| serve(address, Arc::clone(&metrics))).transpose()?;
    let watch = LiveWatch::new(voice, prepared, Arc::clone(&metrics))?;
    if voice > Voice::Quiet {
        report::memory(&prepared.plan);
        announce(arguments, server.as_ref().map(Server::local_addr));
    }
    if let Some(archive) = &archive {
        outputs.feed(archive);
    }
    let summary = pipeline::live(&plan, sources, &mut outputs, &metrics, &watch, saving);
    let aftermath = outputs.aftermath();
    let archived = archive.map(Archive::finish);
    let is_archived = archived.as_ref().is_none_or(Result::is_ok);
    let is_captured = summary.as_ref().is_ok_and(|summary| summary.errors.is_empty());
    let is_saved = summary.as_ref().is_ok_and(|summary| state::is_saved(summary.saving.as_ref()));
    watch.finish(move || {
        archived.into_iter().for_each(|archived| archive::tell(archived, voice));
        tell(&summary, &aftermath, voice);
    });
    Ok(if is_captured && is_archived && is_saved { Status::Done } else { Status::Failed })
}

/// Says what came of it.
fn tell(summary: &Result<Summary>, aftermath: &str, voice: Voice) {
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
    state::tell(summary.saving.as_ref());
}

/// Tells what is captured, and where metrics are served.
fn announce(arguments: &Arguments, metrics: Option<SocketAddr>) {
    let interfaces: Vec<_> = arguments.interfaces.iter().map(|name| name.escape_debug().to_string()).collect();
    report::line(format_args!("capturing on {}", interfaces.join(", ")));
    if let Some(address) = metrics {
        report::line(format_args!("metrics at http://{address}/metrics"));
        if is_exposed(address) {
            report::warning(&format!("metrics at {address} can be read by whoever reaches that address"));
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
