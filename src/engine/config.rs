//! The configuration of an engine.

use crate::engine::SHARDS_MAX;
use crate::engine::plan::{
    AGE_MAX_LIVE_S, CONNECTIONS_DEFAULT, IDLE_TIMEOUT_LIVE_S, MEMORY_SIZE_DEFAULT, PICKUP_LIVE, SYN_TIMEOUT_DEFAULT_S,
};
#[cfg(doc)]
use crate::engine::{CONNECTIONS_MIN, HALF_OPEN_MIN, Memory, Plan};
use crate::error::{Error, Result};
use crate::export::Format;
use crate::signal::FINGERPRINT_BITS;
use flowpeel_iblt::hash::{SECRET_SIZE, Secret};
use std::time::Duration;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of an interval, from 100 ms to 366 days. `None` makes a single list at the end.
    pub every: Option<Duration>,
    /// The threads that track connections, from 1 to [`SHARDS_MAX`]. Lists do not depend on it.
    pub shards: usize,
    /// The connections that can be open at once, from [`CONNECTIONS_MIN`] to
    /// [`CONNECTIONS_MAX`](crate::track::CONNECTIONS_MAX).
    pub connections_max: u64,
    /// The half-open connections of IPv4 that are kept (half as many of IPv6). `None` keeps half as many as
    /// connections, from [`HALF_OPEN_MIN`] to [`HALF_OPEN_MAX`](crate::track::HALF_OPEN_MAX), and fewer where the
    /// memory does not suffice.
    pub half_open_max: Option<u64>,
    /// The openings and closings of an interval that tables are made for. More are handed over in parts. `None` makes
    /// them for a fifth of the connections, at least 20,000, and for fewer where the memory does not suffice.
    pub churn: Option<u64>,
    /// The memory that may be taken, in bytes; see [`Memory`] for what is counted.
    pub memory_size_max: u64,
    /// How long a half-open connection is kept: from 100 ms to ten minutes, in steps of 100 ms.
    pub syn_timeout: Duration,
    /// Whether connections of which only one side is seen are listed.
    pub one_way: bool,
    /// The sampling interval of packets that carry no flag and that no handshake waits for: one in this many is looked
    /// at, to find connections that are older than the start. 0 turns this off.
    pub pickup: u32,
    /// Whether live ports inspect every packet at the start, until two intervals have found nothing older than it, and
    /// headers say from when on they know. Where `pickup` is 0 only headers do.
    pub warms_up: bool,
    /// After how long a connection of which nothing is seen is taken off the list. `None` turns this off.
    pub idle_timeout: Option<Duration>,
    /// Whether the capture threads watch for the next packet of a connection that fell silent, as is right for live
    /// capture. Otherwise, with an idle timeout, every packet is looked at, so that lists do not depend on the pace of
    /// threads.
    pub watches: bool,
    /// The age at which a connection is taken off the list. `None` turns this off.
    pub max_age: Option<Duration>,
    /// Whether a SYN-ACK is enough to open a connection, because packets without a flag are not captured. Then nothing
    /// is picked up, and nothing is idle.
    pub answer_opens: bool,
    /// Whether VLAN tags are part of a connection's key.
    pub vlan_key: bool,
    /// How the exporter writes lists; its buffers are part of the memory.
    pub format: Format,
    /// How snapshots are made that the exporter gets at the end of every interval. `None` turns this off.
    pub snapshots: Option<Snapshots>,
    /// The sources of connection attempts that are listed exactly in an interval. `None` turns counting off.
    pub sources_max: Option<u64>,
    /// The translated connections whose names are known, at most; part of the memory. `None` where nobody knows them.
    pub translations_max: Option<usize>,
    /// The memory that an archive takes, in bytes; see [`Plan::recording`].
    pub archive_size: u64,
    /// The memory that a log of events takes, in bytes; see [`Plan::recording`].
    pub event_log_size: u64,
    /// Whether lists are shown on a [`Board`](crate::view::Board); its copy of their rows is part of the memory.
    pub has_view: bool,
    /// The secret under which tables are filled.
    pub secret: Secret,
    /// Whether the state is saved; its copies are part of the memory.
    pub saves_state: bool,
    /// The width of the filter's fingerprints in bits: the full 30, or fewer to study collisions.
    pub fingerprint_bits: u32,
    /// How errors name what is wrong; by default the [field](Setting::field).
    pub names: fn(Setting) -> &'static str,
}

/// What an error about a configuration may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// [`Config::every`].
    Every,
    /// [`Config::shards`].
    Shards,
    /// [`Config::connections_max`].
    Connections,
    /// [`Config::half_open_max`].
    HalfOpen,
    /// [`Config::churn`].
    Churn,
    /// [`Config::memory_size_max`].
    Memory,
    /// [`Config::syn_timeout`].
    SynTimeout,
    /// [`Config::pickup`].
    Pickup,
    /// [`Config::idle_timeout`].
    IdleTimeout,
    /// [`Config::max_age`].
    MaxAge,
    /// [`Config::sources_max`].
    Sources,
    /// [`Config::archive_size`].
    Archive,
    /// [`LiveInput::rings_size`](crate::engine::LiveInput::rings_size).
    Rings,
}

impl Setting {
    /// The name of the field.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Setting::Every => "every",
            Setting::Shards => "shards",
            Setting::Connections => "connections_max",
            Setting::HalfOpen => "half_open_max",
            Setting::Churn => "churn",
            Setting::Memory => "memory_size_max",
            Setting::SynTimeout => "syn_timeout",
            Setting::Pickup => "pickup",
            Setting::IdleTimeout => "idle_timeout",
            Setting::MaxAge => "max_age",
            Setting::Sources => "sources_max",
            Setting::Archive => "archive_size",
            Setting::Rings => "rings_size",
        }
    }
}

/// How snapshots are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// The router's name in them; may be empty.
    pub router: String,
    /// The number of this run of the router, different for each. Equal replays have equal numbers.
    pub run: u64,
    /// Whether there is no list beside the snapshots. Then nothing is taken off for being idle or old, because only a
    /// list knows the keys.
    pub replace_lists: bool,
}

impl Config {
    /// The configuration of an engine on live traffic, with a list at every multiple of `every` and a secret of its
    /// own: what [`Self::live_defaults`] says.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn live(every: Duration) -> Result<Self> {
        let mut bytes = [0; SECRET_SIZE];
        getrandom::fill(&mut bytes).map_err(|error| Error::new("the system gives no random numbers").because(error))?;
        Ok(Config { every: Some(every), secret: Secret::new(bytes), ..Config::live_defaults() })
    }

    /// What suits live traffic: connections are older than the start, and some time out without FIN or RST. A replay
    /// takes a capture at its word, as [`Config::default`] does: what began before it is not known, and what has not
    /// ended is open.
    #[must_use]
    pub fn live_defaults() -> Self {
        Config {
            pickup: PICKUP_LIVE,
            warms_up: true,
            idle_timeout: Some(Duration::from_secs(IDLE_TIMEOUT_LIVE_S)),
            max_age: Some(Duration::from_secs(AGE_MAX_LIVE_S)),
            watches: true,
            ..Config::default()
        }
    }

    /// Whether a list is kept: always, but where snapshots replace it.
    #[must_use]
    pub fn keeps_list(&self) -> bool {
        self.snapshots.as_ref().is_none_or(|snapshots| !snapshots.replace_lists)
    }
}

impl Default for Config {
    fn default() -> Self {
        // The capture needs a core of its own; more shards than cores would only wait for each other.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            every: None,
            shards: cores.saturating_sub(1).clamp(1, SHARDS_MAX),
            connections_max: CONNECTIONS_DEFAULT,
            half_open_max: None,
            churn: None,
            memory_size_max: MEMORY_SIZE_DEFAULT,
            syn_timeout: Duration::from_secs(SYN_TIMEOUT_DEFAULT_S),
            one_way: false,
            pickup: 0,
            warms_up: false,
            idle_timeout: None,
            watches: false,
            max_age: None,
            answer_opens: false,
            vlan_key: false,
            format: Format::default(),
            snapshots: None,
            sources_max: None,
            translations_max: None,
            archive_size: 0,
            event_log_size: 0,
            has_view: false,
            secret: Secret::REPLAY,
            saves_state: false,
            fingerprint_bits: FINGERPRINT_BITS,
            names: Setting::field,
        }
    }
}
