//! What is lost on the way to the shards is told with the interval in which it was lost.

use super::*;
use crate::config::{BLOCK_SIGNAL_COUNT, QUEUE_BLOCKS_MAX};
use crate::generate::{Traffic, TrafficConfig};
use crate::pipeline::{Config, Plan, signallers};
use crate::queue::{WhenFull, queues};
use crate::signal::Moment;

#[test]
fn what_is_lost_at_the_end_of_an_interval_is_told_with_it() {
    let (mut writers, mut inbox) = queues(1, WhenFull::Drop);
    (0..QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT).for_each(|_| writers[0].push(&Signal::EMPTY));
    let signaller = signallers(&Plan::new(&Config::default()).unwrap(), None)();
    let mut feeder = Feeder::new(writers, signaller, Intervals::new(None));
    // Fewer signals than a block holds, in a queue without room for one.
    let mut traffic = Traffic::new(TrafficConfig::mixed(1, 8)).unwrap();
    while let Some(frame) = traffic.next_frame() {
        let packet =
            Packet { time_ns: frame.time_us as i64 * 1_000, link: LinkType::ETHERNET, bytes: frame.bytes, vlan: None };
        feeder.packet(&packet);
    }
    feeder.mark(Marks { end: Some(Marker::default()), base: None });
    let counts = feeder.counts();
    assert!(counts.queue_full > 0 && counts.queue_full == counts.signals.signals);
    drop(feeder);
    let mut told = None;
    while let Some(message) = inbox.receive(|| Moment::of(0)) {
        match message {
            Message::Signals(block) => inbox.recycle(block),
            Message::Marker(marker) => told = Some(marker.seen.dropped),
            Message::Base(_) | Message::Cut => {}
        }
    }
    assert_eq!(told, Some(counts.queue_full));
}
