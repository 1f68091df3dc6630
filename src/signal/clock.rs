//! The clock that timeouts and ages run on, and the wall time of its ticks.
//!
//! A capture's time stamps cannot be trusted: they may stand still, jitter, step back, leap decades, or come from two
//! clocks in turn. Time here is one line, counted in ticks. Stamps that follow each other closely are of one clock, and
//! each clock has an offset that maps its stamps onto the line. Time moves only when a stamp maps to a later time than
//! all before it. A clock that is new begins where the line is: going there, and back, is no time at all, and two
//! clocks in turn move time once.
//!
//! A stamp that follows no known clock is one of four things, which the stamps behind it distinguish
//! ([`Clock::judge`]): a wrong stamp or another clock, when known clocks go on; time that has passed without packets,
//! when the stamps behind it go on from there and it is at most a month ahead; otherwise a clock that was set, or
//! another capture that begins.
//!
//! One clock is the main one: wall times are converted by it, and intervals end by it. When it is set, a new time base
//! begins: ticks continue, and the base says which wall time they mean. A connection may have started in an earlier
//! base, so the bases are kept ([`TimeBases`]), and each tick is converted with the base that it lies in.

use crate::error::Result;
use crate::signal::handshake::SYN_TIMEOUT_MAX_TICKS;
use crate::state::{Decoder, Encoder};

/// The length of a tick, in nanoseconds: 100 ms. Start times and timeouts are kept no finer.
pub const TICK_NS: i64 = 100_000_000;

/// Bits of a start's tick that the filter keeps: they wrap after 29 hours, and code that reads them knows the time to
/// within that.
pub const TICK_BITS: u32 = 20;

/// How far a stamp may be from where its clock is expected, in nanoseconds: no network delays packets for a minute.
const FOLLOWS_MAX_NS: i64 = 60_000_000_000;

/// The longest time that passes between two packets, in nanoseconds. A clock that leaps further ahead was set: longer
/// than every timeout, and short enough for the 32 bits of a tick that half-open records keep.
pub const CLOCK_LEAP_MAX_NS: i64 = 30 * 86_400_000_000_000;

/// How many packets have to follow a leap, with none of a known clock among them, until it is believed: more than one
/// side of a connection sends without an answer, so that of two clocks both come up.
pub const JUDGED_COUNT_MAX: usize = 64;

/// The fewest packets that show that a clock was set, or, where they cover [`FOLLOWS_MAX_NS`], that time has passed: a
/// wrong stamp comes alone.
const JUDGED_COUNT_MIN: usize = 3;

const _: () = assert!(JUDGED_COUNT_MIN < JUDGED_COUNT_MAX);

/// How many clocks beside the main one are remembered.
const OTHER_CLOCKS_MAX: usize = 7;

/// The packets from which a clock counts as more than a few wrong stamps: it is remembered while it is silent, and time
/// may pass on it.
const OTHER_PACKETS_MIN: u32 = 64;

/// How long a clock of fewer packets is remembered without another one, in nanoseconds of the line.
const OTHER_KEPT_NS: i64 = 600_000_000_000;

/// The largest offset of a time base from 1970, in nanoseconds: leaps add up, and no run comes near.
const STATE_OFFSET_MAX_NS: i128 = 1 << 96;

const _: () = assert!(SYN_TIMEOUT_MAX_TICKS < (CLOCK_LEAP_MAX_NS / TICK_NS) as u64);

/// The wall time that a range of ticks stands for: in ns, `tick * TICK_NS + offset_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBase {
    /// The first tick of the range.
    pub first_tick: u64,
    /// Wall time of tick zero, a multiple of a tick; 128 bits because leaps add up.
    pub offset_ns: i128,
}

impl TimeBase {
    /// The wall time, in ns since 1970, at which a tick began, clamped to 64 bits.
    #[must_use]
    pub fn wall_ns(self, tick: u64) -> i64 {
        // A base may come from a file, with values that no clock has.
        let wall = (i128::from(tick) * i128::from(TICK_NS)).saturating_add(self.offset_ns);
        wall.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The tick at this wall time.
    #[must_use]
    pub fn tick(self, wall_ns: i64) -> u64 {
        let ticks = i128::from(wall_ns).saturating_sub(self.offset_ns).div_euclid(i128::from(TICK_NS));
        u64::try_from(ticks.max(0)).unwrap_or(u64::MAX)
    }

    /// Writes the base into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.first_tick);
        encoder.bytes(&self.offset_ns.to_le_bytes());
    }

    /// Reads a base from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a time base.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let first_tick = decoder.count()?;
        let offset_ns = decoder.bytes()?.try_into().map_or(i128::MAX, i128::from_le_bytes);
        decoder.expect(offset_ns.unsigned_abs() <= STATE_OFFSET_MAX_NS as u128, "a time out of range")?;
        Ok(TimeBase { first_tick, offset_ns })
    }
}

/// A clock beside the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OtherClock {
    /// What it shows more than the main clock at the same moment, in ns.
    ahead_ns: i128,
    /// Its last stamp.
    last_ns: i64,
    /// How long the line had run at that stamp, in ns.
    used_at_ns: i64,
    /// How many packets it has stamped; stops counting at [`OTHER_PACKETS_MIN`].
    packets: u32,
}

impl OtherClock {
    /// The wall time of the main clock at a stamp of this one, in ns, clamped to 64 bits.
    fn on_main(&self, stamp_ns: i64) -> i64 {
        clamped(i128::from(stamp_ns) - self.ahead_ns)
    }

    fn is_established(&self) -> bool {
        self.packets >= OTHER_PACKETS_MIN
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.bytes(&self.ahead_ns.to_le_bytes());
        encoder.i64(self.last_ns);
        encoder.i64(self.used_at_ns);
        encoder.u32(self.packets);
    }

    fn saved(decoder: &mut Decoder) -> Result<Self> {
        let ahead_ns = decoder.bytes()?.try_into().map_or(i128::MAX, i128::from_le_bytes);
        decoder.expect(ahead_ns.unsigned_abs() <= STATE_OFFSET_MAX_NS as u128, "a time out of range")?;
        let (last_ns, used_at_ns) = (decoder.i64()?, decoder.i64()?);
        Ok(OtherClock { ahead_ns, last_ns, used_at_ns, packets: decoder.u32()? })
    }
}

fn clamped(wall_ns: i128) -> i64 {
    wall_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The clock that a stamp follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    Main,
    /// The other clock at this index.
    Other(usize),
}

/// What a stamp that follows no known clock turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A wrong stamp, or the first of another clock: no time has passed.
    OtherClock,
    /// As [`Verdict::OtherClock`], but the packets ended before it was certain that no time has passed.
    Undecided,
    /// The time without packets has passed: the main clock shows this wall time now, in ns.
    Passed(i64),
    /// The main clock was set: no time has passed, and a new time base begins.
    Set,
}

/// How far the time of packets is in doubt, from little to much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeDoubt {
    /// Not at all.
    #[default]
    None,
    /// Whether the time before the last packets has passed is unknown: it counts as none, and nothing times out in it.
    Undecided,
    /// Time that was taken to have passed may have been none: what was taken off in it may still be open.
    Passed,
}

/// Stamps that follow each other behind a leap.
struct Run {
    /// How long after the end of the line it began, in ns, if time may have passed.
    leap_ns: Option<i64>,
    /// The first and the highest stamp or, if time may have passed, when they were, from the end of the line.
    first_ns: i64,
    highest_ns: i64,
}

impl Run {
    fn new(stamp_ns: i64, leap_ns: Option<i64>) -> Self {
        let first_ns = leap_ns.unwrap_or(stamp_ns);
        Run { leap_ns, first_ns, highest_ns: first_ns }
    }

    /// Adds a stamp, unless it is behind the others. A stamp of another known clock is of the same time.
    fn takes(&mut self, clock: &Clock, stamp_ns: i64) -> bool {
        let time_ns = if self.leap_ns.is_some() { clock.since(stamp_ns, self.highest_ns) } else { stamp_ns };
        let is_taken = time_ns.saturating_sub(self.highest_ns) >= -FOLLOWS_MAX_NS;
        if is_taken {
            self.highest_ns = self.highest_ns.max(time_ns);
        }
        is_taken
    }

    fn is_long(&self) -> bool {
        self.highest_ns.saturating_sub(self.first_ns) >= FOLLOWS_MAX_NS
    }
}

/// Turns wall times into ticks.
#[derive(Clone, Debug)]
pub struct Clock {
    base: TimeBase,
    /// The end of the line so far, as a wall time of the main clock.
    highest_ns: i64,
    /// The wall time (wrapping) at which the clock would have started if the main clock had never been set. Only that
    /// changes it; the time that the clock has run is measured from it.
    began_ns: i64,
    tick: u64,
    /// The wall time at which the present tick ends: most packets come before it, and need no division.
    tick_ends_ns: i64,
    /// The last stamp of the main clock before the present run of stamps of others; `None` if it made the last.
    main_left_ns: Option<i64>,
    /// Clocks beside the main one, the one used last first.
    others: Vec<OtherClock>,
    /// Where the main clock was before the last time that passed without packets.
    passed_from_ns: Option<i64>,
    doubt: TimeDoubt,
}

/// The longest time that a clock runs, in ns: a tick can still be added without overflow.
const ELAPSED_MAX_NS: i64 = i64::MAX - TICK_NS;

impl Clock {
    /// The tick at which every clock starts, high enough that the time one timeout before the first packet is a tick
    /// too.
    pub const FIRST_TICK: u64 = 1 << 20;

    /// A clock that starts with a packet of this wall time.
    #[must_use]
    pub fn new(wall_ns: i64) -> Self {
        Clock::resumed(wall_ns, Clock::FIRST_TICK)
    }

    /// A clock that continues in the tick `tick` at this wall time.
    #[must_use]
    pub fn resumed(wall_ns: i64, tick: u64) -> Self {
        let base = Clock::base(wall_ns, tick);
        Clock {
            base,
            highest_ns: wall_ns,
            began_ns: wall_ns,
            tick,
            tick_ends_ns: base.wall_ns(tick + 1),
            main_left_ns: None,
            others: Vec::with_capacity(OTHER_CLOCKS_MAX),
            passed_from_ns: None,
            doubt: TimeDoubt::None,
        }
    }

    /// Writes the clock into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        self.base.save(encoder);
        encoder.i64(self.highest_ns);
        encoder.i64(self.elapsed_ns());
        encoder.u64(self.tick);
        encoder.option(self.main_left_ns, Encoder::i64);
        encoder.length(self.others.len());
        self.others.iter().for_each(|other| other.save(encoder));
        encoder.option(self.passed_from_ns, Encoder::i64);
        encoder.bool(self.doubt == TimeDoubt::Passed);
    }

    /// Reads a clock from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a clock.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (base, highest_ns, elapsed_ns) = (TimeBase::saved(decoder)?, decoder.i64()?, decoder.i64()?);
        let tick = decoder.count()?;
        decoder.expect(elapsed_ns >= 0, "a clock that ran backwards")?;
        let mut clock = Clock { base, highest_ns, tick, ..Clock::resumed(highest_ns, tick) };
        clock.began_ns = highest_ns.wrapping_sub(elapsed_ns);
        clock.tick_ends_ns = base.wall_ns(tick + 1);
        clock.main_left_ns = decoder.option(Decoder::i64)?;
        for _ in 0..decoder.length(size_of::<OtherClock>() / 2, OTHER_CLOCKS_MAX)? {
            clock.others.push(OtherClock::saved(decoder)?);
        }
        clock.passed_from_ns = decoder.option(Decoder::i64)?;
        clock.doubt = if decoder.bool()? { TimeDoubt::Passed } else { TimeDoubt::None };
        Ok(clock)
    }

    /// The base in which this wall time lies in the tick `tick`.
    fn base(wall_ns: i64, tick: u64) -> TimeBase {
        let began = i128::from(wall_ns).div_euclid(i128::from(TICK_NS)) * i128::from(TICK_NS);
        TimeBase { first_tick: tick, offset_ns: began - i128::from(tick) * i128::from(TICK_NS) }
    }

    /// The clock that a stamp follows: it is near to where that clock has to be now, or to its last stamp.
    #[inline]
    fn followed(&self, stamp_ns: i64) -> Option<Follows> {
        // A difference that saturates is out of bounds as well.
        let is_near =
            |time_ns: i64, to_ns: i64| (-FOLLOWS_MAX_NS..=FOLLOWS_MAX_NS).contains(&time_ns.saturating_sub(to_ns));
        if is_near(stamp_ns, self.highest_ns) || self.main_left_ns.is_some_and(|left_ns| is_near(stamp_ns, left_ns)) {
            return Some(Follows::Main);
        }
        let follows =
            |other: &OtherClock| is_near(other.on_main(stamp_ns), self.highest_ns) || is_near(stamp_ns, other.last_ns);
        self.others.iter().position(follows).map(Follows::Other)
    }

    /// Whether a stamp follows a known clock. Of another stamp [`Self::judge`] says what it is.
    #[must_use]
    #[inline]
    pub fn knows(&self, stamp_ns: i64) -> bool {
        self.followed(stamp_ns).is_some()
    }

    /// The wall time of the main clock at a stamp of a known clock, in ns; `None` if it follows none. Pass it to
    /// [`Self::advance`]: it may be earlier than the times before.
    #[inline]
    pub fn on_main(&mut self, stamp_ns: i64) -> Option<i64> {
        match self.followed(stamp_ns)? {
            Follows::Main => {
                self.main_left_ns = None;
                Some(stamp_ns)
            }
            Follows::Other(index) => {
                self.main_left_ns.get_or_insert(self.highest_ns);
                let mut other = self.others.remove(index);
                let wall_ns = other.on_main(stamp_ns);
                other.last_ns = stamp_ns;
                other.used_at_ns = self.elapsed_ns();
                other.packets = (other.packets + 1).min(OTHER_PACKETS_MIN);
                self.others.insert(0, other);
                self.suspect(wall_ns);
                Some(wall_ns)
            }
        }
    }

    /// Finds that the time that was taken to have passed without packets may have been none: a clock goes on where it
    /// was before.
    fn suspect(&mut self, wall_ns: i64) {
        let is_before = |from_ns: i64| wall_ns.saturating_sub(from_ns) <= FOLLOWS_MAX_NS;
        if self.passed_from_ns.is_some_and(is_before) {
            self.doubt = TimeDoubt::Passed;
        }
    }

    /// What the first of these stamps is, in ns, which follows no known clock; the others came behind it, at most
    /// [`JUDGED_COUNT_MAX`] together. `None` if more have to come, unless there are no more.
    ///
    /// Complexity: a few comparisons for each stamp and known clock.
    #[must_use]
    pub fn judge(&self, stamps_ns: impl IntoIterator<Item = i64>, are_all: bool) -> Option<Verdict> {
        let mut stamps_ns = stamps_ns.into_iter();
        let first_ns = stamps_ns.next()?;
        let passed = self.passed(first_ns);
        let follows = passed.map_or(Verdict::Set, |(wall_ns, _)| Verdict::Passed(wall_ns));
        let (mut count, mut run) = (1, Run::new(first_ns, passed.map(|(_, leap_ns)| leap_ns)));
        for stamp_ns in stamps_ns {
            if self.knows(stamp_ns) {
                return Some(Verdict::OtherClock);
            }
            if !run.takes(self, stamp_ns) {
                let is_set = passed.is_none() && count >= JUDGED_COUNT_MIN;
                return Some(if is_set { Verdict::Set } else { Verdict::OtherClock });
            }
            count += 1;
            if count >= JUDGED_COUNT_MAX || run.is_long() && count >= JUDGED_COUNT_MIN {
                return Some(follows);
            }
        }
        let is_set = passed.is_none() && count >= JUDGED_COUNT_MIN;
        let undecided = if passed.is_some() { Verdict::Undecided } else { Verdict::OtherClock };
        are_all.then_some(if is_set { Verdict::Set } else { undecided })
    }

    /// The wall time of the main clock at a stamp, and how far it has leaped, in ns, if time may have passed: on the
    /// known clock that it is least ahead of.
    fn passed(&self, stamp_ns: i64) -> Option<(i64, i64)> {
        let established = self.others.iter().filter(|other| other.is_established());
        let walls_ns = established.map(|other| other.on_main(stamp_ns)).chain([stamp_ns]);
        let leaps = walls_ns.map(|wall_ns| (wall_ns, wall_ns.saturating_sub(self.highest_ns)));
        leaps.filter(|(_, leap_ns)| (1..=CLOCK_LEAP_MAX_NS).contains(leap_ns)).min_by_key(|(_, leap_ns)| *leap_ns)
    }

    /// How long after the end of the line a stamp is, in ns, by that of the known clocks by which it is nearest to
    /// `near_ns`.
    fn since(&self, stamp_ns: i64, near_ns: i64) -> i64 {
        let established = self.others.iter().filter(|other| other.is_established());
        let walls_ns = established.map(|other| other.on_main(stamp_ns));
        let since_ns = |wall_ns: i64| wall_ns.saturating_sub(self.highest_ns);
        let nearer = |nearest_ns: i64, since_ns: i64| {
            if since_ns.abs_diff(near_ns) < nearest_ns.abs_diff(near_ns) { since_ns } else { nearest_ns }
        };
        walls_ns.map(since_ns).fold(since_ns(stamp_ns), nearer)
    }

    /// Applies what was found of a stamp. Returns the wall time of the main clock at it, in ns, as [`Self::on_main`].
    pub fn apply(&mut self, verdict: Verdict, stamp_ns: i64) -> i64 {
        self.suspect(stamp_ns);
        match verdict {
            Verdict::OtherClock | Verdict::Undecided => {
                if verdict == Verdict::Undecided {
                    self.doubt = self.doubt.max(TimeDoubt::Undecided);
                }
                self.remember(OtherClock {
                    ahead_ns: i128::from(stamp_ns) - i128::from(self.highest_ns),
                    last_ns: stamp_ns,
                    used_at_ns: self.elapsed_ns(),
                    packets: 1,
                });
                self.main_left_ns.get_or_insert(self.highest_ns);
                self.highest_ns
            }
            Verdict::Passed(wall_ns) => {
                self.passed_from_ns = Some(self.highest_ns);
                self.main_left_ns = None;
                wall_ns
            }
            Verdict::Set => {
                self.set(stamp_ns);
                stamp_ns
            }
        }
    }

    /// Remembers another clock, if need be in place of the one that was silent longest.
    fn remember(&mut self, other: OtherClock) {
        let elapsed_ns = self.elapsed_ns();
        self.others.retain(|other| other.is_established() || elapsed_ns - other.used_at_ns <= OTHER_KEPT_NS);
        self.others.truncate(OTHER_CLOCKS_MAX - 1);
        self.others.insert(0, other);
    }

    /// Makes a clock that shows this wall time now the main one. That takes one tick, so that no two bases share a
    /// tick.
    fn set(&mut self, wall_ns: i64) {
        let ahead_ns = i128::from(self.highest_ns) - i128::from(wall_ns);
        self.others.iter_mut().for_each(|other| other.ahead_ns += ahead_ns);
        let last_ns = self.main_left_ns.take().unwrap_or(self.highest_ns);
        let used_at_ns = self.elapsed_ns();
        self.tick += 1;
        self.run(TICK_NS, wall_ns);
        self.remember(OtherClock { ahead_ns, last_ns, used_at_ns, packets: OTHER_PACKETS_MIN });
        self.passed_from_ns = None;
        self.base = Clock::base(wall_ns, self.tick);
        self.tick_ends_ns = self.base.wall_ns(self.tick + 1);
    }

    /// Moves on to this wall time of the main clock, if it is not there yet.
    #[inline]
    pub fn advance(&mut self, wall_ns: i64) {
        if wall_ns > self.highest_ns {
            self.run(wall_ns.saturating_sub(self.highest_ns), wall_ns);
            if wall_ns >= self.tick_ends_ns {
                self.tick = self.base.tick(wall_ns);
                self.tick_ends_ns = self.base.wall_ns(self.tick + 1);
            }
        }
    }

    /// Moves on to a packet with this stamp of the main clock if it lies in the present tick and is not earlier than
    /// the packet before, as is so for nearly all. Otherwise it returns false and changes nothing.
    #[inline]
    pub fn advance_within_tick(&mut self, stamp_ns: i64) -> bool {
        let is_within_tick = self.highest_ns <= stamp_ns && stamp_ns < self.tick_ends_ns;
        if is_within_tick {
            self.highest_ns = stamp_ns;
        }
        is_within_tick
    }

    /// Adds `forward_ns` to the time that the clock has run; the latest packet is of `wall_ns`.
    fn run(&mut self, forward_ns: i64, wall_ns: i64) {
        let elapsed_ns = self.elapsed_ns().saturating_add(forward_ns).min(ELAPSED_MAX_NS);
        self.highest_ns = wall_ns;
        self.began_ns = wall_ns.wrapping_sub(elapsed_ns);
    }

    /// The present tick.
    #[must_use]
    #[inline]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// How long the clock has run, in ns: the time that ticks count, at a finer resolution. It never decreases.
    #[must_use]
    #[inline]
    pub fn elapsed_ns(&self) -> i64 {
        self.highest_ns.wrapping_sub(self.began_ns)
    }

    /// The latest wall time in the present base, in ns since 1970.
    #[must_use]
    #[inline]
    pub fn highest_ns(&self) -> i64 {
        self.highest_ns
    }

    /// The time base of the present tick.
    #[must_use]
    #[inline]
    pub fn time_base(&self) -> TimeBase {
        self.base
    }

    /// How far the time up to here is in doubt.
    #[must_use]
    pub fn doubt(&self) -> TimeDoubt {
        self.doubt
    }
}

/// Time bases that are remembered. Each is a step of the capture's clock; a clock that steps more often than this
/// within the life of a connection is no measure of time anyway.
pub const TIME_BASES_MAX: usize = 64;

/// The latest time bases, oldest first. When there are too many the oldest is dropped, and ticks in it are converted
/// with the next one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TimeBases {
    bases: Vec<TimeBase>,
}

impl TimeBases {
    /// An empty collection.
    #[must_use]
    pub fn new() -> Self {
        TimeBases { bases: Vec::with_capacity(TIME_BASES_MAX) }
    }

    /// Replaces all bases with these, oldest first.
    pub fn replace(&mut self, bases: &[TimeBase]) {
        self.bases.clear();
        self.bases.extend_from_slice(bases);
    }

    /// Adds a base. Every partition reports each, so most are known already.
    pub fn learn(&mut self, base: TimeBase) {
        let at = self.bases.partition_point(|known| known.first_tick < base.first_tick);
        if self.bases.get(at).is_some_and(|known| known.first_tick == base.first_tick) {
            return;
        }
        if self.bases.len() == TIME_BASES_MAX {
            if at == 0 {
                return;
            }
            self.bases.remove(0);
            self.bases.insert(at - 1, base);
        } else {
            self.bases.insert(at, base);
        }
    }

    /// All known bases, oldest first.
    pub fn all(&self) -> &[TimeBase] {
        &self.bases
    }

    /// Writes the bases into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.bases.len());
        self.bases.iter().for_each(|base| base.save(encoder));
    }

    /// Reads bases from a saved state.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let mut bases = TimeBases::new();
        for _ in 0..decoder.length(2 * size_of::<u64>(), TIME_BASES_MAX)? {
            bases.learn(TimeBase::saved(decoder)?);
        }
        Ok(bases)
    }

    /// The wall time, in ns since 1970, at which this tick began; zero if no base is known.
    #[must_use]
    pub fn wall_ns(&self, tick: u64) -> i64 {
        let after = self.bases.partition_point(|base| base.first_tick <= tick);
        self.bases.get(after.saturating_sub(1)).map_or(0, |base| base.wall_ns(tick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::clock::TICK_NS;
    use proptest::prelude::*;

    const SECOND_NS: i64 = 1_000_000_000;

    /// What a run of the clock over these stamps, in seconds, shows at each of them, in order: how long it has run, in
    /// seconds.
    fn run(clock: &mut Clock, stamps_s: &[i64]) -> Vec<i64> {
        let stamps_ns: Vec<i64> = stamps_s.iter().map(|stamp_s| stamp_s.saturating_mul(SECOND_NS)).collect();
        follow(clock, &stamps_ns).into_iter().map(|elapsed_ns| elapsed_ns / SECOND_NS).collect()
    }

    fn follow(clock: &mut Clock, stamps_ns: &[i64]) -> Vec<i64> {
        let mut elapsed_ns = Vec::new();
        for (at, stamp_ns) in stamps_ns.iter().enumerate() {
            let wall_ns = clock.on_main(*stamp_ns).unwrap_or_else(|| {
                let behind = stamps_ns[at..].iter().copied().take(JUDGED_COUNT_MAX);
                let verdict = clock.judge(behind, true).expect("there are no more stamps");
                clock.apply(verdict, *stamp_ns)
            });
            clock.advance(wall_ns);
            elapsed_ns.push(clock.elapsed_ns());
        }
        elapsed_ns
    }

    #[test]
    fn ticks_follow_the_wall_clock() {
        let mut clock = Clock::new(1_000 * SECOND_NS + 250_000_000);
        let first = clock.tick();
        clock.advance(1_000 * SECOND_NS + 299_999_999);
        assert_eq!(clock.tick(), first);
        clock.advance(1_000 * SECOND_NS + 300_000_000);
        assert_eq!(clock.tick(), first + 1);
        assert_eq!(clock.time_base().wall_ns(first), 1_000 * SECOND_NS + 200_000_000);
    }

    #[test]
    fn jitter_does_not_make_time_run_faster() {
        let mut clock = Clock::new(0);
        let first = clock.tick();
        run(&mut clock, &[10, 0].repeat(10_000));
        assert_eq!(clock.tick() - first, 100);
    }

    #[test]
    fn a_clock_that_is_set_back_starts_a_new_base_and_time_goes_on() {
        let mut clock = Clock::new(1_000_000 * SECOND_NS);
        let before = clock.tick();
        assert_eq!(run(&mut clock, &[100, 101, 103]), [0, 1, 3]);
        assert_eq!(clock.tick(), before + 31);
        assert_eq!(clock.time_base().wall_ns(clock.tick()), 103 * SECOND_NS);
        assert_eq!(clock.doubt(), TimeDoubt::None);
    }

    #[test]
    fn two_clocks_in_turn_move_time_once() {
        for ahead_s in [61, -61, 500, -500, 86_400, -40 * 86_400, 60 * 86_400] {
            let stamps: Vec<i64> = (0..1_000).flat_map(|at| [at, at, at + ahead_s]).collect();
            let mut clock = Clock::new(0);
            assert_eq!(run(&mut clock, &stamps)[2_999], 999, "{ahead_s}");
            assert_eq!(clock.doubt(), TimeDoubt::None);
        }
    }

    #[test]
    fn a_wrong_stamp_is_no_time() {
        for leap_s in [-1_000_000_000, -3_000, -61, 61, 3_600, 2_000_000, 1_000_000_000] {
            let mut stamps: Vec<i64> = (0..400).collect();
            stamps[200] += leap_s;
            let mut clock = Clock::new(0);
            assert_eq!(run(&mut clock, &stamps)[399], 399, "{leap_s}");
            assert_eq!(clock.doubt(), TimeDoubt::None);
        }
    }

    #[test]
    fn time_without_packets_passes() {
        for gap_s in [61, 21_600, 29 * 86_400] {
            let stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + 99 + gap_s)).collect();
            let mut clock = Clock::new(0);
            assert_eq!(run(&mut clock, &stamps)[199], 198 + gap_s, "{gap_s}");
        }
        let sparse: Vec<i64> = (0..50).map(|at| at * 300).collect();
        let elapsed = run(&mut Clock::new(0), &sparse);
        assert_eq!(elapsed[..48], sparse[..48]);
    }

    #[test]
    fn a_leap_of_more_than_a_month_is_a_clock_that_was_set() {
        let stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + 1_700_000_000)).collect();
        let mut clock = Clock::new(0);
        assert_eq!(run(&mut clock, &stamps)[199], 198);
        assert_eq!(clock.time_base().wall_ns(clock.tick()), 1_700_000_099 * SECOND_NS);
    }

    #[test]
    fn what_nothing_follows_is_undecided_and_no_time() {
        let mut clock = Clock::new(0);
        assert_eq!(run(&mut clock, &[0, 1, 2, 3_602])[3], 2);
        assert_eq!(clock.doubt(), TimeDoubt::Undecided);
    }

    #[test]
    fn a_clock_that_comes_back_after_a_gap_makes_time_uncertain() {
        let stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + 3_699)).chain(100..110).collect();
        let mut clock = Clock::new(0);
        assert_eq!(run(&mut clock, &stamps)[209], 3_807, "another clock begins where the line is");
        assert_eq!(clock.doubt(), TimeDoubt::Passed);
    }

    #[test]
    fn a_gap_of_two_clocks_passes_once() {
        let taken = |from: i64| (from..from + 200).flat_map(|at| [at, at - 300]);
        let mut clock = Clock::new(0);
        let elapsed = run(&mut clock, &taken(0).chain(taken(7_200)).collect::<Vec<_>>());
        assert_eq!(elapsed[799], 7_399);
    }

    proptest! {
        #[test]
        fn no_clock_breaks_it(stamps in prop::collection::vec(any::<i64>(), 1..200)) {
            let mut clock = Clock::new(stamps[0]);
            let mut before = (clock.tick(), 0);
            for elapsed_ns in follow(&mut clock, &stamps) {
                prop_assert!((0..=2 * CLOCK_LEAP_MAX_NS).contains(&(elapsed_ns - before.1)));
                before.1 = elapsed_ns;
            }
            prop_assert!(clock.tick() >= before.0);
        }

        /// Two clocks of any distance in turn, one wrong stamp, and a gap between what the first has shown and what it
        /// shows next: time is that of the first.
        #[test]
        fn time_is_what_one_right_clock_shows(
            ahead_s in prop_oneof![Just(0), -5_000_000i64..-200, 200i64..5_000_000],
            wrong_at in 100usize..200,
            wrong_s in prop_oneof![-1_000_000_000i64..-200, 200i64..1_000_000_000],
            gap_s in prop_oneof![Just(0i64), 200i64..2_000_000],
        ) {
            // Neither may look like the other, or like the wrong stamp.
            prop_assume!((wrong_s - ahead_s).abs() > 200 && (gap_s - wrong_s).abs() > 1_000);
            prop_assume!((gap_s - ahead_s).abs() > 1_000 && (gap_s + ahead_s).abs() > 1_000);
            prop_assume!((gap_s + ahead_s - wrong_s).abs() > 1_000);
            let right_s = |at: i64| if at < 300 { at } else { at + gap_s };
            let mut stamps: Vec<i64> = (0..600).flat_map(|at| [right_s(at), right_s(at) + ahead_s]).collect();
            stamps[2 * wrong_at] += wrong_s;
            let mut clock = Clock::new(0);
            let elapsed = run(&mut clock, &stamps);
            // A leap of two clocks is that of either.
            let is_exact = gap_s == 0 || ahead_s == 0;
            let least_s = if is_exact { right_s(599) } else { right_s(599) - ahead_s.abs().min(gap_s) };
            prop_assert!((least_s..=right_s(599)).contains(&elapsed[1_199]), "{} of {}", elapsed[1_199], right_s(599));
        }
    }

    fn base(first_tick: u64) -> TimeBase {
        TimeBase { first_tick, offset_ns: i128::from(first_tick) * 1_000_000_000 }
    }

    #[test]
    fn a_tick_is_converted_in_its_own_base() {
        let mut bases = TimeBases::new();
        for first in [100, 50, 100, 200] {
            bases.learn(base(first));
        }
        assert_eq!(bases.wall_ns(60), 60 * TICK_NS + 50_000_000_000);
        assert_eq!(bases.wall_ns(100), 100 * TICK_NS + 100_000_000_000);
        assert_eq!(bases.wall_ns(250), 250 * TICK_NS + 200_000_000_000);
        assert_eq!(bases.wall_ns(10), 10 * TICK_NS + 50_000_000_000);
    }

    #[test]
    fn there_are_never_too_many() {
        let mut bases = TimeBases::new();
        for first in 0..3 * TIME_BASES_MAX as u64 {
            bases.learn(base(first));
        }
        assert_eq!(bases.bases.len(), TIME_BASES_MAX);
        let last = 3 * TIME_BASES_MAX as u64 - 1;
        assert_eq!(bases.wall_ns(last), base(last).wall_ns(last));
    }
}
