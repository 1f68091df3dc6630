//! The options that say how connections are tracked, whatever they are captured from.

use crate::cli::lists::Lists;
use crate::cli::values;
use crate::error::Result;
use crate::hash::Secret;
use crate::pipeline::Config;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// How connections are tracked.
#[derive(Args)]
pub(super) struct Tracking {
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

    /// List connections of which only one side is captured
    #[arg(long)]
    one_way: bool,

    /// Tell connections on different VLANs apart, and list the tags
    #[arg(long)]
    pub(super) vlan_key: bool,

    /// A file with 32 hexadecimal digits, private to its owner, that place connections in the tables
    /// [default: for a replay always the same, live a new one at every start]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl Tracking {
    /// The configuration of a run with lists of this kind, one for every `every`.
    ///
    /// # Errors
    ///
    /// The secret can not be read, or none be made with `otherwise`.
    pub(super) fn config(
        &self,
        every: Option<Duration>,
        lists: &Lists,
        otherwise: impl FnOnce() -> Result<Secret>,
    ) -> Result<Config> {
        let secret = self.secret_file.as_deref().map_or_else(otherwise, values::secret)?;
        let default = Config::default();
        Ok(Config {
            every,
            shards: self.shards.unwrap_or(default.shards),
            connections_max: self.connections,
            churn: self.churn,
            memory_size_max: self.memory,
            syn_timeout: self.syn_timeout,
            one_way: self.one_way,
            vlan_key: self.vlan_key,
            format: lists.format(),
            secret,
            ..default
        })
    }
}
