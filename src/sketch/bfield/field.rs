//! A field in memory.
//!
//! What enters: pairs of a key's hash and a value, in any order. What leaves: what is known of a key. INSERT and LOOKUP
//! are those of the paper (section "Implementation Details", 4b and 5a), with values whitened.

use super::array::BitArray;
use super::look_up::{ArrayAnswer, Found, ReadWindows, look_up};
use super::places::{Whitening, WindowStarts};
use super::plan::ArrayPlan;
use super::{Plan, Unplannable};
use std::convert::Infallible;

/// Keys that are worked on together: their windows are asked for before the first is needed.
pub(super) const GROUP_COUNT: usize = 16;

/// Windows that are asked for at first when keys are looked up: half of the bits are set, so few keys that are not in
/// need more.
const FIRST_WINDOWS: usize = 5;

/// A key's hash, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// 128 bits that look random ([`KeyHash`](crate::sketch::KeyHash)), the same wherever the field is used.
    pub hash: u128,
    /// The value, below the plan's number of values.
    pub value: u32,
}

/// A pair whose value is none of those that the field is planned for. Nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTooLarge {
    /// The value.
    pub value: u32,
    /// How many values there are.
    pub value_count: u64,
}

impl std::fmt::Display for ValueTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "value {} in a field of {} values: plan it for more", self.value, self.value_count)
    }
}

impl std::error::Error for ValueTooLarge {}

/// What became of a pair that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether an array tells its value now.
    pub is_told: bool,
    /// Whether bits were set for it.
    pub is_changed: bool,
}

/// A B-field: a primary array, and one after another for the keys that those before it can not tell.
///
/// ```
/// use flowpeel::hash::Secret;
/// use flowpeel::sketch::bfield::{Field, Found, Goal, Pair, Plan};
/// use flowpeel::sketch::{KeyHash, SecretHash};
///
/// let hash = SecretHash::<u64>::new(&Secret::REPLAY);
/// let plan = Plan::new(&Goal { false_positive_rate: 1e-6, key_count: 10_000, value_count: 500 })?;
/// let pairs = || (0..10_000u64).map(|key| Pair { hash: hash.of(&key), value: key as u32 % 500 });
/// let built = Field::build(&plan, pairs)?;
/// assert_eq!(built.indeterminate_count, 0);
/// assert_eq!(built.field.look_up(hash.of(&1_234)), Found::Value(234));
/// assert_eq!(built.field.look_up(hash.of(&10_000)), Found::Absent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    plan: Plan,
    arrays: Vec<BitArray>,
    is_settled: bool,
    pair_count: u64,
}

/// The arrays in memory, read without fail.
struct InMemory<'a>(&'a [BitArray]);

impl ReadWindows for InMemory<'_> {
    type Error = Infallible;

    #[inline]
    fn window(&mut self, array_index: usize, place: u64) -> Result<u64, Infallible> {
        Ok(self.0[array_index].window(place))
    }
}

impl Field {
    /// An empty field: [`Plan::byte_size`] bytes of zeros.
    ///
    /// # Panics
    ///
    /// When the memory can not be had.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let zeros = |array: &ArrayPlan| vec![0; plan.word_count(array) as usize];
        let arrays = plan.arrays().iter().map(|array| BitArray::new(zeros(array), plan.code().nu()));
        Field { plan: plan.clone(), arrays: arrays.collect(), is_settled: false, pair_count: 0 }
    }

    /// The field whose arrays have these words, as a stored one has.
    ///
    /// # Errors
    ///
    /// There are not as many words as the plan says.
    pub fn from_words(plan: &Plan, arrays: Vec<Vec<u64>>, contents: Contents) -> Result<Self, Unplannable> {
        let lengths = plan.arrays().iter().map(|array| plan.word_count(array));
        if !lengths.eq(arrays.iter().map(|words| words.len() as u64)) {
            return Err(Unplannable::Parts);
        }
        let arrays = arrays.into_iter().map(|words| BitArray::new(words, plan.code().nu())).collect();
        Ok(Field { plan: plan.clone(), arrays, is_settled: contents.is_settled, pair_count: contents.pair_count })
    }

    /// What it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What is in it, beside the bits.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents { pair_count: self.pair_count, is_settled: self.is_settled }
    }

    /// The words of an array, bit 0 of the first being its first place. Nothing, where there is no such array.
    #[must_use]
    pub fn words(&self, array_index: usize) -> &[u64] {
        self.arrays.get(array_index).map_or(&[], BitArray::words)
    }

    /// Whether the values are among those that the field is planned for.
    ///
    /// # Errors
    ///
    /// One is not.
    pub fn check(&self, pairs: &[Pair]) -> Result<(), ValueTooLarge> {
        let value_count = self.plan.goal().value_count;
        let wrong = pairs.iter().find(|pair| u64::from(pair.value) >= value_count);
        wrong.map_or(Ok(()), |pair| Err(ValueTooLarge { value: pair.value, value_count }))
    }

    /// Inserts pairs into the first array. Some keys will not be told there: [`Self::settle`] does what is to be done
    /// about them, when all are in or from time to time; until then those are [`Found::Indeterminate`].
    ///
    /// # Errors
    ///
    /// A value is too large; nothing was inserted.
    pub fn insert(&mut self, pairs: &[Pair]) -> Result<(), ValueTooLarge> {
        self.check(pairs)?;
        self.is_settled &= pairs.is_empty();
        self.pair_count = self.pair_count.saturating_add(pairs.len() as u64);
        let Some((array, array_plan)) = self.arrays.first_mut().zip(self.plan.arrays().first()) else { return Ok(()) };
        for group in pairs.chunks(GROUP_COUNT) {
            for pair in group {
                WindowStarts::new(&self.plan, array_plan, 0, pair.hash).for_each(|place| array.prefetch(place));
            }
            for pair in group {
                let bits = Whitening::new(self.plan.code(), 0, pair.hash).encode(pair.value);
                WindowStarts::new(&self.plan, array_plan, 0, pair.hash).for_each(|place| {
                    array.set(place, bits);
                });
            }
        }
        Ok(())
    }

    /// Inserts a pair again into the arrays after the first, up to one that tells it. Settling all pairs, over and
    /// again until nothing changes, makes a field that tells all that it can. Pairs that are settled must have been
    /// inserted, and with that checked.
    pub fn settle(&mut self, pair: &Pair) -> Settled {
        let mut settled = Settled { is_told: false, is_changed: false };
        for (array_index, array_plan) in self.plan.arrays().iter().enumerate() {
            let array = &mut self.arrays[array_index];
            let places = WindowStarts::new(&self.plan, array_plan, array_index, pair.hash);
            if array_index > 0 {
                let bits = Whitening::new(self.plan.code(), array_index, pair.hash).encode(pair.value);
                for place in places {
                    settled.is_changed |= array.set(place, bits);
                }
            }
            let common = places.fold(self.plan.code().mask(), |bits, place| bits & array.window(place));
            if common.count_ones() == self.plan.code().kappa() {
                settled.is_told = true;
                break;
            }
        }
        settled
    }

    /// Says that every pair was settled, and that nothing changed when it was tried again: what an array can not tell
    /// and the next one does not have was never inserted.
    pub(super) fn seal(&mut self) {
        self.is_settled = true;
    }

    /// Which of these keys the first array can not tell.
    pub(super) fn untold_in_first(&self, pairs: &[Pair], mut visit: impl FnMut(&Pair)) {
        let mut told = [ArrayAnswer::Absent; GROUP_COUNT];
        for group in pairs.chunks(GROUP_COUNT) {
            self.tell_first(group.len(), |at| group[at].hash, &mut told);
            for (pair, told) in group.iter().zip(told) {
                if told == ArrayAnswer::TooMany {
                    visit(pair);
                }
            }
        }
    }

    /// What is known of a key.
    #[must_use]
    pub fn look_up(&self, hash: u128) -> Found {
        match look_up(&self.plan, &mut InMemory(&self.arrays), hash, self.is_settled) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// What is known of each of these keys, as many as both slices have: faster than one by one where the field is
    /// larger than the caches.
    pub fn look_up_all(&self, hashes: &[u128], found: &mut [Found]) {
        let mut told = [ArrayAnswer::Absent; GROUP_COUNT];
        for (hashes, found) in hashes.chunks(GROUP_COUNT).zip(found.chunks_mut(GROUP_COUNT)) {
            let count = hashes.len().min(found.len());
            self.tell_first(count, |at| hashes[at], &mut told);
            for ((hash, found), told) in hashes.iter().zip(found).zip(told) {
                *found = match told {
                    ArrayAnswer::Absent => Found::Absent,
                    ArrayAnswer::Value(value) => Found::Value(value),
                    ArrayAnswer::TooMany => self.look_up(*hash),
                };
            }
        }
    }

    /// What the first array says of up to [`GROUP_COUNT`] keys.
    fn tell_first(&self, count: usize, hash_at: impl Fn(usize) -> u128, told: &mut [ArrayAnswer; GROUP_COUNT]) {
        let Some((array, array_plan)) = self.arrays.first().zip(self.plan.arrays().first()) else { return };
        let code = self.plan.code();
        let mut states: [(Option<WindowStarts>, u64); GROUP_COUNT] = std::array::from_fn(|at| {
            let places = (at < count).then(|| WindowStarts::new(&self.plan, array_plan, 0, hash_at(at)));
            (places, code.mask())
        });
        // First the windows that nearly all keys need, then the rest of those that are left.
        for windows in [FIRST_WINDOWS, usize::MAX] {
            for (places, _) in &states {
                if let Some(places) = *places {
                    places.take(windows).for_each(|place| array.prefetch(place));
                }
            }
            for (places, bits) in &mut states {
                if let Some(some) = places {
                    some.by_ref().take(windows).for_each(|place| *bits &= array.window(place));
                    if bits.count_ones() < code.kappa() {
                        *places = None;
                    }
                }
            }
        }
        for (at, (told, (_, bits))) in told.iter_mut().zip(&states).enumerate().take(count) {
            *told = ArrayAnswer::of(&self.plan, 0, hash_at(at), *bits);
        }
    }

    /// The value for which whitening leaves the code word of this number, in the first array: what a test of plain
    /// values needs.
    #[cfg(feature = "paper")]
    pub(crate) fn value_with_word(&self, hash: u128, number: u64) -> u32 {
        Whitening::new(self.plan.code(), 0, hash).value_of(number) as u32
    }
}

/// What is in a field, beside the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Pairs that were inserted, each time counted.
    pub pair_count: u64,
    /// Whether every key that an array can not tell is in the next one.
    pub is_settled: bool,
}
