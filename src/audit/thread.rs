//! The thread of an audit, and the exporter that gives it lists.

use crate::audit::comparison::{AuditedList, Comparison, Difference};
use crate::audit::kernel_side::{Against, KernelSide};
use crate::error::{Error, Result};
use crate::export::{Exporter, Output, Resumable};
use crate::flow::AnyKey;
use crate::list::List;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often the thread takes in how connections have ended.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(20);

/// How often it looks which connections have ended without a report: those that were reset are in the kernel's table
/// for ten seconds.
const RECORD_INTERVAL: Duration = Duration::from_secs(4);

/// What is audited.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// What lists are held against.
    pub against: Against,
    /// The interfaces that are captured.
    pub interfaces: Vec<String>,
}

/// What came of one list.
#[derive(Clone, Debug)]
pub struct Report {
    /// The list's end, in ns since 1970.
    pub end_ns: i64,
    /// Established connections on the list, under each of their names.
    pub listed: usize,
    /// Connections that the kernel has open through the interfaces.
    pub open: usize,
    /// The differences that are decided now.
    pub differences: Vec<Difference>,
}

/// What came of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Lists that were compared, and those that came while the one before was being compared.
    pub lists: u64,
    /// See [`Self::lists`].
    pub skipped: u64,
    /// Differences with a reason, and without one.
    pub explained: u64,
    /// See [`Self::explained`].
    pub unexplained: u64,
    /// Differences of the last lists, which no later one could decide.
    pub undecided: usize,
}

/// A running audit. It ends with [`Self::finish`].
pub struct Audit {
    lists: Sender<AuditedList>,
    skipped: u64,
    thread: JoinHandle<Result<Audited>>,
}

impl Audit {
    /// Starts the thread, which keeps the privileges of the one that calls this: reading the table of a router takes
    /// CAP_NET_ADMIN. It calls `report` behind each list.
    ///
    /// # Errors
    ///
    /// The kernel does not show what lists are held against, or there is no thread.
    pub fn start(config: &AuditConfig, report: impl FnMut(&Report) + Send + 'static) -> Result<Self> {
        let kernel = KernelSide::open(config.against, &config.interfaces)?;
        // One that is compared, and one that waits.
        let (lists, received) = bounded(1);
        let started = Builder::new().name("audit".to_owned()).spawn(move || run(kernel, &received, report));
        let thread = started.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(Audit { lists, skipped: 0, thread })
    }

    /// An exporter that gives lists to the audit, and everything to `inner`.
    pub fn exporter<'a>(&'a mut self, inner: &'a mut dyn Exporter) -> impl Exporter + use<'a> {
        Auditing { audit: self, inner }
    }

    fn give(&mut self, list: &List) {
        let listed = list.established().filter_map(|row| AnyKey::of_ends(row.client, row.server, Default::default()));
        let header = &list.header;
        let audited = AuditedList {
            end_ns: header.figures.end_ns,
            listed: listed.map(|key| key.canonical()).collect(),
            is_lossy: !header.complete && !header.is_warming_up() || header.figures.dropped > 0,
        };
        // No list waits for the audit of the one before.
        if let Err(TrySendError::Full(_)) = self.lists.try_send(audited) {
            self.skipped += 1;
        }
    }

    /// Waits until the last list was compared, and sums up.
    ///
    /// # Errors
    ///
    /// The kernel did not show what it knows any more.
    pub fn finish(self) -> Result<Audited> {
        let Audit { lists, skipped, thread } = self;
        drop(lists);
        let audited = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        audited.map(|audited| Audited { skipped, ..audited })
    }
}

struct Auditing<'a> {
    audit: &'a mut Audit,
    inner: &'a mut dyn Exporter,
}

impl Exporter for Auditing<'_> {
    fn write(&mut self, output: Output) -> Result<()> {
        // First, so that the kernel is read as soon behind the list's end as can be.
        if let Output::List(list) = &output {
            self.audit.give(list);
        }
        self.inner.write(output)
    }

    fn resumable(&mut self) -> Option<&mut dyn Resumable> {
        self.inner.resumable()
    }
}

fn run(mut kernel: KernelSide, lists: &Receiver<AuditedList>, mut report: impl FnMut(&Report)) -> Result<Audited> {
    let (mut comparison, mut audited) = (Comparison::new(kernel.knows_older()), Audited::default());
    let mut recorded_at = Instant::now();
    loop {
        let list = match lists.recv_timeout(FOLLOW_INTERVAL) {
            Ok(list) => list,
            Err(RecvTimeoutError::Timeout) => {
                kernel.follow()?;
                if recorded_at.elapsed() >= RECORD_INTERVAL {
                    kernel.record_ends()?;
                    recorded_at = Instant::now();
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let table = kernel.read()?;
        let differences = comparison.compare(&list, &table, |key| kernel.says(key));
        audited.lists += 1;
        for difference in &differences {
            match difference.reason {
                Some(_) => audited.explained += 1,
                None => audited.unexplained += 1,
            }
        }
        report(&Report { end_ns: list.end_ns, listed: list.listed.len(), open: table.len(), differences });
    }
    Ok(Audited { undecided: comparison.undecided(), ..audited })
}
