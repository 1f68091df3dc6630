//! Several taps on one traffic: each loses some packets, sees some connections only, and has a clock of its own.

use super::oracle::{Line, Oracle, Rules, segment};
use flowpeel::capture::{Packet, PacketSource, Progress};
use flowpeel::engine::{Config, Plan, Snapshots};
use flowpeel::error::Result;
use flowpeel::export::{Exporter, Output};
use flowpeel::list::Row;
use flowpeel::parse::LinkType;
use flowpeel::run::run;
use flowpeel::snapshot::SnapshotFile;
use flowpeel_iblt::hash::Secret;
use flowpeel_traffic::{Traffic, TrafficConfig};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

/// The part of some traffic that a tap sees.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) traffic: TrafficConfig,
    /// One packet of this many is missing; 0 if none is.
    pub(crate) loss: u64,
    /// Its clock is ahead by this.
    pub(crate) ahead_us: u64,
    /// It has seen a packet of something else this long before, so that its ticks began earlier.
    pub(crate) began_us: u64,
    /// Which router it is on: it sees about half of the connections then.
    pub(crate) router: Option<u64>,
}

impl Tap {
    pub(crate) fn of(traffic: &TrafficConfig) -> Self {
        Tap { traffic: traffic.clone(), loss: 0, ahead_us: 0, began_us: 0, router: None }
    }

    fn packets(&self) -> Packets {
        let traffic = Traffic::new(self.traffic.clone()).unwrap();
        Packets { tap: self.clone(), traffic, number: 0, present: Vec::new(), is_finished: false }
    }

    fn name(&self) -> String {
        self.router.map(|router| format!("router-{router}")).unwrap_or_default()
    }

    /// The exact list at the end.
    pub(crate) fn exact(&self) -> Vec<Line> {
        let mut oracle = Oracle::new(Rules::default());
        let mut packets = self.packets();
        while let Some(time_us) = packets.advance() {
            oracle.frame(time_us, &packets.present);
        }
        oracle.finish().unwrap().lines
    }

    /// The snapshots, and the lists beside them when they are asked for.
    pub(crate) fn recorded(&self, config: &Config, with_lists: bool) -> Recorded {
        let snapshots = Snapshots { router: self.name(), run: 0, replace_lists: !with_lists };
        let config = Config { snapshots: Some(snapshots), ..config.clone() };
        let mut recorded = Recorded::default();
        let plan = Plan::new(&config).unwrap();
        run(&plan, std::iter::once(Ok(self.packets())), &mut recorded, &mut (), None).unwrap();
        recorded
    }
}

/// The packets of a tap.
struct Packets {
    tap: Tap,
    traffic: Traffic,
    number: u64,
    present: Vec<u8>,
    is_finished: bool,
}

/// A SYN that nobody answers, from 192.0.2.1 to 192.0.2.2.
const OTHER: [u8; 54] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 4,
    0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0,
];

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Packets {
    /// Goes on to the next packet; its time.
    fn advance(&mut self) -> Option<u64> {
        self.number += 1;
        if self.number == 1 && self.tap.began_us > 0 {
            self.present = OTHER.to_vec();
            return Some(self.tap.traffic.start_us + self.tap.ahead_us - self.tap.began_us);
        }
        while let Some(frame) = self.traffic.next_frame() {
            self.number += 1;
            let is_lost = self.tap.loss > 0 && hash((self.number, self.tap.router)).is_multiple_of(self.tap.loss);
            let is_elsewhere = self.tap.router.is_some_and(|router| {
                let ends = segment(frame.bytes).map(|tcp| (tcp.src.min(tcp.dst), tcp.src.max(tcp.dst)));
                // Some connections are seen by all routers, some by one.
                let of_router = hash((ends, router));
                !hash(ends).is_multiple_of(8) && of_router.is_multiple_of(2)
            });
            if !is_lost && !is_elsewhere {
                self.present.clear();
                self.present.extend_from_slice(frame.bytes);
                return Some(frame.time_us + self.tap.ahead_us);
            }
        }
        self.is_finished = true;
        None
    }
}

impl PacketSource for Packets {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let time_us = self.advance();
        Ok(time_us.map(|time_us| Packet::whole(time_us as i64 * 1_000, LinkType::ETHERNET, &self.present)))
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// The results of a tap, list by list.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) snapshots: Vec<SnapshotFile>,
    pub(crate) lists: Vec<Vec<Row>>,
}

impl Recorded {
    pub(crate) fn last(self) -> SnapshotFile {
        self.snapshots.into_iter().next_back().unwrap()
    }
}

impl Exporter for Recorded {
    fn write(&mut self, output: Output) -> Result<()> {
        match output {
            Output::List(list) => {
                assert!(list.header.complete);
                self.lists.push(list.rows().collect());
            }
            Output::Snapshot(snapshot) => self.snapshots.push(snapshot.clone()),
            Output::Sources(_) => {}
        }
        Ok(())
    }
}

/// A snapshot as a file holds it.
pub(crate) fn bytes(snapshot: &SnapshotFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes, &Secret::REPLAY).unwrap();
    bytes
}

/// Writes a snapshot to a file; its path.
pub(crate) fn file(directory: &Path, name: &str, snapshot: &SnapshotFile) -> String {
    let path = directory.join(name);
    std::fs::write(&path, bytes(snapshot)).unwrap();
    path.to_str().unwrap().to_owned()
}
