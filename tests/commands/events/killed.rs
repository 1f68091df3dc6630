//! `--events` with `--state`: a replay that is killed or stopped again and again leaves the files of one that was not,
//! and a socket gets every event, with its number.
//!
//! `scripts/kill-state` runs the long form of the first test.

use super::{capture, parsed};
use crate::state::{KILLS, Random, files, state_in};
use crate::support::command::{FLOWPEEL, Running, command, run};
use crate::support::progress::Progress;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The options of different kinds of replays. LOGS is where the logs go.
const OPTIONS: [&str; 3] = [
    "--shards 2 --events-open --events LOGS/events.ndjson --events eve:LOGS/eve.json --events-rotate 1MiB",
    "--shards 1 --events LOGS/events.ndjson --events eve:LOGS/eve.json --events-rotate 3s",
    "--shards 3 --events-open --events eve:LOGS/eve --pickup 4 --idle-timeout 15s --max-age 40s",
];

/// A replay of this kind that writes to a directory.
fn resumable(kind: usize, capture: &Path, logs: &Path) -> Command {
    let directory = logs.to_str().unwrap();
    let mut command = command(FLOWPEEL, ["replay", "--every", "1s", "--connections", "20k", "--churn", "4k"]);
    command.args(OPTIONS[kind].split_whitespace().map(|word| word.replace("LOGS", directory)));
    command.arg(capture).stdout(Stdio::null());
    command
}

/// Asserts that no event of a log of our own lines is there twice, or missing.
fn assert_numbered(files: &BTreeMap<String, Vec<u8>>) {
    let texts = files.iter().filter(|(name, _)| name.starts_with("events"));
    let lines = texts.flat_map(|(_, text)| parsed(str::from_utf8(text).unwrap()));
    let mut numbers: Vec<_> = lines.map(|line| line["seq"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
}

/// Interrupts this many replays, each of which goes on from where the one before was: most are killed, and some are
/// stopped. Whenever one comes to its end, its files are those of a replay that was not interrupted.
fn interrupt(interrupt_count: u64, progress: &Progress) {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(&place, "20k");
    let mut random = Random::new(interrupt_count + progress.before());
    let whole: Vec<_> = (0..OPTIONS.len())
        .map(|kind| {
            let logs = place.path().join(format!("whole-{kind}"));
            fs::create_dir(&logs).unwrap();
            let began = Instant::now();
            assert_eq!(run(&mut resumable(kind, &capture, &logs)).status.code(), Some(0));
            let files = files(&logs);
            assert_numbered(&files);
            (files, began.elapsed())
        })
        .collect();
    let (mut killed, mut stopped, mut resumed, mut ended, mut kind) = (0, 0, 0, 0, 0);
    let mut torn = 0;
    while killed + stopped < interrupt_count {
        let (expected, lasts) = &whole[kind];
        let (logs, state) = (place.path().join(format!("logs-{ended}")), place.path().join(format!("state-{ended}")));
        fs::create_dir(&logs).unwrap();
        loop {
            let mut running = Running::start(resumable(kind, &capture, &logs).args(state_in(&state)));
            std::thread::sleep(Duration::from_micros(random.below(lasts.as_micros() as u64)));
            let is_due = killed + stopped < interrupt_count && running.child.try_wait().unwrap().is_none();
            let is_stop = random.below(4) == 0;
            if is_due && is_stop {
                let pid = running.child.id().to_string();
                assert!(run(&mut command("kill", ["-INT", &pid])).status.success());
            } else if is_due {
                running.child.kill().unwrap();
            }
            let end = running.wait();
            resumed += u64::from(end.stderr.contains("continuing from state"));
            match end.status.code() {
                None => {
                    killed += 1;
                    let is_torn = |text: &Vec<u8>| text.last().is_some_and(|last| *last != b'\n');
                    torn += u64::from(files(&logs).values().any(is_torn));
                }
                Some(1) if end.stderr.contains("interrupted") => stopped += 1,
                status => {
                    assert_eq!(status, Some(0), "{}", end.stderr);
                    break;
                }
            }
        }
        let files = files(&logs);
        assert_eq!(files.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        let differing = files.iter().find(|(name, text)| expected[*name] != **text);
        assert!(differing.is_none(), "{:?} differs, options {}", differing.map(|(name, _)| name), OPTIONS[kind]);
        // The same command once more has nothing to add.
        assert_eq!(run(resumable(kind, &capture, &logs).args(state_in(&state))).status.code(), Some(0));
        assert!(self::files(&logs) == *expected);
        fs::remove_dir_all(&logs).unwrap();
        fs::remove_dir_all(&state).unwrap();
        ended += 1;
        progress.record(killed + stopped);
        kind = (kind + 1) % OPTIONS.len();
    }
    println!("{killed} kills, {stopped} stops, {resumed} resumed, {torn} lines cut, {ended} with the files expected");
    assert!(resumed > 0, "nothing was ever gone on from");
}

#[test]
fn interrupted_at_any_moment_a_log_holds_every_event_once() {
    interrupt(8, &Progress::of_this_run());
}

#[test]
#[ignore = "takes minutes: scripts/kill-state runs it"]
fn interrupted_many_times_a_log_holds_every_event_once() {
    let count: u64 = std::env::var(KILLS).unwrap().parse().unwrap();
    let progress = Progress::of_this_run();
    if count > progress.before() {
        interrupt(count - progress.before(), &progress);
    }
}

/// Takes what comes over a socket, one connection after another.
struct Receiver {
    path: PathBuf,
    texts: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Receiver {
    fn start(place: &TempDir) -> Self {
        let path = place.path().join("receiver");
        let listener = UnixListener::bind(&path).unwrap();
        let texts = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&texts);
        let thread = std::thread::spawn(move || {
            loop {
                let mut text = String::new();
                listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
                if text == "end" {
                    return;
                }
                received.lock().unwrap().push(text);
            }
        });
        Receiver { path, texts, thread }
    }

    /// What came over each connection, without a line that was cut.
    fn finish(self) -> Vec<String> {
        let mut end = std::os::unix::net::UnixStream::connect(&self.path).unwrap();
        std::io::Write::write_all(&mut end, b"end").unwrap();
        drop(end);
        self.thread.join().unwrap();
        let whole = |text: &String| text[..text.rfind('\n').map_or(0, |at| at + 1)].to_owned();
        self.texts.lock().unwrap().iter().map(whole).collect()
    }
}

#[test]
fn a_socket_gets_what_is_repeated_with_its_number() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(&place, "20k");
    let receiver = Receiver::start(&place);
    let (log, state) = (place.path().join("whole.ndjson"), place.path().join("state"));
    let replay = |to: &str| {
        let mut command = command(FLOWPEEL, ["replay", "--every", "1s", "--events-open", "--events", to]);
        command.arg(&capture).stdout(Stdio::null());
        command
    };
    let began = Instant::now();
    assert!(run(&mut replay(log.to_str().unwrap())).status.success());
    let lasts = began.elapsed();
    let to_socket = format!("unix:{}", receiver.path.display());
    for quarter in 1..4 {
        let mut running = Running::start(replay(&to_socket).args(state_in(&state)));
        std::thread::sleep(lasts * quarter / 4);
        running.child.kill().unwrap();
        running.wait();
    }
    assert!(run(replay(&to_socket).args(state_in(&state))).status.success());
    let mut lines = BTreeMap::new();
    let mut count = 0;
    for line in receiver.finish().iter().flat_map(|text| text.lines()) {
        let number = parsed(line)[0]["seq"].as_u64().unwrap();
        let before = lines.insert(number, line.to_owned());
        assert!(before.is_none_or(|before| before == line), "one number, and another event");
        count += 1;
    }
    println!("{count} lines of {} events", lines.len());
    let text: String = lines.values().map(|line| format!("{line}\n")).collect();
    assert!(text == fs::read_to_string(&log).unwrap());
}

#[test]
fn a_log_that_does_not_belong_to_the_state_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(&place, "2k");
    let [log, other, state] = ["events.ndjson", "other.ndjson", "state"].map(|name| place.path().join(name));
    let replay = |words: &[&str]| {
        let mut command = command(FLOWPEEL, ["replay", "-q", "--every", "10s"]);
        command.args(words).args(state_in(&state)).arg(&capture).stdout(Stdio::null());
        run(&mut command)
    };
    let to_log = ["--events", log.to_str().unwrap()];
    assert!(replay(&to_log).status.success());
    let before = files(&state);
    replay(&["--events", other.to_str().unwrap()]).assert_failed(&["with another --events:"]);
    replay(&[&to_log[..], &["--events-open"]].concat()).assert_failed(&["with another --events-open"]);
    replay(&[]).assert_failed(&["with another --events"]);
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, &text[..=text.find('\n').unwrap()]).unwrap();
    replay(&to_log).assert_failed(&["events.ndjson", "does not hold what it did", "put back what was moved"]);
    fs::remove_file(&log).unwrap();
    replay(&to_log).assert_failed(&["events.ndjson", "does not hold what it did", "remove the state"]);
    assert!(files(&state) == before);
    // Whatever is left of it from the save point on is made whole, also a line that was cut.
    for size in [text.len(), text.len() - 1, text.len() - 50, text.rfind("{\"timestamp").unwrap()] {
        fs::write(&log, &text[..size]).unwrap();
        assert!(replay(&to_log).status.success());
        assert!(fs::read_to_string(&log).unwrap() == text, "{size}");
    }
    fs::remove_dir_all(&state).unwrap();
    replay(&["--events", "/dev/null"]).assert_failed(&["/dev/null", "cannot be read back"]);
}
