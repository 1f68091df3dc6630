//! A replay that stops anywhere and continues, and states that hold anything.

use super::*;
use crate::capture::tests::build::{Pcapng, USER_LINK};
use crate::engine::Config;
use crate::error::Result;
use crate::export::{Exporter, Format, Stream};
use crate::run::{Observer, run};
use flowpeel_traffic::{Traffic, TrafficConfig};
use std::cell::Cell;

/// Runs until so many packets were fed, then says stop.
struct StopAfter(Cell<u64>);

impl Observer for StopAfter {
    fn is_stopped(&self) -> bool {
        // Asked once in so many packets.
        let left = self.0.get();
        self.0.set(left.saturating_sub(crate::run::STOP_INTERVAL_PACKETS));
        left == 0
    }
}

fn config() -> Config {
    Config {
        every: Some(Duration::from_secs(1)),
        shards: 2,
        connections_max: 2_000,
        churn: Some(1_000),
        pickup: 3,
        idle_timeout: Some(Duration::from_secs(10)),
        max_age: Some(Duration::from_secs(20)),
        format: Format { changes: Some(4), ..Format::default() },
        saves_state: true,
        ..Config::default()
    }
}

/// Generated captures in a directory: a pcap file, and a pcapng file with packets of an interface that cannot be read.
fn captures(place: &Path) -> Vec<PathBuf> {
    let (mut first, mut second) = (traffic(3), traffic(4));
    let mut pcap = Vec::new();
    flowpeel_traffic::write_pcap(&mut first, &mut pcap).unwrap();
    let mut pcapng = Pcapng::little().ethernet().interface(USER_LINK, 0, &[]);
    while let Some(frame) = second.next_frame() {
        let time_us = frame.time_us;
        pcapng = pcapng.enhanced(0, time_us, frame.bytes);
        if time_us.is_multiple_of(3) {
            // A part of them lies behind the end of the interval.
            pcapng = pcapng.enhanced(1, time_us + 300_000, b"unreadable");
        }
    }
    [("3.pcap", pcap), ("4.pcapng", pcapng.bytes)]
        .map(|(name, bytes)| {
            let path = place.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        })
        .to_vec()
}

fn traffic(seed: u64) -> Traffic {
    Traffic::new(TrafficConfig::mixed(seed, 600)).unwrap()
}

fn saving(state: &Path, captures: &[PathBuf]) -> Result<Saving> {
    Saving::of_replay(state, Duration::ZERO, &Plan::new(&config()).unwrap(), captures)
}

fn replay(saving: Option<Saving>, captures: &[PathBuf], exporter: &mut dyn Exporter, stop_after: u64) -> Result<u64> {
    let first = saving.as_ref().map_or(0, Saving::first_input);
    let inputs = captures.iter().skip(first).map(|path| crate::capture::Replay::open(path));
    let mut observer = StopAfter(Cell::new(stop_after));
    let plan = Plan::new(&config()).unwrap();
    run(&plan, inputs, exporter, &mut observer, saving).map(|summary| summary.packets)
}

/// The lines of a run without a break, and its packets.
fn undisturbed(captures: &[PathBuf]) -> (Vec<u8>, u64) {
    let mut stream = Stream::new(Vec::new(), "a buffer", false, config().format);
    let packets = replay(None, captures, &mut stream, u64::MAX).unwrap();
    (stream.into_inner(), packets)
}

#[test]
fn wherever_it_stops_it_goes_on_with_the_same_lists() {
    let place = tempfile::tempdir().unwrap();
    let captures = captures(place.path());
    let (expected, packets) = undisturbed(&captures);
    let mut resumed = Vec::new();
    for stop in 1..12 {
        let state = place.path().join(format!("state-{stop}"));
        let mut first = Stream::new(Vec::new(), "a buffer", false, config().format);
        replay(Some(saving(&state, &captures).unwrap()), &captures, &mut first, packets * stop / 12).unwrap();
        let saved = saving(&state, &captures).unwrap();
        resumed.extend(saved.position().map(|position| (position.input, position.packets)));
        let mut second = Stream::new(Vec::new(), "a buffer", false, config().format);
        assert_eq!(replay(Some(saved), &captures, &mut second, u64::MAX).unwrap(), packets);
        let second = second.into_inner();
        assert!(expected.ends_with(&second), "what it wrote is not the rest of what it would have written: {stop}");
        assert!(!second.is_empty());
    }
    assert!(resumed.len() > 7, "{resumed:?}");
}

#[test]
fn whatever_a_state_holds_nothing_breaks() {
    let place = tempfile::tempdir().unwrap();
    let captures = captures(place.path());
    let (_, packets) = undisturbed(&captures);
    let state = place.path().join("state");
    let mut nowhere = |_: &crate::list::List| Ok(());
    replay(Some(saving(&state, &captures).unwrap()), &captures, &mut nowhere, packets / 3).unwrap();
    let parts: Vec<Vec<u8>> = saving(&state, &captures).unwrap().saved.unwrap().parts().map(<[u8]>::to_vec).collect();
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let mut refused_count = 0;
    const TRIALS: usize = 150;
    for _ in 0..TRIALS {
        let mut parts = parts.clone();
        let part = random(PART_COUNT);
        let size = parts[part].len();
        if size == 0 {
            // Without an archive there is nothing of one to damage.
            continue;
        }
        // The head of a part has its counts and lengths, so most of what can go wrong is there.
        let at = if random(2) == 0 { random(size.min(400)) } else { random(size) };
        match random(4) {
            0 => parts[part].truncate(at),
            1 => parts[part][at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            2 => parts[part][at] ^= 1 << random(8),
            _ => parts[part][at..].iter_mut().take(400).for_each(|byte| *byte = random(256) as u8),
        }
        saving(&state, &captures).unwrap().directory.save(&parts).unwrap();
        let mut nowhere = Stream::new(Vec::new(), "a buffer", false, config().format);
        let ran = saving(&state, &captures).and_then(|saving| replay(Some(saving), &captures, &mut nowhere, u64::MAX));
        refused_count += usize::from(ran.is_err());
        // What ran may have saved what it made of it.
        std::fs::remove_dir_all(&state).unwrap();
    }
    assert!(refused_count > TRIALS / 4, "{refused_count}");
}

#[test]
fn what_is_put_off_is_tried_again_and_the_last_is_always_saved() {
    let place = tempfile::tempdir().unwrap();
    let captures = captures(place.path());
    let saver = saving(&place.path().join("state"), &captures).unwrap().saver();
    assert!(saver.begins(false));
    assert!(!saver.begins(false), "one is under way");
    assert!(saver.begins(true));
    saver.put_off();
    assert!(saver.begins(false));
    saver.ended();
    let hourly = Saver { every: Duration::from_secs(3_600), ..Arc::into_inner(saver).unwrap() };
    assert!(!hourly.begins(false));
    hourly.put_off();
    assert!(hourly.begins(false) || Instant::now().checked_sub(hourly.every).is_none());
}

#[test]
fn only_what_could_not_be_saved_at_the_end_is_a_failure() {
    let place = tempfile::tempdir().unwrap();
    let captures = captures(place.path());
    for (fates, failed, has_failed) in [
        (&[false, true][..], 1, false),
        (&[true, false], 1, true),
        (&[false, false], 2, true),
        (&[true, true], 0, false),
        (&[], 0, false),
    ] {
        let state = place.path().join("state");
        let Saving { directory, saver, .. } = saving(&state, &captures).unwrap();
        let saver = Arc::new(Saver { every: Duration::from_secs(60), ..Arc::into_inner(saver).unwrap() });
        let (cuts, received) = crossbeam::channel::unbounded();
        // Where there is no directory not even root can write.
        let fate = |can_write: Option<&bool>| match can_write {
            Some(true) => drop(std::fs::create_dir(&state)),
            Some(false) => drop(std::fs::remove_dir_all(&state)),
            None => {}
        };
        let mut fates = fates.iter();
        fates.clone().for_each(|_| cuts.send(writer::Cut::default()).unwrap());
        fate(fates.next());
        let fates = Mutex::new(fates);
        let on_written = Box::new(|_: Written| fate(fates.lock().next()));
        drop(cuts);
        let counts = writer::Writer { directory, saver: Arc::clone(&saver), cuts: received, on_written }.run();
        assert_eq!((counts.failed, counts.has_failed), (failed, has_failed));
        assert_eq!(saver.begins(false), failed > 0, "what could not be written is tried again at the next end");
        drop(std::fs::remove_dir_all(&state));
    }
}
