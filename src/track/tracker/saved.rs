//! A tracker in a saved state: its filter, its rings, its time and its counts.

use super::Tracker;
use super::untracked::Untracked;
use crate::error::Result;
use crate::handover::Counts;
use crate::state::{Decoder, Encoder};
use crate::track::Filter;

impl Tracker {
    /// About how many bytes [`Self::save`] writes.
    #[must_use]
    pub fn saved_size(&self) -> usize {
        Filter::size(self.config.place_count) + self.config.rings_size()
    }

    /// Writes the tracker into a saved state.
    ///
    /// Complexity: a pass over its memory.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.now);
        self.untracked.save(encoder);
        self.counts.save(encoder);
        self.filter.save(encoder);
        [&self.rings.half_open, &self.rings.candidates].into_iter().for_each(|ring| ring.save(encoder));
    }

    /// Continues from a saved state of the same configuration. After an error the tracker is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode such a tracker.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.now = decoder.count()?;
        self.untracked = Untracked::saved(decoder)?;
        self.counts = Counts::saved(decoder)?;
        self.filter.restore(decoder)?;
        let mut named_count = 0;
        for ring in [&mut self.rings.half_open, &mut self.rings.candidates] {
            named_count += ring.restore(decoder, &self.filter)?;
        }
        // No two entries name the same record, so if the numbers are equal every entry has its record.
        decoder.expect(named_count == self.filter.recorded_count(), "half-open connections without a record")?;
        // Counted, not read: both are decremented, and must never be too small.
        (self.established, self.one_way) = self.filter.established();
        Ok(())
    }

    /// Forgets which connections were seen: what was seen before a restart says nothing about the time after it.
    pub fn forget_seen(&mut self) {
        self.filter.forget_seen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Traffic, TrafficConfig};
    use crate::handover::HalfOpenList;
    use crate::hash::Secret;
    use crate::parse::{LinkType, parse_frame};
    use crate::signal::{Clock, HandshakeCache, Signal, Signaller, SignallerConfig};
    use crate::track::TrackerConfig;
    use std::sync::Arc;

    fn config() -> TrackerConfig {
        TrackerConfig {
            secret: Secret::REPLAY,
            place_count: 4_000,
            half_open_count: 600,
            connections_max: 3_000,
            syn_timeout_ticks: 20,
            linger_ticks: 10,
            one_way_max: 0,
            candidate_count: 50,
            candidate_timeout_ticks: 100,
            untracked_ticks: None,
            answer_opens: false,
            fingerprint_bits: crate::signal::FINGERPRINT_BITS,
        }
    }

    /// The signals of generated traffic.
    fn signals() -> Vec<Signal> {
        let config = SignallerConfig {
            secret: Secret::REPLAY,
            vlan_key: false,
            one_way: false,
            syn_timeout_ns: 2_000_000_000,
            pickup: 4,
            answer_opens: false,
            seen_syn_count: 0,
        };
        let mut signaller = Signaller::new(config, Arc::new(HandshakeCache::new(64, 2_000_000_000)), None);
        let mut traffic = Traffic::new(TrafficConfig::mixed(3, 2_000)).unwrap();
        let mut clock = None;
        let mut signals = Vec::new();
        while let Some(frame) = traffic.next_frame() {
            let time_ns = frame.time_us as i64 * 1_000;
            let clock = clock.get_or_insert_with(|| Clock::new(time_ns));
            clock.advance(time_ns);
            if let Ok(segment) = parse_frame(LinkType::ETHERNET, frame.bytes) {
                signaller.push(&segment, || (clock.tick(), clock.elapsed_ns()), |signal| signals.push(signal));
            }
        }
        signaller.flush(|signal| signals.push(signal));
        signals
    }

    fn saved(tracker: &Tracker) -> Vec<u8> {
        let mut encoder = Encoder::default();
        tracker.save(&mut encoder);
        encoder.into_bytes()
    }

    #[test]
    fn a_tracker_goes_on_as_if_nothing_had_been() {
        // Of some the beginning is not seen.
        let signals = &signals()[300..];
        let (before, after) = signals.split_at(signals.len() / 2);
        let mut tracker = Tracker::new(config());
        for signal in before {
            tracker.handle(signal);
        }
        let bytes = saved(&tracker);
        let mut other = Tracker::new(config());
        let mut decoder = Decoder::new(&bytes);
        other.restore(&mut decoder).unwrap();
        assert!(decoder.end().is_ok());
        assert_eq!((other.established, other.one_way), (tracker.established, tracker.one_way));
        let mut event_count = 0;
        for signal in after {
            let event = tracker.handle(signal);
            event_count += usize::from(event.is_some());
            assert_eq!(other.handle(signal), event);
        }
        assert!(event_count > 300, "{event_count}");
        assert_eq!(other.counts(), tracker.counts());
        let half_open = |tracker: &mut Tracker| {
            let mut copy = HalfOpenList::new(config().half_open_count);
            tracker.list_half_open(&mut copy);
            copy.iter(signals.last().unwrap().parts().tick).collect::<Vec<_>>()
        };
        assert_eq!(half_open(&mut other), half_open(&mut tracker));
        assert!(tracker.counts().expired > 0 && tracker.counts().candidates > 0, "{:?}", tracker.counts());
    }

    #[test]
    fn what_is_cut_or_of_another_size_is_refused() {
        let mut tracker = Tracker::new(config());
        for signal in signals().iter().take(500) {
            tracker.handle(signal);
        }
        let bytes = saved(&tracker);
        for end in (0..bytes.len()).step_by(97) {
            assert!(Tracker::new(config()).restore(&mut Decoder::new(&bytes[..end])).is_err(), "{end}");
        }
        let smaller = TrackerConfig { place_count: 3_000, ..config() };
        assert!(Tracker::new(smaller).restore(&mut Decoder::new(&bytes)).is_err());
        let smaller = TrackerConfig { half_open_count: 2, candidate_count: 0, ..config() };
        assert!(Tracker::new(smaller).restore(&mut Decoder::new(&bytes)).is_err());
    }
}
