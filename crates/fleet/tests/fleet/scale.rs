//! What many routers cost a collector: simulated, without a broker, on one thread as the collector has it.
//!
//! Each connection is seen by two routers. In each interval some open and as many close; all frames of the interval are
//! there when it ends.

use crate::wire::Router;
use flowpeel::agent::{AgentEvent, AgentObserver};
use flowpeel::export::{Format, Keep};
use flowpeel::signal::{PartitionSet, TimeBase};
use flowpeel_fleet::frame::Hashed;
use flowpeel_fleet::inbox::Inbox;
use flowpeel_fleet::key::FleetKey;
use flowpeel_fleet::lists::{Lists, ListsConfig};
use flowpeel_fleet::network::Network;
use flowpeel_fleet::{newest, piece, subject};
use flowpeel_iblt::hash::Secret;
use std::fs;
use std::time::{Duration, Instant};

/// The length of an interval.
const EVERY_S: i64 = 10;

/// In how many intervals all of it opens: as much at once as tables can list is less.
const GROWTH_COUNT: i64 = 10;

/// How many intervals are measured behind these.
const INTERVAL_COUNT: i64 = 3;

/// Ticks since the router began, at the end of its first interval.
const FIRST_TICK: u64 = 1 << 20;

/// How many routers there are, and what each sees.
#[derive(Clone, Copy)]
struct Size {
    router_count: usize,
    open_count: u64,
    /// How many open in an interval, and how many close.
    flip_count: u64,
}

/// Lists that are not complete.
struct Incomplete(u64);

impl AgentObserver for Incomplete {
    fn report(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Listed(_, header) => self.0 += u64::from(!header.complete),
            AgentEvent::Refused(error) | AgentEvent::Warning(error) => panic!("{error}"),
        }
    }
}

/// The time that this thread has had of a processor.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// A router that is simulated, with what its last frames build on.
struct Simulated {
    router: Router,
    bases: Option<Vec<Hashed>>,
    /// The numbers of its connections are from the first to the second.
    open: (u64, u64),
}

impl Simulated {
    /// The end of an interval in which some opened and some closed. Returns its frames.
    fn interval(&mut self, number: i64, flips: (u64, u64), fleet: &FleetKey) -> Vec<Vec<u8>> {
        let (opened, closed) = flips;
        self.router.flip(self.open.0..self.open.0 + closed, false);
        self.router.flip(self.open.1..self.open.1 + opened, true);
        self.open = (self.open.0 + closed, self.open.1 + opened);
        let source = &mut self.router.snapshot.header.sources[0];
        let start_ns = number * EVERY_S * 1_000_000_000;
        source.figures.interval = number as u64 + 1;
        (source.figures.start_ns, source.figures.end_ns) = (start_ns, start_ns + EVERY_S * 1_000_000_000);
        source.end_tick = FIRST_TICK + (number as u64 + 1) * 10 * EVERY_S as u64;
        let key = fleet.of_router(&source.router);
        let images = self.router.images();
        let frames = self.router.frames(&images, self.bases.as_deref(), &key);
        self.bases = Some(images);
        frames
    }
}

/// Prints what so many routers cost.
fn measure(size: Size) {
    println!("{} routers of {} open, {} opened and closed", size.router_count, size.open_count, size.flip_count);
    let place = tempfile::tempdir().unwrap();
    let fleet = FleetKey::new(Secret::new([7; 16]));
    let config = ListsConfig {
        out: place.path().to_path_buf(),
        secret: Secret::REPLAY,
        format: Format::default(),
        keep: Keep { age: Some(Duration::from_secs(1)), ..Keep::default() },
        partitions: PartitionSet::ALL,
        bases: None,
    };
    let mut observer = Incomplete(0);
    let mut lists = Lists::new(config, &mut observer).unwrap();
    let mut inbox = Inbox::new(Secret::REPLAY, fleet.clone(), PartitionSet::ALL);
    let shape = Router::new(2 * size.open_count);
    let named = |at: usize| {
        let mut router = shape.clone();
        let source = &mut router.snapshot.header.sources[0];
        source.router = format!("edge-{at:03}");
        source.every_ns = EVERY_S as u64 * 1_000_000_000;
        source.bases = vec![TimeBase { first_tick: 0, offset_ns: -i128::from(FIRST_TICK) * 100_000_000 }];
        source.half_open.clear();
        // Pairs of routers see the same.
        let first = (at as u64 / 2) << 24;
        Simulated { router, bases: None, open: (first, first) }
    };
    let mut routers: Vec<Simulated> = (0..size.router_count).map(named).collect();
    for number in 0..GROWTH_COUNT + INTERVAL_COUNT {
        let is_growing = number < GROWTH_COUNT;
        let flips =
            if is_growing { (size.open_count / GROWTH_COUNT as u64, 0) } else { (size.flip_count, size.flip_count) };
        let (mut frames_size, mut took, mut processor, mut list_count) = (0, Duration::ZERO, Duration::ZERO, 0);
        for simulated in &mut routers {
            let frames = simulated.interval(number, flips, &fleet);
            let router = &simulated.router.snapshot.header.sources[0].router;
            frames_size += frames.iter().map(Vec::len).sum::<usize>();
            let (began, before) = (Instant::now(), processor_time());
            for (partition, frame) in frames.iter().enumerate() {
                for (_, piece) in piece::cut(frame) {
                    for received in inbox.take(&subject::of(router, partition), &piece, ()).received {
                        lists.write(&received, &mut observer).unwrap();
                        list_count += 1;
                    }
                }
            }
            took += began.elapsed();
            processor += processor_time() - before;
        }
        assert_eq!((list_count, observer.0), (size.router_count, 0), "every list is there, and complete");
        if is_growing {
            continue;
        }
        let change_count = size.router_count as u64 * (flips.0 + flips.1);
        println!(
            "  interval {number}: {:.1} MB of frames, {:.1} bytes a change, all lists {:.2} s behind its end, processor \
             {:.2} s, {:.1} us a change",
            frames_size as f64 / 1e6,
            frames_size as f64 / change_count as f64,
            took.as_secs_f64(),
            processor.as_secs_f64(),
            processor.as_secs_f64() * 1e6 / change_count as f64
        );
    }
    drop(lists);
    let began = Instant::now();
    let network = Network::read(&newest::places(&[place.path().to_path_buf()]).unwrap()).unwrap();
    let (count, memory) = (network.joined.len(), network.joined.memory_size());
    let distinct = (size.router_count as u64).div_ceil(2) * size.open_count;
    // One is open in the capture that has given snapshots their shape.
    assert_eq!(count as u64, distinct + 1);
    println!(
        "  joined: {count} connections, {:.1} bytes each, read in {:.2} s",
        memory as f64 / count as f64,
        began.elapsed().as_secs_f64()
    );
}

/// Measures this many routers and twice as many.
fn measure_doubled(size: Size) {
    for router_count in [size.router_count / 2, size.router_count] {
        measure(Size { router_count, ..size });
    }
}

#[test]
fn a_few_routers_are_listed_and_joined() {
    measure(Size { router_count: 3, open_count: 500, flip_count: 50 });
}

#[test]
#[ignore = "a hundred routers"]
fn a_hundred_routers_of_ten_thousand() {
    measure_doubled(Size { router_count: 100, open_count: 10_000, flip_count: 100 });
}

#[test]
#[ignore = "two million connections"]
fn two_routers_of_a_million() {
    measure_doubled(Size { router_count: 2, open_count: 1_000_000, flip_count: 10_000 });
}

#[test]
#[ignore = "ten million connections"]
fn ten_routers_of_a_million() {
    measure(Size { router_count: 10, open_count: 1_000_000, flip_count: 10_000 });
}
