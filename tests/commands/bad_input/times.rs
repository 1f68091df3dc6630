//! Clocks that run backwards, leap and stand still: no more lists than packets, and no hang.

use super::cuts::{in_time, listed};
use super::file;
use crate::support::captures::{START_S, opening, pcap_at, pcapng_at};
use crate::support::command::replay;
use std::time::Duration;

const CONNECTIONS: u16 = 300;
const PACKETS: u64 = 3 * CONNECTIONS as u64;

/// The second of each packet.
type Clock = fn(u32) -> u32;

fn frames() -> Vec<Vec<u8>> {
    (0..CONNECTIONS).flat_map(|index| opening(40_000 + index)).collect()
}

/// Replays a capture with and without intervals.
fn assert_bounded(name: &str, bytes: &[u8]) {
    for every in [None, Some(100), Some(3_600_000)] {
        let every = every.map(Duration::from_millis);
        let (lists, summary) = listed(bytes, every);
        assert_eq!(summary.packets, PACKETS, "{name}");
        assert!(summary.errors.is_empty(), "{name}");
        let most = if every.is_some() { PACKETS as usize + 1 } else { 1 };
        assert!((1..=most).contains(&lists.len()), "{name}: {} lists", lists.len());
        for (at, (header, rows)) in lists.iter().enumerate() {
            assert!(header.complete, "{name}: {header:?}");
            assert_eq!(header.figures.interval, at as u64 + 1, "{name}");
            assert!(header.figures.start_ns <= header.figures.end_ns, "{name}: {header:?}");
            assert!(rows.len() <= usize::from(CONNECTIONS), "{name}: {header:?}");
            assert!(rows.iter().all(|row| row.age_ns >= 0), "{name}: {header:?}");
        }
        // Every handshake is complete within three packets; by their clock it may have timed out at most.
        let opened: u64 = lists.iter().map(|(header, _)| header.figures.opened).sum();
        assert!(opened <= u64::from(CONNECTIONS), "{name}");
        assert_eq!(lists.last().unwrap().0.flows, opened, "{name}");
    }
}

#[test]
fn clocks_in_seconds() {
    in_time(|| {
        let clocks: [(&str, Clock); 7] = [
            ("stands", |_| START_S),
            ("stands at nought", |_| 0),
            ("a second back at every packet", |at| START_S - at),
            ("two minutes back at every packet", |at| START_S - 120 * at),
            ("decades to and fro", |at| if at % 2 == 0 { 0 } else { u32::MAX }),
            ("decades to and fro at every third", |at| if at % 3 == 0 { START_S } else { START_S ^ 0x4000_0000 }),
            ("leaps on by two months", |at| (at / 3).wrapping_mul(5_000_000)),
        ];
        for (name, clock) in clocks {
            let timed: Vec<_> = (0..).map(clock).zip(frames()).collect();
            assert_bounded(name, &pcap_at(&timed));
        }
    });
}

#[test]
fn clocks_at_the_ends_of_time() {
    in_time(|| {
        // Ticks of a second, and an offset: none, and the lowest there is.
        let seconds = [9, 0, 1, 0, 0, 0, 0, 0];
        let lowest = [14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
        let ends = |at: u64| if at.is_multiple_of(2) { 0 } else { u64::MAX };
        for options in [seconds.to_vec(), [&seconds[..], &lowest].concat()] {
            let to_and_fro: Vec<_> = (0..).map(ends).zip(frames()).collect();
            assert_bounded("the ends of time in turn", &pcapng_at(&options, &to_and_fro));
            let backwards: Vec<_> = (0..).map(|at| u64::MAX - (at << 54)).zip(frames()).collect();
            assert_bounded("centuries back", &pcapng_at(&options, &backwards));
        }
    });
}

#[test]
fn a_step_back_ages_no_handshake_that_waits() {
    in_time(|| {
        let frames = frames();
        let (answered, acknowledged): (Vec<_>, Vec<_>) = (0..).zip(frames).partition(|(at, _)| at % 3 < 2);
        for back_s in [30, 90, 1_000_000] {
            let before = answered.iter().map(|(_, frame)| (START_S, frame.clone()));
            let after = acknowledged.iter().map(|(_, frame)| (START_S - back_s, frame.clone()));
            let timed: Vec<_> = before.chain(after).collect();
            let (lists, _) = listed(&pcap_at(&timed), None);
            assert_eq!(lists[0].0.flows, u64::from(CONNECTIONS), "{back_s} s back");
        }
    });
}

#[test]
fn the_command_lists_what_a_backward_clock_gives() {
    let timed: Vec<_> = (0..).map(|at| START_S - 120 * at).zip(frames()).collect();
    let (_directory, path) = file("backwards.pcap", &pcap_at(&timed));
    let ended = replay(["-q", "--every", "10s", path.to_str().unwrap()]);
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
    let lists = ended.lists();
    assert_eq!(lists.len(), 1, "no packet follows another, so no clock is believed and no time passes");
    assert_eq!(lists.last().unwrap().count("flows"), u64::from(CONNECTIONS));
}

#[test]
fn a_leap_past_the_end_of_a_long_interval_starts_nothing_in_the_future() {
    const INTERVAL_S: u32 = 60 * 86_400;
    let multiple_s = START_S - START_S % INTERVAL_S;
    let at = |second| opening(40_000 + (second % 100) as u16).map(|frame| (second, frame));
    let timed = [
        at(multiple_s + 1),
        at(multiple_s + INTERVAL_S + 4),
        at(multiple_s + INTERVAL_S + 50),
        at(multiple_s + INTERVAL_S + 99),
    ]
    .concat();
    let (lists, _) = listed(&pcap_at(&timed), Some(Duration::from_secs(INTERVAL_S.into())));
    let ages = |at: usize| lists[at].1.iter().map(|row| row.age_ns / 1_000_000_000).collect::<Vec<_>>();
    assert!(
        lists
            .iter()
            .flat_map(|(header, rows)| rows.iter().map(|row| row.start_ns <= header.figures.end_ns))
            .all(|is| is)
    );
    // A leap of more than thirty days is a clock that was set, and ages nothing.
    assert_eq!((ages(0), ages(1)), (vec![0], vec![95, 95, 49, 0]));
}
