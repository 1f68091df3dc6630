//! Sources that play what a test wrote, on the real threads: every interval once, every packet seen or counted.

use super::*;
use crate::capture::{Losses, Packet, PacketSource, Progress};
use crate::engine::{Config, LiveInput, Snapshots};
use crate::export::{Format, Output, Stream};
use crate::list::List;
use crate::metrics::Setup;
use crate::parse::{LinkType, parse_frame};
use crate::signal::SignalKind;
use crate::sources::Report;
use flowpeel_traffic::{Traffic, TrafficConfig};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const EVERY: Duration = Duration::from_millis(200);

fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Frames that come as fast as they are read, each with the time of its reading.
struct Playing {
    frames: VecDeque<Vec<u8>>,
    present: Vec<u8>,
    played: Arc<AtomicU64>,
    lost: u64,
}

impl Playing {
    fn new(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Playing { frames: frames.into_iter().collect(), present: Vec::new(), played: Arc::default(), lost: 0 }
    }
}

impl PacketSource for Playing {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let Some(frame) = self.frames.pop_front() else { return Ok(None) };
        self.present = frame;
        self.played.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Packet::whole(wall_ns(), LinkType::ETHERNET, &self.present)))
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

impl LiveSource for Playing {
    fn wait(&mut self, timeout: Duration) -> Option<Condition> {
        std::thread::sleep(timeout);
        None
    }

    fn condition(&self) -> Condition {
        Condition::Up
    }

    fn losses(&mut self) -> Losses {
        Losses { dropped: self.lost, ..Losses::default() }
    }
}

/// Stops after so long.
struct StopAfter(Instant, Duration);

impl LiveObserver for StopAfter {
    fn is_stopped(&self) -> bool {
        self.0.elapsed() > self.1
    }
}

fn config() -> Config {
    Config {
        every: Some(EVERY),
        shards: 2,
        connections_max: 20_000,
        churn: Some(20_000),
        sources_max: Some(10_000),
        ..Config::default()
    }
}

fn metrics(capture_count: usize) -> Arc<Metrics> {
    let interfaces = (0..capture_count).map(|index| format!("test{index}")).collect();
    Metrics::new(Setup { interfaces, ..Setup::default() })
}

fn run_live(sources: Vec<Playing>, lasts: Duration, exporter: &mut dyn Exporter) -> Summary {
    let config = config();
    let plan = Plan::live(&config, LiveInput { capture_count: sources.len(), rings_size: 0 }).unwrap();
    let metrics = metrics(sources.len());
    live(&plan, sources, exporter, &metrics, &StopAfter(Instant::now(), lasts), None, SystemView::default()).unwrap()
}

/// Generated packets.
fn frames(seed: u64) -> Vec<Vec<u8>> {
    let mut traffic = Traffic::new(TrafficConfig::mixed(seed, 2_000)).unwrap();
    std::iter::from_fn(|| traffic.next_frame().map(|frame| frame.bytes.to_vec())).collect()
}

#[test]
fn every_interval_has_one_list_and_the_last_is_where_it_was_stopped() {
    let mut headers = Vec::new();
    let mut exporter = |list: &List| {
        headers.push(list.header);
        Ok(())
    };
    let summary = run_live(vec![Playing::new([])], 5 * EVERY, &mut exporter);
    assert!(headers.len() >= 5, "{}", headers.len());
    assert!(headers.windows(2).all(|pair| pair[0].figures.end_ns == pair[1].figures.start_ns
        && pair[0].figures.interval + 1 == pair[1].figures.interval));
    let every_ns = EVERY.as_nanos() as i64;
    assert!(headers[..headers.len() - 1].iter().all(|header| header.figures.end_ns % every_ns == 0));
    assert_eq!((summary.lists, summary.incomplete), (headers.len() as u64, 0));
}

#[test]
fn the_last_list_is_that_of_a_replay() {
    let frames = frames(7);
    let count = frames.len() as u64;
    let mut listed = Vec::new();
    let mut exporter = |list: &List| {
        listed = list.rows().map(|row| (row.client, row.server, row.state)).collect();
        Ok(())
    };
    let summary = run_live(vec![Playing::new(frames.clone())], 3 * EVERY, &mut exporter);
    assert_eq!((summary.packets, summary.lost, summary.queue_full), (count, 0, 0));
    // All came within the time that half-open connections are kept, so the replay has to keep its as long.
    struct Still(Playing);
    impl PacketSource for Still {
        fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
            let packet = self.0.next_packet()?;
            Ok(packet.map(|packet| Packet { time_ns: 1_000_000_000, ..packet }))
        }
        fn is_finished(&self) -> bool {
            false
        }
        fn progress(&self) -> Progress {
            Progress::default()
        }
    }
    let mut replayed = Vec::new();
    let mut exporter = |list: &List| {
        replayed = list.rows().map(|row| (row.client, row.server, row.state)).collect();
        Ok(())
    };
    let config = Config { every: None, ..config() };
    let input = Still(Playing::new(frames));
    super::super::run(&Plan::new(&config).unwrap(), std::iter::once(Ok(input)), &mut exporter, &mut (), None).unwrap();
    assert!(replayed.len() > 50, "{}", replayed.len());
    assert_eq!(listed, replayed);
}

#[test]
fn what_one_thread_reads_late_is_listed_though_another_had_nothing_to_read() {
    /// Frames with their times, whose thread does not get to read them before the capture is stopped.
    struct Late(Playing, VecDeque<i64>, Arc<AtomicBool>);
    impl PacketSource for Late {
        fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
            if !self.2.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let Some(time_ns) = self.1.pop_front() else { return Ok(None) };
            Ok(self.0.next_packet()?.map(|packet| Packet { time_ns, ..packet }))
        }
        fn is_finished(&self) -> bool {
            false
        }
        fn progress(&self) -> Progress {
            Progress::default()
        }
    }
    impl LiveSource for Late {
        fn wait(&mut self, timeout: Duration) -> Option<Condition> {
            self.0.wait(timeout);
            while !self.1.is_empty() && !self.2.load(Ordering::Relaxed) {
                std::thread::sleep(timeout);
            }
            None
        }
        fn condition(&self) -> Condition {
            Condition::Up
        }
        fn losses(&mut self) -> Losses {
            Losses::default()
        }
    }
    struct ShowAtStop(StopAfter, Arc<AtomicBool>);
    impl LiveObserver for ShowAtStop {
        fn is_stopped(&self) -> bool {
            let is_stopped = self.0.is_stopped();
            self.1.fetch_or(is_stopped, Ordering::Relaxed);
            is_stopped
        }
    }
    let frames = frames(11);
    let mut nowhere = |_: &List| Ok(());
    let expected = run_live(vec![Playing::new(frames.clone())], EVERY, &mut nowhere).counts.opened;
    let is_shown = Arc::new(AtomicBool::new(false));
    let (began_ns, lasts_ns) = (wall_ns(), 4 * EVERY.as_nanos() as i64);
    let times = (0..frames.len()).map(|at| began_ns + lasts_ns * at as i64 / frames.len() as i64).collect();
    let late = |frames, times| Late(Playing::new(frames), times, Arc::clone(&is_shown));
    let mut headers = Vec::new();
    let mut exporter = |list: &List| {
        headers.push(list.header);
        Ok(())
    };
    let config = config();
    let plan = Plan::live(&config, LiveInput { capture_count: 2, rings_size: 0 }).unwrap();
    let sources = vec![late(Vec::new(), VecDeque::new()), late(frames, times)];
    let observer = ShowAtStop(StopAfter(Instant::now(), 5 * EVERY), Arc::clone(&is_shown));
    let summary = live(&plan, sources, &mut exporter, &metrics(2), &observer, None, SystemView::default()).unwrap();
    assert_eq!((summary.counts.opened, summary.incomplete), (expected, 0));
    // How many intervals were merged depends on how busy the machine is, and what the lists cover together does not.
    assert_eq!(headers.iter().map(|header| header.figures.opened).sum::<u64>(), expected, "{headers:?}");
}

#[test]
fn what_the_kernel_lost_is_in_the_list_and_the_summary() {
    let mut source = Playing::new(frames(1).into_iter().take(100));
    source.lost = 17;
    let headers = Mutex::new(Vec::new());
    let mut exporter = |list: &List| {
        headers.lock().push(list.header);
        Ok(())
    };
    let summary = run_live(vec![source, Playing::new([])], 3 * EVERY, &mut exporter);
    assert_eq!(summary.lost, 17);
    let headers = headers.lock();
    assert_eq!(
        headers.iter().map(|header| header.figures.dropped).sum::<u64>(),
        17,
        "once, in the list of one interval"
    );
    assert!(
        headers
            .iter()
            .all(|header| header.complete == (header.missing == 0) && (header.figures.dropped == 0 || !header.complete))
    );
}

#[test]
fn an_exporter_that_is_too_slow_has_intervals_merged_and_none_lost() {
    let mut headers = Vec::new();
    let mut exporter = |list: &List| {
        headers.push(list.header);
        std::thread::sleep(3 * EVERY);
        Ok(())
    };
    let summary = run_live(vec![Playing::new(frames(2))], 20 * EVERY, &mut exporter);
    assert!(headers.windows(2).all(|pair| pair[0].figures.end_ns == pair[1].figures.start_ns), "{headers:?}");
    assert!(headers.len() < 20, "{}", headers.len());
    // Every end of an interval has a list, or is counted in the one that covers it; the last is where it was stopped.
    let every_ns = EVERY.as_nanos() as i64;
    let ends = headers[headers.len() - 1].figures.end_ns / every_ns - headers[0].figures.start_ns / every_ns;
    let covered: u64 = headers.iter().map(|header| 1 + header.figures.merged).sum();
    assert!((ends as u64..=ends as u64 + 1).contains(&covered), "{covered} of {ends}");
    assert_eq!(headers.iter().map(|header| header.figures.opened).sum::<u64>(), summary.counts.opened);
    assert!(summary.counts.opened > 1_000);
}

#[test]
fn sources_are_counted_once_each_however_slow_the_lists_are() {
    struct Slow(Vec<Report>);
    impl Exporter for Slow {
        fn write(&mut self, output: Output) -> Result<()> {
            match output {
                Output::List(_) => std::thread::sleep(3 * EVERY),
                Output::Sources(report) => self.0.push(report.clone()),
                Output::Snapshot(_) => {}
            }
            Ok(())
        }
    }
    let frames = frames(3);
    let kinds = frames.iter().filter_map(|frame| parse_frame(LinkType::ETHERNET, frame).ok());
    let attempts = kinds.filter(|segment| SignalKind::of_flags(segment.flags) == SignalKind::Syn).count() as u64;
    let mut slow = Slow(Vec::new());
    let summary = run_live(vec![Playing::new(frames), Playing::new([])], 10 * EVERY, &mut slow);
    assert_eq!((summary.lost, summary.queue_full), (0, 0));
    let reports = slow.0;
    assert!(attempts > 1_000 && reports.len() > 1);
    assert_eq!(reports.iter().map(|report| report.attempts).sum::<u64>(), attempts);
    assert!(reports.windows(2).all(|pair| pair[0].period.end_ns == pair[1].period.start_ns));
    for report in &reports {
        assert!(report.complete);
        assert_eq!(report.sources.iter().map(|source| source.attempts).sum::<u64>(), report.attempts);
    }
}

#[test]
fn a_run_that_goes_on_repeats_no_number_and_builds_on_no_list_before() {
    let place = tempfile::tempdir().unwrap();
    let format = Format { changes: Some(100), ..Format::default() };
    let config = Config { format: format.clone(), saves_state: true, ..config() };
    let plan = Plan::live(&config, LiveInput { capture_count: 1, rings_size: 0 }).unwrap();
    let run = |state: &std::path::Path| {
        let mut stream = Stream::new(Vec::new(), "a buffer", false, format.clone());
        let saving = Saving::of_live(state, Duration::ZERO, &plan).unwrap();
        let (source, stop) = (Playing::new(frames(5)), StopAfter(Instant::now(), 4 * EVERY));
        live(&plan, vec![source], &mut stream, &metrics(1), &stop, Some(saving), SystemView::default()).unwrap();
        let text = String::from_utf8(stream.into_inner()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let fields = lines.filter_map(|line| {
            let (full, changes) = (line.get("flow_list"), line.get("flow_changes"));
            Some((full.is_some(), full.or(changes)?["interval"].as_u64().unwrap()))
        });
        fields.collect::<Vec<_>>()
    };
    let state = place.path().join("state");
    let first = run(&state);
    assert!(first.len() > 3 && first[0].0 && !first[1].0, "{first:?}");
    // A run that was killed has written lists of later numbers than its state has.
    let mut states: Vec<_> = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()).collect();
    states.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("state-"));
    states.sort();
    assert!(states.len() > 1, "{states:?}");
    std::fs::remove_file(states.pop().unwrap()).unwrap();
    let second = run(&state);
    assert!(second[0].1 > first[first.len() - 1].1, "{first:?} {second:?}");
    assert!(second[0].0 && !second[1].0, "{second:?}");
}

#[test]
fn a_list_that_can_not_be_written_ends_the_capture() {
    let mut exporter = |_: &List| Err(Error::new("no room"));
    let config = config();
    let plan = Plan::live(&config, LiveInput { capture_count: 1, rings_size: 0 }).unwrap();
    struct Never;
    impl LiveObserver for Never {}
    let error = live(&plan, vec![Playing::new([])], &mut exporter, &metrics(1), &Never, None, SystemView::default())
        .unwrap_err();
    assert!(error.to_string().contains("no room"));
}

#[test]
fn a_snapshot_after_a_restart_counts_as_many_in_doubt_as_the_list() {
    #[derive(Default)]
    struct Both(Vec<(u64, u64)>, Vec<(u64, u64)>);
    impl Exporter for Both {
        fn write(&mut self, output: Output) -> Result<()> {
            match output {
                Output::List(list) => self.0.push((list.header.figures.interval, list.header.unsettled)),
                Output::Snapshot(snapshot) => {
                    let source = &snapshot.header.sources[0];
                    self.1.push((source.figures.interval, source.shortfall.unsettled));
                }
                Output::Sources(_) => {}
            }
            Ok(())
        }
    }
    let place = tempfile::tempdir().unwrap();
    let config = Config { snapshots: Some(Snapshots::default()), saves_state: true, ..config() };
    let plan = Plan::live(&config, LiveInput { capture_count: 1, rings_size: 0 }).unwrap();
    let run = |frames: Vec<Vec<u8>>| {
        let mut both = Both::default();
        let saving = Saving::of_live(&place.path().join("state"), Duration::ZERO, &plan).unwrap();
        let stop = StopAfter(Instant::now(), 4 * EVERY);
        live(&plan, vec![Playing::new(frames)], &mut both, &metrics(1), &stop, Some(saving), SystemView::default())
            .unwrap();
        assert!(!both.0.is_empty() && both.0 == both.1, "{:?} {:?}", both.0, both.1);
        both.0.iter().map(|(_, unsettled)| *unsettled).max()
    };
    assert_eq!(run(frames(5)), Some(0));
    assert!(run(Vec::new()) > Some(10), "what was open may have closed");
}
