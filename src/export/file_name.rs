//! The names of files with lists and snapshots, which say what a file is and when its interval ends.
//!
//! A list's end becomes a name, and a name found in a directory is read back. Names that are
//! not exactly ours are left alone, since files with our names may be removed.

use crate::error::Result;
use crate::export::series::Kind;
use crate::state::{Decoder, Encoder};
use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::Offset;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

const TIME: &str = "%Y%m%dT%H%M%SZ";

/// What the name of a list file says. Names order by time, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileName {
    /// The list's end, in whole seconds since 1970.
    pub(super) end_s: i64,
    /// A number that distinguishes lists that end in the same second. 1 is not written.
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) extension: Extension,
}

/// The end of a list file's name, which says how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extension {
    /// What it holds.
    pub(super) content: Content,
    /// Whether it is compressed with zstd.
    pub(super) is_compressed: bool,
}

/// What a list file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Content {
    /// Lines of JSON.
    #[default]
    Ndjson,
    /// Comma-separated values.
    Csv,
    /// Columns of Parquet.
    Parquet,
}

impl FileName {
    /// What this name says, if it is one of ours.
    pub(super) fn parse(name: &str) -> Option<Self> {
        if let Some(stem) = name.strip_suffix(".flowpeel").and_then(|stem| stem.strip_prefix("snapshot-")) {
            return FileName::of_stem(name, stem, Kind::Snapshot, Extension::default());
        }
        let (stem, is_compressed) = name.strip_suffix(".zst").map_or((name, false), |stem| (stem, true));
        let contents = [(".ndjson", Content::Ndjson), (".csv", Content::Csv), (".parquet", Content::Parquet)];
        let (stem, content) =
            contents.into_iter().find_map(|(end, content)| Some((stem.strip_suffix(end)?, content)))?;
        let (kind, stem) = match stem.strip_prefix("flows-") {
            Some(stem) => (Kind::Full, stem),
            None => match stem.strip_prefix("changes-") {
                Some(stem) => (Kind::Changes, stem),
                None => (Kind::Sources, stem.strip_prefix("sources-")?),
            },
        };
        let is_possible = content == Content::Ndjson || kind == Kind::Full;
        let extension = Extension { content, is_compressed };
        FileName::of_stem(name, stem, kind, extension).filter(|_| is_possible)
    }

    /// The name of the sources beside the list of this name, which are always NDJSON.
    pub(super) fn of_sources(self) -> Self {
        FileName { kind: Kind::Sources, extension: Extension { content: Content::Ndjson, ..self.extension }, ..self }
    }

    /// The path of the file below the directory of lists: those of Parquet stand in a directory for each hour.
    pub(super) fn path(self) -> PathBuf {
        let name = self.to_string();
        match self.extension.content {
            Content::Parquet => hour_directory(self.end_s).join(name),
            Content::Ndjson | Content::Csv => PathBuf::from(name),
        }
    }

    fn of_stem(name: &str, stem: &str, kind: Kind, extension: Extension) -> Option<Self> {
        let (time, number) = stem.split_once('_').unwrap_or((stem, "1"));
        let time = strtime::parse(TIME, time).ok()?.to_datetime().ok()?;
        let end_s = Offset::UTC.to_timestamp(time).ok()?.as_second();
        let parsed = FileName { end_s, number: number.parse().ok()?, kind, extension };
        // Numbers and times can be written in several ways, of which we use one.
        (parsed.to_string() == name).then_some(parsed)
    }
}

/// A time as names of files have it, to the second: `20260101T000010Z`.
fn time_text(time_s: i64) -> String {
    // Neither default is ever used: the calendar covers the seconds of every i64 of nanoseconds, and can write them.
    let time = Timestamp::from_second(time_s).unwrap_or(Timestamp::UNIX_EPOCH);
    strtime::format(TIME, time).unwrap_or_default()
}

/// The name of a file of events, without its extension: `events-20260101T000010Z`, and where that is taken
/// `events-20260101T000010Z-2` and so on.
pub(crate) fn events_stem(stem: &str, time_ns: i64, number: u64) -> String {
    let time = time_text(time_ns.div_euclid(1_000_000_000));
    match number {
        1 => format!("{stem}-{time}"),
        number => format!("{stem}-{time}-{number}"),
    }
}

/// The path of the directory that has the files of this hour, as hive names it: `date=2026-01-01/hour=08`.
pub(super) fn hour_directory(end_s: i64) -> PathBuf {
    let time = Timestamp::from_second(end_s).unwrap_or(Timestamp::UNIX_EPOCH);
    PathBuf::from(strtime::format("date=%Y-%m-%d/hour=%H", time).unwrap_or_default())
}

/// The directories of hours in a directory of lists.
pub(super) fn hour_directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let below = |directory: &Path, prefix: &str| -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
            if is_named && entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        Ok(found)
    };
    let mut hours = Vec::new();
    for date in below(directory, "date=")? {
        hours.extend(below(&date, "hour=")?);
    }
    Ok(hours)
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Full => "flows-",
            Kind::Changes => "changes-",
            Kind::Snapshot => "snapshot-",
            Kind::Sources => "sources-",
        })?;
        f.write_str(&time_text(self.end_s))?;
        if self.number > 1 {
            write!(f, "_{:03}", self.number)?;
        }
        f.write_str(match (self.kind, self.extension.content) {
            (Kind::Snapshot, _) => return f.write_str(".flowpeel"),
            (Kind::Full, Content::Csv) => ".csv",
            (Kind::Full, Content::Parquet) => ".parquet",
            _ => ".ndjson",
        })?;
        f.write_str(if self.extension.is_compressed { ".zst" } else { "" })
    }
}

/// What is known of the names given so far, that the next one depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names {
    /// The latest end of a list, in seconds. A list that does not end later needs a number in its name.
    latest_s: Option<i64>,
    /// Whether the last list ended before an earlier one.
    was_behind: bool,
    /// How many lists have been given a number.
    numbered: u64,
}

impl Names {
    /// The name of the list that ends at this time, to the second. A run never uses a name twice, even if the clock
    /// steps back; another run over the same packets uses the same names.
    pub(super) fn next(&mut self, end_ns: i64, next_kind: impl FnOnce() -> Kind, extension: Extension) -> FileName {
        let end_s = end_ns.div_euclid(1_000_000_000);
        let number = if self.latest_s.is_none_or(|latest_s| end_s > latest_s) {
            1
        } else {
            self.numbered += 1;
            self.numbered + 1
        };
        self.with_number(end_s, number, next_kind, extension)
    }

    /// The name of the list that ends in this second and has this number.
    pub(super) fn with_number(
        &mut self,
        end_s: i64,
        number: u64,
        next_kind: impl FnOnce() -> Kind,
        extension: Extension,
    ) -> FileName {
        // Changes are applied in the order of names, and a clock that stepped back puts names between earlier ones.
        let is_behind = self.latest_s.is_some_and(|latest_s| end_s < latest_s);
        let kind = if is_behind || self.was_behind { Kind::Full } else { next_kind() };
        self.latest_s = self.latest_s.max(Some(end_s));
        self.was_behind = is_behind;
        FileName { end_s, number, kind, extension }
    }

    /// Encodes it for a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.latest_s, Encoder::i64);
        encoder.bool(self.was_behind);
        encoder.u64(self.numbered);
    }

    /// Decodes what was saved.
    pub(super) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let latest_s = decoder.option(Decoder::i64)?;
        Ok(Names { latest_s, was_behind: decoder.bool()?, numbered: decoder.count()? })
    }
}

/// The name of a snapshot file. Names order by time, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName(FileName);

impl SnapshotName {
    /// The name as a [`SnapshotName`], if it is exactly one that flowpeel gives to snapshots.
    ///
    /// ```
    /// let name = flowpeel::export::SnapshotName::parse("snapshot-20260101T000010Z_002.flowpeel").ok_or("")?;
    /// assert_eq!((name.end_s(), name.number()), (1_767_225_610, 2));
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        FileName::parse(name).filter(|name| name.kind == Kind::Snapshot).map(SnapshotName)
    }

    /// When the interval ends, in whole seconds since 1970.
    #[must_use]
    pub fn end_s(self) -> i64 {
        self.0.end_s
    }

    /// The number that distinguishes snapshots that end in one second, from 1, which is not written.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.number
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a file with a list that can be read back, as NDJSON or Parquet, in full or as changes. Names order by
/// time, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListName(FileName);

impl ListName {
    /// The name as a [`ListName`], if it is exactly one that flowpeel gives to such files.
    ///
    /// ```
    /// use flowpeel::export::ListName;
    /// assert!(ListName::parse("flows-20260101T000010Z.ndjson.zst").is_some_and(|name| !name.is_changes()));
    /// assert!(ListName::parse("changes-20260101T000010Z.ndjson").is_some_and(ListName::is_changes));
    /// assert!(ListName::parse("flows-20260101T000010Z.parquet").is_some());
    /// assert_eq!(ListName::parse("flows-20260101T000010Z.csv"), None);
    /// ```
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = FileName::parse(name)?;
        let is_list = matches!(name.kind, Kind::Full | Kind::Changes) && name.extension.content != Content::Csv;
        is_list.then_some(ListName(name))
    }

    /// Whether it has what changed since the list before, and not the whole list.
    #[must_use]
    pub fn is_changes(self) -> bool {
        self.0.kind == Kind::Changes
    }

    /// The second in which the list ends, since 1970.
    #[must_use]
    pub fn end_s(self) -> i64 {
        self.0.end_s
    }

    /// The path of the file below the directory of lists: those of Parquet stand in a directory for each hour.
    ///
    /// ```
    /// use flowpeel::export::ListName;
    /// let name = ListName::parse("flows-20260101T081000Z.parquet").unwrap();
    /// assert_eq!(name.path().to_str(), Some("date=2026-01-01/hour=08/flows-20260101T081000Z.parquet"));
    /// ```
    #[must_use]
    pub fn path(self) -> PathBuf {
        self.0.path()
    }

    /// The names of the lists in a directory, in order.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn all_in(directory: &Path) -> io::Result<Vec<Self>> {
        let mut names = Vec::new();
        for place in [vec![directory.to_path_buf()], hour_directories(directory)?].concat() {
            for entry in fs::read_dir(&place)? {
                let name = entry?.file_name().to_str().and_then(ListName::parse);
                names.extend(name.filter(|name| directory.join(name.path()).parent() == Some(&place)));
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl fmt::Display for ListName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_is_not_exactly_ours_says_nothing() {
        for name in [
            "flows-20260101T000010Z.ndjson",
            "changes-20260101T000010Z_002.ndjson.zst",
            "flows-16770921T001243Z_1000.ndjson",
            "snapshot-20260101T000010Z.flowpeel",
            "snapshot-20260101T000010Z_002.flowpeel",
            "sources-20260101T000010Z_002.ndjson.zst",
            "flows-20260101T000010Z_002.csv.zst",
            "flows-20260101T000010Z.parquet",
        ] {
            assert_eq!(FileName::parse(name).map(|name| name.to_string()).as_deref(), Some(name));
        }
        for name in [
            "flows-.ndjson",
            "changes-20260101T000010Z.csv",
            "sources-20260101T000010Z.csv",
            "changes-20260101T000010Z.parquet",
            "flows-20260101T000010Z.flowpeel",
            "snapshot-20260101T000010Z.ndjson",
            "snapshot-20260101T000010Z.flowpeel.zst",
            "flows-20260101T000010Z",
            "flows-20260101T000010Z.ndjson.gz",
            "flows-20260101T000010Z.ndjson.zst.zst",
            "flows-20260101T000010Z.ndjson~",
            "flows-20260101T000010Z_1.ndjson",
            "flows-20260101T000010Z_001.ndjson",
            "flows-20260101T000010Z_02.ndjson",
            "flows-20260101T000010Z_+02.ndjson",
            "flows-20260101T000010Z_.ndjson",
            "flows-20261301T000010Z.ndjson",
            "flows-20260101T000010.ndjson",
            "flows- 2026101T000010Z.ndjson",
            "flows-2026-01-01T000010Z.ndjson",
            "my-flows-20260101T000010Z.ndjson",
            ".flows-abcdef.tmp",
            "Flows-20260101T000010Z.ndjson",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_says_what_it_was_made_from(end_ns: i64, number in 1u64.., kind in 0usize..5, is_compressed: bool) {
            let (kind, content) = [
                (Kind::Full, Content::Ndjson),
                (Kind::Changes, Content::Ndjson),
                (Kind::Sources, Content::Ndjson),
                (Kind::Full, Content::Csv),
                (Kind::Full, Content::Parquet),
            ][kind];
            let extension = Extension { content, is_compressed };
            let name = FileName { end_s: end_ns.div_euclid(1_000_000_000), number, kind, extension };
            prop_assert_eq!(FileName::parse(&name.to_string()), Some(name));
            prop_assert!(name.path().ends_with(name.to_string()));
        }

        #[test]
        fn any_other_text_is_refused_without_harm(text in ".{0,60}") {
            prop_assert!(FileName::parse(&text).is_none_or(|name| name.to_string() == text));
        }
    }
}
