//! `flowpeel-fleet view`: the connections of the network, each with the routers that see it.

use super::Outcome;
use super::report;
use crate::join::{Patience, Presence, members, write};
use clap::Args;
use flowpeel::error::escaped;
use flowpeel::select;
use std::path::PathBuf;
use std::time::Duration;

/// Write the connections of the whole network, each once, with the routers that see it
///
/// Reads the last list in full of each router in a directory that collect writes, and writes NDJSON to standard output:
/// a header with the routers, how old their lists are and whether they are late or gone, then a line for each
/// established connection with the names of its routers and the earliest start. Ages count from the newest list.
#[derive(Args)]
#[command(display_name = "flowpeel-fleet view", after_help = "Example:\n  flowpeel-fleet view lists > network.ndjson")]
pub(super) struct Arguments {
    /// The directory with a folder for each router
    lists: PathBuf,

    /// How much older than the newest a router's list may be before the router is late
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    late: Duration,

    /// How much older before it is gone, and not in the view
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    gone: Duration,
}

fn time(text: &str) -> Result<Duration, String> {
    select::duration(text).ok_or_else(|| "a duration is a number above 0 with its unit: 30s, 1h".to_owned())
}

/// Writes the view.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let members = members(&arguments.lists, Patience { late: arguments.late, gone: arguments.gone })?;
    for member in members.iter().filter(|member| member.presence != Presence::Current) {
        let presence = if member.presence == Presence::Late { "late" } else { "gone" };
        let age_s = member.age_ns / 1_000_000_000;
        report::warning(format_args!("{} is {presence}: its list is {age_s} s older", escaped(&member.name)));
    }
    write(std::io::stdout().lock(), &members)?;
    Ok(!members.is_empty())
}
