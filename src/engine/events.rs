//! Events: connections that open and close, reported as it happens on a thread of the engine's.
//!
//! Shards send them in blocks through a bounded queue. By packets' own time a full queue makes them wait, and events
//! come in an order that depends on the packets alone. By the wall clock events that the queue has no room for are
//! counted, and those of one connection come in their order.

use crate::archive::Sorter;
use crate::flow::{AnyKey, FlowKey, VlanTags};
use crate::record::{Ending, Message, Outlet, Record};
use crate::signal::{PARTITION_COUNT, TICK_NS};
use std::cmp::Ordering;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It was established.
    Opened,
    /// It has ended like this.
    Closed(Ending),
    /// It has not ended: its last event, of its closing, was wrong.
    Reopened,
}

/// A connection that has opened or closed. Times are in ns since 1970, to 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When it happened.
    pub time_ns: i64,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The VLAN tags, where they are part of the key.
    pub vlan: VlanTags,
    /// When the connection started: the time of its first SYN or, mid-stream, of the first packet seen.
    pub start_ns: i64,
    /// Whether its start was not seen. Then the client is the end with the higher port.
    pub midstream: bool,
    /// Whether it may have started some wraps of the tick (29 hours) earlier: nobody knows any more.
    pub may_be_older: bool,
}

/// Some events, in order.
#[derive(Clone, Copy, Debug)]
pub struct Events<'a> {
    /// The events.
    pub events: &'a [Event],
    /// How many have been lost so far because the queue was full.
    pub dropped: u64,
}

/// What is called with events.
pub(crate) type OnEvents = Box<dyn FnMut(&Events) + Send>;

/// A record with what it is sorted by.
#[derive(Clone, Copy)]
struct Placed {
    /// The tick, then the partition, then the order in which the partition sent them.
    place: (i64, usize, u64),
    record: Record,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

/// The thread that reports events.
pub(crate) struct EventThread {
    outlet: Outlet,
    dropped: Arc<AtomicU64>,
    on_events: OnEvents,
    /// What sorts events between two cuts, where there are cuts.
    sorter: Option<Sorter<Placed>>,
    /// The number of records that each partition has sent.
    sent: [u64; PARTITION_COUNT],
    events: Vec<Event>,
}

impl EventThread {
    /// A thread that reports what comes out of this queue. `dropped` counts what does not. With `sorts` all events
    /// between two cuts are sorted.
    pub(crate) fn new(outlet: Outlet, dropped: Arc<AtomicU64>, on_events: OnEvents, sorts: bool) -> Self {
        let sorter = sorts.then(Sorter::new);
        EventThread { outlet, dropped, on_events, sorter, sent: [0; PARTITION_COUNT], events: Vec::new() }
    }

    /// Reports until all partitions have ended. Returns how many events were dropped.
    pub(crate) fn run(mut self) -> u64 {
        while let Ok(message) = self.outlet.messages().recv() {
            match (message, &mut self.sorter) {
                (Message::Records(block), Some(sorter)) => {
                    let partition = block.partition();
                    let sent = &mut self.sent[partition % PARTITION_COUNT];
                    let placed = block.records().iter().map(|record| {
                        *sent += 1;
                        Placed { place: (record.end, partition, *sent), record: *record }
                    });
                    sorter.add(partition, placed);
                    self.outlet.recycle(block);
                }
                (Message::Records(block), None) => {
                    self.events.extend(block.records().iter().map(Event::of));
                    self.outlet.recycle(block);
                }
                (Message::Cut { partition, saves }, Some(sorter)) => {
                    let sorted = sorter.cut(partition, saves).into_iter().flat_map(|(sorted, _)| sorted);
                    self.events.extend(sorted.map(|placed| Event::of(&placed.record)));
                }
                (Message::Cut { .. }, None) => {}
            }
            self.report();
        }
        if let Some(sorter) = &mut self.sorter {
            self.events.extend(sorter.drain().iter().map(|placed| Event::of(&placed.record)));
        }
        self.report();
        self.dropped.load(Relaxed)
    }

    fn report(&mut self) {
        if !self.events.is_empty() {
            (self.on_events)(&Events { events: &self.events, dropped: self.dropped.load(Relaxed) });
            self.events.clear();
        }
    }
}

impl Event {
    fn of(record: &Record) -> Self {
        let (client, server, vlan) = match &record.key {
            AnyKey::V4(key) => (key.first(), key.second(), key.vlan()),
            AnyKey::V6(key) => (key.first(), key.second(), key.vlan()),
        };
        Event {
            kind: match record.ending {
                None => EventKind::Opened,
                Some(Ending::Reopened) => EventKind::Reopened,
                Some(ending) => EventKind::Closed(ending),
            },
            time_ns: record.end.saturating_mul(TICK_NS),
            client,
            server,
            vlan,
            start_ns: record.start.saturating_mul(TICK_NS),
            midstream: record.midstream,
            may_be_older: record.may_be_older,
        }
    }
}
