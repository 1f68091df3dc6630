//! The options of the saved state, with which a run continues where it was killed, and messages about it.

use crate::cli::heading;
use crate::cli::report::{self, Voice, grouped, times};
use crate::cli::values;
use crate::engine::{Plan, Saving, SavingCounts};
use crate::error::{Error, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default of `--state-every`: the most that a replay has to do again after a crash, and few enough writes for a
/// flash disk.
const STATE_EVERY_DEFAULT: Duration = Duration::from_secs(60);

/// Where the state is kept, and how often it is saved.
#[derive(Args)]
#[command(next_help_heading = heading::FILES)]
pub(super) struct State {
    /// Save the state here, and continue from it
    ///
    /// After a crash, a kill or a stop the same command continues where it was. It is saved at ends of intervals, so a
    /// replay needs --every for it. A live capture needs --secret-file, since a secret that is drawn at every start
    /// could not read it.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// How often the state is saved
    ///
    /// It is saved at the next end of an interval [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "state", hide_short_help = true)]
    state_every: Option<Duration>,
}

impl State {
    /// The directory of the state, if it is to be saved.
    pub(super) fn directory(&self) -> Option<&PathBuf> {
        self.state.as_ref()
    }

    /// Checks the options before anything is done. `has_secret_file` says whether the secret is the same at the next
    /// start.
    ///
    /// # Errors
    ///
    /// The options do not go together.
    pub(super) fn check(&self, every: Option<Duration>, has_secret_file: bool) -> Result<()> {
        if self.state.is_none() {
            return Ok(());
        }
        if every.is_none() {
            let what = "--state needs ends of intervals at which it is saved: give their length, as in --every 10s";
            return Err(Error::new(what));
        }
        if !has_secret_file {
            let what = "--state needs --secret-file, because what was saved under a secret that is drawn at every start could not be \
                        used again: make one with flowpeel keygen FILE, and name it with --secret-file FILE";
            return Err(Error::new(what));
        }
        Ok(())
    }

    /// The saving of a replay of these captures, if it was asked for.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or the state in it does not fit.
    pub(super) fn of_replay(&self, plan: &Plan, inputs: &[PathBuf], voice: Voice) -> Result<Option<Saving>> {
        self.open(voice, |path, every| Saving::of_replay(path, every, plan, inputs))
    }

    /// The saving of a live capture, if it was asked for.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or the state in it does not fit.
    pub(super) fn of_live(&self, plan: &Plan, voice: Voice) -> Result<Option<Saving>> {
        self.open(voice, |path, every| Saving::of_live(path, every, plan))
    }

    fn open(&self, voice: Voice, open: impl FnOnce(&Path, Duration) -> Result<Saving>) -> Result<Option<Saving>> {
        let Some(path) = &self.state else { return Ok(None) };
        let saving = open(path, self.state_every.unwrap_or(STATE_EVERY_DEFAULT))?;
        for warning in saving.warnings().iter().filter(|_| voice > Voice::Quiet) {
            report::warning(&warning.to_string());
        }
        if let Some(position) = saving.position() {
            for error in &position.errors {
                report::error(&Error::new(error.as_str()), " (reported before)");
            }
        }
        if voice > Voice::Quiet {
            announce(&saving);
        }
        Ok(Some(saving))
    }
}

/// Whether the state was saved at the end, if it was to be.
pub(super) fn is_saved(saving: Option<&SavingCounts>) -> bool {
    saving.is_none_or(|saving| !saving.has_failed)
}

/// Prints an error if it was not.
pub(super) fn report_failure(saving: Option<&SavingCounts>) {
    let Some(saving) = saving.filter(|saving| saving.has_failed) else { return };
    let what = format!("the state could not be saved {}, and the end of the run is not saved", times(saving.failed));
    let aftermath = match saving.saved {
        0 => "; none of this run is saved",
        _ => "; the state before it is kept",
    };
    report::error(&Error::new(what).because(saving.error.clone().unwrap_or_default()), aftermath);
}

/// Prints from which state the run continues.
fn announce(saving: &Saving) {
    match (saving.generation(), saving.position()) {
        (None, _) => {}
        (Some(number), None) => report::line(format_args!("continuing from state {}", grouped(number))),
        (Some(number), Some(position)) => report::line(format_args!(
            "continuing from state {}, after packet {} of capture {}",
            grouped(number),
            grouped(position.packets),
            position.input + 1
        )),
    }
}
