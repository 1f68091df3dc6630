//! The table for a packet path: updates in batches, payloads that carry a check, and a recipient of what is listed.

use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Batch, Geometry, Iblt, Peeled, Peeler, Recipient, ValueCode};
use std::time::Instant;

/// Address and port of both ends, as two words.
type Flow = [u64; 2];

/// Collects the flows that are open, with their payloads.
struct Open {
    code: ValueCode<Flow>,
    flows: Vec<(Flow, Option<u32>)>,
}

impl Recipient<Flow> for Open {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn take(&mut self, peeled: Peeled<Flow>) {
        let payload = peeled.value_known.then(|| ValueCode::<Flow>::payload(peeled.change.value));
        self.flows.push((peeled.change.key, payload));
    }
}

fn main() {
    const FLOW_COUNT: u64 = 2_000_000;
    let secret = Secret::new(*b"known to us only");
    let flow = |number: u64| [0x0a00_0000_0000_0000 | number, !number];
    let mut table = Iblt::new(Geometry::for_items(50_000));
    let mut batch = Batch::new(&secret);

    // Every flow opens, with its number as the payload; all but one of fifty close.
    let start = Instant::now();
    let openings = (0..FLOW_COUNT).map(|number| (number, true));
    let closings = (0..FLOW_COUNT).filter(|number| number % 50 != 0).map(|number| (number, false));
    for (number, is_opening) in openings.chain(closings) {
        if batch.push(flow(number), number as u32, is_opening) {
            batch.step_into(&mut table);
        }
    }
    while !batch.is_idle() {
        batch.step_into(&mut table);
    }
    let updates = start.elapsed();

    let mut open = Open { code: ValueCode::new(KeyedHash::new(&secret, Purpose::Value)), flows: Vec::new() };
    let start = Instant::now();
    let mut peeler = Peeler::new(KeyedHash::new(&secret, Purpose::Placement), table.geometry().cell_count());
    let count = peeler.peel(&mut table, &mut open);
    println!("{} cells of {} bytes", table.cells().len(), size_of_val(&table.cells()[0]));
    println!("{:.1} ns an update", updates.as_nanos() as f64 / (FLOW_COUNT + FLOW_COUNT / 50 * 49) as f64);
    println!("{count} flows listed in {:?}", start.elapsed());
    assert!(table.is_zero() && count as u64 == FLOW_COUNT / 50);
    assert!(open.flows.iter().all(|(key, payload)| *payload == Some((key[0] & 0xff_ffff) as u32)));
}
