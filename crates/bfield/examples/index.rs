//! Indexes a million words in a file, and looks some up in it: `cargo run --release -p flowpeel-bfield --example index`

use flowpeel_bfield::{Field, FieldFile, Found, Goal, Pair, Plan, save};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use std::error::Error;

const KEY_COUNT: u64 = 1_000_000;
const SHELF_COUNT: u64 = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let hash = SecretHash::new(&Secret::REPLAY);
    let plan = Plan::new(&Goal { false_positive_rate: 1e-4, key_count: KEY_COUNT, value_count: SHELF_COUNT })?;
    let books = || (0..KEY_COUNT).map(|book| Pair { hash: hash.of(&book), value: (book % SHELF_COUNT) as u32 });
    let path = std::env::temp_dir().join("flowpeel-bfield-example.bfield");
    let size = save(&Field::build(&plan, books)?.field, &path)?;
    println!("{KEY_COUNT} books on {SHELF_COUNT} shelves: {:.2} bytes a book", size as f64 / KEY_COUNT as f64);

    let mut index = FieldFile::open(&path)?;
    for book in [7, 123_456, KEY_COUNT + 1] {
        match index.look_up(hash.of(&book))? {
            Found::Value(shelf) => println!("book {book} is on shelf {shelf}"),
            Found::Absent => println!("book {book} is not here"),
            Found::Indeterminate => println!("book {book}: ask elsewhere"),
        }
    }
    Ok(std::fs::remove_file(path)?)
}
