//! What every connection has that a filter selects: addresses that an index can be asked for, and times.

use crate::select::filter::{End, Expression, Relation, Test};
use std::net::IpAddr;

/// The most addresses of a network that are asked for one by one: of a larger network each would have to be.
const NETWORK_ADDRESSES_MAX: usize = 16;

/// What every selected connection has. A connection that has it need not be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Of each group, one address is that of an end.
    pub addresses: Vec<Vec<IpAddr>>,
    /// The earliest and the latest time at which it can have started, in ns since 1970.
    pub start_ns: (i64, i64),
    /// The earliest and the latest time at which it can have ended.
    pub end_ns: (i64, i64),
    /// Whether the answer depends on the age, so that it may be another later.
    pub asks_age: bool,
}

const ANY_TIME: (i64, i64) = (i64::MIN, i64::MAX);

impl Default for Needs {
    fn default() -> Self {
        Needs { addresses: Vec::new(), start_ns: ANY_TIME, end_ns: ANY_TIME, asks_age: false }
    }
}

impl Needs {
    pub(super) fn of(expression: &Expression) -> Self {
        match expression {
            Expression::All(parts) => parts.iter().map(Needs::of).fold(Needs::default(), Needs::and),
            Expression::Any(parts) => parts.iter().map(Needs::of).reduce(Needs::or).unwrap_or_default(),
            Expression::Not(part) => Needs { asks_age: Needs::of(part).asks_age, ..Needs::default() },
            Expression::Test(test) => Needs::of_test(test),
        }
    }

    fn of_test(test: &Test) -> Self {
        let any = Needs::default();
        match test {
            Test::Ends(_, ends) => Needs { addresses: ends.iter().filter_map(addresses).collect(), ..any },
            Test::Start(relation, time_ns) => Needs { start_ns: range(*relation, *time_ns), ..any },
            Test::End(relation, time_ns) => Needs { end_ns: range(*relation, *time_ns), ..any },
            Test::Age(..) => Needs { asks_age: true, ..any },
            _ => any,
        }
    }

    fn and(mut self, other: Needs) -> Self {
        let both = |one: (i64, i64), other: (i64, i64)| (one.0.max(other.0), one.1.min(other.1));
        self.addresses.extend(other.addresses);
        Needs {
            start_ns: both(self.start_ns, other.start_ns),
            end_ns: both(self.end_ns, other.end_ns),
            addresses: self.addresses,
            asks_age: self.asks_age || other.asks_age,
        }
    }

    fn or(self, other: Needs) -> Self {
        let either = |one: (i64, i64), other: (i64, i64)| (one.0.min(other.0), one.1.max(other.1));
        // One address of the two groups: the smallest of either side, since each has to be asked for.
        let smallest = |groups: Vec<Vec<IpAddr>>| groups.into_iter().min_by_key(Vec::len);
        let group = smallest(self.addresses).zip(smallest(other.addresses)).map(|(one, other)| [one, other].concat());
        Needs {
            addresses: group.into_iter().collect(),
            start_ns: either(self.start_ns, other.start_ns),
            end_ns: either(self.end_ns, other.end_ns),
            asks_age: self.asks_age || other.asks_age,
        }
    }
}

/// The addresses of a network, if they are few.
fn addresses(end: &End) -> Option<Vec<IpAddr>> {
    match end {
        End::Net(net) => {
            let few: Vec<IpAddr> = net.iter().take(NETWORK_ADDRESSES_MAX + 1).collect();
            Some(few).filter(|few| few.len() <= NETWORK_ADDRESSES_MAX)
        }
        End::Ports(_) => None,
    }
}

/// The times that have this relation to one, both ends included.
fn range(relation: Relation, time_ns: i64) -> (i64, i64) {
    match relation {
        Relation::Above => (time_ns.saturating_add(1), i64::MAX),
        Relation::AtLeast => (time_ns, i64::MAX),
        Relation::Below => (i64::MIN, time_ns.saturating_sub(1)),
        Relation::AtMost => (i64::MIN, time_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::{Filter, time_ns};

    fn needs(text: &str) -> Needs {
        text.parse::<Filter>().unwrap().needs()
    }

    #[test]
    fn addresses_are_needed_where_every_branch_has_some() {
        let groups = |text: &str| needs(text).addresses.iter().map(Vec::len).collect::<Vec<_>>();
        for (text, expected) in [
            ("10.0.0.1", vec![1]),
            ("client 10.0.0.1 port 5 and server 10.0.0.2", vec![1, 1]),
            ("net 10.0.0.0/28 and port 443", vec![16]),
            ("net 10.0.0.0/27", vec![]),
            ("2001:db8::1", vec![1]),
            ("2001:db8::/32", vec![]),
            ("10.0.0.1 or 10.0.0.2", vec![2]),
            ("10.0.0.1 or port 443", vec![]),
            ("(10.0.0.1 or 10.0.0.2) and 10.0.0.3 or 10.0.0.4", vec![2]),
            ("not 10.0.0.1", vec![]),
            ("not 10.0.0.1 and 10.0.0.2", vec![1]),
        ] {
            assert_eq!(groups(text), expected, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_all_tests_together() {
        let day = |day: u32| time_ns(&format!("2026-01-{day:02}")).unwrap();
        assert_eq!(needs("start >= 2026-01-02 and start <= 2026-01-03").start_ns, (day(2), day(3)));
        assert_eq!(needs("end > 2026-01-02").end_ns, (day(2) + 1, i64::MAX));
        assert_eq!(needs("end <= 2026-01-02 or end <= 2026-01-05").end_ns, (i64::MIN, day(5)));
        assert_eq!(needs("end < 2026-01-02 or port 443").end_ns, ANY_TIME);
        assert_eq!(needs("not start < 2026-01-02").start_ns, ANY_TIME);
        assert_eq!(["not age > 1h", "ip or age < 1h", "ip"].map(|text| needs(text).asks_age), [true, true, false]);
    }
}
