//! `flowpeel top`: what is open now, on a full screen: of interfaces, of captures at their own pace, or of a running
//! `live`.

mod asking;
mod keys;
mod life;
mod run;
mod screen;
mod state;
pub(in crate::cli) mod terminal;
#[cfg(test)]
mod tests;

pub(super) use run::run;

use crate::cli::capture::CaptureOptions;
use crate::cli::heading;
use crate::cli::tracking::Tracking;
use crate::cli::values;
use crate::select::{Filter, GroupBy, Sort};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::time::Duration;

/// Watch what is open, full screen
///
/// Captures interfaces, plays captures at their own pace, or attaches to a running flowpeel live --control. ? shows the
/// keys, q ends it.
///
/// Exit status: 0 ended by q or a signal, 1 something failed, 2 wrong usage, or no terminal.
#[derive(Args)]
#[command(
    display_name = "flowpeel top",
    group = ArgGroup::new("watched").required(true).args(["files", "interfaces", "attach"]),
    next_help_heading = heading::OUTPUT,
    after_help = "Examples:\n  flowpeel top -i eth0\n  flowpeel top --attach /run/flowpeel.sock\n  \
    flowpeel top --speed 10 --filter 'server port 443' day.pcap.zst"
)]
pub(super) struct Arguments {
    /// Captures to play, in the order of their packets; - for stdin
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// An interface to capture on; may be repeated
    #[arg(short, long = "interface", value_name = "IFACE", help_heading = heading::CAPTURE)]
    interfaces: Vec<String>,

    /// Attach to the flowpeel live that runs with --control PATH
    #[arg(long, value_name = "PATH", help_heading = heading::CAPTURE)]
    attach: Option<PathBuf>,

    /// Play captures this many times as fast as they were made
    ///
    /// From 0.01 to 10000. Pauses of more than ten seconds are cut to ten.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = values::speed, help_heading = heading::CAPTURE)]
    speed: f64,

    /// Time between two lists, of packets or of the wall clock
    ///
    /// Rows on the screen are at most one a second new.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration, hide_short_help = true)]
    every: Duration,

    /// Show these only: 'port 443 and age > 1h'
    ///
    /// The language is that of lists; / changes it.
    #[arg(long, value_name = "EXPR")]
    filter: Option<Filter>,

    /// Begin with this order
    #[arg(long, value_name = "BY")]
    sort: Option<Sort>,

    /// Begin with groups of this
    #[arg(long, value_name = "WHAT")]
    group_by: Option<GroupBy>,

    #[command(flatten)]
    capture: CaptureOptions,

    #[command(flatten)]
    tracking: Tracking,
}
