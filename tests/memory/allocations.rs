//! From the first packet on, only the rows of lists are allocated: every allocation of the process is counted while the
//! whole path runs on its threads over floods.

use crate::allocator::{ALLOCATED_SIZE, ALLOCATION_COUNT, IS_COUNTING};
use crate::process::alone;
use crate::support::say;
use flowpeel::capture::{Packet, PacketSource, Progress};
use flowpeel::engine::{Config, Plan};
use flowpeel::error::Result;
use flowpeel::list::List;
use flowpeel::parse::LinkType;
use flowpeel::run::run;
use flowpeel_traffic::{Arrivals, Flood, FloodConfig, Traffic, TrafficConfig};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The bytes that waiting takes, once: a thread that waits on a channel for the first time allocates 48 bytes, and each
/// end of a channel that is waited on allocates 96 bytes for four threads. There are 17 channels and at most 10
/// threads.
const WAITING_SIZE_MAX: usize = 17 * 2 * 96 + 10 * 48;

/// The bytes that threads take which a busy machine starts only after the first packet: the standard library notes the
/// name of each, at most 16 bytes, in a tree that then grows by 1,184 bytes at the eleventh or so.
const STARTING_SIZE_MAX: usize = 10 * 16 + 2 * 1_184;

/// What may be allocated whatever the packets are.
const FIXED_SIZE_MAX: usize = WAITING_SIZE_MAX + STARTING_SIZE_MAX;

/// Attempts in a second that fill the rings within two.
const RATE_PER_S: u64 = 150_000;

/// Packets that were made before counting starts; it starts with the first packet and stops after the last.
struct Recorded {
    bytes: Vec<u8>,
    /// The time of each packet, and where it ends.
    packets: Vec<(u64, usize)>,
    next: usize,
}

impl Recorded {
    /// A flood alone: there is nothing to list but half-open connections.
    fn flood(flood: FloodConfig) -> Self {
        let arrivals = Arrivals::Population { client_count: 0 };
        let config = TrafficConfig { arrivals, ..TrafficConfig::flooded(3, flood) };
        let mut traffic = Traffic::new(config).unwrap();
        let mut recorded = Recorded { bytes: Vec::new(), packets: Vec::new(), next: 0 };
        while let Some(frame) = traffic.next_frame() {
            recorded.bytes.extend_from_slice(frame.bytes);
            recorded.packets.push((frame.time_us, recorded.bytes.len()));
        }
        recorded
    }
}

impl PacketSource for Recorded {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let Some((time_us, end)) = self.packets.get(self.next) else {
            IS_COUNTING.store(false, SeqCst);
            return Ok(None);
        };
        let begin = self.next.checked_sub(1).map_or(0, |before| self.packets[before].1);
        if self.next == 0 {
            IS_COUNTING.store(true, SeqCst);
        }
        self.next += 1;
        let time_ns = *time_us as i64 * 1_000;
        Ok(Some(Packet::whole(time_ns, LinkType::ETHERNET, &self.bytes[begin..*end])))
    }

    fn is_finished(&self) -> bool {
        self.next > self.packets.len()
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// The bytes that are allocated between the first packet and the end of the input.
fn allocated(flood: FloodConfig, config: &Config) -> usize {
    let attempts = if flood.flood == Flood::Acks { 0 } else { flood.packet_count };
    let kind = flood.flood;
    let inputs = std::iter::once(Ok(Recorded::flood(flood)));
    let plan = Plan::new(config).unwrap();
    let mut listed = 0;
    let mut exporter = |list: &List| {
        listed = list.rows().count();
        Ok(())
    };
    ALLOCATION_COUNT.store(0, SeqCst);
    ALLOCATED_SIZE.store(0, SeqCst);
    let summary = run(&plan, inputs, &mut exporter, &mut (), None).unwrap();
    let counts = summary.counts;
    assert!(!IS_COUNTING.load(SeqCst) && listed as u64 == summary.last.unwrap().half_open);
    assert_eq!(counts.recycled + counts.expired + listed as u64, attempts);
    let (count, size) = (ALLOCATION_COUNT.load(SeqCst), ALLOCATED_SIZE.load(SeqCst));
    let flooded = format!("{kind:?}, {} shards: {} packets, ", config.shards, summary.packets);
    let figures = format!("{} lists, {count} allocations of {size} bytes", summary.lists);
    say::say(&format!("allocations: {flooded}{figures}"));
    size
}

#[test]
fn nothing_is_allocated_after_the_first_packet_but_the_rows_of_lists() {
    alone(
        "allocations::nothing_is_allocated_after_the_first_packet_but_the_rows_of_lists",
        assert_only_rows_are_allocated,
    );
}

fn assert_only_rows_are_allocated() {
    for kind in [Flood::Unanswered, Flood::Answered, Flood::Acks] {
        for shards in [1, 2] {
            let config = Config { shards, ..Config::default() };
            let size = allocated(FloodConfig { packet_count: 1_000_000, ..FloodConfig::new(kind) }, &config);
            assert!(size <= FIXED_SIZE_MAX, "{kind:?} with {shards} shards: {size} bytes");

            // Half-open connections are listed in memory that is allocated at the start, and the few established ones
            // take little.
            let config = Config { every: Some(Duration::from_secs(1)), ..config };
            let flood_of = |seconds| FloodConfig {
                packet_count: seconds * RATE_PER_S,
                rate_per_s: RATE_PER_S,
                ..FloodConfig::new(kind)
            };
            let (short, long) = (allocated(flood_of(4), &config), allocated(flood_of(8), &config));
            let list_size_max = Plan::new(&config).unwrap().memory().list_size_max as usize;
            assert!(short <= list_size_max, "{kind:?} with {shards} shards: {short} bytes of a list");
            assert!(long <= short + FIXED_SIZE_MAX, "{kind:?} with {shards} shards: {long} bytes, not {short}");
        }
    }
}
