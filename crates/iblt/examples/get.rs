//! What a table knows of single keys: the more cells a key, the more often it knows.

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Got, Layout, Placement, Sums, Table};

const KEY_COUNT: u64 = 10_000;

fn main() {
    for cells_a_key in [1.5, 2.0, 4.0, 8.0] {
        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, (KEY_COUNT as f64 * cells_a_key) as u32);
        let mut stock: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
        (0..KEY_COUNT).for_each(|article| stock.insert(&article, article % 100));

        let share = |known: usize| 100.0 * known as f64 / KEY_COUNT as f64;
        let present: Vec<u64> = (0..KEY_COUNT).collect();
        let absent: Vec<u64> = (KEY_COUNT..2 * KEY_COUNT).collect();
        let found = stock.get_all(&present);
        let missing = stock.get_all(&absent);
        // An answer that is given is right.
        assert!(found.iter().zip(&present).all(|(got, key)| *got == Got::Unknown || got.value() == Some(key % 100)));
        assert!(missing.iter().all(|got| matches!(got, Got::Absent | Got::Unknown)));
        println!(
            "{cells_a_key} cells a key: {:5.1} % of the present keys found, {:5.1} % of the absent ones known to be absent",
            share(found.iter().filter(|got| got.value().is_some()).count()),
            share(missing.iter().filter(|got| **got == Got::Absent).count()),
        );
    }
}
