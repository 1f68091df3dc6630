//! `flowpeel generate`: synthetic captures to try things on: options in, a pcap file out.

use crate::capture::PACKET_SIZE_MAX;
use crate::cli::interrupts::Interrupts;
use crate::cli::report::{self, Voice, grouped};
use crate::cli::{Failure, Outcome, Status, values};
use crate::disk::whole_file::{NewFile, Temporary, directory_of, is_file_or_free};
use crate::error::{Error, Result};
use clap::{Args, ValueEnum};
use flowpeel_traffic::{
    Arrivals, Flood, FloodConfig, GENERATED_CAPTURED_SIZE_MAX, Traffic, TrafficConfig, TrafficCounts, write_pcap,
};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

const _: () = assert!(GENERATED_CAPTURED_SIZE_MAX <= PACKET_SIZE_MAX);

/// Bytes gathered before they are written.
const BUFFER_SIZE: usize = 1 << 20;

/// The name of a capture until it is whole. Its addresses are made up, so anybody may read it.
const TEMPORARY: Temporary = Temporary { prefix: ".generate-", suffix: ".tmp", mode: 0o666 };

#[derive(Clone, Copy, ValueEnum)]
enum FloodKind {
    /// SYNs that nobody answers
    Unanswered,
    /// SYNs that the attacked server answers
    Answered,
    /// ACKs of connections that do not exist
    Acks,
}

/// Make a capture of synthetic traffic, the same for the same seed
///
/// Connections open, end and fail in every way: by FIN, by RST, not at all, repeated, late, twice, on ports that are
/// still in use. With --flood, a server is attacked while 1000 clients keep connecting to others.
#[derive(Args)]
#[command(
    display_name = "flowpeel generate",
    after_help = "Examples:\n  flowpeel generate --connections 400k --out mixed.pcap\n  \
    flowpeel generate --flood answered | flowpeel replay --every 1s -"
)]
pub(super) struct Arguments {
    /// The seed of all random choices
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::number)]
    seed: u64,

    /// Connections in all [default: 10k], or, under a flood, clients that always have one [default: 1k]
    #[arg(long, value_name = "N", value_parser = values::count)]
    connections: Option<u64>,

    /// How long the capture lasts [default: 120s, or as long as the flood and 20s]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    duration: Option<Duration>,

    /// Packets of each connection between its handshake and its end [default: 0-20; under a flood 10-40]
    #[arg(long, value_name = "MIN-MAX", value_parser = values::count_range)]
    data_packets: Option<RangeInclusive<u64>>,

    /// Bytes of each packet that are captured at most (the snap length)
    #[arg(long, value_name = "N", default_value = "96", value_parser = values::number)]
    snap_length: u64,

    /// The part of the connections that is over IPv6 [default: 0.2; under a flood 0]
    #[arg(long, value_name = "SHARE", value_parser = values::share)]
    ipv6: Option<f64>,

    /// Attack a server
    #[arg(long, value_name = "KIND")]
    flood: Option<FloodKind>,

    /// Packets of the flood, without answers
    #[arg(long, value_name = "N", default_value = "5M", value_parser = values::count, requires = "flood")]
    flood_packets: u64,

    /// Packets of the flood in a second, without answers
    #[arg(long, value_name = "N", default_value = "1M", value_parser = values::count, requires = "flood")]
    flood_rate: u64,

    /// The file to write, whole or not at all; - for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

impl Arguments {
    fn config(&self) -> TrafficConfig {
        let mut config = match self.flood {
            None => TrafficConfig::mixed(self.seed, self.connections.unwrap_or(10_000)),
            Some(kind) => {
                let mut flood = FloodConfig::new(match kind {
                    FloodKind::Unanswered => Flood::Unanswered,
                    FloodKind::Answered => Flood::Answered,
                    FloodKind::Acks => Flood::Acks,
                });
                flood.packet_count = self.flood_packets;
                flood.rate_per_s = self.flood_rate;
                let mut config = TrafficConfig::flooded(self.seed, flood);
                if let Some(client_count) = self.connections {
                    config.arrivals = Arrivals::Population { client_count };
                }
                config
            }
        };
        if let Some(duration) = self.duration {
            config.duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        }
        if let Some(data_packets) = &self.data_packets {
            config.data_packets = data_packets.clone();
        }
        config.captured_size_max = usize::try_from(self.snap_length).unwrap_or(usize::MAX);
        config.ipv6_share = self.ipv6.unwrap_or(config.ipv6_share);
        config
    }

    fn write(&self, traffic: &mut Traffic) -> Result<TrafficCounts> {
        let is_stdout = self.out.as_os_str() == "-";
        let name = if is_stdout { Path::new("standard output") } else { &self.out };
        let cannot = |error: io::Error| Error::new("cannot write the capture").in_file(name).because(error);
        if is_stdout {
            let stdout = io::stdout();
            if stdout.is_terminal() {
                return Err(Error::new("a capture is not for a terminal: name a file with --out, or use a pipe"));
            }
            write_to(stdout, traffic).map_err(cannot)
        } else if is_file_or_free(name) {
            let interrupts = Interrupts::catch("waiting for the disk")?;
            let written = write_capture(name, traffic, &interrupts);
            interrupts.finish();
            written.map_err(cannot)
        } else {
            File::create(name).and_then(|file| write_to(file, traffic)).map_err(cannot)
        }
    }
}

fn write_to(out: impl Write, traffic: &mut Traffic) -> io::Result<TrafficCounts> {
    write_pcap(traffic, &mut BufWriter::with_capacity(BUFFER_SIZE, out))
}

/// Writes a file whole or not at all: one that was there stays until then.
fn write_capture(path: &Path, traffic: &mut Traffic, interrupts: &Interrupts) -> io::Result<TrafficCounts> {
    // A leftover that cannot be removed disturbs nothing.
    drop(TEMPORARY.remove_leftovers(directory_of(path)));
    let file = NewFile::begin(path, &TEMPORARY)?;
    let counts = write_to(Interruptible { file: file.file(), interrupts }, traffic)?;
    file.finish()?;
    Ok(counts)
}

/// A file whose writing fails after an interrupt, so that a half-written file is removed.
struct Interruptible<'a> {
    file: &'a File,
    interrupts: &'a Interrupts,
}

impl Write for Interruptible<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupts.is_interrupted() {
            return Err(io::Error::other("interrupted"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes the capture that the arguments ask for.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let traffic = Traffic::new(arguments.config());
    let mut traffic = traffic.map_err(|refused| Failure::wrong_usage(Error::new(refused.to_string())))?;
    let counts = arguments.write(&mut traffic)?;
    if voice > Voice::Quiet {
        let (frames, connections) = (grouped(counts.frame_count), grouped(counts.connection_count));
        report::line(format_args!("{frames} packets of {connections} connections"));
    }
    Ok(Status::Done)
}
