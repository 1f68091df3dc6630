//! A field that is looked up in while it grows (section "Mutability" of the paper), and its log, from which it is
//! restored after a crash.
//!
//! Whenever the field has grown by a quarter, a thread reads the log and inserts those keys again that the first array
//! can no longer decide.

use crate::error::{FileError, Result};
use crate::log::{Log, Recovered};
use crate::{Built, Field, Found, Pair, Pass, Plan, Settling};
use parking_lot::{Condvar, Mutex, RwLock};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The growth at which a growing field is settled, as one in this many of its pairs: its log is then read only a few
/// times in all.
const BFIELD_SETTLE_SHARE: u64 = 4;

/// The fewest new pairs for which a growing field is settled.
const BFIELD_SETTLE_PAIRS_MIN: u64 = 1 << 14;

/// A field in memory, its log on disk, and a thread that settles the field. Any number of threads may use it.
///
/// A key that was inserted is never absent. Until it is settled it may be indeterminate. A key that became
/// indeterminate and is not settled yet may, by chance (beta times alpha), show a wrong value.
#[derive(Debug)]
pub struct Growing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    field: RwLock<Field>,
    log: Mutex<Log>,
    /// Held while settling: one thread at a time.
    settling: Mutex<()>,
    work: Mutex<Work>,
    wake: Condvar,
    /// Pairs that the first array left undecided when the field was last settled.
    undecided_count: Mutex<u64>,
}

/// What the thread has to do.
#[derive(Debug, Default)]
struct Work {
    /// Pairs that were inserted since the last settling began.
    fresh_count: u64,
    /// Pairs that were inserted before that.
    settled_count: u64,
    is_over: bool,
    failure: Option<FileError>,
}

impl Work {
    fn is_due(&self) -> bool {
        self.fresh_count >= (self.settled_count / BFIELD_SETTLE_SHARE).max(BFIELD_SETTLE_PAIRS_MIN)
    }

    fn begin(&mut self) {
        self.settled_count = self.settled_count.saturating_add(self.fresh_count);
        self.fresh_count = 0;
    }
}

impl Growing {
    /// Opens the field of this plan with all pairs of its log; without a log the field is empty and the log is created.
    /// A log belongs to one process at a time.
    ///
    /// # Errors
    ///
    /// The log cannot be read or written, is no log, or is one for another number of values; or the thread cannot be
    /// started.
    ///
    /// # Panics
    ///
    /// The field's memory cannot be allocated.
    pub fn open(log: &Path, plan: &Plan) -> Result<(Self, Recovered)> {
        let mut field = Field::new(plan);
        let (log, recovered) = Log::open(log, plan.goal().value_count, &mut |pairs| {
            field
                .insert(pairs)
                .map_err(|error| FileError::new("the log holds what is none of its values").because(error))
        })?;
        let work = Work { fresh_count: recovered.pair_count, ..Work::default() };
        let shared = Arc::new(Shared {
            field: RwLock::new(field),
            log: Mutex::new(log),
            settling: Mutex::new(()),
            work: Mutex::new(work),
            wake: Condvar::new(),
            undecided_count: Mutex::new(0),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            let spawned =
                std::thread::Builder::new().name("bfield-settle".to_owned()).spawn(move || shared.settle_when_due());
            spawned.map_err(|error| FileError::new("cannot start a thread").because(error))?
        };
        Ok((Growing { shared, thread: Some(thread) }, recovered))
    }

    /// Inserts pairs, first into the log. They survive a crash after the next [`Self::flush`].
    ///
    /// # Errors
    ///
    /// A value is too large for the plan: nothing was inserted. Or the log cannot be written: then those pairs that
    /// reached it are in the field when it is opened again, and nothing more can be inserted until then.
    pub fn insert(&self, pairs: &[Pair]) -> Result<()> {
        self.shared.field.read().check(pairs).map_err(|error| FileError::new("cannot insert it").because(error))?;
        // The log stays locked until the field has the pairs too, so that a reader of the log never misses what is in
        // the field.
        let mut log = self.shared.log.lock();
        log.append(pairs)?;
        let inserted = self.shared.field.write().insert(pairs);
        drop(log);
        inserted.map_err(|error| FileError::new("cannot insert it").because(error))?;
        let mut work = self.shared.work.lock();
        work.fresh_count = work.fresh_count.saturating_add(pairs.len() as u64);
        if work.is_due() {
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// Writes all inserted pairs to disk, and reports failures of the background thread.
    ///
    /// # Errors
    ///
    /// The log cannot be written, or the thread could not read it.
    pub fn flush(&self) -> Result<()> {
        self.shared.log.lock().sync()?;
        self.shared.work.lock().failure.take().map_or(Ok(()), Err)
    }

    /// What is known of a key.
    #[must_use]
    pub fn look_up(&self, hash: u128) -> Found {
        self.shared.field.read().look_up(hash)
    }

    /// Settles the field now. Returns how many pairs it cannot decide after that, including those whose keys have
    /// several values.
    ///
    /// Complexity: the log is read once, or a few times where many keys have several values.
    ///
    /// # Errors
    ///
    /// The log cannot be written or read.
    pub fn settle(&self) -> Result<u64> {
        self.shared.settle()
    }

    /// Stops the thread, settles the field, and returns it. The log stays.
    ///
    /// # Errors
    ///
    /// The log cannot be written or read.
    pub fn finish(mut self) -> Result<Built> {
        self.stop();
        let indeterminate_count = self.shared.settle()?;
        self.flush()?;
        let shared = Arc::clone(&self.shared);
        drop(self);
        // The thread has ended, so this is the only reference left.
        let shared = Arc::try_unwrap(shared).map_err(|_| FileError::new("the index is still in use"))?;
        let field = shared.field.into_inner();
        Ok(Built {
            pair_count: field.contents().pair_count,
            undecided_count: shared.undecided_count.into_inner(),
            field,
            indeterminate_count,
        })
    }

    fn stop(&mut self) {
        self.shared.work.lock().is_over = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it already.
            drop(thread.join());
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn settle(&self) -> Result<u64> {
        let _one_at_a_time = self.settling.lock();
        self.work.lock().begin();
        let mut settling = {
            let _log = self.log.lock();
            Settling::new(&self.field.read())
        };
        loop {
            let mut reader = {
                let mut log = self.log.lock();
                log.write()?;
                log.reader()?
            };
            while let Some(pairs) = reader.next_pairs()? {
                let added = settling.add(&mut self.field.write(), pairs);
                added.map_err(|error| FileError::new("the log holds what is none of its values").because(error))?;
            }
            if settling.end_pass(&mut self.field.write()) == Pass::Done {
                *self.undecided_count.lock() = settling.undecided_count();
                return Ok(settling.indeterminate_count());
            }
        }
    }

    /// The body of the thread.
    fn settle_when_due(&self) {
        loop {
            {
                let mut work = self.work.lock();
                while !work.is_over && !work.is_due() {
                    self.wake.wait(&mut work);
                }
                if work.is_over {
                    return;
                }
            }
            if let Err(error) = self.settle() {
                self.work.lock().failure = Some(error);
            }
        }
    }
}
