//! `flowpeel-fleet ship`: from a router's directory of snapshots to the broker.

use super::stop::Stop;
use super::{Failure, MetricsOption, Outcome, SecretOption, report};
use crate::broker::BrokerOptions;
use crate::key::RouterKey;
use crate::ship::{ShipObserver, Shipper};
use crate::spool::{Parcel, Spool, SpoolConfig};
use clap::Args;
use flowpeel::disk::read_secret;
use flowpeel::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often at most it is said that snapshots are behind, or that the broker is away.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Send a router's snapshots to collectors
///
/// Follows the directory that `flowpeel live --snapshots` writes and publishes each snapshot under the subjects of its
/// router, oldest first. What was sent stands in a note beside the directory. While the broker is away snapshots wait
/// on the disk, as long as `flowpeel live --keep` lets them.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet ship",
    after_help = "Example:\n  flowpeel-fleet ship --spool /var/lib/flowpeel/snapshots --secret-file secret --router-key edge-1.key \
    --nats tls://broker:4222 --nkey edge-1.nk"
)]
pub(super) struct Arguments {
    /// The directory of snapshots, which is only read
    #[arg(long, value_name = "DIR")]
    spool: PathBuf,

    /// The router's key, which flowpeel-fleet key made
    #[arg(long, value_name = "FILE")]
    router_key: PathBuf,

    /// Where it stands what was sent [default: DIR.shipped]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    note: Option<PathBuf>,

    /// Send what is there now, and end
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    secret: SecretOption,

    #[command(flatten)]
    metrics: MetricsOption,

    #[command(flatten)]
    broker: BrokerOptions,
}

impl Arguments {
    fn spool(&self) -> Result<SpoolConfig> {
        if self.broker.nats.is_empty() {
            return Err(Error::new("name the broker with --nats"));
        }
        Ok(SpoolConfig {
            directory: self.spool.clone(),
            note: self.note.clone().unwrap_or_else(|| beside(&self.spool)),
            secret: self.secret.secret()?,
            key: RouterKey::new(read_secret(&self.router_key)?),
        })
    }
}

/// The note beside a directory.
fn beside(directory: &Path) -> PathBuf {
    let mut name = directory.components().as_path().as_os_str().to_owned();
    name.push(".shipped");
    name.into()
}

/// Prints what a shipper reports.
struct Observer {
    stop: Stop,
    reported: Option<Instant>,
}

impl Observer {
    /// Whether a condition that persists is to be reported again.
    fn is_due(&mut self) -> bool {
        let is_due = self.reported.is_none_or(|reported| reported.elapsed() > REPORT_INTERVAL);
        if is_due {
            self.reported = Some(Instant::now());
        }
        is_due
    }
}

impl ShipObserver for Observer {
    fn refused(&mut self, error: Error) {
        report::error(&error);
    }

    fn sent(&mut self, _: &Parcel) {}

    fn behind(&mut self, parcel: &Parcel) {
        if self.is_due() {
            report::line(format_args!("{}: {} snapshots are waiting behind it", parcel.name, parcel.behind));
        }
    }

    fn again(&mut self, cause: &str) {
        if self.is_due() {
            report::warning(format_args!("the broker did not take all, which is sent again: {cause}"));
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }
}

/// Sends what is in the spool.
pub(super) async fn run(arguments: &Arguments) -> Outcome {
    arguments.metrics.check().map_err(Failure::wrong_usage)?;
    let spool = Spool::new(arguments.spool().map_err(Failure::wrong_usage)?)?;
    let stop = Stop::on_signals()?;
    let broker = arguments.broker.connect("flowpeel-fleet ship", "_INBOX_ship").await?;
    let mut shipper = Shipper::new(broker, spool);
    let _server = arguments.metrics.serve(shipper.board())?;
    let mut observer = Observer { stop, reported: None };
    let ended = shipper.run(arguments.once, &mut observer).await;
    let figures = shipper.figures();
    report::line(format_args!("{}", report::counts(&report::in_words(figures.counts()))));
    ended?;
    let is_cut_short = arguments.once && observer.is_stopped();
    Ok(figures.spool.refused == 0 && !is_cut_short)
}
