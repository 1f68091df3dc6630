//! The options that say how connections are tracked, in a replay and live.

use crate::cli::lists::Lists;
use crate::cli::values::{self, Limit};
use crate::engine::{Config, Setting};
use crate::error::{Error, Result};
use crate::hash::Secret;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The options that say how connections are tracked.
#[derive(Args)]
pub(super) struct Tracking {
    /// Threads that track connections, 1 to 8; lists do not depend on it [default: the cores but one]
    #[arg(long, value_name = "N", value_parser = values::shards)]
    shards: Option<usize>,

    /// Connections that can be open at once
    #[arg(long, value_name = "N", default_value = "500k", value_parser = values::count)]
    connections: u64,

    /// Half-open connections that are kept; a flood recycles the oldest [default: half of --connections, 16384 to
    /// 262144]
    #[arg(long, value_name = "N", value_parser = values::count)]
    half_open: Option<u64>,

    /// Openings and closings in an interval that tables are made for [default: a fifth of --connections]
    #[arg(long, value_name = "N", value_parser = values::count)]
    churn: Option<u64>,

    /// Memory that may be taken; what does not fit is refused at the start
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = values::size)]
    memory: u64,

    /// How long a half-open connection is kept
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    syn_timeout: Duration,

    /// List connections of which only one side is captured
    #[arg(long)]
    one_way: bool,

    /// Look at one in N of the packets in the midst of connections, to find those that are older than the start; 0: at
    /// none [default: 0; live: 16]
    #[arg(long, value_name = "N", value_parser = values::pickup)]
    pickup: Option<u32>,

    /// Take a connection off the list when no packet of it was seen for so long; 0: never. It is done at the ends of
    /// intervals, so it needs --every; a replay then looks at every packet [default: 0; live: 4h]
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    idle_timeout: Option<Limit>,

    /// Take a connection off the list when it is so old, whatever is seen of it; 0: never. It needs --every too
    /// [default: 0; live: 5d]
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    max_age: Option<Limit>,

    /// Tell connections on different VLANs apart, and list the tags
    #[arg(long)]
    pub(super) vlan_key: bool,

    /// A file with 32 hexadecimal digits, private to its owner, that place connections in the tables
    /// [default: for a replay always the same, live a new one at every start]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl Tracking {
    /// Whether the secret comes from a file, so that others can have it too.
    pub(super) fn has_secret(&self) -> bool {
        self.secret_file.is_some()
    }

    /// The configuration of a run with lists of this kind, one in each interval of length `every`. `default`
    /// says what no option does, and `otherwise` makes the secret where no file is named.
    ///
    /// # Errors
    ///
    /// The secret cannot be read or made, sources have no directory to be written to, or connections are to be taken
    /// off the list at the ends of intervals and there are none.
    pub(super) fn config(
        &self,
        default: Config,
        every: Option<Duration>,
        lists: &Lists,
        otherwise: impl FnOnce() -> Result<Secret>,
    ) -> Result<Config> {
        let has_limit = [self.idle_timeout, self.max_age].iter().flatten().any(|limit| limit.0.is_some());
        if every.is_none() && has_limit {
            let what = "--idle-timeout and --max-age need ends of intervals, at which connections are taken off: give their length, \
                        as in --every 10s";
            return Err(Error::new(what));
        }
        let secret = self.secret_file.as_deref().map_or_else(otherwise, values::secret)?;
        Ok(Config {
            every,
            shards: self.shards.unwrap_or(default.shards),
            connections_max: self.connections,
            half_open_max: self.half_open,
            churn: self.churn,
            memory_size_max: self.memory,
            syn_timeout: self.syn_timeout,
            one_way: self.one_way,
            pickup: self.pickup.unwrap_or(default.pickup),
            idle_timeout: self.idle_timeout.map_or(default.idle_timeout, |limit| limit.0),
            max_age: self.max_age.map_or(default.max_age, |limit| limit.0),
            vlan_key: self.vlan_key,
            format: lists.format(),
            sources_max: lists.sources()?,
            secret,
            names: option_of,
            ..default
        })
    }
}

/// The option that stands for a setting.
pub(super) fn option_of(setting: Setting) -> &'static str {
    match setting {
        Setting::Every => "--every",
        Setting::Shards => "--shards",
        Setting::Connections => "--connections",
        Setting::HalfOpen => "--half-open",
        Setting::Churn => "--churn",
        Setting::Memory => "--memory",
        Setting::SynTimeout => "--syn-timeout",
        Setting::Pickup => "--pickup",
        Setting::IdleTimeout => "--idle-timeout",
        Setting::MaxAge => "--max-age",
        Setting::Sources => "--sources",
        Setting::Archive => "--segment-size",
        Setting::Rings => "--ring-size",
    }
}
