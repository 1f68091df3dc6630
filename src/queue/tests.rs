//! Queues between real threads: everything arrives once, in order, or is counted.

use super::*;
use crate::flow::{KeyV4, Side, VlanTags};
use crate::queue::inbox::MERGE_PATIENCE_NS;
use crate::signal::{ConnectionHash, Kind, Moment, SignalParts};
use crate::snapshot::Seen;

fn signal(tick: u64) -> Signal {
    let key = KeyV4::new((1, 1), (2, 2), VlanTags::NONE);
    Signal::new(&key, ConnectionHash::new(0), SignalParts { tick, kind: Kind::Ack, sender: Side::First, isn: 0 })
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
    let (mut writers, mut inbox) = queues(1, WhenFull::Wait);
    let mut writer = writers.remove(0);
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
            Message::Cut => unreachable!("none was sent"),
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
    let (mut writers, inbox) = queues(1, WhenFull::Wait);
    drop(inbox);
    for tick in 0..(2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64 {
        writers[0].push(&signal(tick));
    }
    writers[0].mark(marker(0));
    for _ in 0..=PLACE_COUNT {
        writers[0].mark(marker(0));
    }
    assert_eq!(writers[0].dropped(), (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64);
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
    let (mut writers, inbox) = queues(1, WhenFull::Drop);
    let sent = (2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    for tick in 0..sent {
        writers[0].push(&signal(tick));
    }
    writers[0].mark(marker(7));
    let dropped = writers[0].dropped();
    drop(writers);
    let (received, marks) = rest_of(inbox);
    assert_eq!(received, (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64);
    assert_eq!((received + dropped, marks), (sent, 1));
}

#[test]
fn a_writer_that_found_room_again_waits_again() {
    let (mut writers, mut inbox) = queues(1, WhenFull::Drop);
    let full = (QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    let one_more = full + BLOCK_SIGNAL_COUNT as u64;
    (0..one_more).for_each(|tick| writers[0].push(&signal(tick)));
    assert!(writers[0].is_dropping);
    let Some(Message::Signals(block)) = inbox.receive(never) else { panic!("the queue is full") };
    inbox.recycle(block);
    (0..BLOCK_SIGNAL_COUNT as u64).for_each(|tick| writers[0].push(&signal(tick)));
    assert!(!writers[0].is_dropping);
    assert_eq!(writers[0].dropped(), BLOCK_SIGNAL_COUNT as u64);
}

#[test]
fn at_the_end_a_writer_waits_for_room() {
    let (mut writers, inbox) = queues(1, WhenFull::Drop);
    let mut writer = writers.remove(0);
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
    let (mut writers, inbox) = queues(1, WhenFull::Drop);
    let sent = (2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64;
    for tick in 0..sent {
        writers[0].push(&signal(tick));
        if tick == BLOCK_SIGNAL_COUNT as u64 {
            (0..MARKS as u64).for_each(|packets| writers[0].mark(marker(packets)));
        }
    }
    writers[0].flush();
    let dropped = writers[0].dropped();
    drop(writers);
    let (received, marks) = rest_of(inbox);
    assert_eq!((received + dropped, marks), (sent, MARKS as u64));
    assert!(dropped > 0);
}

#[test]
fn several_threads_come_out_in_the_order_of_their_packets() {
    let (mut writers, mut inbox) = queues(3, WhenFull::Wait);
    for ms in 0..300 {
        writers[ms as usize % 3].push(&signal_at(ms, ms as u64 % 3));
    }
    for (packets, writer) in writers.iter_mut().enumerate() {
        writer.mark(marker(1 << packets));
    }
    for ms in 300..303 {
        writers[2 - ms as usize % 3].push(&signal_at(ms, 9));
    }
    drop(writers);
    let mut moments = Vec::new();
    let mut marks = 0;
    while let Some(message) = inbox.receive(never) {
        match message {
            Message::Signals(block) => {
                moments.extend(block.signals().iter().map(Signal::moment));
                inbox.recycle(block);
            }
            Message::Marker(marker) => {
                assert_eq!((moments.len(), marker.seen.packets), (300, 7));
                marks += 1;
            }
            Message::Base(_) | Message::Cut => unreachable!("none was sent"),
        }
    }
    assert_eq!((moments.len(), marks), (303, 1));
    assert!(moments.is_sorted_by(|earlier, later| later.since_ns(*earlier) > 0));
}

#[test]
fn a_silent_thread_is_waited_for_and_then_not() {
    let (mut writers, mut inbox) = queues(2, WhenFull::Wait);
    writers[0].push(&signal_at(1_000, 0));
    writers[0].flush();
    let now = |ms: i64| Moment::of(ms * 1_000_000);
    assert!(inbox.merge(now(1_001)).is_none(), "the other thread may have something older");
    writers[1].push(&signal_at(999, 1));
    writers[1].flush();
    let threads = |message: Option<Message>| match message {
        Some(Message::Signals(block)) => block.signals().iter().map(|signal| signal.parts().tick).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    assert_eq!(threads(inbox.merge(now(1_002))), [1]);
    assert!(inbox.merge(now(1_002)).is_none(), "and may have more of it");
    assert_eq!(threads(inbox.merge(now(1_000 + 1 + MERGE_PATIENCE_NS / 1_000_000))), [0]);
}

#[test]
fn a_mark_waits_for_that_of_the_slowest_thread() {
    let (mut writers, mut inbox) = queues(2, WhenFull::Wait);
    writers[0].mark(marker(1));
    assert!(inbox.merge(never()).is_none());
    writers[1].push(&signal_at(5, 1));
    writers[1].mark(marker(2));
    assert!(matches!(inbox.merge(never()), Some(Message::Signals(_))));
    let Some(Message::Marker(marker)) = inbox.merge(never()) else { panic!("both have sent it") };
    assert_eq!(marker.seen.packets, 3);
    drop(writers);
    assert!(inbox.receive(never).is_none());
}
