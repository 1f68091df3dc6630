//! Oblivious selection (section 1.3 of the paper): a client, the paper's Alice, selects records into a table that a
//! server keeps, and lists it there, with room for fewer cells than records are selected. The server does not learn
//! which records, nor how many: its accesses depend on the sizes alone. Listing takes O(t log^2 t) of them, for
//! sorting.

use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{
    Layout, Outsourced, Placement, Refused, SecretHash, Slot, Sums, TableCell, extract, extraction_slot_count, select,
};

/// The index of a record, and its contents.
type Cell = Sums<u64, u64>;

/// Records of the server, and the cells of each.
const RECORD_COUNT: u64 = 10_000;
const HASH_COUNT: u32 = 3;

/// How many slots the client sorts at a time; it has room for two such blocks.
const BLOCK_SIZE: usize = 8;

/// The server: it keeps bytes, and notes which of them are read and written.
struct Server {
    slots: Vec<Vec<u8>>,
    accesses: Vec<usize>,
}

/// The client's view of what the server keeps: every slot is encrypted with a one-time pad, a new one for every write.
struct Client {
    server: Server,
    pads: KeyedHash<[u64; 2]>,
    /// How often the client wrote. The number under which a slot was written stands before it, in the clear.
    write_count: u64,
}

impl Client {
    fn padded(&self, number: u64, mut bytes: Vec<u8>) -> Vec<u8> {
        for (at, block) in (0..).zip(bytes.chunks_mut(16)) {
            let pad = self.pads.of(&[number, at]).to_le_bytes();
            block.iter_mut().zip(pad).for_each(|(byte, pad)| *byte ^= pad);
        }
        bytes
    }
}

impl Outsourced<Cell> for Client {
    fn read(&mut self, at: usize) -> Slot<Cell> {
        self.server.accesses.push(at);
        let (number, bytes) = self.server.slots[at].split_at(8);
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
        Slot::read(&self.padded(number, bytes.to_vec()))
    }

    fn write(&mut self, at: usize, slot: &Slot<Cell>) {
        self.server.accesses.push(at);
        self.write_count += 1;
        let mut bytes = vec![0; Slot::<Cell>::SIZE];
        slot.write(&mut bytes);
        let hidden = self.padded(self.write_count, bytes);
        self.server.slots[at] = [self.write_count.to_le_bytes().to_vec(), hidden].concat();
    }
}

/// Selects those of the records that `is_wanted` accepts. Returns them, and what the server noted.
fn selected(layout: Layout, is_wanted: impl Fn(u64) -> bool) -> Result<(Vec<u64>, Vec<usize>), Refused> {
    let hash = SecretHash::new(&Secret::new(*b"of the client   "));
    let pads = KeyedHash::new(&Secret::new(*b"for pads alone  "), Purpose::Value);
    let slot_count = extraction_slot_count(&layout, BLOCK_SIZE);
    let server = Server { slots: vec![Vec::new(); slot_count], accesses: Vec::new() };
    let mut client = Client { server, pads, write_count: 0 };
    for at in 0..slot_count {
        let is_cell = at < layout.cell_count();
        client.write(at, &if is_cell { Slot::of(at as u32, Cell::zero()) } else { Slot::nothing() });
    }
    for record in 0..RECORD_COUNT {
        select(&layout, &hash, (&record, record * record), is_wanted(record), |place, part| {
            let mut slot = client.read(place as usize);
            slot.add(part);
            client.write(place as usize, &slot);
        });
    }
    let mut found = Vec::new();
    let is_complete =
        extract(&layout, &hash, &mut client, BLOCK_SIZE, |entry: Option<flowpeel_iblt::Entry<u64, u64>>| {
            if let Some(entry) = entry {
                assert_eq!(entry.value(), Some(entry.key * entry.key));
                found.push(entry.key);
            }
        })?;
    assert!(is_complete);
    Ok((found, client.server.accesses))
}

fn main() -> Result<(), Refused> {
    // Twice as many cells as records that may be selected.
    let layout = Layout::new(Placement::Subtables { hash_count: HASH_COUNT }, 200);
    let (hundreds, one) = selected(layout, |record| record % 100 == 7)?;
    let (few, other) = selected(layout, |record| record < 3)?;
    println!(
        "selected {} records, then {}, of {RECORD_COUNT}, into {} cells",
        hundreds.len(),
        few.len(),
        layout.cell_count()
    );
    // Whether a record is wanted or not, each of its cells is read and written; before, each slot is written once.
    let before = extraction_slot_count(&layout, BLOCK_SIZE) + 2 * HASH_COUNT as usize * RECORD_COUNT as usize;
    println!("listed them with room for {} slots, in {} accesses", 2 * BLOCK_SIZE, one.len() - before);
    println!("the server saw the same accesses both times: {}", one == other);
    assert!(hundreds.len() == 100 && few.len() == 3 && one == other);
    Ok(())
}
