//! A part of a table is lost, and the rest still lists everything, and knows most single keys (section 3 of the paper).

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Layout, Placement, Refused, Rule, Sums, Table};

const KEY_COUNT: u64 = 10_000;

fn main() -> Result<(), Refused> {
    for cells_a_key in [8.0, 1.8, 1.5] {
        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, (KEY_COUNT as f64 * cells_a_key) as u32);
        let mut table: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
        (0..KEY_COUNT).for_each(|key| table.insert(&key, 3 * key));
        println!("{cells_a_key} cells a key");
        report("whole", &table);
        // A block of memory is gone: what stood in it is used no more.
        table.lose_subtable(2)?;
        report("without one of four subtables", &table);
        table.lose_subtable(0)?;
        report("without two", &table);
    }
    Ok(())
}

fn report(what: &str, table: &Table<Sums<u64, u64>>) {
    let known = (0..KEY_COUNT).filter(|key| table.get_plain(key).value() == Some(3 * key)).count();
    let listing = table.listing(Rule::Aggregates);
    assert!(listing.deleted.is_empty() && listing.inserted.iter().all(|entry| entry.value() == Some(3 * entry.key)));
    let listed = 100.0 * listing.inserted.len() as f64 / KEY_COUNT as f64;
    println!("  {what}: {listed:.1} % listed, GET knows {:.1} %", 100.0 * known as f64 / KEY_COUNT as f64);
}
