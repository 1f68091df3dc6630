//! Queues between real threads: everything arrives once, in order, or is counted.

use super::*;
use crate::flow::{KeyV4, Side, VlanTags};
use crate::queue::Seen;
use crate::queue::inbox::MERGE_PATIENCE_NS;
use crate::signal::{ConnectionHash, Moment, SignalKind, SignalParts};

fn signal(tick: u64) -> Signal {
    let key = KeyV4::new((1, 1), (2, 2), VlanTags::NONE);
    Signal::new(&key, ConnectionHash::new(0), SignalParts { tick, kind: SignalKind::Ack, sender: Side::First, isn: 0 })
}

/// A signal of a packet that came after `ms` milliseconds, by the capture thread of this number.
fn signal_at(ms: i64, thread: u64) -> Signal {
    signal(thread).at(Moment::of(ms * 1_000_000))
}

fn never() -> Moment {
    Moment::of(0)
}

fn marker(packets: u64) -> Message {
    Message::Marker(Marker { seen: Seen { packets, ..Seen::default() }, ..Marker::default() })
}

#[test]
fn everything_comes_out_once_and_in_order() {
    const SIGNALS: u64 = 100_000;
    let (mut writer, mut inbox) = queue(WhenFull::Wait);
    let thread = std::thread::spawn(move || {
        for tick in 0..SIGNALS {
            writer.push(&signal(tick));
            if tick % 1_000 == 999 {
                writer.mark(Message::Base(TimeBase { first_tick: tick, offset_ns: 0 }));
            }
        }
        writer.dropped()
    });
    let (mut next, mut marks) = (0, 0);
    while let Some(message) = inbox.receive(never) {
        match message {
            Message::Signals(block) => {
                for signal in block.signals() {
                    assert_eq!(signal.parts().tick, next);
                    next += 1;
                }
                inbox.recycle(block);
            }
            Message::Cut | Message::Passed(_) => unreachable!("none was sent"),
            Message::Base(base) => {
                assert_eq!(base.first_tick, next - 1);
                marks += 1;
            }
            Message::Marker(_) => unreachable!("none was sent"),
        }
    }
    assert_eq!(thread.join().unwrap(), 0);
    assert_eq!((next, marks), (SIGNALS, SIGNALS / 1_000));
}

#[test]
fn a_writer_without_a_reader_does_not_wait_for_ever() {
    let (mut writer, inbox) = queue(WhenFull::Wait);
    drop(inbox);
    for tick in 0..(2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64 {
        writer.push(&signal(tick));
    }
    writer.mark(marker(0));
    for _ in 0..=PLACE_COUNT {
        writer.mark(marker(0));
    }
    assert_eq!(writer.dropped(), (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64);
}

/// The signals and the marks that are still in a queue whose writer has gone.
fn rest_of(mut inbox: Inbox) -> (u64, u64) {
    let (mut signals, mut marks) = (0, 0);
    while let Some(message) = inbox.receive(never) {
        match message {
            Message::Signals(block) => {
                signals += block.signals().len() as u64;
                inbox.recycle(block);
            }
            _ => marks += 1,
        }
    }
    (signals, marks)
}

#[test]
fn what_a_full_queue_can_not_take_is_counted_and_marks_pass() {
    let (mut writer, inbox) = queue(WhenFull::Drop);
    let sent = (2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    for tick in 0..sent {
        writer.push(&signal(tick));
    }
    writer.mark(marker(7));
    let dropped = writer.dropped();
    drop(writer);
    let (received, marks) = rest_of(inbox);
    assert_eq!(received, (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64);
    assert_eq!((received + dropped, marks), (sent, 1));
}

#[test]
fn a_writer_that_found_room_again_waits_again() {
    let (mut writer, mut inbox) = queue(WhenFull::Drop);
    let full = (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    let one_more = full + BLOCK_SIGNAL_COUNT as u64;
    (0..one_more).for_each(|tick| writer.push(&signal(tick)));
    assert!(writer.is_dropping);
    let Some(Message::Signals(block)) = inbox.receive(never) else { panic!("the queue is full") };
    inbox.recycle(block);
    (0..BLOCK_SIGNAL_COUNT as u64).for_each(|tick| writer.push(&signal(tick)));
    assert!(!writer.is_dropping);
    assert_eq!(writer.dropped(), BLOCK_SIGNAL_COUNT as u64);
}

#[test]
fn at_the_end_a_writer_waits_for_room() {
    let (mut writer, inbox) = queue(WhenFull::Drop);
    let full = (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    (0..full).for_each(|tick| writer.push(&signal(tick)));
    writer.drop_no_more();
    let reader = std::thread::spawn(move || rest_of(inbox));
    (0..full).for_each(|tick| writer.push(&signal(tick)));
    assert_eq!(writer.dropped(), 0);
    drop(writer);
    assert_eq!(reader.join().unwrap(), (2 * full, 0));
}

#[test]
fn many_marks_take_the_place_of_no_block_unnoticed() {
    const MARKS: usize = 2 * QUEUE_MARKS_MAX;
    let (mut writer, inbox) = queue(WhenFull::Drop);
    let sent = (2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    for tick in 0..sent {
        writer.push(&signal(tick));
        if tick == BLOCK_SIGNAL_COUNT as u64 {
            (0..MARKS as u64).for_each(|packets| writer.mark(marker(packets)));
        }
    }
    writer.flush();
    let dropped = writer.dropped();
    drop(writer);
    let (received, marks) = rest_of(inbox);
    assert_eq!((received + dropped, marks), (sent, MARKS as u64));
    assert!(dropped > 0);
}

/// What a port says behind the first `end` ends.
fn passed(end: u64, packets: u64) -> Passed {
    Passed { end, seen: Seen { packets, ..Seen::default() } }
}

/// The end of this number, to which the clock came after `ms` milliseconds.
fn end(number: u64, ms: i64) -> End {
    End { number, moment: Moment::of(ms * 1_000_000), marker: Some(Marker::default()), base: None }
}

fn at(ms: i64) -> impl Fn() -> Moment {
    move || Moment::of(ms * 1_000_000)
}

/// The next message, if there is one now.
fn next(inbox: &mut Inbox, ms: i64) -> Option<Message> {
    inbox.next(&at(ms)).0
}

/// The ticks of the signals that come now.
fn ticks(inbox: &mut Inbox, ms: i64) -> Vec<u64> {
    match next(inbox, ms) {
        Some(Message::Signals(block)) => {
            let ticks = block.signals().iter().map(|signal| signal.parts().tick).collect();
            inbox.recycle(block);
            ticks
        }
        Some(_) => panic!("a mark"),
        None => Vec::new(),
    }
}

/// The packets that the mark which comes now reports.
fn marked(inbox: &mut Inbox, ms: i64) -> Option<u64> {
    match next(inbox, ms) {
        Some(Message::Marker(marker)) => Some(marker.seen.packets),
        Some(_) => panic!("not a mark"),
        None => None,
    }
}

#[test]
fn several_ports_come_out_in_the_order_of_their_packets() {
    let (mut writers, clock, mut inbox) = timed_queues(3, WhenFull::Wait);
    clock.base(TimeBase { first_tick: 1, offset_ns: 0 });
    for ms in 0..300 {
        writers[ms as usize % 3].push(&signal_at(ms, ms as u64 % 3));
    }
    for (packets, writer) in writers.iter_mut().enumerate() {
        writer.pass(passed(1, 1 << packets));
    }
    for ms in 300..303 {
        writers[2 - ms as usize % 3].push(&signal_at(ms, 9));
    }
    writers.iter_mut().for_each(|writer| writer.pass(passed(2, 0)));
    drop(writers);
    clock.end(end(1, 300));
    clock.end(end(2, 303));
    drop(clock);
    assert!(matches!(inbox.receive(at(0)), Some(Message::Base(_))));
    let mut moments = Vec::new();
    let mut marks = Vec::new();
    while let Some(message) = inbox.receive(at(0)) {
        match message {
            Message::Signals(block) => {
                moments.extend(block.signals().iter().map(Signal::moment));
                inbox.recycle(block);
            }
            Message::Marker(marker) => marks.push((moments.len(), marker.seen.packets)),
            Message::Base(_) | Message::Cut | Message::Passed(_) => unreachable!("none was sent"),
        }
    }
    assert_eq!(marks, [(300, 7), (303, 0)]);
    assert!(moments.is_sorted_by(|earlier, later| later.since_ns(*earlier) > 0));
}

#[test]
fn a_silent_port_is_waited_for_and_then_not() {
    let (mut writers, _clock, mut inbox) = timed_queues(2, WhenFull::Wait);
    writers[0].push(&signal_at(1_000, 0));
    writers[0].flush();
    assert!(next(&mut inbox, 1_001).is_none(), "the other port may have something older");
    writers[1].push(&signal_at(999, 1));
    writers[1].flush();
    assert_eq!(ticks(&mut inbox, 1_002), [1]);
    assert!(next(&mut inbox, 1_002).is_none(), "and may have more of it");
    assert_eq!(ticks(&mut inbox, 1_000 + 1 + MERGE_PATIENCE_NS / 1_000_000), [0]);
}

#[test]
fn an_end_waits_for_the_slowest_port() {
    let (mut writers, clock, mut inbox) = timed_queues(2, WhenFull::Wait);
    clock.end(end(1, 10));
    writers[0].pass(passed(1, 1));
    assert!(next(&mut inbox, 11).is_none());
    writers[1].push(&signal_at(5, 1));
    writers[1].pass(passed(1, 2));
    assert_eq!(ticks(&mut inbox, 11), [1]);
    assert_eq!(marked(&mut inbox, 11), Some(3));
    drop((writers, clock));
    assert!(inbox.receive(at(12)).is_none());
}

#[test]
fn a_port_that_says_nothing_holds_up_no_end_and_loses_nothing() {
    const PATIENCE_MS: i64 = PORT_PATIENCE_NS / 1_000_000;
    let (mut writers, clock, mut inbox) = timed_queues(2, WhenFull::DropAtOnce);
    writers[0].pass(passed(1, 1));
    clock.end(end(1, 10));
    assert_eq!(marked(&mut inbox, 9 + PATIENCE_MS), None);
    assert_eq!(marked(&mut inbox, 11 + PATIENCE_MS), Some(1));
    // It is not waited for again.
    writers[0].pass(passed(2, 2));
    clock.end(end(2, 1_000));
    assert_eq!(marked(&mut inbox, 1_001), Some(2));
    // Its packets of long ago count in the interval in which they come, and it is waited for again.
    writers[1].push(&signal_at(5, 1));
    writers[1].pass(passed(1, 4));
    writers[1].push(&signal_at(500, 2));
    writers[1].pass(passed(2, 8));
    writers[1].push(&signal_at(1_500, 3));
    writers[1].flush();
    assert_eq!(ticks(&mut inbox, 1_600), [1, 2, 3]);
    writers[0].pass(passed(3, 16));
    clock.end(end(3, 2_000));
    assert_eq!(marked(&mut inbox, 2_001), None);
    writers[1].push(&signal_at(1_600, 4));
    writers[1].pass(passed(3, 32));
    writers[1].push(&signal_at(2_100, 5));
    writers[1].flush();
    assert_eq!(ticks(&mut inbox, 2_200), [4]);
    assert_eq!(marked(&mut inbox, 2_200), Some(4 + 8 + 16 + 32));
    assert_eq!(ticks(&mut inbox, 2_200), [5]);
}

#[test]
fn an_end_that_is_passed_over_stops_nobody() {
    let (mut writers, clock, mut inbox) = timed_queues(1, WhenFull::DropAtOnce);
    writers[0].pass(passed(1, 1));
    writers[0].push(&signal_at(20, 1));
    writers[0].flush();
    assert!(next(&mut inbox, 21).is_none(), "the clock is late");
    clock.end(End { marker: None, ..end(1, 10) });
    assert_eq!(ticks(&mut inbox, 21), [1]);
    writers[0].pass(passed(2, 2));
    clock.end(end(2, 30));
    assert_eq!(marked(&mut inbox, 31), Some(3));
}

#[test]
fn a_port_that_is_ahead_by_several_ends_waits_for_each() {
    let (mut writers, clock, mut inbox) = timed_queues(2, WhenFull::DropAtOnce);
    writers[0].pass(passed(3, 1));
    writers[0].push(&signal_at(40, 9));
    writers[0].flush();
    for number in 1..=3 {
        writers[1].push(&signal_at(10 * number as i64 - 5, number));
        writers[1].pass(passed(number, 0));
        clock.end(end(number, 10 * number as i64));
        assert_eq!(ticks(&mut inbox, 50), [number]);
        assert_eq!(marked(&mut inbox, 50), Some(u64::from(number == 1)));
    }
    assert_eq!(ticks(&mut inbox, 60), [9]);
}

#[test]
fn a_port_never_waits_and_what_it_passed_keeps_its_place() {
    let (mut writers, clock, mut inbox) = timed_queues(1, WhenFull::DropAtOnce);
    let writer = &mut writers[0];
    let full = (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    (0..full).for_each(|_| writer.push(&signal_at(1, 1)));
    // As many ends as there is room for, and two more.
    let ends = QUEUE_MARKS_MAX as u64 + 2;
    (1..=ends).for_each(|number| writer.pass(passed(number, 1)));
    (0..BLOCK_SIGNAL_COUNT).for_each(|_| writer.push(&signal_at(2, 2)));
    assert_eq!(writer.dropped(), BLOCK_SIGNAL_COUNT as u64, "it would have to go behind what is not sent");
    (1..=ends).for_each(|number| clock.end(End { marker: None, ..end(number, 1) }));
    let mut received = 0;
    while received < full {
        received += ticks(&mut inbox, 2).len() as u64;
    }
    assert!(ticks(&mut inbox, 2).is_empty());
    (0..BLOCK_SIGNAL_COUNT).for_each(|_| writers[0].push(&signal_at(3, 3)));
    assert_eq!(ticks(&mut inbox, 4), [3; BLOCK_SIGNAL_COUNT]);
    clock.end(end(ends + 1, 5));
    writers[0].pass(passed(ends + 1, 0));
    assert_eq!(marked(&mut inbox, 6), Some(ends));
}

#[test]
fn the_last_end_comes_though_ports_are_still_there() {
    let (mut writers, clock, mut inbox) = timed_queues(2, WhenFull::DropAtOnce);
    writers[0].pass(passed(1, 1));
    writers[0].push(&signal_at(20, 1));
    writers[0].flush();
    let marker = Some(Marker { is_last: true, ..Marker::default() });
    clock.end(End { marker, ..end(1, 10) });
    drop(clock);
    let late = 11 + PORT_PATIENCE_NS / 1_000_000;
    assert!(matches!(inbox.receive(at(late)), Some(Message::Marker(Marker { is_last: true, .. }))));
    assert!(inbox.receive(at(late)).is_none(), "what comes behind it is of no list");
}
