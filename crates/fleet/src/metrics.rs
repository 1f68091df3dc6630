//! What `ship` and `collect` count, for the line at their end and for Prometheus.
//!
//! The loop of a command publishes its [`Figures`] on a [`Board`]; flowpeel's server of metrics reads them there. Each
//! [`Count`] is declared once, with its words for people and its name for Prometheus. No address of a connection is
//! among them.

use flowpeel::metrics::http::Source;
use flowpeel::metrics::{Heading, Kind, Samples};
use flowpeel::snapshot::RouterPart;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Something that is counted.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// How often it was.
    pub value: u64,
    /// What it is of, behind the number.
    pub words: &'static str,
    /// Its name for Prometheus.
    pub name: &'static str,
    /// What it counts, for people.
    pub help: &'static str,
}

/// How far the snapshots of a router have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// When the last of them ended by the router's clock, in ns since 1970.
    pub end_ns: i64,
    /// How long its interval was, in ns; 0 where that is not known.
    pub interval_ns: i64,
}

impl Reached {
    /// What a snapshot says of itself.
    #[must_use]
    pub fn of(source: &RouterPart) -> Self {
        let (start_ns, end_ns) = (source.figures.start_ns, source.figures.end_ns);
        Reached { end_ns, interval_ns: end_ns.saturating_sub(start_ns).max(0) }
    }

    /// The time that has passed since that end, in ns.
    pub(crate) fn lag_ns(self, now: SystemTime) -> i64 {
        let now_ns = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        i64::try_from(now_ns).unwrap_or(i64::MAX).saturating_sub(self.end_ns).max(0)
    }

    /// How many whole intervals these are.
    pub(crate) fn lag_intervals(self, now: SystemTime) -> Option<i64> {
        self.lag_ns(now).checked_div(self.interval_ns)
    }
}

/// Figures of a command at one moment.
pub trait Figures: Default + Send + 'static {
    /// Whether the broker is connected.
    fn is_connected(&self) -> bool;
    /// Appends the metrics.
    fn write(&self, text: &mut String, now: SystemTime);
}

/// A count: of what, its name for Prometheus, and what it counts.
pub(crate) const fn count(value: u64, words: &'static str, name: &'static str, help: &'static str) -> Count {
    Count { value, words, name, help }
}

/// Appends counts.
pub(crate) fn write_counts(text: &mut String, counts: impl IntoIterator<Item = Count>) {
    for Count { value, name, help, .. } in counts {
        Samples::new(text, Heading { name, kind: Kind::Counter, help }).value(value);
    }
}

/// A gauge, to be given its values.
pub(crate) fn gauge<'a>(text: &'a mut String, name: &'static str, help: &'static str) -> Samples<'a> {
    Samples::new(text, Heading { name, kind: Kind::Gauge, help })
}

/// A time in seconds.
pub(crate) fn seconds(time_ns: i64) -> f64 {
    time_ns as f64 / 1e9
}

/// Where a command publishes its figures, and a server reads them.
#[derive(Debug, Default)]
pub struct Board<F> {
    figures: Mutex<F>,
    responded: AtomicU64,
    abandoned: AtomicU64,
}

impl<F: Figures> Board<F> {
    /// Replaces the figures that were published before.
    pub fn publish(&self, figures: F) {
        *self.figures.lock() = figures;
    }

    /// The page of metrics at this time.
    pub(crate) fn page(&self, now: SystemTime) -> String {
        let mut text = String::new();
        self.figures.lock().write(&mut text, now);
        let of_server = [
            (&self.responded, "flowpeel_http_responses_total", "Requests to this server that were answered."),
            (&self.abandoned, "flowpeel_http_abandoned_total", "Clients of this server that were not answered."),
        ];
        write_counts(
            &mut text,
            of_server.map(|(value, name, help)| count(value.load(Ordering::Relaxed), "", name, help)),
        );
        text
    }
}

impl<F: Figures> Source for Board<F> {
    fn exposition(&self, _: Instant) -> String {
        self.page(SystemTime::now())
    }

    fn health(&self, _: Instant) -> Option<String> {
        let is_connected = self.figures.lock().is_connected();
        (!is_connected).then(|| "the broker is not connected".to_owned())
    }

    fn responded(&self) {
        self.responded.fetch_add(1, Ordering::Relaxed);
    }

    fn abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::collect::CollectFigures;
    use crate::frame::Refusal;
    use crate::ship::ShipFigures;
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    /// The page of these figures at this second since 1970.
    pub(crate) fn page<F: Figures>(figures: F, now_s: u64) -> String {
        let board = Board::default();
        board.publish(figures);
        board.page(SystemTime::UNIX_EPOCH + Duration::from_secs(now_s))
    }

    pub(crate) fn assert_has(page: &str, line: &str) {
        assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
    }

    #[derive(Default)]
    struct IsConnected(bool);

    impl Figures for IsConnected {
        fn is_connected(&self) -> bool {
            self.0
        }

        fn write(&self, _: &mut String, _: SystemTime) {}
    }

    #[test]
    fn health_is_whether_the_broker_is_connected() {
        let board = Board::default();
        assert!(board.health(Instant::now()).is_some());
        board.publish(IsConnected(true));
        assert_eq!(board.health(Instant::now()), None);
    }

    #[test]
    fn who_asked_is_counted() {
        let board = Board::<IsConnected>::default();
        board.responded();
        board.abandoned();
        board.responded();
        let page = board.page(SystemTime::UNIX_EPOCH);
        assert_has(&page, "flowpeel_http_responses_total 2");
        assert_has(&page, "flowpeel_http_abandoned_total 1");
    }

    /// The names of metrics in a text.
    fn names_in(text: &str) -> BTreeSet<&str> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("flowpeel_")).collect()
    }

    #[test]
    fn alerts_name_only_what_is_served() {
        let reached = Reached { end_ns: 1, interval_ns: 1 };
        let ship = ShipFigures { reached: Some(reached), ..ShipFigures::default() };
        let reached = BTreeMap::from([("edge".to_owned(), reached)]);
        let pages = page(ship, 1) + &page(CollectFigures { reached, ..CollectFigures::default() }, 1);
        let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/fleet-alerts.yml");
        let alerts = std::fs::read_to_string(alerts).unwrap();
        let (named, served) = (names_in(&alerts), names_in(&pages));
        let unknown: Vec<_> =
            named.iter().filter(|name| **name != "flowpeel_fleet" && !served.contains(**name)).collect();
        assert!(named.len() >= 9 && unknown.is_empty(), "{unknown:?}");
        for reasons in alerts.split("reason=").skip(1).filter_map(|text| text.split('"').nth(1)) {
            for reason in reasons.split('|') {
                assert!(Refusal::ALL.iter().any(|refusal| refusal.name() == reason), "{reason}");
            }
        }
    }
}
