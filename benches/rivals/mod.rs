//! The rivals that flowpeel is measured against over whole captures: the least that can be done with a capture, and the
//! obvious alternative to flowpeel.
//!
//! It takes the path of a capture and gives a rival's result, on standard output. Each is measured as a process of its
//! own, as flowpeel is. They parse only as much as plain TCP over Ethernet needs, and one thread does everything.

mod bare_loop;
mod capture;
mod exact_map;
mod frame;

use clap::{Args, Subcommand};
use std::io;
use std::path::PathBuf;

/// A rival at work.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    rival: Rival,
}

#[derive(Subcommand)]
enum Rival {
    /// Counts the SYNs, FINs and RSTs of a capture
    BareLoop {
        /// The capture: pcap, in microseconds
        capture: PathBuf,
    },
    /// Lists the connections that are open at the end of a capture, out of an exact hash map
    ExactMap {
        /// The capture: pcap, in microseconds
        capture: PathBuf,

        /// Hold at most this many
        #[arg(long, value_name = "N")]
        bounded: Option<usize>,
    },
}

/// Lets a rival do its work.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match &arguments.rival {
        Rival::BareLoop { capture } => bare_loop::run(capture, &mut out),
        Rival::ExactMap { capture, bounded } => exact_map::run(capture, *bounded, &mut out),
    }
}
