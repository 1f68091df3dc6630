//! One file a list, written whole or not at all.
//!
//! What enters: lists. What leaves: files named by the lists' ends, for programs that watch a directory: none of them
//! may ever see half a list, not even after a crash.

use crate::error::{Error, Result};
use crate::export::{Exporter, Ndjson};
use crate::flow_list::List;
use jiff::Timestamp;
use jiff::fmt::strtime;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Who may read lists: they tell who talks to whom.
const LIST_MODE: u32 = 0o640;

/// Writes each list to a file of its own, `flows-<end, UTC>.ndjson`. A list that is not there is under a temporary name
/// until it is whole and on the disk.
pub struct Directory {
    path: PathBuf,
    vlan_key: bool,
    /// The latest end of a list, in seconds; the next one that does not end later needs a number in its name.
    latest_s: Option<i64>,
    numbered: u64,
}

impl Directory {
    /// An exporter to this directory, which is made if it is not there. With `vlan_key`, lines name the VLAN tags.
    ///
    /// # Errors
    ///
    /// The directory can not be made or written to.
    pub fn new(path: impl Into<PathBuf>, vlan_key: bool) -> Result<Self> {
        let path = path.into();
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(Error::new("it is not a directory: lists are written to files in one").in_file(&path));
        }
        let cannot = |error: io::Error| Error::new("can not write lists here").in_file(&path).because(error);
        fs::create_dir_all(&path).map_err(cannot)?;
        // Trying now tells the user at the start, not after the first interval.
        new_file(&path).map_err(cannot)?;
        Ok(Directory { path, vlan_key, latest_s: None, numbered: 1 })
    }

    /// The name of the list that ends at this time, to the second. A run never takes a name twice, even when the clock
    /// stepped back; another run over the same packets takes the same names.
    fn name(&mut self, end_ns: i64) -> String {
        // Neither default is ever taken: the calendar knows every i64 of nanoseconds, and can write it so.
        let time = Timestamp::from_nanosecond(i128::from(end_ns)).unwrap_or(Timestamp::UNIX_EPOCH);
        let name = strtime::format("flows-%Y%m%dT%H%M%SZ", time).unwrap_or_default();
        if self.latest_s.is_none_or(|latest_s| time.as_second() > latest_s) {
            self.latest_s = Some(time.as_second());
            return format!("{name}.ndjson");
        }
        self.numbered += 1;
        format!("{name}_{:03}.ndjson", self.numbered)
    }

    fn write_to(&self, path: &Path, list: &List) -> Result<()> {
        let cannot = |error: io::Error| Error::new("can not write the list").in_file(path).because(error);
        // It is removed when it is dropped, unless it was renamed before.
        let file = new_file(&self.path).map_err(cannot)?;
        let mut lines = Ndjson::new(file.as_file(), path.display().to_string(), self.vlan_key);
        lines.write(list)?;
        lines.into_inner().sync_all().map_err(cannot)?;
        file.persist(path).map_err(|error| cannot(error.error))?;
        // The name is on the disk only when the directory is.
        #[cfg(unix)]
        File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(cannot)?;
        Ok(())
    }
}

/// A new file in this directory under a name that no list has, for the owner and the group.
fn new_file(directory: &Path) -> io::Result<NamedTempFile> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, LIST_MODE);
    Builder::new().prefix(".flows-").suffix(".tmp").make_in(directory, |path| options.open(path))
}

impl Exporter for Directory {
    fn write(&mut self, list: &List) -> Result<()> {
        let name = self.name(list.header.end_ns);
        self.write_to(&self.path.join(name), list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_end_and_never_repeat() {
        let directory = tempfile::tempdir().unwrap();
        let mut lists = Directory::new(directory.path(), false).unwrap();
        assert_eq!(lists.name(1_767_225_610_000_000_000), "flows-20260101T000010Z.ndjson");
        assert_eq!(lists.name(1_767_225_610_400_000_000), "flows-20260101T000010Z_002.ndjson");
        assert_eq!(lists.name(1_767_225_611_000_000_000), "flows-20260101T000011Z.ndjson");
        assert_eq!(lists.name(1_767_225_610_000_000_000), "flows-20260101T000010Z_003.ndjson");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Directory::new(file.path(), false).err().unwrap();
        assert!(error.to_string().contains("it is not a directory"), "{error}");
    }
}
