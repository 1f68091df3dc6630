//! The time of packets, cut at multiples of the interval: equal packets make equal intervals.
//!
//! An interval without packets has no list: the next list covers it. A step back of the clock ends the interval and
//! starts another under a new time base.

use crate::engine::port::{Marks, Timekeeper};
use crate::error::Result;
use crate::queue::Marker;
use crate::signal::{Clock, ClockStep, TICK_NS, TimeBase};
use crate::state::{Decoder, Encoder};

/// The time of packets, as of a capture: a port that goes by it waits where a queue is full, and equal packets make
/// equal lists.
pub struct PacketTime {
    every_ns: Option<i64>,
    clock: Option<Clock>,
    start_ns: i64,
    /// The end of the present interval; `i64::MAX` without intervals.
    end_ns: i64,
    steps_back: u64,
    /// The highest time of all bases, for the one list of a capture without intervals.
    highest_ns: i64,
}

impl PacketTime {
    pub(crate) fn new(every_ns: Option<i64>) -> Self {
        PacketTime { every_ns, clock: None, start_ns: 0, end_ns: i64::MAX, steps_back: 0, highest_ns: i64::MIN }
    }

    /// The time base of the last packet, if there was one.
    pub(crate) fn base(&self) -> Option<TimeBase> {
        self.clock.as_ref().map(Clock::time_base)
    }

    /// Takes over the saved clock of another capture with the same interval.
    ///
    /// # Errors
    ///
    /// The bytes are no such clock.
    pub(crate) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.clock = decoder.option(Clock::saved)?;
        (self.start_ns, self.end_ns) = (decoder.i64()?, decoder.i64()?);
        self.steps_back = decoder.count()?;
        self.highest_ns = decoder.i64()?;
        Ok(())
    }

    /// Moves on to the first packet, the first after an interval's end, or the first of a new base.
    #[cold]
    fn turn(&mut self, time_ns: i64) -> Marks {
        let Some(clock) = &mut self.clock else {
            let clock = self.clock.insert(Clock::new(time_ns));
            let base = clock.time_base();
            self.begin(time_ns, time_ns);
            return Marks { base: Some(base), ..Marks::default() };
        };
        let (before_ns, before_tick, before_base) = (clock.highest_ns(), clock.tick(), clock.time_base());
        self.highest_ns = self.highest_ns.max(before_ns);
        let step = clock.advance(time_ns);
        let (now_tick, now_base) = (clock.tick(), clock.time_base());
        let base = (step == ClockStep::NewBase).then_some(now_base);
        let stepped_back = time_ns < before_ns && base.is_some();
        self.steps_back += u64::from(stepped_back);
        // An end at the end of time is never reached, or it would be reached again and again.
        let is_reached = self.is_over(time_ns) && self.end_ns < i64::MAX;
        let is_over = self.every_ns.is_some() && (stepped_back || is_reached);
        let mut marks = Marks { base, ..Marks::default() };
        if is_over {
            // After a step back the interval ends with its last packet, otherwise where it was to end.
            let end_ns = if stepped_back { before_ns } else { self.end_ns };
            let end_tick = if stepped_back { before_tick } else { before_base.tick(end_ns) };
            // A leap counts as the longest step there is. An end that lies beyond it is moved to where the clock goes
            // on.
            let is_passed = end_tick < now_tick;
            let (end_tick, end_base) = if is_passed { (end_tick, before_base) } else { (now_tick, now_base) };
            marks.end = Some(self.marker(end_ns, end_tick, end_base, false));
            self.begin(if base.is_some() { time_ns } else { end_ns }, time_ns);
        }
        marks
    }

    /// Begins an interval that covers everything since `start_ns` and ends behind `time_ns`.
    fn begin(&mut self, start_ns: i64, time_ns: i64) {
        self.start_ns = start_ns;
        if let Some(every_ns) = self.every_ns {
            self.end_ns = time_ns.div_euclid(every_ns).saturating_add(1).saturating_mul(every_ns);
        }
    }

    fn marker(&self, end_ns: i64, end_tick: u64, base: TimeBase, is_last: bool) -> Marker {
        let within_tick_ns = end_ns.saturating_sub(base.wall_ns(end_tick)).clamp(0, TICK_NS);
        Marker { start_ns: self.start_ns, end_ns, end_tick, within_tick_ns, is_last, ..Marker::default() }
    }

    /// The end of the packets: the last interval ends with the highest time seen.
    fn finish(&self) -> Marker {
        let Some(clock) = &self.clock else {
            return Marker { is_last: true, ..Marker::default() };
        };
        let mut marker = self.marker(clock.highest_ns(), clock.tick(), clock.time_base(), true);
        if self.every_ns.is_none() {
            marker.end_ns = marker.end_ns.max(self.highest_ns);
        }
        marker
    }
}

impl Timekeeper for PacketTime {
    #[inline]
    fn advance_if_quiet(&mut self, time_ns: i64) -> bool {
        time_ns < self.end_ns && self.clock.as_mut().is_some_and(|clock| clock.advance_within_tick(time_ns))
    }

    #[inline]
    fn packet(&mut self, time_ns: i64) -> Marks {
        match &mut self.clock {
            Some(clock) if time_ns < self.end_ns && clock.step(time_ns) == ClockStep::Forward => {
                clock.advance(time_ns);
                Marks::default()
            }
            _ => self.turn(time_ns),
        }
    }

    fn is_over(&self, time_ns: i64) -> bool {
        time_ns >= self.end_ns
    }

    #[inline]
    fn tick(&self) -> u64 {
        self.clock.as_ref().map_or(0, Clock::tick)
    }

    #[inline]
    fn elapsed_ns(&self) -> i64 {
        self.clock.as_ref().map_or(0, Clock::elapsed_ns)
    }

    fn last_end(&self) -> Option<Marker> {
        Some(self.finish())
    }

    fn steps_back(&self) -> u64 {
        self.steps_back
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.clock.as_ref(), |encoder, clock| clock.save(encoder));
        encoder.i64(self.start_ns);
        encoder.i64(self.end_ns);
        encoder.u64(self.steps_back);
        encoder.i64(self.highest_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn ends(every_s: Option<i64>, times: &[i64]) -> Vec<(i64, i64)> {
        let mut intervals = PacketTime::new(every_s.map(|every_s| every_s * S));
        let mut ends: Vec<_> = times.iter().filter_map(|time| intervals.packet(*time).end).collect();
        ends.push(intervals.finish());
        ends.iter().map(|end| (end.start_ns, end.end_ns)).collect()
    }

    #[test]
    fn intervals_end_at_multiples_and_empty_ones_are_covered() {
        let times = [12 * S, 19 * S, 20 * S, 57 * S, 58 * S];
        let expected = [(12 * S, 20 * S), (20 * S, 30 * S), (30 * S, 58 * S)];
        assert_eq!(ends(Some(10), &times), expected);
    }

    #[test]
    fn without_intervals_there_is_one_end() {
        assert_eq!(ends(None, &[5 * S, 500 * S, 100 * S]), [(5 * S, 500 * S)]);
        assert_eq!(ends(None, &[]), [(0, 0)]);
    }

    #[test]
    fn a_step_back_ends_the_interval_with_its_last_packet() {
        let times = [1_003 * S, 1_005 * S, 3 * S, 8 * S, 12 * S];
        assert_eq!(ends(Some(10), &times), [(1_003 * S, 1_005 * S), (3 * S, 10 * S), (10 * S, 12 * S)]);
    }

    #[test]
    fn jitter_over_an_end_ends_nothing_twice() {
        assert_eq!(ends(Some(10), &[9 * S, 11 * S, 9 * S, 12 * S]), [(9 * S, 10 * S), (10 * S, 12 * S)]);
    }

    #[test]
    fn an_end_that_the_clock_leaps_over_is_not_behind_where_it_goes_on() {
        const DAY: i64 = 86_400 * S;
        let end = |every_ns, before_ns, after_ns| {
            let mut intervals = PacketTime::new(Some(every_ns));
            intervals.packet(before_ns);
            let first_tick = intervals.tick();
            let end = intervals.packet(after_ns).end.expect("it is over");
            ((end.end_tick - first_tick, end.within_tick_ns), intervals.tick() - first_tick)
        };
        // A leap of sixty days counts as one of thirty.
        let day = (DAY / TICK_NS) as u64;
        let month = 30 * day;
        assert_eq!(end(60 * DAY, 60 * DAY + S, 120 * DAY + 4 * S), ((month, 0), month));
        assert_eq!(end(60 * DAY, 90 * DAY, 120 * DAY + S), ((month, 0), month));
        assert_eq!(end(60 * DAY, 100 * DAY, 150 * DAY), ((20 * day, 0), month));
        assert_eq!(end(60 * DAY, 119 * DAY, 120 * DAY + S), ((day, 0), day + 10));
    }

    #[test]
    fn no_clock_makes_more_ends_than_packets() {
        let times = [i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN, -1, 1];
        assert!(ends(Some(1), &times).len() <= times.len());
        assert_eq!(ends(None, &times).len(), 1);
        let mut intervals = PacketTime::new(Some(S));
        for time in times {
            while intervals.packet(time) != Marks::default() {}
        }
    }
}
