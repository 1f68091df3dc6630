//! A directory with one file for each list, written whole or not at all.
//!
//! Files are named by the ends of the lists. Programs that watch the directory never read half a list, not even after a
//! crash.

use crate::error::{Error, Result};
use crate::export::file_name::{FileName, Names, SnapshotName};
use crate::export::output_directory::{OutputDirectory, now_s};
use crate::export::retention::{Keep, Retention};
use crate::export::series::{Kind, Series};
use crate::export::{Exporter, Format, Output, Resumable};
use crate::list::List;
use crate::sources::Report;
use crate::state::{Decoder, Encoder};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes each list to a file of its own, `flows-<end, UTC>.ndjson`, or what changed since the one before to
/// `changes-<end, UTC>.ndjson`. A list has a temporary name until it is whole and on the disk.
///
/// A directory belongs to one process at a time.
pub struct Directory {
    output: OutputDirectory,
    series: Series,
    format: Format,
    retention: Retention,
    names: Names,
    /// The name of the last list.
    name: Option<FileName>,
    warning: Option<Error>,
}

impl Directory {
    /// An exporter to this directory, which is created if it does not exist. With `vlan_key`, lines name the VLAN tags.
    /// What a killed process left half written is removed, and of the rest what is not to be kept.
    ///
    /// # Errors
    ///
    /// The directory cannot be created or written to, or another process writes lists to it.
    pub fn new(path: impl Into<PathBuf>, vlan_key: bool, format: Format, keep: Keep) -> Result<Self> {
        let (output, warning) = OutputDirectory::open(path.into(), "list")?;
        let mut retention = Retention::new(output.path(), keep);
        let warning = retention.opened(now_s()).or(warning);
        Ok(Directory {
            series: Series::new(vlan_key, format.clone()),
            format,
            retention,
            names: Names::default(),
            name: None,
            warning,
            output,
        })
    }

    /// The name of the list that ends at this time.
    fn name(&mut self, end_ns: i64) -> FileName {
        let next_kind = || self.series.next_kind();
        self.names.next(end_ns, next_kind, self.format.extension())
    }

    /// Writes a file with this name, whole or not at all.
    fn put(
        &mut self,
        name: FileName,
        failing: &str,
        write: impl FnOnce(&mut Series, &mut &File) -> io::Result<()>,
    ) -> Result<()> {
        let series = &mut self.series;
        series.begin_file();
        let write = |file: &mut &File| write(series, file).map_err(|error| Error::new(failing).because(error));
        let sizes = self.output.write(&name.path(), write)?;
        self.warning = self.retention.written(name, sizes).or(self.warning.take());
        Ok(())
    }

    /// Begins a new run: the next list does not build on those before, so it is written in full. With `vlan_key`, its
    /// lines name the VLAN tags.
    pub fn begin_run(&mut self, vlan_key: bool) {
        self.series = Series::new(vlan_key, self.format.clone());
        self.names = Names::default();
    }

    /// Writes the list that was made from the snapshot of this name, under the name that the router would have given
    /// it. If the list is written in full, changes that a killed process made from the same snapshot are removed:
    /// nothing builds on them.
    ///
    /// # Errors
    ///
    /// The file could not be written.
    pub fn write_beside(&mut self, list: &List, snapshot: SnapshotName) -> Result<WrittenList> {
        let next_kind = || self.series.next_kind();
        let name = self.names.with_number(snapshot.end_s(), snapshot.number(), next_kind, self.format.extension());
        let written = self.write_named(list, name)?;
        let changes = self.output.path().join(FileName { kind: Kind::Changes, ..name }.to_string());
        if written.is_full
            && let Err(cause) = fs::remove_file(&changes)
            && cause.kind() != io::ErrorKind::NotFound
        {
            let what = "cannot remove changes that a process which was killed has left";
            self.warning = Some(Error::new(what).in_file(changes).because(cause));
        }
        Ok(written)
    }

    /// Writes a file that is not a list, whole or not at all, in place of the one before.
    ///
    /// # Errors
    ///
    /// The file could not be written.
    pub fn write_note(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let cannot = |error: io::Error| Error::new("cannot write it").because(error);
        self.output.write(Path::new(name), |file| file.write_all(bytes).map_err(cannot)).map(drop)
    }

    /// The paths of the changes that lead from one list to another, the other included, in the order of their names.
    ///
    /// # Errors
    ///
    /// The directory cannot be read, or one of the names is not that of a list.
    pub fn changes_in(&self, span: ListSpan) -> Result<Vec<PathBuf>> {
        let parsed = |name| FileName::parse(name).ok_or_else(|| Error::new("this is no name of a list").in_file(name));
        let (full, last) = (parsed(span.full)?, parsed(span.last)?);
        let cannot =
            |error: io::Error| Error::new("cannot read the directory").in_file(self.output.path()).because(error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.output.path()).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name().to_str().and_then(FileName::parse);
            names.extend(name.filter(|name| name.kind == Kind::Changes && full < *name && *name <= last));
        }
        names.sort_unstable();
        Ok(names.into_iter().map(|name| self.output.path().join(name.to_string())).collect())
    }

    /// What has gone wrong since this was last called that affects no list. What keeps failing is reported less and
    /// less often.
    pub fn warning(&mut self) -> Option<Error> {
        self.warning.take()
    }

    fn write_sources(&mut self, report: &Report) -> Result<()> {
        // They have the name of the list before them, or where no lists are written one of their own.
        let name = self.name.unwrap_or_else(|| self.name(report.period.end_ns));
        self.put(name.of_sources(), "cannot write the sources", |series, file| series.write_sources(file, report))
    }

    fn write_named(&mut self, list: &List, name: FileName) -> Result<WrittenList> {
        self.put(name, "cannot write the list", |series, file| series.write(file, list, name.kind))?;
        self.series.written(list, name.kind);
        self.name = Some(name);
        Ok(WrittenList { name: name.to_string(), is_full: name.kind == Kind::Full })
    }
}

/// A list in full and a later one that changes lead to, by the names of their files.
#[derive(Clone, Copy, Debug)]
pub struct ListSpan<'a> {
    /// The list in full.
    pub full: &'a str,
    /// The later list.
    pub last: &'a str,
}

/// A list that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenList {
    /// The name of its file.
    pub name: String,
    /// Whether the list is in full; otherwise the file holds what changed since the one before.
    pub is_full: bool,
}

impl Exporter for Directory {
    fn write(&mut self, output: Output) -> Result<()> {
        match output {
            Output::List(list) => {
                let name = self.name(list.header.figures.end_ns);
                self.write_named(list, name).map(drop)
            }
            Output::Sources(report) => self.write_sources(report),
            Output::Snapshot(_) => Ok(()),
        }
    }

    fn resumable(&mut self) -> Option<&mut dyn Resumable> {
        Some(self)
    }
}

impl Resumable for Directory {
    fn save(&self, encoder: &mut Encoder) {
        self.names.save(encoder);
        self.series.save(encoder);
    }

    fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.names = Names::saved(decoder)?;
        self.series.restore(decoder)
    }

    fn build_anew(&mut self) {
        self.series.build_anew();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &Path) -> Result<Directory> {
        Directory::new(path, false, Format::default(), Keep::default())
    }

    #[test]
    fn names_have_the_end_and_never_repeat() {
        let place = tempfile::tempdir().unwrap();
        let mut lists = directory(place.path()).unwrap();
        for (end_ns, name) in [
            (1_767_225_610_000_000_000, "flows-20260101T000010Z.ndjson"),
            (1_767_225_610_400_000_000, "flows-20260101T000010Z_002.ndjson"),
            (1_767_225_611_000_000_000, "flows-20260101T000011Z.ndjson"),
            (1_767_225_610_000_000_000, "flows-20260101T000010Z_003.ndjson"),
        ] {
            assert_eq!(lists.name(end_ns).to_string(), name);
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "the lock");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = directory(file.path()).err().unwrap();
        assert!(error.to_string().contains("it is not a directory"), "{error}");
    }

    #[test]
    fn a_directory_belongs_to_one_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = directory(place.path()).unwrap();
        let error = directory(place.path()).err().unwrap();
        assert!(error.to_string().contains("another process writes lists here"), "{error}");
        drop(first);
        assert!(directory(place.path()).is_ok());
    }

    #[test]
    fn leftovers_go_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let others = [".flows-a.tmp", ".flows-abc-ef.tmp", "flows-abcdef.tmp", ".flows-abcdef.tmp2", "notes.txt"];
        for name in others.iter().chain(&[".flows-abcdef.tmp", ".flows-A1b2C3.tmp"]) {
            fs::write(place.path().join(name), "x").unwrap();
        }
        fs::create_dir(place.path().join(".flows-direct.tmp")).unwrap();
        directory(place.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = [&others[..], &[".flows-direct.tmp", crate::state::LOCK_FILE]].concat();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}
