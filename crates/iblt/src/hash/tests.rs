//! The hashes, bit for bit, and that keys hashed together have the hashes that each has alone.

use super::*;
use crate::word_key::examples::{FiveWords, TwoWords};
use proptest::prelude::*;

fn v4(seed: u64) -> TwoWords {
    TwoWords::from_words(&[seed, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)])
}

#[test]
fn one_block_is_plain_aes_under_the_derived_key() {
    // Computed with OpenSSL: the subkey is AES-128 of 02 04 00.. under the secret 00..0f, the hash is AES-128 of the
    // key's 16 bytes under the subkey.
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    let key = TwoWords::from_words(&[0x0a00_0001_9c40_0a00, 0x0002_01bb_0000_0000]);
    let hash = KeyedHash::<TwoWords>::new(&secret, Purpose::Placement).of(&key);
    assert_eq!(format!("{hash:032x}"), "2672c46b65cf9f424dc89b9f3cd13998");
}

#[test]
fn purposes_families_and_secrets_are_independent() {
    let key = v4(7);
    let hash = |secret: &Secret, purpose| KeyedHash::<TwoWords>::new(secret, purpose).of(&key);
    let base = hash(&Secret::REPLAY, Purpose::Placement);
    assert_ne!(base, hash(&Secret::REPLAY, Purpose::Connection));
    assert_ne!(base, hash(&Secret::REPLAY, Purpose::Value));
    assert_ne!(base, hash(&Secret::new([1; 16]), Purpose::Placement));
}

#[test]
fn derived_keys_are_plain_hmac_and_depend_on_the_label() {
    // Computed with OpenSSL: HMAC-SHA256 of the label under the 16 bytes 00..0f.
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    let key: String = secret.derived(b"label").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(key, "8dd3b6e352df94ee324e5d6c61978182ec46abf212c7b7c7d88eee7a99de2971");
    assert_ne!(secret.derived(b"label"), secret.derived(b"other"));
    assert_ne!(secret.derived(b"label"), Secret::REPLAY.derived(b"label"));
}

#[test]
fn a_secret_is_not_printed() {
    assert_eq!(format!("{:?}", Secret::new([65; 16])), "Secret(..)");
}

proptest! {
    #[test]
    fn groups_and_batches_hash_like_their_keys(words in prop::collection::vec(any::<[u64; 5]>(), 0..=HASH_BATCH_COUNT)) {
        let keys: Vec<FiveWords> = words.iter().map(|words| FiveWords::from_words(words)).collect();
        let hash = KeyedHash::<FiveWords>::new(&Secret::REPLAY, Purpose::Connection);
        let (mut batch, mut hashes) = (HashBatch::default(), vec![0; keys.len()]);
        let groups = keys.chunks(HASH_GROUP_COUNT).zip(hashes.chunks_mut(HASH_GROUP_COUNT));
        groups.for_each(|(keys, hashes)| hash.of_group(keys, hashes));
        hash.of_batch(&keys, &mut batch);
        let together: Vec<u128> = (0..keys.len()).map(|at| batch.get(at)).collect();
        hash.of_hashes(&mut batch, keys.len());
        for (at, key) in keys.iter().enumerate() {
            prop_assert_eq!((hash.of(key), hash.of(key)), (hashes[at], together[at]));
            prop_assert_eq!(hash.of_block(together[at]), batch.get(at));
        }
    }
}
