//! `flowpeel-fleet key`: the key of a router, from that of the fleet.

use super::{Failure, Outcome};
use crate::key::FleetKey;
use clap::Args;
use flowpeel::disk::{read_secret, write_new_secret};
use flowpeel::error::Error;
use flowpeel::snapshot::is_name;
use std::path::PathBuf;

/// Make the key with which a router signs what it sends
///
/// The fleet's key is a file that `flowpeel keygen` made, which only collectors have. Each router gets the key of its
/// own name, from which nobody can compute another.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet key",
    after_help = "Example:\n  flowpeel keygen fleet.key\n  flowpeel-fleet key --fleet-key fleet.key --router edge-1 edge-1.key"
)]
pub(super) struct Arguments {
    /// The key of the fleet
    #[arg(long, value_name = "FILE")]
    fleet_key: PathBuf,

    /// The name of the router, as in `flowpeel live --router`
    #[arg(long, value_name = "NAME")]
    router: String,

    /// The file, which must not exist yet
    file: PathBuf,
}

/// Makes the key.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    if !is_name(&arguments.router) || arguments.router.is_empty() {
        let what = "a router's name has 1 to 64 bytes and no control characters";
        return Err(Failure::wrong_usage(Error::new(what)));
    }
    let fleet = FleetKey::new(read_secret(&arguments.fleet_key).map_err(Failure::wrong_usage)?);
    write_new_secret(&arguments.file, fleet.bytes_of_router(&arguments.router))?;
    Ok(true)
}
