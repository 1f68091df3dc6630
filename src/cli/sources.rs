//! `flowpeel sources`: a file that `--sources` wrote in, a table for people out.
//!
//! What enters: NDJSON that anybody may have written. What leaves: a table on standard output. Every field is parsed as
//! the number, address or time that it has to be, and printed as such, so no text of the file reaches the terminal as
//! it is.

use crate::cli::report::{self, grouped};
use crate::cli::table::{self, Align};
use crate::cli::{Outcome, Status, print, values};
use crate::error::{Error, Result};
use crate::export::unpacked;
use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use std::cmp::Reverse;
use std::fs::File;
use std::io::{BufRead, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The longest line of a file of sources that is read back, in bytes: lines that flowpeel writes have fewer than 300.
const SOURCE_LINE_SIZE_MAX: u64 = 4 << 10;

/// The most sources that a table for people shows: more are for a program to read.
const SOURCES_TOP_MAX: u64 = 1 << 20;

/// Shows who opened connections, from a file that --sources wrote
///
/// Sources are shown with the most attempts first. Where more sources came than could be listed, figures are what there
/// was at least, with the most that there may have been beside them.
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

#[derive(Deserialize)]
struct Line {
    source_list: Option<Header>,
    src_ip: Option<IpAddr>,
    source: Option<Fields>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "time")]
    start: Timestamp,
    #[serde(deserialize_with = "time")]
    end: Timestamp,
    complete: bool,
    sources: u64,
    missing: u64,
    attempts: u64,
    answered: u64,
    refused: u64,
    dropped: u64,
}

#[derive(Clone, Copy, Deserialize)]
struct Fields {
    attempts: u64,
    answered: u64,
    refused: u64,
    unanswered: u64,
    attempts_max: Option<u64>,
}

/// Reads a time in the form that lists have.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Timestamp, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// The contents of a file: its header, and the sources with the most attempts.
struct Told {
    header: Header,
    top: Vec<(IpAddr, Fields)>,
    source_count: u64,
}

/// Opens the file, compressed or not.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let cannot = |error: std::io::Error| Error::new("cannot read it").in_file(path).because(error);
    let reader: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(std::io::stdin()) } else { Box::new(File::open(path).map_err(cannot)?) };
    unpacked(reader).map_err(cannot)
}

/// Reads a file to its end.
fn read(reader: &mut dyn BufRead, top: usize) -> Result<Told> {
    let mut told: Option<Told> = None;
    let mut line = Vec::new();
    let mut offset = 0;
    loop {
        line.clear();
        let read = reader.take(SOURCE_LINE_SIZE_MAX + 1).read_until(b'\n', &mut line);
        let size = read.map_err(|error| Error::new("cannot read on").at(offset).because(error))? as u64;
        if size == 0 {
            break;
        }
        let strange = || Error::new("this is no line of a file that --sources wrote").at(offset);
        if size > SOURCE_LINE_SIZE_MAX {
            return Err(strange().because("it is too long"));
        }
        let parsed: Line = serde_json::from_slice(&line).map_err(|_| strange())?;
        match (parsed, &mut told) {
            (Line { source_list: Some(header), src_ip: None, source: None }, told @ None) => {
                *told = Some(Told { header, top: Vec::new(), source_count: 0 });
            }
            (Line { source_list: None, src_ip: Some(address), source: Some(fields) }, Some(told)) => {
                told.source_count += 1;
                told.top.push((address, fields));
                // Files that flowpeel writes are sorted; others must not take more memory.
                if told.top.len() >= 2 * top + 2 {
                    told.keep(top);
                }
            }
            _ => return Err(strange()),
        }
        offset += size;
    }
    let mut told = told.ok_or_else(|| Error::new("it is empty: --sources writes a header at least"))?;
    told.keep(top);
    Ok(told)
}

impl Told {
    /// Forgets all but the `top` sources with the most attempts.
    fn keep(&mut self, top: usize) {
        self.top.sort_by_key(|&(address, fields)| (Reverse(fields.attempts), address));
        self.top.truncate(top);
    }

    fn text(&self) -> String {
        let Header { start, end, attempts, answered, refused, dropped, .. } = self.header;
        let mut text = format!("{start} to {end}\n");
        text += &format!(
            "{} sources, {} attempts, {} answered, {} refused\n",
            grouped(self.header.sources),
            grouped(attempts),
            grouped(answered),
            grouped(refused)
        );
        if dropped > 0 {
            text += &format!("{} packets were lost\n", grouped(dropped));
        }
        if !self.header.complete {
            text += &format!("not complete: about {} sources are not named\n", grouped(self.header.missing));
        }
        text.push('\n');
        let heads = ["source", "attempts", "answered", "refused", "unanswered", ""].map(str::to_owned);
        let rows = self.top.iter().map(|(address, fields)| {
            let most = fields.attempts_max.map_or(String::new(), |most| format!("at most {}", grouped(most)));
            let counts = [fields.attempts, fields.answered, fields.refused, fields.unanswered].map(grouped);
            let [attempts, answered, refused, unanswered] = counts;
            [address.to_string(), attempts, answered, refused, unanswered, most]
        });
        let rows: Vec<[String; 6]> = std::iter::once(heads).chain(rows).collect();
        let [name, count] = [Align::Left, Align::Right];
        text += &table::text(&rows, [name, count, count, count, count, name]);
        let left = self.source_count - self.top.len() as u64;
        if left > 0 {
            text += &format!("and {} more\n", grouped(left));
        }
        text
    }
}

/// Shows the file that the arguments name.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let top = arguments.top.min(SOURCES_TOP_MAX) as usize;
    let told = read(open(&arguments.file)?.as_mut(), top).map_err(|error| error.in_file(&arguments.file))?;
    print(told.text().as_bytes())?;
    if told.source_count != told.header.sources {
        let what = format!("its header tells of {} sources and {} follow", told.header.sources, told.source_count);
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

    fn told(text: &str, top: usize) -> Result<Told> {
        read(&mut text.as_bytes(), top)
    }

    #[test]
    fn the_top_of_a_file_is_shown_whatever_its_order() {
        let lines = [
            HEADER,
            &line("10.0.0.1", 3, ""),
            &line("2001:db8::1", 1_400, r#","attempts_max":1410"#),
            &line("10.0.0.2", 3, ""),
        ];
        let told = told(&lines.join("\n"), 2).unwrap();
        let text = told.text();
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
            let error = told(text, 9).err().unwrap().to_string();
            assert!(!error.contains('\x1b') && error.len() < 200, "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_other_text_is_refused_without_harm(text in ".{0,300}", behind: bool) {
            let text = if behind { format!("{HEADER}\n{text}") } else { text };
            if let Ok(told) = told(&text, 3) {
                prop_assert!(told.text().lines().all(|line| !line.contains(char::is_control)));
            }
        }
    }
}
