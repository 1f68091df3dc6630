//! The state table row by row, the bounds of filter and rings, and a plain exact machine to hold all of it against.

mod bounds;
mod contested;
mod copies;
mod filter;
mod half_open_list;
mod links;
mod machine;
mod one_way;
mod pickup;
mod recycled;
mod refused;
mod ring;
mod table;

use crate::flow::{AnyKey, FlowKey, KeyV4, KeyV6, VlanTags};
use crate::handover::{Counts, HalfOpen, HalfOpenList, MIDSTREAM};
use crate::signal::{ConnectionHash, FINGERPRINT_BITS, Signal, SignalKind, SignalParts};
use crate::track::{Event, FilterEntry, RefusedCounts, Tracker, TrackerConfig};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};

const SYN_TIMEOUT_TICKS: u64 = 20;
const LINGER_TICKS: u32 = 5;
const CANDIDATE_TIMEOUT_TICKS: u64 = 50;
const PRESUMED_TICKS: u64 = 40;

/// As in a capture, time does not start at zero. It is near enough to a wrap of the entries' ticks that tests cross it.
const FIRST_TICK: u64 = (1 << 20) - 30;

fn config() -> TrackerConfig {
    TrackerConfig {
        secret: Secret::REPLAY,
        place_count: 7 * 1024,
        half_open_count: 1024,
        connections_max: 1 << 20,
        syn_timeout_ticks: SYN_TIMEOUT_TICKS,
        linger_ticks: LINGER_TICKS,
        one_way_max: 0,
        presumed_ticks: PRESUMED_TICKS,
        ended_count: 256,
        refused: RefusedCounts { records: 256, listed: 256 },
        candidate_count: 0,
        candidate_timeout_ticks: CANDIDATE_TIMEOUT_TICKS,
        untracked_ticks: None,
        answer_opens: false,
        fingerprint_bits: FINGERPRINT_BITS,
    }
}

/// The distance of the clients' initial numbers that scripts name: further than a window.
const ISN_STEP: u32 = 1 << 20;

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sender {
    Client,
    Server,
}

/// A tracker, and the present tick.
struct Scene {
    tracker: Tracker,
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
    tick: u64,
}

impl Scene {
    fn new(config: TrackerConfig) -> Self {
        Scene {
            hash_v4: KeyedHash::new(&config.secret, Purpose::Connection),
            hash_v6: KeyedHash::new(&config.secret, Purpose::Connection),
            tracker: Tracker::new(config),
            tick: FIRST_TICK,
        }
    }

    /// Sends a packet of the connection with this key, client first, now.
    fn send(&mut self, key: AnyKey, sender: Sender, kind: SignalKind, isn: u32) -> Option<Event> {
        let signal = self.signal(key, sender, kind, isn);
        self.tracker.prefetch(&signal);
        self.tracker.handle(&signal)
    }

    /// As [`Self::send`], of a packet of a client that the capture side waited for.
    fn send_awaited(&mut self, key: AnyKey, kind: SignalKind, isn: u32) -> Option<Event> {
        let mut signal = self.signal(key, Sender::Client, kind, isn);
        signal.set_awaited();
        self.tracker.handle(&signal)
    }

    /// As [`Self::send`], of a FIN for whose other side's answer the capture side waits.
    fn send_fin_before_answer(&mut self, key: AnyKey, sender: Sender, isn: u32) -> Option<Event> {
        let mut signal = self.signal(key, sender, SignalKind::Fin, 0);
        signal.set_before_answer(isn);
        self.tracker.handle(&signal)
    }

    /// As [`Self::send`], of a packet that shows that another connection has begun than the one that had ended.
    fn send_beginning(&mut self, key: AnyKey, sender: Sender, kind: SignalKind, isn: u32) -> Option<Event> {
        let mut signal = self.signal(key, sender, kind, isn);
        signal.set_begins_another();
        self.tracker.handle(&signal)
    }

    fn signal(&self, key: AnyKey, sender: Sender, kind: SignalKind, isn: u32) -> Signal {
        match key {
            AnyKey::V4(key) => signal(&self.hash_v4, &key, sender, (self.tick, kind, isn)),
            AnyKey::V6(key) => signal(&self.hash_v6, &key, sender, (self.tick, kind, isn)),
        }
    }

    /// Plays the packets of one connection, a letter each: `S` SYN, `A` SYN-ACK, `D` data or a bare ACK, `F` FIN, `R`
    /// RST, `K` that the system knows the connection, `C` what completes a handshake, of the client when
    /// large, of the server when small. A digit before it is
    /// the client's ISN. `+` is the next tick, `t` the last one within the timeout from now, `l` the last within which
    /// a closed connection lingers.
    fn play(&mut self, key: AnyKey, script: &str) -> Vec<Event> {
        let mut isn = ISN_STEP;
        let mut events = Vec::new();
        for letter in script.chars() {
            let kind = match letter.to_ascii_uppercase() {
                'S' => SignalKind::Syn,
                'A' => SignalKind::SynAck,
                'D' => SignalKind::Ack,
                'C' => SignalKind::Completes,
                'F' => SignalKind::Fin,
                'R' => SignalKind::Rst,
                'K' => SignalKind::Known,
                digit if digit.is_ascii_digit() => {
                    isn = (u32::from(letter) - u32::from('0')) * ISN_STEP;
                    continue;
                }
                '+' => {
                    self.pass(1);
                    continue;
                }
                'T' => {
                    self.pass(SYN_TIMEOUT_TICKS);
                    continue;
                }
                _ => {
                    assert_eq!(letter, 'l');
                    self.pass(u64::from(LINGER_TICKS));
                    continue;
                }
            };
            let sender = if letter.is_ascii_uppercase() { Sender::Client } else { Sender::Server };
            // What the system knows has in this place which sides have ended.
            let isn = if kind == SignalKind::Known { isn / ISN_STEP } else { isn };
            events.extend(self.send(key, sender, kind, isn));
        }
        events
    }

    fn pass(&mut self, ticks: u64) {
        self.tick += ticks;
        self.tracker.advance(self.tick);
    }

    fn counts(&self) -> Counts {
        self.tracker.counts()
    }

    fn half_open(&self) -> Vec<HalfOpen> {
        let mut copy = HalfOpenList::new(1 << 12);
        self.tracker.list_half_open(&mut copy);
        copy.iter(self.tick).collect()
    }
}

fn signal<K: FlowKey>(
    hash: &KeyedHash<K>,
    key: &K,
    sender: Sender,
    (tick, kind, isn): (u64, SignalKind, u32),
) -> Signal {
    let (canonical, client) = key.canonical();
    let sender = if sender == Sender::Client { client } else { client.other() };
    let hash = ConnectionHash::new(hash.of(&canonical));
    Signal::new(&canonical, hash, SignalParts { tick, kind, sender, isn })
}

/// An IPv4 connection; the client is the smaller end for even numbers, the larger for odd ones.
fn v4(number: u32) -> AnyKey {
    let key = KeyV4::new((0x0a00_0000 + number, 40_000), (0xc0a8_0001, 443), VlanTags::NONE);
    AnyKey::V4(if number.is_multiple_of(2) { key } else { key.reversed() })
}

/// An IPv6 connection, in the same way.
fn v6(number: u32) -> AnyKey {
    let key = KeyV6::new((u128::from(number) + 1, 40_000), (1 << 100, 443), VlanTags::NONE);
    AnyKey::V6(if number.is_multiple_of(2) { key } else { key.reversed() })
}

/// Connections of both families in turn, two of each orientation.
fn any_key(number: u32) -> AnyKey {
    if number & 2 == 0 { v4(number) } else { v6(number) }
}
