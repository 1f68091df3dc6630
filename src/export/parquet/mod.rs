//! Lists, and connections of an archive, as Parquet.
//!
//! Every row says which list it is of, and whether that is complete; the end of the file says so too, and what else the
//! header of a list does, so that a list without connections is distinguished from none.

mod file;

use crate::disk::whole_file::NewFile;
use crate::error::{Error, Result};
use crate::export::community_id;
use crate::export::file_name::hour_directory;
use crate::export::flow_line::{ArchivedFlow, CLOSED};
use crate::export::lines::ListFields;
use crate::export::output_directory::OutputDirectory;
use crate::export::timestamp::TimeFormatter;
use crate::flow::VlanTags;
use crate::list::{List, RowState};
use crate::select::Selection;
use file::{Cell, Kind, ParquetFile};
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

const HOUR_NS: i64 = 3_600_000_000_000;

/// The memory that writing a file takes, in bytes.
pub(super) const PARQUET_SIZE: u64 = file::MEMORY_SIZE;

/// The columns of a list: those of csv.
const LIST_COLUMNS: [(&str, Kind); 19] = [
    ("list_end", Kind::Time),
    ("complete", Kind::Flag),
    ("src_ip", Kind::Text),
    ("src_port", Kind::Number),
    ("dest_ip", Kind::Text),
    ("dest_port", Kind::Number),
    ("vlan", Kind::OptionalText),
    ("community_id", Kind::UniqueText),
    ("start", Kind::Time),
    ("age", Kind::Seconds),
    ("state", Kind::Text),
    ("midstream", Kind::Flag),
    ("unsettled", Kind::Flag),
    ("start_is_bound", Kind::Flag),
    ("nat_name", Kind::OptionalText),
    ("nat_src_ip", Kind::OptionalText),
    ("nat_src_port", Kind::OptionalNumber),
    ("nat_dest_ip", Kind::OptionalText),
    ("nat_dest_port", Kind::OptionalNumber),
];

/// The columns of connections of an archive: those of csv.
const ARCHIVED_COLUMNS: [(&str, Kind); 13] = [
    ("src_ip", Kind::Text),
    ("src_port", Kind::Number),
    ("dest_ip", Kind::Text),
    ("dest_port", Kind::Number),
    ("vlan", Kind::OptionalText),
    ("community_id", Kind::UniqueText),
    ("start", Kind::Time),
    ("end", Kind::OptionalTime),
    ("age", Kind::Seconds),
    ("state", Kind::Text),
    ("reason", Kind::OptionalText),
    ("midstream", Kind::Flag),
    ("start_is_bound", Kind::Flag),
];

/// Writes what is selected of a list as a file.
pub(super) fn list(out: &mut dyn Write, list: &List, selection: &Selection) -> io::Result<()> {
    let header = &list.header;
    let mut times = TimeFormatter::default();
    let [start, end] = [header.figures.start_ns, header.figures.end_ns].map(|time_ns| times.rfc3339(time_ns));
    let fields = serde_json::to_string(&ListFields::new(header, start.as_str(), end.as_str()))?;
    let mut metadata = vec![
        ("list_end".to_owned(), end.as_str().to_owned()),
        ("complete".to_owned(), header.complete.to_string()),
        ("flow_list".to_owned(), fields),
    ];
    metadata.extend(selection.filter.as_ref().map(|filter| ("filter".to_owned(), filter.text().to_owned())));
    let mut file = ParquetFile::new(&LIST_COLUMNS, metadata)?;
    for row in selection.rows(list.rows()) {
        let ends = EndTexts::of(row.client.ip(), row.server.ip(), row.vlan);
        let nat = row.nat.map(|nat| (nat, [nat.client, nat.server].map(|end| end.ip().to_string())));
        let other_name = nat.as_ref().map_or([Cell::None; 5], |(nat, [client, server])| {
            let (client_port, server_port) = (Cell::Number(nat.client.port()), Cell::Number(nat.server.port()));
            [Cell::Text(nat.name()), Cell::Text(client), client_port, Cell::Text(server), server_port]
        });
        let [nat_name, nat_client, nat_client_port, nat_server, nat_server_port] = other_name;
        file.row(
            out,
            &[
                Cell::Time(header.figures.end_ns),
                Cell::Flag(header.complete),
                Cell::Text(&ends.client),
                Cell::Number(row.client.port()),
                Cell::Text(&ends.server),
                Cell::Number(row.server.port()),
                ends.vlan(),
                Cell::Text(community_id(row.client, row.server).as_str()),
                Cell::Time(row.start_ns),
                Cell::Seconds(row.age_ns),
                Cell::Text(row.state.name()),
                Cell::Flag(row.midstream),
                Cell::Flag(row.unsettled),
                Cell::Flag(row.start_is_bound),
                nat_name,
                nat_client,
                nat_client_port,
                nat_server,
                nat_server_port,
            ],
        )?;
    }
    file.finish(out)
}

/// The ends of a connection as text.
struct EndTexts {
    client: String,
    server: String,
    tags: String,
}

impl EndTexts {
    fn of(client: IpAddr, server: IpAddr, vlan: VlanTags) -> Self {
        let tags: Vec<String> = vlan.iter().map(|tag| tag.to_string()).collect();
        EndTexts { client: client.to_string(), server: server.to_string(), tags: tags.join(" ") }
    }

    fn vlan(&self) -> Cell<'_> {
        if self.tags.is_empty() { Cell::None } else { Cell::Text(&self.tags) }
    }
}

/// Writes connections of an archive to a directory, in files by the hour in which they ended, or were last known to be
/// open: `date=2026-01-01/hour=08/connections-0001.parquet`, numbered in the order in which they are written.
pub struct ArchivedParquet {
    output: OutputDirectory,
    /// The file that is being written, of this hour since 1970.
    present: Option<(i64, NewFile, ParquetFile)>,
    file_count: u64,
}

impl ArchivedParquet {
    /// Writes to this directory, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// There is something in the directory, or it cannot be created or written to.
    pub fn new(path: &Path) -> Result<Self> {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = "there is something in this directory already: whoever reads it would find connections twice";
            return Err(Error::new(what).in_file(path));
        }
        let (output, _) = OutputDirectory::open(path.to_path_buf(), "connection")?;
        Ok(ArchivedParquet { output, present: None, file_count: 0 })
    }

    /// Writes a connection.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&mut self, flow: &ArchivedFlow) -> Result<()> {
        let hour = flow.end_ns.div_euclid(HOUR_NS);
        if self.present.as_ref().is_none_or(|(present, ..)| *present != hour) {
            self.end_file()?;
            self.begin_file(hour)?;
        }
        let cannot = |error: io::Error| self.output.cannot_write(error);
        let Some((_, new, file)) = &mut self.present else { return Ok(()) };
        archived_row(file, &mut new.file(), flow).map_err(cannot)
    }

    /// Ends the last file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.end_file()
    }

    fn begin_file(&mut self, hour: i64) -> Result<()> {
        self.file_count += 1;
        let name = format!("connections-{:04}.parquet", self.file_count);
        let new = self.output.begin(&hour_directory(hour.saturating_mul(3_600)).join(name))?;
        let file = ParquetFile::new(&ARCHIVED_COLUMNS, Vec::new()).map_err(|error| self.output.cannot_write(error))?;
        self.present = Some((hour, new, file));
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        let Some((_, new, file)) = self.present.take() else { return Ok(()) };
        let written = file.finish(&mut new.file()).and_then(|()| new.finish());
        written.map(drop).map_err(|error| self.output.cannot_write(error))
    }
}

fn archived_row(file: &mut ParquetFile, out: &mut dyn Write, flow: &ArchivedFlow) -> io::Result<()> {
    let ends = EndTexts::of(flow.client.ip(), flow.server.ip(), flow.vlan);
    file.row(
        out,
        &[
            Cell::Text(&ends.client),
            Cell::Number(flow.client.port()),
            Cell::Text(&ends.server),
            Cell::Number(flow.server.port()),
            ends.vlan(),
            Cell::Text(community_id(flow.client, flow.server).as_str()),
            Cell::Time(flow.start_ns),
            flow.reason.map_or(Cell::None, |_| Cell::Time(flow.end_ns)),
            Cell::Seconds(flow.age_ns),
            Cell::Text(if flow.reason.is_some() { CLOSED } else { RowState::Established.name() }),
            flow.reason.map_or(Cell::None, Cell::Text),
            Cell::Flag(flow.midstream),
            Cell::Flag(flow.start_is_bound),
        ],
    )
}
