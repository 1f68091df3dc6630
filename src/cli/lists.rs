//! Where lists go and how they are written: the options that every command with lists has, and the exporter they ask for.

use crate::cli::report::{self, Voice};
use crate::cli::values::{self, KeepLimit};
use crate::error::{Error, Result};
use crate::export::{Directory, Exporter, Format, Keep, Stream};
use crate::flow_list::List;
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Where lists go, and how.
#[derive(Args)]
pub(super) struct Lists {
    /// Write each list to a file in this directory; - for standard output
    #[arg(long, value_name = "DIR", default_value = "-")]
    out: PathBuf,

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

/// The default as it would be typed.
const CHANGES_FULL_LISTS_TEXT: &str = "360";

impl Lists {
    fn is_stdout(&self) -> bool {
        self.out.as_os_str() == "-"
    }

    /// How lists are to be written.
    pub(super) fn format(&self) -> Format {
        Format { compress: self.compress, changes: self.changes }
    }

    /// How much of them is to be kept. It is checked before anything is done.
    ///
    /// # Errors
    ///
    /// There is no directory to keep them in, or two ages or two sizes.
    pub(super) fn keep(&self) -> Result<Keep> {
        if self.is_stdout() && !self.keep.is_empty() {
            return Err(Error::new("--keep is for files: name their directory with --out"));
        }
        let mut keep = Keep::default();
        for limit in &self.keep {
            let is_second = match *limit {
                KeepLimit::Age(age) => keep.age.replace(age).is_some(),
                KeepLimit::Size(size) => keep.size.replace(size).is_some(),
            };
            if is_second {
                return Err(Error::new("--keep takes one age and one size, no two of a kind"));
            }
        }
        Ok(keep)
    }

    /// What writes the lists.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or the directory can not be had.
    pub(super) fn exporter(&self, vlan_key: bool, voice: Voice) -> Result<Counted> {
        let (format, keep) = (self.format(), self.keep()?);
        let exporter: Box<dyn Exporter> = if !self.is_stdout() {
            Box::new(Directory::new(&self.out, vlan_key, format, keep)?)
        } else if format.compress && std::io::stdout().is_terminal() {
            return Err(Error::new(
                "compressed lists are not for a terminal: name a directory with --out, or use a pipe",
            ));
        } else {
            Box::new(Stream::new(std::io::stdout(), "standard output", vlan_key, format))
        };
        Ok(Counted { exporter, voice, written: 0 })
    }
}

/// An exporter that knows how many lists it wrote, and passes on what it warns of.
pub(super) struct Counted {
    exporter: Box<dyn Exporter>,
    voice: Voice,
    written: u64,
}

impl Exporter for Counted {
    fn write(&mut self, list: &List) -> Result<()> {
        self.exporter.write(list)?;
        self.written += 1;
        if let Some(warning) = self.exporter.warning().filter(|_| self.voice > Voice::Quiet) {
            report::warning(&warning.to_string());
        }
        Ok(())
    }
}

impl Counted {
    /// What there is when a list could not be written.
    pub(super) fn aftermath(&self) -> String {
        match self.written {
            0 => "; no list was written whole".to_owned(),
            1 => "; the list before it is whole".to_owned(),
            written => format!("; the {} lists before it are whole", report::grouped(written)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CHANGES_FULL_LISTS_DEFAULT;

    #[test]
    fn the_default_is_the_limit_of_that_name() {
        assert_eq!(CHANGES_FULL_LISTS_TEXT.parse(), Ok(CHANGES_FULL_LISTS_DEFAULT));
    }
}
