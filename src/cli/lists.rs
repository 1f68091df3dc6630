//! The options that say where lists go and how they are written, and the outputs that they ask for.

use crate::archive::{Ages, Archive, ListFeed};
use crate::cli::heading;
use crate::cli::report::{self, Voice};
use crate::cli::showing::{PARQUET_ON_STDOUT, Showing, TABLE_IN_FILES};
use crate::cli::values::{self, KeepLimit};
use crate::engine::{Config, Snapshots};
use crate::error::{Error, Result};
use crate::event_log::EventLog;
use crate::export::{
    CHANGES_FULL_LISTS_MAX, Directory, Exporter, Format, Keep, Output, Resumable, Shape, SnapshotDirectory, Stream,
};
use crate::list::List;
use crate::sources::SOURCES_DEFAULT;
use crate::state::{Decoder, Encoder};
use crate::view::Feed;
use clap::Args;
use std::io::{IsTerminal, Stdout};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The default of `--changes`: one list in this many is in full. At a list every ten seconds that is once an hour,
/// which costs little beside the changes, and a reader has to go through an hour's changes at most.
const CHANGES_FULL_LISTS_DEFAULT: u64 = 360;

const _: () = assert!(CHANGES_FULL_LISTS_DEFAULT <= CHANGES_FULL_LISTS_MAX);

/// The options that say how lists are written and how much of them is kept.
#[derive(Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct Writing {
    /// Compress lists with zstd
    ///
    /// Each list is a frame of its own.
    #[arg(long, hide_short_help = true)]
    compress: bool,

    /// Remove old lists: by age (7d) or size (2GiB)
    ///
    /// Removes files that ended longer than this before the newest (7d), or the oldest while all together are larger
    /// than this (2GiB). May be given once for each. Snapshots are kept by the same limits.
    #[arg(long, value_name = "AGE|SIZE", value_parser = values::keep)]
    keep: Vec<KeepLimit>,

    /// Write what opened and closed since the list before
    ///
    /// All connections are then written in one list of N only [default N: 360].
    #[arg(long, value_name = "N", value_parser = values::number, num_args = 0..=1, require_equals = true,
        default_missing_value = CHANGES_FULL_LISTS_TEXT.as_str(), hide_short_help = true)]
    changes: Option<u64>,
}

impl Writing {
    /// How whole lists are to be written.
    pub(super) fn format(&self) -> Format {
        Format { compress: self.compress, changes: self.changes, ..Format::default() }
    }

    /// How many lists are to be kept.
    ///
    /// # Errors
    ///
    /// Two ages or two sizes are given.
    pub(super) fn keep(&self) -> Result<Keep> {
        keep_of(&self.keep, "--keep")
    }
}

/// The options that say how long an interval is, where lists and snapshots go, and how they are written.
#[derive(Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct Lists {
    /// Length of an interval
    ///
    /// There is a list for each. Lists end at multiples of it: of capture time in a replay, of the wall clock live.
    /// From 100ms to 366 days.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    every: Option<Duration>,

    /// Write lists to files in this directory
    ///
    /// A file for each list, named by the end of their interval, flows-20260101T000010Z.ndjson, and written whole or
    /// not at all. - stands for standard output.
    #[arg(long, value_name = "DIR", default_value = "-")]
    out: PathBuf,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    showing: Showing,

    /// Write who opened connections, beside each list
    ///
    /// Counts attempts, answers and refusals of every source address. Up to N sources in an interval are exact, and
    /// half as many of IPv6 [default N: 30k]. With --out they are written to files sources-*.ndjson.
    #[arg(long, value_name = "N", value_parser = values::count, num_args = 0..=1, require_equals = true,
        default_missing_value = SOURCES_TEXT.as_str(), hide_short_help = true)]
    sources: Option<u64>,

    /// Write snapshots here, for flowpeel snapshot
    ///
    /// A snapshot of every interval: a file of fixed size with every open connection, for another machine to list,
    /// merge or compare. A live capture needs --secret-file for it, which the readers of snapshots have too.
    #[arg(long, value_name = "DIR", help_heading = heading::SNAPSHOTS, hide_short_help = true)]
    snapshots: Option<PathBuf>,

    /// The name of this router in its snapshots
    #[arg(long, value_name = "NAME", requires = "snapshots", help_heading = heading::SNAPSHOTS, hide_short_help = true)]
    router: Option<String>,

    /// Keep no list, write snapshots only
    ///
    /// Idle and old connections then stay, because only a list knows them by name, and nothing can be archived.
    #[arg(long, requires = "snapshots", help_heading = heading::SNAPSHOTS, hide_short_help = true)]
    no_list: bool,
}

/// The default of `--changes` as it would be typed.
static CHANGES_FULL_LISTS_TEXT: LazyLock<String> = LazyLock::new(|| CHANGES_FULL_LISTS_DEFAULT.to_string());

/// The default of `--sources` as it would be typed.
pub(super) static SOURCES_TEXT: LazyLock<String> = LazyLock::new(|| SOURCES_DEFAULT.to_string());

impl Lists {
    fn is_stdout(&self) -> bool {
        self.out.as_os_str() == "-"
    }

    /// The directory that lists are written to, if they are.
    pub(super) fn directory(&self) -> Option<&PathBuf> {
        Some(&self.out).filter(|_| !self.is_stdout())
    }

    /// The directory that snapshots are written to, if they are.
    pub(super) fn snapshot_directory(&self) -> Option<&PathBuf> {
        self.snapshots.as_ref()
    }

    /// How lists are to be written.
    pub(super) fn format(&self) -> Format {
        let is_plain = !self.writing.compress && self.writing.changes.is_none();
        let shape = match self.is_stdout() && (is_plain || self.showing.names_format()) {
            true => self.showing.on_stdout(),
            false => self.showing.in_files(),
        };
        Format { shape, selection: self.showing.selection(), ..self.writing.format() }
    }

    /// Whether lists are written to standard output.
    pub(super) fn are_on_stdout(&self) -> bool {
        self.is_stdout() && !self.no_list
    }

    /// Whether lists are shown on a terminal, as a table or otherwise.
    pub(super) fn are_on_terminal(&self) -> bool {
        self.are_on_stdout() && std::io::stdout().is_terminal()
    }

    /// The length of an interval, if one was given.
    pub(super) fn every(&self) -> Option<Duration> {
        self.every
    }

    /// How many sources are to be listed exactly, if sources are counted.
    pub(super) fn sources(&self) -> Option<u64> {
        self.sources
    }

    /// How many lists are to be kept.
    ///
    /// # Errors
    ///
    /// A limit is given without a directory, or two ages or two sizes are.
    pub(super) fn keep(&self) -> Result<Keep> {
        if self.is_stdout() && self.snapshots.is_none() && !self.writing.keep.is_empty() {
            return Err(Error::new(
                "--keep removes files, and lists on standard output are none: name a directory with --out",
            ));
        }
        self.writing.keep()
    }

    /// Checks that nothing is asked of lists where none is kept.
    ///
    /// # Errors
    ///
    /// An option says how lists are written, and there are none.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_stdout() && matches!(self.showing.in_files(), Shape::Table(_)) {
            return Err(Error::new(TABLE_IN_FILES));
        }
        self.showing.in_files().check()?;
        if self.is_stdout() && self.showing.in_files() == Shape::Parquet {
            return Err(Error::new(PARQUET_ON_STDOUT));
        }
        let what = match (self.no_list, self.writing.changes, self.directory(), self.sources) {
            (true, Some(_), ..) => {
                "--changes writes what changed from list to list, and --no-list keeps none: leave one of them out"
            }
            (true, None, Some(_), None) => {
                "--no-list leaves nothing to write to --out: leave one of them out, or add --sources"
            }
            _ => return Ok(()),
        };
        Err(Error::new(what))
    }

    /// Whether a list is kept beside the snapshots.
    pub(super) fn keeps_list(&self) -> bool {
        !self.no_list
    }

    /// How snapshots are to be made, if they are. `otherwise` names the router where no option does.
    pub(super) fn snapshots(&self, otherwise: impl FnOnce() -> String, run: u64) -> Option<Snapshots> {
        self.snapshots.as_ref().map(|_| Snapshots {
            router: self.router.clone().unwrap_or_else(otherwise),
            run,
            replace_lists: self.no_list,
        })
    }

    /// The outputs of a run with this configuration.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or a directory cannot be used.
    pub(super) fn outputs(&self, config: &Config, voice: Voice) -> Result<Outputs<'static>> {
        let (format, keep) = (self.format(), self.keep()?);
        let snapshots = self.snapshots.as_ref();
        let snapshots = snapshots.map(|path| SnapshotDirectory::new(path, config.secret.clone(), keep)).transpose()?;
        let lists = if self.no_list && self.sources.is_none() {
            ListOutput::Nowhere
        } else if !self.is_stdout() {
            ListOutput::Directory(Box::new(Directory::new(&self.out, config.vlan_key, format, keep)?))
        } else if format.compress && std::io::stdout().is_terminal() {
            return Err(Error::new(
                "compressed lists are not for a terminal: name a directory with --out, or use a pipe",
            ));
        } else {
            ListOutput::Stdout(Box::new(Stream::new(std::io::stdout(), "standard output", config.vlan_key, format)))
        };
        Ok(Outputs {
            lists,
            keeps_list: !self.no_list,
            snapshots,
            archive: None,
            events: None,
            view: None,
            voice,
            written: 0,
        })
    }
}

/// The sum of the limits that were given with this option.
///
/// # Errors
///
/// Two ages or two sizes are given.
pub(super) fn keep_of(limits: &[KeepLimit], option: &str) -> Result<Keep> {
    let mut keep = Keep::default();
    for limit in limits {
        let is_second = match *limit {
            KeepLimit::Age(age) => keep.age.replace(age).is_some(),
            KeepLimit::Size(size) => keep.size.replace(size).is_some(),
        };
        if is_second {
            return Err(Error::new(format!("{option} takes one age and one size, no two of a kind")));
        }
    }
    Ok(keep)
}

/// Where lists go.
enum ListOutput {
    Directory(Box<Directory>),
    Stdout(Box<Stream<Stdout>>),
    Nowhere,
}

/// The outputs of a run: lists, snapshots, and what the archive and those who look need from lists. It counts what was
/// written, and prints warnings.
pub(super) struct Outputs<'a> {
    lists: ListOutput,
    /// Whether lists are written: without them there may be sources to write to their place.
    keeps_list: bool,
    snapshots: Option<SnapshotDirectory>,
    archive: Option<ListFeed<'a>>,
    events: Option<&'a EventLog>,
    view: Option<Feed>,
    voice: Voice,
    /// The lists written, or the snapshots where there are no lists.
    written: u64,
}

impl Exporter for Outputs<'_> {
    fn write(&mut self, output: Output) -> Result<()> {
        match (&mut self.lists, output) {
            (ListOutput::Directory(lists), output) => lists.write(output)?,
            (ListOutput::Stdout(lists), output) => lists.write(output)?,
            (ListOutput::Nowhere, _) => {}
        }
        let counts = match output {
            Output::List(_) => self.keeps_list,
            Output::Snapshot(_) => !self.keeps_list,
            Output::Sources(_) => false,
        };
        if let (Output::Snapshot(snapshot), Some(snapshots)) = (output, &mut self.snapshots) {
            snapshots.write(snapshot)?;
        }
        self.written += u64::from(counts);
        self.show_warnings();
        match output {
            Output::List(list) => self.pass_on(list)?,
            Output::Snapshot(snapshot) if !self.keeps_list => self.pass(snapshot.header.end_ns()),
            Output::Sources(report) if !self.keeps_list && self.snapshots.is_none() => self.pass(report.period.end_ns),
            Output::Snapshot(_) | Output::Sources(_) => {}
        }
        Ok(())
    }

    fn resumable(&mut self) -> Option<&mut dyn Resumable> {
        Some(self)
    }
}

impl Resumable for Outputs<'_> {
    fn save(&self, encoder: &mut Encoder) {
        match &self.lists {
            ListOutput::Directory(lists) => lists.save(encoder),
            ListOutput::Stdout(lists) => lists.save(encoder),
            ListOutput::Nowhere => {}
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.save(encoder);
        }
    }

    fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        match &mut self.lists {
            ListOutput::Directory(lists) => lists.restore(decoder)?,
            ListOutput::Stdout(lists) => lists.restore(decoder)?,
            ListOutput::Nowhere => {}
        }
        self.snapshots.as_mut().map_or(Ok(()), |snapshots| snapshots.restore(decoder))
    }

    fn build_anew(&mut self) {
        match &mut self.lists {
            ListOutput::Directory(lists) => lists.build_anew(),
            ListOutput::Stdout(lists) => lists.build_anew(),
            ListOutput::Nowhere => {}
        }
    }
}

impl<'a> Outputs<'a> {
    /// Feeds this archive from the lists.
    pub(super) fn feed(&mut self, archive: &'a Archive) {
        self.archive = Some(ListFeed::new(archive));
    }

    /// Feeds this log of events from the lists.
    pub(super) fn feed_events(&mut self, events: &'a EventLog) {
        self.events = Some(events);
    }

    /// Shows the lists on the board that this feeds.
    pub(super) fn show(&mut self, feed: Feed) {
        self.view = Some(feed);
    }

    /// Passes a list to all that need something of it.
    fn pass_on(&mut self, list: &List) -> Result<()> {
        if self.archive.is_some() || self.events.is_some() {
            let ages = Arc::new(Ages::of(list));
            if let Some(archive) = &mut self.archive {
                archive.list(list, Arc::clone(&ages))?;
            }
            if let Some(events) = self.events {
                events.list(list, ages);
            }
        }
        if let Some(view) = &mut self.view {
            view.list(list);
        }
        Ok(())
    }

    /// Says that an interval without a list has ended at this time, in ns since 1970.
    fn pass(&self, end_ns: i64) {
        self.events.iter().for_each(|events| events.pass(end_ns));
    }

    fn show_warnings(&mut self) {
        let lists = match &mut self.lists {
            ListOutput::Directory(lists) => lists.warning(),
            ListOutput::Stdout(_) | ListOutput::Nowhere => None,
        };
        let snapshots = self.snapshots.as_mut().and_then(SnapshotDirectory::warning);
        for warning in lists.into_iter().chain(snapshots).filter(|_| self.voice > Voice::Quiet) {
            report::warning(&warning.to_string());
        }
    }

    /// What is left when a list could not be written, or a snapshot where there are no lists.
    pub(super) fn aftermath(&self) -> String {
        let what = if self.keeps_list { "list" } else { "snapshot" };
        match self.written {
            0 => format!("; no {what} was written whole"),
            1 => format!("; the {what} before it is whole"),
            written => format!("; the {} {what}s before it are whole", report::grouped(written)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_states_the_defaults_of_options_without_a_number() {
        let command = Lists::augment_args(clap::Command::new("lists"));
        for (option, default) in [("changes", CHANGES_FULL_LISTS_DEFAULT), ("sources", SOURCES_DEFAULT)] {
            let argument = command.get_arguments().find(|argument| argument.get_long() == Some(option)).unwrap();
            let help = argument.get_long_help().unwrap().to_string();
            let (_, stated) = help.split_once("[default N: ").unwrap();
            assert_eq!(values::count(stated.split(']').next().unwrap()), Ok(default), "{option}");
        }
    }
}
