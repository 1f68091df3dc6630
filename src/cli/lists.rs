//! Where lists go and how they are written: the options that every command with lists has, and the exporter they ask for.

use crate::cli::report::{self, Voice};
use crate::cli::values::{self, KeepLimit};
use crate::error::{Error, Result};
use crate::export::{Directory, Exporter, Format, Keep, SnapshotDirectory, Stream};
use crate::flow_list::List;
use crate::pipeline::{Config, Snapshots};
use crate::snapshot::file::SnapshotFile;
use crate::sources::Report;
use crate::state::{Decoder, Encoder};
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;

/// How lists are written and how much of them is kept.
#[derive(Args)]
pub(super) struct Writing {
    /// Compress lists with zstd, each as a frame of its own
    #[arg(long)]
    compress: bool,

    /// Remove lists from the directory that ended longer than this before the newest (7d), or the oldest while all
    /// together are larger than this (2GiB); may be given once for each
    #[arg(long, value_name = "AGE|SIZE", value_parser = values::keep)]
    keep: Vec<KeepLimit>,

    /// Write what opened and closed since the list before, and all connections only every N lists [default N: 360]
    #[arg(long, value_name = "N", value_parser = values::number, num_args = 0..=1, require_equals = true,
        default_missing_value = CHANGES_FULL_LISTS_TEXT)]
    changes: Option<u64>,
}

impl Writing {
    /// How lists are to be written.
    pub(super) fn format(&self) -> Format {
        Format { compress: self.compress, changes: self.changes }
    }

    /// How much of them is to be kept.
    ///
    /// # Errors
    ///
    /// There are two ages or two sizes.
    pub(super) fn keep(&self) -> Result<Keep> {
        keep_of(&self.keep, "--keep")
    }
}

/// Where lists go, and how.
#[derive(Args)]
pub(super) struct Lists {
    /// Write each list to a file in this directory; - for standard output
    #[arg(long, value_name = "DIR", default_value = "-")]
    out: PathBuf,

    #[command(flatten)]
    writing: Writing,

    /// Write a snapshot of every interval to a file in this directory: all connections in a fixed size, for another machine to
    /// list. Live it needs --secret-file
    #[arg(long, value_name = "DIR")]
    snapshots: Option<PathBuf>,

    /// The name of this router in its snapshots [default: none; live: the name of the host]
    #[arg(long, value_name = "NAME", requires = "snapshots")]
    router: Option<String>,

    /// Keep no list, write snapshots only. Nothing is taken off for being idle or old then, and nothing can be archived
    #[arg(long, requires = "snapshots", conflicts_with_all = ["out", "compress", "changes", "idle_timeout", "max_age"])]
    no_list: bool,

    /// Write who opened connections beside each list; so many sources are exact in an interval, and half as many of IPv6 [default N: 30k]
    #[arg(long, value_name = "N", value_parser = values::count, num_args = 0..=1, require_equals = true,
        default_missing_value = SOURCES_TEXT)]
    sources: Option<u64>,
}

/// The default as it would be typed.
const CHANGES_FULL_LISTS_TEXT: &str = "360";

/// The default number of sources as it would be typed.
pub(super) const SOURCES_TEXT: &str = "30k";

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
        self.writing.format()
    }

    /// How many sources are to be listed exactly, if any are counted.
    ///
    /// # Errors
    ///
    /// There is no directory to write them to.
    pub(super) fn sources(&self) -> Result<Option<u64>> {
        if self.is_stdout() && self.sources.is_some() {
            return Err(Error::new("--sources writes files beside the lists: name their directory with --out"));
        }
        Ok(self.sources)
    }

    /// How much of them is to be kept. It is checked before anything is done.
    ///
    /// # Errors
    ///
    /// There is no directory to keep them in, or two ages or two sizes.
    pub(super) fn keep(&self) -> Result<Keep> {
        if self.is_stdout() && self.snapshots.is_none() && !self.writing.keep.is_empty() {
            return Err(Error::new("--keep is for files: name their directory with --out"));
        }
        self.writing.keep()
    }

    /// Whether a list is kept beside the snapshots.
    pub(super) fn keeps_list(&self) -> bool {
        !self.no_list
    }

    /// Whether snapshots are wanted.
    pub(super) fn has_snapshots(&self) -> bool {
        self.snapshots.is_some()
    }

    /// How snapshots are to be made, if they are, by a router that is called so unless it was given a name.
    pub(super) fn snapshots(&self, otherwise: impl FnOnce() -> String, run: u64) -> Option<Snapshots> {
        self.snapshots.as_ref().map(|_| Snapshots {
            router: self.router.clone().unwrap_or_else(otherwise),
            run,
            replace_lists: self.no_list,
        })
    }

    /// What writes the lists and snapshots of a run with this configuration.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or a directory can not be had.
    pub(super) fn exporter(&self, config: &Config, voice: Voice) -> Result<Counted> {
        let (format, keep) = (self.format(), self.keep()?);
        let snapshots = self.snapshots.as_ref();
        let snapshots = snapshots.map(|path| SnapshotDirectory::new(path, config.secret.clone(), keep)).transpose()?;
        let exporter: Box<dyn Exporter> = if self.no_list {
            Box::new(|_: &List| Ok(()))
        } else if !self.is_stdout() {
            Box::new(Directory::new(&self.out, config.vlan_key, format, keep)?)
        } else if format.compress && std::io::stdout().is_terminal() {
            return Err(Error::new(
                "compressed lists are not for a terminal: name a directory with --out, or use a pipe",
            ));
        } else {
            Box::new(Stream::new(std::io::stdout(), "standard output", config.vlan_key, format))
        };
        Ok(Counted { exporter, snapshots, has_lists: !self.no_list, voice, written: 0 })
    }
}

/// What these limits, given with this option, keep together.
///
/// # Errors
///
/// There are two ages or two sizes.
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

/// An exporter that knows how many lists it wrote, and passes on what it warns of.
pub(super) struct Counted {
    exporter: Box<dyn Exporter>,
    snapshots: Option<SnapshotDirectory>,
    /// Whether lists are written; else only snapshots.
    has_lists: bool,
    voice: Voice,
    written: u64,
}

impl Exporter for Counted {
    fn write(&mut self, list: &List) -> Result<()> {
        self.exporter.write(list)?;
        self.written += u64::from(self.has_lists);
        self.pass_on(|it| it.exporter.warning());
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &SnapshotFile) -> Result<()> {
        let Some(snapshots) = &mut self.snapshots else { return Ok(()) };
        snapshots.write(snapshot)?;
        self.written += u64::from(!self.has_lists);
        self.pass_on(|it| it.snapshots.as_mut().and_then(SnapshotDirectory::warning));
        Ok(())
    }

    fn write_sources(&mut self, report: &Report) -> Result<()> {
        self.exporter.write_sources(report)?;
        self.pass_on(|it| it.exporter.warning());
        Ok(())
    }

    fn save(&self, encoder: &mut Encoder) {
        self.exporter.save(encoder);
        if let Some(snapshots) = &self.snapshots {
            snapshots.save(encoder);
        }
    }

    fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.exporter.restore(decoder)?;
        self.snapshots.as_mut().map_or(Ok(()), |snapshots| snapshots.restore(decoder))
    }
}

impl Counted {
    /// Passes on what there is to warn of.
    fn pass_on(&mut self, warning: impl FnOnce(&mut Self) -> Option<Error>) {
        if let Some(warning) = warning(self).filter(|_| self.voice > Voice::Quiet) {
            report::warning(&warning.to_string());
        }
    }

    /// What there is when a list, or where there are none a snapshot, could not be written.
    pub(super) fn aftermath(&self) -> String {
        let what = if self.has_lists { "list" } else { "snapshot" };
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
    use crate::config::{CHANGES_FULL_LISTS_DEFAULT, SOURCES_DEFAULT};

    #[test]
    fn the_defaults_are_the_limits_of_their_names() {
        assert_eq!(CHANGES_FULL_LISTS_TEXT.parse(), Ok(CHANGES_FULL_LISTS_DEFAULT));
        assert_eq!(values::count(SOURCES_TEXT), Ok(SOURCES_DEFAULT));
    }
}
