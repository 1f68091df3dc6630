//! The tables of connections with any content.
//!
//! What enters: a script of changes, of which any field may be a lie: cells that are not the key's, a check that is not
//! the key's. Sums of these are all the contents that there are. What leaves: nothing; peeling is held to its laws.

use crate::script::Script;
use flowpeel::flow::{FlowKey, KeyV4, KeyV6};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, Iblt, Peeled, Peeler, Recipient, ValueCode};

/// Changes of a script that are made.
const CHANGE_COUNT_MAX: usize = 256;

/// The bits of a hash that choose cells; those above are the check.
const PLACES_MASK: u128 = (1 << 96) - 1;

/// Runs a script.
pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    if script.byte() & 1 == 0 { exercise::<KeyV4>(&mut script) } else { exercise::<KeyV6>(&mut script) }
}

/// Takes everything down, and expects a value if it is given one.
struct Taken<'a, K> {
    code: &'a ValueCode<K>,
    expected: Option<u64>,
    peeled: Vec<Peeled<K>>,
}

impl<K: FlowKey> Recipient<K> for Taken<'_, K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn expected(&self, _key: &K, _placement: u128, _count: i32) -> Option<u64> {
        self.expected
    }

    fn take(&mut self, peeled: Peeled<K>) {
        self.peeled.push(peeled);
    }
}

/// One change, with the lies that the script asks for.
fn change<K: FlowKey>(script: &mut Script<'_>, hash: &KeyedHash<K>, code: &ValueCode<K>) -> Change<K> {
    let kind = script.byte();
    let mut words = [0; 5];
    match kind & 1 {
        0 => words[0] = u64::from(script.byte()),
        _ => words.iter_mut().for_each(|word| *word = u64::from_le_bytes(script.array())),
    }
    let key = K::from_words(&words[..K::WORD_COUNT]);
    let honest = hash.of(&key);
    let lie = if kind & 14 == 0 { 0 } else { u128::from_le_bytes(script.array()) };
    let hash = match kind >> 1 & 7 {
        1 => lie,
        2 => honest & !PLACES_MASK | lie & PLACES_MASK,
        3 => honest & PLACES_MASK | lie & !PLACES_MASK,
        // Some cells of its own and some of others.
        4 => honest & !0xffff_ffff_ffff | lie & 0xffff_ffff_ffff,
        _ => honest,
    };
    // The lowest count has no opposite, so its change cannot be undone.
    let count = (script.count() as i32).max(-i32::MAX);
    let value =
        if kind & 16 == 0 { code.encode(honest, u32::from(script.byte())) } else { u64::from_le_bytes(script.array()) };
    let value = if kind & 32 == 0 { value.wrapping_mul(i64::from(count) as u64) } else { value };
    Change { key, hash, count, value }
}

fn exercise<K: FlowKey>(script: &mut Script<'_>) {
    let hash = KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Placement);
    let code = ValueCode::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
    let geometry = Geometry::new(u32::from(script.byte()));
    let work_count = usize::from(script.byte());
    let expected = (script.byte() & 1 == 1).then(|| u64::from_le_bytes(script.array()));
    let mut changes = Vec::new();
    while !script.is_done() && changes.len() < CHANGE_COUNT_MAX {
        changes.push(change(script, &hash, &code));
    }
    let mut table = Iblt::new(geometry);
    table.apply(&changes);
    sums(&table, &changes);

    let mut peeler = Peeler::new(hash.clone(), work_count);
    let (rest, peeled) = peel(&table, &mut peeler, &code, expected);
    assert_eq!(peel(&table, &mut peeler, &code, expected), (rest.clone(), peeled), "peeling twice");
    // What is left is as hostile as before.
    let (mut rest, _) = peel(&rest, &mut peeler, &code, None);
    rest.clear_values();
    assert!(rest.is_zero() == rest.is_key_free() && rest.clear_values() == 0);
}

/// Peels a copy, and holds it to what holds for any content.
fn peel<K: FlowKey>(
    table: &Iblt<K>,
    peeler: &mut Peeler<K>,
    code: &ValueCode<K>,
    expected: Option<u64>,
) -> (Iblt<K>, Vec<Peeled<K>>) {
    let mut rest = table.clone();
    let mut taken = Taken { code, expected, peeled: Vec::new() };
    let count = peeler.peel(&mut rest, &mut taken);
    assert!(count == taken.peeled.len() && count <= table.cells().len(), "more keys than cells");
    let mut whole = rest.clone();
    for peeled in &taken.peeled {
        assert!(peeled.change.count != 0 && peeled.change.hash == peeler.hash().of(&peeled.change.key));
        assert!(peeled.value_known || peeled.change.value == 0);
        whole.apply_one(&peeled.change);
    }
    assert!(whole == *table, "what was peeled and what is left are not the whole");
    (rest, taken.peeled)
}

fn sums<K: FlowKey>(table: &Iblt<K>, changes: &[Change<K>]) {
    assert_eq!(table.estimated_count() == 0, table.is_key_free());
    let mut other = Iblt::new(table.geometry());
    changes.iter().rev().for_each(|change| other.apply_one(change));
    assert!(other == *table, "changes commute");
    other.merge(table).unwrap();
    other.subtract(table).unwrap();
    assert!(other == *table, "adding and subtracting");
    changes.iter().for_each(|change| other.apply_one(&change.undone()));
    assert!(other.is_zero(), "undoing all");
    for change in changes {
        other.subtract_value(change.hash, change.value);
    }
    assert!(other.is_key_free());
    other.clear();
    assert!(other.is_zero());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_lowest_count_is_run_and_undone() {
        for family in [0, 1] {
            for honesty in [0, 2] {
                // The family, the geometry, the work, nothing expected; then one change of an honest key.
                let mut script = vec![family, 5, 3, 0, honesty, 7];
                script.extend([0; 16].iter().take(if honesty == 0 { 0 } else { 16 }));
                script.push(0xff);
                script.extend(i64::from(i32::MIN).to_le_bytes());
                script.push(9);
                assert_eq!(count_of(&script, honesty), i64::from(i32::MIN));
                run(&script);
            }
        }
    }

    /// The count that the only change of a script asks for.
    fn count_of(script: &[u8], honesty: u8) -> i64 {
        let mut script = Script::new(script);
        script.array::<6>();
        if honesty != 0 {
            script.array::<16>();
        }
        script.count()
    }
}
