//! A capture at its own pace: each packet comes when as much time has passed as between it and the first.

use super::{Packet, PacketSource, Progress, SkippedPackets};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest pause that is waited for: a longer one is cut to this. Somebody watches.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long a wait goes on before it looks whether it is to stop.
const STOP_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A source that holds its packets back.
pub struct Paced<S> {
    source: S,
    pace: Pace,
}

impl<S: PacketSource> Paced<S> {
    /// The packets of this source `speed` times as fast as they were captured, until it is to stop.
    #[must_use]
    pub fn new(source: S, speed: f64, should_stop: Arc<AtomicBool>) -> Self {
        Paced { source, pace: Pace { speed, should_stop, last: None } }
    }
}

/// When packets come.
struct Pace {
    speed: f64,
    should_stop: Arc<AtomicBool>,
    /// The latest time that a packet showed, in ns, and when it was due.
    last: Option<(i64, Instant)>,
}

impl Pace {
    /// Waits until a packet of this time is due. Packets that are stamped earlier than those before come at once.
    fn wait(&mut self, time_ns: i64) {
        let Some((last_ns, last_due)) = self.last else {
            self.last = Some((time_ns, Instant::now()));
            return;
        };
        let Some(later_ns) = u64::try_from(time_ns.saturating_sub(last_ns)).ok().filter(|later_ns| *later_ns > 0)
        else {
            return;
        };
        let pause = Duration::try_from_secs_f64(later_ns as f64 / 1e9 / self.speed).unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        let due = last_due + pause;
        while !self.should_stop.load(Ordering::Relaxed) {
            match due.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => thread::sleep(left.min(STOP_LOOK_INTERVAL)),
                _ => break,
            }
        }
        self.last = Some((time_ns, due));
    }
}

impl<S: PacketSource> PacketSource for Paced<S> {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let Some(packet) = self.source.next_packet()? else { return Ok(None) };
        self.pace.wait(packet.time_ns);
        Ok(Some(packet).filter(|_| !self.pace.should_stop.load(Ordering::Relaxed)))
    }

    fn is_finished(&self) -> bool {
        self.source.is_finished() || self.pace.should_stop.load(Ordering::Relaxed)
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }

    fn skipped(&self) -> Option<&SkippedPackets> {
        self.source.skipped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::LinkType;

    /// Packets without bytes, at these times.
    struct Times(std::vec::IntoIter<i64>);

    impl PacketSource for Times {
        fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
            Ok(self.0.next().map(|time_ns| Packet::whole(time_ns, LinkType::ETHERNET, &[])))
        }

        fn is_finished(&self) -> bool {
            self.0.len() == 0
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    fn paced(times: Vec<i64>, speed: f64) -> (Paced<Times>, Arc<AtomicBool>) {
        let should_stop = Arc::new(AtomicBool::new(false));
        (Paced::new(Times(times.into_iter()), speed, Arc::clone(&should_stop)), should_stop)
    }

    #[test]
    fn packets_come_no_earlier_than_they_are_due() {
        let (mut source, _) =
            paced(vec![i64::MIN, i64::MIN + 100_000_000, i64::MIN + 50_000_000, i64::MIN + 400_000_000], 2.0);
        let began = Instant::now();
        let mut count = 0;
        while source.next_packet().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 4);
        assert!(began.elapsed() >= Duration::from_millis(200));
        assert!(source.is_finished());
    }

    #[test]
    fn who_stops_waits_for_no_packet() {
        let (mut source, should_stop) = paced(vec![0, i64::MAX, i64::MAX], 1e-3);
        assert!(source.next_packet().unwrap().is_some());
        should_stop.store(true, Ordering::Relaxed);
        assert!(source.next_packet().unwrap().is_none());
        assert!(source.is_finished());
    }
}
