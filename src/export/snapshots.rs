//! A directory with one file for each snapshot, `snapshot-<end, UTC>.flowpeel`, written whole or not at all, for an
//! agent that follows the directory.

use crate::error::{Error, Result};
use crate::export::file_name::{Extension, FileName, Names};
use crate::export::output_directory::{OutputDirectory, now_s};
use crate::export::retention::{Keep, Retention};
use crate::export::series::Kind;
use crate::snapshot::SnapshotFile;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;

/// Writes snapshots to a directory, which belongs to one process at a time.
pub struct SnapshotDirectory {
    output: OutputDirectory,
    names: Names,
    secret: Secret,
    retention: Retention,
    warning: Option<Error>,
}

impl SnapshotDirectory {
    /// A writer to this directory, which is created if it does not exist, of snapshots that were filled under this
    /// secret. Of what is there, what is not to be kept is removed.
    ///
    /// # Errors
    ///
    /// The directory cannot be created or written to, or another process writes to it.
    pub fn new(path: impl Into<PathBuf>, secret: Secret, keep: Keep) -> Result<Self> {
        let (output, warning) = OutputDirectory::open(path.into(), "snapshot")?;
        let mut retention = Retention::of_snapshots(output.path(), keep);
        let warning = retention.opened(now_s()).or(warning);
        Ok(SnapshotDirectory { output, names: Names::default(), secret, retention, warning })
    }

    /// Writes a snapshot, under the name of its interval's end.
    ///
    /// # Errors
    ///
    /// The snapshot could not be written.
    pub fn write(&mut self, snapshot: &SnapshotFile) -> Result<()> {
        let name = self.names.next(snapshot.header.end_ns(), || Kind::Snapshot, Extension::default());
        let name = FileName { kind: Kind::Snapshot, ..name };
        let written = self.output.write(&name.path(), |file| snapshot.write(file, &self.secret));
        self.warning = self.retention.written(name, written?).or(self.warning.take());
        Ok(())
    }

    /// Encodes what the next name depends on, for a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        self.names.save(encoder);
    }

    /// Restores what was saved.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a snapshot directory.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.names = Names::saved(decoder)?;
        Ok(())
    }

    /// What has gone wrong since this was last called that affects no snapshot.
    pub fn warning(&mut self) -> Option<Error> {
        self.warning.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::DeltaGeometry;
    use crate::snapshot::{Figures, RouterPart};
    use flowpeel_iblt::Geometry;
    use std::fs;

    fn snapshot(end_s: i64) -> SnapshotFile {
        let geometry = DeltaGeometry { v4: Geometry::new(2), v6: Geometry::new(1) };
        let figures = Figures { end_ns: end_s * 1_000_000_000, ..Figures::default() };
        SnapshotFile::new(geometry, false, &Secret::REPLAY, RouterPart { figures, ..RouterPart::default() })
    }

    #[test]
    fn each_has_a_file_and_the_oldest_go() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("flows-20250101T000010Z.ndjson"), "somebody else's").unwrap();
        let keep = Keep { age: Some(std::time::Duration::from_secs(15)), size: None };
        let mut snapshots = SnapshotDirectory::new(place.path(), Secret::REPLAY, keep).unwrap();
        for second in [0, 10, 10, 20] {
            snapshots.write(&snapshot(1_767_225_600 + second)).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name != crate::state::LOCK_FILE);
        names.sort();
        assert_eq!(
            names,
            [
                "flows-20250101T000010Z.ndjson",
                "snapshot-20260101T000010Z.flowpeel",
                "snapshot-20260101T000010Z_002.flowpeel",
                "snapshot-20260101T000020Z.flowpeel",
            ]
        );
        let path = place.path().join(&names[3]);
        assert_eq!(SnapshotFile::open(&path, &Secret::REPLAY).unwrap(), snapshot(1_767_225_620));
        assert!(snapshots.warning().is_none());
        assert!(SnapshotDirectory::new(place.path(), Secret::REPLAY, keep).is_err(), "it belongs to one at a time");
    }
}
