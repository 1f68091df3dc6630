//! What the list has evicted is in a delta like any other closing, and deltas that are held back lose nothing by it.

use super::*;

#[test]
fn what_is_to_be_evicted_closes_before_the_hand_over_even_if_that_is_held_back() {
    let mut partition = Partition::new(0, &config());
    let mut desk = Desk::default();
    let numbers: Vec<u32> =
        (0..).filter(|number| signal(*number, true, SignalKind::Syn, 0).hash().partition() == 0).take(6).collect();
    let keys: Vec<AnyKey> = numbers.iter().map(|number| key_of(*number)).collect();
    numbers.iter().flat_map(|number| opening(*number, FIRST_TICK)).for_each(|signal| {
        partition.handle(&signal, &mut desk);
    });
    end_interval(&mut partition, &marker(FIRST_TICK), &mut desk);
    let payload = FilterEntry::tick_of(FIRST_TICK);
    let listed: Vec<_> = keys.iter().map(|key| (*key, payload)).collect();
    // The first question clears what the openings left.
    desk.inquiry = Some(Inquiry { listed: listed.clone(), ..Inquiry::default() });
    end_interval(&mut partition, &marker(FIRST_TICK), &mut desk);
    let findings = |desk: &Desk| desk.handed.last().and_then(|handed| handed.findings.clone());
    assert_eq!(findings(&desk).unwrap().seen, listed);

    partition.handle(&signal(numbers[1], true, SignalKind::Ack, FIRST_TICK), &mut desk);
    let idle = |at: usize, payload| (keys[at], payload, Eviction::Idle);
    let evict = vec![idle(0, payload), idle(1, payload), idle(2, payload + 1), (keys[3], payload, Eviction::Aged)];
    desk.inquiry = Some(Inquiry { listed: listed[4..].to_vec(), evict, ..Inquiry::default() });
    desk.is_closed = true;
    end_interval(&mut partition, &marker(FIRST_TICK), &mut desk);
    assert_eq!((desk.handed.last().map(|handed| handed.is_held_back), findings(&desk)), (Some(true), None));
    desk.is_closed = false;
    end_interval(&mut partition, &marker(FIRST_TICK), &mut desk);
    let found = findings(&desk).expect("what was asked is answered once it can be");
    assert_eq!((found.seen, found.gone), (vec![(keys[1], payload)], vec![]));
    let mut left = Delta::new(geometry());
    for at in [1, 2, 4, 5] {
        match keys[at] {
            AnyKey::V4(key) => note(&mut left.v4.table, key, payload, true),
            AnyKey::V6(key) => note(&mut left.v6.table, key, payload, true),
        }
    }
    let sum = desk.sum();
    assert!(sum.v4.table == left.v4.table && sum.v6.table == left.v6.table, "two were closed");
    assert_eq!((partition.counts().evicted_idle, partition.counts().evicted_aged), (1, 1));
}

#[test]
fn a_delta_that_is_held_back_still_began_when_it_began() {
    let mut partition = Partition::new(0, &config());
    let mut desk = Desk { is_closed: true, ..Desk::default() };
    let mut own = (0..).filter(|number| signal(*number, true, SignalKind::Syn, 0).hash().partition() == 0);
    let mut open = |tick: u64, partition: &mut Partition, desk: &mut Desk| {
        opening(own.next().unwrap(), tick).iter().for_each(|signal| partition.handle(signal, desk));
    };
    open(FIRST_TICK, &mut partition, &mut desk);
    open(FIRST_TICK + DELTA_SPAN_MAX_TICKS + 1, &mut partition, &mut desk);
    assert!(desk.handed.is_empty(), "there was nothing to hand over with");
    desk.is_closed = false;
    open(FIRST_TICK + DELTA_SPAN_MAX_TICKS + 2, &mut partition, &mut desk);
    assert_eq!(desk.handed.len(), 1, "it is handed over as soon as it can be");
}
