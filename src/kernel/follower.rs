//! A thread that reads the kernel's table of connections when a capture begins, and then follows its translations.
//!
//! What is open at the start goes to the capture in batches. The names of translated connections go into a table that
//! lists read; a list first takes in what the kernel has sent by then, so it does not wait for this thread.
//!
//! When changes are lost, because more came than was read, the table is stale until all of it has been read again.

use crate::error::{Error, Result};
use crate::flow::AnyKey;
use crate::kernel::conntrack::{Change, Changes, Received, Stage, Table, Tracked};
use crate::kernel::netlink::NetlinkSocket;
use crate::kernel::routes::Routes;
use crate::list::{TranslationSource, Translations};
use crate::signal::KnownOpen;
use crossbeam::channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Connections in a batch on their way to the capture, and batches that wait.
const BATCH_COUNT: usize = 1 << 8;
const BATCHES_MAX: usize = 1 << 4;

/// Changes of names that wait while a list is made, at most: beyond that the kernel keeps them, and then loses them.
const PENDING_MAX: usize = 1 << 16;

/// The longest that the thread sleeps: it takes this long to end.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How soon the table is read again after it was read.
const READ_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// How often it is looked which connections are still there that were there before anybody followed: of these the
/// kernel may not say when they end, since it prepares to say so only while somebody listens.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// What is followed.
#[derive(Clone, Debug)]
pub struct FollowerConfig {
    /// The interfaces that are captured.
    pub interfaces: Vec<String>,
    /// Whether VLAN tags are part of a connection's key: then nothing counts as captured whose tags are not known.
    pub vlan_key: bool,
    /// The translated connections whose names are known, at most.
    pub translations_max: usize,
    /// Whether the names of what has ended are kept until the next list was made, because that says what ended.
    pub keeps_ended: bool,
}

/// The changes on their way into the table of names.
struct Inbox {
    changes: Changes,
    pending: Vec<Change>,
    /// Whether some were lost.
    has_lost: bool,
    /// Whether the table is being read: what changes meanwhile is applied behind it.
    is_reading: bool,
}

impl Inbox {
    /// Takes in what the kernel has sent, as far as there is room.
    fn drain(&mut self) -> Result<()> {
        let Inbox { changes, pending, has_lost, .. } = self;
        if pending.len() >= PENDING_MAX {
            return Ok(());
        }
        let received = changes.receive(|change| {
            let (Change::Updated(tracked) | Change::Removed(tracked)) = &change;
            if tracked.is_translated() {
                pending.push(change);
            }
        })?;
        *has_lost |= received == Received::NotAll;
        Ok(())
    }

    fn apply(&mut self, table: &mut Translations) {
        if self.has_lost {
            table.set_stale();
        }
        if self.is_reading {
            return;
        }
        for change in self.pending.drain(..) {
            match change {
                Change::Updated(tracked) if tracked.stage != Some(Stage::Ended) => {
                    table.put(&tracked.original, &tracked.translated);
                }
                // Its last packets are still listed as they come.
                Change::Updated(_) => {}
                Change::Removed(tracked) => table.remove(&tracked.original, &tracked.translated),
            }
        }
    }
}

/// What the thread and those who make lists share. The table is locked before the inbox, or tried.
struct Following {
    table: Mutex<Translations>,
    inbox: Mutex<Inbox>,
    is_over: AtomicBool,
    /// How often the table was read again because changes were lost.
    reread_count: AtomicU64,
}

impl TranslationSource for Following {
    fn with_current(&self, with: &mut dyn FnMut(&mut Translations)) {
        let mut table = self.table.lock();
        {
            let mut inbox = self.inbox.lock();
            // A socket that has failed is reported by the thread.
            if inbox.drain().is_err() {
                table.set_stale();
            }
            inbox.apply(&mut table);
        }
        with(&mut table);
    }
}

/// A thread that follows the kernel's table. It ends when this is dropped.
pub struct Follower {
    following: Arc<Following>,
    known: Option<Receiver<Result<Vec<KnownOpen>>>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Follower {
    /// Begins to follow. What is needed of privileges, CAP_NET_ADMIN, is needed by this thread and the one that it
    /// starts. The interfaces are to be captured already, so that what ends from now on is seen to end.
    ///
    /// # Errors
    ///
    /// The privilege is missing, the kernel has no connection tracking, or there is no thread.
    pub fn start(config: &FollowerConfig) -> Result<Self> {
        // Before the table is read, so that nothing that changes meanwhile is missed.
        let changes = Changes::subscribe()?;
        let cannot = |error| Error::new("cannot ask the kernel for routes").because(error);
        let routes = Routes::through(&config.interfaces, config.vlan_key).map_err(cannot)?;
        let (reader, wakes) = (Table::open()?, duplicate(&changes)?);
        let table = Translations::new(config.translations_max);
        let mut table = if config.keeps_ended { table.keeping_ended() } else { table };
        table.set_stale();
        let inbox = Inbox { changes, pending: Vec::new(), has_lost: false, is_reading: true };
        let following = Arc::new(Following {
            table: Mutex::new(table),
            inbox: Mutex::new(inbox),
            is_over: AtomicBool::new(false),
            reread_count: AtomicU64::new(0),
        });
        let (sender, known) = bounded(BATCHES_MAX);
        let thread = FollowerThread {
            following: Arc::clone(&following),
            reader,
            wakes,
            read_at: Instant::now(),
            has_silent: true,
        };
        let started = Builder::new().name("conntrack".to_owned()).spawn(move || thread.run(routes, sender));
        let thread = started.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(Follower { following, known: Some(known), thread: Some(thread) })
    }

    /// What is open as the capture begins, in batches, once: [`crate::run::live`] takes them.
    pub fn take_known(&mut self) -> Option<Receiver<Result<Vec<KnownOpen>>>> {
        self.known.take()
    }

    /// The names of translated connections.
    #[must_use]
    pub fn translations(&self) -> Arc<dyn TranslationSource> {
        Arc::clone(&self.following) as Arc<dyn TranslationSource>
    }

    /// Ends the thread. Returns how often the table was read again because changes were lost.
    ///
    /// # Errors
    ///
    /// The table could be followed no longer: lists were not complete since then.
    pub fn stop(mut self) -> Result<u64> {
        self.following.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let ended = ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.map(|()| self.following.reread_count.load(Ordering::Relaxed))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.following.is_over.store(true, Ordering::Relaxed);
    }
}

fn duplicate(changes: &Changes) -> Result<OwnedFd> {
    rustix::io::dup(changes)
        .map_err(|error| Error::new("cannot follow the kernel's table of connections").because(error))
}

struct FollowerThread {
    following: Arc<Following>,
    reader: Table,
    wakes: OwnedFd,
    /// When the table was read last.
    read_at: Instant,
    /// Whether there may be connections of which the kernel does not say when they end.
    has_silent: bool,
}

impl FollowerThread {
    fn run(mut self, mut routes: Routes, known: Sender<Result<Vec<KnownOpen>>>) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH_COUNT);
        let send = |batch: &mut Vec<KnownOpen>| {
            // Nobody takes them if the capture could not begin.
            drop(known.send(Ok(std::mem::replace(batch, Vec::with_capacity(BATCH_COUNT)))));
        };
        let read = self.read(|tracked| {
            batch.extend(known_through(&mut routes, tracked));
            if batch.len() == BATCH_COUNT {
                send(&mut batch);
            }
        });
        if let Err(error) = read {
            drop(known.send(Err(error)));
            return Ok(());
        }
        send(&mut batch);
        drop(known);
        while !self.following.is_over.load(Ordering::Relaxed) {
            NetlinkSocket::wait(&self.wakes, SLEEP_MAX);
            self.follow()?;
            if self.has_silent && self.read_at.elapsed() >= SWEEP_INTERVAL {
                self.sweep()?;
            }
        }
        Ok(())
    }

    /// Removes the names of connections that have ended without a word of the kernel.
    fn sweep(&mut self) -> Result<()> {
        let Following { table, .. } = &*self.following;
        table.lock().begin_sweep();
        let mut found = Vec::with_capacity(BATCH_COUNT);
        let find = |found: &mut Vec<(AnyKey, AnyKey)>| {
            let mut table = table.lock();
            found.drain(..).for_each(|(original, translated)| table.find(&original, &translated));
        };
        self.reader.read(|tracked| {
            if tracked.is_translated() {
                found.push((tracked.original, tracked.translated));
                if found.len() == BATCH_COUNT {
                    find(&mut found);
                }
            }
        })?;
        find(&mut found);
        self.has_silent = table.lock().end_sweep();
        self.read_at = Instant::now();
        Ok(())
    }

    /// Takes in what has changed, and reads the table again if something was lost.
    fn follow(&mut self) -> Result<()> {
        let has_lost = {
            let mut inbox = self.following.inbox.lock();
            inbox.drain()?;
            inbox.has_lost
        };
        // While a list is made, it has the table, and what changes waits.
        if let Some(mut table) = self.following.table.try_lock() {
            self.following.inbox.lock().apply(&mut table);
        }
        if has_lost && self.read_at.elapsed() >= READ_INTERVAL_MIN {
            self.following.reread_count.fetch_add(1, Ordering::Relaxed);
            self.read(|_| ())?;
        }
        Ok(())
    }

    /// Reads the table, and calls `each` with every connection in it.
    fn read(&mut self, mut each: impl FnMut(&Tracked)) -> Result<()> {
        let Following { table, inbox, .. } = &*self.following;
        {
            let (mut table, mut inbox) = (table.lock(), inbox.lock());
            (inbox.is_reading, inbox.has_lost) = (true, false);
            inbox.pending.clear();
            table.clear();
            table.set_stale();
        }
        let mut names = Vec::with_capacity(BATCH_COUNT);
        let put = |names: &mut Vec<(AnyKey, AnyKey)>| {
            let mut table = table.lock();
            names.drain(..).for_each(|(original, translated)| table.put_silent(&original, &translated));
        };
        self.reader.read(|tracked| {
            each(&tracked);
            if tracked.is_translated() && tracked.stage != Some(Stage::Ended) {
                names.push((tracked.original, tracked.translated));
                if names.len() == BATCH_COUNT {
                    put(&mut names);
                }
            }
        })?;
        put(&mut names);
        let (mut table, mut inbox) = (table.lock(), inbox.lock());
        inbox.is_reading = false;
        table.set_current();
        inbox.drain()?;
        inbox.apply(&mut table);
        (self.read_at, self.has_silent) = (Instant::now(), true);
        Ok(())
    }
}

/// A connection as the captured interfaces show it, if it is open and goes through one of them. Where both sides are
/// captured it is known by the name before the translation.
fn known_through(routes: &mut Routes, tracked: &Tracked) -> Option<KnownOpen> {
    if !tracked.is_open() {
        return None;
    }
    let client = tracked.original.client().ip();
    let server = tracked.translated.server().ip();
    let key = if routes.is_captured(client) {
        tracked.original
    } else if routes.is_captured(server) {
        tracked.translated
    } else if routes.is_here(client) && routes.is_here(server) && routes.is_loopback_captured() {
        tracked.original
    } else {
        return None;
    };
    Some(KnownOpen { key, ended: tracked.ended })
}
