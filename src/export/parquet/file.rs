//! A Parquet file that is written row by row, with a group of rows in memory at a time.
//!
//! It takes rows of cells in the order of the columns, and gives the bytes of a file. Equal rows are equal bytes.

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::{self, Write};
use std::sync::Arc;

/// The rows of a group, which is written when it is full.
const GROUP_ROWS_MAX: usize = 1 << 16;

/// The size of the largest dictionary of a column in a group, in bytes: that of as many IPv6 addresses as a group has
/// rows.
const DICTIONARY_SIZE_MAX: usize = GROUP_ROWS_MAX * (4 + 39);

/// The level of compression: zstd's default.
const LEVEL: i32 = 3;

/// What writing takes at most, in bytes: the cells of a group, and of one column the dictionary and the pages.
pub(super) const MEMORY_SIZE: u64 = (GROUP_ROWS_MAX * 720 + 4 * DICTIONARY_SIZE_MAX) as u64;

/// What the columns take at most that events have beside those of lists, in bytes.
pub(super) const EVENT_CELLS_SIZE: u64 = (GROUP_ROWS_MAX * 240) as u64;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text of few different values, as addresses are: in a dictionary.
    Text,
    /// Text that is different in every row.
    UniqueText,
    /// Text of few different values, or none.
    OptionalText,
    /// Any number of such texts, in an order.
    Texts,
    /// A number below 65,536.
    Number,
    /// Such a number, or none.
    OptionalNumber,
    /// A number below 2^63.
    Long,
    /// A time in UTC, to the microsecond.
    Time,
    /// Such a time, or none.
    OptionalTime,
    /// Seconds, with a fraction.
    Seconds,
    Flag,
}

impl Kind {
    /// Whether a row may have no value.
    fn is_optional(self) -> bool {
        matches!(self, Kind::OptionalText | Kind::OptionalNumber | Kind::OptionalTime)
    }
}

/// A value in a row.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Text(&'a str),
    Texts(&'a [&'a str]),
    Number(u16),
    Long(u64),
    /// In ns since 1970.
    Time(i64),
    /// In ns.
    Seconds(i64),
    Flag(bool),
    /// Nothing, in a column where there may be.
    None,
}

/// The values of a column in the group that is being gathered.
enum Values {
    Text(Vec<ByteArray>),
    Number(Vec<i32>),
    Long(Vec<i64>),
    Double(Vec<f64>),
    Flag(Vec<bool>),
}

struct Column {
    values: Values,
    /// Whether there is a value, for every row and for every value behind the first of a row; `None` where there always
    /// is.
    levels: Option<Vec<i16>>,
    /// Whether it is of the row of the one before it; `None` where a row has one value at most.
    repeats: Option<Vec<i16>>,
}

impl Column {
    fn of(kind: Kind) -> Self {
        let values = match kind {
            Kind::Text | Kind::UniqueText | Kind::OptionalText | Kind::Texts => Values::Text(Vec::new()),
            Kind::Number | Kind::OptionalNumber => Values::Number(Vec::new()),
            Kind::Long | Kind::Time | Kind::OptionalTime => Values::Long(Vec::new()),
            Kind::Seconds => Values::Double(Vec::new()),
            Kind::Flag => Values::Flag(Vec::new()),
        };
        let is_repeated = kind == Kind::Texts;
        let levels = (kind.is_optional() || is_repeated).then(Vec::new);
        Column { values, levels, repeats: is_repeated.then(Vec::new) }
    }

    /// Adds a cell. One of another kind than the column's is a fault of the caller, and adds nothing.
    fn push(&mut self, cell: Cell) {
        if let (Some(levels), Some(repeats), Cell::Texts(texts)) = (&mut self.levels, &mut self.repeats, cell) {
            // A row without any has a level too.
            let count = texts.len().max(1);
            levels.extend(std::iter::repeat_n(i16::from(!texts.is_empty()), count));
            repeats.extend((0..count).map(|at| i16::from(at > 0)));
        } else if let Some(levels) = &mut self.levels {
            levels.push(i16::from(!matches!(cell, Cell::None)));
        }
        match (&mut self.values, cell) {
            (Values::Text(all), Cell::Text(text)) => all.push(ByteArray::from(text.as_bytes().to_vec())),
            (Values::Text(all), Cell::Texts(texts)) => {
                all.extend(texts.iter().map(|text| ByteArray::from(text.as_bytes().to_vec())));
            }
            (Values::Number(all), Cell::Number(number)) => all.push(i32::from(number)),
            (Values::Long(all), Cell::Long(number)) => all.push(number.cast_signed()),
            (Values::Long(all), Cell::Time(time_ns)) => all.push(time_ns.div_euclid(1_000)),
            (Values::Double(all), Cell::Seconds(time_ns)) => all.push(time_ns.div_euclid(1_000) as f64 / 1e6),
            (Values::Flag(all), Cell::Flag(is_set)) => all.push(is_set),
            (_, cell) => debug_assert!(matches!(cell, Cell::None), "a cell of another kind"),
        }
    }

    fn write(&mut self, mut writer: SerializedColumnWriter) -> Result<(), ParquetError> {
        let levels = (self.levels.as_deref(), self.repeats.as_deref());
        match &self.values {
            Values::Text(all) => write_column(writer.typed::<ByteArrayType>(), all, levels)?,
            Values::Number(all) => write_column(writer.typed::<Int32Type>(), all, levels)?,
            Values::Long(all) => write_column(writer.typed::<Int64Type>(), all, levels)?,
            Values::Double(all) => write_column(writer.typed::<DoubleType>(), all, levels)?,
            Values::Flag(all) => write_column(writer.typed::<BoolType>(), all, levels)?,
        }
        writer.close()
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Text(all) => all.clear(),
            Values::Number(all) => all.clear(),
            Values::Long(all) => all.clear(),
            Values::Double(all) => all.clear(),
            Values::Flag(all) => all.clear(),
        }
        self.levels.iter_mut().chain(&mut self.repeats).for_each(Vec::clear);
    }
}

fn write_column<T: DataType>(
    writer: &mut ColumnWriterImpl<T>,
    values: &[T::T],
    (levels, repeats): (Option<&[i16]>, Option<&[i16]>),
) -> Result<(), ParquetError> {
    writer.write_batch(values, levels, repeats).map(drop)
}

/// A file that is being written.
pub(super) struct ParquetFile {
    /// It writes to memory, from where what is ready is taken after every group.
    writer: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Column>,
    row_count: usize,
}

impl ParquetFile {
    /// A file with these columns.
    ///
    /// # Errors
    ///
    /// The columns are none of Parquet.
    pub(super) fn new(columns: &[(&str, Kind)]) -> io::Result<Self> {
        let fields: String = columns.iter().map(|(name, kind)| field(name, *kind)).collect();
        let schema = parse_message_type(&format!("message flowpeel {{ {fields} }}")).map_err(io::Error::other)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("flowpeel ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL).map_err(io::Error::other)?))
            .set_dictionary_page_size_limit(DICTIONARY_SIZE_MAX);
        for (name, _) in columns.iter().filter(|(_, kind)| *kind == Kind::UniqueText) {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(*name), false);
        }
        let writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()));
        Ok(ParquetFile {
            writer: writer.map_err(io::Error::other)?,
            columns: columns.iter().map(|(_, kind)| Column::of(*kind)).collect(),
            row_count: 0,
        })
    }

    /// Adds a row, with a cell for each column.
    ///
    /// # Errors
    ///
    /// The group that it fills cannot be written.
    pub(super) fn row<'a>(&mut self, out: &mut dyn Write, cells: impl Iterator<Item = Cell<'a>>) -> io::Result<()> {
        let mut count = 0;
        self.columns.iter_mut().zip(cells).for_each(|(column, cell)| {
            column.push(cell);
            count += 1;
        });
        debug_assert_eq!(count, self.columns.len());
        self.row_count += 1;
        if self.row_count == GROUP_ROWS_MAX { self.group(out) } else { Ok(()) }
    }

    /// Writes the rows that are left, and the end of the file with these keys and values.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub(super) fn finish(
        mut self,
        out: &mut dyn Write,
        metadata: impl IntoIterator<Item = (&'static str, String)>,
    ) -> io::Result<()> {
        if self.row_count > 0 {
            self.group(out)?;
        }
        for (key, value) in metadata {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), Some(value)));
        }
        out.write_all(&self.writer.into_inner().map_err(io::Error::other)?)
    }

    fn group(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(io::Error::other)?;
        for column in &mut self.columns {
            if let Some(writer) = group.next_column().map_err(io::Error::other)? {
                column.write(writer).map_err(io::Error::other)?;
            }
            column.clear();
        }
        group.close().map_err(io::Error::other)?;
        self.row_count = 0;
        self.writer.flush()?;
        out.write_all(self.writer.inner())?;
        self.writer.inner_mut().clear();
        Ok(())
    }
}

/// A field of the schema.
pub(super) fn field(name: &str, kind: Kind) -> String {
    let repetition = if kind.is_optional() { "optional" } else { "required" };
    let (physical, logical) = match kind {
        Kind::Texts => {
            return format!(
                "required group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}\n"
            );
        }
        Kind::Text | Kind::UniqueText | Kind::OptionalText => ("binary", " (STRING)"),
        Kind::Number | Kind::OptionalNumber => ("int32", " (INTEGER(16,false))"),
        Kind::Long => ("int64", " (INTEGER(64,false))"),
        Kind::Time | Kind::OptionalTime => ("int64", " (TIMESTAMP(MICROS,true))"),
        Kind::Seconds => ("double", ""),
        Kind::Flag => ("boolean", ""),
    };
    format!("{repetition} {physical} {name}{logical};\n")
}
