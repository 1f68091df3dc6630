//! Tables of any cells, in any layout, with any content.
//!
//! What enters: a script that says which cells and which layout, then how to fill them: by updates, by parts that stand
//! in one cell of a key only, and by any bytes. What leaves: nothing; every operation is held to its laws.

mod laws;

use crate::script::Script;
use flowpeel::flow::{KeyV4, KeyV6};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{
    CheckedCell, Degrees, Estimator, KeyHash, Layout, PackedCell, Placement, PlainCell, Refused, Squares, Sum, Sums,
    Table, TableCell, ValueCheck, XorCell, Xoring,
};

/// Steps of a script that are taken: more make a run slow and find nothing new.
const STEP_COUNT_MAX: usize = 64;

/// Factors of two that counts from a script may have: one more doubles the time of dividing by them.
const COUNT_TWOS_MAX: u32 = 6;

/// Runs a script.
pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    match script.byte() % 14 {
        0 => exercise::<Sums<u64, u64>>(script),
        1 => exercise::<CheckedCell<u64>>(script),
        2 => exercise::<PlainCell<u64>>(script),
        3 => exercise::<Sums<u64, u64, i8, u16, (ValueCheck, Squares)>>(script),
        4 => exercise::<Sums<u64, u64, (), u64, ValueCheck, Xoring>>(script),
        5 => exercise::<Sums<u64, u64, i64, (), (), Xoring>>(script),
        6 => exercise::<XorCell<u64>>(script),
        7 => exercise::<Sums<[u8; 13], [u8; 9], i16, u64>>(script),
        8 => exercise::<Sums<u128, u16, i64, u32, ValueCheck>>(script),
        9 => exercise::<PackedCell<KeyV4>>(script),
        10 => exercise::<PackedCell<KeyV6>>(script),
        11 => exercise::<Sums<u8, (), i8, u16>>(script),
        12 => exercise::<Sums<u64, u64, i32, u32, Squares>>(script),
        _ => estimate(&mut script),
    }
}

fn layout(script: &mut Script<'_>) -> Layout {
    let [kind, hash_count, segment_count, cell_count, lost] = script.array();
    let (hash_count, segment_count) = (u32::from(hash_count), u32::from(segment_count));
    let placement = match kind % 6 {
        0 | 1 => Placement::Subtables { hash_count: hash_count % 9 },
        2 => Placement::Distinct { hash_count },
        3 => Placement::Coupled { hash_count: hash_count % 9, segment_count, half_ends: kind & 64 != 0 },
        4 => Placement::Irregular(Degrees::FEW),
        _ => {
            let shares: [(u8, u16); 3] =
                std::array::from_fn(|_| (script.byte() % 26, u16::from_le_bytes(script.array())));
            Placement::Irregular(Degrees::new(&shares).unwrap_or(Degrees::MANY))
        }
    };
    let layout = Layout::new(placement, u32::from(cell_count));
    layout.without(u32::from(lost)).unwrap_or(layout)
}

/// A count without so many factors of two that a run takes seconds.
fn count(script: &mut Script<'_>) -> i64 {
    let count = script.count();
    if count.trailing_zeros() > COUNT_TWOS_MAX { count | 1 << COUNT_TWOS_MAX } else { count }
}

/// Fills a table.
fn filled<C: TableCell>(layout: Layout, script: &mut Script<'_>) -> Table<C> {
    let mut table = Table::<C>::with_secret(layout, &Secret::REPLAY);
    for _ in 0..STEP_COUNT_MAX {
        if script.is_done() {
            break;
        }
        match script.byte() % 7 {
            0 => table.insert(&script.sum(), script.sum()),
            1 => table.remove(&script.sum(), script.sum()),
            2 => {
                let (key, value) = (script.sum(), script.sum());
                table.update(&key, value, count(script));
            }
            // A whole part of a key in one of its cells, or in a cell that is none of its own.
            3 => {
                let (key, value): (C::Key, C::Value) = (script.sum(), script.sum());
                let hash = table.hash().of(&key);
                let part = C::of(&key, value, hash, count(script));
                let places = layout.places(hash);
                let any = usize::from(script.byte());
                let place = places.get(any).map_or(any % layout.cell_count(), |&place| place as usize);
                overlay(&mut table, place, |cell| cell.add(&part));
            }
            4 => {
                let place = usize::from(script.byte()) % layout.cell_count();
                let mut bytes = vec![0; C::SIZE];
                script.fill(&mut bytes);
                overlay(&mut table, place, |cell| *cell = C::read(&bytes));
            }
            5 => {
                let pairs: Vec<(C::Key, C::Value)> = (0..script.byte()).map(|_| (script.sum(), script.sum())).collect();
                table.insert_all(&pairs);
            }
            _ => {
                let mut bytes = table.to_bytes();
                script.fill(&mut bytes);
                table = Table::from_bytes(layout, table.hash().clone(), &bytes).unwrap();
            }
        }
    }
    table
}

/// Changes one cell, by way of the encoding.
fn overlay<C: TableCell>(table: &mut Table<C>, place: usize, change: impl FnOnce(&mut C)) {
    let mut cell = table.cells()[place];
    change(&mut cell);
    let mut bytes = table.to_bytes();
    cell.write(&mut bytes[place * C::SIZE..][..C::SIZE]);
    *table = Table::from_bytes(table.layout(), table.hash().clone(), &bytes).unwrap();
}

fn exercise<C: TableCell>(mut script: Script<'_>) {
    let layout = layout(&mut script);
    let lost = u32::from(script.byte());
    let known_count = script.byte() % 24;
    let known: Vec<(C::Key, C::Value)> = (0..known_count).map(|_| (script.sum(), script.sum())).collect();
    let mut table = filled::<C>(layout, &mut script);
    laws::hold(&table, &known);
    let before = table.clone();
    match table.lose_subtable(lost) {
        Ok(()) => laws::hold(&table, &known),
        Err(refused) => assert!(refused == Refused::Subtable && table == before),
    }
}

/// The estimators of two strangers.
fn estimate(script: &mut Script<'_>) {
    let secret = Secret::REPLAY;
    let mut ours = Estimator::<u64>::new(&secret);
    let mut bytes = ours.to_bytes();
    assert!(Estimator::<u64>::from_bytes(&secret, &bytes[1..]).is_err());
    for _ in 0..script.byte() {
        let (key, value): (u64, u64) = (script.sum(), script.sum());
        ours.insert(&key, &value);
    }
    assert_eq!(ours.difference(&ours), 0);
    if script.byte() & 1 == 0 {
        script.fill(&mut bytes);
    } else {
        let pattern = script.rest();
        bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, &new)| *byte = new);
    }
    let theirs = Estimator::from_bytes(&secret, &bytes).unwrap();
    assert_eq!(theirs.to_bytes(), bytes);
    assert_eq!(ours.difference(&theirs), ours.difference(&theirs));
    assert_eq!(theirs.difference(&theirs), 0);
    let _ = theirs.difference(&ours);
    let (key, value) = (u64::zero(), u64::zero());
    let mut there_and_back = theirs.clone();
    there_and_back.insert(&key, &value);
    there_and_back.remove(&key, &value);
    assert_eq!(there_and_back.to_bytes(), bytes);
}
