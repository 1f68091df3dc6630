//! Files and logs, whole, cut and damaged.

use flowpeel_bfield::{Field, FieldFile, Found, Goal, Growing, Pair, Plan, Recovered, load, save};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

const KEY_COUNT: u64 = 3_000;

fn pair(key: u64) -> Pair {
    Pair { hash: hash(key), value: (key % 500) as u32 }
}

fn hash(key: u64) -> u128 {
    SecretHash::new(&Secret::REPLAY).of(&key)
}

fn pairs(count: u64) -> Vec<Pair> {
    (0..count).map(pair).collect()
}

fn plan() -> Plan {
    Plan::new(&Goal { false_positive_rate: 1e-3, key_count: KEY_COUNT, value_count: 500 }).unwrap()
}

fn field() -> Field {
    Field::build(&plan(), || pairs(KEY_COUNT)).unwrap().field
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    (folder, path)
}

#[test]
fn what_is_saved_is_loaded_and_looked_up() {
    let (_folder, path) = folder();
    let field = field();
    let size = save(&field, &path).unwrap();
    assert_eq!(size, fs::metadata(&path).unwrap().len());
    assert!(size < field.plan().byte_size() + 512 + field.plan().byte_size() / 512);
    assert_eq!(load(&path).unwrap(), field);
    let mut file = FieldFile::open(&path).unwrap();
    file.verify().unwrap();
    for key in 0..2 * KEY_COUNT {
        assert_eq!(file.look_up(hash(key)).unwrap(), field.look_up(hash(key)));
    }
    // The file replaces an older one, and nothing else is left behind.
    save(&Field::new(&plan()), &path).unwrap();
    assert_eq!(load(&path).unwrap(), Field::new(&plan()));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn the_bytes_of_a_file_are_the_same_everywhere() {
    let (_folder, path) = folder();
    save(&field(), &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), crc32fast::hash(&bytes)), (14_600, 0xd058_5ed3));
}

#[test]
fn every_damaged_byte_is_found() {
    let (_folder, path) = folder();
    save(&field(), &path).unwrap();
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(37).chain(0..520).chain(whole.len() - 40..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        assert!(load(&path).is_err(), "byte {at}");
        // A look-up in what is left is right, or fails.
        if let Ok(mut file) = FieldFile::open(&path) {
            assert!(file.verify().is_err());
            for key in 0..20 {
                assert!(file.look_up(hash(key)).is_ok_and(|found| found == Found::Value(key as u32)) || at >= 512);
            }
        }
    }
    for size in [0, 1, 511, 512, whole.len() - 1] {
        fs::write(&path, &whole[..size]).unwrap();
        assert!(FieldFile::open(&path).is_err(), "{size} bytes");
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    let error = FieldFile::open(&path).unwrap_err().to_string();
    assert!(error.contains("build it again"), "{error}");
}

#[test]
fn a_head_that_asks_for_the_world_is_refused() {
    let (_folder, path) = folder();
    save(&field(), &path).unwrap();
    let whole = fs::read(&path).unwrap();
    // Places of the first array, arrays, hash functions, nu: with a correct checksum.
    for (offset, number) in
        [(80, u64::MAX), (80, 1 << 42), (28, u64::MAX), (20, 0), (20, 65), (12, 65), (12, 0), (64, u64::MAX)]
    {
        let mut bytes = whole.clone();
        let size = if (40..488).contains(&offset) { 8 } else { 4 };
        bytes[offset..offset + size].copy_from_slice(&number.to_le_bytes()[..size]);
        let check = crc32fast::hash(&bytes[..508]);
        bytes[508..512].copy_from_slice(&check.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        assert!(FieldFile::open(&path).is_err() && load(&path).is_err(), "{number} at {offset}");
    }
}

#[test]
fn a_field_grows_and_is_never_wrong() {
    let (_folder, path) = folder();
    let (growing, recovered) = Growing::open(&path, &plan()).unwrap();
    assert_eq!(recovered, Recovered::default());
    assert!(Growing::open(&path, &plan()).is_err(), "a log belongs to one");
    std::thread::scope(|scope| {
        let insert = |from: u64| {
            let growing = &growing;
            move || {
                pairs(KEY_COUNT)[from as usize..].chunks(64).step_by(2).for_each(|pairs| growing.insert(pairs).unwrap())
            }
        };
        scope.spawn(insert(0));
        scope.spawn(insert(64));
        for _ in 0..20 {
            growing.settle().unwrap();
            assert!((0..100).all(|key| growing.look_up(hash(key)) != Found::Value(500)));
        }
    });
    (0..KEY_COUNT).for_each(|key| assert_ne!(growing.look_up(hash(key)), Found::Absent));
    growing.flush().unwrap();
    let built = growing.finish().unwrap();
    assert_eq!((built.pair_count, built.indeterminate_count), (KEY_COUNT, 0));
    assert_eq!(built.field, field());
    let (resumed, recovered) = Growing::open(&path, &plan()).unwrap();
    assert_eq!(recovered, Recovered { pair_count: KEY_COUNT, ..Recovered::default() });
    assert_eq!(resumed.finish().unwrap().field, field());
}

#[test]
fn a_log_cut_at_any_byte_gives_what_precedes_the_cut() {
    let (_folder, path) = folder();
    let (growing, _) = Growing::open(&path, &plan()).unwrap();
    growing.insert(&pairs(5)).unwrap();
    drop(growing.finish().unwrap());
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), 32 + 5 * 24);
    for size in 0..=whole.len() {
        fs::write(&path, &whole[..size]).unwrap();
        let (growing, recovered) = Growing::open(&path, &plan()).unwrap();
        let (pair_count, rest) = if size < 32 { (0, size) } else { ((size - 32) / 24, (size - 32) % 24) };
        let expected = Recovered { pair_count: pair_count as u64, cut_size: rest as u64, damaged_count: 0 };
        assert_eq!(recovered, expected, "cut at {size}");
        for key in 0..5 {
            let expected = if key < pair_count as u64 { Found::Value(key as u32) } else { Found::Absent };
            assert_eq!(growing.look_up(hash(key)), expected);
        }
        // What is appended now takes the place of what was cut.
        growing.insert(&pairs(5)[pair_count..]).unwrap();
        drop(growing.finish().unwrap());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn a_log_of_something_else_is_left_alone() {
    let (_folder, path) = folder();
    for bytes in [&b"x"[..], &[0; 100], b"FPBFLOG1 but not really one, of no values at all"] {
        fs::write(&path, bytes).unwrap();
        assert!(Growing::open(&path, &plan()).is_err());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_value_that_is_too_large_is_not_logged() {
    let (_folder, path) = folder();
    let (growing, _) = Growing::open(&path, &plan()).unwrap();
    assert!(growing.insert(&[pair(1), Pair { hash: 7, value: 500 }]).is_err());
    assert_eq!(growing.finish().unwrap().pair_count, 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), 32);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damage_in_a_log_is_counted(damaged in prop::collection::btree_set(0usize..40, 0..6), bit in 0usize..192) {
        let (_folder, path) = folder();
        let (growing, _) = Growing::open(&path, &plan()).unwrap();
        growing.insert(&pairs(40)).unwrap();
        drop(growing.finish().unwrap());
        let mut bytes = fs::read(&path).unwrap();
        damaged.iter().for_each(|record| bytes[32 + 24 * record + bit / 8] ^= 1 << (bit % 8));
        fs::write(&path, &bytes).unwrap();
        let (growing, recovered) = Growing::open(&path, &plan()).unwrap();
        // Damaged records at the end were never finished; the others are lost.
        let tail = (0..40).rev().take_while(|record| damaged.contains(record)).count();
        prop_assert_eq!(recovered.pair_count, 40 - damaged.len() as u64);
        prop_assert_eq!(recovered.damaged_count, (damaged.len() - tail) as u64);
        prop_assert_eq!(recovered.cut_size, 24 * tail as u64);
        for key in (0..40).filter(|key| !damaged.contains(key)) {
            prop_assert_eq!(growing.look_up(hash(key as u64)), Found::Value(key as u32));
        }
    }
}
