//! Lists held against the truth.

use super::clocks::{BEGIN_US, Clocks, IntervalEnd};
use super::network::{Captured, Network, is_of_flood};
use super::truth::{Shown, Truth};
use super::wire::{End, Ends, Frame};
use super::world::World;
use flowpeel::capture::{Packet, PacketSource, Progress};
use flowpeel::engine::{Config, Plan};
use flowpeel::error::Result;
use flowpeel::list::{List, Row, RowState};
use flowpeel::run::run;
use flowpeel::signal::{FOLLOWS_MAX_NS, JUDGED_COUNT_MAX};
use std::collections::{BTreeMap, HashMap};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND_US: i64 = 1_000_000;
const TICK_US: i64 = 100_000;

/// How long before and after the end of a list what has changed is not held against it, where clocks lie: stamps that
/// are off by less than [`FOLLOWS_MAX_NS`] are of one clock, and a leap waits for the packets behind it.
const LYING_US: i64 = 200 * SECOND_US;

/// A pause from which on the next packet does not follow the last one's clock, somewhat less than the engine's.
const PAUSE_US: i64 = FOLLOWS_MAX_NS / 1_000 - SECOND_US;

/// How far a pause may be from how far a clock was set back, and seem to be that clock as it was before: somewhat more
/// than by how much stamps follow each other.
const CONFUSING_US: i64 = FOLLOWS_MAX_NS / 1_000 + 5 * SECOND_US;

/// The longest pause of which it may not be known which clock has passed it, in seconds.
const CONFUSED_MAX_S: u64 = 31 * 86_400;

/// How long a half-open connection is listed at most: the engine's timeout, and a tick.
const HALF_OPEN_US: i64 = 61 * SECOND_US;

/// The most violations that are described; all are counted.
const DESCRIBED_MAX: usize = 5;

/// What came of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Connections whose handshake was completed.
    pub(super) connections: u64,
    pub(super) packets: u64,
    pub(super) simulated_s: u64,
    pub(super) lists: u64,
    /// Lists that say that they are not complete.
    pub(super) incomplete: u64,
    /// Lists that say that their time is uncertain, and those behind a pause after which the clock may be as it was
    /// before it was set.
    pub(super) uncertain: u64,
    /// Connections that lists had to have, in all lists, and those of which nothing was certain, for each reason.
    pub(super) open: u64,
    pub(super) doubts: BTreeMap<String, u64>,
    pub(super) violations: u64,
    pub(super) described: Vec<String>,
    /// The ends of the first connection that was wrong.
    pub(super) wrong: Option<Ends>,
}

impl Held {
    /// Adds the counts of another world.
    pub(super) fn add(&mut self, other: &Held) {
        self.connections += other.connections;
        self.packets += other.packets;
        self.simulated_s += other.simulated_s;
        self.lists += other.lists;
        self.incomplete += other.incomplete;
        self.uncertain += other.uncertain;
        self.open += other.open;
        other.doubts.iter().for_each(|(why, count)| *self.doubts.entry(why.clone()).or_default() += count);
        self.violations += other.violations;
    }

    /// Connections of which nothing was certain, in all lists.
    pub(super) fn doubtful(&self) -> u64 {
        self.doubts.values().sum()
    }

    fn doubted(&mut self, why: &str) {
        match self.doubts.get_mut(why) {
            Some(count) => *count += 1,
            None => drop(self.doubts.insert(why.to_owned(), 1)),
        }
    }

    fn violated(&mut self, ends: Ends, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert(ends);
        self.violations += 1;
        if self.described.len() < DESCRIBED_MAX {
            self.described.push(what());
        }
    }
}

/// A world as a source of packets. It shares the truth with what reads the lists.
struct Source {
    network: Network,
    shared: Arc<Mutex<Shared>>,
    frame: Frame,
    is_v6: bool,
    is_finished: bool,
}

/// What the side of the packets and that of the lists both know.
struct Shared {
    truth: Truth,
    now_us: i64,
    packets: u64,
    /// The tap of the first packet, whose clock is the main one.
    main_tap: usize,
    /// When the last packet came before the clock was set, once it has been.
    last_unset_us: Option<i64>,
    /// The first pause in which time need not have passed for all that is known, as few packets followed it: when it
    /// began, and those packets.
    pause: Option<(i64, u64)>,
    /// The silence before the clock was set, from that pause on, where no time can have passed with that.
    silence_us: i64,
    /// When that silence began, while few packets have followed the clock that was set, and those packets.
    silent: Option<(i64, u64)>,
    /// When a pause behind that, or before it, was about as long as the clock was set back: the clock may be as it
    /// was before.
    confused_us: Option<i64>,
    clocks: Clocks,
    is_finished: bool,
}

impl Shared {
    /// A packet comes now, and the last one came before.
    fn passes_silence(&mut self, before_us: i64) {
        let followed = |since: Option<(i64, u64)>| {
            let followed = since.map(|(from_us, count)| (from_us, count + 1));
            followed.filter(|(_, count)| *count < JUDGED_COUNT_MAX as u64)
        };
        (self.pause, self.silent) = (followed(self.pause), followed(self.silent));
        let is_pause = self.now_us - before_us >= PAUSE_US;
        let silence_us = self.now_us - self.pause.map_or(before_us, |(from_us, _)| from_us);
        let is_alike =
            |set_us: i64| silence_us > set_us - CONFUSING_US && self.now_us - before_us < set_us + CONFUSING_US;
        let is_as_before = self.clocks.set_back_us().is_some_and(is_alike);
        if self.last_unset_us.is_none() && self.clocks.is_set(self.now_us) {
            // It may show what it showed before the pause, and the few packets since have had wrong stamps.
            let paused = self.pause.filter(|_| is_as_before);
            self.confused_us = self.confused_us.or(paused.map(|(from_us, _)| from_us));
            let is_time = self.clocks.leap_us().is_some();
            (self.silence_us, self.silent) =
                if is_time { (0, None) } else { (silence_us, Some((self.now_us - silence_us, 0))) };
            (self.last_unset_us, self.pause) = (Some(before_us), None);
        } else if is_pause {
            // The few packets since may have had wrong stamps, and the clock be set only now.
            if let Some((from_us, _)) = self.silent {
                self.silence_us = self.now_us - from_us;
            }
            let from_us = self.pause.get_or_insert((before_us, 0)).0;
            if self.last_unset_us.is_some() && is_as_before {
                self.confused_us.get_or_insert(from_us);
            }
        }
    }
}

impl PacketSource for Source {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let mut shared = self.shared.lock().unwrap();
        let captured = self.network.next(&mut shared.truth);
        let before_us = std::mem::replace(&mut shared.now_us, self.network.now_us());
        shared.passes_silence(before_us);
        let Some(Captured { tap, stamp_us, passed }) = captured else {
            shared.is_finished = true;
            self.is_finished = true;
            return Ok(None);
        };
        let now_us = shared.now_us;
        shared.clocks.shows(stamp_us, now_us);
        if shared.packets == 0 {
            shared.main_tap = tap;
            shared.clocks.begin(now_us);
        }
        shared.packets += 1;
        self.frame = passed.segment.frame(self.is_v6);
        let Frame { bytes, wire_size } = &self.frame;
        let packet = Packet { wire_size: *wire_size, ..Packet::whole(stamp_us * 1_000, Frame::LINK, bytes) };
        Ok(Some(packet))
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// A list that waits until the packets are so far behind its end that all is known which may matter.
struct Waiting {
    end_us: i64,
    is_last: bool,
    header: flowpeel::list::Header,
    rows: Vec<Row>,
}

/// Holds lists against the truth.
struct Checker {
    world: World,
    shared: Arc<Mutex<Shared>>,
    clocks: Clocks,
    margin_us: i64,
    /// The silence before the clock was set, where that is no time.
    silence_us: i64,
    shown: HashMap<Ends, Shown>,
    waiting: Vec<Waiting>,
    held: Held,
}

impl Checker {
    fn list(&mut self, list: &List) {
        let shared = Arc::clone(&self.shared);
        let mut shared = shared.lock().unwrap();
        let header = list.header;
        let (tap, last_unset_us, now_us) = (shared.main_tap, shared.last_unset_us, shared.now_us);
        let end = IntervalEnd { end_us: header.figures.end_ns / 1_000, last_unset_us, now_us };
        let end_us = shared.clocks.true_us(tap, end);
        self.waiting.push(Waiting { end_us, is_last: header.is_last, header, rows: list.rows().collect() });
        self.check_waiting(&mut shared);
    }

    fn check_waiting(&mut self, shared: &mut Shared) {
        while let Some(first) = self.waiting.first() {
            let is_known = self.margin_us == 0 || shared.is_finished || shared.now_us > first.end_us + self.margin_us;
            if !is_known {
                return;
            }
            let list = self.waiting.remove(0);
            self.silence_us = shared.silence_us;
            let is_confused = shared.confused_us.is_some_and(|confused_us| list.end_us >= confused_us);
            self.check(&list, is_confused, &mut shared.truth);
        }
    }

    fn check(&mut self, list: &Waiting, is_confused: bool, truth: &mut Truth) {
        let margin_us = self.margin_us;
        // Nothing comes behind the last list.
        let until_us = if list.is_last { i64::MAX } else { list.end_us - margin_us };
        for change in truth.take_until(until_us) {
            match change.shown {
                Shown::Absent => drop(self.shown.remove(&change.ends)),
                shown => drop(self.shown.insert(change.ends, shown)),
            }
        }
        let touched: HashMap<Ends, ()> =
            truth.coming(list.end_us.saturating_add(margin_us)).map(|change| (change.ends, ())).collect();
        self.held.lists += 1;
        self.held.incomplete += u64::from(!list.header.complete);
        let is_uncertain = list.header.figures.time_uncertain || is_confused;
        self.held.uncertain += u64::from(is_uncertain);
        if !list.header.complete || is_uncertain {
            return;
        }
        let mut found = 0;
        for row in &list.rows {
            let ends = Ends::of(End::of(row.client), End::of(row.server));
            if touched.contains_key(&ends) {
                continue;
            }
            found += u64::from(self.row(list, row, ends, truth));
        }
        let mut open = 0;
        for (ends, shown) in &self.shown {
            match shown {
                Shown::Doubtful(why) => self.held.doubted(why),
                _ if touched.contains_key(ends) => self.held.doubted("it changed near the end of the list"),
                _ => open += 1,
            }
        }
        self.held.open += open;
        if found < open {
            self.missing(list, &touched);
        }
    }

    /// Holds a row against the truth. Returns whether it is of a connection that has to be listed.
    fn row(&mut self, list: &Waiting, row: &Row, ends: Ends, truth: &Truth) -> bool {
        let end_us = list.end_us;
        let is_established = row.state == RowState::Established;
        let shown = self.shown.get(&ends).copied().unwrap_or_default();
        let described = |what: &str| describe(what, end_us, ends, &shown, Some(row));
        match shown {
            Shown::Absent if is_established => self.held.violated(ends, || described("it is listed and not open")),
            Shown::Absent => {
                let is_flood = is_of_flood(ends.0) || is_of_flood(ends.1);
                let is_attempt = |at_us: i64| end_us - at_us <= HALF_OPEN_US || self.margin_us > 0 || list.is_last;
                if !is_flood && !truth.attempt_us(&ends).is_some_and(is_attempt) {
                    self.held.violated(ends, || described("it is half-open and no SYN has passed"));
                }
            }
            Shown::Doubtful(_) => {}
            Shown::Open { client, first_us, complete_us, is_loose, .. } => {
                if !is_established {
                    return false;
                }
                let start_us = row.start_ns / 1_000;
                let tick_us = |at_us: i64| at_us - at_us.rem_euclid(TICK_US);
                let is_right = if is_loose {
                    (tick_us(first_us)..=complete_us).contains(&start_us)
                } else {
                    tick_us(first_us) == start_us && End::of(row.client) == client
                };
                let is_known = !row.midstream && !row.start_is_bound && self.world.pickup == 0;
                let age_us = row.age_ns / 1_000;
                let younger_us = self.margin_us + self.silence_us;
                let ages_us = (end_us - complete_us - younger_us)..=(end_us - first_us + self.margin_us + TICK_US);
                if is_known && self.margin_us == 0 && !is_right {
                    self.held.violated(ends, || described("its start is wrong"));
                } else if is_known && self.clocks.leap_us().is_none() && !list.is_last && !ages_us.contains(&age_us) {
                    self.held.violated(ends, || described(&format!("its age of {} s is wrong", age_us / SECOND_US)));
                }
                return true;
            }
        }
        false
    }

    fn missing(&mut self, list: &Waiting, touched: &HashMap<Ends, ()>) {
        let established = list.rows.iter().filter(|row| row.state == RowState::Established);
        let listed: HashMap<Ends, ()> =
            established.map(|row| (Ends::of(End::of(row.client), End::of(row.server)), ())).collect();
        let idle_us = self.world.idle_timeout_s as i64 * SECOND_US;
        let mut missing: Vec<(Ends, Shown)> = self.shown.iter().map(|(ends, shown)| (*ends, *shown)).collect();
        missing.sort_by_key(|(ends, _)| *ends);
        for (ends, shown) in missing {
            let Shown::Open { last_us, .. } = shown else { continue };
            let has_leaped = list.is_last || self.clocks.leap_us().is_some();
            let is_silent = idle_us > 0 && (list.end_us + self.margin_us - last_us >= idle_us || has_leaped);
            if listed.contains_key(&ends) || touched.contains_key(&ends) || is_silent {
                continue;
            }
            self.held.violated(ends, || describe("it is open and not listed", list.end_us, ends, &shown, None));
        }
    }
}

fn describe(what: &str, end_us: i64, ends: Ends, shown: &Shown, row: Option<&Row>) -> String {
    let second = |at_us: i64| (at_us - BEGIN_US) as f64 / 1e6;
    let shown = match shown {
        Shown::Open { client, first_us, complete_us, .. } => format!(
            "open, of the client {:#x}:{}, begun at {} s, complete at {} s",
            client.address,
            client.port,
            second(*first_us),
            second(*complete_us)
        ),
        other => format!("{other:?}"),
    };
    let row = row.map_or(String::new(), |row| {
        format!("; listed as {}, of {}, since {} s", row.state.name(), row.client, second(row.start_ns / 1_000))
    });
    let Ends(one, other) = ends;
    format!(
        "at {} s {:#x}:{} and {:#x}:{}: {what}: {shown}{row}",
        second(end_us),
        one.address,
        one.port,
        other.address,
        other.port
    )
}

/// Runs a world through the engine, and holds every list against the truth. A panic is a violation too.
pub(super) fn hold(world: &World) -> Held {
    catch_unwind(|| hold_all(world)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Held { violations: 1, described: vec![format!("a panic: {what}")], ..Held::default() }
    })
}

/// How far from the end of a list changes are not held against it.
fn margin_us(world: &World) -> i64 {
    // Behind a pause it may not be known which of two clocks goes on, until the other does.
    let offset_us = world.offset_s.min(CONFUSED_MAX_S) as i64 * SECOND_US;
    if world.has_true_clocks() { 0 } else { LYING_US + offset_us }
}

fn hold_all(world: &World) -> Held {
    let config = Config {
        every: Some(Duration::from_secs(world.every_s)),
        shards: world.shards as usize,
        connections_max: world.room,
        idle_timeout: (world.idle_timeout_s > 0).then(|| Duration::from_secs(world.idle_timeout_s)),
        pickup: world.pickup as u32,
        ..Config::default()
    };
    let shared = Arc::new(Mutex::new(Shared {
        truth: Truth::new(world),
        now_us: BEGIN_US,
        packets: 0,
        main_tap: 0,
        last_unset_us: None,
        pause: None,
        silence_us: 0,
        silent: None,
        confused_us: None,
        clocks: Clocks::new(world, 0),
        is_finished: false,
    }));
    let mut checker = Checker {
        world: world.clone(),
        shared: Arc::clone(&shared),
        clocks: Clocks::new(world, 0),
        margin_us: margin_us(world),
        silence_us: 0,
        shown: HashMap::new(),
        waiting: Vec::new(),
        held: Held::default(),
    };
    let source = Source {
        network: Network::new(world),
        shared: Arc::clone(&shared),
        frame: Frame { bytes: Vec::new(), wire_size: 0 },
        is_v6: world.v6 == 1,
        is_finished: false,
    };
    let mut exporter = |list: &List| {
        checker.list(list);
        Ok(())
    };
    let plan = Plan::new(&config).expect("worlds have valid options");
    run(&plan, std::iter::once(Ok(source)), &mut exporter, &mut (), None).expect("nothing can fail");
    let mut shared = shared.lock().unwrap();
    checker.check_waiting(&mut shared);
    Held {
        connections: shared.truth.opened,
        packets: shared.packets,
        simulated_s: ((shared.now_us - BEGIN_US) / SECOND_US) as u64,
        ..checker.held
    }
}
