//! How often each word occurs: three kinds of counters, at more and more words a cell.

use flowpeel_iblt::hash::{Secret, mixed};
use flowpeel_iblt::{Counter, EvenOdd, Keeping, Layout, OneKey, Optimisations, Placement, SecretHash, Standard};

const CELL_COUNT: u32 = 1_000;

fn main() {
    let layout = Layout::new(Placement::Subtables { hash_count: 3 }, CELL_COUNT);
    let hash = || SecretHash::<u64>::new(&Secret::REPLAY);
    println!("{CELL_COUNT} cells, three for each word");
    for word_count in [750, 1_100, 1_300] {
        count("standard", &mut Standard::<u64>::new(layout, hash()), word_count);
        count("even-odd", &mut EvenOdd::<u64>::new(layout, hash()), word_count);
        count("one-key", &mut OneKey::<u64>::new(layout, hash(), Keeping::Drawn, Optimisations::BOTH), word_count);
    }
}

/// Adds so many words, each one to eight times, and lists them.
fn count(name: &str, counter: &mut impl Counter<Key = u64>, word_count: u64) {
    let times = |word: u64| 1 + mixed(word) % 8;
    (0..word_count).for_each(|word| counter.add(&word, times(word)));
    // Before anything is listed there is a bound for each word.
    assert!((0..word_count).all(|word| counter.query(&word) >= times(word)));
    let tally = counter.list();
    assert!(tally.keys.iter().all(|&(word, count)| count as u64 == times(word)));
    println!("{word_count:5} words, {name}: {:4} listed, complete: {}", tally.keys.len(), tally.is_complete());
}
