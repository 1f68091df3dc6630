//! The options that let a run go on where it was killed.
//!
//! What enters: the options, and the plan of the run. What leaves: the [`Saving`] of the run, with what was saved
//! before. On the way it is told where the run goes on, and what was damaged.

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

/// The options that say where the state is kept, and how often it is saved.
#[derive(Args)]
pub(super) struct State {
    /// Save the state to this directory, and go on from what is there: after a crash, a kill or a stop the same command
    /// goes on where it was. A replay needs --every for it, live --secret-file
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// How often the state is saved, at the next end of an interval [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "state")]
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
                        used again: name a file with 32 hexadecimal digits";
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
                report::error(&Error::new(error.as_str()), " (as was said before)");
            }
        }
        if voice > Voice::Quiet {
            told(&saving);
        }
        Ok(Some(saving))
    }
}

/// Whether what was known at the end is saved, as far as that was asked for.
pub(super) fn is_saved(saving: Option<&SavingCounts>) -> bool {
    saving.is_none_or(|saving| !saving.has_failed)
}

/// Says so if it is not.
pub(super) fn tell(saving: Option<&SavingCounts>) {
    let Some(saving) = saving.filter(|saving| saving.has_failed) else { return };
    let what = format!("the state could not be saved {}, and the end of the run is not saved", times(saving.failed));
    let aftermath = match saving.saved {
        0 => "; none of this run is saved",
        _ => "; the one before it is there still",
    };
    report::error(&Error::new(what).because(saving.error.clone().unwrap_or_default()), aftermath);
}

/// Tells from which state the run goes on.
fn told(saving: &Saving) {
    match (saving.generation(), saving.position()) {
        (None, _) => {}
        (Some(number), None) => report::line(format_args!("going on from state {}", grouped(number))),
        (Some(number), Some(position)) => report::line(format_args!(
            "going on from state {}, behind packet {} of capture {}",
            grouped(number),
            grouped(position.packets),
            position.input + 1
        )),
    }
}
