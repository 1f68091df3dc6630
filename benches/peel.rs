//! Peeling a table: its whole contents, taken out key by key.
//!
//! The limit touches as many random lines of as much memory as the keys have cells, and neither scans nor verifies.

use crate::clock::thread_ns_each;
use crate::memory::Lines;
use crate::row::{Case, Pair, Scale, Suite};
use crate::traffic::key_of;
use flowpeel::flow::{KeyV4, WordKey};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, HASH_COUNT, Iblt, Peeled, Peeler, Recipient, ValueCode};

const KEY_COUNT: usize = 1_000_000;
const KEY_COUNT_QUICK: usize = 100_000;

pub(crate) fn run(suite: &mut Suite) {
    let case = Case {
        name: "peel/ipv4-1m",
        work: "peel, 1M keys, 1.4 cells a key",
        limit: "bare loop, 4 random lines a key",
        unit: "ns a key",
        at_most: Some(2.0),
    };
    suite.compare(case, |scale| Ok(Peel::new(scale)));
}

/// A recipient that counts, and knows genuine values as a list does.
struct Count {
    code: ValueCode<KeyV4>,
    key_count: usize,
    unknown_count: usize,
}

impl Recipient<KeyV4> for Count {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn belong(&self, placements: &[u128], values: &[u64], verdicts: &mut [bool]) {
        self.code.belong(placements, values, verdicts);
    }

    fn take(&mut self, peeled: Peeled<KeyV4>) {
        self.key_count += 1;
        self.unknown_count += usize::from(!peeled.value_known);
    }
}

struct Peel {
    full: Iblt<KeyV4>,
    table: Iblt<KeyV4>,
    peeler: Peeler<KeyV4>,
    count: Count,
    lines: Lines,
    key_count: usize,
}

impl Peel {
    fn new(scale: Scale) -> Self {
        let key_count = scale.of(KEY_COUNT, KEY_COUNT_QUICK);
        let geometry = Geometry::new((key_count * 14 / 10 / HASH_COUNT) as u32);
        let placement = KeyedHash::new(&Secret::REPLAY, Purpose::Placement);
        let code = ValueCode::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
        let mut full = Iblt::new(geometry);
        for number in 0..key_count as u64 {
            let key: KeyV4 = key_of(number);
            let hash = placement.of(&key);
            full.apply_one(&Change::insert(key, hash, code.encode(hash, key.words()[0] as u32)));
        }
        Peel {
            table: full.clone(),
            full,
            peeler: Peeler::new(placement, geometry.cell_count()),
            count: Count { code, key_count: 0, unknown_count: 0 },
            lines: Lines::new(Iblt::<KeyV4>::size(geometry)),
            key_count,
        }
    }
}

impl Pair for Peel {
    fn work(&mut self) -> f64 {
        self.table.clear();
        assert_eq!(self.table.merge(&self.full), Ok(()));
        (self.count.key_count, self.count.unknown_count) = (0, 0);
        let cost = thread_ns_each(self.key_count, || {
            self.peeler.peel(&mut self.table, &mut self.count);
        });
        assert_eq!((self.count.key_count, self.count.unknown_count), (self.key_count, 0), "not all keys came out");
        cost
    }

    fn limit(&mut self) -> f64 {
        thread_ns_each(self.key_count, || self.lines.touch(self.key_count * HASH_COUNT))
    }
}
