//! Captures replayed: their packets in turn, as one stream, by the packets' own time.

use super::{OBSERVE_INTERVAL_PACKETS, STOP_INTERVAL_PACKETS, feed_some};
use crate::capture::{PacketSource, Progress, Replay, SkippedPackets};
use crate::engine::{Config, Lists, Outputs, PacketTime, Plan, Port, Saving, Start, Summary, Threads};
use crate::error::{Error, Result};
use crate::export::Exporter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Watches a run: progress and troubles as they come, and a way to stop it.
pub trait Observer {
    /// Called now and then with how far the present input has been read, and the packets of all inputs so far.
    fn progress(&mut self, _progress: Progress, _packets: u64) {}

    /// Called when an input could not be read, or not to its end. The packets it gave before count, and the next input
    /// follows.
    fn failed(&mut self, _error: &Error, _packets: u64) {}

    /// Called when an input held packets of link types that cannot be read. They are counted as unusable, each in its
    /// interval.
    fn skipped(&mut self, _packets: &SkippedPackets) {}

    /// Whether to stop here; the last list is then of what was read so far.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
impl Observer for () {}

/// Replays captures in turn, as one stream, and gives the lists to `exporter`. A path of `-` is standard input.
///
/// An input that cannot be read is reported to `observer` and in the summary. When nothing could be read at all, there
/// is no list.
///
/// # Errors
///
/// The configuration is invalid, a list could not be written, or a thread not started.
pub fn replay<P: AsRef<Path>>(
    paths: &[P],
    config: &Config,
    exporter: &mut dyn Exporter,
    observer: &mut impl Observer,
) -> Result<Summary> {
    let plan = Plan::new(config)?;
    let inputs = paths.iter().map(|path| Replay::open(path.as_ref()));
    run(&plan, inputs, exporter, observer, None)
}

/// Replays the captures that `inputs` gives, each opened when the one before has been read. See [`replay`].
///
/// With `saving` the state is saved on the way, and the run continues from what was saved: then `inputs` begin with the
/// [first that is not done with](Saving::first_input), and the lists are the rest of those that a run without the break
/// would have written.
///
/// # Errors
///
/// A list could not be written, or a thread not started. Or the saved state does not fit after all; then nothing was
/// written.
pub fn run<S: PacketSource>(
    plan: &Plan,
    mut inputs: impl Iterator<Item = Result<S>>,
    exporter: &mut dyn Exporter,
    observer: &mut impl Observer,
    saving: Option<Saving>,
) -> Result<Summary> {
    let (threads, port, start) = Threads::replay(plan, Outputs::of_lists(Lists::Borrowed(exporter)), None, saving)?;
    let has_failed = threads.has_failed();
    let Start { input, packets: mut skipped, mut errors } = start;
    let first = inputs.by_ref().take(usize::from(skipped > 0)).next();
    let first = first.map(|source| skip(source?, skipped, observer)).transpose()?;
    std::thread::scope(|scope| {
        // Dropped before the threads are waited for, which end with it.
        let mut port = port;
        let running = threads.start(scope)?;
        for (input, index) in first.into_iter().map(Ok).chain(inputs).zip(input..) {
            let packets_before = port.packets();
            let fed = std::mem::take(&mut skipped);
            port.begin_input(index, fed, &errors);
            let read = input.and_then(|mut source| feed(&mut port, (&mut source, fed), observer, &has_failed));
            if let Err(error) = read {
                observer.failed(&error, port.packets() - packets_before);
                errors.push(error);
            }
            if has_failed.load(Ordering::Relaxed) || observer.is_stopped() {
                break;
            }
        }
        if !errors.is_empty() {
            port.set_unsound();
        }
        drop(port);
        running.join(errors)
    })
}

/// Passes over the packets of a source that another run has been fed.
///
/// # Errors
///
/// The source has fewer packets.
fn skip<S: PacketSource>(mut source: S, packets: u64, observer: &impl Observer) -> Result<S> {
    for count in 0..packets {
        if source.next_packet()?.is_none() {
            let what =
                format!("the state was saved behind its packet {packets}, and it has {count}: it has changed since");
            return Err(Error::new(what));
        }
        if count.is_multiple_of(STOP_INTERVAL_PACKETS) && observer.is_stopped() {
            break;
        }
    }
    Ok(source)
}

/// Feeds a source, of which so many packets have been fed already, to its end, or to where it breaks off.
fn feed(
    port: &mut Port<PacketTime>,
    (source, mut fed): (&mut impl PacketSource, u64),
    observer: &mut impl Observer,
    has_failed: &AtomicBool,
) -> Result<()> {
    let mut read = Ok(true);
    while let Ok(true) = read
        && !observer.is_stopped()
        && !has_failed.load(Ordering::Relaxed)
    {
        // Cuts are behind the same packets as in a run without a break.
        let count_max = STOP_INTERVAL_PACKETS - fed % STOP_INTERVAL_PACKETS;
        read = feed_some(port, source, count_max).map(|count| count == count_max);
        port.cut_if_due();
        fed += count_max;
        if fed.is_multiple_of(OBSERVE_INTERVAL_PACKETS) {
            observer.progress(source.progress(), port.packets());
        }
    }
    if let Some(skipped) = source.skipped() {
        observer.skipped(skipped);
    }
    read.map(|_| ())
}
