//! Spikes beyond what there is room for (section 1.3 of the paper on tables): a table takes any number of pairs and
//! lists again once enough of them were deleted; so does the whole engine, whose lists say meanwhile what they lack.

use crate::fill::{Pairs, insert};
use crate::parts::Series;
use crate::row::grouped;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel::capture::{Packet, PacketSource, Progress};
use flowpeel::engine::{Config, Plan};
use flowpeel::error::Result;
use flowpeel::list::List;
use flowpeel::parse::LinkType;
use flowpeel::run::run;
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Layout, Placement, Rule, Sums, Table};
use std::time::Duration;

/// Spikes, and what is left of them.
#[derive(Clone, Copy, Debug)]
pub struct Spikes;

/// What is there before a spike and after it, and what there is room for.
const CALM_COUNT: u32 = 1_000;
const ROOM_COUNT: u32 = 2_000;

/// Sizes of spikes, as multiples of what there is room for.
const TIMES: [u32; 4] = [2, 5, 20, 100];

/// Cells a key of the table: above the threshold of its four subtables.
const CELLS_PER_KEY: u32 = 2;

/// In a table that is given the spike and then rid of it, the shares of tables that list all: before, at its height,
/// and after.
fn table_trials(seed: u64, trial_count: u64, times: u32) -> [u64; 3] {
    let layout = Layout::new(Placement::Subtables { hash_count: 4 }, CELLS_PER_KEY * ROOM_COUNT);
    let mut counts = [0; 3];
    for trial in 0..trial_count {
        let pairs = Pairs::new(seed, trial);
        let (calm, spike) =
            (0..u64::from(CALM_COUNT), u64::from(CALM_COUNT)..u64::from(CALM_COUNT + times * ROOM_COUNT));
        let mut table: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
        insert(&mut table, pairs.firsts(calm.clone()));
        let is_whole = |table: &Table<_>| u64::from(table.listing(Rule::Aggregates).is_complete());
        counts[0] += is_whole(&table);
        insert(&mut table, pairs.firsts(spike.clone()));
        counts[1] += is_whole(&table);
        pairs.firsts(spike).for_each(|(key, value)| table.remove(&key, value));
        let mut listed: Vec<_> = table.listing(Rule::Aggregates).inserted.iter().map(|entry| entry.key).collect();
        let mut right: Vec<_> = pairs.firsts(calm).map(|(key, _)| key).collect();
        listed.sort_unstable();
        right.sort_unstable();
        counts[2] += u64::from(listed == right);
    }
    counts
}

/// The length of an interval, when the first one begins, and when connections of the spike open and close.
const INTERVAL_US: u64 = 5_000_000;
const BEGIN_US: u64 = 1_767_225_600_000_000;
const OPENS_INTERVAL: u64 = 2;
const CLOSES_INTERVAL: u64 = 4;
const LAST_INTERVAL: u64 = 7;

/// Flags of a TCP header.
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// What is sent of a connection: from the client or not, flags, sequence and acknowledgement numbers.
type Sent = (bool, u8, [u32; 2]);

const HANDSHAKE: [Sent; 3] = [(true, SYN, [0, 0]), (false, SYN | ACK, [0, 1]), (true, ACK, [1, 1])];
const ENDING: [Sent; 3] = [(true, FIN | ACK, [1, 1]), (false, FIN | ACK, [1, 2]), (true, ACK, [2, 2])];

/// The packets of a spike: some connections open, many more open beside them, these close, and time passes.
struct Traffic {
    spike_count: u64,
    interval: u64,
    /// The packet of the interval that comes next.
    step: u64,
    frame: Vec<u8>,
}

impl Traffic {
    fn new(spike_count: u32) -> Self {
        Traffic { spike_count: spike_count.into(), interval: 0, step: 0, frame: Vec::new() }
    }

    /// The first connection of which packets come in this interval, their number, and what each sends.
    fn phase(&self) -> (u64, u64, &'static [Sent]) {
        match self.interval {
            0 => (0, CALM_COUNT.into(), &HANDSHAKE),
            OPENS_INTERVAL => (CALM_COUNT.into(), self.spike_count, &HANDSHAKE),
            CLOSES_INTERVAL => (CALM_COUNT.into(), self.spike_count, &ENDING),
            _ => (0, 1, &HANDSHAKE[2..]),
        }
    }

    /// Writes the packet of this connection.
    fn write(&mut self, number: u64, (from_client, flags, [seq, ack]): Sent) {
        let client = (0x0a00_0000 + number as u32 / 50_000, 10_000 + (number % 50_000) as u16);
        let (server, isn) = ((0xcb00_7107, 443), 7_919 * number as u32);
        let ((src, src_port), (dst, dst_port)) = if from_client { (client, server) } else { (server, client) };
        self.frame.clear();
        self.frame.extend([0; 12]);
        self.frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        self.frame.extend([src, dst].iter().flat_map(|address| address.to_be_bytes()));
        self.frame.extend([src_port, dst_port].iter().flat_map(|port: &u16| port.to_be_bytes()));
        let ack = if flags & ACK == 0 { 0 } else { isn.wrapping_add(ack) };
        self.frame.extend([isn.wrapping_add(seq), ack].iter().flat_map(|number| number.to_be_bytes()));
        self.frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    }
}

impl PacketSource for Traffic {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        if self.is_finished() {
            return Ok(None);
        }
        let (first, count, sent) = self.phase();
        let sent_count = sent.len() as u64;
        let time_us = BEGIN_US + self.interval * INTERVAL_US + self.step * (INTERVAL_US / 2) / (count * sent_count);
        self.write(first + self.step / sent_count, sent[(self.step % sent_count) as usize]);
        self.step += 1;
        if self.step == count * sent_count {
            (self.interval, self.step) = (self.interval + 1, 0);
        }
        Ok(Some(Packet::whole(time_us as i64 * 1_000, LinkType::ETHERNET, &self.frame)))
    }

    fn is_finished(&self) -> bool {
        self.interval > LAST_INTERVAL
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// What the lists of a spike are like.
#[derive(Clone, Copy, Default)]
struct Lists {
    /// Lists before the spike and after the interval of its end, and those of them that are complete and exact.
    calm_count: u64,
    exact_count: u64,
    /// Listed connections that are not open, in all lists.
    wrong_count: u64,
    /// At the height of the spike: connections that are listed, and that the list says are missing.
    listed_count: u64,
    missing_count: u64,
}

impl Lists {
    fn numbers(&self) -> [u64; 5] {
        [self.calm_count, self.exact_count, self.wrong_count, self.listed_count, self.missing_count]
    }

    fn of([calm_count, exact_count, wrong_count, listed_count, missing_count]: [u64; 5]) -> Self {
        Lists { calm_count, exact_count, wrong_count, listed_count, missing_count }
    }

    /// Counts in the list of this interval.
    fn add(&mut self, list: &List, interval: u64, spike_count: u32) {
        let is_open_spike = (OPENS_INTERVAL..CLOSES_INTERVAL).contains(&interval);
        let open_count = if is_open_spike { CALM_COUNT + spike_count } else { CALM_COUNT };
        let number_of = |row: flowpeel::list::Row| {
            let std::net::IpAddr::V4(address) = row.client.ip() else { return u32::MAX };
            (u32::from(address) - 0x0a00_0000) * 50_000 + u32::from(row.client.port()) - 10_000
        };
        self.wrong_count += list.rows().filter(|row| number_of(*row) >= open_count).count() as u64;
        if interval == CLOSES_INTERVAL - 1 {
            (self.listed_count, self.missing_count) = (list.header.flows, list.header.missing);
        }
        if !is_open_spike {
            self.calm_count += 1;
            self.exact_count += u64::from(list.header.complete && list.header.flows == u64::from(CALM_COUNT));
        }
    }

    /// Runs the engine over a spike.
    fn run(spike_count: u32) -> Self {
        let config = Config {
            every: Some(Duration::from_micros(INTERVAL_US)),
            connections_max: ROOM_COUNT.into(),
            ..Config::default()
        };
        let (mut lists, mut interval) = (Lists::default(), 0);
        let mut exporter = |list: &List| {
            lists.add(list, interval, spike_count);
            interval += 1;
            Ok(())
        };
        let plan = Plan::new(&config).expect("so many connections can be tracked");
        let inputs = std::iter::once(Ok(Traffic::new(spike_count)));
        run(&plan, inputs, &mut exporter, &mut (), None).expect("there are threads, and nothing is written");
        lists
    }
}

fn exact(what: String, reference: Reference, value: u64) -> Row {
    let ours = Measure::Exact(value as f64);
    Row { what, source: Source::Goal, reference, ours, unit: Unit::Number(0), note: "" }
}

/// The rows of a size: of the table, of the engine's lists in calm and at the spike's height.
fn rows(setting: &Setting, times: u32) -> [Vec<Row>; 2] {
    let spike_count = times * ROOM_COUNT;
    let name = format!("{times} times as many, {}", grouped(spike_count.into()));
    let trial_count = setting.trials(100, 10);
    let series_name = format!("table {times}");
    let series = Series { name: &series_name, seed: setting.seed_of(times.into()), trial_count, part_size: 100 };
    let [before, height, after] = setting.in_parts(&series, |seed, trial_count| table_trials(seed, trial_count, times));
    let share = |count| Measure::Share { count, trial_count };
    let of_table = vec![
        Row::always(format!("{name}: listed before"), (before, trial_count)),
        Row::percent(format!("{name}: listed at the height"), Source::Goal, Reference::Unknown, share(height)),
        Row::always(format!("{name}: listed after, exactly what was there before"), (after, trial_count)),
    ];
    let series = Series { name: &format!("engine {times}"), seed: 0, trial_count: 1, part_size: 1 };
    let lists = Lists::of(setting.in_parts(&series, |_, _| Lists::run(spike_count).numbers()));
    let lacking = u64::from(CALM_COUNT + spike_count) - lists.listed_count;
    let known = Reference::Value { value: lacking as f64, tolerance: MISSING_TOLERANCE * lacking as f64 };
    let of_engine = vec![
        Row::always(
            format!("{name}: lists before, and from the interval of the end on: complete and exact"),
            (lists.exact_count, lists.calm_count),
        ),
        exact(format!("{name}: connections listed that are not open"), Reference::AtMost(0.0), lists.wrong_count),
        exact(
            format!("{name}: missing at the height, as the list says (expected: as it is)"),
            known,
            lists.missing_count,
        ),
    ];
    [of_table, of_engine]
}

/// How far what a list says is missing may be off, as a share: where there are more refused connections than records of
/// them, it is an estimate.
const MISSING_TOLERANCE: f64 = 0.01;

impl Experiment for Spikes {
    fn title(&self) -> &'static str {
        "Section 1.3: spikes beyond the threshold"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let mut tables: [Vec<Row>; 2] = Default::default();
        let sizes = if setting.is_quick { &TIMES[..2] } else { &TIMES[..] };
        for times in sizes {
            step(&format!("{times} times"));
            for (table, rows) in tables.iter_mut().zip(rows(setting, *times)) {
                table.extend(rows);
            }
        }
        let captions = [
            "A table of 4,000 cells, four subtables, room for 2,000 keys, with 1,000 in it",
            "The engine with --connections 2000 and 1,000 open, a list every 5 s",
        ];
        Section {
            title: self.title(),
            text: "The paper's promise: the number of pairs may exceed the threshold by any factor, and when they are deleted everything \
                   works again. So it is with a table; and with the engine, which bounds what it tracks: connections that it has no room \
                   for go into sums of their own, so that they are known to have ended when they have. The connections of the spike open \
                   in one interval, stay open to the end of the next, and close in the one after; its list is complete again. \
                   Restarts from a saved state, lists made of snapshots and agents are tried on the same spikes by \
                   tests (tests/engine/spike).",
            tables: captions
                .iter()
                .zip(tables)
                .map(|(caption, rows)| RowTable { caption: (*caption).to_owned(), rows })
                .collect(),
            plots: Vec::new(),
        }
    }
}
