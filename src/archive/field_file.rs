//! B-fields in the files of an archive: whole files, and errors of the engine.

use crate::disk::whole_file::{NewFile, Temporary};
use crate::error::{Error, Result};
use flowpeel_bfield::{Field, FileError, FileErrorParts, Found};
use std::io::{self, BufWriter};
use std::path::Path;

/// Writes a field to this file, whole or not at all, replacing an older one. Returns the file's size in bytes.
///
/// # Errors
///
/// The file cannot be written; an older file stays as it was.
pub(super) fn save(field: &Field, path: &Path, temporary: &Temporary) -> Result<u64> {
    let cannot = |error: io::Error| Error::new("cannot write the index").in_file(path).because(error);
    let file = NewFile::begin(path, temporary).map_err(cannot)?;
    flowpeel_bfield::write(field, &mut BufWriter::new(file.file())).map_err(cannot)?;
    file.finish().map_err(cannot)
}

/// A field that stays in its file, with the engine's errors; see [`flowpeel_bfield::FieldFile`].
#[derive(Debug)]
pub(super) struct FieldFile(flowpeel_bfield::FieldFile);

impl FieldFile {
    /// Opens a file that [`save`] wrote, and reads its head.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no field file, is damaged, or has another length than its head says.
    pub(super) fn open(path: &Path) -> Result<Self> {
        flowpeel_bfield::FieldFile::open(path).map(FieldFile).map_err(error_of)
    }

    /// What is known of the key with this hash.
    ///
    /// # Errors
    ///
    /// A block that is needed cannot be read, or is damaged.
    pub(super) fn look_up(&mut self, hash: u128) -> Result<Found> {
        self.0.look_up(hash).map_err(error_of)
    }
}

fn error_of(error: FileError) -> Error {
    let FileErrorParts { what, path, offset, cause } = error.into_parts();
    let error = path.into_iter().fold(Error::new(what), Error::in_file);
    let error = offset.into_iter().fold(error, Error::at);
    cause.into_iter().fold(error, Error::because)
}
