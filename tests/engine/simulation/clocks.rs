//! The clocks that stamp packets: true, or lying in the ways of the world.

use super::world::World;
use flowpeel_traffic::Random;
use std::collections::BTreeSet;

const SECOND_US: i64 = 1_000_000;

/// A second of 2026, when every world begins.
pub(super) const BEGIN_US: i64 = 1_767_225_600 * SECOND_US;

/// The furthest that a clock leaps ahead when time has passed without packets.
const LEAP_MAX_US: i64 = 31 * 86_400 * SECOND_US;

/// The first packets have true stamps: by the first of all is the main clock known.
const TRUE_PACKETS: u64 = 100;

/// More than the stamps of packets that follow each other are out of order.
const JITTER_MAX_US: i64 = 50_000;

/// The clocks of the taps.
pub(super) struct Clocks {
    offset_us: i64,
    set_at_us: i64,
    set_us: i64,
    every_us: i64,
    /// What the clock showed at the end of the last interval.
    last_end_us: i64,
    /// Whether the interval has ended in which the clock was set back.
    is_past_set: bool,
    /// The intervals in which a clock that is set back has shown packets, before it was set and since.
    shown_before_set: BTreeSet<i64>,
    shown_since_set: BTreeSet<i64>,
    wrong_share: f64,
    stamped: u64,
    random: Random,
}

/// The end of an interval.
pub(super) struct IntervalEnd {
    /// As the list says it.
    pub(super) end_us: i64,
    /// When the last packet came before the clock was set, once it has been.
    pub(super) last_unset_us: Option<i64>,
    /// The present, at which there is a list of it.
    pub(super) now_us: i64,
}

impl Clocks {
    /// The clocks of a world in which about so many packets are captured.
    pub(super) fn new(world: &World, packets: u64) -> Self {
        let signed = |size_s: u64, is_negative: u64| {
            let size_us = size_s as i64 * SECOND_US;
            if is_negative == 1 { -size_us } else { size_us }
        };
        Clocks {
            offset_us: signed(world.offset_s, world.is_behind),
            set_at_us: BEGIN_US + world.busy_s as i64 * SECOND_US / 2,
            set_us: signed(world.set_s, world.set_back),
            every_us: world.every_s as i64 * SECOND_US,
            wrong_share: world.wrong_stamps as f64 / packets.max(200 * world.wrong_stamps).max(1) as f64,
            last_end_us: i64::MIN,
            is_past_set: false,
            shown_before_set: BTreeSet::new(),
            shown_since_set: BTreeSet::new(),
            stamped: 0,
            random: Random::new(world.seed ^ 0xc10c),
        }
    }

    /// When the clocks are set forward by so little that it may be time that has passed, if they are.
    pub(super) fn leap_us(&self) -> Option<i64> {
        (1..=LEAP_MAX_US).contains(&self.set_us).then_some(self.set_at_us)
    }

    /// How far the clocks are set back, if they are.
    pub(super) fn set_back_us(&self) -> Option<i64> {
        (self.set_us < 0).then_some(-self.set_us)
    }

    /// The stamp of a packet that this tap captures now.
    pub(super) fn stamp_us(&mut self, tap: usize, now_us: i64) -> i64 {
        let offset_us = if tap == 1 { self.offset_us } else { 0 };
        let set_us = if now_us < self.set_at_us { 0 } else { self.set_us };
        let stamp_us = now_us + set_us + offset_us;
        self.stamped += 1;
        let may_be_wrong = self.stamped > TRUE_PACKETS && self.wrong_share > 0.0;
        if may_be_wrong && self.random.chance(self.wrong_share) {
            let size_us = self.random.log_uniform(&(61..=1_000_000_000)) as i64 * SECOND_US;
            return stamp_us + if self.random.chance(0.5) { size_us } else { -size_us };
        }
        stamp_us
    }

    /// A packet was captured now, with this stamp.
    pub(super) fn shows(&mut self, stamp_us: i64, now_us: i64) {
        if self.set_us < 0 {
            let is_set = self.is_set(now_us);
            let shown = if is_set { &mut self.shown_since_set } else { &mut self.shown_before_set };
            shown.insert(stamp_us.div_euclid(self.every_us));
        }
    }

    /// The true time at which an interval ended, by the clock of this tap: when a packet came that it showed as later.
    pub(super) fn true_us(&mut self, tap: usize, end: IntervalEnd) -> i64 {
        let IntervalEnd { end_us, last_unset_us, now_us } = end;
        let shown_us = if tap == 1 { end_us - self.offset_us } else { end_us };
        if self.set_us > 0 && shown_us > self.set_at_us {
            return (shown_us - self.set_us).max(self.set_at_us);
        }
        // No packet before the clock was set back has shown so much, or the last list ended later.
        let is_beyond = last_unset_us.is_some_and(|last_us| shown_us > last_us + JITTER_MAX_US);
        let is_back = std::mem::replace(&mut self.last_end_us, shown_us) > shown_us;
        // An interval in which no packet is shown has no list. One before the clock was set may be silent, and the
        // clock be set back into that silence.
        let interval = (shown_us - 1).div_euclid(self.every_us);
        let is_of_set = !self.shown_before_set.contains(&interval) && self.shown_since_set.contains(&interval);
        // While few packets have followed the clock that was set, intervals end by that before: by the clock since,
        // this one would end only later than now.
        let may_be_set = shown_us - self.set_us <= now_us + JITTER_MAX_US;
        self.is_past_set |= self.set_us < 0 && may_be_set && (is_beyond || is_back || is_of_set);
        if self.set_us < 0 && self.is_past_set {
            return shown_us - self.set_us;
        }
        // Where the clock is set back the interval ends with the last packet before, and so at no multiple of its
        // length, unless it shows by the next packet what it had shown before.
        let is_cut = shown_us.rem_euclid(self.every_us) != 0;
        let is_last = last_unset_us.is_some_and(|last_us| (last_us - shown_us).abs() < JITTER_MAX_US);
        self.is_past_set |= is_cut && is_last;
        shown_us
    }

    /// The first packet comes now.
    pub(super) fn begin(&mut self, now_us: i64) {
        self.is_past_set = self.is_set(now_us);
    }

    pub(super) fn is_set(&self, now_us: i64) -> bool {
        self.set_us != 0 && now_us >= self.set_at_us
    }
}
