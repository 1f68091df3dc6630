//! The filter language: an expression in, whether a connection is selected out.
//!
//! It reads like a pcap filter, with client and server in the place of src and dst, and with the age and the state of a
//! connection beside its addresses:
//!
//! ```text
//! filter     = all { ("or" | "||") all }
//! all        = one { ("and" | "&&") one }
//! one        = ("not" | "!") one | "(" filter ")" | test
//! test       = [side] end { end }            all of the same end: client net 10.0.0.0/8 port 443
//!            | "age" relation duration       age > 1h
//!            | ("start" | "end") relation time
//!            | "established" | "half_open" | "syn_sent" | "syn_recv" | "closed"
//!            | "reason" name | "vlan" [tag] | "ip" | "ip6" | "midstream" | "unsettled"
//! side       = "client" | "src" | "server" | "dst"
//! end        = ["host"] address | ["net"] network | "port" port | "portrange" port "-" port
//! relation   = ">" | ">=" | "<" | "<="
//! ```
//!
//! Without a side an end may be either end of the connection. `and` binds closer than `or`, unlike in a pcap filter,
//! where both bind alike.

use crate::flow::Family;
use crate::list::RowState;
use crate::select::{Facts, Needs};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use pnet::ipnetwork::IpNetwork;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The longest filter in bytes: one comes from a command line or a request, and a person writes a few dozen.
pub const FILTER_SIZE_MAX: usize = 4_096;

/// The deepest nesting of parentheses and negations. It bounds the stack that reading and evaluating take.
const FILTER_DEPTH_MAX: usize = 32;

/// The reasons for which a connection ends, as archives name them.
const REASONS: [&str; 6] = ["fin", "rst", "timeout", "evicted", "replaced", "reopened"];

/// A filter of connections.
///
/// ```
/// use flowpeel::select::Filter;
///
/// assert!("net 10.0.0.0/8 and server port 443 and age > 1h".parse::<Filter>().is_ok());
/// let error = "client prot 443".parse::<Filter>().unwrap_err();
/// assert_eq!(error.position(), 7);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    expression: Expression,
}

impl Filter {
    /// Whether a connection is selected.
    ///
    /// Complexity: a step for each test of the filter, and no allocation.
    #[must_use]
    pub fn selects(&self, facts: &Facts) -> bool {
        self.expression.holds(facts)
    }

    /// What every connection has that is selected.
    #[must_use]
    pub fn needs(&self) -> Needs {
        Needs::of(&self.expression)
    }

    /// The filter as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    /// Reads a filter.
    ///
    /// Complexity: linear in the text.
    ///
    /// # Errors
    ///
    /// The text is no filter; the error has the position of the first character that does not fit.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let fault = |what: String, position: usize| FilterError { what, position, text: text.to_owned() };
        if text.len() > FILTER_SIZE_MAX {
            return Err(FilterError {
                what: format!("a filter has at most {FILTER_SIZE_MAX} bytes"),
                position: 0,
                text: String::new(),
            });
        }
        let mut reader = Reader { text, words: Words::of(text), depth: 0 };
        let read = reader.any().and_then(|expression| match reader.words.peek() {
            None => Ok(expression),
            Some(word) if word.text == ")" => Err(Fault::at(word, "this parenthesis was not opened")),
            Some(word) => Err(Fault::at(word, "\"and\", \"or\" or the end is expected here")),
        });
        let expression = read.map_err(|Fault { what, position }| fault(what, position))?;
        Ok(Filter { text: text.to_owned(), expression })
    }
}

/// Why a text is no filter, and where.
///
/// `Display` prints the reason, and below it the text with a mark under the character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    what: String,
    position: usize,
    text: String,
}

impl FilterError {
    /// The position in the text, in bytes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The reason alone.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.text.is_empty() {
            return Ok(());
        }
        // One character for one, so that the mark stands where it belongs.
        let printed: String = self.text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let before = self.text.get(..self.position).unwrap_or(&self.text).chars().count();
        write!(f, "\n  {printed}\n  {:before$}^", "")
    }
}

impl std::error::Error for FilterError {}

/// A relation between what a connection has and what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Relation {
    fn holds(self, has: i64, asked: i64) -> bool {
        match self {
            Relation::Above => has > asked,
            Relation::AtLeast => has >= asked,
            Relation::Below => has < asked,
            Relation::AtMost => has <= asked,
        }
    }
}

/// Which end of a connection a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Client,
    Server,
    Either,
}

/// What an end has to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    Net(IpNetwork),
    Ports(RangeInclusive<u16>),
}

impl End {
    fn is(&self, end: SocketAddr) -> bool {
        match self {
            End::Net(net) => net.contains(end.ip()),
            End::Ports(ports) => ports.contains(&end.port()),
        }
    }
}

/// A test of one connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    /// All of these hold of the same end.
    Ends(Which, Vec<End>),
    Age(Relation, i64),
    Start(Relation, i64),
    End(Relation, i64),
    Established,
    HalfOpen,
    SynSent,
    SynRecv,
    Closed,
    Reason(&'static str),
    Vlan(Option<u16>),
    Family(Family),
    Midstream,
    Unsettled,
}

impl Test {
    fn holds(&self, facts: &Facts) -> bool {
        let is_state = |state| facts.state == Some(state);
        match self {
            Test::Ends(which, ends) => {
                let is = |end: SocketAddr| ends.iter().all(|test| test.is(end));
                match which {
                    Which::Client => is(facts.client),
                    Which::Server => is(facts.server),
                    Which::Either => is(facts.client) || is(facts.server),
                }
            }
            Test::Age(relation, age_ns) => relation.holds(facts.age_ns, *age_ns),
            Test::Start(relation, time_ns) => relation.holds(facts.start_ns, *time_ns),
            Test::End(relation, time_ns) => facts.end_ns.is_some_and(|end_ns| relation.holds(end_ns, *time_ns)),
            Test::Established => is_state(RowState::Established),
            Test::HalfOpen => is_state(RowState::SynSent) || is_state(RowState::SynRecv),
            Test::SynSent => is_state(RowState::SynSent),
            Test::SynRecv => is_state(RowState::SynRecv),
            Test::Closed => facts.state.is_none(),
            Test::Reason(reason) => facts.reason == Some(*reason),
            Test::Vlan(tag) => facts.vlan.iter().any(|has| tag.is_none_or(|tag| tag == has)),
            Test::Family(Family::V4) => facts.client.is_ipv4(),
            Test::Family(Family::V6) => facts.client.is_ipv6(),
            Test::Midstream => facts.midstream,
            Test::Unsettled => facts.unsettled,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
}

impl Expression {
    fn holds(&self, facts: &Facts) -> bool {
        match self {
            Expression::Any(parts) => parts.iter().any(|part| part.holds(facts)),
            Expression::All(parts) => parts.iter().all(|part| part.holds(facts)),
            Expression::Not(part) => !part.holds(facts),
            Expression::Test(test) => test.holds(facts),
        }
    }
}

/// A word of a filter: letters and digits as they stand together, or an operator.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    position: usize,
}

/// What does not fit, and where.
struct Fault {
    what: String,
    position: usize,
}

impl Fault {
    fn at(word: Word, what: impl Into<String>) -> Self {
        Fault { what: what.into(), position: word.position }
    }
}

/// The words of a filter, one after another.
struct Words<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Words<'a> {
    const OPERATORS: [&'static str; 10] = ["&&", "||", ">=", "<=", ">", "<", "!", "(", ")", "="];

    fn of(text: &'a str) -> Self {
        Words { text, position: 0 }
    }

    /// The next word, which stays the next.
    fn peek(&self) -> Option<Word<'a>> {
        let rest = self.text.get(self.position..)?;
        let position = self.position + (rest.len() - rest.trim_start().len());
        let rest = rest.trim_start();
        let operator = Self::OPERATORS.into_iter().find(|operator| rest.starts_with(operator));
        let size = operator.map_or_else(
            || rest.find(|c: char| c.is_whitespace() || "&|<>!()=".contains(c)).unwrap_or(rest.len()),
            str::len,
        );
        // A lone & or | is a word of its own, which nothing expects.
        let size = if size == 0 { rest.chars().next()?.len_utf8() } else { size };
        Some(Word { text: rest.get(..size)?, position })
    }

    fn take(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.position = word.position + word.text.len();
        Some(word)
    }

    /// Takes the next word if it is one of these.
    fn take_if(&mut self, words: &[&str]) -> Option<Word<'a>> {
        self.peek().filter(|word| words.contains(&word.text))?;
        self.take()
    }
}

struct Reader<'a> {
    text: &'a str,
    words: Words<'a>,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// The next word, which has to be there.
    fn expect(&mut self, what: &str) -> Result<Word<'a>, Fault> {
        let end = self.text.len();
        self.words.take().ok_or_else(|| Fault { what: format!("{what} is expected here"), position: end })
    }

    fn any(&mut self) -> Result<Expression, Fault> {
        let mut parts = vec![self.all()?];
        while self.words.take_if(&["or", "||"]).is_some() {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self) -> Result<Expression, Fault> {
        let mut parts = vec![self.one()?];
        while self.words.take_if(&["and", "&&"]).is_some() {
            parts.push(self.one()?);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Expression::All(parts) })
    }

    fn one(&mut self) -> Result<Expression, Fault> {
        let word = self.expect("a test, as in \"client net 10.0.0.0/8\" or \"age > 1h\",")?;
        let is_negation = matches!(word.text, "not" | "!");
        if !is_negation && word.text != "(" {
            return self.test(word).map(Expression::Test);
        }
        if self.depth == FILTER_DEPTH_MAX {
            return Err(Fault::at(word, format!("a filter is nested {FILTER_DEPTH_MAX} deep at most")));
        }
        self.depth += 1;
        let expression = if is_negation { Expression::Not(Box::new(self.one()?)) } else { self.in_parentheses(word)? };
        self.depth -= 1;
        Ok(expression)
    }

    fn in_parentheses(&mut self, opening: Word<'a>) -> Result<Expression, Fault> {
        let expression = self.any()?;
        match self.words.take_if(&[")"]) {
            Some(_) => Ok(expression),
            None => Err(match self.words.peek() {
                None => Fault::at(opening, "this parenthesis is not closed"),
                Some(word) => Fault::at(word, "\"and\", \"or\" or \")\" is expected here"),
            }),
        }
    }

    /// The test that begins with this word.
    fn test(&mut self, word: Word<'a>) -> Result<Test, Fault> {
        Ok(match word.text {
            "client" | "src" => Test::Ends(Which::Client, self.ends()?),
            "server" | "dst" => Test::Ends(Which::Server, self.ends()?),
            "age" => self.age()?,
            "start" => {
                let (relation, time_ns) = self.time()?;
                Test::Start(relation, time_ns)
            }
            "end" => {
                let (relation, time_ns) = self.time()?;
                Test::End(relation, time_ns)
            }
            "established" => Test::Established,
            "half_open" => Test::HalfOpen,
            "syn_sent" => Test::SynSent,
            "syn_recv" => Test::SynRecv,
            "closed" => Test::Closed,
            "reason" => self.reason()?,
            "vlan" => Test::Vlan(self.vlan_tag()?),
            "ip" => Test::Family(Family::V4),
            "ip6" => Test::Family(Family::V6),
            "midstream" => Test::Midstream,
            "unsettled" => Test::Unsettled,
            _ => match self.end(word)? {
                Some(end) => Test::Ends(Which::Either, self.more_ends(vec![end])?),
                None => return Err(Fault::at(word, "this is no test: see flowpeel help filter")),
            },
        })
    }

    /// What an end has to be, at least one thing.
    fn ends(&mut self) -> Result<Vec<End>, Fault> {
        const WHAT: &str = "an address, a network, \"port\" or \"portrange\"";
        let word = self.expect(WHAT)?;
        match self.end(word)? {
            Some(end) => self.more_ends(vec![end]),
            None => Err(Fault::at(word, format!("{WHAT} is expected here"))),
        }
    }

    /// These, and what follows that is about the same end.
    fn more_ends(&mut self, mut ends: Vec<End>) -> Result<Vec<End>, Fault> {
        while let Some(word) = self.words.peek() {
            let position = self.words.position;
            self.words.take();
            match self.end(word)? {
                Some(end) => ends.push(end),
                None => {
                    self.words.position = position;
                    break;
                }
            }
        }
        Ok(ends)
    }

    /// What an end has to be, if that begins with this word.
    fn end(&mut self, word: Word<'a>) -> Result<Option<End>, Fault> {
        Ok(Some(match word.text {
            "host" => {
                let word = self.expect("an address")?;
                let address: IpAddr = word.text.parse().map_err(|_| Fault::at(word, "this is no address"))?;
                End::Net(IpNetwork::from(address))
            }
            "net" => {
                let word = self.expect("a network")?;
                End::Net(
                    network(word)?
                        .ok_or_else(|| Fault::at(word, "a network is an address with a prefix: 10.0.0.0/8"))?,
                )
            }
            "port" => {
                let word = self.expect("a port")?;
                let port = port(word, word.text)?;
                End::Ports(port..=port)
            }
            "portrange" => {
                let word = self.expect("a range of ports")?;
                let what = "a range of ports is 1024-65535";
                let (low, high) = word.text.split_once('-').ok_or_else(|| Fault::at(word, what))?;
                let (low, high) = (port(word, low)?, port(word, high)?);
                if low > high {
                    return Err(Fault::at(word, what));
                }
                End::Ports(low..=high)
            }
            _ => return Ok(network(word)?.map(End::Net)),
        }))
    }

    fn relation(&mut self) -> Result<Relation, Fault> {
        const WHAT: &str = "\">\", \">=\", \"<\" or \"<=\"";
        let word = self.expect(WHAT)?;
        Ok(match word.text {
            ">" => Relation::Above,
            ">=" => Relation::AtLeast,
            "<" => Relation::Below,
            "<=" => Relation::AtMost,
            _ => return Err(Fault::at(word, format!("{WHAT} is expected here"))),
        })
    }

    fn age(&mut self) -> Result<Test, Fault> {
        let relation = self.relation()?;
        let word = self.expect("a duration")?;
        let age =
            duration(word.text).ok_or_else(|| Fault::at(word, "a duration is a number with its unit: 90s, 1h, 5d"))?;
        Ok(Test::Age(relation, i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)))
    }

    fn time(&mut self) -> Result<(Relation, i64), Fault> {
        let relation = self.relation()?;
        let word = self.expect("a time")?;
        let time_ns = time_ns(word.text)
            .ok_or_else(|| Fault::at(word, "a time is 2026-01-01T00:00:00Z, or a day, 2026-01-01, in UTC"))?;
        Ok((relation, time_ns))
    }

    fn reason(&mut self) -> Result<Test, Fault> {
        let word = self.expect("a reason")?;
        let known = REASONS.into_iter().find(|reason| *reason == word.text);
        known.map(Test::Reason).ok_or_else(|| Fault::at(word, format!("a reason is one of {}", REASONS.join(", "))))
    }

    fn vlan_tag(&mut self) -> Result<Option<u16>, Fault> {
        let Some(word) = self.words.peek().filter(|word| word.text.starts_with(|c: char| c.is_ascii_digit())) else {
            return Ok(None);
        };
        self.words.take();
        let tag = word.text.parse().ok().filter(|tag| *tag < 1 << 12);
        tag.map(Some).ok_or_else(|| Fault::at(word, "a VLAN tag is from 0 to 4095"))
    }
}

/// The network that a word names, if it begins like an address.
fn network(word: Word) -> Result<Option<IpNetwork>, Fault> {
    let text = word.text;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(IpNetwork::from(address)));
    }
    if let Ok(net) = text.parse::<IpNetwork>() {
        return Ok(Some(net));
    }
    let is_like_one = text.contains(':') || text.starts_with(|c: char| c.is_ascii_digit());
    match is_like_one {
        true => Err(Fault::at(word, "this is no address and no network: 10.0.0.1, 10.0.0.0/8, 2001:db8::/32")),
        false => Ok(None),
    }
}

fn port(word: Word, text: &str) -> Result<u16, Fault> {
    let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| Fault::at(word, "a port is from 0 to 65535"))
}

/// The duration that a text names: `10s`, `500ms`, `1h30m`, `5d`.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    // Days are allowed here. Months are not, since their length depends on where they begin.
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Some(duration).filter(SignedDuration::is_positive).map(|duration| duration.unsigned_abs())
}

/// The time that a text names, in ns since 1970: `2026-01-01T00:00:00Z`, or the beginning of a day in UTC,
/// `2026-01-01`.
#[must_use]
pub fn time_ns(text: &str) -> Option<i64> {
    let timestamp: Timestamp = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse()).ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;

    fn facts() -> Facts {
        Facts {
            client: "10.1.2.3:40000".parse().unwrap(),
            server: "93.184.216.34:443".parse().unwrap(),
            vlan: VlanTags::NONE.with(10).with(7),
            state: Some(RowState::Established),
            start_ns: time_ns("2026-01-01T10:00:00Z").unwrap(),
            age_ns: 3_600_000_000_000,
            end_ns: None,
            reason: None,
            midstream: false,
            unsettled: true,
        }
    }

    #[test]
    fn tests_are_about_what_they_name() {
        let facts = facts();
        for (text, expected) in [
            ("host 10.1.2.3", true),
            ("10.1.2.3", true),
            ("10.0.0.0/8", true),
            ("net 10.2.0.0/16", false),
            ("client net 10.0.0.0/8 port 40000", true),
            ("server net 10.0.0.0/8", false),
            // Both are about one end.
            ("net 10.0.0.0/8 port 443", false),
            ("net 10.0.0.0/8 and port 443", true),
            ("dst port 443 and src portrange 1024-65535", true),
            ("server port 80 or server port 443", true),
            ("portrange 400-442", false),
            ("2001:db8::/32", false),
            ("age >= 1h", true),
            ("age > 1h", false),
            ("age < 1h30m", true),
            ("age <= 59m", false),
            ("start > 2026-01-01", true),
            ("start < 2026-01-01T10:00:00Z", false),
            ("end > 2020-01-01", false),
            ("established", true),
            ("half_open or closed", false),
            ("vlan", true),
            ("vlan 7 and not vlan 8", true),
            ("ip", true),
            ("ip6", false),
            ("midstream", false),
            ("unsettled", true),
            ("reason fin", false),
            ("!midstream&&(ip6||ip)", true),
            ("not not ip", true),
        ] {
            let filter: Filter = text.parse().unwrap();
            assert_eq!((filter.selects(&facts), filter.text()), (expected, text), "{text}");
        }
    }

    #[test]
    fn and_binds_closer_than_or() {
        let facts = facts();
        let selects = |text: &str| text.parse::<Filter>().unwrap().selects(&facts);
        assert!(selects("ip or ip6 and midstream"));
        assert!(!selects("(ip or ip6) and midstream"));
        assert!(selects("midstream and ip6 or ip"));
    }

    #[test]
    fn a_connection_that_ended_has_an_end_and_a_reason() {
        let ended = Facts { state: None, end_ns: time_ns("2026-01-02"), reason: Some("rst"), ..facts() };
        for text in ["closed and reason rst", "end >= 2026-01-02", "not established"] {
            assert!(text.parse::<Filter>().unwrap().selects(&ended), "{text}");
        }
    }

    #[test]
    fn an_error_points_at_the_character() {
        for (text, position, reason) in [
            ("", 0, "a test, as in"),
            ("net", 3, "a network is expected"),
            ("client prot 443", 7, "an address, a network"),
            ("net 10.0.0.0/33", 4, "this is no address"),
            ("10.0.0", 0, "this is no address"),
            ("port 65536", 5, "a port is from 0 to 65535"),
            ("port +1", 5, "a port is from 0 to 65535"),
            ("portrange 9-1", 10, "a range of ports"),
            ("age 1h", 4, "\">\""),
            ("age > 1", 6, "a duration"),
            ("age > 1mo", 6, "a duration"),
            ("start > today", 8, "a time is"),
            ("(ip", 0, "this parenthesis is not closed"),
            ("(ip ip6)", 4, "\"and\", \"or\" or \")\""),
            ("ip)", 2, "this parenthesis was not opened"),
            ("ip & ip6", 3, "\"and\", \"or\" or the end"),
            ("vlan 4096", 5, "a VLAN tag"),
            ("reason bored", 7, "a reason is one of fin, rst"),
            ("tcp", 0, "this is no test"),
            ("ip and", 6, "a test, as in"),
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert_eq!(error.position(), position, "{text}: {error}");
            assert!(error.reason().starts_with(reason), "{text}: {error}");
        }
        let error = "ip and\u{1b} cleint 1".parse::<Filter>().unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
        let error = "net 10.0.0.0/8 and sever 1".parse::<Filter>().unwrap_err();
        assert_eq!(error.to_string().lines().last().unwrap().find('^'), Some(2 + 19), "{error}");
    }

    #[test]
    fn a_hostile_filter_is_refused() {
        assert!("(".repeat(1_000).parse::<Filter>().is_err());
        assert!("not ".repeat(1_000).parse::<Filter>().is_err());
        assert!("ip or ".repeat(10_000).parse::<Filter>().is_err());
        let deepest = format!("{}ip{}", "(".repeat(FILTER_DEPTH_MAX), ")".repeat(FILTER_DEPTH_MAX));
        assert!(deepest.parse::<Filter>().is_ok());
        for text in ["é", "ip and é", "net é/8", "\u{1b}[2J"] {
            assert!(!text.parse::<Filter>().unwrap_err().to_string().contains('\u{1b}'));
        }
    }
}
