//! The joined view of several routers, in a file of Parquet.
//!
//! The file has the name and the place that the list of one router has that ended then, and its columns, and beside
//! them who sees the connection.

use crate::disk::whole_file::{NewFile, directory_of};
use crate::error::{Error, Result};
use crate::export::file_name::{Content, Extension, FileName};
use crate::export::output_directory::{TEMPORARY, make_directories};
use crate::export::parquet::{self, JoinedRows};
use crate::export::series::Kind;
use crate::list::Row;
use std::io;
use std::path::{Path, PathBuf};

/// A file that is being written. It is whole or not there.
pub struct JoinedFile {
    file: NewFile,
    rows: JoinedRows,
    path: PathBuf,
}

impl JoinedFile {
    /// Checks that this build can write it.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn check() -> Result<()> {
        parquet::check()
    }

    /// Begins the file of a view that ends then, below this directory: `date=2026-01-01/hour=08/flows-<end>.parquet`.
    ///
    /// # Errors
    ///
    /// This build has no Parquet, or the directory cannot be written to.
    pub fn begin(directory: &Path, end_ns: i64, is_complete: bool) -> Result<Self> {
        JoinedFile::check()?;
        let extension = Extension { content: Content::Parquet, is_compressed: false };
        let name = FileName { end_s: end_ns.div_euclid(1_000_000_000), number: 1, kind: Kind::Full, extension };
        let path = directory.join(name.path());
        let cannot = |error: io::Error| cannot_write(&path, error);
        make_directories(directory_of(&path)).map_err(cannot)?;
        let file = NewFile::begin(&path, &TEMPORARY).map_err(cannot)?;
        let rows = JoinedRows::new(end_ns, is_complete).map_err(cannot)?;
        Ok(JoinedFile { file, rows, path })
    }

    /// Adds a connection: who sees it, and where any of them saw one side alone, what each saw.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn row(&mut self, row: &Row, routers: &[&str], directions: &[&str]) -> Result<()> {
        let written = self.rows.row(&mut self.file.file(), row, [routers, directions]);
        written.map_err(|error| cannot_write(&self.path, error))
    }

    /// Gives the file its name. `fields` are those of the view's header, as JSON. Returns the path.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(self, fields: String) -> Result<PathBuf> {
        let JoinedFile { file, rows, path } = self;
        let written = rows.finish(&mut file.file(), fields).and_then(|()| file.finish());
        match written {
            Ok(_) => Ok(path),
            Err(error) => Err(cannot_write(&path, error)),
        }
    }
}

fn cannot_write(path: &Path, cause: io::Error) -> Error {
    Error::new("cannot write the view").in_file(path).because(cause)
}
