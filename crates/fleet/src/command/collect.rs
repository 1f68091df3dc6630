//! `flowpeel-fleet collect`: the lists of many routers, from the broker or from directories.

use super::stop::Stop;
use super::{Failure, MetricsOption, Outcome, SecretOption, report};
use crate::broker::{BrokerOptions, StreamLimits};
use crate::collect::{CollectConfig, CollectObserver, Collector, Ended, Holding, list_counts};
use crate::hold::RENEW_INTERVAL;
use crate::inbox::Inbox;
use crate::key::FleetKey;
use crate::lists::{Lists, ListsConfig, LocalLists};
use clap::Args;
use flowpeel::agent::{AgentCounts, AgentEvent, AgentObserver};
use flowpeel::disk::read_secret;
use flowpeel::error::{Error, Result};
use flowpeel::export::{Format, Keep};
use flowpeel::select;
use flowpeel::signal::{PARTITION_COUNT, PartitionSet};
use std::path::PathBuf;
use std::time::Duration;

/// How often directories are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The most bytes of a stream that is created here, in MiB: a week of a router with 30,000 open connections, of
/// which a thousand change in ten seconds.
const STREAM_MIB: u64 = 4_096;

/// The exit status of a collector whose share another has taken.
const REPLACED: u8 = 3;

/// The shortest time after which a standby takes a share over.
const STANDBY_MIN: Duration = RENEW_INTERVAL.saturating_mul(3);

/// Write the lists of all routers of a fleet
///
/// Each router gets a folder of its own with the lists that it would have written, byte for byte those of `flowpeel
/// snapshot collect`. A collector continues where the one before it stopped, however that ended; on another machine
/// from the checkpoints that the one before it wrote at the broker. Each share has one collector: who takes it ends the
/// one before it.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet collect",
    after_help = "Examples:\n  flowpeel-fleet collect --nats tls://broker:4222 --nkey collector.nk --fleet-key fleet.key \
    --secret-file secret --out lists\n  flowpeel-fleet collect --once --from east --from west --secret-file secret --out lists"
)]
pub(super) struct Arguments {
    /// The directory with a folder for each router
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Take snapshots from this directory of a router instead of a broker; may be given for each router
    #[arg(long, value_name = "DIR", conflicts_with_all = ["nats", "fleet_key"], required_unless_present = "nats")]
    from: Vec<PathBuf>,

    /// Routers' own lists, or copies, in a folder for each: begin with the newest where neither --out nor a checkpoint
    /// has one
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    base: Option<PathBuf>,

    /// The key of the fleet, from which those of its routers follow
    #[arg(long, value_name = "FILE", required_unless_present = "from")]
    fleet_key: Option<PathBuf>,

    /// Take the Kth of N shares of the connections: 1/2. As many collectors each write a part of every list
    #[arg(long, value_name = "K/N", default_value = "1/1", value_parser = share, conflicts_with_all = ["from", "changes"])]
    share: PartitionSet,

    /// The name under which the broker remembers what was taken: each name gets everything
    #[arg(long, value_name = "NAME", default_value = "collect", hide_short_help = true)]
    name: String,

    /// The size of the stream, if it does not exist yet, in MiB; beyond it the oldest messages go
    #[arg(long, value_name = "MIB", default_value_t = STREAM_MIB, value_parser = clap::value_parser!(u64).range(1..=1 << 30),
        hide_short_help = true)]
    stream_mib: u64,

    /// How long the stream keeps messages, if it does not exist yet
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = age, hide_short_help = true)]
    stream_age: Duration,

    /// On how many servers of a cluster each message of the stream is, if it does not exist yet
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5), hide_short_help = true)]
    stream_replicas: u8,

    /// Wait until the collector that holds this share ends or has said nothing for so long (30s), and take it over
    #[arg(long, value_name = "AGE", value_parser = patience, conflicts_with_all = ["once", "from"], num_args = 0..=1,
        default_missing_value = "30s")]
    standby: Option<Duration>,

    /// Write a checkpoint of a router after N of its lists, from which another collector would go on
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000),
        conflicts_with = "from", hide_short_help = true)]
    checkpoint_every: u64,

    /// List what is there now, and end
    #[arg(long)]
    once: bool,

    /// Compress lists with zstd
    #[arg(long, hide_short_help = true)]
    compress: bool,

    /// Write what opened and closed since the list before, and one list of N in full
    #[arg(long, value_name = "N", hide_short_help = true)]
    changes: Option<u64>,

    /// Remove lists that ended longer than this before the newest: 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    keep: Option<Duration>,

    #[command(flatten)]
    secret: SecretOption,

    #[command(flatten)]
    metrics: MetricsOption,

    #[command(flatten)]
    broker: BrokerOptions,
}

/// The partitions of a share.
fn share(text: &str) -> std::result::Result<PartitionSet, String> {
    let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    let is_share = |(index, count): &(usize, usize)| (1..=*count).contains(index) && *count <= PARTITION_COUNT;
    let what = || format!("a share is K/N, with K from 1 to N and N at most {PARTITION_COUNT}");
    parts.filter(is_share).map(|(index, count)| PartitionSet::share(index - 1, count)).ok_or_else(what)
}

fn age(text: &str) -> std::result::Result<Duration, String> {
    select::duration(text).ok_or_else(|| "an age is a number above 0 with its unit: 36h, 7d".to_owned())
}

/// How long a standby waits: some times the time in which whoever lives says so.
fn patience(text: &str) -> std::result::Result<Duration, String> {
    let patience = age(text)?;
    if patience < STANDBY_MIN {
        return Err(format!(
            "a collector that lives says so every second: wait {} seconds at least",
            STANDBY_MIN.as_secs()
        ));
    }
    Ok(patience)
}

impl Arguments {
    fn lists(&self) -> Result<ListsConfig> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(is_name) {
            return Err(Error::new("the name of a collector has 1 to 64 letters, digits, - and _"));
        }
        let format = Format { compress: self.compress, changes: self.changes, ..Format::default() };
        format.check()?;
        let keep = Keep { age: self.keep, ..Keep::default() };
        let (out, bases) = (self.out.clone(), self.base.clone());
        Ok(ListsConfig { out, secret: self.secret.secret()?, format, keep, partitions: self.share, bases })
    }
}

/// Prints what agents report.
struct Observer(Stop);

impl AgentObserver for Observer {
    fn report(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Refused(error) => report::error(&error),
            AgentEvent::Warning(error) => report::warning(&error),
            AgentEvent::Listed(name, header) if !header.complete => {
                report::line(format_args!("{name}: {} connections, about {} missing", header.flows, header.missing));
            }
            AgentEvent::Listed(..) => {}
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

impl CollectObserver for Observer {
    fn holds(&mut self, holding: Holding) {
        match holding {
            Holding::Waiting => report::line(format_args!("another collector holds this share: waiting")),
            Holding::TakenOver { router_count } => report::line(format_args!(
                "this share is taken over from another collector: {router_count} routers go on from its checkpoints"
            )),
        }
    }
}

/// Writes lists.
pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let config = arguments.lists().map_err(Failure::wrong_usage)?;
    arguments.metrics.check().map_err(Failure::wrong_usage)?;
    let mut observer = Observer(Stop::on_signals()?);
    let all_used = match arguments.broker.nats.is_empty() {
        true => from_directories(arguments, config, &mut observer).await?,
        false => from_broker(arguments, config, &mut observer).await?,
    };
    Ok(all_used && !(arguments.once && observer.is_stopped()))
}

async fn from_directories(arguments: &Arguments, config: ListsConfig, observer: &mut Observer) -> Outcome {
    let mut lists = LocalLists::new(config, arguments.from.clone())?;
    let mut ended = lists.look(arguments.once, observer);
    while ended.is_ok() && !arguments.once && !observer.is_stopped() {
        tokio::time::sleep(LOOK_INTERVAL).await;
        ended = lists.look(false, observer);
    }
    let counts = lists.counts();
    report::line(format_args!("{}", report::counts(&report::in_words(list_counts(&counts)))));
    ended?;
    Ok(counts.refused == 0 && counts != AgentCounts::default())
}

async fn from_broker(arguments: &Arguments, config: ListsConfig, observer: &mut Observer) -> Outcome {
    let key = arguments.fleet_key.as_deref().ok_or_else(|| Error::new("name the fleet's key with --fleet-key"));
    let fleet = FleetKey::new(read_secret(key.map_err(Failure::wrong_usage)?).map_err(Failure::wrong_usage)?);
    let inbox = Inbox::new(config.secret.clone(), fleet.clone(), config.partitions);
    let lists = Lists::new(config, observer)?;
    let broker = arguments.broker.connect("flowpeel-fleet collect", "_INBOX_collect").await?;
    let collect = CollectConfig {
        name: arguments.name.clone(),
        limits: StreamLimits {
            size: arguments.stream_mib << 20,
            age: arguments.stream_age,
            replica_count: arguments.stream_replicas,
        },
        key: fleet,
        checkpoint_every: arguments.checkpoint_every,
        patience: arguments.standby,
    };
    let mut collector = Collector::new(broker, collect, inbox, lists);
    let _server = arguments.metrics.serve(collector.board())?;
    let ended = collector.run(arguments.once, observer).await;
    let figures = collector.figures();
    let mut counts = report::in_words(figures.counts());
    counts.extend(figures.refusals.all().map(|(refusal, count)| (count, refusal.describe())));
    report::line(format_args!("{} of {} routers", report::counts(&counts), collector.lists().router_count()));
    if ended? == Ended::Replaced {
        let error = Error::new("another collector has taken this share: this one has stopped");
        return Err(Failure { error, status: REPLACED });
    }
    Ok(figures.lists.refused == 0)
}
