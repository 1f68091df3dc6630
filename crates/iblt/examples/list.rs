//! A million insertions pass through a table with room for a thousand keys, and what is left is listed.

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Rule, Sums, Table, plan};

fn main() {
    // A table that lists a thousand keys in all but one of a thousand tries.
    let plan = plan(1_000, 0.001);
    let mut sessions: Table<Sums<u64, u64>> = Table::with_secret(plan.layout(), &Secret::new(*b"known to us only"));
    println!("{} cells for {} keys: {}", plan.cell_count, plan.item_count, plan.placement);

    // Sessions open with a start time, and nearly all of them close.
    let start_of = |session: u64| 1_000 + session / 10;
    for session in 0..1_000_000 {
        sessions.insert(&session, start_of(session));
    }
    let overloaded = sessions.listing(Rule::Aggregates);
    let (listed, residue) = (overloaded.inserted.len(), overloaded.residue);
    println!("with a million open: {listed} listed, {} cells of keys left", residue.key_cell_count);

    for session in (0..1_000_000).filter(|session| session % 1_024 != 0) {
        sessions.remove(&session, start_of(session));
    }
    let listing = sessions.list(Rule::Aggregates);
    println!("with most of them closed: {} listed, complete: {}", listing.inserted.len(), listing.is_complete());
    assert!(listing.is_complete() && sessions.is_empty());
    assert!(listing.inserted.iter().all(|entry| entry.value() == Some(start_of(entry.key))));
}
