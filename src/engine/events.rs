//! Events: connections that open and close, reported as it happens on a thread of the engine's.
//!
//! Shards send them in blocks through a bounded queue. By packets' own time a full queue makes them wait, and events
//! come in an order that depends on the packets alone. By the wall clock events that the queue has no room for are
//! counted, and those of one connection come in their order.

use crate::archive::Order;
use crate::flow::{AnyKey, FlowKey, VlanTags};
use crate::record::{Ending, Outlet, Record};
use crate::signal::TICK_NS;
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

/// The thread that reports events.
pub(crate) struct EventThread {
    outlet: Outlet,
    dropped: Arc<AtomicU64>,
    on_events: OnEvents,
    order: Order,
    events: Vec<Event>,
}

impl EventThread {
    /// A thread that reports what comes out of this queue. `dropped` counts what does not. With `sorts` all events
    /// between two cuts are sorted.
    pub(crate) fn new(outlet: Outlet, dropped: Arc<AtomicU64>, on_events: OnEvents, sorts: bool) -> Self {
        EventThread { outlet, dropped, on_events, order: Order::new(sorts), events: Vec::new() }
    }

    /// Reports until all partitions have ended. Returns how many events were dropped.
    pub(crate) fn run(mut self) -> u64 {
        while let Ok(message) = self.outlet.messages().recv() {
            self.order.take(message, &self.outlet);
            self.report();
        }
        self.order.drain();
        self.report();
        self.dropped.load(Relaxed)
    }

    fn report(&mut self) {
        self.events.extend(self.order.ready().map(|record| Event::of(&record)));
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
