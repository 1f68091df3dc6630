//! The time of packets, cut at multiples of the interval: equal packets make equal intervals.
//!
//! An interval without packets has no list: the next list covers it. Intervals end by the main clock of the packets
//! ([`Clock`]); where it is set, the interval ends with its last packet, and another starts under a new time base. What
//! other clocks have stamped counts where it comes.
//!
//! A packet whose stamp follows no known clock waits, with those behind it, until these show what it means.

use crate::capture::Stamp;
use crate::engine::port::{Marks, Timekeeper};
use crate::error::Result;
use crate::queue::Marker;
use crate::signal::{Clock, JUDGED_COUNT_MAX, TICK_NS, TimeBase, TimeDoubt, Verdict};
use crate::state::{Decoder, Encoder};
use std::collections::VecDeque;

/// The time of packets, as of a capture: a port that goes by it waits where a queue is full, and equal packets make
/// equal lists.
pub struct PacketTime {
    every_ns: Option<i64>,
    /// The clock of the packets, and whether there was one.
    clock: Clock,
    has_begun: bool,
    start_ns: i64,
    /// The end of the present interval; `i64::MAX` without intervals.
    end_ns: i64,
    steps_back: u64,
    /// The highest time of all bases, for the one list of a capture without intervals.
    highest_ns: i64,
    /// The stamps of the packets that wait.
    deferred: VecDeque<Stamp>,
    /// What the packet that comes next turned out to be, if its stamp follows no known clock.
    verdict: Option<Verdict>,
    /// Packets before this time are in the present interval and the present tick: the end of one of them. The least
    /// number if a packet waits, the clocks are not certain or there was no packet.
    quiet_until_ns: i64,
    /// How far the time of the interval that the last packet has ended was in doubt before that packet.
    ended_doubt: TimeDoubt,
}

impl PacketTime {
    pub(crate) fn new(every_ns: Option<i64>) -> Self {
        PacketTime {
            every_ns,
            clock: Clock::new(Stamp::unnamed(0)),
            has_begun: false,
            start_ns: 0,
            end_ns: i64::MAX,
            steps_back: 0,
            highest_ns: i64::MIN,
            deferred: VecDeque::with_capacity(JUDGED_COUNT_MAX),
            verdict: None,
            quiet_until_ns: i64::MIN,
            ended_doubt: TimeDoubt::None,
        }
    }

    /// The time base of the last packet, if there was one.
    pub(crate) fn base(&self) -> Option<TimeBase> {
        self.begun().map(Clock::time_base)
    }

    /// The clock, if there was a packet.
    fn begun(&self) -> Option<&Clock> {
        self.has_begun.then_some(&self.clock)
    }

    /// Takes over the saved clock of another capture with the same interval.
    ///
    /// # Errors
    ///
    /// The bytes are no such clock.
    pub(crate) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let clock = decoder.option(Clock::saved)?;
        self.has_begun = clock.is_some();
        self.clock = clock.unwrap_or_else(|| Clock::new(Stamp::unnamed(0)));
        (self.start_ns, self.end_ns) = (decoder.i64()?, decoder.i64()?);
        self.steps_back = decoder.count()?;
        self.highest_ns = decoder.i64()?;
        self.set_quiet();
        Ok(())
    }

    /// Sets until when packets need no look at the clock.
    fn set_quiet(&mut self) {
        let is_quiet = self.has_begun && self.deferred.is_empty() && !self.clock.needs_each_stamp();
        self.quiet_until_ns = if is_quiet { self.end_ns.min(self.clock.tick_ends_ns()) } else { i64::MIN };
    }

    /// Moves on to the first packet, the first after an interval's end, or the first that follows no known clock.
    #[cold]
    fn turn(&mut self, stamp: Stamp) -> Marks {
        if !self.has_begun {
            (self.clock, self.has_begun) = (Clock::new(stamp), true);
            self.begin(stamp.time_ns, stamp.time_ns);
            return Marks { base: Some(self.clock.time_base()), ..Marks::default() };
        }
        let clock = &mut self.clock;
        let (before_ns, before_tick, before_base) = (clock.highest_ns(), clock.tick(), clock.time_base());
        let before_doubt = clock.doubt();
        self.highest_ns = self.highest_ns.max(before_ns);
        let verdict = self.verdict.take();
        let time_ns = clock.on_main(stamp).unwrap_or_else(|| {
            let verdict = verdict.or_else(|| clock.judge(&[stamp], true)).unwrap_or(Verdict::OtherClock);
            clock.apply(verdict, stamp)
        });
        clock.advance(time_ns);
        let base = (clock.time_base() != before_base).then(|| clock.time_base());
        let is_set_back = base.is_some() && time_ns < before_ns;
        self.steps_back += u64::from(is_set_back);
        // An end at the end of time is never reached, or it would be reached again and again.
        let is_reached = time_ns >= self.end_ns && self.end_ns < i64::MAX;
        let is_over = self.every_ns.is_some() && (base.is_some() || is_reached);
        let mut marks = Marks { base, ..Marks::default() };
        self.ended_doubt = if is_over { before_doubt } else { TimeDoubt::None };
        if is_over {
            // Where the clock was set back the interval ends with its last packet, otherwise where it was to end. No
            // time has passed where it was set.
            let end_ns = if is_set_back { before_ns } else { self.end_ns };
            let end_tick = if base.is_some() { before_tick } else { before_base.tick(end_ns) };
            marks.end = Some(self.marker(end_ns, end_tick, before_base, false));
            self.begin(if base.is_some() { time_ns } else { end_ns }, time_ns);
        } else {
            self.set_quiet();
        }
        marks
    }

    /// Begins an interval that covers everything since `start_ns` and ends behind `time_ns`.
    fn begin(&mut self, start_ns: i64, time_ns: i64) {
        self.start_ns = start_ns;
        if let Some(every_ns) = self.every_ns {
            self.end_ns = time_ns.div_euclid(every_ns).saturating_add(1).saturating_mul(every_ns);
        }
        self.set_quiet();
    }

    fn marker(&self, end_ns: i64, end_tick: u64, base: TimeBase, is_last: bool) -> Marker {
        let within_tick_ns = end_ns.saturating_sub(base.wall_ns(end_tick)).clamp(0, TICK_NS);
        Marker { start_ns: self.start_ns, end_ns, end_tick, within_tick_ns, is_last, ..Marker::default() }
    }

    /// The end of the packets: the last interval ends with the highest time seen.
    fn finish(&self) -> Marker {
        let Some(clock) = self.begun() else {
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
        time_ns < self.quiet_until_ns && self.clock.advance_within_tick(time_ns)
    }

    fn packet(&mut self, stamp: Stamp) -> Marks {
        if self.verdict.is_none()
            && self.has_begun
            && !self.clock.needs_each_stamp()
            && let Some(main_ns) = self.clock.on_main(stamp)
            && main_ns < self.end_ns
        {
            self.clock.advance(main_ns);
            if self.deferred.is_empty() {
                self.quiet_until_ns = self.end_ns.min(self.clock.tick_ends_ns());
            }
            return Marks::default();
        }
        self.turn(stamp)
    }

    fn defers(&mut self, stamp: Stamp) -> bool {
        let is_deferred = !self.deferred.is_empty() || self.begun().is_some_and(|clock| !clock.knows(stamp));
        if is_deferred {
            self.deferred.push_back(stamp);
            self.set_quiet();
        }
        is_deferred
    }

    fn is_ready(&mut self, are_all: bool) -> bool {
        let Some(first) = self.deferred.front() else { return false };
        if !self.clock.knows(*first) {
            self.verdict = self.clock.judge(self.deferred.make_contiguous(), are_all);
            if self.verdict.is_none() {
                return false;
            }
        }
        self.deferred.pop_front();
        self.set_quiet();
        true
    }

    /// By the main clock.
    fn is_over(&self, time_ns: i64) -> bool {
        time_ns >= self.end_ns
    }

    fn doubt(&self) -> TimeDoubt {
        self.begun().map_or(TimeDoubt::None, Clock::doubt).max(self.ended_doubt)
    }

    #[inline]
    fn tick(&self) -> u64 {
        self.clock.tick()
    }

    #[inline]
    fn elapsed_ns(&self) -> i64 {
        self.clock.elapsed_ns()
    }

    fn last_end(&self) -> Option<Marker> {
        Some(self.finish())
    }

    fn steps_back(&self) -> u64 {
        self.steps_back
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.begun(), |encoder, clock| clock.save(encoder));
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

    /// The marks before packets of these times, of which those that have to wait do.
    fn marks(intervals: &mut PacketTime, times: &[i64]) -> Vec<Marks> {
        let stamps = times.iter().map(|time| Stamp::unnamed(*time));
        let mut waiting = VecDeque::new();
        let mut marks = Vec::new();
        for stamp in stamps {
            if intervals.defers(stamp) {
                waiting.push_back(stamp);
                while intervals.is_ready(false) {
                    marks.push(intervals.packet(waiting.pop_front().expect("it is ready")));
                }
            } else {
                marks.push(intervals.packet(stamp));
            }
        }
        while intervals.is_ready(true) {
            marks.push(intervals.packet(waiting.pop_front().expect("it is ready")));
        }
        assert!(waiting.is_empty());
        marks
    }

    fn ends(every_s: Option<i64>, times: &[i64]) -> Vec<(i64, i64)> {
        let mut intervals = PacketTime::new(every_s.map(|every_s| every_s * S));
        let mut ends: Vec<_> = marks(&mut intervals, times).into_iter().filter_map(|marks| marks.end).collect();
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
        assert_eq!(ends(None, &[5 * S, 500 * S, 550 * S, 600 * S, 100 * S]), [(5 * S, 600 * S)]);
        assert_eq!(ends(None, &[5 * S, 500 * S]), [(5 * S, 5 * S)], "whether the time has passed is unknown");
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
    fn a_clock_that_is_set_ahead_ends_the_interval_where_it_was_to_end() {
        let set = 1_700_000_000 * S;
        let times = [3 * S, 4 * S, set, set + 2 * S, set + 3 * S, set + 12 * S];
        let expected = [(3 * S, 10 * S), (set, set + 10 * S), (set + 10 * S, set + 12 * S)];
        assert_eq!(ends(Some(10), &times), expected);
    }

    #[test]
    fn the_interval_ends_behind_a_gap_where_it_was_to_end() {
        let times: Vec<i64> = (0..100).chain(3_600..3_700).map(|time| time * S / 10 + 11 * S).collect();
        let mut intervals = PacketTime::new(Some(10 * S));
        let ends: Vec<_> = marks(&mut intervals, &times).into_iter().filter_map(|marks| marks.end).collect();
        let ticks: Vec<u64> = ends.iter().map(|end| end.end_tick - Clock::FIRST_TICK).collect();
        assert_eq!(ends.iter().map(|end| end.end_ns / S).collect::<Vec<_>>(), [20, 30, 380]);
        assert_eq!(ticks, [90, 190, 3_690]);
        assert_eq!(intervals.doubt(), TimeDoubt::None);
    }

    #[test]
    fn what_another_clock_has_stamped_counts_where_it_comes() {
        let times: Vec<i64> = (0..60).flat_map(|time| [time * S, (time - 1_000) * S]).collect();
        let expected: Vec<_> = (0..5).map(|at| (at * 10 * S, (at + 1) * 10 * S)).chain([(50 * S, 59 * S)]).collect();
        assert_eq!(ends(Some(10), &times), expected);
    }

    #[test]
    fn no_clock_makes_more_ends_than_packets() {
        let times = [i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN, -1, 1];
        assert!(ends(Some(1), &times).len() <= times.len());
        assert_eq!(ends(None, &times).len(), 1);
        let mut intervals = PacketTime::new(Some(S));
        for time in times {
            while marks(&mut intervals, &[time]) != [Marks::default()] {}
        }
    }
}
