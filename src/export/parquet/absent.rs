//! A build without the feature `parquet`: whoever asks for it learns how to get it.

use crate::error::{Error, Result};
use crate::export::flow_line::{ArchivedFlow, FlowEvent};
use crate::list::{List, Row};
use crate::select::Selection;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Write};

pub(super) const PARQUET_SIZE: u64 = 0;
pub(super) const PARQUET_EVENTS_SIZE: u64 = 0;

const ABSENT: &str =
    "this flowpeel was built without Parquet: build it with `--features parquet`, or take another format";

/// Checks that Parquet can be written.
///
/// # Errors
///
/// Always: this build does not have it.
pub(super) fn check() -> Result<()> {
    Err(Error::new(ABSENT))
}

fn absent<T>() -> io::Result<T> {
    Err(io::Error::new(ErrorKind::Unsupported, ABSENT))
}

pub(super) fn list(_: &mut dyn Write, _: &List, _: &Selection) -> io::Result<()> {
    absent()
}

pub(super) fn list_text(_: File) -> io::Result<Box<dyn BufRead>> {
    absent()
}

/// A file that there cannot be.
pub(super) enum JoinedRows {}

impl JoinedRows {
    pub(super) fn new(_: i64, _: bool) -> io::Result<Self> {
        absent()
    }

    pub(super) fn row(&mut self, _: &mut dyn Write, _: &Row, _: [&[&str]; 2]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn finish(self, _: &mut dyn Write, _: String) -> io::Result<()> {
        match self {}
    }
}

/// A file that there cannot be.
pub(super) enum ArchivedRows {}

impl ArchivedRows {
    pub(super) fn new() -> io::Result<Self> {
        absent()
    }

    pub(super) fn row(&mut self, _: &mut dyn Write, _: &ArchivedFlow) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn finish(self, _: &mut dyn Write) -> io::Result<()> {
        match self {}
    }
}

/// A file that there cannot be.
pub(super) enum EventRows {}

impl EventRows {
    pub(super) fn new() -> io::Result<Self> {
        absent()
    }

    pub(super) fn row(&mut self, _: &mut dyn Write, _: &FlowEvent) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn finish(self, _: &mut dyn Write, _: u64) -> io::Result<()> {
        match self {}
    }
}
