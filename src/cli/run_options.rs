//! The options that a replay and a live capture have in common, and the configuration that they ask for.

use crate::cli::archive::ArchiveOptions;
use crate::cli::directories;
use crate::cli::events::EventOptions;
use crate::cli::lists::Lists;
use crate::cli::state::State;
use crate::cli::tracking::Tracking;
use crate::engine::Config;
use crate::error::{Error, Result};
use clap::{Arg, Args};
use flowpeel_iblt::hash::Secret;
use std::time::Duration;

/// The options of a run.
#[derive(Args)]
pub(super) struct RunOptions {
    #[command(flatten)]
    pub(super) lists: Lists,

    #[command(flatten)]
    pub(super) events: EventOptions,

    #[command(flatten)]
    tracking: Tracking,

    #[command(flatten)]
    pub(super) state: State,

    #[command(flatten)]
    pub(super) archive: ArchiveOptions,
}

/// What a run has where no option says otherwise.
pub(super) struct Defaults {
    pub(super) config: Config,
    pub(super) every: Option<Duration>,
    /// The number of this run in snapshots.
    pub(super) run: u64,
    /// Names the router in snapshots.
    pub(super) router: fn() -> String,
    /// Makes the secret.
    pub(super) secret: fn() -> Result<Secret>,
    /// Whether the run is live: its secret is then another one at every start.
    pub(super) is_live: bool,
}

impl RunOptions {
    /// Whether connections on different VLANs are distinguished.
    pub(super) fn has_vlan_key(&self) -> bool {
        self.tracking.vlan_key
    }

    /// Makes sure that each option names a directory of its own.
    fn check_directories(&self) -> Result<()> {
        let named = [
            ("--state", self.state.directory()),
            ("--out", self.lists.directory()),
            ("--snapshots", self.lists.snapshot_directory()),
            ("--archive", self.archive.directory()),
        ];
        let events = self.events.directories().map(|directory| ("--events", Some(directory)));
        directories::check(&named.into_iter().chain(events).collect::<Vec<_>>())
    }

    /// The configuration of the run. All that can be checked before anything is done is checked on the way.
    ///
    /// # Errors
    ///
    /// The options contradict each other, one is out of its range, or the secret cannot be read or made.
    pub(super) fn config(&self, defaults: Defaults) -> Result<Config> {
        let Defaults { config, every, run, router, secret, is_live } = defaults;
        let every = self.lists.every().or(every);
        let keeps_secret = self.tracking.has_secret() || !is_live;
        self.lists.check()?;
        self.lists.keep()?;
        self.state.check(every, keeps_secret)?;
        self.check_directories()?;
        self.archive.check(&self.lists)?;
        self.events.check(&self.lists)?;
        if self.lists.snapshot_directory().is_some() && !keeps_secret {
            return Err(Error::new(
                "nobody could read snapshots under a secret that is drawn at every start: make one with flowpeel keygen \
                 FILE, and name it with --secret-file FILE",
            ));
        }
        let config = self.tracking.config(config, every, self.lists.keeps_list(), secret)?;
        let saves_state = self.state.directory().is_some();
        Ok(Config {
            format: self.lists.format(),
            sources_max: self.lists.sources(),
            snapshots: self.lists.snapshots(router, run),
            saves_state,
            archive_size: self.archive.memory_size(is_live && saves_state)?,
            event_log_size: self.events.memory_size(is_live, saves_state),
            ..config
        })
    }
}

/// An option whose default depends on the command, with this default in its help.
pub(super) fn with_default(option: Arg, default: &str) -> Arg {
    let text = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string).unwrap_or_default();
    let (short, long) = (text(option.get_help()), text(option.get_long_help().or(option.get_help())));
    option.help(format!("{short} [default: {default}]")).long_help(format!("{long}\n\n[default: {default}]"))
}
