//! Oblivious selection: a client selects records into a table that a server keeps, and the server does not learn which.

use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Layout, Refused, Rule, SecretHash, Sums, Table, TableCell, plan, select};

/// The index of a record, and its contents.
type Cell = Sums<u64, u64>;

/// The server: it keeps bytes, and notes which of them are read and written.
struct Server {
    cells: Vec<Vec<u8>>,
    accesses: Vec<usize>,
}

/// The client: it encrypts every cell with a one-time pad, a new one for every write.
struct Client {
    pads: KeyedHash<[u64; 2]>,
    /// How often each cell was written.
    write_counts: Vec<u64>,
}

impl Client {
    /// The exclusive or of a cell's bytes with the pad of its latest write.
    fn padded(&self, place: usize, mut bytes: Vec<u8>) -> Vec<u8> {
        for (at, block) in (0..).zip(bytes.chunks_mut(16)) {
            let pad = self.pads.of(&[(place as u64) << 32 | at, self.write_counts[place]]).to_le_bytes();
            block.iter_mut().zip(pad).for_each(|(byte, pad)| *byte ^= pad);
        }
        bytes
    }

    fn read(&self, server: &mut Server, place: usize) -> Cell {
        server.accesses.push(place);
        Cell::read(&self.padded(place, server.cells[place].clone()))
    }

    fn write(&mut self, server: &mut Server, place: usize, cell: &Cell) {
        let mut bytes = vec![0; Cell::SIZE];
        cell.write(&mut bytes);
        self.write_counts[place] += 1;
        server.cells[place] = self.padded(place, bytes);
    }
}

/// Selects those of ten thousand records that `is_wanted` accepts. Returns them, and what the server noted.
fn selected(layout: Layout, is_wanted: impl Fn(u64) -> bool) -> Result<(Vec<u64>, Vec<usize>), Refused> {
    let secret = Secret::new(*b"of the client   ");
    let hash = SecretHash::new(&secret);
    let mut server = Server { cells: vec![Vec::new(); layout.cell_count()], accesses: Vec::new() };
    let pads = KeyedHash::new(&Secret::new(*b"for pads alone  "), Purpose::Value);
    let mut client = Client { pads, write_counts: vec![0; layout.cell_count()] };
    (0..layout.cell_count()).for_each(|place| client.write(&mut server, place, &Cell::zero()));

    for record in 0..10_000 {
        select(&layout, &hash, (&record, record * record), is_wanted(record), |place, part| {
            let mut cell = client.read(&mut server, place as usize);
            cell.add(part);
            client.write(&mut server, place as usize, &cell);
        });
    }

    let accesses = server.accesses.clone();
    let cells = (0..layout.cell_count()).map(|place| client.read(&mut server, place)).collect();
    let listing = Table::from_cells(layout, hash, cells)?.list(Rule::Aggregates);
    assert!(listing.is_complete() && listing.inserted.iter().all(|entry| entry.value() == Some(entry.key * entry.key)));
    Ok((listing.inserted.iter().map(|entry| entry.key).collect(), accesses))
}

fn main() -> Result<(), Refused> {
    let layout = plan(100, 1e-6).layout();
    let (hundreds, one) = selected(layout, |record| record % 100 == 7)?;
    let (few, other) = selected(layout, |record| record < 3)?;
    println!("selected {} records, then {}, of 10000, into {} cells", hundreds.len(), few.len(), layout.cell_count());
    println!("the server saw the same {} accesses: {}", one.len(), one == other);
    assert!(hundreds.len() == 100 && few.len() == 3 && one == other);
    Ok(())
}
