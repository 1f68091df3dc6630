//! A part of a table's memory is lost, and the rest still lists everything, and knows most single keys (section 3 of
//! the paper, "subblocks").
//!
//! With each of the k hash functions in a subtable of its own, j of these are a table of j hash functions: they list
//! while they have c_j cells a key (Table 1: 1.295 for four, 1.222 for three; two list nearly all from 2 on), and GET
//! finds a key with 1 - (1 - e^(-kn/m))^j.

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Layout, Placement, Refused, Rule, Sums, Table};

const KEY_COUNT: u64 = 10_000;

fn main() -> Result<(), Refused> {
    for cells_a_key in [8.0, 1.8, 1.5] {
        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, (KEY_COUNT as f64 * cells_a_key) as u32);
        let mut table: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
        (0..KEY_COUNT).for_each(|key| table.insert(&key, 3 * key));
        println!("{KEY_COUNT} keys, {cells_a_key} cells a key");
        report(4, cells_a_key, &table);
        // A block of memory is gone: what stood in it is used no more.
        table.lose_subtable(2)?;
        report(3, cells_a_key, &table);
        table.lose_subtable(0)?;
        report(2, cells_a_key, &table);
    }
    Ok(())
}

/// Prints what is known when so many of the four subtables are left.
fn report(left: i32, cells_a_key: f64, table: &Table<Sums<u64, u64>>) {
    let known = (0..KEY_COUNT).filter(|key| table.get_plain(key).value() == Some(3 * key)).count();
    let listing = table.listing(Rule::Aggregates);
    // What is listed is right, whether it is all or not.
    assert!(listing.deleted.is_empty() && listing.inserted.iter().all(|entry| entry.value() == Some(3 * entry.key)));
    let percent = |count: usize| 100.0 * count as f64 / KEY_COUNT as f64;
    let formula = 1.0 - (1.0 - (-4.0 / cells_a_key).exp()).powi(left);
    println!(
        "  {left} subtables left, {:.2} cells a key: {:.1} % listed; GET finds {:.1} % (formula {:.1} %)",
        cells_a_key * f64::from(left) / 4.0,
        percent(listing.inserted.len()),
        percent(known),
        100.0 * formula
    );
}
