//! Clocks as they are set: every interval once, in any case.

use super::*;
use std::cell::{Cell, RefCell};

const S: i64 = 1_000_000_000;

/// A clock that a test sets.
struct Rig {
    clock: WallClock,
    /// The wall time at the origin, moved to a multiple of the interval.
    wall_ns: i64,
}

impl Rig {
    /// One that begins when the wall clock is `late_ns` behind a multiple of `every_ns`.
    fn new(every_ns: i64, late_ns: i64) -> Self {
        let multiple_ns = 1_767_225_600 * S;
        let (origin_wall_ns, first_tick) = (multiple_ns + late_ns, Clock::FIRST_TICK);
        let schedule = Schedule::new(Clocks { origin: Instant::now(), origin_wall_ns, first_tick });
        let began = Now { elapsed_ns: 0, wall_ns: multiple_ns + late_ns };
        let clock = WallClock::beginning(began, Arc::new(schedule), every_ns, None, Vec::new());
        Rig { clock, wall_ns: multiple_ns + late_ns }
    }

    fn now(&self, elapsed_ns: i64, set_ns: i64) -> Now {
        Now { elapsed_ns, wall_ns: self.wall_ns + elapsed_ns + set_ns }
    }

    /// The next end that has come when so much time has passed and the wall clock was set by `set_ns` since the
    /// beginning.
    fn due(&mut self, elapsed_ns: i64, set_ns: i64) -> Option<End> {
        let now = self.now(elapsed_ns, set_ns);
        self.clock.publish(now);
        self.clock.due(now)
    }

    /// The next end, as ports know it.
    fn next_ns(&self) -> i64 {
        self.clock.schedule.end_after(self.clock.number - 1).unwrap().elapsed_ns
    }

    /// Start and end of the interval that ends there, in seconds from the beginning's multiple.
    fn interval(&self, end: &End, late_ns: i64) -> (i64, i64) {
        let marker = end.marker.unwrap();
        let origin_ns = self.wall_ns - late_ns;
        ((marker.start_ns - origin_ns) / S, (marker.end_ns - origin_ns) / S)
    }

    fn listed(&self) {
        self.clock.schedule.listed();
    }
}

/// What is read of both clocks, of which the wall clock is 1,000 s ahead, if so many milliseconds pass between the
/// readings of either, in turns: behind the last nothing more does.
fn read_with_pauses(pauses_ms: &[i64]) -> Now {
    let (time_ns, pauses) = (Cell::new(0), RefCell::new(pauses_ms.iter()));
    let pass = |ahead_ns| {
        let read_ns = time_ns.get() + ahead_ns;
        time_ns.set(time_ns.get() + pauses.borrow_mut().next().unwrap_or(&0) * 1_000_000);
        read_ns
    };
    Now::read(|| pass(0), || pass(1_000 * S))
}

#[test]
fn both_clocks_are_read_together_though_other_threads_run_in_between() {
    // Three readings each: of the steady clock, the wall clock, and the steady clock once more.
    for pauses_ms in [&[][..], &[250], &[0, 250], &[250, 0, 0, 250], &[250, 250, 0, 0, 250, 250, 90]] {
        let Now { elapsed_ns, wall_ns } = read_with_pauses(pauses_ms);
        assert_eq!(wall_ns - elapsed_ns, 1_000 * S, "{pauses_ms:?}");
    }
    // Never together: the closest of all.
    let pauses_ms = [&[250; 9][..], &[2, 2, 250], &[250; 60]].concat();
    let Now { elapsed_ns, wall_ns } = read_with_pauses(&pauses_ms);
    assert_eq!(wall_ns - elapsed_ns, 1_000 * S + 2_000_000);
}

#[test]
fn the_first_interval_may_be_held_open() {
    let rig = Rig::new(10 * S, 3 * S);
    let mut rig = Rig { clock: rig.clock.holding(), ..rig };
    let turn = |rig: &mut Rig, elapsed_ns: i64| {
        let now = rig.now(elapsed_ns, 0);
        rig.clock.turn(now);
        rig.clock.schedule.end_after(0).map(|end| end.elapsed_ns)
    };
    assert_eq!([6, 25].map(|elapsed_s| turn(&mut rig, elapsed_s * S)), [None, None]);
    rig.clock.schedule.begin();
    assert_eq!(turn(&mut rig, 26 * S), Some(27 * S));
    let now = rig.now(26 * S, 0);
    let last = rig.clock.last(now);
    assert_eq!(rig.interval(&last, 3 * S), (3, 29));
}

#[test]
fn ends_are_multiples_of_the_wall_clock_and_ports_know_them_before() {
    let mut rig = Rig::new(10 * S, 3 * S);
    assert!(rig.due(6 * S, 0).is_none());
    assert_eq!(rig.next_ns(), 7 * S);
    let first = rig.due(7 * S, 0).unwrap();
    assert_eq!((rig.interval(&first, 3 * S), first.number), ((3, 10), 1));
    assert_eq!(
        rig.clock.schedule.end_after(0),
        Some(KnownEnd { number: 1, elapsed_ns: 7 * S }),
        "for a port that is late"
    );
    assert!(rig.due(9 * S, 0).is_none());
    assert_eq!(rig.next_ns(), 17 * S);
    let second = rig.due(19 * S, 0).unwrap();
    assert_eq!((rig.interval(&second, 3 * S), second.number), ((10, 20), 2));
    assert_eq!((first.base, second.base), (None, None));
    let ticks = second.marker.unwrap().end_tick - first.marker.unwrap().end_tick;
    assert_eq!(ticks, 100);
    assert_eq!(rig.clock.schedule.end_after(3), None);
}

#[test]
fn a_port_that_is_far_behind_is_given_the_newest_ends() {
    let mut rig = Rig::new(S, 0);
    for second in 1..=100 {
        rig.due(second * S, 0).unwrap();
    }
    let end = rig.clock.schedule.end_after(3).unwrap();
    assert!(end.number > 90 && end.elapsed_ns == end.number as i64 * S, "{end:?}");
    assert_eq!(rig.clock.schedule.end_after(100), Some(KnownEnd { number: 101, elapsed_ns: 101 * S }));
}

#[test]
fn clocks_that_were_not_read_at_once_make_no_odd_ages() {
    let mut rig = Rig::new(10 * S, 3 * S);
    let now = Now { elapsed_ns: 7 * S - 70, wall_ns: rig.wall_ns + 7 * S };
    rig.clock.next.elapsed_ns -= 70;
    let marker = rig.clock.due(now).unwrap().marker.unwrap();
    assert_eq!((marker.within_tick_ns, marker.end_ns - rig.wall_ns), (0, 7 * S));
    assert_eq!(rig.clock.schedule.first_base.wall_ns(marker.end_tick), marker.end_ns);
}

#[test]
fn a_clock_that_is_late_ends_every_interval() {
    let mut rig = Rig::new(S, 0);
    for passed in 0..3 {
        let end = rig.due(3 * S + S / 2, 0).unwrap();
        assert_eq!(rig.interval(&end, 0), (passed, passed + 1));
    }
    assert!(rig.due(3 * S + S / 2, 0).is_none());
    assert_eq!(rig.next_ns(), 4 * S);
}

#[test]
fn a_step_of_the_wall_clock_neither_skips_nor_repeats() {
    for set_ns in [3_600 * S, 3 * S, -3 * S, -3_600 * S] {
        let mut rig = Rig::new(10 * S, 0);
        let mut ends = Vec::new();
        let mut starts = Vec::new();
        let mut bases = 0;
        for second in 1..=100 {
            let set_ns = if second >= 25 { set_ns } else { 0 };
            if let Some(end) = rig.due(second * S, set_ns) {
                rig.listed();
                bases += u32::from(end.base.is_some());
                let (start, end) = rig.interval(&end, 0);
                starts.push(start);
                ends.push((second, end));
            }
        }
        // Nine or ten in a hundred seconds, each from where the one before ended, and after the step at multiples
        // again.
        assert!((9..=10).contains(&ends.len()), "{set_ns}: {ends:?}");
        assert!(ends.windows(2).all(|pair| (5..=15).contains(&(pair[1].0 - pair[0].0))), "{set_ns}: {ends:?}");
        assert!(starts[1..].iter().zip(&ends).all(|(start, (_, end))| start == end), "{set_ns}");
        assert!(ends[3..].iter().all(|(_, end)| end % 10 == 0), "{set_ns}: {ends:?}");
        assert_eq!((bases, rig.clock.schedule.clock_steps()), (1, 1), "{set_ns}");
        let mut labels: Vec<_> = ends.iter().map(|(_, end)| end).collect();
        labels.dedup();
        assert_eq!(labels.len(), ends.len(), "{set_ns}: {ends:?}");
    }
}

#[test]
fn ticks_before_and_after_a_step_have_their_own_wall_time() {
    let mut rig = Rig::new(10 * S, 0);
    let end = rig.due(10 * S, 3_600 * S).unwrap();
    let (first, second, marker) = (rig.clock.schedule.first_base, end.base.unwrap(), end.marker.unwrap());
    let tick = marker.end_tick;
    assert_eq!(first.wall_ns(tick) - rig.wall_ns, 10 * S);
    assert_eq!(second.wall_ns(tick + 1) - rig.wall_ns, 3_610 * S + TICK_NS);
    assert_eq!(marker.end_ns - rig.wall_ns, 3_610 * S);
    assert_eq!(second.first_tick, tick + 1);
}

#[test]
fn intervals_whose_lists_are_behind_are_merged_and_counted() {
    let mut rig = Rig::new(S, 0);
    let pending_max = PENDING_INTERVALS_MAX as i64;
    for number in 1..=pending_max {
        assert!(rig.due(number * S, 0).unwrap().marker.is_some());
    }
    for number in pending_max + 1..=8 {
        let end = rig.due(8 * S, 0).unwrap();
        assert!(end.marker.is_none() && end.number as i64 == number, "ports pass it, and it is no end");
    }
    assert!(rig.due(8 * S, 0).is_none());
    rig.listed();
    let end = rig.due(9 * S, 0).unwrap();
    assert_eq!((rig.interval(&end, 0), end.number), ((4, 9), 9));
    assert_eq!(end.marker.unwrap().merged, 4);
    for _ in 0..PENDING_INTERVALS_MAX {
        rig.listed();
    }
    let end = rig.due(10 * S, 0).unwrap();
    assert_eq!((rig.interval(&end, 0), end.marker.unwrap().merged), ((9, 10), 0));
}

#[test]
fn the_last_end_is_now_and_says_how_many_intervals_it_covers() {
    for (late_ns, merged) in [(0, 0), (1, 1), (2 * S + S / 2, 3)] {
        let mut rig = Rig::new(S, 0);
        rig.due(S, 0).unwrap();
        let now = rig.now(2 * S + late_ns, 0);
        let end = rig.clock.last(now);
        let last = end.marker.unwrap();
        assert!(last.is_last);
        assert_eq!((last.start_ns - rig.wall_ns, last.end_ns, last.merged), (S, now.wall_ns, merged));
        let mut ends = Vec::new();
        while let Some(end) = rig.clock.schedule.end_after(ends.len() as u64) {
            ends.push((end.number, end.elapsed_ns));
        }
        assert_eq!(ends[ends.len() - 1], (end.number, now.elapsed_ns), "a port can pass it");
        assert!(ends.iter().all(|(_, elapsed_ns)| *elapsed_ns <= now.elapsed_ns), "{ends:?}");
    }
}
