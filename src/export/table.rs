//! A list as a table that people read: aligned columns, no wider than the terminal, and a footer that says whether the
//! list is complete.

use crate::export::timestamp::TimeFormatter;
use crate::list::{Header, List, Row, RowState};
use crate::select::{Found, Selection};
use anstyle::{AnsiColor, Style};
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};

/// How a table looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The most columns of a line; `None` for as many as it takes, so that nothing is shortened.
    pub width: Option<usize>,
    /// Whether states and warnings are in colour.
    pub is_coloured: bool,
}

/// The least width of the column of an end: every IPv4 address with its port fits.
const END_WIDTH_MIN: usize = 21;

/// The width of the column of states, the longest of which is `established`.
const STATE_WIDTH: usize = 11;

/// The width of the column of ages, `999d23h`.
const AGE_WIDTH: usize = 7;

/// The width of the column of starts: a day, or a time of day, with a mark before it.
const SINCE_WIDTH: usize = 11;

/// What stands between columns.
const GAP: &str = "  ";

/// The width of all but the ends.
const REST_WIDTH: usize = STATE_WIDTH + AGE_WIDTH + SINCE_WIDTH + 4 * GAP.len();

const _: () = assert!(2 * END_WIDTH_MIN + REST_WIDTH <= 80, "two IPv4 ends fit the narrowest usual terminal");

const HEADING: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const INCOMPLETE: Style = AnsiColor::Red.on_default().bold();

const DAY_NS: i64 = 86_400_000_000_000;

impl Look {
    /// Writes what is selected of a list.
    ///
    /// Complexity: three passes over the rows: for the count below the lines, for the widths of columns, and for the
    /// lines. With an order or groups it is one, and what is shown is held.
    pub(super) fn list(self, out: &mut dyn Write, list: &List, selection: &Selection) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        let found = selection.find(list.rows());
        match &found.groups {
            Some((groups, count)) => {
                let name = selection.group_by.map_or("", |group_by| group_by.name()).to_uppercase();
                let values: Vec<String> = groups.iter().map(|group| group.key.to_string()).collect();
                let width = values.iter().map(String::len).max().unwrap_or(0).max(name.len());
                let heading = format!("{name:<width$}{GAP}{:>11}{GAP}{:>9}{GAP}OLDEST", "ESTABLISHED", "HALF-OPEN");
                self.styled(&mut out, HEADING, &heading)?;
                for (group, value) in groups.iter().zip(values) {
                    let age = age_text(group.oldest_ns);
                    writeln!(out, "{value:<width$}{GAP}{:>11}{GAP}{:>9}{GAP}{age}", group.flows, group.half_open)?;
                }
                let shown = Shown { lines: groups.len() as u64, of: *count as u64, what: "groups" };
                self.footer(&mut out, &list.header, selection, &shown)?;
            }
            None => self.connections(&mut out, list, &found)?,
        }
        out.flush()
    }

    fn connections(self, out: &mut impl Write, list: &List, found: &Found) -> io::Result<()> {
        let mut widths = [END_WIDTH_MIN; 2];
        let mut marks = Marks::default();
        for row in found.rows(list.rows()) {
            marks.add(&row);
            let nat = row.nat.map(|nat| [nat.client, nat.server]);
            for ends in [Some([row.client, row.server]), nat].into_iter().flatten() {
                for (width, end) in widths.iter_mut().zip(ends) {
                    *width = (*width).max(end.to_string().len());
                }
            }
        }
        let widths = self.fitted(widths);
        let [client, server] = widths;
        let heading = format!(
            "{:<client$}{GAP}{:<server$}{GAP}{:<STATE_WIDTH$}{GAP}{:>AGE_WIDTH$}{GAP}SINCE",
            "CLIENT", "SERVER", "STATE", "AGE"
        );
        self.styled(out, HEADING, &heading)?;
        let mut times = TimeFormatter::default();
        for row in found.rows(list.rows()) {
            self.row(out, &row, widths, since(&mut times, &row, list.header.figures.end_ns))?;
        }
        let shown = Shown { lines: found.line_count(), of: found.selected_count, what: "connections" };
        self.footer(out, &list.header, found.selection, &shown)?;
        marks.explain(out)
    }

    /// The widths of the ends' columns, so that a line fits: what is too much is taken from the wider one first.
    fn fitted(self, [client, server]: [usize; 2]) -> [usize; 2] {
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(REST_WIDTH).max(2 * END_WIDTH_MIN));
        if client.saturating_add(server) <= room {
            return [client, server];
        }
        let half = room / 2;
        match (client <= half, server <= half) {
            (true, _) => [client, room - client],
            (_, true) => [room - server, server],
            _ => [half, room - half],
        }
    }

    fn row(self, out: &mut impl Write, row: &Row, [client, server]: [usize; 2], since: String) -> io::Result<()> {
        let colour = match row.state {
            RowState::Established => AnsiColor::Green,
            RowState::SynSent => AnsiColor::Yellow,
            RowState::SynRecv => AnsiColor::Cyan,
        };
        let style = if self.is_coloured { colour.on_default() } else { Style::new() };
        let (first, second) = (end_text(row.client, client), end_text(row.server, server));
        let (state, age) = (row.state.name(), age_text(row.age_ns));
        writeln!(
            out,
            "{first:<client$}{GAP}{second:<server$}{GAP}{style}{state:<STATE_WIDTH$}{style:#}{GAP}{age:>AGE_WIDTH$}{GAP}{since}",
        )?;
        let Some(nat) = &row.nat else { return Ok(()) };
        let (first, second) = (end_text(nat.client, client), end_text(nat.server, server));
        self.styled(out, FAINT, &format!("{first:<client$}{GAP}{second:<server$}{GAP}{}", nat.name()))
    }

    /// What stands below the table: how much there is, as of when, and whether that is all.
    fn footer(self, out: &mut impl Write, header: &Header, selection: &Selection, shown: &Shown) -> io::Result<()> {
        let mut times = TimeFormatter::default();
        let end = times.rfc3339(header.figures.end_ns);
        let end = end.as_str().get(..19).unwrap_or_default();
        let mut text = format!("{} established, {} half-open at {end}Z", header.flows, header.half_open);
        if selection.is_partial() {
            text += &format!("; shown: {} of {} {}", shown.lines, shown.of, shown.what);
            if let Some(filter) = &selection.filter {
                // The filter was read, so it has printable characters only.
                text += &format!(" with {}", filter.text());
            }
        }
        if header.complete {
            return self.wrapped(out, FAINT, &(text + "; complete"));
        }
        self.wrapped(out, FAINT, &text)?;
        self.wrapped(out, INCOMPLETE, &format!("NOT COMPLETE: about {} are missing or wrong", header.missing))
    }

    /// Writes a text in as many lines as it takes.
    fn wrapped(self, out: &mut impl Write, style: Style, text: &str) -> io::Result<()> {
        let wrapped = wrapped(text, self.width.unwrap_or(usize::MAX));
        wrapped.lines().try_for_each(|line| self.styled(out, style, line))
    }

    fn styled(self, out: &mut impl Write, style: Style, text: &str) -> io::Result<()> {
        match self.is_coloured {
            true => writeln!(out, "{style}{text}{style:#}"),
            false => writeln!(out, "{text}"),
        }
    }
}

/// A text with line breaks in the place of spaces, so that no line is wider than this, unless a single word is.
fn wrapped(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut line_width = 0;
    for word in text.split(' ') {
        let word_width = word.chars().count();
        if line_width > 0 {
            let fits = line_width + 1 + word_width <= width;
            wrapped.push(if fits { ' ' } else { '\n' });
            line_width = if fits { line_width + 1 } else { 0 };
        }
        wrapped += word;
        line_width += word_width;
    }
    wrapped
}

/// How many lines are shown, out of how many that were selected.
struct Shown {
    lines: u64,
    of: u64,
    what: &'static str,
}

/// Which marks a table has, which its footer explains.
#[derive(Default)]
struct Marks {
    has_earlier: bool,
    has_unsettled: bool,
}

impl Marks {
    fn add(&mut self, row: &Row) {
        self.has_earlier |= row.midstream || row.start_is_bound;
        self.has_unsettled |= row.unsettled;
    }

    fn explain(&self, out: &mut impl Write) -> io::Result<()> {
        if self.has_earlier {
            writeln!(out, "< started before that")?;
        }
        if self.has_unsettled {
            writeln!(out, "? may have closed while flowpeel was down")?;
        }
        Ok(())
    }
}

/// When a connection started, beside the end of its list: the time of day if that was the same day, otherwise the day.
fn since(times: &mut TimeFormatter, row: &Row, list_end_ns: i64) -> String {
    let mark = match (row.unsettled, row.midstream || row.start_is_bound) {
        (true, _) => "?",
        (_, true) => "<",
        _ => "",
    };
    let text = times.rfc3339(row.start_ns);
    let is_today = row.start_ns.div_euclid(DAY_NS) == list_end_ns.div_euclid(DAY_NS);
    match is_today {
        true => format!("{mark}{}Z", text.as_str().get(11..19).unwrap_or_default()),
        false => format!("{mark}{}", text.as_str().get(..10).unwrap_or_default()),
    }
}

/// [`since`] of one row.
#[cfg(feature = "cli")]
pub(crate) fn since_text(row: &Row, list_end_ns: i64) -> String {
    since(&mut TimeFormatter::default(), row, list_end_ns)
}

/// An age in its two largest units: `4.1s`, `3m12s`, `2h05m`, `12d03h`.
pub(crate) fn age_text(age_ns: i64) -> String {
    let tenths = age_ns.max(0) / 100_000_000;
    let seconds = tenths / 10;
    match seconds {
        0..60 => format!("{seconds}.{}s", tenths % 10),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// An end in this width. Of an IPv6 address that does not fit as much as must be is left out of its middle.
pub(crate) fn end_text(end: SocketAddr, width: usize) -> String {
    let text = end.to_string();
    if text.len() <= width {
        return text;
    }
    let IpAddr::V6(address) = end.ip() else { return text };
    let (address, port) = (address.to_string(), end.port().to_string());
    // Beside the address there are two brackets, the colon before the port, and what stands for the part left out.
    let kept = width.saturating_sub(port.len() + 4);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let tail = address.get(address.len().saturating_sub(tail)..).unwrap_or_default();
    format!("[{}\u{2026}{tail}]:{port}", address.get(..head).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Nat;

    #[test]
    fn ages_have_their_two_largest_units() {
        let text = |seconds: f64| age_text((seconds * 1e9) as i64);
        for (seconds, expected) in [
            (-1.0, "0.0s"),
            (4.19, "4.1s"),
            (59.99, "59.9s"),
            (60.0, "1m00s"),
            (3_599.0, "59m59s"),
            (7_500.0, "2h05m"),
            (86_400.0, "1d00h"),
            (999.0 * 86_400.0 + 23.0 * 3_600.0, "999d23h"),
        ] {
            assert_eq!(text(seconds), expected);
            assert!(expected.len() <= AGE_WIDTH);
        }
    }

    #[test]
    fn an_address_loses_no_more_of_its_middle_than_it_must() {
        let end: SocketAddr = "[2001:db8:1234:5678:9abc:def0:1111:2222]:50000".parse().unwrap();
        let size = end.to_string().len();
        assert_eq!(end_text(end, size), end.to_string());
        for width in END_WIDTH_MIN..size {
            let text = end_text(end, width);
            assert_eq!(text.chars().count(), width, "{text}");
            assert!(text.starts_with("[2001:db8") && text.ends_with("2222]:50000") || width < 30, "{text}");
        }
        let longest: SocketAddr = "255.255.255.255:65535".parse().unwrap();
        assert_eq!(end_text(longest, END_WIDTH_MIN), longest.to_string());
    }

    #[test]
    fn the_other_name_of_a_connection_stands_below_it() {
        let end = |text: &str| text.parse().unwrap();
        let row = Row::between(["192.168.1.5:40000", "198.51.100.7:443"].map(end));
        let look = Look { width: Some(80), is_coloured: false };
        let text = |row: &Row| {
            let mut text = Vec::new();
            look.row(&mut text, row, [21, 21], "00:00:00Z".to_owned()).unwrap();
            String::from_utf8(text).unwrap()
        };
        let nat = Nat { client: end("203.0.113.9:61000"), server: row.server, is_original: false };
        let with_name = text(&Row { nat: Some(nat), ..row });
        assert_eq!(
            with_name.strip_prefix(&text(&row)).unwrap(),
            "203.0.113.9:61000      198.51.100.7:443       translated\n"
        );
    }

    #[test]
    fn a_footer_is_no_wider_than_the_table() {
        let long = "n".repeat(100);
        let selection = Selection {
            filter: Some("server net 198.51.100.0/24 and (port 443 or port 8443) and age > 5m".parse().unwrap()),
            ..Selection::default()
        };
        let footer = |width, header: &Header| {
            let (mut text, shown) = (Vec::new(), Shown { lines: 20, of: 1_234_567, what: "connections" });
            let look = Look { width, is_coloured: false };
            look.footer(&mut text, header, &selection, &shown).unwrap();
            String::from_utf8(text).unwrap()
        };
        for complete in [true, false] {
            let header = Header { flows: 1_234_567, half_open: 890, complete, ..Header::default() };
            let whole = footer(None, &header);
            assert_eq!(whole.lines().count(), if complete { 1 } else { 2 }, "{whole}");
            for width in [40, 80, 200] {
                let text = footer(Some(width), &header);
                assert!(text.lines().all(|line| line.len() <= width), "{text}");
                assert!(text.split_whitespace().eq(whole.split_whitespace()), "{text}");
            }
            assert_eq!(footer(Some(usize::MAX), &header), whole);
        }
        assert_eq!(wrapped(&format!("ab {long} c d"), 3), format!("ab\n{long}\nc d"), "a word is not cut");
    }

    #[test]
    fn the_wider_end_gives_way_first() {
        let look = |width| Look { width, is_coloured: false };
        assert_eq!(look(None).fitted([47, 47]), [47, 47]);
        assert_eq!(look(Some(200)).fitted([47, 47]), [47, 47]);
        let [client, server] = look(Some(100)).fitted([47, 21]);
        assert_eq!((client + server + REST_WIDTH, server), (100, 21));
        assert_eq!(look(Some(80)).fitted([21, 21]), [21, 21]);
        assert_eq!(look(Some(10)).fitted([47, 47]), [21, 21]);
    }
}
