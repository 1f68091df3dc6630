//! `flowpeel replay`: captures in, lists out. Wrong options are refused before anything is read or written.

use crate::capture::Replay;
use crate::cli::Status;
use crate::cli::lists::Lists;
use crate::cli::report::{self, Voice};
use crate::cli::values;
use crate::cli::watch::Watch;
use crate::error::Result;
use crate::hash::Secret;
use crate::pipeline::{self, Config, Plan};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Lists the TCP connections that are open in captures
///
/// Reads pcap and pcapng, plain or compressed with gzip or zstd, and writes the list of open connections at the end, or
/// at the end of each interval of capture time. Several captures are read in turn, as one.
///
/// Exit status: 0 when everything was done, 1 when something failed (what could be read is listed all the same), 2 when
/// the command line is wrong.
#[derive(Args)]
#[command(
    display_name = "flowpeel replay",
    after_help = "Examples:\n  flowpeel replay capture.pcap\n  flowpeel replay --every 10s --out lists/ day.pcap.zst\n  \
    tcpdump -U -w - | flowpeel replay --every 10s -"
)]
pub(super) struct Arguments {
    /// Captures, in the order of their packets; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write a list for every such interval of capture time, at its multiples [default: one list at the end]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    every: Option<Duration>,

    #[command(flatten)]
    lists: Lists,

    /// Threads that track connections, 1 to 8; lists do not depend on it [default: the cores but one]
    #[arg(long, value_name = "N", value_parser = values::shards)]
    shards: Option<usize>,

    /// Connections that can be open at once
    #[arg(long, value_name = "N", default_value = "500k", value_parser = values::count)]
    connections: u64,

    /// Openings and closings in an interval that tables are made for
    #[arg(long, value_name = "N", default_value = "100k", value_parser = values::count)]
    churn: u64,

    /// Memory that may be taken; what does not fit is refused at the start
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = values::size)]
    memory: u64,

    /// How long a half-open connection is kept
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    syn_timeout: Duration,

    /// List connections of which the capture shows one side only
    #[arg(long)]
    one_way: bool,

    /// Tell connections on different VLANs apart, and list the tags
    #[arg(long)]
    vlan_key: bool,

    /// A file with 32 hexadecimal digits, private to its owner, that place connections in the tables
    /// [default: the same for every replay]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl Arguments {
    fn config(&self) -> Result<Config> {
        let secret = self.secret_file.as_deref().map_or(Ok(Secret::REPLAY), values::secret)?;
        let default = Config::default();
        Ok(Config {
            every: self.every,
            shards: self.shards.unwrap_or(default.shards),
            connections_max: self.connections,
            churn: self.churn,
            memory_size_max: self.memory,
            syn_timeout: self.syn_timeout,
            one_way: self.one_way,
            vlan_key: self.vlan_key,
            format: self.lists.format(),
            secret,
            ..default
        })
    }
}

/// Replays what the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Status {
    let config = arguments.lists.keep().and_then(|_| arguments.config());
    let prepared = config.and_then(|config| Ok((Plan::new(&config)?, config)));
    let (plan, config) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            report::error(&error, "");
            return Status::WrongUsage;
        }
    };
    let watched = arguments
        .lists
        .exporter(arguments.vlan_key, voice)
        .and_then(|exporter| Ok((exporter, Watch::new(voice, &arguments.files)?)));
    let (mut exporter, mut watch) = match watched {
        Ok(watched) => watched,
        Err(error) => {
            report::error(&error, "");
            return Status::Failed;
        }
    };
    let present = watch.present_input();
    let mut announces = voice > Voice::Quiet;
    let inputs = arguments.files.iter().enumerate().map(|(index, path)| {
        present.set(index);
        let input = Replay::open(path)?;
        // What a run takes is of interest once it is sure that there is one.
        if std::mem::take(&mut announces) {
            report::memory(&plan.memory(), &config);
        }
        Ok(input)
    });
    let summary = pipeline::run(&plan, &config, inputs, &mut exporter, &mut watch);
    watch.finish();
    match summary {
        Ok(summary) => {
            // Where nothing could be read the error has said so, and there is nothing to sum up.
            if voice > Voice::Quiet && summary.lists > 0 {
                report::summary(&summary, voice);
            }
            if watch.is_interrupted() {
                let listed = if summary.lists > 0 { "what was read before is listed" } else { "nothing was read" };
                report::warning(&format!("interrupted: {listed}"));
            }
            if summary.errors.is_empty() && !watch.is_interrupted() { Status::Done } else { Status::Failed }
        }
        Err(error) => {
            report::error(&error, &exporter.aftermath());
            Status::Failed
        }
    }
}
