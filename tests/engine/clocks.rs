//! Worlds of clocks: sources whose clocks differ, wrong stamps, time without packets, clocks that are set. What is
//! listed, taken off and given as an age is that of the same packets with true stamps.

use crate::deceived::{BEGIN_US, Connection, Numbers, Packets, SECOND_US, evicting};
use crate::support::feed::{Kept, Stamped, lists_of_stamped};
use flowpeel::capture::{ClockName, Stamp};
use flowpeel::engine::Config;
use flowpeel::list::Row;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// How far ages may be from those with true stamps, in seconds: as far as a stamp may be from one that it follows, on
/// either side.
const TOLERANCE_S: i64 = 120;

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;

/// What clocks make of true times.
#[derive(Clone, Debug)]
struct Clocks {
    seed: u64,
    /// What the clock of the servers' side shows more than that of the clients', in seconds, and whether the two are
    /// sources with names.
    ahead_s: i64,
    are_named: bool,
    /// Time without packets, in seconds, once or twice.
    gaps_s: Vec<i64>,
    /// Wrong stamps: where, as a part of all packets, and by how much, in seconds.
    wrong_s: Vec<(f64, Vec<i64>)>,
    /// Where all clocks are set, and by how much, in seconds.
    set_s: Option<(f64, i64)>,
}

impl Clocks {
    /// Connections whose packets come in turn: all speak for two minutes, and half of them again behind each gap; some
    /// of those end.
    fn packets(&self) -> Packets {
        let mut numbers = Numbers(self.seed);
        let connections: Vec<Connection> = (0..16).map(|port| Connection::new(&mut numbers, 40_000 + port)).collect();
        let (mut packets, mut from_s, mut sent) = (Vec::new(), 0, 1);
        for (number, connection) in connections.iter().enumerate() {
            packets.extend(connection.handshake(BEGIN_US + number as i64 * 40_000));
        }
        for part in 0..=self.gaps_s.len() {
            let speaking = if part == 0 { &connections[..] } else { &connections[8..] };
            for second in 1..120 {
                sent += 1;
                for (number, connection) in
                    speaking.iter().enumerate().filter(|(number, _)| second % 4 == *number as i64 % 4)
                {
                    packets.extend(
                        connection.talk(BEGIN_US + (from_s + second) * SECOND_US + number as i64 * 40_000, sent),
                    );
                }
            }
            from_s += 120 + self.gaps_s.get(part).unwrap_or(&0);
        }
        for connection in &connections[12..] {
            packets.extend(connection.end(BEGIN_US + (from_s + 1) * SECOND_US, sent + 1));
        }
        packets.sort_by_key(|(time_us, _)| *time_us);
        packets
    }

    /// The same packets with the stamps that their clocks make.
    fn stamped(&self, packets: &Packets) -> Vec<Stamped> {
        let at = |part: f64| (part * packets.len() as f64) as usize;
        let mut stamped: Vec<Stamped> = packets
            .iter()
            .cloned()
            .map(|(time_us, frame)| {
                let is_of_server = frame[29] == 2;
                let ahead_us = if is_of_server { self.ahead_s * SECOND_US } else { 0 };
                let clock = ClockName::of_source(usize::from(is_of_server && self.are_named));
                (Stamp { time_ns: (time_us + ahead_us) * 1_000, clock }, frame)
            })
            .collect();
        if let Some((part, set_s)) = self.set_s {
            stamped[at(part)..].iter_mut().for_each(|(stamp, _)| stamp.time_ns += set_s * SECOND_US * 1_000);
        }
        for (part, wrong_s) in &self.wrong_s {
            let wrong = stamped[at(*part)..].iter_mut().zip(wrong_s);
            wrong.for_each(|((stamp, _), wrong_s)| stamp.time_ns += wrong_s * SECOND_US * 1_000);
        }
        stamped
    }

    /// That the last list is that of true time, or says that it is not, and then nothing was taken off early.
    fn check(&self, config: &Config) -> Result<(), TestCaseError> {
        let packets = self.packets();
        let truth =
            last(packets.iter().cloned().map(|(time_us, frame)| (Stamp::unnamed(time_us * 1_000), frame)), config);
        let list = last(self.stamped(&packets), config);
        let (expected, listed) = (rows(&truth), rows(&list));
        prop_assert!(truth.header.complete && !truth.header.figures.time_uncertain);
        prop_assert!(expected.len() >= 4 || self.gaps_s.iter().sum::<i64>() > 5 * DAY_S);
        let end_ns = packets[packets.len() - 1].0 * 1_000;
        prop_assert!(expected.values().all(|row| row.age_ns.abs_diff(end_ns - row.start_ns) <= 1_000_000_000));
        if list.header.figures.time_uncertain {
            prop_assert!(expected.keys().all(|port| listed.contains_key(port)), "something was taken off early");
            return Ok(());
        }
        prop_assert!(list.header.complete);
        prop_assert_eq!(ports(&listed), ports(&expected));
        for (port, row) in &listed {
            let (age_ns, true_ns) = (row.age_ns, expected[port].age_ns);
            prop_assert_eq!((row.state, row.midstream), (expected[port].state, false));
            prop_assert!((age_ns - true_ns).abs() <= TOLERANCE_S * SECOND_US * 1_000, "{} for {}", age_ns, true_ns);
        }
        Ok(())
    }
}

fn last(packets: impl IntoIterator<Item = Stamped>, config: &Config) -> Kept {
    lists_of_stamped(packets.into_iter().collect(), config).0.pop().expect("there is a list at the end")
}

/// The established connections by the clients' ports.
fn rows(list: &Kept) -> BTreeMap<u16, Row> {
    list.rows.iter().map(|row| (row.client.port(), *row)).collect()
}

fn ports(rows: &BTreeMap<u16, Row>) -> Vec<u16> {
    rows.keys().copied().collect()
}

fn leap_s() -> impl Strategy<Value = i64> {
    let far = 1_500_000_000;
    prop_oneof![-far..-DAY_S, 40 * DAY_S..far, -HOUR_S..-3 * MINUTE_S, 3 * MINUTE_S..30 * DAY_S]
}

/// Clocks and gaps such that no timeout is as near as a clock may be wrong, and no wrong stamp where another clock, or
/// the same before a gap, is.
fn clocks() -> impl Strategy<Value = Clocks> {
    let gap_s = prop_oneof![2 * MINUTE_S..3 * HOUR_S, 5 * HOUR_S..30 * HOUR_S, 6 * DAY_S..25 * DAY_S];
    let ahead = prop_oneof![Just((0, false)), Just((0, true)), (-10i64..10, Just(true)), (leap_s(), Just(true))];
    let burst = (leap_s(), 1usize..5).prop_map(|(leap_s, count)| vec![leap_s; count]);
    let wrong_s = prop::collection::vec((0.0..1.0, prop_oneof![burst, prop::collection::vec(leap_s(), 1..4)]), 0..4);
    (any::<u64>(), ahead, prop::collection::vec(gap_s, 0..3), wrong_s)
        .prop_map(|(seed, (ahead_s, are_named), gaps_s, mut wrong_s)| {
            // More wrong stamps that agree are all that there is.
            wrong_s.iter_mut().filter(|(part, _)| *part < 0.01).for_each(|(_, wrong_s)| wrong_s.truncate(2));
            Clocks { seed, ahead_s, are_named, gaps_s, wrong_s, set_s: None }
        })
        .prop_filter("what could be either", |clocks| {
            let sum_s: i64 = clocks.gaps_s.iter().sum();
            let is_near = |one: i64, other: i64| (one - other).abs() < 20 * MINUTE_S;
            let timeouts_s = [4 * HOUR_S, 5 * DAY_S];
            let is_decided = |gap_s: i64| !timeouts_s.iter().any(|timeout_s| is_near(gap_s, *timeout_s));
            let wrong_s: Vec<i64> = clocks.wrong_s.iter().flat_map(|(_, wrong_s)| wrong_s).copied().collect();
            let spans_s: Vec<i64> = clocks.gaps_s.iter().copied().chain([sum_s]).collect();
            spans_s
                .iter()
                .all(|span_s| is_decided(*span_s) && !wrong_s.iter().any(|wrong_s| is_near(wrong_s.abs(), *span_s)))
        })
}

/// Lists at every ten seconds of traffic, or one at the end.
fn config(has_intervals: bool) -> Config {
    let config = Config { connections_max: 1_000, churn: Some(1_000), shards: 1, ..evicting() };
    Config { every: config.every.filter(|_| has_intervals), ..config }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_those_of_true_time(clocks in clocks(), has_intervals in any::<bool>()) {
        clocks.check(&config(has_intervals))?;
    }

    /// Set by more than time passes for, where as many packets are around it as it takes to see that.
    #[test]
    fn a_clock_that_is_set_changes_no_list(
        mut clocks in clocks(),
        set_s in prop_oneof![-1_500_000_000..-HOUR_S, 40 * DAY_S..1_500_000_000],
        has_intervals in any::<bool>(),
    ) {
        clocks.gaps_s.truncate(1);
        let is_far = |(part, _): &(f64, Vec<i64>)| !(0.3..0.7).contains(part);
        clocks.wrong_s.retain(is_far);
        // In the middle of what all say before the gap, or of the whole.
        let part = if clocks.gaps_s.is_empty() { 0.5 } else { 0.4 };
        Clocks { set_s: Some((part, set_s)), ..clocks }.check(&config(has_intervals))?;
    }
}

/// The packets of each side come in turns that are longer than it takes to judge a leap.
#[test]
fn sides_with_names_may_speak_in_long_turns() {
    for ahead_s in [-9 * HOUR_S, HOUR_S, 20 * DAY_S, 400 * DAY_S] {
        let mut numbers = Numbers(ahead_s as u64);
        let connections: Vec<Connection> = (0..100).map(|port| Connection::new(&mut numbers, 40_000 + port)).collect();
        let (mut packets, mut at_us) = (Vec::new(), BEGIN_US);
        for round in 0..8 {
            for step in 0..3 {
                for connection in &connections {
                    at_us += 5_000;
                    let handshake = connection.handshake(at_us);
                    let frame = match (round, step) {
                        (0, step) => handshake[step].1.clone(),
                        (_, 1) => connection.talk(at_us, round)[1].1.clone(),
                        _ => connection.talk(at_us, round)[0].1.clone(),
                    };
                    let source = usize::from(step == 1);
                    let time_ns = (at_us + if source == 1 { ahead_s * SECOND_US } else { 0 }) * 1_000;
                    packets.push((Stamp { time_ns, clock: ClockName::of_source(source) }, frame));
                }
            }
        }
        let list = last(packets.clone(), &config(false));
        let of_shards = |shards: usize| lists_of_stamped(packets.clone(), &Config { shards, ..config(true) }).0;
        assert!(of_shards(1) == of_shards(3), "{ahead_s}");
        assert_eq!(rows(&list).len(), 100, "{ahead_s}");
        assert!(list.header.complete && !list.header.figures.time_uncertain, "{ahead_s}");
        assert!(list.rows.iter().all(|row| row.age_ns <= 15 * SECOND_US * 1_000), "{ahead_s}");
    }
}

#[test]
fn a_new_source_that_nobody_follows_takes_nothing_off() {
    let mut numbers = Numbers(3);
    let connections: Vec<Connection> = (0..10).map(|port| Connection::new(&mut numbers, 40_000 + port)).collect();
    let mut packets: Vec<Stamped> = Vec::new();
    let stamped = |packets: Packets, source: usize| {
        let clock = ClockName::of_source(source);
        packets.into_iter().map(move |(time_us, frame)| (Stamp { time_ns: time_us * 1_000, clock }, frame))
    };
    for (number, connection) in connections.iter().enumerate() {
        packets.extend(stamped(connection.handshake(BEGIN_US + number as i64 * SECOND_US), 0));
    }
    // Whether six hours have passed, or another clock is that far ahead, only the first source knows.
    for second in 0..200 {
        let at_us = BEGIN_US + (6 * HOUR_S + second) * SECOND_US;
        packets.extend(stamped(connections[0].talk(at_us, 1 + second as u32), 1));
    }
    let list = last(packets.clone(), &config(false));
    assert_eq!(rows(&list).len(), 10);
    assert!(list.header.figures.time_uncertain && list.header.complete);
    // It goes on where it was.
    packets.extend(stamped(connections[1].talk(BEGIN_US + 210 * SECOND_US, 1), 0));
    let list = last(packets, &config(false));
    assert_eq!(rows(&list).len(), 10);
    assert!(!list.header.figures.time_uncertain && list.header.complete);
}

/// True clocks with a gap, but for wrong stamps.
fn gap(gap_s: i64, wrong_s: Vec<(f64, Vec<i64>)>) -> Clocks {
    Clocks { seed: 0, ahead_s: 0, are_named: false, gaps_s: vec![gap_s], wrong_s, set_s: None }
}

/// Those that go on behind a gap and do not end.
const GOING_ON: [u16; 4] = [40_008, 40_009, 40_010, 40_011];

/// Connections are asked about once in each sixteenth of the timeout. What they did before the gap is known behind it,
/// wherever in a sixteenth the gap ends.
#[test]
fn what_falls_silent_in_a_gap_is_off_the_list_soon_behind_it() {
    for gap_s in (5 * HOUR_S..5 * HOUR_S + 900).step_by(60).chain([6 * HOUR_S, 30 * HOUR_S - 1_596, 4 * DAY_S]) {
        let clocks = gap(gap_s, Vec::new());
        let list = last(clocks.stamped(&clocks.packets()), &config(true));
        assert!(list.header.complete && !list.header.figures.time_uncertain, "{gap_s}");
        assert_eq!(ports(&rows(&list)), GOING_ON, "{gap_s}");
    }
}

/// A wrong stamp behind the gap makes two leaps of it, with no question between them.
#[test]
fn what_falls_silent_in_a_gap_is_off_the_list_though_a_stamp_behind_it_is_wrong() {
    for gap_s in [18_000, 18_400, 18_800] {
        let packets = gap(gap_s, Vec::new()).packets();
        let behind = packets.iter().position(|(time_us, _)| time_us - BEGIN_US > gap_s * SECOND_US).unwrap();
        let wrong = [-10_000, -892, 892, 10_000].into_iter().flat_map(|wrong_s| (1..4).map(move |n| vec![wrong_s; n]));
        for (wrong_s, at) in wrong.flat_map(|wrong_s| (behind - 4..behind + 8).map(move |at| (wrong_s.clone(), at))) {
            let part = (at as f64 + 0.5) / packets.len() as f64;
            let list = last(gap(gap_s, vec![(part, wrong_s.clone())]).stamped(&packets), &config(true));
            if !list.header.figures.time_uncertain {
                assert_eq!(ports(&rows(&list)), GOING_ON, "{gap_s} {wrong_s:?} {at}");
            }
        }
    }
}
