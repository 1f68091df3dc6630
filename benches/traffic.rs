//! Keys that are derived from numbers, and the signals of connections that open and close as steadily as they do on a
//! router.

use flowpeel::flow::{FlowKey, KeyV4};
use flowpeel::signal::{ConnectionHash, FINGERPRINT_BITS, Signal, SignalKind, SignalParts};
use flowpeel::track::{CANDIDATE_TIMEOUT_TICKS, LINGER_TICKS, RefusedCounts, TrackerConfig};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};

/// The key of this number: every bit of it depends on the number, and no two numbers have the same.
#[inline(always)]
pub(crate) fn key_of<K: FlowKey>(number: u64) -> K {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    K::from_words(&[mixed, number ^ mixed >> 32, mixed ^ mixed << 17, mixed.rotate_left(29), mixed.rotate_left(43)])
}

/// A tracker of this traffic alone, with no room yet: nothing is one-sided, and nothing is older than the start.
pub(crate) const TRACKER: TrackerConfig = TrackerConfig {
    secret: Secret::REPLAY,
    place_count: 0,
    half_open_count: 0,
    connections_max: 0,
    syn_timeout_ticks: 600,
    linger_ticks: LINGER_TICKS,
    one_way_max: 0,
    presumed_ticks: 0,
    ended_count: 4_096,
    refused: RefusedCounts { records: 0, listed: 0 },
    candidate_count: 0,
    candidate_timeout_ticks: CANDIDATE_TIMEOUT_TICKS,
    untracked_ticks: None,
    answer_opens: false,
    fingerprint_bits: FINGERPRINT_BITS,
};

/// Signals of a connection: a handshake, and a FIN of either side.
pub(crate) const SIGNALS_EACH: usize = 5;

/// How many other connections begin between two packets of a handshake, or of a close.
pub(crate) const BETWEEN_COUNT: usize = 1_000;

/// Connections that begin one after the other, each closing when `live_count` others have opened.
pub(crate) struct Connections {
    hash: KeyedHash<KeyV4>,
    live_count: u64,
    per_tick: u64,
    next: u64,
}

impl Connections {
    /// Such connections, `per_tick` of which begin in a tick.
    pub(crate) fn new(live_count: u64, per_tick: u64) -> Self {
        let hash = KeyedHash::new(&Secret::REPLAY, Purpose::Connection);
        Connections { hash, live_count, per_tick, next: 0 }
    }

    /// The tick at which the next begins.
    pub(crate) fn tick(&self) -> u64 {
        1 + self.next / self.per_tick
    }

    /// Replaces `signals` by those of the time in which the next `count` connections begin, in order.
    pub(crate) fn fill(&mut self, signals: &mut Vec<Signal>, count: usize) {
        signals.clear();
        for _ in 0..count {
            let tick = self.tick();
            let between = BETWEEN_COUNT as u64;
            let opened = 2 * between + self.live_count;
            let packets: [(u64, SignalKind, bool); SIGNALS_EACH] = [
                (0, SignalKind::Syn, true),
                (between, SignalKind::SynAck, false),
                (2 * between, SignalKind::Completes, true),
                (opened, SignalKind::Fin, true),
                (opened + between, SignalKind::Fin, false),
            ];
            let begun = packets
                .iter()
                .filter_map(|&(ago, kind, by_client)| Some((self.next.checked_sub(ago)?, kind, by_client)));
            signals.extend(begun.map(|(number, kind, by_client)| self.signal(number, kind, by_client, tick)));
            self.next += 1;
        }
    }

    fn signal(&self, number: u64, kind: SignalKind, by_client: bool, tick: u64) -> Signal {
        let (key, client) = key_of::<KeyV4>(number).canonical();
        let sender = if by_client { client } else { client.other() };
        let parts = SignalParts { tick, kind, sender, isn: number as u32 };
        Signal::new(&key, ConnectionHash::new(self.hash.of(&key)), parts)
    }
}
