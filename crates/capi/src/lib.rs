//! The C interface of flowpeel's engine.
//!
//! Handles are opaque. Whoever starts an engine owns it and its ports: each port is freed with `flowpeel_port_free`,
//! and the engine with `flowpeel_stop`. A port is used by one thread at a time, any; different ports may be used at
//! once. Callbacks run on threads of the engine's. No panic and no null pointer gets through: functions return a
//! status, and `flowpeel_last_error` returns the text of the last error of the calling thread.

#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)]

use flowpeel::engine::{Config, Counters, Engine, Event, EventKind, Events, PacketTime, Port, Sink};
use flowpeel::error::{Error, Result};
use flowpeel::flow::VlanTags;
use flowpeel::list::{List, Row, RowState};
use flowpeel::parse::{Addresses, LinkType, TcpSegment};
use flowpeel::record::Ending;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// What a function returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum flowpeel_status {
    /// It was done.
    FLOWPEEL_OK = 0,
    /// A pointer is null that must not be.
    FLOWPEEL_NULL = 1,
    /// A value is out of its range, or does not fit the others.
    FLOWPEEL_INVALID = 2,
    /// Something failed on the way.
    FLOWPEEL_FAILED = 3,
    /// There is an error in flowpeel itself. The handle must only be freed.
    FLOWPEEL_PANIC = 4,
}

use flowpeel_status::{FLOWPEEL_FAILED, FLOWPEEL_INVALID, FLOWPEEL_NULL, FLOWPEEL_OK, FLOWPEEL_PANIC};

/// The settings of `flowpeel_config_set`. Times are in ms; for those that may be none, 0 is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum flowpeel_setting {
    /// The length of an interval; none makes a single list at the end, by packets' time only.
    FLOWPEEL_EVERY_MS = 0,
    /// The threads that track connections, 1 to 8. Lists do not depend on it.
    FLOWPEEL_SHARDS = 1,
    /// The connections that can be open at once.
    FLOWPEEL_CONNECTIONS_MAX = 2,
    /// The half-open connections that are kept; 0 derives them.
    FLOWPEEL_HALF_OPEN_MAX = 3,
    /// The openings and closings of an interval that tables are made for; 0 derives them.
    FLOWPEEL_CHURN = 4,
    /// The memory that may be taken, in bytes.
    FLOWPEEL_MEMORY_SIZE_MAX = 5,
    /// How long a half-open connection is kept.
    FLOWPEEL_SYN_TIMEOUT_MS = 6,
    /// After how long a connection of which nothing is seen is taken off the list; or none.
    FLOWPEEL_IDLE_TIMEOUT_MS = 7,
    /// The age at which a connection is taken off the list; or none.
    FLOWPEEL_MAX_AGE_MS = 8,
    /// One in this many packets mid-stream is looked at, to find connections older than the start; 0 at none.
    FLOWPEEL_PICKUP = 9,
    /// Whether connections of which only one side is seen are listed.
    FLOWPEEL_ONE_WAY = 10,
    /// Whether VLAN tags are part of a connection's key.
    FLOWPEEL_VLAN_KEY = 11,
    /// Whether a SYN-ACK is enough to open a connection, because packets without a flag are not pushed in.
    FLOWPEEL_ANSWER_OPENS = 12,
}

/// The state of a listed connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum flowpeel_state {
    /// The handshake is complete and not both sides have closed.
    FLOWPEEL_ESTABLISHED = 0,
    /// The client's SYN was seen, and no answer to it.
    FLOWPEEL_SYN_SENT = 1,
    /// The server's SYN-ACK was seen, and the handshake is not complete.
    FLOWPEEL_SYN_RECV = 2,
}

/// What happened to a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum flowpeel_event_kind {
    /// It was established.
    FLOWPEEL_OPENED = 0,
    /// Both sides sent a FIN.
    FLOWPEEL_CLOSED_FIN = 1,
    /// One side sent a RST.
    FLOWPEEL_CLOSED_RST = 2,
    /// Nothing was seen of it for too long.
    FLOWPEEL_CLOSED_TIMEOUT = 3,
    /// It was evicted because of its age.
    FLOWPEEL_CLOSED_EVICTED = 4,
    /// Another connection between the same ends took its place.
    FLOWPEEL_CLOSED_REPLACED = 5,
    /// It has not ended: the event of its closing was wrong.
    FLOWPEEL_REOPENED = 6,
}

/// An address and a port.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flowpeel_end {
    /// The address in network order; of IPv4 the first four bytes.
    pub address: [u8; 16],
    /// The port, in the byte order of the machine.
    pub port: u16,
}

/// A TCP header, and what around it matters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flowpeel_tcp_header {
    /// The sender.
    pub source: flowpeel_end,
    /// The receiver.
    pub destination: flowpeel_end,
    /// The version of IP: 4 or 6.
    pub ip_version: u8,
    /// The flag byte: CWR ECE URG ACK PSH RST SYN FIN.
    pub flags: u8,
    /// The number of VLAN tags, at most 2.
    pub vlan_count: u8,
    /// The VLAN identifiers, outermost first.
    pub vlan: [u16; 2],
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// The bytes of data behind the header, as the length in the IP header says; `UINT32_MAX` if that is not known.
    pub payload_size: u32,
}

/// A listed connection. Times are in ns since 1970, to 100 ms.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flowpeel_row {
    /// The client.
    pub client: flowpeel_end,
    /// The server.
    pub server: flowpeel_end,
    /// The version of IP: 4 or 6.
    pub ip_version: u8,
    /// The number of VLAN tags, where they are part of the key.
    pub vlan_count: u8,
    /// The VLAN identifiers, outermost first.
    pub vlan: [u16; 2],
    /// The state.
    pub state: flowpeel_state,
    /// Whether the handshake was not seen. Then `start_ns` is the time of the first packet seen.
    pub midstream: bool,
    /// When the connection started.
    pub start_ns: i64,
    /// The time from its start to the end of the interval, in ns.
    pub age_ns: i64,
}

/// What a list says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flowpeel_list_header {
    /// The number of the interval, from 1.
    pub interval: u64,
    /// When the interval began, in ns since 1970.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// Whether every connection that is known to be open is listed, and none that has closed.
    pub complete: bool,
    /// Whether no list comes after this one.
    pub is_last: bool,
    /// The established connections listed.
    pub flows: u64,
    /// The half-open connections listed.
    pub half_open: u64,
    /// About how many differences between the list and the truth are known to exist.
    pub missing: u64,
    /// Connections that opened in the interval.
    pub opened: u64,
    /// Connections that closed in it.
    pub closed: u64,
    /// Signals lost in it because a queue was full.
    pub dropped: u64,
}

/// A connection that has opened or closed. Times are in ns since 1970, to 100 ms.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flowpeel_event {
    /// What happened.
    pub kind: flowpeel_event_kind,
    /// When it happened.
    pub time_ns: i64,
    /// When the connection started.
    pub start_ns: i64,
    /// The client.
    pub client: flowpeel_end,
    /// The server.
    pub server: flowpeel_end,
    /// The version of IP: 4 or 6.
    pub ip_version: u8,
    /// The number of VLAN tags, where they are part of the key.
    pub vlan_count: u8,
    /// The VLAN identifiers, outermost first.
    pub vlan: [u16; 2],
    /// Whether the handshake was not seen.
    pub midstream: bool,
}

/// What an engine has counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct flowpeel_counters {
    /// Packets taken in by all ports.
    pub packets: u64,
    /// Packets that could not be used.
    pub unusable: u64,
    /// Signals that went to the shards.
    pub signals: u64,
    /// Signals lost because a queue was full.
    pub dropped: u64,
    /// Connections established.
    pub opened: u64,
    /// Established connections that ended.
    pub closed: u64,
    /// Events lost because the queue was full.
    pub events_dropped: u64,
}

/// Where the output of an engine goes. Every function may be null. `context` is passed to each; they are called until
/// `flowpeel_stop` returns, `list`, `row` and `counters` on one thread, `event` on another. What they are given is
/// valid during the call. They must not call `flowpeel_stop`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct flowpeel_callbacks {
    /// What every function is passed first.
    pub context: *mut c_void,
    /// A list begins.
    pub list: Option<unsafe extern "C" fn(context: *mut c_void, header: *const flowpeel_list_header)>,
    /// A connection of the list that began last, in the order of their keys.
    pub row: Option<unsafe extern "C" fn(context: *mut c_void, row: *const flowpeel_row)>,
    /// A connection has opened or closed.
    pub event: Option<unsafe extern "C" fn(context: *mut c_void, event: *const flowpeel_event)>,
    /// The counters, behind each list.
    pub counters: Option<unsafe extern "C" fn(context: *mut c_void, counters: *const flowpeel_counters)>,
}

/// The callbacks on their way to the engine's threads.
#[derive(Clone, Copy)]
struct Callbacks(flowpeel_callbacks);

// SAFETY: `flowpeel_callbacks` asks the caller for functions that may be called with the context on other threads.
unsafe impl Send for Callbacks {}

/// A configuration.
pub struct flowpeel_config(Config);

/// A running engine.
pub struct flowpeel_engine(Engine);

/// A port of an engine, by either kind of time.
pub struct flowpeel_port(Kind);

enum Kind {
    Live(Port),
    Replay(Port<PacketTime>),
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn set_error(text: &str) {
    // Texts hold no zero byte; one that does is cut there.
    let text = text.split('\0').next().unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

fn failed(status: flowpeel_status, error: &Error) -> flowpeel_status {
    set_error(&error.to_string());
    status
}

fn null(name: &str) -> flowpeel_status {
    set_error(&format!("{name} is null"));
    FLOWPEEL_NULL
}

/// Keeps panics on this side.
fn guarded(work: impl FnOnce() -> flowpeel_status) -> flowpeel_status {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        set_error("there is an error in flowpeel itself: it has panicked");
        FLOWPEEL_PANIC
    })
}

/// The text of the last error on this thread, empty if there was none. It is valid until the next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn flowpeel_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// A configuration for packets' own time: one list at the end, and the capture is taken at its word. To be freed with
/// `flowpeel_config_free`. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn flowpeel_config_replay() -> *mut flowpeel_config {
    Box::into_raw(Box::new(flowpeel_config(Config::default())))
}

/// A configuration for the wall clock, with a list every `every_ms` and a random secret. To be freed with
/// `flowpeel_config_free`. Null if the system gives no random numbers.
#[unsafe(no_mangle)]
pub extern "C" fn flowpeel_config_live(every_ms: u64) -> *mut flowpeel_config {
    match Config::live(Duration::from_millis(every_ms)) {
        Ok(config) => Box::into_raw(Box::new(flowpeel_config(config))),
        Err(error) => {
            failed(FLOWPEEL_FAILED, &error);
            std::ptr::null_mut()
        }
    }
}

/// Sets a value; `setting` is one of `flowpeel_setting`. Ranges are checked when an engine is started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_config_set(
    config: *mut flowpeel_config,
    setting: u32,
    value: u64,
) -> flowpeel_status {
    // SAFETY: a configuration is null or comes from this library, and is used by one thread at a time.
    let Some(flowpeel_config(config)) = (unsafe { config.as_mut() }) else { return null("config") };
    let time = Duration::from_millis(value);
    let maybe = Some(time).filter(|time| !time.is_zero());
    let count = Some(value).filter(|value| *value > 0);
    match setting {
        0 => config.every = maybe,
        1 => config.shards = usize::try_from(value).unwrap_or(usize::MAX),
        2 => config.connections_max = value,
        3 => config.half_open_max = count,
        4 => config.churn = count,
        5 => config.memory_size_max = value,
        6 => config.syn_timeout = time,
        7 => config.idle_timeout = maybe,
        8 => config.max_age = maybe,
        9 => config.pickup = u32::try_from(value).unwrap_or(u32::MAX),
        10 => config.one_way = value != 0,
        11 => config.vlan_key = value != 0,
        12 => config.answer_opens = value != 0,
        _ => {
            set_error(&format!("there is no setting {setting}"));
            return FLOWPEEL_INVALID;
        }
    }
    FLOWPEEL_OK
}

/// Frees a configuration. Engines keep a copy of theirs. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_config_free(config: *mut flowpeel_config) {
    if !config.is_null() {
        // SAFETY: it comes from this library, and is not used any more.
        drop(unsafe { Box::from_raw(config) });
    }
}

/// Starts an engine with `port_count` ports that go by the wall clock. On success `*engine` is the engine, and `ports`,
/// an array of that length, holds the ports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_start_live(
    config: *const flowpeel_config,
    callbacks: *const flowpeel_callbacks,
    port_count: usize,
    engine: *mut *mut flowpeel_engine,
    ports: *mut *mut flowpeel_port,
) -> flowpeel_status {
    guarded(|| {
        // SAFETY: both are null or point to what they should, which is not changed during the call.
        let (config, callbacks) = unsafe { (config.as_ref(), callbacks.as_ref()) };
        let Some(flowpeel_config(config)) = config else { return null("config") };
        let Some(callbacks) = callbacks else { return null("callbacks") };
        if engine.is_null() || ports.is_null() {
            return null("engine or ports");
        }
        // More threads than this no machine has; the memory of their queues is checked against the configuration.
        if !(1..=1_024).contains(&port_count) {
            set_error("port_count must be from 1 to 1024");
            return FLOWPEEL_INVALID;
        }
        match Engine::live(config, port_count, sink(Callbacks(*callbacks))) {
            Ok((started, started_ports)) => {
                for (at, port) in started_ports.into_iter().enumerate() {
                    // SAFETY: there is room for `port_count` ports, and there are as many.
                    unsafe { ports.add(at).write(Box::into_raw(Box::new(flowpeel_port(Kind::Live(port))))) };
                }
                // SAFETY: it is not null, and points to room for a pointer.
                unsafe { engine.write(Box::into_raw(Box::new(flowpeel_engine(started)))) };
                FLOWPEEL_OK
            }
            Err(error) => failed(FLOWPEEL_INVALID, &error),
        }
    })
}

/// Starts an engine with one port that goes by its packets' time: it waits where a queue is full, and equal packets
/// make equal lists. The port has to be freed before the engine is stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_start_replay(
    config: *const flowpeel_config,
    callbacks: *const flowpeel_callbacks,
    engine: *mut *mut flowpeel_engine,
    port: *mut *mut flowpeel_port,
) -> flowpeel_status {
    guarded(|| {
        // SAFETY: both are null or point to what they should, which is not changed during the call.
        let (config, callbacks) = unsafe { (config.as_ref(), callbacks.as_ref()) };
        let Some(flowpeel_config(config)) = config else { return null("config") };
        let Some(callbacks) = callbacks else { return null("callbacks") };
        if engine.is_null() || port.is_null() {
            return null("engine or port");
        }
        match Engine::replay(config, sink(Callbacks(*callbacks))) {
            Ok((started, started_port)) => {
                let started_port = Box::new(flowpeel_port(Kind::Replay(started_port)));
                // SAFETY: neither is null, and each points to room for a pointer.
                unsafe {
                    port.write(Box::into_raw(started_port));
                    engine.write(Box::into_raw(Box::new(flowpeel_engine(started))));
                }
                FLOWPEEL_OK
            }
            Err(error) => failed(FLOWPEEL_INVALID, &error),
        }
    })
}

/// Says that the packets of a port on the wall clock are stamped by a clock of its own, as a network card's: of any
/// epoch. It is mapped onto the engine's by how late packets come at least. To be called before the first packet.
/// `FLOWPEEL_INVALID` for a port that goes by its packets' time, which knows no other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_port_own_clock(port: *mut flowpeel_port) -> flowpeel_status {
    guarded(|| {
        // SAFETY: a port is null or comes from this library, and is used by one thread at a time.
        let Some(flowpeel_port(port)) = (unsafe { port.as_mut() }) else { return null("port") };
        match port {
            Kind::Live(port) => {
                port.set_own_clock();
                FLOWPEEL_OK
            }
            Kind::Replay(_) => {
                set_error("the port goes by its packets' time");
                FLOWPEEL_INVALID
            }
        }
    })
}

/// Takes in a frame of `size` bytes that came at `time_ns`, in ns since 1970. `link` is the link type of captures: 1 is
/// Ethernet, 101 raw IP. The bytes are taken for the whole frame. A frame that cannot be read is counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_port_frame(
    port: *mut flowpeel_port,
    time_ns: i64,
    link: u32,
    bytes: *const u8,
    size: usize,
) -> flowpeel_status {
    guarded(|| {
        // SAFETY: a port is null or comes from this library, and is used by one thread at a time.
        let Some(flowpeel_port(port)) = (unsafe { port.as_mut() }) else { return null("port") };
        if bytes.is_null() && size > 0 {
            return null("bytes");
        }
        if size > isize::MAX as usize {
            set_error("size is larger than any frame");
            return FLOWPEEL_INVALID;
        }
        // SAFETY: it points to `size` bytes, which nobody changes during the call.
        let bytes = if size == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(bytes, size) } };
        match port {
            Kind::Live(port) => port.frame(time_ns, LinkType(link), bytes),
            Kind::Replay(port) => port.frame(time_ns, LinkType(link), bytes),
        }
        FLOWPEEL_OK
    })
}

/// Takes in the TCP header of a packet that came at `time_ns`, in ns since 1970: for a router that has parsed it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_port_header(
    port: *mut flowpeel_port,
    time_ns: i64,
    header: *const flowpeel_tcp_header,
) -> flowpeel_status {
    guarded(|| {
        // SAFETY: a port is null or comes from this library, and is used by one thread at a time.
        let Some(flowpeel_port(port)) = (unsafe { port.as_mut() }) else { return null("port") };
        // SAFETY: it is null or points to a header that nobody changes during the call.
        let Some(header) = (unsafe { header.as_ref() }) else { return null("header") };
        let Some(segment) = segment(header) else {
            set_error("ip_version must be 4 or 6, and vlan_count at most 2");
            return FLOWPEEL_INVALID;
        };
        match port {
            Kind::Live(port) => port.header(time_ns, &segment),
            Kind::Replay(port) => port.header(time_ns, &segment),
        }
        FLOWPEEL_OK
    })
}

/// Says that there is nothing to take in up to `now_ns`. A port on the wall clock that has no packets calls this every
/// few milliseconds; by packets' own time it does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_port_idle(port: *mut flowpeel_port, now_ns: i64) -> flowpeel_status {
    guarded(|| {
        // SAFETY: a port is null or comes from this library, and is used by one thread at a time.
        let Some(flowpeel_port(port)) = (unsafe { port.as_mut() }) else { return null("port") };
        if let Kind::Live(port) = port {
            port.idle(now_ns);
        }
        FLOWPEEL_OK
    })
}

/// Ends a port's part and frees it. By packets' own time this makes the last list. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_port_free(port: *mut flowpeel_port) -> flowpeel_status {
    guarded(|| {
        if !port.is_null() {
            // SAFETY: it comes from this library, and is not used any more.
            drop(unsafe { Box::from_raw(port) });
        }
        FLOWPEEL_OK
    })
}

/// Ends the last interval, waits until its list and all events have been given to the callbacks, and frees the engine,
/// whatever it returns. `counters` may be null; it is then not written. Ports on the wall clock may be freed before or
/// after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowpeel_stop(
    engine: *mut flowpeel_engine,
    counters: *mut flowpeel_counters,
) -> flowpeel_status {
    guarded(|| {
        if engine.is_null() {
            return null("engine");
        }
        // SAFETY: it comes from this library, and is not used any more.
        let flowpeel_engine(engine) = *unsafe { Box::from_raw(engine) };
        match engine.stop() {
            Ok(summary) => {
                let all = flowpeel_counters {
                    packets: summary.packets,
                    unusable: summary.unusable.iter().map(|(_, count)| count).sum(),
                    signals: summary.signals.signals,
                    dropped: summary.queue_full,
                    opened: summary.counts.opened,
                    closed: summary.counts.closed,
                    events_dropped: summary.events_dropped,
                };
                if !counters.is_null() {
                    // SAFETY: it points to room for counters.
                    unsafe { counters.write(all) };
                }
                FLOWPEEL_OK
            }
            Err(error) => failed(FLOWPEEL_FAILED, &error),
        }
    })
}

fn sink(callbacks: Callbacks) -> Sink {
    let sink = Sink::lists(move |list: &List| callbacks.list(list));
    let sink = match callbacks.0.event {
        Some(_) => sink.events(move |batch: &Events| batch.events.iter().for_each(|event| callbacks.event(event))),
        None => sink,
    };
    match callbacks.0.counters {
        Some(_) => sink.counters(move |counters: &Counters| callbacks.counters(counters)),
        None => sink,
    }
}

impl Callbacks {
    fn list(self, list: &List) -> Result<()> {
        let header = &list.header;
        if let Some(call) = self.0.list {
            let header = flowpeel_list_header {
                interval: header.figures.interval,
                start_ns: header.figures.start_ns,
                end_ns: header.figures.end_ns,
                complete: header.complete,
                is_last: header.is_last,
                flows: header.flows,
                half_open: header.half_open,
                missing: header.missing,
                opened: header.figures.opened,
                closed: header.figures.closed,
                dropped: header.figures.dropped,
            };
            // SAFETY: the caller asked for it with this context, and the header lives until it returns.
            unsafe { call(self.0.context, &header) };
        }
        if let Some(call) = self.0.row {
            for row in list.rows() {
                // SAFETY: the caller asked for it with this context, and the row lives until it returns.
                unsafe { call(self.0.context, &row_of(&row)) };
            }
        }
        Ok(())
    }

    fn event(self, event: &Event) {
        let Some(call) = self.0.event else { return };
        let kind = match event.kind {
            EventKind::Opened => flowpeel_event_kind::FLOWPEEL_OPENED,
            EventKind::Closed(Ending::Fin) => flowpeel_event_kind::FLOWPEEL_CLOSED_FIN,
            EventKind::Closed(Ending::Rst) => flowpeel_event_kind::FLOWPEEL_CLOSED_RST,
            EventKind::Closed(Ending::Timeout) => flowpeel_event_kind::FLOWPEEL_CLOSED_TIMEOUT,
            EventKind::Closed(Ending::Evicted) => flowpeel_event_kind::FLOWPEEL_CLOSED_EVICTED,
            EventKind::Closed(Ending::Replaced) => flowpeel_event_kind::FLOWPEEL_CLOSED_REPLACED,
            EventKind::Reopened | EventKind::Closed(Ending::Reopened) => flowpeel_event_kind::FLOWPEEL_REOPENED,
        };
        let (vlan_count, vlan) = tags(event.vlan);
        let event = flowpeel_event {
            kind,
            time_ns: event.time_ns,
            start_ns: event.start_ns,
            client: end(event.client),
            server: end(event.server),
            ip_version: if event.client.is_ipv4() { 4 } else { 6 },
            vlan_count,
            vlan,
            midstream: event.midstream,
        };
        // SAFETY: the caller asked for it with this context, and the event lives until it returns.
        unsafe { call(self.0.context, &event) };
    }

    fn counters(self, counters: &Counters) {
        let Some(call) = self.0.counters else { return };
        let sum = |of: fn(&flowpeel::engine::CaptureCounts) -> u64| counters.ports.iter().map(of).sum();
        let counters = flowpeel_counters {
            packets: sum(|port| port.packets),
            unusable: sum(|port| port.unusable.iter().sum()),
            signals: sum(|port| port.signals.signals),
            dropped: sum(|port| port.queue_full),
            opened: counters.connections.opened,
            closed: counters.connections.closed,
            events_dropped: counters.events_dropped,
        };
        // SAFETY: the caller asked for it with this context, and the counters live until it returns.
        unsafe { call(self.0.context, &counters) };
    }
}

fn row_of(row: &Row) -> flowpeel_row {
    let (vlan_count, vlan) = tags(row.vlan);
    flowpeel_row {
        client: end(row.client),
        server: end(row.server),
        ip_version: if row.client.is_ipv4() { 4 } else { 6 },
        vlan_count,
        vlan,
        state: match row.state {
            RowState::Established => flowpeel_state::FLOWPEEL_ESTABLISHED,
            RowState::SynSent => flowpeel_state::FLOWPEEL_SYN_SENT,
            RowState::SynRecv => flowpeel_state::FLOWPEEL_SYN_RECV,
        },
        midstream: row.midstream,
        start_ns: row.start_ns,
        age_ns: row.age_ns,
    }
}

fn end(end: SocketAddr) -> flowpeel_end {
    let mut address = [0; 16];
    match end {
        SocketAddr::V4(end) => address[..4].copy_from_slice(&end.ip().octets()),
        SocketAddr::V6(end) => address = end.ip().octets(),
    }
    flowpeel_end { address, port: end.port() }
}

fn tags(tags: VlanTags) -> (u8, [u16; 2]) {
    let mut vlan = [0; 2];
    let mut count = 0;
    for (place, tag) in vlan.iter_mut().zip(tags.iter()) {
        *place = tag;
        count += 1;
    }
    (count, vlan)
}

fn segment(header: &flowpeel_tcp_header) -> Option<TcpSegment> {
    let flowpeel_tcp_header { source, destination, ip_version, flags, vlan_count, vlan, seq, ack, payload_size } =
        *header;
    let v4 = |[a, b, c, d, ..]: [u8; 16]| u32::from_be_bytes([a, b, c, d]);
    let addresses = match ip_version {
        4 => Addresses::V4 { src: v4(source.address), dst: v4(destination.address) },
        6 => Addresses::V6 { src: u128::from_be_bytes(source.address), dst: u128::from_be_bytes(destination.address) },
        _ => return None,
    };
    let tags = vlan.get(..usize::from(vlan_count))?.iter().fold(VlanTags::NONE, |tags, tag| tags.with(*tag));
    let (src_port, dst_port) = (source.port, destination.port);
    let payload_size = (payload_size != u32::MAX).then_some(payload_size);
    Some(TcpSegment { addresses, src_port, dst_port, vlan: tags, flags, seq, ack, payload_size })
}
