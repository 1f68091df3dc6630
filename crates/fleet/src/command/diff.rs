//! `flowpeel-fleet diff`: what one router of a pair sees and its twin does not.

use super::stop::Stop;
use super::{Failure, Outcome, report};
use crate::network::Network;
use crate::newest::{self, Mark, Place};
use crate::twins::{TwinNames, Twins};
use clap::Args;
use flowpeel::error::{Error, Result};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How often directories are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Follow what one router of a pair sees and its twin does not
///
/// Two taps of the same traffic are to see the same connections. Prints a line of JSON for each that one of them alone
/// has listed for some intervals, and another when that has ended; and how the two are, whenever that changes: while
/// one of them is late or gone nothing is compared. docs/fleet.md has the lines.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet diff",
    after_help = "Examples:\n  flowpeel-fleet diff --from lists --twins east-1,east-2\n  flowpeel-fleet diff --from lists --twins \
    east-1,east-2 --once | jq 'select(.difference.certain)'"
)]
pub(super) struct Arguments {
    /// A directory with the lists of a router, or with a folder of lists for each; may be given several times
    #[arg(long, value_name = "DIR", required = true)]
    from: Vec<PathBuf>,

    /// The two routers
    #[arg(long, value_name = "A,B", value_parser = TwinNames::parse)]
    twins: TwinNames,

    /// For how many intervals a difference has to last; with --once, so old is a connection that is one
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    grace: u32,

    /// Compare what is there now, and end
    #[arg(long)]
    once: bool,
}

impl Arguments {
    /// The directories of the two routers.
    fn places(&self) -> Result<Vec<Place>> {
        let mut places = newest::places(&self.from)?;
        places.retain(|place| self.twins.has(&place.router));
        for name in self.twins.iter() {
            if !places.iter().any(|place| place.router == name) {
                return Err(Error::new(format!("there is no folder here with lists of {}", report::printable(name))));
            }
        }
        Ok(places)
    }
}

/// Compares two routers.
pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let places = arguments.places().map_err(Failure::wrong_usage)?;
    let stop = Stop::on_signals()?;
    let mut twins = Twins::new(arguments.twins.clone(), arguments.grace);
    let mut marks: Vec<Mark> = vec![Mark::default(); places.len()];
    let mut network = Network::read(&places)?;
    let mut is_new = true;
    loop {
        let mut lines = Vec::new();
        if arguments.once {
            twins.compare(&network, &network.routers, true, &mut lines)?;
        } else if is_new {
            twins.compare(&network, &network.routers_at(SystemTime::now()), false, &mut lines)?;
        } else {
            twins.look(&network, &network.routers_at(SystemTime::now()), &mut lines)?;
        }
        print(&lines)?;
        if arguments.once || stop.is_stopped() {
            break;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
        let seen = places.iter().zip(&marks).map(|(place, mark)| place.mark(mark));
        let seen = seen.collect::<Result<Vec<Mark>>>()?;
        is_new = seen.iter().zip(&marks).any(|(now, before)| now.is_other(before));
        if is_new {
            network = Network::read(&places)?;
        }
        marks = seen;
    }
    report::line(format_args!("{} differences stand", twins.count()));
    Ok(twins.is_comparable() || !arguments.once)
}

fn print(lines: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(lines).and_then(|()| out.flush()).map_err(|error| Error::new("cannot write").because(error))
}
