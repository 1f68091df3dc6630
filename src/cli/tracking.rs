//! The options that say how connections are tracked, in a replay and live.

use crate::cli::heading;
use crate::cli::values::{self, Limit};
use crate::disk::read_secret;
use crate::engine::{Config, Setting};
use crate::error::{Error, Result};
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;
use std::time::Duration;

/// The options that say how much memory is taken, and how connections are tracked.
#[derive(Args)]
#[command(next_help_heading = heading::TRACKING)]
pub(super) struct Tracking {
    /// Connections open at once, at most
    ///
    /// From 1000 to 100M. What is open beyond that is counted, and makes lists incomplete.
    #[arg(long, value_name = "N", default_value = "500k", value_parser = values::count, help_heading = heading::SIZE)]
    connections: u64,

    /// The most memory to take
    ///
    /// All of it is allocated or reserved at the start, and announced. What does not fit is refused then.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = values::size, help_heading = heading::SIZE)]
    memory: u64,

    /// Openings and closings in an interval that tables are made for
    ///
    /// More are handed over to the list in parts [default: a fifth of --connections, at least 20k, and what --memory
    /// allows].
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = heading::SIZE, hide_short_help = true)]
    churn: Option<u64>,

    /// Half-open connections that are kept
    ///
    /// From 16384 to 262144, and half as many of IPv6: a flood recycles the oldest [default: half of --connections,
    /// and what --memory allows].
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = heading::SIZE, hide_short_help = true)]
    half_open: Option<u64>,

    /// Threads that track connections
    ///
    /// From 1 to 8. Lists are the same bytes with any number [default: the cores but one].
    #[arg(long, value_name = "N", value_parser = values::shards, help_heading = heading::SIZE, hide_short_help = true)]
    shards: Option<usize>,

    /// Inspect one in N mid-stream packets
    ///
    /// This finds connections older than the capture, which are listed once both of their sides were seen. 1 inspects
    /// every packet, 0 none. Live, every packet is inspected until two intervals in a row have found none; until then
    /// headers say `warming_up`, and no list is complete.
    #[arg(long, value_name = "N", value_parser = values::pickup, hide_short_help = true)]
    pickup: Option<u32>,

    /// Drop connections silent this long
    ///
    /// 0 never does. Connections that time out without FIN or RST are taken off the list this way, at the ends of
    /// intervals. A replay needs --every for it, and then inspects every packet.
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    idle_timeout: Option<Limit>,

    /// Drop connections this old
    ///
    /// 0 never does. They are taken off the list however many packets of them are seen, at the ends of intervals. A
    /// replay needs --every for it.
    #[arg(long, value_name = "TIME", value_parser = values::limit, hide_short_help = true)]
    max_age: Option<Limit>,

    /// How long a half-open connection is kept
    ///
    /// From 100ms to 600s. With --one-way one is kept until --idle-timeout, 12 hours at most, of which only a SYN-ACK
    /// was seen that was not repeated, or once: the client has answered it.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration, hide_short_help = true)]
    syn_timeout: Duration,

    /// List connections of which only one side is captured
    #[arg(long, hide_short_help = true)]
    one_way: bool,

    /// Distinguish connections on different VLANs, and list the tags
    #[arg(long, hide_short_help = true)]
    pub(super) vlan_key: bool,

    /// The secret that places connections in tables
    ///
    /// A file with 32 hexadecimal digits, private to its owner; flowpeel keygen makes one. Readers of snapshots need
    /// the same [default: a replay has a fixed one, live a new one at every start].
    #[arg(long, value_name = "FILE", help_heading = heading::FILES, hide_short_help = true)]
    secret_file: Option<PathBuf>,
}

impl Tracking {
    /// Whether the secret comes from a file, so that others can have it too.
    pub(super) fn has_secret(&self) -> bool {
        self.secret_file.is_some()
    }

    /// The configuration of a run with a list, if it keeps any, in each interval of length `every`. `default` says what
    /// no option does, and `otherwise` makes the secret where no file is named.
    ///
    /// # Errors
    ///
    /// The secret cannot be read or made, or connections are to be taken off the list at the ends of intervals and
    /// there are none, or no list.
    pub(super) fn config(
        &self,
        default: Config,
        every: Option<Duration>,
        keeps_list: bool,
        otherwise: impl FnOnce() -> Result<Secret>,
    ) -> Result<Config> {
        let has_limit = [self.idle_timeout, self.max_age].iter().flatten().any(|limit| limit.0.is_some());
        if every.is_none() && has_limit {
            let what = "--idle-timeout and --max-age take connections off the list at the ends of intervals: give their \
                        length, as in --every 10s";
            return Err(Error::new(what));
        }
        if !keeps_list && has_limit {
            let what = "--idle-timeout and --max-age take connections off the list, and --no-list keeps none: leave one \
                        of them out";
            return Err(Error::new(what));
        }
        let secret = self.secret_file.as_deref().map_or_else(otherwise, read_secret)?;
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
