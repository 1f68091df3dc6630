//! Lists on a stream, one after another.
//!
//! Each list is flushed when it is whole. Compressed, each is a zstd
//! frame of its own, and frames after one another are one zstd stream.

use crate::error::{Error, Result};
use crate::export::file_name::Names;
use crate::export::series::Series;
use crate::export::{Exporter, Format, Output, Resumable};
use crate::state::{Decoder, Encoder};
use std::io::Write;

/// Writes lists to a stream, each whole before the next.
pub struct Stream<W: Write + Send> {
    out: W,
    name: String,
    series: Series,
}

impl<W: Write + Send> Stream<W> {
    /// An exporter to this stream, which errors call `name`. With `vlan_key`, lines name the VLAN tags.
    pub fn new(out: W, name: impl Into<String>, vlan_key: bool, format: Format) -> Self {
        Stream { out, name: name.into(), series: Series::new(vlan_key, format) }
    }

    /// The stream, to which everything has been written.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write + Send> Exporter for Stream<W> {
    fn write(&mut self, output: Output) -> Result<()> {
        let name = &self.name;
        let cannot = |what: &'static str| move |error: std::io::Error| Error::new(what).in_file(name).because(error);
        match output {
            Output::List(list) => {
                let kind = self.series.next_kind();
                self.series.write(&mut self.out, list, kind).map_err(cannot("cannot write the list"))?;
                self.series.written(list, kind);
                Ok(())
            }
            Output::Sources(report) => {
                self.series.write_sources(&mut self.out, report).map_err(cannot("cannot write the sources"))
            }
            Output::Snapshot(_) => Ok(()),
        }
    }

    fn resumable(&mut self) -> Option<&mut dyn Resumable> {
        Some(self)
    }
}

impl<W: Write + Send> Resumable for Stream<W> {
    fn save(&self, encoder: &mut Encoder) {
        Names::default().save(encoder);
        self.series.save(encoder);
    }

    fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        // A run that wrote to a directory saved the state of names, which a stream does not need.
        Names::saved(decoder)?;
        self.series.restore(decoder)
    }

    fn build_anew(&mut self) {
        self.series.build_anew();
    }
}
