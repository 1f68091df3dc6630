//! What is lost on the way to the shards is counted in the interval in which it was lost.

use super::*;
use crate::engine::threads::signallers;
use crate::engine::{Config, Plan};
use crate::queue::{BLOCK_SIGNAL_COUNT, QUEUE_BLOCKS_MAX, WhenFull, queue};
use crate::signal::Moment;
use flowpeel_traffic::{Traffic, TrafficConfig};

#[test]
fn what_is_lost_at_the_end_of_an_interval_is_counted_with_it() {
    let (mut writer, mut inbox) = queue(WhenFull::Drop);
    (0..QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT).for_each(|_| writer.push(&Signal::EMPTY));
    let signaller = signallers(&Plan::new(&Config::default()).unwrap(), None)();
    let mut port = Port::new(vec![writer], signaller, PacketTime::new(None));
    // Fewer signals than a block holds, in a queue without room for one.
    let mut traffic = Traffic::new(TrafficConfig::mixed(1, 8)).unwrap();
    while let Some(frame) = traffic.next_frame() {
        port.packet(&Packet::whole(frame.time_us as i64 * 1_000, LinkType::ETHERNET, frame.bytes));
    }
    port.mark(Marks { end: Some(Marker::default()), ..Marks::default() });
    let counts = port.counts();
    assert!(counts.queue_full > 0 && counts.queue_full == counts.signals.signals);
    drop(port);
    let mut reported = None;
    while let Some(message) = inbox.receive(|| Moment::of(0)) {
        match message {
            Message::Signals(block) => inbox.recycle(block),
            Message::Marker(marker) => _ = reported.get_or_insert(marker.seen.dropped),
            Message::Base(_) | Message::Cut | Message::Passed(_) => {}
        }
    }
    assert_eq!(reported, Some(counts.queue_full));
}

#[test]
fn losses_that_may_belong_to_two_intervals_make_both_incomplete() {
    let (writer, mut inbox) = queue(WhenFull::Wait);
    let signaller = signallers(&Plan::new(&Config::default()).unwrap(), None)();
    let mut port = Port::new(vec![writer], signaller, PacketTime::new(None));
    let moment = |tick| TickMoment { tick, within_tick_ns: 0 };
    let mut end = |port: &mut Port<PacketTime>, end_tick| {
        port.mark(Marks { end: Some(Marker { end_tick, ..Marker::default() }), ..Marks::default() });
        let Some(Message::Marker(marker)) = inbox.receive(|| Moment::of(0)) else { panic!("no mark") };
        (marker.seen.dropped, marker.seen.has_doubtful_losses)
    };
    port.set_lost(0, moment(5));
    assert_eq!(end(&mut port, 10), (0, false));
    port.set_lost(7, moment(15));
    assert_eq!(end(&mut port, 20).0, 7);
    port.set_lost(7, moment(21));
    assert_eq!(end(&mut port, 30), (0, false), "they were noticed before that began");
    // Noticed behind the end at 40, and at 70: some may have been lost in each interval that began before.
    port.set_lost(9, moment(45));
    assert_eq!(end(&mut port, 40).0, 2);
    assert_eq!(end(&mut port, 50), (0, true));
    port.set_lost(10, moment(70));
    assert_eq!(end(&mut port, 60).0, 1);
    assert_eq!(end(&mut port, 80), (0, true));
    assert_eq!(end(&mut port, 90), (0, false));
}
