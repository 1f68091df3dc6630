//! Time bases: each delta is in its own, and each base in which anything may still open is reported.

use super::*;

#[test]
fn a_new_base_ends_the_delta_under_the_old_one() {
    let (mut shard, mut desk) = (shard(), Desk::default());
    let bases = [3, 4].map(|offset| TimeBase { first_tick: FIRST_TICK * offset, offset_ns: i128::from(offset) });
    shard.start_base(bases[0], &mut desk);
    assert!(desk.handed.is_empty(), "nothing changed before");
    let early: Vec<Signal> = (0..40).flat_map(|number| opening(number, FIRST_TICK * 3)).collect();
    let late: Vec<Signal> = (100..140).flat_map(|number| opening(number, FIRST_TICK * 4)).collect();
    shard.handle(&early, &mut desk);
    shard.start_base(bases[1], &mut desk);
    assert!(!desk.handed.is_empty());
    assert!(desk.handed.iter().all(|handed| handed.base == bases[0] && handed.tick == FIRST_TICK * 3));
    assert_same(&desk.sum(), &direct(&early));
    shard.handle(&late, &mut desk);
    desk.handed.clear();
    shard.end_interval(&marker(FIRST_TICK * 4), &mut desk);
    assert!(desk.handed.iter().all(|handed| handed.base == bases[1] && handed.tick == FIRST_TICK * 4));
    assert_same(&desk.sum(), &direct(&late));
}

#[test]
fn a_time_base_is_known_if_anything_half_open_began_in_it() {
    let base = |first_tick, offset_ns| TimeBase { first_tick, offset_ns };
    let (before, after) = (base(FIRST_TICK, 5), base(FIRST_TICK + 20, 6));
    for (kind, reported) in [(SignalKind::Syn, true), (SignalKind::Ack, false)] {
        let (mut partition, mut desk) = (Partition::new(0, &config()), Desk::default());
        partition.start_base(before, &mut desk);
        partition.handle(&signal(1, true, kind, FIRST_TICK + 10), &mut desk);
        partition.start_base(after, &mut desk);
        let bases: Vec<TimeBase> = desk.handed.iter().map(|handed| handed.base).collect();
        assert_eq!(bases, [before].repeat(usize::from(reported)));
        assert!(desk.handed.iter().all(|handed| handed.delta.is_none()));
    }
}

#[test]
fn what_is_half_open_times_out_however_often_the_clock_leaps() {
    let (mut partition, mut desk) = (Partition::new(0, &config()), Desk::default());
    partition.handle(&signal(1, true, SignalKind::Syn, FIRST_TICK), &mut desk);
    for leap in 1..100 {
        // Thirty days each.
        partition.start_base(TimeBase { first_tick: FIRST_TICK + leap * 25_920_000, offset_ns: 0 }, &mut desk);
    }
    assert_eq!(partition.counts().expired, 1);
}
