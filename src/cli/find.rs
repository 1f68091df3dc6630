//! `flowpeel find`: an archive and a question in, every connection that is asked for out.

use crate::archive::{self, Endpoint, Entry, Explanation, Findings, Query, Question};
use crate::cli::report::{self, Voice};
use crate::cli::showing::{PARQUET_ON_STDOUT, ShapeKind, TABLE_IN_FILES};
use crate::cli::table::{self, Align};
use crate::cli::{Failure, Outcome, Status, print, values};
use crate::error::{Error, Result};
use crate::export::{
    ArchivedFiles, ArchivedFlow, ArchivedFormat, append_archived, append_archived_eve, archived_csv, rfc3339,
};
use crate::select::Filter;
use clap::Args;
use std::path::{Path, PathBuf};

/// Connections that are printed together: lines of a megabyte.
const PRINTED_MAX: usize = 4_096;

/// Find connections in an archive
///
/// Prints every connection that has the given ends, is selected by the filter and was open at the given time. An end is
/// an address, or an address and a port, of the client or the server: 10.0.0.1, 10.0.0.1:40000, ::1, [::1]:443.
///
/// With ends connections come by the time of their start; without, they are printed as they are read: those that have
/// ended about in the order of their ends, then those that are open. Only what can hold an answer is read, by index
/// where addresses are asked for, and by time. An archive can be asked while a capture writes to it: what closed within
/// the last second may not be there yet, and what is open is known as of the last minute.
///
/// Exit status: 0 something was found, 3 nothing was, 1 something is damaged or failed (what can be read is printed all
/// the same), 2 wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel find",
    after_help = "Examples:\n  flowpeel find archive/ 10.0.0.1:40000 93.184.216.34:443\n  \
    flowpeel find archive/ --filter 'net 10.2.0.0/16 and reason rst' --since 2h\n  \
    flowpeel find archive/ 2001:db8::7 '[2001:db8::1]:443' | jq .flow"
)]
pub(super) struct Arguments {
    /// The directory of the archive
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// One end of the connections, or both
    #[arg(value_name = "ADDRESS[:PORT]", num_args = 0..=2)]
    ends: Vec<Endpoint>,

    /// What connections look like [default: table on a terminal, otherwise ndjson]
    #[arg(long, value_name = "FORMAT")]
    format: Option<ShapeKind>,

    /// Write files to this directory, as archive export does
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    #[command(flatten)]
    part: PartOfArchive,

    /// Print no more than this many
    #[arg(long, value_name = "N", value_parser = values::count)]
    limit: Option<u64>,

    /// Say on standard error how many segments were read
    #[arg(long)]
    explain: bool,
}

/// Which connections of an archive are wanted.
#[derive(Args)]
pub(super) struct PartOfArchive {
    /// These only: 'server port 443 and age > 1h and reason rst'
    ///
    /// The language of docs/filter.md, with the end and the reason of a connection beside the rest.
    #[arg(long, value_name = "EXPR")]
    filter: Option<Filter>,

    /// What was open then or later: 2026-01-01T08:00:00Z, 2026-01-01, or 2h for so long ago
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    since: Option<i64>,

    /// What was open before this time
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    until: Option<i64>,
}

impl PartOfArchive {
    /// The question for these connections, between these ends if some are given.
    pub(super) fn question(&self, ends: Option<Query>) -> Question {
        Question { ends, filter: self.filter.clone(), since_ns: self.since, until_ns: self.until }
    }

    fn is_all(&self) -> bool {
        self.filter.is_none() && self.since.is_none() && self.until.is_none()
    }
}

impl Arguments {
    fn question(&self) -> Question {
        let ends = self.ends.first().map(|one| Query { one: *one, other: self.ends.get(1).copied() });
        self.part.question(ends)
    }

    fn destination(&self) -> std::result::Result<Destination, Failure> {
        match (&self.out, ShapeKind::on_stdout(self.format)) {
            (Some(directory), _) => Destination::files(directory, self.format.unwrap_or(ShapeKind::Ndjson)),
            (None, ShapeKind::Parquet) => Err(Failure::wrong_usage(Error::new(PARQUET_ON_STDOUT))),
            (None, kind) => Ok(Destination::Stdout(kind)),
        }
    }
}

/// Finds what the arguments ask for.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    if arguments.ends.is_empty() && arguments.part.is_all() {
        let what = "say what to find: an address, --filter, --since or --until";
        return Err(Failure::wrong_usage(Error::new(what)));
    }
    let printer = Printer::new(arguments.destination()?, arguments.limit);
    let explains = arguments.explain || voice == Voice::Verbose;
    let (status, _) = answer(&arguments.directory, arguments.question(), printer, explains)?;
    Ok(status)
}

/// Writes what answers a question. Returns how the command ends, and how many connections were written.
pub(super) fn answer(
    directory: &Path,
    question: Question,
    mut printer: Printer,
    explains: bool,
) -> Result<(Status, u64)> {
    let findings = if question.ends.is_some() {
        let answer = archive::find(directory, question)?;
        for entry in &answer.entries {
            if !printer.take(entry)? {
                break;
            }
        }
        Findings { damages: answer.damages, explanation: answer.explanation }
    } else {
        archive::search(directory, &question, |entry| printer.take(entry))?
    };
    let printed = printer.finish()?;
    for damage in &findings.damages {
        report::error(damage, "");
    }
    if explains {
        explain(&findings.explanation);
    }
    let status = if !findings.damages.is_empty() {
        Status::Failed
    } else if printed == 0 {
        Status::No
    } else {
        Status::Done
    };
    Ok((status, printed))
}

fn explain(how: &Explanation) {
    report::line(format_args!(
        "found {}; read {} of {} segments, {} in vain, {} out of time; asked {} indexes and {} filters",
        report::grouped(how.found),
        report::grouped(how.read),
        report::grouped(how.segments),
        report::grouped(how.read_in_vain),
        report::grouped(how.out_of_time),
        report::grouped(how.indexes_asked),
        report::grouped(how.filters_asked)
    ));
}

/// Where connections go.
pub(super) enum Destination {
    Stdout(ShapeKind),
    Files(Box<ArchivedFiles>),
}

impl Destination {
    /// Files in this directory.
    pub(super) fn files(directory: &Path, kind: ShapeKind) -> std::result::Result<Self, Failure> {
        let format = match kind {
            ShapeKind::Ndjson => ArchivedFormat::Ndjson,
            ShapeKind::Eve => ArchivedFormat::Eve,
            ShapeKind::Csv => ArchivedFormat::Csv,
            ShapeKind::Parquet => ArchivedFormat::Parquet,
            ShapeKind::Table => return Err(Failure::wrong_usage(Error::new(TABLE_IN_FILES))),
        };
        format.check().map_err(Failure::wrong_usage)?;
        Ok(Destination::Files(Box::new(ArchivedFiles::new(directory, format)?)))
    }

    fn write(&mut self, entries: &[Entry], begins: bool) -> Result<()> {
        let kind = match self {
            Destination::Stdout(kind) => *kind,
            Destination::Files(files) => {
                return entries.iter().try_for_each(|entry| files.write(&ArchivedFlow::from(entry)));
            }
        };
        print(&match kind {
            ShapeKind::Table => table(entries, begins).into_bytes(),
            ShapeKind::Eve => lines(entries, append_archived_eve),
            ShapeKind::Csv => archived_csv(entries.iter().map(ArchivedFlow::from), begins),
            ShapeKind::Ndjson | ShapeKind::Parquet => lines(entries, append_archived),
        })
    }

    fn finish(self) -> Result<()> {
        match self {
            Destination::Stdout(_) => Ok(()),
            Destination::Files(files) => files.finish(),
        }
    }
}

/// Writes connections as they come, some at a time.
pub(super) struct Printer {
    destination: Destination,
    left: u64,
    waiting: Vec<Entry>,
    printed: u64,
}

impl Printer {
    /// Writes no more than this many.
    pub(super) fn new(destination: Destination, limit: Option<u64>) -> Self {
        Printer { destination, left: limit.unwrap_or(u64::MAX), waiting: Vec::new(), printed: 0 }
    }

    /// Takes a connection, if there may be one more. Returns whether there may be another.
    fn take(&mut self, entry: &Entry) -> Result<bool> {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            self.waiting.push(*entry);
        }
        if self.waiting.len() == PRINTED_MAX {
            self.flush()?;
        }
        Ok(self.left > 0)
    }

    fn flush(&mut self) -> Result<()> {
        self.destination.write(&self.waiting, self.printed == 0)?;
        self.printed += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Writes what is left. Returns how many connections were written.
    fn finish(mut self) -> Result<u64> {
        // Without a connection csv has the names of its columns all the same.
        if !self.waiting.is_empty() || self.printed == 0 {
            self.flush()?;
        }
        self.destination.finish()?;
        Ok(self.printed)
    }
}

/// A line of JSON for each connection.
fn lines(entries: &[Entry], append: impl Fn(&mut Vec<u8>, &ArchivedFlow)) -> Vec<u8> {
    let mut text = Vec::new();
    entries.iter().for_each(|entry| append(&mut text, &ArchivedFlow::from(entry)));
    text
}

/// A table for people, with the names of the columns if it begins one.
fn table(entries: &[Entry], begins: bool) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let names = ["START", "END", "SECONDS", "CLIENT", "SERVER", "ENDED BY"].map(str::to_owned);
    let mut rows: Vec<_> = begins.then_some(names).into_iter().collect();
    rows.extend(entries.iter().map(|entry| {
        // To the tenth of a second, which is all that is known.
        let short = |time_ns| format!("{}Z", rfc3339(time_ns).get(..21).unwrap_or_default());
        let mark = match (entry.may_be_older, entry.midstream) {
            (true, _) => " or earlier",
            (_, true) => " (seen)",
            _ => "",
        };
        let reason = entry.fate.reason();
        let age_ms = entry.age_ns() / 1_000_000;
        let tags: Vec<String> = entry.vlan().iter().map(|tag| tag.to_string()).collect();
        let vlan = if tags.is_empty() { String::new() } else { format!(" (VLAN {})", tags.join(".")) };
        [
            short(entry.start_ns()) + mark,
            reason.map_or_else(|| "-".to_owned(), |_| short(entry.end_ns())),
            format!("{}.{}", age_ms / 1_000, age_ms % 1_000 / 100),
            entry.client().to_string(),
            entry.server().to_string() + &vlan,
            reason.map_or_else(|| format!("open at {}", short(entry.end_ns())), str::to_owned),
        ]
    }));
    let mut aligns = [Align::Left; 6];
    aligns[2] = Align::Right;
    table::text(&rows, aligns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Fate;
    use crate::flow::AnyKey;
    use crate::flow::VlanTags;
    use crate::record::Ending;

    fn entry(fate: Fate) -> Entry {
        let key =
            AnyKey::of_ends("10.0.0.1:40000".parse().unwrap(), "93.184.216.34:443".parse().unwrap(), VlanTags::NONE);
        let (start, end) = (17_672_256_005, 17_672_256_100);
        Entry { end, key: key.unwrap(), start, clock_set: 0, fate, midstream: false, may_be_older: false }
    }

    #[test]
    fn a_line_is_as_the_contract_says() {
        let head = r#"{"timestamp":"2026-01-01T00:00:10.000000Z","event_type":"flow","src_ip":"10.0.0.1","src_port":40000,"dest_ip":"93.184.216.34","dest_port":443,"proto":"TCP","community_id":"1:+fu2KbftImRzbfCHYFp9WDsl/xA=","flow":{"start":"2026-01-01T00:00:00.500000Z","#;
        let text = |fate| String::from_utf8(lines(&[entry(fate)], append_archived)).unwrap();
        let closed = r#""end":"2026-01-01T00:00:10.000000Z","age":9.5,"state":"closed","reason":"fin"}}"#;
        assert_eq!(text(Fate::Ended(Ending::Fin)), format!("{head}{closed}\n"));
        assert_eq!(text(Fate::Open), format!("{head}\"age\":9.5,\"state\":\"established\"}}}}\n"));
    }

    #[test]
    fn a_table_has_a_row_for_each() {
        let text = table(&[entry(Fate::Ended(Ending::Rst)), entry(Fate::Open)], true);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3);
        assert!(
            rows[1].starts_with("2026-01-01T00:00:00.5Z  2026-01-01T00:00:10.0Z") && rows[1].ends_with("  rst"),
            "{text}"
        );
        assert!(rows[2].ends_with("93.184.216.34:443  open at 2026-01-01T00:00:10.0Z"), "{text}");
        assert_eq!(table(&[], true), "");
    }
}
