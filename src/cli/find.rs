//! `flowpeel find`: an archive and one or two ends in, every connection between them out.

use crate::archive::{self, Answer, Endpoint, Entry, Query};
use crate::cli::report::{self, Voice};
use crate::cli::showing::ShapeKind;
use crate::cli::table::{self, Align};
use crate::cli::{Outcome, Status, print};
use crate::export::{ArchivedFlow, append_archived, append_archived_eve, archived_csv, rfc3339};
use crate::list::RowState;
use crate::select::{Facts, Filter};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Find connections in an archive
///
/// Prints every connection between the given ends, whichever is the client, by the time of their start. An end is an
/// address, or an address and a port: 10.0.0.1, 10.0.0.1:40000, ::1, [::1]:443. With two ends of address and port only
/// the segments that can hold that connection are read. An archive can be asked while a capture writes to it: what
/// closed within the last second may not be there yet, and what is open is known as of the last minute.
///
/// Exit status: 0 something was found, 3 nothing was, 1 something is damaged or failed (what can be read is printed all
/// the same), 2 wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel find",
    after_help = "Examples:\n  flowpeel find archive/ 10.0.0.1:40000 93.184.216.34:443\n  flowpeel find archive/ 10.0.0.1\n  \
    flowpeel find archive/ 2001:db8::7 '[2001:db8::1]:443' | jq .flow"
)]
pub(super) struct Arguments {
    /// The directory of the archive
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// One end of the connections, or both
    #[arg(value_name = "ADDRESS[:PORT]", required = true, num_args = 1..=2, value_parser = endpoint)]
    ends: Vec<Endpoint>,

    /// What connections look like [default: table on a terminal, otherwise ndjson]
    #[arg(long, value_name = "FORMAT")]
    format: Option<ShapeKind>,

    /// Print these only: 'server port 443 and age > 1h and reason rst'
    ///
    /// The language of docs/filter.md, with the end and the reason of a connection beside the rest.
    #[arg(long, value_name = "EXPR")]
    filter: Option<Filter>,

    /// Say on standard error how many segments were read
    #[arg(long)]
    explain: bool,
}

/// An address with or without a port.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Ok(Endpoint { address: end.ip(), port: Some(end.port()) });
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>();
    address.map(|address| Endpoint { address, port: None }).map_err(|_| {
        "an end is an address, or an address and a port: 10.0.0.1, 10.0.0.1:443, ::1, [::1]:443".to_owned()
    })
}

/// Finds what the arguments ask for.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let Some(one) = arguments.ends.first().copied() else { return Ok(Status::WrongUsage) };
    let query = Query { one, other: arguments.ends.get(1).copied() };
    let mut answer = archive::find(&arguments.directory, &query)?;
    if let Some(filter) = &arguments.filter {
        answer.entries.retain(|entry| filter.selects(&facts(entry)));
    }
    print(&match ShapeKind::on_stdout(arguments.format) {
        ShapeKind::Table => table(&answer.entries).into_bytes(),
        ShapeKind::Ndjson => lines(&answer.entries, append_archived),
        ShapeKind::Eve => lines(&answer.entries, append_archived_eve),
        ShapeKind::Csv => archived_csv(answer.entries.iter().map(ArchivedFlow::from)),
    })?;
    for damage in &answer.damages {
        report::error(damage, "");
    }
    if arguments.explain || voice == Voice::Verbose {
        explain(&answer);
    }
    Ok(if !answer.damages.is_empty() {
        Status::Failed
    } else if answer.entries.is_empty() {
        Status::No
    } else {
        Status::Done
    })
}

fn explain(answer: &Answer) {
    let how = &answer.explanation;
    report::line(format_args!(
        "found {}; read {} of {} segments, {} in vain; asked {} indexes and {} filters",
        report::grouped(answer.entries.len() as u64),
        report::grouped(how.read),
        report::grouped(how.segments),
        report::grouped(how.read_in_vain),
        report::grouped(how.indexes_asked),
        report::grouped(how.filters_asked)
    ));
}

/// What a filter is asked about.
fn facts(entry: &Entry) -> Facts {
    let reason = entry.fate.reason();
    Facts {
        client: entry.client(),
        server: entry.server(),
        vlan: entry.vlan(),
        state: reason.is_none().then_some(RowState::Established),
        start_ns: entry.start_ns(),
        age_ns: entry.age_ns(),
        end_ns: reason.map(|_| entry.end_ns()),
        reason,
        midstream: entry.midstream,
        unsettled: false,
    }
}

/// A line of JSON for each connection.
fn lines(entries: &[Entry], append: impl Fn(&mut Vec<u8>, &ArchivedFlow)) -> Vec<u8> {
    let mut text = Vec::new();
    entries.iter().for_each(|entry| append(&mut text, &ArchivedFlow::from(entry)));
    text
}

/// A table for people.
fn table(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut rows = vec![["START", "END", "SECONDS", "CLIENT", "SERVER", "ENDED BY"].map(str::to_owned)];
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
    fn ends_are_addresses_with_or_without_a_port() {
        let end = |address: &str, port| Ok(Endpoint { address: address.parse().unwrap(), port });
        assert_eq!(endpoint("10.0.0.1"), end("10.0.0.1", None));
        assert_eq!(endpoint("10.0.0.1:443"), end("10.0.0.1", Some(443)));
        assert_eq!([endpoint("::1"), endpoint("[::1]")], [end("::1", None), end("::1", None)]);
        assert_eq!(endpoint("[::1]:443"), end("::1", Some(443)));
        for wrong in ["", "10.0.0", "10.0.0.1:", "10.0.0.1:65536", "host", "[::1", "::1]:443"] {
            assert!(endpoint(wrong).unwrap_err().contains("an end is an address"), "{wrong}");
        }
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
        let text = table(&[entry(Fate::Ended(Ending::Rst)), entry(Fate::Open)]);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3);
        assert!(
            rows[1].starts_with("2026-01-01T00:00:00.5Z  2026-01-01T00:00:10.0Z") && rows[1].ends_with("  rst"),
            "{text}"
        );
        assert!(rows[2].ends_with("93.184.216.34:443  open at 2026-01-01T00:00:10.0Z"), "{text}");
        assert_eq!(table(&[]), "");
    }
}
