//! Records through the queue: order, recycling, and what is dropped.

use super::*;
use crate::flow::{KeyV4, VlanTags};
use crate::handover::MIDSTREAM;
use crate::signal::{TICK_BITS, TimeBase};

fn key(number: u32) -> AnyKey {
    AnyKey::V4(KeyV4::new((number, 40_000), (7, 443), VlanTags::NONE))
}

/// Wall time starts 1,000 ticks after tick zero would have been.
const BASE: TimeBase = TimeBase { first_tick: 1 << 20, offset_ns: 100_000_000_000 };

fn received(outlet: &Outlet) -> Vec<Record> {
    let mut records = Vec::new();
    for message in outlet.messages().try_iter() {
        if let Message::Records(block) = message {
            records.extend_from_slice(block.records());
            outlet.recycle(block);
        }
    }
    records
}

#[test]
fn records_come_with_wall_times_in_their_order() {
    let (inlet, outlet) = queue(WhenFull::Wait);
    let mut recorder = Recorder::new(3, inlet);
    recorder.start_base(BASE);
    let first = BASE.first_tick;
    let payload = |tick: u64| tick as u32 & ((1 << TICK_BITS) - 1);
    for number in 0..200 {
        recorder.record(key(number), payload(first + 1), Some(Ending::Fin), None, first + 2);
    }
    assert_eq!(received(&outlet).len(), 192, "full blocks go");
    recorder.record(key(200), payload(first) | MIDSTREAM, Some(Ending::Rst), None, first + 20);
    let late = received(&outlet);
    assert_eq!(late.len(), 9, "and so do old ones");
    let expected = Record {
        key: key(200),
        start: 1_000 + first as i64,
        end: 1_020 + first as i64,
        clock_set: 0,
        ending: Some(Ending::Rst),
        seen: None,
        midstream: true,
        may_be_older: false,
    };
    assert_eq!(late[8], expected);
    // After a wrap of the ticks the number of wraps is unknown.
    recorder.record(key(1), payload(first), Some(Ending::Timeout), None, first + (1 << TICK_BITS) + 5);
    recorder.cut();
    let wrapped = received(&outlet)[0];
    assert_eq!((wrapped.end - wrapped.start, wrapped.may_be_older), (5, true));
    assert_eq!(recorder.dropped(), 0);
}

#[test]
fn starts_are_given_in_their_own_time_base() {
    let (inlet, outlet) = queue(WhenFull::Wait);
    let mut recorder = Recorder::new(0, inlet);
    recorder.start_base(BASE);
    let second = TimeBase { first_tick: BASE.first_tick + 50, offset_ns: 900_000_000_000 };
    recorder.start_base(second);
    recorder.record(key(1), 10, Some(Ending::Fin), None, second.first_tick + 5);
    recorder.flush();
    let record = received(&outlet)[0];
    assert_eq!(record.start, 1_000 + BASE.first_tick as i64 + 10);
    assert_eq!(record.end, 9_000 + second.first_tick as i64 + 5);
    assert_eq!(record.clock_set, 8_000, "it lasted 45 ticks");
}

#[test]
fn a_full_queue_drops_live_and_counts() {
    let (inlet, outlet) = queue(WhenFull::Drop);
    let mut recorder = Recorder::new(0, inlet);
    recorder.start_base(BASE);
    let count = (RECORD_QUEUE_BLOCKS_MAX + 10) * RECORD_BLOCK_COUNT;
    for number in 0..count as u32 {
        recorder.record(key(number), 0, Some(Ending::Fin), None, BASE.first_tick);
    }
    recorder.flush();
    assert_eq!(recorder.dropped(), 10 * RECORD_BLOCK_COUNT as u64);
    let records = received(&outlet);
    assert_eq!(records.len() as u64 + recorder.dropped(), count as u64);
    assert_eq!(
        records.iter().map(|record| record.key).collect::<Vec<_>>(),
        (0..records.len() as u32).map(key).collect::<Vec<_>>()
    );
    drop(outlet);
    recorder.record(key(1), 0, Some(Ending::Fin), None, BASE.first_tick);
    recorder.cut();
    assert_eq!(recorder.dropped(), 10 * RECORD_BLOCK_COUNT as u64 + 1, "nobody reads any more");
}
