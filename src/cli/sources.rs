//! `flowpeel sources`: a file that `--sources` wrote in, a table for people out.
//!
//! Anybody may have written the file. Every field was parsed as the number, address or time that it has to be, and is
//! printed as such, so no text of the file reaches the terminal as it is.

use crate::cli::report::{self, grouped};
use crate::cli::table::{self, Align};
use crate::cli::{Outcome, Status, print, values};
use crate::error::{Error, Result};
use crate::export::{SourceList, SourceListHeader, unpacked};
use clap::Args;
use jiff::Timestamp;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// The most sources that a table for people shows: more are for a program to read.
const SOURCES_TOP_MAX: u64 = 1 << 20;

/// Show who opened connections, from a file that --sources wrote
///
/// The sources with the most attempts come first. Where there were more sources than could be listed exactly, figures
/// are lower bounds, with upper bounds beside them.
#[derive(Args)]
#[command(
    display_name = "flowpeel sources",
    after_help = "Examples:\n  flowpeel sources lists/sources-20260101T000010Z.ndjson\n  \
    flowpeel sources --top 5 lists/sources-20260101T000010Z.ndjson.zst"
)]
pub(super) struct Arguments {
    /// The file, plain or compressed with zstd; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How many sources are shown
    #[arg(long, value_name = "N", default_value = "20", value_parser = values::number)]
    top: u64,
}

/// Opens the file, compressed or not.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let cannot = |error: std::io::Error| Error::new("cannot read it").in_file(path).because(error);
    let reader: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(std::io::stdin()) } else { Box::new(File::open(path).map_err(cannot)?) };
    unpacked(reader).map_err(cannot)
}

/// A time as short as it can be.
fn time(time_ns: i64) -> Timestamp {
    // All times of 64 bits are within the calendar.
    Timestamp::from_nanosecond(time_ns.into()).unwrap_or_default()
}

/// A table for people.
fn text(list: &SourceList) -> String {
    let SourceListHeader { start_ns, end_ns, attempts, answered, refused, dropped, cut, .. } = list.header;
    let mut text = format!("{} to {}\n", time(start_ns), time(end_ns));
    text += &format!(
        "{} sources, {} attempts, {} answered, {} refused\n",
        grouped(list.header.sources),
        grouped(attempts),
        grouped(answered),
        grouped(refused)
    );
    if dropped > 0 {
        text += &format!("{} packets were lost\n", grouped(dropped));
    }
    if cut > 0 {
        text += &format!("{} packets were cut by the capture before their TCP flags\n", grouped(cut));
    }
    if !list.header.complete {
        text += &format!("not complete: about {} sources are not named\n", grouped(list.header.missing));
    }
    text.push('\n');
    let heads = ["source", "attempts", "answered", "refused", "unanswered", ""].map(str::to_owned);
    let rows = list.top.iter().map(|(address, figures)| {
        let most = figures.attempts_max.map_or(String::new(), |most| format!("at most {}", grouped(most)));
        let counts = [figures.attempts, figures.answered, figures.refused, figures.unanswered].map(grouped);
        let [attempts, answered, refused, unanswered] = counts;
        [address.to_string(), attempts, answered, refused, unanswered, most]
    });
    let rows: Vec<[String; 6]> = std::iter::once(heads).chain(rows).collect();
    let [name, count] = [Align::Left, Align::Right];
    text += &table::text(&rows, [name, count, count, count, count, name]);
    let left = list.source_count - list.top.len() as u64;
    if left > 0 {
        text += &format!("and {} more\n", grouped(left));
    }
    text
}

/// Shows the file that the arguments name.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let top = arguments.top.min(SOURCES_TOP_MAX) as usize;
    let list =
        SourceList::read(open(&arguments.file)?.as_mut(), top).map_err(|error| error.in_file(&arguments.file))?;
    print(text(&list).as_bytes())?;
    if list.source_count != list.header.sources {
        let what = format!("its header has {} sources and {} follow", list.header.sources, list.source_count);
        report::error(&Error::new(what).in_file(&arguments.file), "; what is there is shown");
        return Ok(Status::Failed);
    }
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = r#"{"timestamp":"2026-01-01T00:00:10.000000Z","event_type":"source_list","source_list":{"interval":1,"start":"2026-01-01T00:00:00.000000Z","end":"2026-01-01T00:00:10.000000Z","complete":false,"sources":3,"missing":12,"attempts":1500,"answered":9,"refused":1,"dropped":2,"merged":0}}"#;

    fn line(address: &str, attempts: u64, more: &str) -> String {
        format!(
            r#"{{"timestamp":"x","event_type":"source","src_ip":"{address}","source":{{"attempts":{attempts},"answered":1,"refused":0,"unanswered":2,"sure":true{more}}}}}"#
        )
    }

    fn read(text: &str, top: usize) -> Result<SourceList> {
        SourceList::read(&mut text.as_bytes(), top)
    }

    #[test]
    fn the_top_of_a_file_is_shown_whatever_its_order() {
        let lines = [
            HEADER,
            &line("10.0.0.1", 3, ""),
            &line("2001:db8::1", 1_400, r#","attempts_max":1410"#),
            &line("10.0.0.2", 3, ""),
        ];
        let list = read(&lines.join("\n"), 2).unwrap();
        let text = super::text(&list);
        let expected = "2026-01-01T00:00:00Z to 2026-01-01T00:00:10Z\n3 sources, 1,500 attempts, 9 answered, 1 refused\n\
            2 packets were lost\nnot complete: about 12 sources are not named\n\n\
            source       attempts  answered  refused  unanswered\n\
            2001:db8::1     1,400         1        0           2  at most 1,410\n\
            10.0.0.1            3         1        0           2\nand 1 more\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let long = format!("{HEADER}\n{}", "x".repeat(1 << 20));
        let two = format!("{HEADER}\n{HEADER}");
        let strange = line("10.0.0.1\\u001b[2J", 1, "");
        for text in ["", "\n", "{}", &line("10.0.0.1", 1, ""), &long, &two, &format!("{HEADER}\n{strange}")] {
            let error = read(text, 9).err().unwrap().to_string();
            assert!(!error.contains('\x1b') && error.len() < 200, "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_other_text_is_refused_without_harm(text in ".{0,300}", behind: bool) {
            let text = if behind { format!("{HEADER}\n{text}") } else { text };
            if let Ok(list) = read(&text, 3) {
                prop_assert!(super::text(&list).lines().all(|line| !line.contains(char::is_control)));
            }
        }
    }
}
