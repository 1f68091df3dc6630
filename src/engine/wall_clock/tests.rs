//! Clocks as they are set, and threads as they come: every interval once, whatever happens.

use super::*;

const S: i64 = 1_000_000_000;

/// A pacer whose clocks say what a test says.
struct Rig {
    pacer: Pacer,
    /// The wall time at the origin, moved to a multiple of the interval.
    wall_ns: i64,
}

impl Rig {
    /// One that begins when the wall clock is `late_ns` behind a multiple of `every_ns`.
    fn new(every_ns: i64, late_ns: i64) -> Self {
        let multiple_ns = 1_767_225_600 * S;
        let (origin_wall_ns, first_tick) = (multiple_ns + late_ns, Clock::FIRST_TICK);
        let clocks = Clocks { origin: Instant::now(), origin_wall_ns, first_tick };
        let pacer = Pacer::new(clocks, every_ns, None);
        let began = Now { elapsed_ns: 0, wall_ns: multiple_ns + late_ns };
        {
            let mut state = pacer.state.lock();
            state.next = plan(began, every_ns, 1);
            state.start_wall_ns = began.wall_ns;
        }
        Rig { pacer, wall_ns: multiple_ns + late_ns }
    }

    /// The marks after `passed` when so much time has passed and the wall clock was set by `set_ns` since the
    /// beginning.
    fn marks(&self, passed: u64, elapsed_ns: i64, set_ns: i64) -> std::result::Result<Marks, i64> {
        let now = Now { elapsed_ns, wall_ns: self.wall_ns + elapsed_ns + set_ns };
        self.pacer.marks_after(passed, elapsed_ns, now)
    }

    /// Start and end of the interval that ends there, in seconds from the beginning's multiple.
    fn interval(&self, marks: Marks, late_ns: i64) -> (i64, i64) {
        let marker = marks.end.unwrap();
        let origin_ns = self.wall_ns - late_ns;
        ((marker.start_ns - origin_ns) / S, (marker.end_ns - origin_ns) / S)
    }
}

#[test]
fn ends_are_multiples_of_the_wall_clock_and_the_same_for_all() {
    let rig = Rig::new(10 * S, 3 * S);
    assert_eq!(rig.marks(0, 6 * S, 0), Err(7 * S));
    let first = rig.marks(0, 7 * S, 0).unwrap();
    assert_eq!(rig.interval(first, 3 * S), (3, 10));
    assert_eq!(rig.marks(0, 9 * S, 0), Ok(first), "the other thread comes later");
    assert_eq!(rig.marks(1, 9 * S, 0), Err(17 * S));
    let second = rig.marks(1, 19 * S, 0).unwrap();
    assert_eq!(rig.interval(second, 3 * S), (10, 20));
    assert_eq!((first.base, second.base), (None, None));
    let ticks = second.end.unwrap().end_tick - first.end.unwrap().end_tick;
    assert_eq!(ticks, 100);
}

#[test]
fn clocks_that_were_not_read_at_once_make_no_odd_ages() {
    let rig = Rig::new(10 * S, 3 * S);
    let now = Now { elapsed_ns: 7 * S - 70, wall_ns: rig.wall_ns + 7 * S };
    let marks = rig.pacer.marks_after(0, 7 * S, now).unwrap();
    let marker = marks.end.unwrap();
    assert_eq!((marker.within_tick_ns, marker.end_ns - rig.wall_ns), (0, 7 * S));
    assert_eq!(rig.pacer.first_base().wall_ns(marker.end_tick), marker.end_ns);
}

#[test]
fn a_late_thread_is_given_every_interval() {
    let rig = Rig::new(S, 0);
    for passed in 0..3 {
        let marks = rig.marks(passed, 3 * S + S / 2, 0).unwrap();
        assert_eq!(rig.interval(marks, 0), (passed as i64, passed as i64 + 1));
    }
    assert_eq!(rig.marks(3, 3 * S + S / 2, 0), Err(4 * S));
}

#[test]
fn a_thread_whose_packets_lag_is_given_no_end_before_they_reach_it() {
    let rig = Rig::new(S, 0);
    let said: Vec<_> = (0..3).map(|passed| rig.marks(passed, 3 * S + S / 2, 0).unwrap()).collect();
    let now = Now { elapsed_ns: 3 * S + S / 2, wall_ns: rig.wall_ns + 3 * S + S / 2 };
    let last = rig.pacer.last_marks_after(3, now).unwrap();
    for (passed, marks) in (0..).zip(&said) {
        let end_ns = (passed as i64 + 1) * S;
        assert_eq!(rig.marks(passed, end_ns - 1, 0), Err(end_ns));
        assert_eq!(rig.marks(passed, end_ns, 0), Ok(*marks));
    }
    assert_eq!(rig.marks(3, 3 * S + S / 2, 0), Err(i64::MAX), "what comes before the stop is not all read");
    assert_eq!(rig.pacer.last_marks_after(3, now), Some(last));
}

#[test]
fn a_step_of_the_wall_clock_neither_skips_nor_repeats() {
    for set_ns in [3_600 * S, 3 * S, -3 * S, -3_600 * S] {
        let rig = Rig::new(10 * S, 0);
        let mut ends = Vec::new();
        let mut starts = Vec::new();
        let mut bases = 0;
        for second in 1..=100 {
            let set_ns = if second >= 25 { set_ns } else { 0 };
            if let Ok(marks) = rig.marks(ends.len() as u64, second * S, set_ns) {
                rig.pacer.listed();
                let (start, end) = rig.interval(marks, 0);
                starts.push(start);
                ends.push((second, end));
                bases += u32::from(marks.base.is_some());
            }
        }
        // Nine or ten in a hundred seconds, each from where the one before ended, and after the step at multiples
        // again.
        assert!((9..=10).contains(&ends.len()), "{set_ns}: {ends:?}");
        assert!(ends.windows(2).all(|pair| (5..=15).contains(&(pair[1].0 - pair[0].0))), "{set_ns}: {ends:?}");
        assert!(starts[1..].iter().zip(&ends).all(|(start, (_, end))| start == end), "{set_ns}");
        assert!(ends[3..].iter().all(|(_, end)| end % 10 == 0), "{set_ns}: {ends:?}");
        assert_eq!(bases, 1, "{set_ns}");
        let mut labels: Vec<_> = ends.iter().map(|(_, end)| end).collect();
        labels.dedup();
        assert_eq!(labels.len(), ends.len(), "{set_ns}: {ends:?}");
    }
}

#[test]
fn ticks_before_and_after_a_step_tell_their_own_wall_time() {
    let rig = Rig::new(10 * S, 0);
    let marks = rig.marks(0, 10 * S, 3_600 * S).unwrap();
    let (first, second) = (rig.pacer.first_base(), marks.base.unwrap());
    let tick = marks.end.unwrap().end_tick;
    assert_eq!(first.wall_ns(tick) - rig.wall_ns, 10 * S);
    assert_eq!(second.wall_ns(tick + 1) - rig.wall_ns, 3_610 * S + TICK_NS);
    assert_eq!(marks.end.unwrap().end_ns - rig.wall_ns, 3_610 * S);
    assert_eq!(second.first_tick, tick + 1);
}

#[test]
fn intervals_whose_lists_are_behind_are_merged_and_counted() {
    let rig = Rig::new(S, 0);
    for passed in 0..PENDING_INTERVALS_MAX as u64 {
        rig.marks(passed, (passed as i64 + 1) * S, 0).unwrap();
    }
    let passed = PENDING_INTERVALS_MAX as u64;
    assert_eq!(rig.marks(passed, 8 * S, 0), Err(9 * S));
    rig.pacer.listed();
    let marks = rig.marks(passed, 9 * S, 0).unwrap();
    assert_eq!(rig.interval(marks, 0), (4, 9));
    assert_eq!(marks.end.unwrap().merged, 4);
    for _ in 0..PENDING_INTERVALS_MAX {
        rig.pacer.listed();
    }
    let marks = rig.marks(passed + 1, 10 * S, 0).unwrap();
    assert_eq!((rig.interval(marks, 0), marks.end.unwrap().merged), ((9, 10), 0));
}

#[test]
fn a_last_list_tells_how_many_intervals_it_covers() {
    for (late_ns, merged) in [(0, 0), (1, 1), (2 * S + S / 2, 3)] {
        let rig = Rig::new(S, 0);
        rig.marks(0, S, 0).unwrap();
        let elapsed_ns = 2 * S + late_ns;
        let now = Now { elapsed_ns, wall_ns: rig.wall_ns + elapsed_ns };
        let last = rig.pacer.last_marks_after(1, now).unwrap().end.unwrap();
        assert_eq!((last.start_ns - rig.wall_ns, last.end_ns, last.merged), (S, now.wall_ns, merged));
    }
}

#[test]
fn the_last_marks_are_the_same_for_all_and_come_once() {
    let rig = Rig::new(S, 0);
    let first = rig.marks(0, S, 0).unwrap();
    let now = Now { elapsed_ns: S + S / 2, wall_ns: rig.wall_ns + S + S / 2 };
    let last = rig.pacer.last_marks_after(1, now).unwrap();
    assert!(last.end.unwrap().is_last && last.end.unwrap().end_ns == now.wall_ns);
    assert_eq!(rig.pacer.last_marks_after(2, now), None);
    let slow: Vec<_> = (0..3).map(|passed| rig.pacer.last_marks_after(passed, now)).collect();
    assert_eq!(slow, [Some(first), Some(last), None]);
    assert_eq!(rig.marks(2, 9 * S, 0), Err(i64::MAX), "there is no interval behind the last");
}
