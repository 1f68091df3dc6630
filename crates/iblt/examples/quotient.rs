//! Addresses in a table that stores of each only what its places do not say (section 4 of the paper, "quotienting").
//!
//! Each hash function is a permutation of the keys. The remainder of a permuted key by the number of a subtable's cells
//! is its place, and the cell sums the quotient: with 2^b cells, b bits fewer.

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Layout, Placement, QuotientShape, QuotientTable, Rule, Sums, Table, TableCell};

/// The same cells, with whole keys: 16 bits of count and 32 of key.
type Whole = Sums<u32, (), i16, ()>;

fn main() {
    for subtable_cell_count in [1 << 10, 1 << 14, 1 << 18] {
        // Only what was inserted is removed, so a count of one is a lone key, and no check is needed.
        let shape = QuotientShape { key_bits: 32, hash_count: 4, subtable_cell_count, check_bits: 0 };
        let mut table = QuotientTable::new(shape, &Secret::REPLAY);
        // As many as list: 1.33 cells for each.
        let host_count = 3 * subtable_cell_count;
        let host = |number: u32| 0x0a00_0000 + number;
        (0..4 * host_count).for_each(|number| table.insert(host(number).into()));
        (host_count..4 * host_count).for_each(|number| table.remove(host(number).into()));
        let listing = table.list();
        assert!(listing.is_complete && listing.inserted.len() == host_count as usize && table.is_empty());

        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 4 * subtable_cell_count);
        let mut whole: Table<Whole> = Table::with_secret(layout, &Secret::REPLAY);
        (0..host_count).for_each(|number| whole.insert(&host(number), ()));
        let whole_size = layout.cell_count() * Whole::SIZE;
        assert!(whole.list(Rule::Aggregates).is_complete());
        println!(
            "{host_count} addresses: {} bits a cell instead of {}, {} bytes instead of {whole_size}",
            shape.cell_bits(),
            8 * Whole::SIZE,
            table.byte_count()
        );
    }
}
