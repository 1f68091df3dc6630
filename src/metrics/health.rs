//! Whether lists are what they should be: complete, on time, of all packets.
//!
//! The present time is part of the reading of the metrics, so this can be tested without waiting.

use crate::metrics::Reading;
use std::time::Duration;

/// How late a list may come without being called late, in percent of its interval: decoding and writing take time.
const HEALTH_GRACE_PERCENT: u32 = 50;

/// The lateness that is allowed to a list however short its interval: a second of load must not call anybody at night.
const HEALTH_GRACE_MIN: Duration = Duration::from_secs(5);

/// What is wrong in one line, if anything.
pub(super) fn problems(reading: &Reading) -> Option<String> {
    let mut problems = Vec::new();
    let interval = reading.setup.interval;
    if let Some(interval) = interval
        && reading.list_age > interval + grace(interval)
    {
        let (age_s, interval_s) = (reading.list_age.as_secs(), interval.as_secs_f64());
        problems.push(match reading.list {
            Some(_) => format!("last list is {age_s} s old (interval {interval_s} s)"),
            None => format!("no list after {age_s} s (interval {interval_s} s)"),
        });
    }
    if reading.has_failed {
        problems.push("the last list could not be written".to_owned());
    }
    if let Some(list) = &reading.list {
        if !list.header.complete && !list.header.is_warming_up() {
            problems.push(format!("list incomplete: about {} connections missing", list.header.missing));
        }
        if list.header.figures.dropped > 0 {
            problems.push(format!("packets or signals dropped in the last interval: {}", list.header.figures.dropped));
        }
    }
    if !reading.interfaces.is_empty() && reading.interfaces.iter().all(|interface| !interface.is_up) {
        problems.push("no interface is up".to_owned());
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// How much later than an interval a list may come: it has to be decoded and written.
fn grace(interval: Duration) -> Duration {
    (interval * HEALTH_GRACE_PERCENT / 100).max(HEALTH_GRACE_MIN)
}

#[cfg(test)]
mod tests {
    use crate::list::Header;
    use crate::metrics::{ListFigures, Metrics, Setup};
    use crate::snapshot::Figures;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn metrics() -> Arc<Metrics> {
        Metrics::new(Setup { interval: Some(Duration::from_secs(10)), ..Setup::default() })
    }

    fn of(header: Header) -> ListFigures {
        ListFigures { header, ..ListFigures::default() }
    }

    fn complete() -> ListFigures {
        of(Header { complete: true, ..Header::default() })
    }

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_list_is_waited_for_and_no_longer() {
        let metrics = metrics();
        assert_eq!(metrics.health(after(0)), None);
        assert_eq!(metrics.health(after(14)), None);
        assert_eq!(metrics.health(after(35)).unwrap(), "no list after 35 s (interval 10 s)");
    }

    #[test]
    fn a_late_list_is_reported_with_both_figures() {
        let metrics = metrics();
        let now = after(100);
        metrics.list(&complete(), now);
        assert_eq!(metrics.health(now + Duration::from_secs(15)), None);
        let late = metrics.health(now + Duration::from_secs(35)).unwrap();
        assert_eq!(late, "last list is 35 s old (interval 10 s)");
    }

    #[test]
    fn without_an_interval_no_list_is_late() {
        let metrics = Metrics::new(Setup::default());
        assert_eq!(metrics.health(after(1_000_000)), None);
    }

    #[test]
    fn everything_that_is_wrong_stands_in_one_line_until_it_is_right() {
        let metrics = metrics();
        let now = after(0);
        let figures = Figures { dropped: 7, ..Figures::default() };
        metrics.list(&of(Header { complete: false, missing: 120, figures, ..Header::default() }), now);
        metrics.list_failed();
        let line = "the last list could not be written; list incomplete: about 120 connections missing; \
                    packets or signals dropped in the last interval: 7";
        assert_eq!(metrics.health(now).unwrap(), line);
        metrics.list(&complete(), now);
        assert_eq!(metrics.health(now), None);
    }

    #[test]
    fn one_interface_that_is_up_suffices() {
        let interfaces = vec!["eth0".to_owned(), "eth1".to_owned()];
        let metrics = Metrics::new(Setup { interfaces, ..Setup::default() });
        assert_eq!(metrics.health(after(0)).unwrap(), "no interface is up");
        metrics.capture(1).set_up(true);
        assert_eq!(metrics.health(after(0)), None);
    }
}
