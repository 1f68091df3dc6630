//! The cascade: a field of pairs that are all known beforehand (section "Implementation Details", 5 of the paper).
//!
//! The pairs are read once in each pass. The first pass inserts them. The second finds the keys that the first array
//! leaves undecided; those are few and are kept in memory, so no other pass is needed unless many keys have several
//! values.

use crate::Plan;
use crate::field::{Field, Pair, ValueTooLarge};

/// Whether the pairs are needed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// All pairs have to be added once more.
    Again,
    /// The field is finished.
    Done,
}

/// A field that was built, with figures about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// The field.
    pub field: Field,
    /// Pairs in the field; repeated ones count each time.
    pub pair_count: u64,
    /// Pairs whose keys the first array left undecided.
    pub undecided_count: u64,
    /// Pairs whose keys the field cannot decide: those with several values, and, in fewer than one field in a thousand,
    /// a key with bad luck.
    pub indeterminate_count: u64,
}

/// Builds a field from pairs that are read several times. [`Field::build`] does the same with an iterator that never
/// fails.
///
/// ```
/// use flowpeel_bfield::{Builder, Found, Goal, Pair, Pass, Plan};
///
/// let plan = Plan::new(&Goal { false_positive_rate: 1e-9, key_count: 2, value_count: 10 })?;
/// let mut builder = Builder::new(&plan);
/// loop {
///     builder.add(&[Pair { hash: 1 << 100 | 77, value: 3 }, Pair { hash: 5 << 77 | 1 << 60, value: 9 }])?;
///     if builder.end_pass() == Pass::Done {
///         break;
///     }
/// }
/// let built = builder.finish();
/// assert_eq!(built.field.look_up(1 << 100 | 77), Found::Value(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    field: Field,
    /// `None` during the first pass, which inserts.
    settling: Option<Settling>,
    is_done: bool,
}

impl Builder {
    /// A builder of a field of this plan. It takes the field's memory, and 32 bytes for each key that moves on to the
    /// second array.
    ///
    /// # Panics
    ///
    /// The memory cannot be allocated.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Builder { field: Field::new(plan), settling: None, is_done: false }
    }

    /// Takes some of the pairs of this pass. Each pass takes all of them, in any order.
    ///
    /// # Errors
    ///
    /// A value is too large. None of these pairs was taken.
    pub fn add(&mut self, pairs: &[Pair]) -> Result<(), ValueTooLarge> {
        match &mut self.settling {
            None => self.field.insert(pairs),
            Some(settling) => settling.add(&mut self.field, pairs),
        }
    }

    /// Ends a pass over the pairs. There are two passes. Where more keys have several values than chance explains,
    /// there is one pass for each array and one more.
    pub fn end_pass(&mut self) -> Pass {
        match &mut self.settling {
            None => self.settling = Some(Settling::new(&self.field)),
            Some(settling) => self.is_done = self.is_done || settling.end_pass(&mut self.field) == Pass::Done,
        }
        if self.is_done { Pass::Done } else { Pass::Again }
    }

    /// Returns the field. Before the last pass has ended it is one that still grows: keys that no array decides yet are
    /// indeterminate.
    #[must_use]
    pub fn finish(self) -> Built {
        let pair_count = self.field.contents().pair_count;
        let settling = self.settling.unwrap_or_else(|| Settling::new(&self.field));
        let (undecided_count, indeterminate_count) = (settling.undecided_count, settling.indeterminate_count);
        Built { field: self.field, pair_count, undecided_count, indeterminate_count }
    }
}

/// Settling of a field: goes over the pairs that are in it, and inserts those again that the first array leaves
/// undecided, as often as that changes anything.
#[derive(Clone, Debug)]
pub struct Settling {
    /// The number of pairs in the field at the beginning.
    pair_count: u64,
    is_changed: bool,
    /// Pairs that the first array leaves undecided, unless there are too many.
    undecided: Vec<Pair>,
    undecided_max: usize,
    is_overfull: bool,
    undecided_count: u64,
    indeterminate_count: u64,
}

impl Settling {
    /// Begins to settle the pairs that are in this field.
    #[must_use]
    pub fn new(field: &Field) -> Self {
        Settling {
            pair_count: field.contents().pair_count,
            is_changed: false,
            undecided: Vec::new(),
            undecided_max: field.plan().arrays().get(1).map_or(0, |array| array.key_count as usize),
            is_overfull: false,
            undecided_count: 0,
            indeterminate_count: 0,
        }
    }

    /// Pairs of the last pass whose keys the first array leaves undecided.
    #[must_use]
    pub fn undecided_count(&self) -> u64 {
        self.undecided_count
    }

    /// Pairs of the last pass whose keys no array decides.
    #[must_use]
    pub fn indeterminate_count(&self) -> u64 {
        self.indeterminate_count
    }

    /// Takes some of the pairs that were inserted. Each pass takes all of them, in any order.
    ///
    /// # Errors
    ///
    /// A value is too large, so these were not inserted.
    pub fn add(&mut self, field: &mut Field, pairs: &[Pair]) -> Result<(), ValueTooLarge> {
        field.check(pairs)?;
        let mut group = Vec::new();
        field.undecided_in_first(pairs, |pair| group.push(*pair));
        self.undecided_count += group.len() as u64;
        for pair in group {
            self.settle(field, &pair);
            if self.undecided.len() < self.undecided_max {
                self.undecided.push(pair);
            } else {
                self.is_overfull = true;
            }
        }
        Ok(())
    }

    fn settle(&mut self, field: &mut Field, pair: &Pair) {
        let settled = field.settle(pair);
        self.is_changed |= settled.is_changed;
        self.indeterminate_count += u64::from(!settled.is_decided);
    }

    /// Ends a pass. After the last pass the field decides all that it can, unless something was inserted meanwhile.
    pub fn end_pass(&mut self, field: &mut Field) -> Pass {
        if self.is_overfull && self.is_changed {
            self.start_again();
            self.undecided_count = 0;
            self.undecided.clear();
            return Pass::Again;
        }
        if !self.is_overfull {
            let undecided = std::mem::take(&mut self.undecided);
            while self.is_changed {
                self.start_again();
                undecided.iter().for_each(|pair| self.settle(field, pair));
            }
        }
        if field.contents().pair_count == self.pair_count {
            field.seal();
        }
        Pass::Done
    }

    /// Discards the findings of the pass before.
    fn start_again(&mut self) {
        (self.is_changed, self.is_overfull, self.indeterminate_count) = (false, false, 0);
    }
}

/// Pairs that are taken from an iterator at once.
const BLOCK_COUNT: usize = 256;

impl Field {
    /// Builds a field from pairs. `pairs` is called once a pass and gives the same pairs each time, in any order.
    ///
    /// In the finished field, a key with one value is found with it. A key with several values is
    /// [`Found::Indeterminate`](super::Found); so is any other key, with a chance of a thousandth for all of them
    /// together. No key that was inserted is ever absent or has another value.
    ///
    /// # Errors
    ///
    /// A value is too large for the plan.
    ///
    /// # Panics
    ///
    /// The memory cannot be allocated.
    pub fn build<I: IntoIterator<Item = Pair>>(
        plan: &Plan,
        mut pairs: impl FnMut() -> I,
    ) -> Result<Built, ValueTooLarge> {
        let mut builder = Builder::new(plan);
        loop {
            let mut block = Vec::with_capacity(BLOCK_COUNT);
            for pair in pairs() {
                block.push(pair);
                if block.len() == BLOCK_COUNT {
                    builder.add(&block)?;
                    block.clear();
                }
            }
            builder.add(&block)?;
            if builder.end_pass() == Pass::Done {
                return Ok(builder.finish());
            }
        }
    }
}
