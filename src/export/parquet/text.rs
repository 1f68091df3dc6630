//! A list as Parquet -> its lines as NDJSON, with the fields that are needed to read a list back.
//!
//! All formats are then read by the same code (`list_file`), which refuses what cannot be a line of a list.

use super::columns::ENDS;
use super::file::{Kind, field};
use super::{HEADER, LIST_COURSE, SELECTION};
use crate::export::timestamp::rfc3339;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// The most row groups of a file: of more nobody needs a list, and each takes memory before it is read.
const GROUP_COUNT_MAX: usize = 1 << 16;

/// The lines of a file.
struct ListText {
    rows: RowIter<'static>,
    line: io::Cursor<Vec<u8>>,
}

/// The lines of a list that was written as Parquet: its header, and a line for each connection.
///
/// # Errors
///
/// The file cannot be read, or is no list as Parquet.
pub(in crate::export) fn list_text(file: File) -> io::Result<Box<dyn BufRead>> {
    let file_size = file.metadata()?.len();
    let reader = SerializedFileReader::new(file).map_err(io::Error::other)?;
    let metadata = reader.metadata();
    if metadata.num_row_groups() > GROUP_COUNT_MAX {
        return Err(io::Error::other("it has more row groups than any list"));
    }
    check_places(metadata, file_size)?;
    let said = metadata.file_metadata().key_value_metadata();
    let value =
        |key: &str| said.into_iter().flatten().find(|said| said.key == key).and_then(|said| said.value.as_ref());
    let Some(header) = value(HEADER).filter(|header| !header.contains('\n')) else {
        return Err(io::Error::other("it does not say of which list it is"));
    };
    let selection = if value(SELECTION).is_some() { ",\"selection\":{}" } else { "" };
    let line = format!("{{\"{HEADER}\":{header}{selection}}}\n").into_bytes();
    let fields: String = needed().map(|(name, kind)| field(name, kind)).collect();
    let needed = parse_message_type(&format!("message flowpeel {{ {fields} }}")).map_err(io::Error::other)?;
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(needed)).map_err(io::Error::other)?;
    Ok(Box::new(BufReader::new(ListText { rows, line: io::Cursor::new(line) })))
}

/// Checks that all columns are within the file: who reads them takes that for granted.
fn check_places(metadata: &ParquetMetaData, file_size: u64) -> io::Result<()> {
    let is_within = |column: &ColumnChunkMetaData| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let parts = [start, column.data_page_offset(), column.compressed_size()].map(u64::try_from);
        let [Ok(start), Ok(data), Ok(size)] = parts else { return false };
        start.max(data) <= file_size && start.checked_add(size).is_some_and(|end| end <= file_size)
    };
    let mut columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    match columns.all(is_within) {
        true => Ok(()),
        false => Err(io::Error::other("a column is not within the file")),
    }
}

/// The columns that lines are made of.
fn needed() -> impl Iterator<Item = (&'static str, Kind)> {
    ENDS.into_iter().filter(|(name, _)| *name != "community_id").chain(LIST_COURSE)
}

impl Read for ListText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.line.read(buffer)?;
        if size > 0 || buffer.is_empty() {
            return Ok(size);
        }
        let Some(row) = self.rows.next() else { return Ok(0) };
        self.line = io::Cursor::new(line(row)?);
        self.line.read(buffer)
    }
}

/// The line of a row.
fn line(row: Result<Row, ParquetError>) -> io::Result<Vec<u8>> {
    let mut columns: Map<String, Value> = Map::new();
    for (name, field) in row.map_err(io::Error::other)?.into_columns() {
        let value = match field {
            Field::Str(text) if name == "vlan" => tags(&text)?,
            Field::Str(text) => Value::from(text),
            Field::UShort(number) => Value::from(number),
            Field::Double(number) => Value::from(number),
            Field::Bool(is_set) => Value::from(is_set),
            Field::TimestampMicros(time_us) => Value::from(rfc3339(time_us.saturating_mul(1_000))),
            // Whoever reads the line misses what has to be there.
            _ => continue,
        };
        columns.insert(name, value);
    }
    let flow: Map<String, Value> = LIST_COURSE.iter().filter_map(|(name, _)| columns.remove_entry(*name)).collect();
    columns.insert("flow".to_owned(), Value::Object(flow));
    let mut line = serde_json::to_vec(&columns)?;
    line.push(b'\n');
    Ok(line)
}

/// The VLAN tags of a cell.
fn tags(text: &str) -> io::Result<Value> {
    let tags: Result<Vec<u16>, _> = text.split(' ').map(str::parse).collect();
    Ok(json!(tags.map_err(io::Error::other)?))
}
