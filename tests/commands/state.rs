//! `--state`: a replay that is killed again and again writes the same lists, and a state that does not fit is refused.
//!
//! `scripts/kill-state` runs the long form of the first test.

use crate::support::captures::{PCAP_HEADER_SIZE, RECORD_HEADER_SIZE, block, packet_body, pcapng_header};
use crate::support::command::{Ended, FLOWPEEL, Running, command, flowpeel, replay};
use crate::support::progress::Progress;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many kills the long form makes, by a name that `scripts/kill-state` sets.
pub(crate) const KILLS: &str = "FLOWPEEL_KILLS";

/// The options of different kinds of replays; the first has interfaces with clocks of their own, and the second has
/// several captures, one of which breaks off, and uses other threads. OUT is where the lists go.
const OPTIONS: [&str; 4] = [
    "--every 1s --connections 20k --churn 4k --shards 2",
    "--every 2s --connections 20k --churn 4k --changes=5 --compress --shards 1",
    "--every 1s --connections 20k --churn 4k --pickup 4 --idle-timeout 15s --max-age 40s --one-way",
    "--every 1s --connections 20k --churn 4k --sources=2k --snapshots OUT/snapshots",
];

/// Captures, and a directory for the results.
struct Place {
    directory: tempfile::TempDir,
    captures: Vec<Vec<PathBuf>>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Twice as many signals as the queues hold. Otherwise the capture thread is done before the first state is
        // saved, and there is no second one.
        let generate = |seed: u32| {
            let path = directory.path().join(format!("{seed}.pcap"));
            let words = format!(
                "generate --seed {seed} --connections 20000 --duration 60s --ipv6 0.3 --out {}",
                path.display()
            );
            assert_eq!(flowpeel(words.split_whitespace()).status.code(), Some(0));
            path
        };
        let whole = [generate(1), generate(2), generate(3)];
        let cut = directory.path().join("cut.pcap");
        let bytes = fs::read(&whole[2]).unwrap();
        fs::write(&cut, &bytes[..bytes.len() / 3]).unwrap();
        let [first, second, _] = whole;
        let clocks = directory.path().join("clocks.pcapng");
        fs::write(&clocks, two_clocks(&fs::read(&first).unwrap())).unwrap();
        let captures = vec![vec![clocks], vec![first, cut, second.clone()], vec![second.clone()], vec![second]];
        Place { directory, captures }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The arguments of a replay of this kind that writes its lists here.
    fn arguments(&self, kind: usize, out: &Path) -> Vec<String> {
        let directory = out.display().to_string();
        let words = OPTIONS[kind].split_whitespace().map(|word| word.replace("OUT", &directory));
        let captures = self.captures[kind].iter().map(|path| path.display().to_string());
        words.chain(captures).chain(["--out".to_owned(), out.display().to_string()]).collect()
    }
}

/// The packets of a pcap file as those of two interfaces, whose clocks are two hours apart.
fn two_clocks(pcap: &[u8]) -> Vec<u8> {
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
    let mut bytes = [pcapng_header(&[]), interface].concat();
    let mut records = &pcap[PCAP_HEADER_SIZE..];
    while let Some((head, rest)) = records.split_at_checked(RECORD_HEADER_SIZE) {
        let word = |at: usize| u64::from(u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
        let (frame, behind) = rest.split_at(word(8) as usize);
        let interface = u32::from(frame[33] & 1);
        let ticks = (word(0) + 7_200 * u64::from(interface)) * 1_000_000 + word(4);
        bytes.extend(block(6, &packet_body(interface, ticks, frame)));
        records = behind;
    }
    bytes
}

/// The options that save the state at every end of an interval, as far as the disk keeps up.
pub(crate) fn state_in(path: &Path) -> [String; 4] {
    ["--state".to_owned(), path.display().to_string(), "--state-every".to_owned(), "1ms".to_owned()]
}

/// All files of a directory and of those in it, but for those of locks.
pub(crate) fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| !path.ends_with(flowpeel::state::LOCK_FILE));
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let last = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let files = files.iter().map(|path| (last(path), fs::read(path).unwrap()));
    let below = directories.iter().flat_map(|directory| {
        let files = self::files(directory).into_iter();
        files.map(move |(name, bytes)| (format!("{}/{name}", last(directory)), bytes))
    });
    files.chain(below).collect()
}

/// Numbers that look like chance, the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Kills this many replays, each of which goes on from where the one before was. Whenever one comes to its end, its
/// lists are those of a replay that was not killed.
fn kill(kill_count: u64, progress: &Progress) {
    let place = Place::new();
    let mut random = Random::new(kill_count + progress.before());
    let (mut killed, mut ended, mut resumed) = (0, 0, 0);
    let undisturbed: Vec<_> = (0..OPTIONS.len())
        .map(|kind| {
            let out = place.path(&format!("undisturbed-{kind}"));
            let began = Instant::now();
            let status = replay(place.arguments(kind, &out)).status.code();
            assert_eq!(status, Some(i32::from(kind == 1)), "one of them has a capture that breaks off");
            (files(&out), began.elapsed(), status)
        })
        .collect();
    let mut kind = 0;
    while killed < kill_count {
        let (expected, lasts, status) = &undisturbed[kind];
        let (out, state) = (place.path(&format!("lists-{ended}")), place.path(&format!("state-{ended}")));
        let end = loop {
            let mut command = command(FLOWPEEL, ["replay"]);
            command.args(place.arguments(kind, &out)).args(state_in(&state));
            let mut running = Running::start(&mut command);
            // Where there is a time to die at, it is anywhere from the start of the process to its end.
            std::thread::sleep(Duration::from_micros(random.below(lasts.as_micros() as u64)));
            let is_killed = killed < kill_count && running.child.try_wait().unwrap().is_none();
            if is_killed {
                running.child.kill().unwrap();
            }
            let end = running.wait();
            resumed += u64::from(end.stderr.contains("continuing from state"));
            assert!(!end.stderr.contains("damaged"), "a kill left half a state: {}", end.stderr);
            if end.status.code().is_some() {
                break end;
            }
            killed += u64::from(is_killed);
        };
        assert_eq!(end.status.code(), *status, "{}", end.stderr);
        assert!(files(&out) == *expected, "other lists after {killed} kills, options {}", OPTIONS[kind]);
        fs::remove_dir_all(&out).unwrap();
        fs::remove_dir_all(&state).unwrap();
        ended += 1;
        progress.record(killed);
        kind = (kind + 1) % OPTIONS.len();
    }
    println!(
        "{killed} kills, {resumed} starts from a saved state, {ended} replays brought to their end, all with the lists expected"
    );
    assert!(resumed > 0, "nothing was ever gone on from");
}

#[test]
fn killed_at_any_moment_it_comes_to_the_same_lists() {
    kill(20, &Progress::of_this_run());
}

#[test]
#[ignore = "takes minutes: scripts/kill-state runs it"]
fn killed_a_thousand_times_it_comes_to_the_same_lists() {
    let count: u64 = std::env::var(KILLS).unwrap().parse().unwrap();
    let progress = Progress::of_this_run();
    if count > progress.before() {
        kill(count - progress.before(), &progress);
    }
}

/// A replay of the first kind with more options.
fn first(place: &Place, state: &Path, more: &[&str]) -> Ended {
    let mut arguments = place.arguments(0, &place.path("lists"));
    arguments.extend(state_in(state));
    arguments.extend(more.iter().map(|word| (*word).to_owned()));
    replay(arguments)
}

#[test]
fn a_damaged_state_is_passed_over_and_named() {
    let place = Place::new();
    let state = place.path("state");
    assert_eq!(first(&place, &state, &[]).status.code(), Some(0));
    let expected = files(&place.path("lists"));
    let names: Vec<_> = files(&state).into_keys().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let newest = state.join(&names[1]);
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, &bytes).unwrap();
    let again = first(&place, &state, &[]);
    assert_eq!(again.status.code(), Some(0), "{}", again.stderr);
    assert!(again.stderr.contains(&format!("{}: this state is damaged, and is passed over", newest.display())));
    assert!(again.stderr.contains("continuing from state"), "{}", again.stderr);
    assert!(files(&place.path("lists")) == expected);
    for name in files(&state).into_keys() {
        fs::write(state.join(name), "nothing").unwrap();
    }
    first(&place, &state, &[]).assert_failed(&["no state in here is sound", "remove it"]);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_changes() {
    let place = Place::new();
    let state = place.path("state");
    assert_eq!(first(&place, &state, &[]).status.code(), Some(0));
    let before = files(&state);
    let lists = place.path("other-lists");
    let refused = |capture: &Path, options: &str, parts: &[&str]| {
        let mut arguments: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        arguments.extend([capture.display().to_string(), "--out".to_owned(), lists.display().to_string()]);
        arguments.extend(state_in(&state));
        replay(arguments).assert_failed(parts);
        assert!(!lists.exists() && files(&state) == before, "something has changed");
    };
    let capture = &place.captures[0][0];
    refused(capture, "--every 1s --connections 30k --churn 4k", &["with another --connections", "--state"]);
    refused(capture, "--every 2s --connections 20k --churn 4k", &["with another --every"]);
    refused(capture, "--every 1s --connections 20k --churn 4k --one-way", &["with another --one-way"]);
    let secret = place.path("secret");
    fs::write(&secret, "00112233445566778899aabbccddeeff\n").unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let options = format!("--every 1s --connections 20k --churn 4k --secret-file {}", secret.display());
    refused(capture, &options, &["with another secret"]);
    refused(&place.captures[2][0], OPTIONS[0], &["another capture was read", "name the same captures again"]);
    let held = flowpeel::state::lock(&state, "").unwrap();
    refused(capture, OPTIONS[0], &["another process keeps its state here"]);
    drop(held);
    assert_eq!(first(&place, &state, &[]).status.code(), Some(0));
}

#[test]
fn a_state_that_can_not_be_saved_is_an_error_that_is_always_said() {
    let place = Place::new();
    let state = place.path("state");
    // No file may be longer than some kilobytes, for root too, and lists go into a pipe.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let mut arguments = ["-c", script, "sh", FLOWPEEL, "replay", "-q"].map(str::to_owned).to_vec();
    arguments.extend(OPTIONS[0].split_whitespace().map(str::to_owned));
    arguments.extend(state_in(&state));
    arguments.push(place.captures[0][0].display().to_string());
    let ended = Running::start(&mut command("sh", arguments)).wait();
    ended.assert_failed(&["the state could not be saved", "cannot save the state: File too large", "none of this run"]);
    ended.assert_one_line();
    assert!(!ended.lists().is_empty(), "the run goes on");
    assert!(files(&state).is_empty(), "nothing is left of it");
}

#[test]
fn options_that_do_not_go_together_are_wrong_usage() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    for (words, part) in [
        ("replay a.pcap --state S", "--every 10s"),
        ("replay a.pcap --every 1s --state S --out S", "a directory of their own"),
        ("replay a.pcap --every 1s --state-every 1s", "--state <DIR>"),
        ("live -i lo --state S", "--secret-file"),
    ] {
        let ended = flowpeel(words.replace('S', state.to_str().unwrap()).split_whitespace());
        assert_eq!(ended.status.code(), Some(2), "{words}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{words}: {}", ended.stderr);
        assert!(!state.exists());
    }
    let ended = replay(["-", "--every", "1s", "--state", state.to_str().unwrap()]);
    ended.assert_failed(&["standard input", "can be read again"]);
    assert!(!state.exists());
}
