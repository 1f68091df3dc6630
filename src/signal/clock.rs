//! The clock that timeouts and ages run on, and the wall time of its ticks.
//!
//! A capture's time stamps cannot be trusted: they may stand still, jitter, step back, leap decades, or come from
//! several clocks in turn. Time here is one line, counted in ticks. Stamps that follow each other closely are of one
//! clock, and each clock has an offset that maps its stamps onto the line. Time moves only when a stamp maps to a later
//! time than all before it. A clock that is new begins where the line is: going there, and back, is no time at all, and
//! two clocks in turn move time once.
//!
//! A source that names its clock ([`ClockName`]), as an interface of a capture does, has clocks of its own: its stamps
//! follow no other, however near they are. Sources whose first stamps are near to the main clock share it with those
//! that do as well, until they leave it.
//!
//! A stamp that follows no clock of its source is one of four things, which the stamps behind it distinguish
//! ([`Clock::judge`]): a wrong stamp or another clock, when known clocks go on; time that has passed without packets,
//! when the stamps behind it go on from there and it is at most a month ahead; otherwise a clock that was set, or
//! another capture that begins. Where a source is new and alone that far ahead, it is not known which: no time passes,
//! and time is in doubt until another clock goes on.
//!
//! One clock is the main one: wall times are converted by it, and intervals end by it. When it is set, a new time base
//! begins: ticks continue, and the base says which wall time they mean. A connection may have started in an earlier
//! base, so the bases are kept ([`TimeBases`]), and each tick is converted with the base that it lies in.

use crate::capture::{CLOCK_NAMES_MAX, ClockName, Stamp};
use crate::error::Result;
use crate::signal::handshake::SYN_TIMEOUT_MAX_TICKS;
use crate::state::{Decoder, Encoder};

/// The length of a tick, in nanoseconds: 100 ms. Start times and timeouts are kept no finer.
pub const TICK_NS: i64 = 100_000_000;

/// Bits of a start's tick that the filter keeps: they wrap after 29 hours, and code that reads them knows the time to
/// within that.
pub const TICK_BITS: u32 = 20;

/// How far a stamp may be from where its clock is expected, in nanoseconds: no network delays packets for so long.
/// It is less than a handshake waits for by default, because a stamp that is ahead by so much moves time as far, and
/// must not end handshakes that have just begun.
pub const FOLLOWS_MAX_NS: i64 = 50_000_000_000;

/// The longest time that passes between two packets, in nanoseconds. A clock that leaps further ahead was set: longer
/// than every timeout, and short enough for the 32 bits of a tick that half-open records keep.
pub const CLOCK_LEAP_MAX_NS: i64 = 30 * 86_400_000_000_000;

/// How many packets have to come behind a leap, with none of a known clock among them, until it is believed: more than
/// one side of a connection sends without an answer, so that of two clocks both come up.
pub const JUDGED_COUNT_MAX: usize = 64;

/// The fewest packets that show that a clock was set, or that time has passed, where each is near to the one before and
/// they cover [`FOLLOWS_MAX_NS`]: a wrong stamp comes alone. A clock of fewer says nothing of the time that has passed.
const JUDGED_COUNT_MIN: usize = 3;

/// More packets than have wrong stamps in turn that agree, or that are in order. So many show that time has passed,
/// where they are far from each other, or that a stamp before them is wrong.
const AGREEING_COUNT: usize = 6;

const _: () = assert!(JUDGED_COUNT_MIN < AGREEING_COUNT && AGREEING_COUNT < JUDGED_COUNT_MAX);

/// How far apart the next packets at two taps are at most, in nanoseconds, by the same time: a round trip, or longer.
const BESIDE_MAX_NS: i64 = 1_000_000_000;

/// The fewest packets of each of two clocks that show that the same time has passed on both: a wrong stamp comes alone.
const PAIR_COUNT_MIN: usize = 2;

/// How many clocks beside the main one are remembered: one of each name, and some wrong stamps.
const OTHER_CLOCKS_MAX: usize = CLOCK_NAMES_MAX + 7;

/// The packets from which a clock beside another of the same name counts as more than a few wrong stamps, and time may
/// pass on it as on that.
const OTHER_PACKETS_MIN: u32 = 4 * AGREEING_COUNT as u32;

/// How long a clock of fewer than [`JUDGED_COUNT_MIN`] packets is remembered without another one, in nanoseconds of the
/// line.
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

/// Some names of clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Names(u16);

const _: () = assert!(CLOCK_NAMES_MAX <= u16::BITS as usize);

impl Names {
    fn of(name: ClockName) -> Self {
        Names(1 << name.index())
    }

    fn has(self, name: ClockName) -> bool {
        self.0 & Names::of(name).0 != 0
    }

    fn add(&mut self, name: ClockName) {
        self.0 |= Names::of(name).0;
    }
}

/// The number of a clock, which none has had before.
type ClockNumber = u32;

/// What is known of the clocks of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Source {
    /// The clock of its last stamp, but for those of clocks of fewer than [`AGREEING_COUNT`] packets.
    last: ClockNumber,
    /// How many of its stamps in turn, but for those, were of that clock; stops counting at [`JUDGED_COUNT_MAX`].
    in_turn: u8,
    /// How many stamps it has made; stops counting at [`JUDGED_COUNT_MIN`].
    count: u8,
}

const _: () = assert!(JUDGED_COUNT_MAX <= u8::MAX as usize);

impl Source {
    /// The clock that it goes by, if all others have been silent for as long as clocks may be.
    fn only_clock(self) -> Option<ClockNumber> {
        (usize::from(self.in_turn) >= JUDGED_COUNT_MAX).then_some(self.last)
    }

    /// Counts a stamp of this clock.
    fn stamps(&mut self, clock: ClockNumber) {
        let in_turn = if self.last == clock { self.in_turn } else { 0 };
        self.last = clock;
        self.in_turn = (in_turn + 1).min(JUDGED_COUNT_MAX as u8);
        self.stamps_few();
    }

    /// Counts a stamp of a clock of fewer than [`AGREEING_COUNT`] packets, which may be a wrong one: by it, the source
    /// has not left its clock.
    fn stamps_few(&mut self) {
        self.count = (self.count + 1).min(JUDGED_COUNT_MIN as u8);
    }

    /// Whether it has made more stamps than begin with wrong ones.
    fn is_known(self) -> bool {
        usize::from(self.count) >= JUDGED_COUNT_MIN
    }

    /// Makes this its only clock.
    fn leave_for(&mut self, clock: ClockNumber) {
        (self.last, self.in_turn) = (clock, JUDGED_COUNT_MAX as u8);
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.u32(self.last);
        encoder.u8(self.in_turn);
        encoder.u8(self.count);
    }

    fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (last, in_turn, count) = (decoder.u32()?, decoder.u8()?, decoder.u8()?);
        let is_counted = usize::from(in_turn) <= JUDGED_COUNT_MAX && usize::from(count) <= JUDGED_COUNT_MIN;
        decoder.expect(is_counted, "too many stamps")?;
        Ok(Source { last, in_turn, count })
    }
}

/// A clock beside the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OtherClock {
    number: ClockNumber,
    /// The sources that go by it.
    names: Names,
    /// What it shows more than the main clock at the same moment, in ns.
    ahead_ns: i128,
    /// Its last stamp.
    last_ns: i64,
    /// How long the line had run at that stamp, in ns.
    used_at_ns: i64,
    /// How many packets it has stamped; stops counting at [`OTHER_PACKETS_MIN`].
    packets: u32,
    /// Whether it may be no other clock, but time that has passed before it.
    is_doubtful: bool,
    /// Whether it began where a clock of its source was before time that was taken to have passed. Then that may have
    /// been none.
    is_of_before: bool,
}

impl OtherClock {
    /// The wall time of the main clock at a stamp of this one, in ns, clamped to 64 bits.
    fn on_main(&self, stamp_ns: i64) -> i64 {
        clamped(i128::from(stamp_ns) - self.ahead_ns)
    }

    /// Whether it is more than a wrong stamp or two of its source.
    fn is_settled(&self) -> bool {
        self.packets >= JUDGED_COUNT_MIN as u32 && !self.is_doubtful
    }

    fn is_established(&self) -> bool {
        self.packets >= OTHER_PACKETS_MIN
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.u32(self.number);
        encoder.u16(self.names.0);
        encoder.i128(self.ahead_ns);
        encoder.i64(self.last_ns);
        encoder.i64(self.used_at_ns);
        encoder.u32(self.packets);
        encoder.bool(self.is_doubtful);
        encoder.bool(self.is_of_before);
    }

    fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (number, names, ahead_ns) = (decoder.u32()?, Names(decoder.u16()?), decoder.i128()?);
        decoder.expect(ahead_ns.unsigned_abs() <= STATE_OFFSET_MAX_NS as u128, "a time out of range")?;
        let (last_ns, used_at_ns) = (decoder.i64()?, decoder.i64()?);
        let (packets, is_doubtful, is_of_before) = (decoder.u32()?, decoder.bool()?, decoder.bool()?);
        Ok(OtherClock { number, names, ahead_ns, last_ns, used_at_ns, packets, is_doubtful, is_of_before })
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
    /// As [`Verdict::OtherClock`], but it is not certain that no time has passed.
    Undecided,
    /// As [`Verdict::Undecided`], and no later stamp will show it: which of its clocks a source goes on by is unknown.
    Ambiguous,
    /// The time without packets has passed: the main clock shows this wall time now, in ns.
    Passed(i64),
    /// As [`Verdict::Passed`], and the stamp is the first of another clock.
    PassedBefore(i64),
    /// The main clock was set: no time has passed, and a new time base begins.
    Set,
    /// As [`Verdict::Set`], but it is not certain that no time has passed.
    SetUndecided,
}

/// How far the time of packets is in doubt, from little to much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeDoubt {
    /// Not at all.
    #[default]
    None,
    /// Whether time has passed between some packets is unknown: it counts as none, and nothing times out in it.
    Undecided,
    /// Time that was taken to have passed may have been none: what was taken off in it may still be open.
    Passed,
}

/// Whether times differ by no more than [`FOLLOWS_MAX_NS`]. A difference that saturates is out of bounds as well.
fn is_near(time_ns: i64, to_ns: i64) -> bool {
    (-FOLLOWS_MAX_NS..=FOLLOWS_MAX_NS).contains(&time_ns.saturating_sub(to_ns))
}

/// How many stamps are behind the one that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// More will come.
    Some,
    /// As many as are waited for.
    Enough,
    /// All there are.
    All,
}

/// What the stamps behind a leap have in common with its first: as they are or, if time may have passed, as times after
/// the end of the line.
struct Run {
    first_ns: i64,
    /// The highest of those that follow the first closely, how many they are, and what they cover.
    highest_ns: i64,
    count: usize,
    covered_ns: i64,
    /// The highest of the last ones elsewhere that follow each other closely, and how many they are.
    elsewhere: Option<(i64, usize)>,
    /// How many there are up to which no time can have passed from the first.
    contrary_count: usize,
    /// How many there are at times before the first and behind the end of the line, before another follows the first.
    between_count: usize,
    /// How many there are far from each other, from the first, if none is before or more than a month behind the last.
    ascending: Option<usize>,
    last_ns: i64,
}

impl Run {
    fn new(first_ns: i64) -> Self {
        Run {
            first_ns,
            highest_ns: first_ns,
            count: 1,
            covered_ns: 0,
            elsewhere: None,
            contrary_count: 0,
            between_count: 0,
            ascending: Some(1),
            last_ns: first_ns,
        }
    }

    fn add(&mut self, time_ns: i64) {
        let is_ascending = (-FOLLOWS_MAX_NS..=CLOCK_LEAP_MAX_NS).contains(&time_ns.saturating_sub(self.last_ns));
        let is_far = is_ascending && !is_near(time_ns, self.last_ns);
        self.ascending = self.ascending.filter(|_| is_ascending).map(|count| count + usize::from(is_far));
        self.last_ns = self.last_ns.max(time_ns);
        if is_near(time_ns, self.highest_ns) {
            self.covered_ns += (time_ns - self.highest_ns).max(0);
            self.highest_ns = self.highest_ns.max(time_ns);
            self.count += 1;
            return;
        }
        let (highest_ns, count) = match self.elsewhere {
            Some((highest_ns, count)) if is_near(time_ns, highest_ns) => (highest_ns.max(time_ns), count + 1),
            _ => (time_ns, 1),
        };
        self.elsewhere = Some((highest_ns, count));
        if !self.may_pass(highest_ns) {
            self.contrary_count += 1;
            self.between_count += usize::from(self.count == 1 && (1..self.first_ns).contains(&time_ns));
        }
    }

    /// Whether time may have passed up to here behind the first.
    fn may_pass(&self, highest_ns: i64) -> bool {
        highest_ns.saturating_sub(self.first_ns) >= -FOLLOWS_MAX_NS
            && highest_ns.saturating_sub(self.highest_ns) <= CLOCK_LEAP_MAX_NS
    }

    /// Whether those that follow the first are more than may be wrong, where others are contrary to it.
    fn outweighs_contrary(&self) -> bool {
        self.contrary_count == 0 || self.count >= AGREEING_COUNT.max(self.contrary_count)
    }

    /// Follows those elsewhere, if they are certain and time may have passed up to them: it has passed once more.
    fn leap(&mut self) {
        if let Some((highest_ns, count)) = self.elsewhere
            && count >= JUDGED_COUNT_MIN
            && self.may_pass(highest_ns)
            && self.outweighs_contrary()
        {
            self.highest_ns = highest_ns;
            self.count += count;
            self.elsewhere = None;
        }
    }

    /// As [`Self::leap`], where the first is of a clock that was set, which may be silent then as well. Fewer than
    /// agree may have wrong stamps, and those elsewhere be right.
    fn pause(&mut self) {
        if self.count >= AGREEING_COUNT {
            self.leap();
        }
    }

    /// Whether more stamps follow each other elsewhere, so that the first is wrong.
    fn is_contradicted(&self) -> bool {
        self.elsewhere.is_some_and(|(_, count)| count >= AGREEING_COUNT.max(self.count + 1))
    }

    /// Whether the stamps follow each other as those of one clock do: closely for long, or far apart in order.
    fn is_certain(&self) -> bool {
        let is_dense = self.count >= JUDGED_COUNT_MIN && self.covered_ns >= FOLLOWS_MAX_NS;
        is_dense && self.outweighs_contrary() || self.is_sparse()
    }

    /// Whether they are far from each other, and too many in order to be wrong.
    fn is_sparse(&self) -> bool {
        let is_long = self.last_ns.saturating_sub(self.first_ns) >= FOLLOWS_MAX_NS;
        is_long && self.ascending.is_some_and(|count| count >= AGREEING_COUNT)
    }

    /// Whether most of so many stamps follow the first closely.
    fn has_most_of(&self, stamp_count: usize) -> bool {
        self.count >= AGREEING_COUNT && 2 * self.count >= stamp_count
    }

    /// What a first stamp is that the others show to be behind time without packets, up to this wall time. Where some
    /// came between, it may be a wrong one, and the others have come to its time since.
    fn passed(&self, wall_ns: i64) -> Verdict {
        if self.between_count < PAIR_COUNT_MIN { Verdict::Passed(wall_ns) } else { Verdict::Undecided }
    }

    /// Whether all of so many stamps follow the first closely, and are too many to be wrong.
    fn has_all_of(&self, stamp_count: usize) -> bool {
        self.count >= AGREEING_COUNT.max(stamp_count)
    }

    /// Whether these are the stamps of a clock that was set, when none of so many has shown it. `None` if more come.
    fn is_last(&self, behind: Behind, stamp_count: usize) -> Option<bool> {
        match behind {
            Behind::Some => None,
            Behind::Enough => Some(self.has_most_of(stamp_count)),
            Behind::All => Some(self.count >= JUDGED_COUNT_MIN),
        }
    }
}

/// The packets of two clocks behind a leap of the first, where the other may only seem to go on: if each shows the same
/// leap beyond what it showed last, time has passed on both. No other clock happens to be as far from the first.
struct Pair {
    /// The leap, and the last stamp of the first clock.
    first: Stamp,
    last_ns: i64,
    first_count: usize,
    /// The wall time of the main clock at the leap, by the first clock.
    wall_ns: Option<i64>,
    other_count: usize,
}

impl Pair {
    fn new(first: Stamp) -> Self {
        Pair { first, last_ns: first.time_ns, first_count: 1, wall_ns: None, other_count: 0 }
    }

    /// Adds a stamp that follows no known clock.
    fn add(&mut self, time_ns: i64) {
        if is_near(time_ns, self.last_ns) {
            self.last_ns = time_ns;
            self.first_count += 1;
        }
    }

    /// Adds a stamp of the other clock, which shows the same leap up to this wall time.
    fn add_other(&mut self, wall_ns: i64) {
        self.wall_ns = Some(wall_ns);
        self.other_count += 1;
    }

    /// The wall time up to which time has passed, if it has.
    fn passed(&self) -> Option<i64> {
        self.wall_ns.filter(|_| self.first_count.min(self.other_count) >= PAIR_COUNT_MIN)
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
    main_number: ClockNumber,
    /// The sources that go by the main clock.
    main_names: Names,
    /// How many packets the main clock has stamped; stops counting at [`JUDGED_COUNT_MIN`].
    main_packets: u32,
    /// The last stamp of the main clock before the present run of stamps of others; `None` if it made the last.
    main_left_ns: Option<i64>,
    /// Clocks beside the main one, the one used last first.
    others: Vec<OtherClock>,
    /// The sources, by the names of their clocks; apart from what every packet needs.
    sources: Box<[Source; CLOCK_NAMES_MAX]>,
    /// The number of the next clock.
    next_number: ClockNumber,
    /// Where the main clock was before the last time that passed without packets, and how long the clock had run behind
    /// it, in ns.
    passed_from: Option<(i64, i64)>,
    doubt: TimeDoubt,
}

/// The longest time that a clock runs, in ns: a tick can still be added without overflow.
const ELAPSED_MAX_NS: i64 = i64::MAX - TICK_NS;

impl Clock {
    /// The tick at which every clock starts, high enough that the time one timeout before the first packet is a tick
    /// too.
    pub const FIRST_TICK: u64 = 1 << 20;

    /// A clock that starts with a packet of this stamp.
    #[must_use]
    pub fn new(stamp: Stamp) -> Self {
        let mut clock = Clock::resumed(stamp.time_ns, Clock::FIRST_TICK);
        clock.main_names = Names::of(stamp.clock);
        clock
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
            main_number: 0,
            main_names: Names::of(ClockName::FIRST),
            main_packets: 0,
            main_left_ns: None,
            others: Vec::with_capacity(OTHER_CLOCKS_MAX),
            sources: Box::new([Source::default(); CLOCK_NAMES_MAX]),
            next_number: 1,
            passed_from: None,
            doubt: TimeDoubt::None,
        }
    }

    /// Writes the clock into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        self.base.save(encoder);
        encoder.i64(self.highest_ns);
        encoder.i64(self.elapsed_ns());
        encoder.u64(self.tick);
        encoder.u32(self.main_number);
        encoder.u16(self.main_names.0);
        encoder.u32(self.main_packets);
        encoder.option(self.main_left_ns, Encoder::i64);
        encoder.length(self.others.len());
        self.others.iter().for_each(|other| other.save(encoder));
        self.sources.iter().for_each(|source| source.save(encoder));
        encoder.u32(self.next_number);
        encoder.option(self.passed_from, |encoder, (wall_ns, elapsed_ns)| {
            encoder.i64(wall_ns);
            encoder.i64(elapsed_ns);
        });
        encoder.bool(self.doubt >= TimeDoubt::Undecided);
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
        clock.main_number = decoder.u32()?;
        clock.main_names = Names(decoder.u16()?);
        clock.main_packets = decoder.u32()?;
        clock.main_left_ns = decoder.option(Decoder::i64)?;
        for _ in 0..decoder.length(size_of::<OtherClock>() / 2, OTHER_CLOCKS_MAX)? {
            clock.others.push(OtherClock::saved(decoder)?);
        }
        for source in &mut *clock.sources {
            *source = Source::saved(decoder)?;
        }
        clock.next_number = decoder.u32()?;
        clock.passed_from = decoder.option(|decoder| Ok((decoder.i64()?, decoder.i64()?)))?;
        clock.doubt = match (decoder.bool()?, decoder.bool()?) {
            (_, true) => TimeDoubt::Passed,
            (true, false) => TimeDoubt::Undecided,
            (false, false) => TimeDoubt::None,
        };
        Ok(clock)
    }

    /// The base in which this wall time lies in the tick `tick`.
    fn base(wall_ns: i64, tick: u64) -> TimeBase {
        let began = i128::from(wall_ns).div_euclid(i128::from(TICK_NS)) * i128::from(TICK_NS);
        TimeBase { first_tick: tick, offset_ns: began - i128::from(tick) * i128::from(TICK_NS) }
    }

    /// Whether a source goes by a clock, so that its stamps follow no other.
    fn is_bound(&self, name: ClockName) -> bool {
        let is_on_main = self.is_main_settled() && self.main_names.has(name);
        let is_on = |other: &OtherClock| other.is_settled() && other.names.has(name);
        self.sources[name.index()].is_known() && (is_on_main || self.others.iter().any(is_on))
    }

    /// Whether the main clock has stamped enough packets that time may pass on it.
    fn is_main_settled(&self) -> bool {
        self.main_packets >= JUDGED_COUNT_MIN as u32
    }

    /// The clock that a stamp follows: it is near to where that clock has to be now, or to its last stamp.
    #[inline]
    fn followed(&self, stamp: Stamp) -> Option<Follows> {
        let Stamp { time_ns, clock } = stamp;
        let is_bound = self.is_bound(clock);
        if (!is_bound || self.main_names.has(clock))
            && (is_near(time_ns, self.highest_ns) || self.main_left_ns.is_some_and(|left_ns| is_near(time_ns, left_ns)))
        {
            return Some(Follows::Main);
        }
        // A new source shares no clock that may be a few wrong stamps of another.
        let may_follow = |other: &OtherClock| {
            let is_shared = other.names.has(clock) || !is_bound && other.is_established();
            is_shared && !self.may_be_set(other, stamp)
        };
        self.near_other(stamp, may_follow).map(Follows::Other)
    }

    /// Where that of the clocks beside the main one is, if there is one, which may be this stamp's and is near to it.
    fn near_other(&self, stamp: Stamp, may_follow: impl Fn(&OtherClock) -> bool) -> Option<usize> {
        // What is where its clock is expected needs no more than that.
        let has_left = |other: &OtherClock| self.left_clock(stamp).is_some_and(|only| other.number != only);
        let is_near_to = |other: &OtherClock| {
            is_near(other.on_main(stamp.time_ns), self.highest_ns)
                || is_near(stamp.time_ns, other.last_ns) && !has_left(other)
        };
        self.others.iter().position(|other| may_follow(other) && is_near_to(other))
    }

    /// [`Self::near_other`] of the clocks of this stamp's source, those of a few packets too.
    fn near_of_source(&self, stamp: Stamp) -> Option<usize> {
        self.near_other(stamp, |other| other.names.has(stamp.clock))
    }

    /// Whether the few stamps of a clock may have been wrong ones of the main clock, and this stamp, which is near to
    /// them, be where that was set to. Only the stamps behind it show that.
    fn may_be_set(&self, other: &OtherClock, Stamp { time_ns, clock }: Stamp) -> bool {
        let is_few = other.packets < JUDGED_COUNT_MIN as u32 && !other.is_doubtful;
        is_few && self.is_main_settled() && self.main_names.has(clock) && !self.is_leap(time_ns)
    }

    /// The clock by which the source of a stamp has gone alone for so long that it has left all others, if time may
    /// have passed on it before this stamp: then it has passed where one of the others was, as does a clock that was
    /// set back, and the other has not gone on.
    fn left_clock(&self, Stamp { time_ns, clock }: Stamp) -> Option<ClockNumber> {
        let only = self.sources[clock.index()].only_clock()?;
        let other = self.others.iter().find(|other| other.number == only);
        let is_main = only == self.main_number;
        let wall_ns = if is_main { time_ns } else { other?.on_main(time_ns) };
        self.is_leap(wall_ns).then_some(only)
    }

    /// Whether a stamp follows a known clock. Of another stamp [`Self::judge`] says what it is.
    #[must_use]
    #[inline]
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.followed(stamp).is_some()
    }

    /// Whether each stamp has to be passed to [`Self::on_main`], because the clocks are not certain yet, or the main
    /// clock did not make the last stamp.
    #[must_use]
    pub fn needs_each_stamp(&self) -> bool {
        !self.is_main_settled() || self.main_left_ns.is_some() || self.others.iter().any(|other| other.is_doubtful)
    }

    /// The wall time of the main clock at a stamp of a known clock, in ns; `None` if it follows none. Pass it to
    /// [`Self::advance`]: it may be earlier than the times before.
    #[inline]
    pub fn on_main(&mut self, stamp: Stamp) -> Option<i64> {
        let follows = self.followed(stamp)?;
        if self.needs_each_stamp() {
            self.settle(follows);
        }
        match follows {
            Follows::Main => {
                self.main_left_ns = None;
                self.main_names.add(stamp.clock);
                self.sources[stamp.clock.index()].stamps(self.main_number);
                Some(stamp.time_ns)
            }
            Follows::Other(index) => Some(self.on_other(index, stamp)),
        }
    }

    /// Counts the first stamps of the main clock. Where a certain clock goes on, no time has passed before the others
    /// began.
    #[cold]
    fn settle(&mut self, follows: Follows) {
        let is_certain = match follows {
            Follows::Main => {
                self.main_packets = self.main_packets.saturating_add(1).min(JUDGED_COUNT_MIN as u32);
                self.is_main_settled()
            }
            // Of few packets it may be a wrong stamp that what follows time without packets happens to be near to.
            Follows::Other(index) => !self.others[index].is_doubtful && self.others[index].is_established(),
        };
        if is_certain {
            self.others.iter_mut().for_each(|other| other.is_doubtful = false);
        }
    }

    /// [`Self::on_main`] for a stamp of the clock at this index.
    fn on_other(&mut self, index: usize, stamp: Stamp) -> i64 {
        self.main_left_ns.get_or_insert(self.highest_ns);
        let mut other = self.others.remove(index);
        let wall_ns = other.on_main(stamp.time_ns);
        // It may have been a wrong stamp, to which what follows time without packets happens to be near.
        let is_few = other.packets < JUDGED_COUNT_MIN as u32;
        other.is_doubtful |= is_few && self.main_names.has(stamp.clock) && self.is_leap(stamp.time_ns);
        other.names.add(stamp.clock);
        other.last_ns = stamp.time_ns;
        other.used_at_ns = self.elapsed_ns();
        other.packets = other.packets.saturating_add(1).min(OTHER_PACKETS_MIN);
        self.others.insert(0, other);
        let source = &mut self.sources[stamp.clock.index()];
        if other.packets < AGREEING_COUNT as u32 {
            source.stamps_few();
        } else {
            source.stamps(other.number);
        }
        // Wrong stamps that are near to each other are no time.
        if other.packets < JUDGED_COUNT_MIN as u32 {
            return wall_ns.min(self.highest_ns);
        }
        if other.is_of_before {
            self.doubt = TimeDoubt::Passed;
        }
        wall_ns
    }

    /// What the first of these stamps is, which follows no known clock; the others came behind it, at most
    /// [`JUDGED_COUNT_MAX`] together. `None` if more have to come, unless there are no more.
    ///
    /// Complexity: a few comparisons for each stamp and known clock.
    #[must_use]
    pub fn judge(&self, stamps: &[Stamp], are_all: bool) -> Option<Verdict> {
        let (first, stamps) = stamps.split_first()?;
        let behind = match stamps.len() + 1 >= JUDGED_COUNT_MAX {
            _ if are_all => Behind::All,
            true => Behind::Enough,
            false => Behind::Some,
        };
        if self.near_of_source(*first).is_some() {
            self.judge_near_few(*first, stamps, behind)
        } else if self.is_bound(first.clock) {
            self.judge_bound(*first, stamps, behind)
        } else if self.is_main_settled() || self.others.iter().any(OtherClock::is_settled) {
            self.judge_new(*first, stamps, behind)
        } else {
            self.judge_beginning(*first, stamps, behind)
        }
    }

    /// Judges a stamp that is near to a few which may have been wrong ([`Self::may_be_set`]): the main clock was set if
    /// most of many behind it follow, and none that the main clock may have made.
    fn judge_near_few(&self, first: Stamp, stamps: &[Stamp], behind: Behind) -> Option<Verdict> {
        let mut run = Run::new(first.time_ns);
        for stamp in stamps {
            if self.goes_on(*stamp) || self.passed(*stamp).is_some() {
                return Some(Verdict::OtherClock);
            }
            run.add(stamp.time_ns);
        }
        match behind {
            Behind::Some => None,
            Behind::Enough if run.has_most_of(stamps.len() + 1) => Some(Verdict::Set),
            Behind::Enough | Behind::All => Some(Verdict::OtherClock),
        }
    }

    /// Judges a stamp of a source that has a clock.
    fn judge_bound(&self, first: Stamp, stamps: &[Stamp], behind: Behind) -> Option<Verdict> {
        let Some((wall_ns, leap_ns)) = self.passed(first) else {
            return self.judge_set(first, stamps, behind);
        };
        // A new source may have begun behind the same time.
        let is_beside =
            |other: &OtherClock| other.is_doubtful && is_near(other.on_main(first.time_ns), self.highest_ns);
        if self.others.iter().any(is_beside) {
            return Some(Verdict::Undecided);
        }
        let mut run = Run::new(leap_ns);
        let mut pair = Pair::new(first);
        let (mut is_agreed, mut is_ambiguous) = (false, false);
        let mut going_on_count = 0;
        for stamp in stamps {
            if self.goes_on(*stamp) {
                let beside_ns = self.beside(&pair, *stamp);
                // Behind one that may be of either, only what goes on by all clocks of its source decides.
                let may_have_passed = beside_ns.is_some()
                    || self.may_have_passed(*stamp, leap_ns, is_agreed)
                    || is_ambiguous && self.is_ahead(*stamp);
                if !may_have_passed {
                    // One alone behind several that follow the leap may have a wrong stamp.
                    going_on_count += 1;
                    if run.count < JUDGED_COUNT_MIN || going_on_count >= PAIR_COUNT_MIN {
                        return Some(Verdict::OtherClock);
                    }
                    continue;
                }
                is_ambiguous = true;
                beside_ns.iter().for_each(|wall_ns| pair.add_other(*wall_ns));
            } else {
                pair.add(stamp.time_ns);
            }
            if let Some(wall_ns) = pair.passed() {
                return Some(Verdict::Passed(wall_ns));
            }
            if is_ambiguous {
                continue;
            }
            is_agreed |= self.agrees(first, *stamp);
            let time_ns = self.since(*stamp, run.highest_ns);
            if self.is_bound(stamp.clock) || is_near(time_ns, run.highest_ns) {
                run.add(time_ns);
            }
            // Behind one that goes on, wrong stamps before another gap would seem to have led up to it.
            if going_on_count == 0 {
                run.leap();
            }
            if run.is_contradicted() {
                let is_few = going_on_count > 0 && run.count < AGREEING_COUNT;
                let is_other = is_few || self.is_wrong_before(&run, *stamp);
                return Some(if is_other { Verdict::OtherClock } else { run.passed(wall_ns) });
            }
            if run.is_certain() {
                return Some(run.passed(wall_ns));
            }
        }
        match behind {
            Behind::Some => None,
            Behind::Enough | Behind::All if is_ambiguous => Some(Verdict::Ambiguous),
            Behind::All if going_on_count > 0 => Some(Verdict::OtherClock),
            Behind::Enough if run.has_most_of(stamps.len() + 1) => Some(run.passed(wall_ns)),
            // A capture of one clock ends soon behind a gap.
            Behind::All if self.others.is_empty() && run.has_all_of(stamps.len() + 1) => Some(Verdict::Passed(wall_ns)),
            Behind::Enough | Behind::All => Some(Verdict::Undecided),
        }
    }

    /// Judges a stamp of a source that has a clock, before which no time can have passed.
    fn judge_set(&self, first: Stamp, stamps: &[Stamp], behind: Behind) -> Option<Verdict> {
        // Whoever has another clock than the main one has another one again.
        let set = if self.main_names.has(first.clock) { Verdict::Set } else { Verdict::OtherClock };
        let mut run = Run::new(first.time_ns);
        let mut may_have_passed = false;
        for stamp in stamps {
            if self.goes_on(*stamp) {
                return Some(Verdict::OtherClock);
            }
            if is_near(stamp.time_ns, run.highest_ns) {
                run.add(stamp.time_ns);
            } else if self.is_bound(stamp.clock) {
                // Stamps of several sources agree where time may have passed for each on its own clock.
                let passed = self.passed(*stamp);
                may_have_passed |= passed.is_some();
                run.add(passed.map_or(stamp.time_ns, |(wall_ns, _)| wall_ns));
            }
            if !may_have_passed {
                run.pause();
            }
            if run.is_contradicted() {
                return Some(match set {
                    _ if self.is_wrong_before(&run, *stamp) => Verdict::OtherClock,
                    Verdict::Set if may_have_passed => Verdict::SetUndecided,
                    _ => set,
                });
            }
            if run.is_certain() {
                // In order they may be of the clock as it was, each behind time without packets, and the first wrong.
                let is_ambiguous = run.is_sparse() && may_have_passed;
                return Some(if is_ambiguous { Verdict::Ambiguous } else { set });
            }
        }
        run.is_last(behind, stamps.len() + 1).map(|is_set| if is_set { set } else { Verdict::OtherClock })
    }

    /// Judges a stamp of a source that is new: it may have begun behind time without packets, of which only those that
    /// have a clock know.
    fn judge_new(&self, first: Stamp, stamps: &[Stamp], behind: Behind) -> Option<Verdict> {
        let leap_ns = first.time_ns.saturating_sub(self.highest_ns);
        if !(1..=CLOCK_LEAP_MAX_NS).contains(&leap_ns) {
            return Some(Verdict::OtherClock);
        }
        let (mut run, mut known) = (Run::new(first.time_ns), 0..JUDGED_COUNT_MIN);
        for (at, stamp) in stamps.iter().enumerate() {
            if self.goes_on(*stamp) || self.goes_on_for(first.clock, *stamp) {
                return Some(Verdict::OtherClock);
            }
            if !self.is_bound(stamp.clock) {
                run.add(stamp.time_ns);
                continue;
            }
            // A few are enough, and no more of them than that are looked at.
            if known.next().is_none() {
                continue;
            }
            match self.judge_bound(*stamp, &stamps[at + 1..], behind) {
                Some(Verdict::Passed(wall_ns)) => {
                    let is_beside = is_near(first.time_ns, wall_ns);
                    return Some(if is_beside {
                        Verdict::Passed(first.time_ns)
                    } else {
                        Verdict::PassedBefore(wall_ns)
                    });
                }
                Some(Verdict::Set) => return Some(Verdict::OtherClock),
                Some(doubt @ (Verdict::Undecided | Verdict::Ambiguous)) => return Some(doubt),
                Some(_) => {}
                None => return None,
            }
        }
        (behind != Behind::Some || run.is_certain()).then_some(Verdict::Undecided)
    }

    /// Judges a stamp far from the few before it, which are all that is known.
    fn judge_beginning(&self, first: Stamp, stamps: &[Stamp], behind: Behind) -> Option<Verdict> {
        let leap_ns = first.time_ns.saturating_sub(self.highest_ns);
        let may_pass = (1..=CLOCK_LEAP_MAX_NS).contains(&leap_ns);
        let set = if may_pass { Verdict::SetUndecided } else { Verdict::Set };
        let mut run = Run::new(first.time_ns);
        for stamp in stamps {
            run.add(stamp.time_ns);
            if self.goes_on(*stamp) {
                return Some(Verdict::OtherClock);
            }
            if !may_pass {
                run.pause();
            }
            if run.is_contradicted() {
                return Some(if self.is_wrong_before(&run, *stamp) { Verdict::OtherClock } else { set });
            }
            if run.is_sparse() && may_pass {
                return Some(Verdict::Passed(first.time_ns));
            }
            if run.is_certain() {
                return Some(set);
            }
        }
        let undecided = if may_pass { Verdict::Undecided } else { Verdict::OtherClock };
        run.is_last(behind, stamps.len() + 1).map(|is_set| if is_set { set } else { undecided })
    }

    /// Whether the stamps of a run are wrong, before this one of several elsewhere. They are not if more agree than
    /// wrong ones do, or some agree and that has no more to do with what was before them: then they are another
    /// capture.
    fn is_wrong_before(&self, run: &Run, elsewhere: Stamp) -> bool {
        run.count < JUDGED_COUNT_MIN || run.count < AGREEING_COUNT && self.passed(elsewhere).is_some()
    }

    /// Whether a stamp is of a clock that goes on as before a leap, so that no time has passed.
    fn goes_on(&self, stamp: Stamp) -> bool {
        match self.followed(stamp) {
            Some(Follows::Main) => true,
            Some(Follows::Other(index)) => self.others[index].is_settled(),
            None => false,
        }
    }

    /// Whether a stamp is of a clock in doubt by which this source goes, so that it has no other.
    fn goes_on_for(&self, source: ClockName, stamp: Stamp) -> bool {
        matches!(self.followed(stamp), Some(Follows::Other(index)) if self.others[index].names.has(source))
    }

    /// The wall times of the main clock at a stamp, by each clock of its source by which time may pass, with the number
    /// of that clock and whether it is one of many packets.
    fn walls_ns(&self, Stamp { time_ns, clock }: Stamp) -> impl Iterator<Item = (i64, ClockNumber, bool)> {
        let only = self.sources[clock.index()].only_clock();
        let may_pass =
            move |number: ClockNumber, names: Names| names.has(clock) && only.is_none_or(|only| number == only);
        let is_of_source = move |other: &&OtherClock| other.is_settled() && may_pass(other.number, other.names);
        let others = self.others.iter().filter(is_of_source);
        let is_on_main = self.is_main_settled() && may_pass(self.main_number, self.main_names);
        others
            .map(move |other| (other.on_main(time_ns), other.number, other.is_established()))
            .chain(is_on_main.then_some((time_ns, self.main_number, true)))
    }

    /// The wall time of the main clock at a stamp, and how far it has leaped, in ns, if time may have passed: on the
    /// clock of its source that it is least ahead of.
    fn passed(&self, stamp: Stamp) -> Option<(i64, i64)> {
        let least = |of_many: bool| {
            let walls = self.walls_ns(stamp).filter(|(_, _, is_of_many)| *is_of_many == of_many);
            let leaps = walls.map(|(wall_ns, ..)| (wall_ns, wall_ns.saturating_sub(self.highest_ns)));
            leaps.filter(|(_, leap_ns)| (1..=CLOCK_LEAP_MAX_NS).contains(leap_ns)).min_by_key(|(_, leap_ns)| *leap_ns)
        };
        least(true).or_else(|| least(false))
    }

    /// Whether time may have passed before two stamps of which each is of another clock, because both are as far ahead.
    fn agrees(&self, first: Stamp, second: Stamp) -> bool {
        self.walls_ns(first).filter(|wall| self.is_leap(wall.0)).any(|(wall_ns, number, _)| {
            self.walls_ns(second).any(|(other_ns, other, _)| other != number && is_near(other_ns, wall_ns))
        })
    }

    /// The wall time of the main clock at the leap of the first of two clocks, if by this stamp another has leaped as
    /// far.
    fn beside(&self, Pair { first, last_ns, .. }: &Pair, second: Stamp) -> Option<i64> {
        let since_ns = last_ns.saturating_sub(first.time_ns);
        let is_beside = |wall_ns: i64, other_ns: i64| {
            other_ns.saturating_sub(wall_ns.saturating_add(since_ns)).saturating_abs() <= BESIDE_MAX_NS
        };
        let leaps = self.walls_ns(*first).filter(|(wall_ns, ..)| self.is_leap(*wall_ns));
        let mut beside = leaps.filter(|(wall_ns, number, _)| {
            let mut others = self.walls_ns(second).filter(|(_, other, _)| other != number);
            others.any(|(other_ns, ..)| is_beside(*wall_ns, other_ns))
        });
        beside.next().map(|(wall_ns, ..)| wall_ns)
    }

    /// Whether time may have passed before a stamp that seems to be of a clock that goes on: by another clock of its
    /// source it is as far ahead as the leap before it or, if other stamps agree with that, further.
    fn may_have_passed(&self, stamp: Stamp, leap_ns: i64, is_agreed: bool) -> bool {
        self.walls_ns(stamp).any(|(wall_ns, ..)| {
            let ahead_ns = wall_ns.saturating_sub(self.highest_ns);
            self.is_leap(wall_ns) && (is_near(ahead_ns, leap_ns) || is_agreed && ahead_ns >= leap_ns)
        })
    }

    /// Whether a stamp is so far ahead by a clock of its source that time has passed if that made it.
    fn is_ahead(&self, stamp: Stamp) -> bool {
        self.walls_ns(stamp).any(|(wall_ns, ..)| self.is_leap(wall_ns))
    }

    /// Whether a wall time of the main clock follows nothing, and may be behind time without packets.
    fn is_leap(&self, wall_ns: i64) -> bool {
        let ahead_ns = wall_ns.saturating_sub(self.highest_ns);
        ahead_ns > FOLLOWS_MAX_NS && ahead_ns <= CLOCK_LEAP_MAX_NS
    }

    /// How long after the end of the line a stamp is, in ns, by that of its source's clocks by which it is nearest to
    /// `near_ns`. A source that is new goes by the main clock.
    fn since(&self, stamp: Stamp, near_ns: i64) -> i64 {
        let new = (!self.is_bound(stamp.clock)).then_some(stamp.time_ns);
        let walls_ns = self.walls_ns(stamp).map(|(wall_ns, ..)| wall_ns);
        let since_ns = walls_ns.chain(new).map(|wall_ns| wall_ns.saturating_sub(self.highest_ns));
        since_ns.min_by_key(|since_ns| since_ns.abs_diff(near_ns)).unwrap_or(i64::MIN)
    }

    /// Applies what was found of a stamp. Returns the wall time of the main clock at it, in ns, as [`Self::on_main`].
    pub fn apply(&mut self, verdict: Verdict, stamp: Stamp) -> i64 {
        match verdict {
            Verdict::OtherClock => match self.near_of_source(stamp) {
                Some(index) => self.on_other(index, stamp),
                None => self.begin_other(stamp, self.highest_ns, false),
            },
            Verdict::Undecided => self.begin_other(stamp, self.highest_ns, true),
            Verdict::Ambiguous => {
                self.doubt = self.doubt.max(TimeDoubt::Undecided);
                self.begin_other(stamp, self.highest_ns, false)
            }
            Verdict::Passed(wall_ns) => {
                self.pass(wall_ns);
                self.main_left_ns = None;
                wall_ns
            }
            Verdict::PassedBefore(wall_ns) => {
                self.pass(wall_ns);
                self.begin_other(stamp, wall_ns, false)
            }
            Verdict::Set | Verdict::SetUndecided => {
                if verdict == Verdict::SetUndecided || self.is_in_doubt(stamp.clock) {
                    self.doubt = self.doubt.max(TimeDoubt::Undecided);
                }
                if self.is_of_before(stamp) {
                    self.doubt = TimeDoubt::Passed;
                }
                self.set(stamp);
                stamp.time_ns
            }
        }
    }

    /// Records that time passes up to this wall time of the main clock.
    fn pass(&mut self, wall_ns: i64) {
        let leap_ns = wall_ns.saturating_sub(self.highest_ns);
        self.passed_from = Some((self.highest_ns, self.elapsed_ns().saturating_add(leap_ns)));
        self.forget_passed(wall_ns);
    }

    /// Forgets the clocks that were in doubt and are on the way to a time that has passed: their stamps were of that
    /// time, and such as come later would be mapped to where it began. The doubt stays: what began by one of them began
    /// before that time, for all that its tick says.
    fn forget_passed(&mut self, until_ns: i64) {
        let passed_ns = self.highest_ns..=until_ns.saturating_add(FOLLOWS_MAX_NS);
        let mut others = std::mem::take(&mut self.others);
        others.retain(|other| {
            let is_passed =
                other.is_doubtful && self.main_names.0 & other.names.0 != 0 && passed_ns.contains(&other.last_ns);
            if is_passed {
                self.doubt = self.doubt.max(TimeDoubt::Undecided);
                let of_it = self.sources.iter_mut().filter(|source| source.last == other.number);
                of_it.for_each(|source| source.last = self.main_number);
            }
            !is_passed
        });
        self.others = others;
    }

    /// Whether a stamp is where a clock of its source was before the last time that was taken to have passed without
    /// packets, and what has passed since.
    fn is_of_before(&self, stamp: Stamp) -> bool {
        self.passed_from.is_some_and(|(from_ns, since_ns)| {
            let until_ns =
                from_ns.saturating_add(self.elapsed_ns().saturating_sub(since_ns)).saturating_add(FOLLOWS_MAX_NS);
            let before_ns = from_ns.saturating_sub(FOLLOWS_MAX_NS)..=until_ns;
            self.walls_ns(stamp).any(|(wall_ns, ..)| before_ns.contains(&wall_ns) && !is_near(wall_ns, self.highest_ns))
        })
    }

    /// Whether this source goes by a clock that may be none. What the clock has shown is lost when another is set.
    fn is_in_doubt(&self, source: ClockName) -> bool {
        self.others.iter().any(|other| other.is_doubtful && other.names.has(source))
    }

    /// Begins a clock beside the main one, which shows `wall_ns`. Returns that.
    fn begin_other(&mut self, stamp: Stamp, wall_ns: i64, is_doubtful: bool) -> i64 {
        self.main_left_ns.get_or_insert(wall_ns);
        let number = self.number();
        self.sources[stamp.clock.index()].stamps_few();
        self.remember(OtherClock {
            number,
            names: Names::of(stamp.clock),
            ahead_ns: i128::from(stamp.time_ns) - i128::from(wall_ns),
            last_ns: stamp.time_ns,
            used_at_ns: self.elapsed_ns(),
            packets: 1,
            is_doubtful,
            is_of_before: self.is_of_before(stamp),
        });
        wall_ns
    }

    /// The number of a new clock.
    fn number(&mut self) -> ClockNumber {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        number
    }

    /// Remembers another clock, if need be in place of the one that was silent longest: of those with the fewest
    /// packets, if there are any.
    fn remember(&mut self, other: OtherClock) {
        let elapsed_ns = self.elapsed_ns();
        self.others.retain(|other| other.is_settled() || elapsed_ns.saturating_sub(other.used_at_ns) <= OTHER_KEPT_NS);
        if self.others.len() >= OTHER_CLOCKS_MAX {
            let least = self.others.iter().rposition(|other| !other.is_settled());
            self.others.remove(least.unwrap_or(OTHER_CLOCKS_MAX - 1));
        }
        self.others.insert(0, other);
    }

    /// Makes a clock that shows this wall time now the main one. That takes one tick, so that no two bases share a
    /// tick.
    fn set(&mut self, Stamp { time_ns: wall_ns, clock }: Stamp) {
        let ahead_ns = i128::from(self.highest_ns) - i128::from(wall_ns);
        self.others.iter_mut().for_each(|other| other.ahead_ns += ahead_ns);
        let last_ns = self.main_left_ns.take().unwrap_or(self.highest_ns);
        let used_at_ns = self.elapsed_ns();
        let packets = if self.is_main_settled() { OTHER_PACKETS_MIN } else { 1 };
        self.tick += 1;
        self.run(TICK_NS, wall_ns);
        let next_number = self.number();
        let number = std::mem::replace(&mut self.main_number, next_number);
        let names = std::mem::replace(&mut self.main_names, Names::of(clock));
        // The source has left the clock that it went by.
        self.sources[clock.index()].leave_for(next_number);
        self.main_packets = 1;
        let (is_doubtful, is_of_before) = (false, false);
        self.remember(OtherClock { number, names, ahead_ns, last_ns, used_at_ns, packets, is_doubtful, is_of_before });
        self.passed_from = None;
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

    /// The wall time at which the present tick ends, in ns.
    #[must_use]
    #[inline]
    pub fn tick_ends_ns(&self) -> i64 {
        self.tick_ends_ns
    }

    /// Moves on to a packet with this stamp of the main clock, before [`Self::tick_ends_ns`], if it is not earlier than
    /// the packet before, as is so for nearly all. Otherwise it returns false and changes nothing.
    #[inline]
    pub fn advance_within_tick(&mut self, stamp_ns: i64) -> bool {
        debug_assert!(stamp_ns < self.tick_ends_ns);
        let is_later = self.highest_ns <= stamp_ns;
        if is_later {
            self.highest_ns = stamp_ns;
        }
        is_later
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
        let is_doubtful = self.others.iter().any(|other| other.is_doubtful);
        self.doubt.max(if is_doubtful { TimeDoubt::Undecided } else { TimeDoubt::None })
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
    use proptest::test_runner::RngSeed;

    const SECOND_NS: i64 = 1_000_000_000;

    /// How far the line may be from true time: a stamp may be as far from another that it follows, on either side.
    const TOLERANCE_NS: i64 = 2 * FOLLOWS_MAX_NS;

    /// The worlds that each law is held against: the same in each run, unless `PROPTEST_RNG_SEED` and `PROPTEST_CASES`
    /// ask for others.
    fn worlds_tried() -> ProptestConfig {
        let config = ProptestConfig::default();
        let is_chosen = config.rng_seed != RngSeed::Random;
        ProptestConfig { rng_seed: if is_chosen { config.rng_seed } else { RngSeed::Fixed(1) }, ..config }
    }

    /// What a run of the clock over these stamps, in seconds, shows at each of them, in order: how long it has run, in
    /// seconds.
    fn run(clock: &mut Clock, stamps_s: &[i64]) -> Vec<i64> {
        let stamps: Vec<Stamp> =
            stamps_s.iter().map(|stamp_s| Stamp::unnamed(stamp_s.saturating_mul(SECOND_NS))).collect();
        follow(clock, &stamps).into_iter().map(|elapsed_ns| elapsed_ns / SECOND_NS).collect()
    }

    /// What the clock shows at each of these stamps, in order: how long it has run, in ns.
    fn follow(clock: &mut Clock, stamps: &[Stamp]) -> Vec<i64> {
        let mut elapsed_ns = Vec::new();
        for (at, stamp) in stamps.iter().enumerate() {
            let wall_ns = clock.on_main(*stamp).unwrap_or_else(|| {
                let waiting = &stamps[at..stamps.len().min(at + JUDGED_COUNT_MAX)];
                let verdict = (1..waiting.len()).find_map(|count| clock.judge(&waiting[..count], false));
                let verdict = verdict.or_else(|| clock.judge(waiting, at + waiting.len() == stamps.len()));
                clock.apply(verdict.expect("no more stamps have to come"), *stamp)
            });
            clock.advance(wall_ns);
            elapsed_ns.push(clock.elapsed_ns());
        }
        elapsed_ns
    }

    #[test]
    fn ticks_follow_the_wall_clock() {
        let mut clock = Clock::new(Stamp::unnamed(1_000 * SECOND_NS + 250_000_000));
        let first = clock.tick();
        clock.advance(1_000 * SECOND_NS + 299_999_999);
        assert_eq!(clock.tick(), first);
        clock.advance(1_000 * SECOND_NS + 300_000_000);
        assert_eq!(clock.tick(), first + 1);
        assert_eq!(clock.time_base().wall_ns(first), 1_000 * SECOND_NS + 200_000_000);
    }

    #[test]
    fn jitter_does_not_make_time_run_faster() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        let first = clock.tick();
        run(&mut clock, &[10, 0].repeat(10_000));
        assert_eq!(clock.tick() - first, 100);
    }

    #[test]
    fn a_clock_that_is_set_back_starts_a_new_base_and_time_goes_on() {
        let mut clock = Clock::new(Stamp::unnamed(1_000_000 * SECOND_NS));
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
            let mut clock = Clock::new(Stamp::unnamed(0));
            assert_eq!(run(&mut clock, &stamps)[2_999], 999, "{ahead_s}");
            assert_eq!(clock.doubt(), TimeDoubt::None);
        }
    }

    #[test]
    fn a_wrong_stamp_is_no_time() {
        for leap_s in [-1_000_000_000, -3_000, -61, 61, 3_600, 2_000_000, 1_000_000_000] {
            let mut stamps: Vec<i64> = (0..400).collect();
            stamps[200] += leap_s;
            let mut clock = Clock::new(Stamp::unnamed(0));
            assert_eq!(run(&mut clock, &stamps)[399], 399, "{leap_s}");
            assert_eq!(clock.doubt(), TimeDoubt::None);
        }
    }

    #[test]
    fn where_time_without_packets_ends_at_a_wrong_stamp_it_is_in_doubt() {
        for (end_s, has_doubt) in [(320, true), (400, true), (500, false)] {
            let mut stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + end_s)).collect();
            stamps[95] = 95 + 260;
            let mut clock = Clock::new(Stamp::unnamed(0));
            let elapsed = run(&mut clock, &stamps);
            assert_eq!(clock.doubt() != TimeDoubt::None, has_doubt, "{end_s}");
            assert!(has_doubt || elapsed[199] == end_s + 99, "{end_s}");
        }
    }

    #[test]
    fn wrong_stamps_before_a_gap_that_another_soon_follows_are_no_time() {
        for between_count in 1..AGREEING_COUNT as i64 {
            let mut clock = Clock::new(Stamp::unnamed(0));
            let between = 83_000..83_000 + between_count;
            let stamps: Vec<i64> = (0..=100).chain([400_000; 3]).chain(between).chain(1_900_000..1_900_100).collect();
            let elapsed = run(&mut clock, &stamps);
            assert_eq!(elapsed[101..105], [100, 100, 100, 83_000], "{between_count}");
            // One alone may be wrong as well.
            let doubt = if between_count == 1 { TimeDoubt::Undecided } else { TimeDoubt::None };
            assert_eq!((elapsed.last(), clock.doubt()), (Some(&1_900_099), doubt), "{between_count}");
        }
    }

    #[test]
    fn a_wrong_stamp_behind_which_packets_come_in_order_is_not_where_the_clock_was_set_to() {
        for wrong_s in [-40_000_000, -3_000, -1_000] {
            let sparse = [500, 579, 610, 910, 911, 980, 1_080, 1_160, 1_500, 1_650];
            let stamps: Vec<i64> = (0..=400).chain([wrong_s]).chain(sparse).chain(1_800..1_900).collect();
            let mut clock = Clock::new(Stamp::unnamed(0));
            let elapsed = run(&mut clock, &stamps);
            assert_eq!((elapsed.last(), clock.highest_ns()), (Some(&1_899), 1_899 * SECOND_NS), "{wrong_s}");
        }
    }

    #[test]
    fn a_wrong_stamp_to_whose_time_packets_come_soon_is_no_time() {
        let between = [300, 301, 302, 1_200, 1_201, 1_800, 1_801];
        let soon = 2_010..2_020;
        let stamps: Vec<i64> = (0..=50).chain([2_050]).chain(between).chain(soon).chain(3_000..3_100).collect();
        let mut clock = Clock::new(Stamp::unnamed(0));
        let elapsed = run(&mut clock, &stamps);
        assert_eq!(elapsed[51], 50);
        assert!(elapsed.iter().zip(&stamps).all(|(elapsed_s, stamp_s)| elapsed_s <= stamp_s), "{elapsed:?}");
        assert_eq!(elapsed.last(), Some(&3_099));
    }

    #[test]
    fn a_wrong_stamp_that_seems_to_go_on_from_before_a_gap_does_not() {
        let stamps: Vec<i64> = (0..=100).chain(600..605).chain([120]).chain(605..705).collect();
        let mut clock = Clock::new(Stamp::unnamed(0));
        assert_eq!((run(&mut clock, &stamps).last(), clock.doubt()), (Some(&704), TimeDoubt::None));
    }

    #[test]
    fn time_without_packets_passes() {
        for gap_s in [61, 21_600, 29 * 86_400] {
            let stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + 99 + gap_s)).collect();
            let mut clock = Clock::new(Stamp::unnamed(0));
            assert_eq!(run(&mut clock, &stamps)[199], 198 + gap_s, "{gap_s}");
        }
        let sparse: Vec<i64> = (0..50).map(|at| at * 300).collect();
        let elapsed = run(&mut Clock::new(Stamp::unnamed(0)), &sparse);
        // Of the last ones, as many as wrong stamps may be, it is not known.
        assert_eq!(elapsed[..45], sparse[..45]);
    }

    #[test]
    fn a_leap_of_more_than_a_month_is_a_clock_that_was_set() {
        let stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + 1_700_000_000)).collect();
        let mut clock = Clock::new(Stamp::unnamed(0));
        assert_eq!(run(&mut clock, &stamps)[199], 198);
        assert_eq!(clock.time_base().wall_ns(clock.tick()), 1_700_000_099 * SECOND_NS);
    }

    #[test]
    fn a_clock_that_was_set_is_the_main_one_although_pauses_follow() {
        for (set_s, first) in [(1_700_000_000, 100), (-1_000_000, 100), (1_700_000_000, 2), (-1_000_000, 2)] {
            let behind = (0..150).map(|at| first + 2 * at + 70 * (at / 20).min(3));
            let stamps: Vec<i64> = (0..first).chain(behind.clone().map(|at| at + set_s)).collect();
            let mut clock = Clock::new(Stamp::unnamed(0));
            // The first packet of a clock that was set is of the next tick.
            let elapsed = run(&mut clock, &stamps).split_off(first as usize);
            assert_eq!(elapsed, behind.map(|at| at - 1).collect::<Vec<_>>(), "{set_s} behind {first}");
            assert_eq!(clock.highest_ns(), stamps[stamps.len() - 1] * SECOND_NS, "{set_s} behind {first}");
            assert_eq!(clock.doubt(), TimeDoubt::None, "{set_s} behind {first}");
        }
    }

    #[test]
    fn a_clock_that_is_set_to_about_where_a_wrong_stamp_was_does_not_follow_that() {
        for wrong_count in [1, 2] {
            let mut stamps: Vec<i64> = (0..400).map(|at| if at < 200 { at } else { at - 5_000 }).collect();
            (0..wrong_count).for_each(|at| stamps[100 + 20 * at] = -4_760);
            let mut clock = Clock::new(Stamp::unnamed(0));
            assert_eq!(run(&mut clock, &stamps)[399], 398, "{wrong_count}");
            assert_eq!(clock.highest_ns(), stamps[399] * SECOND_NS, "{wrong_count}");
            assert_eq!(clock.doubt(), TimeDoubt::None, "{wrong_count}");
        }
    }

    #[test]
    fn a_clock_whose_few_packets_are_near_to_what_follows_is_not_the_main_one_when_that_pauses() {
        let behind = -3_386_180;
        let mut stamps = vec![1, 1 + behind, 1 + behind, 1, 1, 1 + behind, 13 + behind];
        stamps.extend((0..60).flat_map(|at| [65 + 2 * at, 65 + 2 * at + behind]));
        let mut clock = Clock::new(Stamp::unnamed(0));
        assert_eq!(run(&mut clock, &stamps)[stamps.len() - 1], 183);
        assert_eq!(clock.highest_ns(), 183 * SECOND_NS);
        assert_eq!(clock.doubt(), TimeDoubt::None);
    }

    #[test]
    fn what_nothing_follows_is_undecided_and_no_time() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        assert_eq!(run(&mut clock, &[0, 1, 2, 3_602])[3], 2);
        assert_eq!(clock.doubt(), TimeDoubt::Undecided);
    }

    #[test]
    fn of_one_clock_six_packets_behind_a_gap_show_at_the_end_that_it_has_passed() {
        let behind = |count: i64| (0..10).chain((0..count).map(|at| at + 3_600)).collect::<Vec<_>>();
        let other = || (0..10).flat_map(|at| [at, at + 100_000]).chain((0..6).map(|at| at + 3_600)).collect();
        let wrong = [behind(6), vec![7_777]].concat();
        for (stamps, has_passed) in [(behind(6), true), (behind(5), false), (other(), false), (wrong, false)] {
            let mut clock = Clock::new(Stamp::unnamed(0));
            let elapsed = run(&mut clock, &stamps);
            assert_eq!(elapsed[elapsed.len() - 1] >= 3_600, has_passed, "{stamps:?}");
            assert_eq!(clock.doubt() == TimeDoubt::None, has_passed, "{stamps:?}");
        }
    }

    #[test]
    fn a_clock_that_comes_back_after_a_gap_makes_time_uncertain() {
        let stamps: Vec<i64> = (0..100).chain((0..100).map(|at| at + 3_699)).chain(100..110).collect();
        let mut clock = Clock::new(Stamp::unnamed(0));
        assert_eq!(run(&mut clock, &stamps)[209], 3_807, "another clock begins where the line is");
        assert_eq!(clock.doubt(), TimeDoubt::Passed);
    }

    #[test]
    fn a_gap_of_two_clocks_passes_once() {
        let taken = |from: i64| (from..from + 200).flat_map(|at| [at, at - 300]);
        let mut clock = Clock::new(Stamp::unnamed(0));
        let elapsed = run(&mut clock, &taken(0).chain(taken(7_200)).collect::<Vec<_>>());
        assert_eq!(elapsed[799], 7_399);
    }

    #[test]
    fn two_clocks_as_far_apart_as_a_handshake_waits_pass_no_time() {
        // The second is ahead by a minute, and its packets come now before the same ones at the first, now behind them.
        let ahead_ns = 60 * SECOND_NS;
        let taken = |at: i64| {
            let skew_ns = if at % 3 == 2 { -50_000 } else { 50_000 };
            [at * 1_000_000, at * 1_000_000 + ahead_ns + skew_ns].map(Stamp::unnamed)
        };
        let mut clock = Clock::new(Stamp::unnamed(0));
        let elapsed_ns = follow(&mut clock, &(0..1_000).flat_map(taken).collect::<Vec<_>>());
        assert_eq!((elapsed_ns[1_999], clock.doubt()), (999 * 1_000_000, TimeDoubt::None));
    }

    #[test]
    fn a_clock_that_began_in_doubt_before_time_that_passed_is_the_main_one() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        run(&mut clock, &(0..=400).collect::<Vec<_>>());
        // A few packets behind each of several gaps say nothing, and six in order that time has passed.
        let sparse: Vec<i64> = (1..=6).flat_map(|gap| [400 + 95 * gap, 401 + 95 * gap]).collect();
        run(&mut clock, &sparse);
        run(&mut clock, &(0..200).map(|second| 1_100 + second).collect::<Vec<_>>());
        assert_eq!(clock.elapsed_ns(), 1_299 * SECOND_NS);
        // What is 95 s later does not follow a clock that is as far ahead.
        assert!(clock.others.iter().all(|other| !other.is_doubtful), "{:?}", clock.others);
        assert!(!clock.knows(Stamp::unnamed((1_299 + 95) * SECOND_NS)));
    }

    #[test]
    fn what_began_in_doubt_has_a_start_in_doubt_when_time_has_passed_after_all() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        run(&mut clock, &[0, 0, 0, 1, 1, 2]);
        // Too few packets behind the first two gaps to say anything, and three near to each other behind the last.
        let elapsed_s = run(&mut clock, &[150, 150, 450, 450, 603, 603, 664, 704, 744]);
        assert_eq!((elapsed_s[5], elapsed_s[8]), (2, 744));
        assert_eq!(clock.doubt(), TimeDoubt::Undecided);
    }

    #[test]
    fn a_clock_that_was_set_back_passes_where_it_was_before() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        run(&mut clock, &(0..=1_000).collect::<Vec<_>>());
        // Back by 930 s, and then without packets past where it was when it was set.
        let set: Vec<i64> = (70..=950).collect();
        let elapsed = run(&mut clock, &set);
        assert_eq!(elapsed.last(), Some(&1_880));
        let elapsed = run(&mut clock, &(1_050..1_200).collect::<Vec<_>>());
        assert_eq!((elapsed[0], elapsed[149], clock.doubt()), (1_980, 2_129, TimeDoubt::None));
    }

    #[test]
    fn a_clock_that_was_set_back_is_not_the_one_before_although_wrong_stamps_come_between() {
        for wrong_count in 0..AGREEING_COUNT {
            // Back by 230 s and, behind a gap, about where it was when it was set.
            let mut stamps: Vec<i64> = (0..400).chain(170..=370).chain(431..531).collect();
            (0..wrong_count).for_each(|at| stamps[577 + 5 * at] = 5_000);
            let mut clock = Clock::new(Stamp::unnamed(0));
            let elapsed = run(&mut clock, &stamps);
            assert_eq!((elapsed[700], clock.doubt()), (759, TimeDoubt::None), "{wrong_count}");
        }
    }

    #[test]
    fn a_wrong_stamp_that_packets_behind_gaps_are_near_to_takes_no_doubt_away() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        run(&mut clock, &(0..=400).chain([614]).chain(401..=420).collect::<Vec<_>>());
        // Behind gaps of 102 s and 131 s, the second as long as the wrong stamp was ahead and the clock is behind.
        run(&mut clock, &[522, 522, 540, 671, 671, 671, 672]);
        assert_eq!(clock.doubt(), TimeDoubt::Undecided);
    }

    #[test]
    fn a_clock_that_is_set_takes_no_doubt_away() {
        let mut clock = Clock::new(Stamp::unnamed(0));
        // Too few for the source to go by one clock alone.
        let before = (0..270).step_by(10).chain([638]).chain((270..=530).step_by(10));
        // They seem to follow the wrong stamp, long enough for the source to go by that clock alone.
        let behind_gap = (593..=983).step_by(5);
        let stamps: Vec<i64> = before.chain(behind_gap).chain(1_055..1_200).collect();
        let elapsed_s = run(&mut clock, &stamps);
        assert!(elapsed_s.last().is_some_and(|elapsed_s| *elapsed_s < 1_000), "time is not known");
        assert_eq!(clock.doubt(), TimeDoubt::Undecided);
    }

    #[test]
    fn which_of_two_clocks_goes_on_behind_a_gap_as_long_as_they_are_apart_is_in_doubt() {
        // Two taps that stamp every packet, 304 s apart.
        let taken = |at: i64| [at, at - 304];
        let mut clock = Clock::new(Stamp::unnamed(0));
        run(&mut clock, &(0..=400).flat_map(taken).collect::<Vec<_>>());
        assert_eq!((clock.elapsed_ns() / SECOND_NS, clock.doubt()), (400, TimeDoubt::None));
        // By the second clock the first tap's next stamp may be of a moment ago.
        run(&mut clock, &taken(700));
        assert_eq!(clock.doubt(), TimeDoubt::Undecided);
    }

    #[test]
    fn two_clocks_that_show_the_same_gap_have_passed_it_although_one_seems_to_go_on() {
        // Two taps that stamp every packet, 85 s apart, and pauses after which either shows what the other did lately.
        for ahead_s in [-85, 85] {
            let taken = |at: i64| [at, at + ahead_s];
            for first in [[0, 1], [1, 0]] {
                let mut clock = Clock::new(Stamp::unnamed(0));
                let bursts = [0..=20, 120..=122, 170..=172, 190..=192, 276..=278, 366..=368, 434..=440, 524..=526];
                let stamps: Vec<i64> =
                    bursts.into_iter().flatten().flat_map(|at| first.map(|tap| taken(at)[tap])).collect();
                run(&mut clock, &stamps[usize::from(first[0] == 1)..]);
                assert_eq!(
                    (clock.elapsed_ns() / SECOND_NS, clock.doubt()),
                    (526, TimeDoubt::None),
                    "{ahead_s} {first:?}"
                );
            }
        }
    }

    /// Packets whose true times are known, and the stamps that clocks gave them which cannot be trusted.
    #[derive(Clone)]
    struct World {
        /// What the clock of each source shows more than the first, in seconds.
        ahead_s: Vec<i64>,
        /// The source of each packet, as a part of their number, and how long it comes after the packet before, in ms.
        packets: Vec<(u8, i64)>,
        /// Time without packets before some packets, in seconds.
        gaps_s: Vec<(usize, i64)>,
        /// Where wrong stamps begin, and by how much each of them is wrong, in seconds.
        wrong_s: Vec<(usize, Vec<i64>)>,
        /// Where the clocks of some sources are set, as bits, and by how much, in seconds.
        set_s: Option<(usize, u8, i64)>,
    }

    /// On one line for each field.
    impl std::fmt::Debug for World {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let World { ahead_s, packets, gaps_s, wrong_s, set_s } = self;
            writeln!(f, "ahead {ahead_s:?}, gaps {gaps_s:?}, wrong {wrong_s:?}, set {set_s:?}\n{packets:?}")
        }
    }

    impl World {
        /// Whether stamps that are wrong by so much may be where a clock was before a gap, or be of another clock.
        fn resembles_right(&self, wrong_s: i64) -> bool {
            let gaps_s: Vec<i64> = self.gaps_s.iter().map(|(_, gap_s)| *gap_s).collect();
            let apart_s = self.ahead_s.iter().flat_map(|of_s| self.ahead_s.iter().map(move |ahead_s| of_s - ahead_s));
            let apart_s = apart_s.filter(|apart_s| *apart_s >= 120);
            let all_s = gaps_s.iter().copied().chain([gaps_s.iter().sum()]).chain(apart_s);
            all_s.into_iter().any(|all_s: i64| (wrong_s.abs() - all_s).abs() < 5_000)
        }

        /// Whether wrong stamps of two places seem to be of one clock, or follow each other.
        fn has_wrong_that_agree(&self) -> bool {
            let is_pair = |(at, wrong_s): &(usize, Vec<i64>), (other_at, other_s): &(usize, Vec<i64>)| {
                let is_near = wrong_s.iter().any(|wrong_s| other_s.iter().any(|s| (wrong_s - s).abs() < 5_000));
                is_near || at.abs_diff(*other_at) < 2 * AGREEING_COUNT
            };
            let pairs = self.wrong_s.iter().enumerate();
            pairs.into_iter().any(|(at, wrong)| self.wrong_s[at + 1..].iter().any(|other| is_pair(wrong, other)))
        }

        /// When each packet came, after the first, and its stamp.
        fn packets(&self) -> (Vec<i64>, Vec<Stamp>) {
            let mut now_ns = 0;
            let (mut true_ns, mut stamps) = (Vec::new(), Vec::new());
            for (at, (source, step_ms)) in self.packets.iter().enumerate() {
                let gap_s = self.gaps_s.iter().find(|(gap_at, _)| *gap_at == at).map_or(0, |(_, gap_s)| *gap_s);
                now_ns += gap_s * SECOND_NS + if at == 0 { 0 } else { step_ms * 1_000_000 };
                let source = usize::from(*source) % self.ahead_s.len();
                let is_set = |(set_at, sources, _): &(usize, u8, i64)| at >= *set_at && sources >> source & 1 == 1;
                let set_s = self.set_s.filter(is_set).map_or(0, |(_, _, set_s)| set_s);
                let wrong_s =
                    self.wrong_s.iter().find_map(|(wrong_at, wrong_s)| wrong_s.get(at.checked_sub(*wrong_at)?));
                let ahead_s = self.ahead_s[source] + set_s + wrong_s.unwrap_or(&0);
                true_ns.push(now_ns);
                stamps.push(Stamp {
                    time_ns: 1_700_000_000 * SECOND_NS + now_ns + ahead_s * SECOND_NS,
                    clock: ClockName::of_source(source),
                });
            }
            (true_ns, stamps)
        }

        /// That the line shows the true time, to as near as stamps follow each other, or less where it says so.
        fn check(&self) -> std::result::Result<(), TestCaseError> {
            let (true_ns, stamps) = self.packets();
            let mut clock = Clock::new(stamps[0]);
            let elapsed_ns = follow(&mut clock, &stamps);
            // A wrong stamp may show that a gap behind it has passed: until the next packet nothing can time out.
            let is_wrong =
                |at: usize| self.wrong_s.iter().any(|(from, wrong_s)| (*from..from + wrong_s.len()).contains(&at));
            for (at, elapsed_ns) in elapsed_ns.iter().enumerate() {
                let next = (at..true_ns.len()).find(|at| !is_wrong(*at)).unwrap_or(true_ns.len() - 1);
                let early_ns = elapsed_ns - true_ns[next];
                prop_assert!(early_ns <= TOLERANCE_NS, "{} s early at {at}", early_ns / SECOND_NS);
            }
            let late_ns = true_ns[true_ns.len() - 1] - elapsed_ns[elapsed_ns.len() - 1];
            let is_exact = late_ns <= TOLERANCE_NS && clock.doubt() == TimeDoubt::None;
            prop_assert!(
                is_exact || clock.doubt() == TimeDoubt::Undecided,
                "{} s late {:?}",
                late_ns / SECOND_NS,
                clock.doubt()
            );
            Ok(())
        }

        /// As [`Self::check`], where nothing is uncertain.
        fn check_certain(&self) -> std::result::Result<(), TestCaseError> {
            self.check()?;
            let (_, stamps) = self.packets();
            let mut clock = Clock::new(stamps[0]);
            follow(&mut clock, &stamps);
            prop_assert_eq!(clock.doubt(), TimeDoubt::None);
            Ok(())
        }
    }

    fn leap_s() -> impl Strategy<Value = i64> {
        prop_oneof![-1_500_000_000i64..-130, 130i64..1_500_000_000, -4_000i64..-130, 130i64..2_500_000]
    }

    fn wrong_s() -> impl Strategy<Value = Vec<i64>> {
        let burst = (leap_s(), 2usize..6).prop_map(|(leap_s, count)| vec![leap_s; count]);
        prop_oneof![leap_s().prop_map(|leap_s| vec![leap_s]), burst, prop::collection::vec(leap_s(), 2..6)]
    }

    fn packets(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u8, i64)>> {
        (prop_oneof![Just(20i64), Just(1_000), Just(4_000)], prop::collection::vec((any::<u8>(), 0.0..1.0), count))
            .prop_map(|(most_ms, packets)| {
                packets.into_iter().map(|(source, part)| (source, (most_ms as f64 * part) as i64)).collect()
            })
    }

    fn gap_s() -> impl Strategy<Value = i64> {
        prop_oneof![70i64..1_000, 3_000i64..100_000, 100_000i64..2_500_000]
    }

    /// Worlds of this many sources, with clocks of their own.
    fn worlds(sources: std::ops::Range<usize>) -> impl Strategy<Value = World> {
        let ahead_s = prop::collection::vec(prop_oneof![Just(0), -10i64..10, leap_s()], sources);
        let wrong_s = prop::collection::vec((0usize..500, wrong_s()), 0..4);
        let gaps_s = prop::collection::vec((20usize..400, gap_s()), 0..3);
        (ahead_s, packets(500..501), gaps_s, wrong_s)
            .prop_map(|(mut ahead_s, mut packets, gaps_s, mut wrong_s)| {
                ahead_s[0] = 0;
                // Whoever comes first behind a gap may be as far behind as that.
                packets.iter_mut().zip(0..12).for_each(|((source, _), at)| *source = at);
                // More that agree are all that there is.
                let first = wrong_s.iter_mut().filter(|(at, _)| *at < JUDGED_COUNT_MIN);
                first.for_each(|(_, wrong_s)| wrong_s.truncate(JUDGED_COUNT_MIN - 1));
                World { ahead_s, packets, gaps_s, wrong_s, set_s: None }
            })
            .prop_filter(
                "wrong stamps show another clock, a clock before a gap, or more than a few the same",
                |world| {
                    let wrong_s = || world.wrong_s.iter().flat_map(|(_, wrong_s)| wrong_s);
                    !wrong_s().any(|wrong_s| world.resembles_right(*wrong_s)) && !world.has_wrong_that_agree()
                },
            )
    }

    proptest! {
        #![proptest_config(worlds_tried())]

        #[test]
        fn one_clock_shows_true_time(world in worlds(1..2)) {
            world.check()?;
        }

        #[test]
        fn clocks_with_names_show_true_time(world in worlds(2..5)) {
            world.check()?;
        }

        /// Each clock comes back within a few packets, and stamps that are wrong are not the first or the last.
        #[test]
        fn clocks_that_come_back_are_certain(mut world in worlds(1..4)) {
            let is_within = |at: usize| (100..380).contains(&at);
            world.gaps_s.retain(|(at, _)| is_within(*at));
            world.wrong_s.retain(|(at, _)| is_within(*at));
            world.check_certain()?;
        }

        #[test]
        fn a_clock_that_is_set_is_no_time(
            mut world in worlds(1..4),
            at in 100usize..150,
            sources in any::<u8>(),
            set_s in prop_oneof![-1_500_000_000i64..-130, 2_700_000i64..1_500_000_000],
        ) {
            // Each source has made enough stamps since that it has left the clock before.
            world.gaps_s.retain(|(gap_at, _)| *gap_at + 70 < at || *gap_at > at + 3 * 90);
            world.wrong_s.retain(|(wrong_at, _)| wrong_at.abs_diff(at) > 5);
            World { set_s: Some((at, sources, set_s)), ..world }.check()?;
        }

        /// A clock is set back. Wrong stamps follow, and then a gap, which ends near the last stamp before the setting.
        /// It does not end where the clock would be without that: such a stamp follows the clock from before.
        #[test]
        fn a_clock_that_was_set_back_is_not_the_one_before(
            mut world in worlds(1..2),
            at in 100usize..150,
            (gap_at, gap_s) in (420usize..490, 51i64..400),
            beyond_s in -60i64..50,
        ) {
            world.packets.iter_mut().for_each(|(_, step_ms)| *step_ms += 400);
            let since_ms: i64 = world.packets[at..=gap_at].iter().map(|(_, step_ms)| step_ms).sum();
            world.gaps_s = vec![(gap_at, gap_s)];
            world.wrong_s.retain(|(wrong_at, wrong_s)| {
                (at + 5..gap_at - 10).contains(wrong_at) && wrong_s.iter().all(|wrong_s| wrong_s.abs() > 6_000)
            });
            World { set_s: Some((at, 1, beyond_s - since_ms / 1_000 - gap_s)), ..world }.check()?;
        }

        /// Many packets are far from the ones before, and one has a wrong stamp, at no time that another has shown.
        #[test]
        fn a_wrong_stamp_among_packets_far_apart_is_no_time(
            steps_ms in prop::collection::vec(prop_oneof![0i64..2_000, 0i64..2_000, 51_000i64..1_000_000], 150..200),
            at in 60usize..190,
            wrong_s in leap_s(),
        ) {
            let steps_ms = [vec![500; 50], steps_ms, vec![500; 100]].concat();
            let packets = steps_ms.into_iter().map(|step_ms| (0, step_ms)).collect();
            let world = World { ahead_s: vec![0], packets, gaps_s: vec![], wrong_s: vec![(at, vec![wrong_s])], set_s: None };
            let (_, stamps) = world.packets();
            let is_near_another = stamps.iter().enumerate().any(|(other_at, other)| {
                other_at != at && is_near(other.time_ns, stamps[at].time_ns)
            });
            prop_assume!(!is_near_another);
            world.check()?;
        }

        /// Each source is silent for longer than it takes to judge, while another one speaks.
        #[test]
        fn clocks_with_names_may_be_silent(mut world in worlds(2..4), length in 65usize..200) {
            // Not the first stamps of a source, as above.
            let is_within = |at: usize, end: usize| at % length >= JUDGED_COUNT_MIN && end <= length;
            world.wrong_s.retain(|(at, wrong_s)| is_within(*at, at % length + wrong_s.len()));
            let packets = world.packets.iter().enumerate();
            let packets = packets.map(|(at, (_, step_ms))| ((at / length) as u8, *step_ms)).collect();
            World { packets, gaps_s: Vec::new(), ..world }.check()?;
        }
    }

    proptest! {
        #[test]
        fn no_clock_breaks_it(stamps in prop::collection::vec(any::<i64>(), 1..200)) {
            let mut clock = Clock::new(Stamp::unnamed(stamps[0]));
            let mut before = (clock.tick(), 0);
            let stamps: Vec<Stamp> = stamps.into_iter().map(Stamp::unnamed).collect();
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
            let mut clock = Clock::new(Stamp::unnamed(0));
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
