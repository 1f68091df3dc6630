//! A run that fails at every list but its first, as on a full disk, and is started again with its saved state.

use super::{BEGIN_US, CONNECTIONS_MAX, EVERY_US, TIMES, assert_complete_but_in_the_spike, config, spike};
use crate::support::feed::{Frames, Kept, lists_of};
use flowpeel::capture::{Packet, PacketSource, Progress};
use flowpeel::engine::{Config, Plan, Saving};
use flowpeel::error::{Error, Result};
use flowpeel::export::{Exporter, Output};
use flowpeel::parse::LinkType;
use flowpeel::run::run;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A wait that lasts longer hangs.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn wait_until(is_done: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < WAIT_MAX, "it hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The files of saved states in a directory, of which the newest counts.
fn states(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("state-")).collect();
    names.sort();
    names
}

/// What the source and the exporter of a run know of each other.
#[derive(Default)]
struct Pace {
    /// Lists that were written, in this run and those before.
    list_count: AtomicU64,
    has_failed: AtomicBool,
}

/// Frames that come no faster than lists are written, so that a state is saved before the last has come.
struct Paced<'a> {
    frames: &'a Frames,
    at: usize,
    pace: &'a Pace,
}

impl PacketSource for Paced<'_> {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let Some((time_us, bytes)) = self.frames.get(self.at) else { return Ok(None) };
        self.at += 1;
        // The first packet of an interval ends the one before.
        let interval = (time_us - BEGIN_US) / EVERY_US;
        let is_due = || {
            let is_listed = self.pace.list_count.load(Ordering::Acquire) + 1 >= interval;
            is_listed || self.pace.has_failed.load(Ordering::Acquire)
        };
        if !is_due() {
            wait_until(is_due);
        }
        Ok(Some(Packet::whole(*time_us as i64 * 1_000, LinkType::ETHERNET, bytes)))
    }

    fn is_finished(&self) -> bool {
        self.at == self.frames.len()
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// Keeps one list, and fails at the next as soon as a state is saved that has the one.
struct Failing<'a> {
    list: Option<Kept>,
    pace: &'a Pace,
    states: &'a Path,
    states_before: Vec<String>,
}

impl Exporter for Failing<'_> {
    fn write(&mut self, output: Output) -> Result<()> {
        let Output::List(list) = output else { return Ok(()) };
        if self.list.is_some() {
            wait_until(|| states(self.states).last() > self.states_before.last());
            self.pace.has_failed.store(true, Ordering::Release);
            return Err(Error::new("the disk is full"));
        }
        self.list = Some(Kept { header: list.header, rows: list.rows().collect() });
        self.pace.list_count.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// The lists of runs that each write one and continue after the one before, and how many continued.
fn lists_of_restarts(frames: &Frames, config: &Config) -> (Vec<Kept>, u64) {
    let place = tempfile::tempdir().unwrap();
    let (capture, directory) = (place.path().join("capture"), place.path().join("state"));
    // The state names its captures; the packets of this one are in memory.
    std::fs::write(&capture, "frames of a spike").unwrap();
    let plan = Plan::new(config).unwrap();
    let (mut lists, mut continued_count, mut pace) = (Vec::new(), 0, Pace::default());
    loop {
        let saving = Saving::of_replay(&directory, Duration::ZERO, &plan, std::slice::from_ref(&capture)).unwrap();
        assert!(saving.warnings().is_empty());
        continued_count += u64::from(saving.position().is_some());
        let states_before = states(&directory);
        let mut exporter = Failing { list: None, pace: &pace, states: &directory, states_before };
        let source = Paced { frames, at: 0, pace: &pace };
        let ended = run(&plan, std::iter::once(Ok(source)), &mut exporter, &mut (), Some(saving));
        lists.extend(exporter.list);
        match ended {
            Ok(_) => return (lists, continued_count),
            Err(error) => assert!(error.to_string().contains("the disk is full"), "{error}"),
        }
        *pace.has_failed.get_mut() = false;
    }
}

#[test]
fn lists_of_runs_that_continue_within_a_spike_and_behind_it_are_those_of_one_run() {
    for times in TIMES {
        let frames = spike(times * CONNECTIONS_MAX);
        let whole = lists_of(frames.clone(), &config(2)).0;
        let (lists, continued_count) = lists_of_restarts(&frames, &Config { saves_state: true, ..config(2) });
        assert_eq!((lists.len(), continued_count), (whole.len(), whole.len() as u64 - 1));
        for (list, one) in lists.iter().zip(&whole) {
            assert!(list == one, "{times} times: {:?} is not {:?}", list.header, one.header);
        }
        assert_complete_but_in_the_spike(lists.iter().map(|list| &list.header));
    }
}
