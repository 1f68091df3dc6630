//! Handshakes that contradict what is known of their connection: a SYN-ACK between the ends of an open one answers
//! another SYN than its own, a SYN or SYN-ACK comes shortly after its end, or one comes that is not of the handshake
//! that is under way.
//!
//! Such a packet may be forged, and so may the end, or the handshake. The client's next packet decides: it either
//! follows the number of the handshake, or goes on where the known connection was.
//!
//! A set-associative table of 16-byte records, four to a cache line, for the handshakes of some seconds. The oldest of
//! a set makes way.

use crate::error::Result;
use crate::flow::Side;
use crate::signal::{ConnectionHash, TICK_BITS};
use crate::state::{Decoder, Encoder};
use crate::track::{ConnectionState, FilterEntry};
use flowpeel_lines::{Line, Lines, prefetch};

/// Records in a set: a cache line of them.
const RECORD_COUNT: usize = 4;

/// Sets of a partition: 2,048 records in 32 KiB. A connection whose client opens it anew without having ended it is
/// rare, and a round trip short; of a SYN-ACK whose SYN was not seen more is known for as long as there is room.
const SET_COUNT: usize = 512;

/// How far a client may have come before it has read more than the SYN-ACK: the window in a SYN-ACK is never scaled
/// (RFC 7323, section 2.2).
const FIRST_WINDOW_SIZE: u32 = 1 << 16;

/// Bits of a record's second word, from the lowest: the ISN, the tick, the client, whether the server has sent its FIN,
/// and how long before its tick the handshake began, in ticks. The first is the hash; both are zero where there is
/// none.
const TICK_SHIFT: u32 = u32::BITS;
const CLIENT_SHIFT: u32 = TICK_SHIFT + TICK_BITS;
const FIN_SHIFT: u32 = CLIENT_SHIFT + 1;
const DELAY_SHIFT: u32 = FIN_SHIFT + 1;
const DELAY_MAX: u64 = (1 << (u64::BITS - DELAY_SHIFT)) - 1;

/// The connection of a handshake that contradicts what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) client: Side,
    /// The client's ISN.
    pub(super) isn: u32,
    /// The low bits of the tick of the last packet that showed it, and those of the first.
    pub(super) tick: u32,
    pub(super) start_tick: u32,
    /// Whether the server has sent its FIN already.
    pub(super) has_server_fin: bool,
}

impl Rival {
    /// Whether this is the connection with this entry.
    fn is(&self, entry: &FilterEntry) -> bool {
        entry.is_of(self.client, self.isn)
    }

    /// Whether it was shown since the connection with this entry started.
    fn is_since(&self, entry: &FilterEntry, now: u64) -> bool {
        FilterEntry::tick_of(now.wrapping_sub(u64::from(self.tick))) <= entry.age(now)
    }

    /// The entry of its connection when its client has answered, with a FIN or without one; of no fingerprint yet.
    pub(super) fn entry(&self, has_client_fin: bool) -> FilterEntry {
        let state = match (has_client_fin, self.has_server_fin) {
            (false, false) => ConnectionState::Established,
            (false, true) => ConnectionState::EstablishedServerFin,
            (true, _) => ConnectionState::EstablishedClientFin,
        };
        let short_isn = FilterEntry::short_isn(self.isn);
        FilterEntry { fingerprint: 0, state, client: self.client, tick: self.start_tick, short_isn }
    }

    fn to_word(self) -> u64 {
        let delay = FilterEntry::tick_of(u64::from(self.tick.wrapping_sub(self.start_tick)));
        u64::from(self.isn)
            | u64::from(self.tick) << TICK_SHIFT
            | u64::from(self.client == Side::Second) << CLIENT_SHIFT
            | u64::from(self.has_server_fin) << FIN_SHIFT
            | u64::from(delay).min(DELAY_MAX) << DELAY_SHIFT
    }

    fn of_word(word: u64) -> Self {
        let client = if word >> CLIENT_SHIFT & 1 == 0 { Side::First } else { Side::Second };
        let tick = FilterEntry::tick_of(word >> TICK_SHIFT);
        let start_tick = FilterEntry::tick_of(u64::from(tick).wrapping_sub(word >> DELAY_SHIFT));
        Rival { client, isn: word as u32, tick, start_tick, has_server_fin: word >> FIN_SHIFT & 1 != 0 }
    }

    /// The age of a record with this word in ticks.
    fn age(word: u64, now: u64) -> u64 {
        u64::from(FilterEntry::tick_of(now.wrapping_sub(word >> TICK_SHIFT)))
    }
}

/// What a packet without a flag says about the handshakes that contradict its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There are none.
    Uncontested,
    /// It is no answer to any of them.
    Contradicts,
    /// It is the client's answer to this one.
    Answers(Rival),
}

impl Verdict {
    /// The handshake that is answered.
    pub(super) fn answered(self) -> Option<Rival> {
        match self {
            Verdict::Answers(rival) => Some(rival),
            Verdict::Uncontested | Verdict::Contradicts => None,
        }
    }
}

/// A byte for each record of a set.
type Tags = [u8; RECORD_COUNT];

/// The handshakes of one partition that contradict known connections. The memory is fixed when it is made.
pub(super) struct Rivals {
    sets: Lines,
    /// For each record a part of its hash, or zero where there is none. Of nearly all connections they say that there
    /// is none, and they stay in the caches, which the records do not.
    tags: Box<[Tags]>,
    /// The tick of the latest.
    latest: u64,
    /// How long one counts, in ticks.
    timeout: u64,
}

impl Rivals {
    /// An empty table, of handshakes that count for this many ticks.
    pub(super) fn new(timeout: u64) -> Self {
        let tags = vec![Tags::default(); SET_COUNT].into();
        Rivals { sets: Lines::new_huge(SET_COUNT), tags, latest: 0, timeout }
    }

    /// The memory of a table, in bytes.
    pub(super) fn size() -> usize {
        SET_COUNT * (size_of::<Line>() + size_of::<Tags>())
    }

    /// What stands for a connection among the tags. The bits that choose the set are others.
    #[inline]
    fn tag(hash: ConnectionHash) -> u8 {
        hash.fingerprint() as u8
    }

    /// Records a handshake that is shown now. One with the same number that counts still began when that did.
    pub(super) fn put(&mut self, hash: ConnectionHash, client: Side, isn: u32, now: u64) {
        let tick = FilterEntry::tick_of(now);
        let (bits, mut new) = (hash.to_bits(), Rival { client, isn, tick, start_tick: tick, has_server_fin: false });
        let index = hash.bucket(SET_COUNT);
        let set = &mut self.sets[index].0;
        let mut oldest = (0, 0);
        for record in 0..RECORD_COUNT {
            let [there, word] = [set[2 * record], set[2 * record + 1]];
            let is_used = there != 0;
            let known = Rival::of_word(word);
            let is_same = is_used && there == bits && (known.client, known.isn) == (client, isn);
            if is_same && Rival::age(word, now) <= self.timeout {
                (new.start_tick, new.has_server_fin) = (known.start_tick, known.has_server_fin);
            }
            let age = if is_same {
                u64::MAX
            } else if is_used {
                Rival::age(word, now)
            } else {
                1 << TICK_BITS
            };
            if record == 0 || age > oldest.1 {
                oldest = (record, age);
            }
        }
        [set[2 * oldest.0], set[2 * oldest.0 + 1]] = [bits, new.to_word()];
        self.tags[index][oldest.0] = Self::tag(hash);
        self.latest = now;
    }

    /// Whether a handshake of this connection may count now. False most of the time.
    #[inline]
    pub(super) fn may_contest(&self, hash: ConnectionHash, now: u64) -> bool {
        now - self.latest <= self.timeout && self.may_hold(hash)
    }

    /// Prefetches what [`Self::may_contest`] reads.
    #[inline]
    pub(super) fn prefetch(&self, hash: ConnectionHash) {
        prefetch(&self.tags[hash.bucket(SET_COUNT)]);
    }

    /// Whether a handshake of this connection may be recorded, whether it counts or not. All tags of the set are
    /// compared at once: of nearly all connections there is none.
    #[inline]
    fn may_hold(&self, hash: ConnectionHash) -> bool {
        const EACH: u32 = u32::from_ne_bytes([1; RECORD_COUNT]);
        let set = hash.bucket(SET_COUNT);
        let differences = u32::from_ne_bytes(self.tags[set]) ^ (EACH * u32::from(Self::tag(hash)));
        // A byte is zero where subtracting one borrows from its highest bit.
        differences.wrapping_sub(EACH) & !differences & EACH << 7 != 0
    }

    /// What a packet without a flag says, whose sequence number follows `isn`. The own handshake of a known connection
    /// contradicts nothing, nor do those before an open one.
    #[inline]
    pub(super) fn judge(
        &self,
        hash: ConnectionHash,
        (sender, isn): (Side, u32),
        known: Option<&FilterEntry>,
        now: u64,
    ) -> Verdict {
        if !self.may_contest(hash, now) {
            return Verdict::Uncontested;
        }
        self.judge_recent(hash, (sender, isn), known, now)
    }

    #[cold]
    fn judge_recent(
        &self,
        hash: ConnectionHash,
        (sender, isn): (Side, u32),
        known: Option<&FilterEntry>,
        now: u64,
    ) -> Verdict {
        let is_before =
            |rival: &Rival, known: &FilterEntry| known.state.is_established() && !rival.is_since(known, now);
        let is_later = |rival: &Rival| known.is_none_or(|known| !rival.is(known) && !is_before(rival, known));
        let mut verdict = Verdict::Uncontested;
        for rival in self.recent(hash, now).filter(|rival| rival.client == sender && is_later(rival)) {
            if isn.wrapping_sub(rival.isn) < FIRST_WINDOW_SIZE {
                return Verdict::Answers(rival);
            }
            verdict = Verdict::Contradicts;
        }
        verdict
    }

    /// Whether the whole number of this connection's handshake is recorded.
    pub(super) fn knows(&self, hash: ConnectionHash, known: &FilterEntry, now: u64) -> bool {
        self.recent(hash, now).any(|rival| rival.is(known))
    }

    /// Whether the capture side may take this client's packet, which follows `isn`, for the answer to one of these
    /// handshakes.
    pub(super) fn may_complete(&self, hash: ConnectionHash, (client, isn): (Side, u32), now: u64) -> bool {
        let short_isn = FilterEntry::short_isn(isn);
        let mut of_client = self.recent(hash, now).filter(|rival| rival.client == client);
        of_client.any(|rival| rival.entry(false).capture_isn_matches(short_isn))
    }

    /// The handshakes of this connection that count now.
    fn recent(&self, hash: ConnectionHash, now: u64) -> impl Iterator<Item = Rival> {
        let records = self.sets[hash.bucket(SET_COUNT)].0.chunks_exact(2);
        let words = records.filter(move |record| record[0] == hash.to_bits()).map(|record| record[1]);
        words.filter(move |word| Rival::age(*word, now) <= self.timeout).map(Rival::of_word)
    }

    /// Whether a handshake with this number, or one that follows it, was recorded as that of this connection.
    pub(super) fn follows(&self, hash: ConnectionHash, known: &FilterEntry, isn: u32, now: u64) -> bool {
        match self.judge(hash, (known.client, isn), None, now) {
            Verdict::Answers(rival) => rival.is(known),
            Verdict::Uncontested | Verdict::Contradicts => false,
        }
    }

    /// Records that the server of a handshake has sent its FIN, if it acknowledges the number of one or what shortly
    /// follows it: data of the client that was not seen. Not of the handshake of the known connection, and not if it
    /// acknowledges the number of that. False if there is none.
    #[cold]
    pub(super) fn end_server(
        &mut self,
        hash: ConnectionHash,
        (client, acknowledged): (Side, u32),
        known: &FilterEntry,
        now: u64,
    ) -> bool {
        if known.is_of(client, acknowledged) {
            return false;
        }
        let timeout = self.timeout;
        let records = self.sets[hash.bucket(SET_COUNT)].0.chunks_exact_mut(2);
        let mut has_ended = false;
        for record in records.filter(|record| record[0] == hash.to_bits()) {
            let rival = Rival::of_word(record[1]);
            let is_behind = acknowledged.wrapping_sub(rival.isn) < FIRST_WINDOW_SIZE;
            if rival.client == client && is_behind && !rival.is(known) && Rival::age(record[1], now) <= timeout {
                record[1] |= 1 << FIN_SHIFT;
                has_ended = true;
            }
        }
        has_ended
    }

    /// Forgets what contradicts a connection: it was answered.
    pub(super) fn forget(&mut self, hash: ConnectionHash) {
        let set = hash.bucket(SET_COUNT);
        for (record, tag) in self.sets[set].0.chunks_exact_mut(2).zip(&mut self.tags[set]) {
            if record[0] == hash.to_bits() {
                record.fill(0);
                *tag = 0;
            }
        }
    }

    /// Writes the table into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.latest);
        let words = || self.sets.iter().flat_map(|set| set.0);
        encoder.length(words().filter(|word| *word != 0).count());
        for (index, word) in words().enumerate().filter(|(_, word)| *word != 0) {
            encoder.u64(index as u64);
            encoder.u64(word);
        }
    }

    /// Fills an empty table from a saved state, at the tick `now`.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a table.
    pub(super) fn restore(&mut self, decoder: &mut Decoder, now: u64) -> Result<()> {
        self.latest = decoder.count()?;
        decoder.expect(self.latest <= now, "a handshake that is still to come")?;
        let words_in_set = 2 * RECORD_COUNT;
        for _ in 0..decoder.length(2 * size_of::<u64>(), SET_COUNT * words_in_set)? {
            let (index, word) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            decoder.expect(index < SET_COUNT * words_in_set, "a handshake out of place")?;
            self.sets[index / words_in_set].0[index % words_in_set] = word;
            if index.is_multiple_of(2) {
                self.tags[index / words_in_set][index % words_in_set / 2] =
                    Self::tag(ConnectionHash::new(u128::from(word)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::numbered as hash;
    use Side::{First, Second};

    const TIMEOUT: u64 = 600;

    #[test]
    fn the_clients_next_packet_answers_or_contradicts() {
        let mut rivals = Rivals::new(TIMEOUT);
        assert_eq!(rivals.judge(hash(1), (First, 7), None, 1_000), Verdict::Uncontested);
        let isn = u32::MAX - 10;
        rivals.put(hash(1), First, isn, 1_000);
        let rival = Rival { client: First, isn, tick: 1_000, start_tick: 1_000, has_server_fin: false };
        for (number, verdict) in [
            (isn, Verdict::Answers(rival)),
            (isn.wrapping_add(FIRST_WINDOW_SIZE - 1), Verdict::Answers(rival)),
            (isn.wrapping_add(FIRST_WINDOW_SIZE), Verdict::Contradicts),
            (isn - 1, Verdict::Contradicts),
        ] {
            assert_eq!(rivals.judge(hash(1), (First, number), None, 1_000 + TIMEOUT), verdict);
            assert_eq!(rivals.judge(hash(1), (Second, number), None, 1_000), Verdict::Uncontested);
            assert_eq!(rivals.judge(hash(2), (First, number), None, 1_000), Verdict::Uncontested);
            assert_eq!(rivals.judge(hash(1), (First, number), None, 1_001 + TIMEOUT), Verdict::Uncontested);
        }
        rivals.forget(hash(1));
        assert_eq!(rivals.judge(hash(1), (First, isn), None, 1_000), Verdict::Uncontested);
    }

    #[test]
    fn of_several_each_may_be_answered() {
        let mut rivals = Rivals::new(TIMEOUT);
        for (isn, tick) in [(1 << 20, 10), (2 << 20, 11), (1 << 20, 12)] {
            rivals.put(hash(1), Second, isn, tick);
        }
        // What is shown again began with the first.
        for (isn, tick, start_tick) in [(1 << 20, 12, 10), (2 << 20, 11, 11)] {
            let answered = Verdict::Answers(Rival { client: Second, isn, tick, start_tick, has_server_fin: false });
            assert_eq!(rivals.judge(hash(1), (Second, isn), None, 13), answered);
        }
    }

    #[test]
    fn a_server_that_ends_before_its_client_answers_has_ended() {
        let mut rivals = Rivals::new(TIMEOUT);
        let known = |client, isn| FilterEntry {
            fingerprint: 0,
            state: ConnectionState::Established,
            client,
            tick: 900,
            short_isn: FilterEntry::short_isn(isn),
        };
        let (other, own) = (known(First, 1 << 30), known(First, 7));
        rivals.put(hash(1), First, 7, 1_000);
        for (number, client, isn, known, now) in [
            (2, First, 7, &other, 1_000),
            (1, Second, 7, &other, 1_000),
            (1, First, 6, &other, 1_000),
            (1, First, 7 + FIRST_WINDOW_SIZE, &other, 1_000),
            (1, First, 7, &other, 1_001 + TIMEOUT),
            (1, First, 7, &own, 1_000),
        ] {
            assert!(!rivals.end_server(hash(number), (client, isn), known, now));
        }
        assert!(rivals.end_server(hash(1), (First, 7), &other, 1_001));
        assert!(rivals.end_server(hash(1), (First, 6 + FIRST_WINDOW_SIZE), &other, 1_001));
        rivals.put(hash(1), First, 7, 1_002);
        let rival = Rival { client: First, isn: 7, tick: 1_002, start_tick: 1_000, has_server_fin: true };
        assert_eq!(rivals.judge(hash(1), (First, 7), None, 1_003), Verdict::Answers(rival));
    }

    #[test]
    fn what_is_saved_comes_back() {
        let mut rivals = Rivals::new(TIMEOUT);
        (0..1_000).for_each(|number| rivals.put(hash(number), First, number as u32, 500));
        let mut encoder = Encoder::default();
        rivals.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let mut other = Rivals::new(TIMEOUT);
        other.restore(&mut Decoder::new(&bytes), 500).unwrap();
        for number in 0..1_000 {
            let judged = |rivals: &Rivals| rivals.judge(hash(number), (First, number as u32), None, 600);
            assert_eq!(judged(&other), judged(&rivals));
        }
        assert!(Rivals::new(TIMEOUT).restore(&mut Decoder::new(&bytes), 499).is_err());
    }
}
