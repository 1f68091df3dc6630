//! A field in memory: INSERT and LOOKUP as in the paper (section "Implementation Details", 4b and 5a), with whitened
//! values. Keys are given by their hashes, and pairs may come in any order.

use crate::array::BitArray;
use crate::look_up::{ArrayAnswer, Found, ReadWindows, look_up};
use crate::places::{Whitening, WindowStarts};
use crate::plan::ArrayPlan;
use crate::{Plan, Unplannable};
use std::convert::Infallible;

/// Keys that are processed together: their windows are prefetched before the first is needed.
pub(super) const GROUP_COUNT: usize = 16;

/// Windows of each key that are prefetched at first in a look-up. Half of the bits are set, so few absent keys need
/// more windows.
const FIRST_WINDOWS: usize = 5;

/// A key's hash, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// 128 bits that look random ([`KeyHash`](flowpeel_iblt::KeyHash)), the same wherever the field is used.
    pub hash: u128,
    /// The value, below the plan's number of values.
    pub value: u32,
}

/// A value that is not among those that the field is planned for. Nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTooLarge {
    /// The value that was given.
    pub value: u32,
    /// How many values the field is planned for.
    pub value_count: u64,
}

impl std::fmt::Display for ValueTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "value {} in a field of {} values: plan it for more", self.value, self.value_count)
    }
}

impl std::error::Error for ValueTooLarge {}

/// The effect of settling a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether an array decides the pair's value now.
    pub is_decided: bool,
    /// Whether settling set any bits.
    pub is_changed: bool,
}

/// A B-field: a primary array, and further arrays, each for the keys that those before it cannot decide.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_bfield::{Field, Found, Goal, Pair, Plan};
/// use flowpeel_iblt::{KeyHash, SecretHash};
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
    contents: Contents,
}

/// Arrays in memory, which can always be read.
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
    /// The memory cannot be allocated.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let zeros = |array: &ArrayPlan| vec![0; plan.word_count(array) as usize];
        let arrays = plan.arrays().iter().map(|array| BitArray::new(zeros(array), plan.code().nu()));
        let contents = Contents { pair_count: 0, is_settled: false };
        Field { plan: plan.clone(), arrays: arrays.collect(), contents }
    }

    /// A field from the words of its arrays, as a stored field has them.
    ///
    /// # Errors
    ///
    /// The number of words is not that of the plan.
    pub fn from_words(plan: &Plan, arrays: Vec<Vec<u64>>, contents: Contents) -> Result<Self, Unplannable> {
        let lengths = plan.arrays().iter().map(|array| plan.word_count(array));
        if !lengths.eq(arrays.iter().map(|words| words.len() as u64)) {
            return Err(Unplannable::Parts);
        }
        let arrays = arrays.into_iter().map(|words| BitArray::new(words, plan.code().nu())).collect();
        Ok(Field { plan: plan.clone(), arrays, contents })
    }

    /// The plan that the field was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How many pairs are in the field, and whether it is settled.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// The words of an array; bit 0 of the first word is the array's first place. Empty when there is no such array.
    #[must_use]
    pub fn words(&self, array_index: usize) -> &[u64] {
        self.arrays.get(array_index).map_or(&[], BitArray::words)
    }

    /// Checks that the values are among those that the field is planned for.
    ///
    /// # Errors
    ///
    /// A value is too large.
    pub fn check(&self, pairs: &[Pair]) -> Result<(), ValueTooLarge> {
        let value_count = self.plan.goal().value_count;
        let wrong = pairs.iter().find(|pair| u64::from(pair.value) >= value_count);
        wrong.map_or(Ok(()), |pair| Err(ValueTooLarge { value: pair.value, value_count }))
    }

    /// Inserts pairs into the first array, which leaves some of the keys undecided. [`Self::settle`] takes care of
    /// these, when all pairs are in or from time to time; until then they are [`Found::Indeterminate`].
    ///
    /// # Errors
    ///
    /// A value is too large. Nothing was inserted.
    pub fn insert(&mut self, pairs: &[Pair]) -> Result<(), ValueTooLarge> {
        self.check(pairs)?;
        self.contents.is_settled &= pairs.is_empty();
        self.contents.pair_count = self.contents.pair_count.saturating_add(pairs.len() as u64);
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

    /// Inserts a pair again into the arrays after the first, up to one that decides it. Settling all pairs, again and
    /// again until nothing changes, makes a field that decides all that it can. Only pairs that were inserted, and so
    /// checked, may be settled.
    pub fn settle(&mut self, pair: &Pair) -> Settled {
        let mut settled = Settled { is_decided: false, is_changed: false };
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
                settled.is_decided = true;
                break;
            }
        }
        settled
    }

    /// Marks the field as settled: every pair was settled, and settling again changed nothing. A key that one array
    /// cannot decide and the next does not have was then never inserted.
    pub(super) fn seal(&mut self) {
        self.contents.is_settled = true;
    }

    /// Visits those of the pairs whose keys the first array leaves undecided.
    pub(super) fn undecided_in_first(&self, pairs: &[Pair], mut visit: impl FnMut(&Pair)) {
        let mut answers = [ArrayAnswer::Absent; GROUP_COUNT];
        for group in pairs.chunks(GROUP_COUNT) {
            self.look_up_first(group.len(), |at| group[at].hash, &mut answers);
            for (pair, answers) in group.iter().zip(answers) {
                if answers == ArrayAnswer::TooMany {
                    visit(pair);
                }
            }
        }
    }

    /// What is known of a key.
    #[must_use]
    pub fn look_up(&self, hash: u128) -> Found {
        match look_up(&self.plan, &mut InMemory(&self.arrays), hash, self.contents.is_settled) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// Looks up each of these keys, as many as both slices have. This is faster than one by one where the field is
    /// larger than the caches.
    pub fn look_up_all(&self, hashes: &[u128], found: &mut [Found]) {
        let mut answers = [ArrayAnswer::Absent; GROUP_COUNT];
        for (hashes, found) in hashes.chunks(GROUP_COUNT).zip(found.chunks_mut(GROUP_COUNT)) {
            let count = hashes.len().min(found.len());
            self.look_up_first(count, |at| hashes[at], &mut answers);
            for ((hash, found), answers) in hashes.iter().zip(found).zip(answers) {
                *found = match answers {
                    ArrayAnswer::Absent => Found::Absent,
                    ArrayAnswer::Value(value) => Found::Value(value),
                    ArrayAnswer::TooMany => self.look_up(*hash),
                };
            }
        }
    }

    /// What the first array says of up to [`GROUP_COUNT`] keys.
    fn look_up_first(&self, count: usize, hash_at: impl Fn(usize) -> u128, answers: &mut [ArrayAnswer; GROUP_COUNT]) {
        let Some((array, array_plan)) = self.arrays.first().zip(self.plan.arrays().first()) else { return };
        let code = self.plan.code();
        let mut states: [(Option<WindowStarts>, u64); GROUP_COUNT] = std::array::from_fn(|at| {
            let places = (at < count).then(|| WindowStarts::new(&self.plan, array_plan, 0, hash_at(at)));
            (places, code.mask())
        });
        // First come the windows that nearly all keys need, then the rest for the keys that need them.
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
        for (at, (answers, (_, bits))) in answers.iter_mut().zip(&states).enumerate().take(count) {
            *answers = ArrayAnswer::of(&self.plan, 0, hash_at(at), *bits);
        }
    }

    /// The value that whitening maps to the code word of this number in the first array: an experiment with unwhitened
    /// values needs it.
    #[must_use]
    pub fn value_with_word(&self, hash: u128, number: u64) -> u32 {
        Whitening::new(self.plan.code(), 0, hash).value_of(number) as u32
    }
}

/// What is known of a field besides its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The number of insertions; repeated pairs count each time.
    pub pair_count: u64,
    /// Whether every key that one array leaves undecided is in the next one.
    pub is_settled: bool,
}
