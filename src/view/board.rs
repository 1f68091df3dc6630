//! The board between the list thread, which never waits for it, and those who look.

use crate::flow::AnyKey;
use crate::list::{Header, List, ListCopy, Nat, TranslationSource};
use crate::view::protocol::{Losses, Overview, Sample};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The shortest time between two copies of rows. It is less than a second, so that lists that come every second, some
/// milliseconds early or late, are all copied.
const COPY_INTERVAL: Duration = Duration::from_millis(900);

/// How old a copy may become for which nobody asks: who attaches then sees rows at once, of lists as rare as this or
/// rarer, and otherwise no older than this.
const COPY_INTERVAL_UNASKED: Duration = Duration::from_secs(5);

/// How long the last list waits for a board that is in use: nothing comes after it.
const LAST_COPY_PATIENCE: Duration = Duration::from_secs(1);

/// How many lists the board remembers the numbers of: as many as a wide terminal has columns.
pub const SAMPLES_MAX: usize = 512;

/// What can be seen of a run.
#[derive(Default)]
pub struct Board {
    latest: Mutex<Latest>,
    rows: Mutex<CopiedRows>,
    is_asked: AtomicBool,
    /// Who knows the names of translated connections.
    translations: OnceLock<Arc<dyn TranslationSource>>,
}

/// The latest list without its rows, and the numbers of those before it.
#[derive(Clone, Default)]
pub(super) struct Latest {
    pub(super) overview: Option<Overview>,
    pub(super) samples: VecDeque<Sample>,
}

/// The rows that were copied last.
#[derive(Default)]
pub(super) struct CopiedRows {
    /// The number of their list; 0 before the first.
    pub(super) list: u64,
    pub(super) copy: ListCopy,
}

impl Board {
    /// The board of a run, and what its list thread is to feed it with.
    #[must_use]
    pub fn new() -> (Arc<Self>, Feed) {
        let board = Arc::new(Board::default());
        let feed =
            Feed { board: Arc::clone(&board), latest: Latest::default(), copied: None, totals: Losses::default() };
        (board, feed)
    }

    /// Names the translated connections that are looked at.
    pub fn set_translations(&self, translations: Arc<dyn TranslationSource>) {
        // It is the same for the whole run.
        drop(self.translations.set(translations));
    }

    /// The other name of a connection, if it is translated and that is known.
    pub(super) fn nat_of(&self, key: &AnyKey) -> Option<Nat> {
        self.translations.get()?.name_of(key)
    }

    /// Held only to be copied from: the list thread leaves out what it cannot put here at once.
    pub(super) fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock()
    }

    /// The rows. Asking for them makes that the next list is copied as soon as may be.
    pub(super) fn rows(&self) -> MutexGuard<'_, CopiedRows> {
        self.is_asked.store(true, Ordering::Relaxed);
        self.rows.lock()
    }
}

/// The end of the board that the list thread has.
pub struct Feed {
    board: Arc<Board>,
    latest: Latest,
    /// When rows were copied last.
    copied: Option<Instant>,
    totals: Losses,
}

impl Feed {
    /// Shows a list. It waits for nobody: rows that are being read are replaced with a later list. The last list of a
    /// run waits a little.
    ///
    /// Complexity: a pass over the rows, at most about once a second, and once in five seconds while nobody looks.
    pub fn list(&mut self, list: &List) {
        self.summarize(&list.header);
        if let Some(mut latest) = self.board.latest.try_lock() {
            latest.clone_from(&self.latest);
        }
        let is_last = list.header.is_last;
        let is_asked = self.board.is_asked.load(Ordering::Relaxed);
        let interval = if is_asked { COPY_INTERVAL } else { COPY_INTERVAL_UNASKED };
        if !is_last && self.copied.is_some_and(|copied| copied.elapsed() < interval) {
            return;
        }
        let patience = if is_last { LAST_COPY_PATIENCE } else { Duration::ZERO };
        if let Some(mut rows) = self.board.rows.try_lock_for(patience) {
            rows.copy.take(list);
            rows.list = list.header.figures.interval;
            self.copied = Some(Instant::now());
            self.board.is_asked.store(false, Ordering::Relaxed);
        }
    }

    fn summarize(&mut self, header: &Header) {
        let figures = &header.figures;
        let losses = Losses::of(header);
        self.totals.add(losses);
        if self.latest.samples.len() == SAMPLES_MAX {
            self.latest.samples.pop_front();
        }
        self.latest.samples.push_back(Sample {
            list: figures.interval,
            end_ns: figures.end_ns,
            length_ns: figures.end_ns.saturating_sub(figures.start_ns).max(0),
            opened: figures.opened,
            closed: figures.closed,
            established: header.flows,
            half_open: header.half_open,
        });
        self.latest.overview = Some(Overview {
            list: figures.interval,
            end_ns: figures.end_ns,
            established: header.flows,
            half_open: header.half_open,
            complete: header.complete,
            missing: header.missing,
            unsettled: header.unsettled,
            evicted: figures.evicted,
            reopened: figures.reopened,
            since_ns: header.since.map(|since| since.since_ns),
            warming_up: header.is_warming_up(),
            is_last: header.is_last,
            losses,
            losses_in_all: self.totals,
        });
    }
}
