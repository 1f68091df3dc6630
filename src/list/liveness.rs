//! Connections that time out without FIN or RST: which are asked about, come under watch, and are taken off.
//!
//! Time is counted in epochs, sixteen to the idle timeout. In each epoch every listed connection is asked about once, a
//! bounded number of them at the end of each interval.
//!
//! Only a sample of most packets reaches the partition, so a connection that was not seen may still be sending. One
//! that was not seen for a quarter of the timeout therefore comes under watch: capture threads pass on its next packet
//! of any kind. It is taken off only if nothing was seen of it for the other three quarters either. Where every packet
//! reaches the partition there is no watch.

use crate::error::Result;
use crate::flow::FlowKey as TableKey;
use crate::flow::QuickHash;
use crate::handover::Eviction;
use crate::list::start::{Epoch, EpochLeap, Start};
use crate::signal::Watch;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::Secret;
use std::sync::Arc;

/// Epochs in an idle timeout. In each of them every listed connection is asked about once.
pub const IDLE_EPOCHS: u64 = 16;

const _: () = assert!(Epoch::AGE_MAX > Epoch::COUNT - IDLE_EPOCHS + 1, "what is that old is older than the timeout");

/// Epochs of silence after which a connection comes under watch: a quarter of the timeout.
const SUSPECT_EPOCHS: u64 = IDLE_EPOCHS / 4;

/// When connections are taken off that were not seen to end, in ticks of 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionTimes {
    /// Connections that are not seen for this long are taken off; at least [`IDLE_EPOCHS`]. `None` turns this off.
    pub idle_ticks: Option<u64>,
    /// Connections that are this old are taken off; at least [`IDLE_EPOCHS`]. `None` turns this off.
    pub age_max_ticks: Option<u64>,
    /// The length of an interval, at whose end connections are asked about; 0 if there is only one interval.
    pub interval_ticks: u64,
}

impl EvictionTimes {
    /// How long a connection can be silent and be listed; `None` for ever.
    #[must_use]
    pub fn silent_ticks_max(self) -> Option<u64> {
        self.idle_ticks.into_iter().chain(self.age_max_ticks).min()
    }

    /// Whether nothing is ever evicted, so that no questions are asked for it.
    #[must_use]
    pub fn are_none(self) -> bool {
        self.epoch_ticks().is_none()
    }

    /// The length of an epoch in ticks; `None` if nothing is ever evicted.
    fn epoch_ticks(self) -> Option<u64> {
        let shortest = self.idle_ticks.into_iter().chain(self.age_max_ticks).min()?;
        // Even if the idle timeout is much longer than the age, its epochs must have different numbers.
        let shortest = shortest.max(self.idle_ticks.unwrap_or(0) * IDLE_EPOCHS / (Epoch::COUNT - IDLE_EPOCHS));
        // Only a few epochs may pass from one end of an interval to the next: if all numbers passed, it would look like
        // none.
        Some((shortest.max(self.interval_ticks) / IDLE_EPOCHS).max(1))
    }
}

/// How the connections of a family are checked for being alive.
pub(super) struct Liveness {
    times: EvictionTimes,
    epoch_ticks: Option<u64>,
    watch: Option<Arc<Watch>>,
    quick: QuickHash,
    /// The tick of the last list, and that of the last hand-over or list.
    now: u64,
    latest: u64,
    /// The epoch in which the last round of questions began, and whether the round is not complete yet.
    round: Option<Epoch>,
    is_asking: bool,
    /// Whether any listed connection is unsettled, and whether this round is for unsettled ones only.
    has_unsettled: bool,
    asks_unsettled_only: bool,
    /// The tick up to which packets passed unseen before the run was resumed; 0 if it was not. It is not saved: what
    /// restores it is resumed at another.
    resumed_tick: u64,
}

impl Liveness {
    pub(super) fn new(secret: &Secret, times: EvictionTimes, watch: Option<Arc<Watch>>) -> Self {
        Liveness {
            times,
            epoch_ticks: times.epoch_ticks(),
            watch,
            quick: QuickHash::new(secret),
            now: 0,
            latest: 0,
            round: None,
            is_asking: false,
            has_unsettled: false,
            asks_unsettled_only: false,
            resumed_tick: 0,
        }
    }

    /// Moves on to a tick. Returns the leap if that is so far that all starts have to be taken [behind
    /// it](Start::behind), before any is seen at this tick.
    pub(super) fn advance(&mut self, tick: u64) -> Option<EpochLeap> {
        let from = self.latest;
        self.latest = from.max(tick);
        self.leap(from, tick)
    }

    /// The leap between two ticks, if it is over more epochs than an interval has.
    fn leap(&self, from: u64, tick: u64) -> Option<EpochLeap> {
        let length = self.epoch_ticks?;
        (tick.saturating_sub(from) / length > IDLE_EPOCHS).then(|| EpochLeap::new((from, tick), length))
    }

    /// The epoch of a tick that may be before a leap, as it is known at the tick `now`.
    pub(super) fn epoch_before(&self, tick: u64, now: u64) -> Epoch {
        self.leap(tick, now).map_or_else(|| self.epoch(tick), |leap| leap.known(self.epoch(tick)))
    }

    /// The epoch of a tick.
    pub(super) fn epoch(&self, tick: u64) -> Epoch {
        self.epoch_ticks.map_or(Epoch::default(), |length| Epoch::of(tick, length))
    }

    /// Records that an interval has ended at this tick. Returns whether a round of questions begins.
    pub(super) fn end_interval(&mut self, tick: u64) -> bool {
        self.now = tick;
        let epoch = self.epoch(tick);
        let is_new = self.epoch_ticks.is_some() && self.round != Some(epoch);
        // Unsettled connections are asked about at every end, so that they are settled as soon as they are seen.
        let begins = !self.is_asking && (is_new || self.has_unsettled);
        if begins {
            self.round = Some(epoch).filter(|_| is_new).or(self.round);
            self.asks_unsettled_only = !is_new;
            self.is_asking = true;
        }
        begins
    }

    /// Whether any listed connection is unsettled.
    pub(super) fn has_unsettled(&self) -> bool {
        self.has_unsettled
    }

    /// Sets whether any listed connection is unsettled.
    pub(super) fn set_unsettled(&mut self, has_unsettled: bool) {
        self.has_unsettled = has_unsettled;
    }

    /// Records that packets passed unseen up to this tick.
    pub(super) fn resume_at(&mut self, resumed_tick: u64) {
        self.resumed_tick = resumed_tick;
    }

    /// Marks a listed connection as unsettled if it was open before packets passed unseen.
    pub(super) fn doubt(&mut self, start: Start) -> Start {
        let was_open = start.tick() < self.resumed_tick;
        self.has_unsettled |= was_open;
        if was_open { start.unsettled() } else { start }
    }

    /// Whether there are questions left in this round.
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Ends the round: every connection was asked about.
    pub(super) fn end_round(&mut self) {
        self.is_asking = false;
    }

    /// Asks about every connection once more in this epoch if what was last seen in `seen` is over the timeout: the
    /// answer came behind a leap of time, and what it says is judged only when the connection is due to be asked about.
    pub(super) fn ask_again_if_silent_since(&mut self, seen: Epoch) {
        if self.times.idle_ticks.is_some() && self.is_silent(self.epoch(self.latest), seen) {
            self.round = None;
        }
    }

    /// Whether a connection that was last seen in the epoch `seen` has been silent for the timeout.
    fn is_silent(&self, now: Epoch, seen: Epoch) -> bool {
        now.since(seen) > self.epochs_of(IDLE_EPOCHS)
    }

    /// Whether this round concerns a listed connection, to ask about it or to take it off.
    pub(super) fn concerns(&self, start: Start) -> bool {
        if self.asks_unsettled_only {
            return start.is_known() && start.is_unsettled();
        }
        start.is_known() && (self.times.idle_ticks.is_some() || self.is_aged(start))
    }

    fn is_aged(&self, start: Start) -> bool {
        self.times.age_max_ticks.is_some_and(|age_max| self.now.saturating_sub(start.tick()) >= age_max)
    }

    /// The number of epochs in this many sixteenths of the idle timeout, rounded up. An epoch that is further back than
    /// that began longer ago than that time.
    fn epochs_of(&self, sixteenths: u64) -> u64 {
        let (idle, length) = (self.times.idle_ticks.unwrap_or(0), self.epoch_ticks.unwrap_or(1));
        (idle * sixteenths).div_ceil(IDLE_EPOCHS * length)
    }

    /// Decides about a listed connection that is due to be asked about: whether it is taken off, and its start as it is
    /// remembered from now on.
    pub(super) fn judge<K: TableKey>(&self, key: &K, start: Start) -> (Option<Eviction>, Start) {
        if !start.is_known() {
            return (None, start);
        }
        if self.is_aged(start) {
            return (Some(Eviction::Aged), start);
        }
        if self.times.idle_ticks.is_none() {
            return (None, start);
        }
        let now = self.epoch(self.now);
        let Some(watch) = &self.watch else {
            return (self.is_silent(now, start.seen()).then_some(Eviction::Idle), start);
        };
        let hash = self.quick.of(key);
        let is_over = |watched| now.since(watched) > self.epochs_of(IDLE_EPOCHS - SUSPECT_EPOCHS);
        match start.watched() {
            Some(watched) if is_over(watched) && self.is_silent(now, start.seen()) => {
                // One that is no longer in the watch was seen after all, or lost its slot to another's packet: its
                // watch begins anew.
                if watch.take(hash) { (Some(Eviction::Idle), start) } else { (None, self.suspect(hash, watch, start)) }
            }
            None if now.since(start.seen()) >= self.epochs_of(SUSPECT_EPOCHS) => {
                (None, self.suspect(hash, watch, start))
            }
            _ => (None, start),
        }
    }

    /// Marks a listed connection as unsettled. It comes under watch, if there is a watch with room, so that its next
    /// packet is passed on, of any kind.
    pub(super) fn unsettle<K: TableKey>(&self, key: &K, start: Start, tick: u64) -> Start {
        let start = start.seen_in(start.seen()).unsettled();
        match &self.watch {
            Some(watch) if watch.put(self.quick.of(key)) => start.watched_since(self.epoch(tick)),
            _ => start,
        }
    }

    /// Encodes it for a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.now);
        encoder.option(self.round, |encoder, Epoch(round)| encoder.u8(round));
        [self.is_asking, self.has_unsettled, self.asks_unsettled_only].into_iter().for_each(|flag| encoder.bool(flag));
    }

    /// Restores what one with the same configuration saved.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.now = decoder.count()?;
        self.latest = self.now;
        self.round = decoder.option(Decoder::u8)?.map(Epoch);
        self.is_asking = decoder.bool()?;
        (self.has_unsettled, self.asks_unsettled_only) = (decoder.bool()?, decoder.bool()?);
        Ok(())
    }

    /// Puts a connection under watch if there is room. Otherwise that is tried again in the next epoch.
    fn suspect(&self, hash: u64, watch: &Watch, start: Start) -> Start {
        if watch.put(hash) { start.watched_since(self.epoch(self.now)) } else { start.seen_in(start.seen()) }
    }

    /// Ends the watch over a connection that was seen again, or has closed.
    pub(super) fn end_watch<K: TableKey>(&self, key: &K, start: Start) {
        if let (Some(_), Some(watch)) = (start.watched(), &self.watch) {
            watch.take(self.quick.of(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_far_time_leaps_silence_is_seen_and_none_that_is_not() {
        for (idle, age_max) in [(16, None), (36_000, None), (144_000, None), (1_440_000, Some(96_000))] {
            let times = EvictionTimes { idle_ticks: Some(idle), age_max_ticks: age_max, interval_ticks: 100 };
            let key = crate::flow::KeyV4::new((1, 1), (2, 2), crate::flow::VlanTags::NONE);
            let seen = 1 << 30;
            for leap in (1..400).map(|step| step * idle / 8) {
                let mut liveness = Liveness::new(&Secret::REPLAY, times, None);
                liveness.advance(seen);
                let start = Start::of_payload(0, seen, liveness.epoch(seen));
                let known = liveness.advance(seen + leap).map_or(start, |leap| start.behind(leap));
                assert_eq!(known.seen(), liveness.epoch_before(seen, seen + leap));
                liveness.now = seen + leap;
                // The age only makes the epochs short here: it is judged before silence.
                liveness.times.age_max_ticks = None;
                let evicted = liveness.judge(&key, known).0.is_some();
                if leap <= idle || leap > idle + idle / 8 {
                    assert_eq!(evicted, leap > idle, "{idle} {age_max:?} {leap}");
                }
            }
        }
    }

    #[test]
    fn silence_over_two_intervals_of_any_length_is_seen() {
        for idle in [IDLE_EPOCHS, 1_600, 36_000] {
            for interval in [1, 100, 600, 25_500, 51_000, 255 * 255, 864_000] {
                let times =
                    EvictionTimes { idle_ticks: Some(idle), interval_ticks: interval, ..EvictionTimes::default() };
                let liveness = Liveness::new(&Secret::REPLAY, times, None);
                let key = crate::flow::KeyV4::new((1, 1), (2, 2), crate::flow::VlanTags::NONE);
                let seen = 1 << 30;
                let intervals = (2 * idle).div_ceil(interval).max(2);
                let liveness = Liveness { now: seen + intervals * interval, ..liveness };
                let start = Start::of_payload(0, seen, liveness.epoch(seen));
                assert_eq!(liveness.judge(&key, start).0, Some(Eviction::Idle), "{idle} of {interval}");
                let liveness = Liveness { now: seen + idle, ..liveness };
                assert_eq!(liveness.judge(&key, start).0, None, "{idle} of {interval}");
            }
        }
    }
}
