//! Parquet: flow records as a table of columns, for pandas, DuckDB and the like (Apache Parquet, *File Format*).
//!
//! A row is a record as the flow table reports it, both directions together; a long flow has a row for each report, with
//! totals. Rows wait in memory until there are enough for a *row group*, which is then written column by column,
//! compressed (Snappy). The index of the file is its end: a file can be read when [`Table::close`] has returned, and not
//! before.
//!
//! Columns: `flow_id`, `start`, `end`, `client`, `server`, `client_port`, `server_port`, `protocol`, `proto`, `icmp_type`,
//! `icmp_code`, `vlan`, `vlan_inner`, `tunnels`, `port`, `state`, `reason`, `tcp_state`, `handshake_rtt_ns`, `community_id`,
//! and, with the prefixes `client_` and `server_` for what the two ends sent: `packets`, `bytes`, `ip_bytes`, `ttl_min`,
//! `ttl_max`, `tcp_flags`, `stream_bytes`, `retransmissions`, `out_of_order`, `overlaps`, `conflicts`, `gaps`,
//! `gap_bytes`, `rtt_min_ns`. Names and meanings are those of [`FlowRecord`].
//!
//! The package `parquet` is used without `arrow`: columns are made here, and a third of its packages stays out.
//!
//! Threads: a table belongs to the thread that writes it, which waits for the disk; a [`Writer`] has one for that.

mod columns;
mod writer;

use std::fs::File;
use std::io;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use stream::FlowRecord;

use columns::{Column, Source};
pub use writer::{Counters, Writer};

/// Settings of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rows of a row group: as many records wait in memory, about 350 bytes each. At least 1.
    pub row_group_rows: usize,
    /// Seed of [`crate::community_id`]; without it the column has no values.
    pub community_id_seed: Option<u16>,
}

impl Default for Options {
    /// 65,536 rows, no Community ID.
    fn default() -> Self {
        Self { row_group_rows: 1 << 16, community_id_seed: None }
    }
}

/// A table that is being written. If it is dropped without [`Table::close`], the file is ended as well as possible, and
/// errors are lost.
pub struct Table {
    /// `None` after an error, and when the file is closed: then nothing more is written.
    writer: Option<SerializedFileWriter<File>>,
    options: Options,
    rows: Vec<FlowRecord>,
    written: u64,
}

impl Table {
    /// Makes the file, replacing one that is there; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be made or written to.
    pub fn create(path: &Path, options: Options) -> io::Result<Table> {
        let file = files::output::create(path)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("shadeline ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let schema = schema().map_err(io_error)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties));
        let writer = Some(writer.map_err(io_error)?);
        Ok(Table { writer, options, rows: Vec::new(), written: 0 })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// A row group could not be written. The file is broken then, and all further rows are refused.
    pub fn write(&mut self, record: &FlowRecord) -> io::Result<()> {
        if self.writer.is_none() {
            return Err(io::Error::other("the table is broken by an earlier error"));
        }
        self.rows.push(record.clone());
        match self.rows.len() >= self.options.row_group_rows {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Rows in row groups that were written.
    pub fn rows_written(&self) -> u64 {
        self.written
    }

    /// Writes what waits and the index, and returns the number of rows. The file can be read then.
    ///
    /// # Errors
    /// It could not be written, or an earlier row group.
    pub fn close(mut self) -> io::Result<u64> {
        self.finish()
    }

    fn finish(&mut self) -> io::Result<u64> {
        self.flush()?;
        let Some(writer) = self.writer.take() else {
            return Err(io::Error::other("the table is broken by an earlier error"));
        };
        writer.close().map_err(io_error)?;
        Ok(self.written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let rows = take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        write_group(&mut writer, &rows, self.options.community_id_seed).map_err(io_error)?;
        self.written += rows.len() as u64;
        self.writer = Some(writer);
        self.rows = rows;
        self.rows.clear();
        Ok(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// The error of the file where it is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

fn schema() -> Result<TypePtr, ParquetError> {
    let fields: Result<Vec<TypePtr>, _> = columns::all().map(field).collect();
    let root = Type::group_type_builder("flows").with_fields(fields?).build()?;
    Ok(Arc::new(root))
}

fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let time = LogicalType::timestamp(true, TimeUnit::NANOS);
    let (physical, logical) = match column.source {
        Source::Time(_) => (Physical::INT64, Some(time)),
        Source::Id(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Source::Count(_) | Source::CountIfKnown(_) => (Physical::INT64, None),
        Source::Small(_) | Source::SmallIfAny(_) => (Physical::INT32, None),
        Source::Word(_)
        | Source::WordIfAny(_)
        | Source::Text(_)
        | Source::TextIfAny(_)
        | Source::CommunityId => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let is_optional = matches!(
        column.source,
        Source::CountIfKnown(_)
            | Source::SmallIfAny(_)
            | Source::WordIfAny(_)
            | Source::TextIfAny(_)
            | Source::CommunityId
    );
    let repetition = if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(column.name, physical);
    let field = builder.with_logical_type(logical).with_repetition(repetition).build()?;
    Ok(Arc::new(field))
}

type Group<'a> = SerializedRowGroupWriter<'a, File>;

fn write_group(
    writer: &mut SerializedFileWriter<File>,
    rows: &[FlowRecord],
    seed: Option<u16>,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns::all() {
        let words = |word: &'static str| ByteArray::from(Bytes::from_static(word.as_bytes()));
        match column.source {
            Source::Time(of) | Source::Count(of) => {
                whole::<Int64Type>(&mut group, rows, |row| signed(of(row)))?;
            }
            // Parquet has no unsigned type of its own: the same 64 bits.
            Source::Id(of) => whole::<Int64Type>(&mut group, rows, |row| of(row) as i64)?,
            Source::CountIfKnown(of) => {
                partial::<Int64Type>(&mut group, rows, |row| of(row).map(signed))?;
            }
            Source::Small(of) => whole::<Int32Type>(&mut group, rows, |row| of(row) as i32)?,
            Source::SmallIfAny(of) => {
                partial::<Int32Type>(&mut group, rows, |row| of(row).map(|value| value as i32))?;
            }
            Source::Word(of) => whole::<ByteArrayType>(&mut group, rows, |row| words(of(row)))?,
            Source::WordIfAny(of) => {
                partial::<ByteArrayType>(&mut group, rows, |row| of(row).map(words))?;
            }
            Source::Text(of) => put::<ByteArrayType>(&mut group, &texts(rows, of), None)?,
            Source::TextIfAny(of) => {
                let mut texts = texts(rows, of);
                let levels: Vec<_> = texts.iter().map(|text| i16::from(!text.is_empty())).collect();
                texts.retain(|text| !text.is_empty());
                put::<ByteArrayType>(&mut group, &texts, Some(&levels))?;
            }
            Source::CommunityId => match seed {
                Some(seed) => {
                    let texts = texts(rows, |row, text| columns::community_id(seed, row, text));
                    put::<ByteArrayType>(&mut group, &texts, Some(&vec![1; rows.len()]))?;
                }
                None => partial::<ByteArrayType>(&mut group, rows, |_| None)?,
            },
        }
    }
    group.close()?;
    Ok(())
}

/// A column with a value in every row.
fn whole<T: DataType>(
    group: &mut Group<'_>,
    rows: &[FlowRecord],
    of: impl Fn(&FlowRecord) -> T::T,
) -> Result<(), ParquetError> {
    put::<T>(group, &rows.iter().map(of).collect::<Vec<_>>(), None)
}

/// A column with a value in some rows.
fn partial<T: DataType>(
    group: &mut Group<'_>,
    rows: &[FlowRecord],
    of: impl Fn(&FlowRecord) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let mut values = Vec::new();
    let level = |row| {
        let value = of(row);
        let level = i16::from(value.is_some());
        values.extend(value);
        level
    };
    let levels: Vec<i16> = rows.iter().map(level).collect();
    put::<T>(group, &values, Some(&levels))
}

/// Values, and for each row whether it has one (definition levels).
fn put<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let what = "the schema has more columns";
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General(what.into()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Texts of all rows, in one allocation.
fn texts(rows: &[FlowRecord], of: impl Fn(&FlowRecord, &mut String)) -> Vec<ByteArray> {
    let mut text = String::new();
    let mut ends = Vec::with_capacity(rows.len());
    for row in rows {
        of(row, &mut text);
        ends.push(text.len());
    }
    let text = Bytes::from(text);
    let starts = [0].into_iter().chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, end)| ByteArray::from(text.slice(start..*end))).collect()
}

/// The largest signed number instead of a larger one.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
