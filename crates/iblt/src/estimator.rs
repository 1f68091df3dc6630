//! The size of a difference, estimated before a table for it is made.
//!
//! Both sides fill an estimator of fixed size, one is sent over, and the table is planned for the estimate. Pairs are
//! split into strata by the zeros at the end of their hash: stratum i holds one pair in 2^(i+1). The sparsest strata of
//! the difference list; the first that does not gives the size, up to sampling error. The law: estimators of equal sets
//! differ by nothing, and the estimate depends on the difference alone, however large the sets.

use crate::cell::{Sums, TableCell, ValueCheck, ValueField};
use crate::hash::{Secret, mixed};
use crate::key_hash::{KeyHash, SecretHash};
use crate::listing::Rule;
use crate::placement::{Layout, Placement};
use crate::refused::Refused;
use crate::sum::{Key, Sum};
use crate::table::Table;

/// Strata of a size estimator: enough for billions of differences.
const ESTIMATOR_STRATUM_COUNT: usize = 32;

/// Cells of one stratum: enough to list some fifty differences, so that the estimate is off by 8 % on average.
const ESTIMATOR_CELL_COUNT: u32 = 80;

type FingerprintCell = Sums<u64, ()>;

/// A summary of a set of pairs, of a fixed 40 KiB, that gives the size of the set's difference with another.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::Estimator;
///
/// let mut here = Estimator::new(&Secret::REPLAY);
/// let mut there = here.clone();
/// (0..20_000u64).for_each(|key| here.insert(&key, &0u64));
/// (1_000..20_000u64).for_each(|key| there.insert(&key, &0u64));
/// let estimate = here.difference(&there);
/// assert!((700..1_300).contains(&estimate), "{estimate}");
/// ```
#[derive(Clone)]
pub struct Estimator<K> {
    hash: SecretHash<K>,
    strata: Vec<Table<FingerprintCell>>,
}

impl<K: Key> Estimator<K> {
    /// The estimator of an empty set. Both sides need the same secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, ESTIMATOR_CELL_COUNT);
        let strata = vec![Table::with_secret(layout, secret); ESTIMATOR_STRATUM_COUNT];
        Estimator { hash: SecretHash::new(secret), strata }
    }

    /// Adds a pair. The same key with another value is another pair.
    pub fn insert<V: Sum>(&mut self, key: &K, value: &V) {
        self.update(key, value, 1);
    }

    /// Removes a pair.
    pub fn remove<V: Sum>(&mut self, key: &K, value: &V) {
        self.update(key, value, -1);
    }

    fn update<V: Sum>(&mut self, key: &K, value: &V, count: i64) {
        let hash = self.hash.of(key);
        let check = <ValueCheck as ValueField<V>>::of(*value, hash);
        let mut bytes = [0; 8];
        check.write(&mut bytes);
        let fingerprint = u64::from_le_bytes(bytes);
        let stratum = (mixed(fingerprint).trailing_zeros() as usize).min(ESTIMATOR_STRATUM_COUNT - 1);
        self.strata[stratum].update(&fingerprint, (), count);
    }

    /// About how many pairs are in only one of the two sets. The estimate is off by 8 % on average and hardly ever by
    /// more than a third; up to about forty it is exact.
    #[must_use]
    pub fn difference(&self, other: &Self) -> u64 {
        let mut count = 0u64;
        for (at, (ours, theirs)) in self.strata.iter().zip(&other.strata).enumerate().rev() {
            let mut table = ours.clone();
            // All strata have one layout.
            let is_same = table.subtract(theirs).is_ok();
            let listing = table.list(Rule::Aggregates);
            if !is_same || !listing.is_complete() {
                return count.max(1) << (at + 1);
            }
            count += (listing.inserted.len() + listing.deleted.len()) as u64;
        }
        count
    }

    /// The estimator in bytes, the same on every machine.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.strata.iter().flat_map(Table::to_bytes).collect()
    }

    /// Decodes an estimator that [`Self::to_bytes`] encoded.
    ///
    /// # Errors
    /// [`Refused::Length`]: the bytes are not as many as an estimator takes.
    pub fn from_bytes(secret: &Secret, bytes: &[u8]) -> Result<Self, Refused> {
        let mut estimator = Estimator::new(secret);
        let size = ESTIMATOR_CELL_COUNT as usize * FingerprintCell::SIZE;
        if bytes.len() != size * ESTIMATOR_STRATUM_COUNT {
            return Err(Refused::Length { expected: size * ESTIMATOR_STRATUM_COUNT, found: bytes.len() });
        }
        for (stratum, bytes) in estimator.strata.iter_mut().zip(bytes.chunks(size)) {
            *stratum = Table::from_bytes(stratum.layout(), stratum.hash().clone(), bytes)?;
        }
        Ok(estimator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_near_the_truth_and_exact_when_small() {
        for (seed, truth) in [0u64, 1, 7, 40, 300, 5_000, 60_000].into_iter().enumerate() {
            let mut here = Estimator::new(&Secret::new([seed as u8; 16]));
            let mut there = here.clone();
            (0..200_000u64).filter(|key| *key < truth || key % 100 == 0).for_each(|key| here.insert(&key, &key));
            (truth..200_000u64).filter(|key| key % 100 == 0).for_each(|key| there.insert(&key, &key));
            let estimate = here.difference(&there);
            assert!(estimate.abs_diff(truth) * 3 <= truth, "{estimate} for {truth}");
            assert!(truth > 40 || estimate == truth);
            let back = Estimator::<u64>::from_bytes(&Secret::new([seed as u8; 16]), &here.to_bytes()).unwrap();
            assert_eq!(back.difference(&there), estimate);
        }
    }

    #[test]
    fn estimates_scatter_no_more_than_documented() {
        let truth = 3_000u64;
        let errors = (0..200u8).map(|seed| {
            let mut here = Estimator::new(&Secret::new([seed; 16]));
            let there = here.clone();
            (0..truth).for_each(|key| here.insert(&key, &0u64));
            here.difference(&there).abs_diff(truth) as f64 / truth as f64
        });
        let errors: Vec<f64> = errors.collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let far = errors.iter().filter(|&&error| error > 0.34).count();
        println!(
            "off by {mean:.3} on average, by more than a third in {far} of 200, at most by {:.3}",
            errors.iter().copied().fold(0.0, f64::max)
        );
        assert!(mean < 0.1 && far <= 1);
    }

    #[test]
    fn another_value_is_another_pair() {
        let mut here = Estimator::<u64>::new(&Secret::REPLAY);
        let mut there = here.clone();
        here.insert(&1, &1u64);
        there.insert(&1, &2u64);
        assert_eq!(here.difference(&there), 2);
        there.remove(&1, &2u64);
        there.insert(&1, &1u64);
        assert_eq!(here.to_bytes(), there.to_bytes());
    }
}
