//! The hashes, bit for bit, and that keys hashed together have the hashes that each has alone.

use super::*;
use crate::flow::{KeyV4, KeyV6, VlanTags};
use proptest::prelude::*;

fn v4(seed: u64) -> KeyV4 {
    KeyV4::from_words(&[seed, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)])
}

#[test]
fn one_block_is_plain_aes_under_the_derived_key() {
    // Computed with OpenSSL: the subkey is AES-128 of 02 04 00.. under the secret 00..0f, the hash is AES-128 of the
    // key's 16 bytes under the subkey.
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    let key = KeyV4::new((0x0a00_0001, 40000), (0x0a00_0002, 443), VlanTags::NONE);
    let hash = KeyedHash::<KeyV4>::new(&secret, Purpose::Placement).of(&key);
    assert_eq!(format!("{hash:032x}"), "2672c46b65cf9f424dc89b9f3cd13998");
}

#[test]
fn purposes_families_and_secrets_are_independent() {
    let key = v4(7);
    let hash = |secret: &Secret, purpose| KeyedHash::<KeyV4>::new(secret, purpose).of(&key);
    let base = hash(&Secret::REPLAY, Purpose::Placement);
    assert_ne!(base, hash(&Secret::REPLAY, Purpose::Connection));
    assert_ne!(base, hash(&Secret::REPLAY, Purpose::Value));
    assert_ne!(base, hash(&Secret::new([1; 16]), Purpose::Placement));
}

#[test]
fn the_quick_hash_spreads_near_keys_and_depends_on_the_secret() {
    let quick = QuickHash::new(&Secret::REPLAY);
    let key = |client: u32, port: u16| KeyV4::new((client, port), (0x0a00_0001, 443), VlanTags::NONE);
    let keys = (0..256).flat_map(|client| (0..256).map(move |port| key(client, port)));
    let mut tops = vec![0u32; 4_096];
    let mut hashes: Vec<u64> = keys.map(|key| quick.of(&key)).collect();
    hashes.iter().for_each(|hash| tops[(hash >> 52) as usize] += 1);
    // 65,536 keys over 4,096 places: 16 each, and seldom more than six standard deviations above.
    assert!(tops.iter().all(|&count| count < 40), "{:?}", tops.iter().max());
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 1 << 16);
    assert_ne!(quick.of(&key(1, 1)), QuickHash::new(&Secret::new([1; 16])).of(&key(1, 1)));
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
        let keys: Vec<KeyV6> = words.iter().map(|words| KeyV6::from_words(words)).collect();
        let hash = KeyedHash::<KeyV6>::new(&Secret::REPLAY, Purpose::Connection);
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
