//! The options of a run that archives connections, and messages about it.

use crate::archive::{Archive, ArchiveConfig, Recovery, Summary};
use crate::cli::heading;
use crate::cli::lists::{self, Lists};
use crate::cli::report::{self, Voice};
use crate::cli::values::{self, KeepLimit};
use crate::engine::Saving;
use crate::error::{Error, Result};
use crate::queue::WhenFull;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Whether and how connections are archived.
#[derive(Args)]
#[command(next_help_heading = heading::FILES)]
pub(in crate::cli) struct ArchiveOptions {
    /// Record every connection here, for flowpeel find
    ///
    /// A record is written when a connection ends, and at the end of the run for those still open.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,

    /// Remove old segments of the archive: beyond an age or a size
    ///
    /// Removes segments whose connections ended longer than this before the newest (30d), or the oldest while all files
    /// of the archive together are larger than this (20GiB). May be given once for each.
    #[arg(long, value_name = "AGE|SIZE", value_parser = values::keep, requires = "archive", hide_short_help = true)]
    archive_keep: Vec<KeepLimit>,

    /// Seal a segment of the archive at this size
    ///
    /// From 16KiB to 64MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = values::any_size, requires = "archive",
        hide_short_help = true)]
    segment_size: u64,

    /// Seal a segment when its connections ended this long after the first
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = values::duration, requires = "archive",
        hide_short_help = true)]
    segment_age: Duration,
}

impl ArchiveOptions {
    /// The directory of the archive, if there is to be one.
    pub(in crate::cli) fn directory(&self) -> Option<&PathBuf> {
        self.archive.as_ref()
    }

    fn config(&self) -> Result<ArchiveConfig> {
        let keep = lists::keep_of(&self.archive_keep, "--archive-keep")?;
        let config = ArchiveConfig { segment_size: self.segment_size, segment_age: self.segment_age, keep };
        config.check()?;
        Ok(config)
    }

    /// Checks the options before anything is done.
    ///
    /// # Errors
    ///
    /// An archive without a list: the archive learns from lists what is open and how old it is, and reports to
    /// the run that its disk has failed.
    pub(in crate::cli) fn check(&self, lists: &Lists) -> Result<()> {
        if self.archive.is_some() && !lists.keeps_list() {
            let what = "--archive learns from the lists what is open and since when, and --no-list keeps none: leave one of them out";
            return Err(Error::new(what));
        }
        Ok(())
    }

    /// The memory that the archive takes, in bytes. Its options are checked on the way.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or one is out of its range.
    pub(in crate::cli) fn memory_size(&self, saves_live: bool) -> Result<u64> {
        let config = self.config()?;
        Ok(if self.archive.is_some() { Archive::memory_size(&config, saves_live) } else { 0 })
    }

    /// Opens the archive, if there is to be one, and reports what had to be repaired. If the run saves its state, every
    /// state holds the archive's part from now on.
    ///
    /// # Errors
    ///
    /// The archive cannot be opened, or is not the one that belongs to the state.
    pub(in crate::cli) fn start(
        &self,
        when_full: WhenFull,
        saving: Option<&mut Saving>,
        voice: Voice,
    ) -> Result<Option<Archive>> {
        let Some(directory) = &self.archive else { return Ok(None) };
        let run = saving.as_ref().map(|saving| saving.run_of_archive()).transpose()?;
        let (archive, recovery) = Archive::start_for(directory, self.config()?, when_full, run.as_ref())?;
        if let Some(saving) = saving {
            saving.set_archive(archive.save_handle());
        }
        if voice > Voice::Quiet {
            report_recovery(&recovery);
        }
        Ok(Some(archive))
    }
}

/// Prints what an earlier process left unfinished.
fn report_recovery(recovery: &Recovery) {
    if let Some(last) = recovery.logs.last() {
        let what = format!(
            "the run that wrote this archive was cut short: {} connections of its last segment are kept, {} bytes after \
             them are incomplete and lost, and so is what it had not written yet",
            report::grouped(recovery.logs.iter().map(|log| log.entry_count).sum()),
            report::grouped(recovery.logs.iter().map(|log| log.lost_size).sum())
        );
        report::warning(&Error::new(what).in_file(&last.path).to_string());
    }
    let damages = recovery.logs.iter().filter_map(|log| log.damage.as_ref());
    for damage in damages.chain(&recovery.damage).chain(&recovery.missing) {
        report::warning(&damage.to_string());
    }
    if recovery.unremembered > 0 {
        report::warning(&format!(
            "more connections were archived after the saved state than can be remembered: up to {} of them may be \
             archived twice; save the state more often (--state-every)",
            report::grouped(recovery.unremembered)
        ));
    }
    if recovery.carried_over > 0 {
        report::line(format_args!(
            "{} connections were open when the run before last wrote: they are archived as open",
            report::grouped(recovery.carried_over)
        ));
    }
}

/// Prints what an archive that has ended holds, or why it failed.
pub(in crate::cli) fn report_end(finished: Result<Summary>, voice: Voice) {
    match finished {
        Ok(summary) if voice > Voice::Quiet => summarize(&summary),
        Ok(_) => {}
        Err(error) => report::error(&error, "; what was written before is kept"),
    }
}

fn summarize(summary: &Summary) {
    let written = &summary.written;
    report::line(format_args!(
        "archived {} connections in {} segments, {} bytes; {} indexes made, {} segments expired",
        report::grouped(written.entries),
        report::grouped(written.segments),
        report::grouped(written.size),
        report::grouped(summary.indexes),
        report::grouped(written.expired)
    ));
    for warning in &summary.warnings {
        report::warning(&format!("{warning}; find uses the filters of these segments instead"));
    }
}
