//! An index that grows while it is used, and what its log is worth after a crash:
//! `cargo run --release -p flowpeel-bfield --example growing`

use flowpeel_bfield::{Found, Goal, Growing, Pair, Plan};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use std::error::Error;
use std::fs::OpenOptions;

const BOOK_COUNT: u64 = 200_000;
const SHELF_COUNT: u64 = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let hash = SecretHash::new(&Secret::REPLAY);
    let plan = Plan::new(&Goal { false_positive_rate: 1e-4, key_count: BOOK_COUNT, value_count: SHELF_COUNT })?;
    let book = |number: u64| Pair { hash: hash.of(&number), value: (number % SHELF_COUNT) as u32 };
    let log = std::env::temp_dir().join(format!("flowpeel-bfield-growing-{}.log", std::process::id()));

    // Two threads put books on shelves while a third asks for the first one.
    let (index, _) = Growing::open(&log, &plan)?;
    std::thread::scope(|scope| {
        let put = |first: u64| {
            let index = &index;
            move || {
                let books: Vec<Pair> = (first..BOOK_COUNT).step_by(2).map(book).collect();
                books.chunks(1_000).try_for_each(|books| index.insert(books))
            }
        };
        let threads = [scope.spawn(put(0)), scope.spawn(put(1))];
        while index.look_up(hash.of(&0)) == Found::Absent && !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::yield_now();
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    index.flush()?;
    drop(index);

    // A crash leaves the last record half written.
    let file = OpenOptions::new().write(true).open(&log)?;
    file.set_len(file.metadata()?.len() - 10)?;
    drop(file);

    let (index, recovered) = Growing::open(&log, &plan)?;
    println!("recovered {} books, cut off {} bytes", recovered.pair_count, recovered.cut_size);
    let built = index.finish()?;
    println!(
        "{} books in {:.2} bytes each, {} undecided",
        built.pair_count,
        plan.byte_size() as f64 / built.pair_count as f64,
        built.indeterminate_count
    );
    let found =
        (0..BOOK_COUNT).filter(|number| built.field.look_up(hash.of(number)) == Found::Value(book(*number).value));
    println!("{} books are found", found.count());
    Ok(std::fs::remove_file(log)?)
}
