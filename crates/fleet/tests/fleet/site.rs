//! Routers, what they write, and the commands of the fleet.

use flowpeel::agent::{Agent, AgentConfig, AgentEvent, AgentObserver};
use flowpeel::disk::write_new_secret;
use flowpeel::engine::{Config, Snapshots};
use flowpeel::export::{Exporter, Format, Keep, Output, SnapshotDirectory};
use flowpeel::run::replay;
use flowpeel_fleet::key::FleetKey;
use flowpeel_iblt::hash::Secret;
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output as Ended, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const FLEET_KEY: [u8; 16] = [7; 16];

/// A place for routers, with the keys of the fleet.
pub(crate) struct Site(TempDir);

/// Writes snapshots and nothing else.
struct OnlySnapshots(SnapshotDirectory);

impl Exporter for OnlySnapshots {
    fn write(&mut self, output: Output) -> flowpeel::error::Result<()> {
        match output {
            Output::Snapshot(snapshot) => self.0.write(snapshot),
            _ => Ok(()),
        }
    }
}

/// Every report is one too many.
struct Strict;

impl AgentObserver for Strict {
    fn report(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Listed(..) => {}
            AgentEvent::Refused(error) | AgentEvent::Warning(error) => panic!("{error}"),
        }
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        let site = Site(tempfile::tempdir().unwrap());
        write_new_secret(&site.path("fleet.key"), FLEET_KEY).unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replays a generated capture of two minutes, with a snapshot every `every`, on a router of this name; and writes
    /// the lists that `flowpeel snapshot collect` makes of them.
    pub(crate) fn router(&self, name: &str, seed: u64, connection_count: u64, every: Duration) {
        let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(seed, connection_count) };
        let capture = self.capture(traffic);
        self.router_of(name, &capture, Config { every: Some(every), ..Config::default() });
    }

    /// Generates a capture.
    pub(crate) fn capture(&self, traffic: TrafficConfig) -> PathBuf {
        let capture = self.path("capture.pcap");
        write_pcap(&mut Traffic::new(traffic).unwrap(), &mut BufWriter::new(File::create(&capture).unwrap())).unwrap();
        capture
    }

    /// Replays a capture on a router of this name, as [`Self::router`] does.
    pub(crate) fn router_of(&self, name: &str, capture: &Path, config: Config) {
        let config = Config {
            churn: Some(5_000),
            snapshots: Some(Snapshots { router: name.to_owned(), run: 1, replace_lists: false }),
            secret: Secret::REPLAY,
            ..config
        };
        let directory = SnapshotDirectory::new(self.made(name), Secret::REPLAY, Keep::default()).unwrap();
        replay(&[capture.to_path_buf()], &config, &mut OnlySnapshots(directory), &mut ()).unwrap();
        let lists = self.path("expected").join(name);
        fs::create_dir_all(&lists).unwrap();
        let (snapshots, format, keep) = (self.made(name), Format::default(), Keep::default());
        Agent::new(&AgentConfig { snapshots, lists, secret: Secret::REPLAY, format, keep, part: None, base: None })
            .unwrap()
            .once(&mut Strict)
            .unwrap();
        fs::create_dir_all(self.spool(name)).unwrap();
        let key = FleetKey::new(Secret::new(FLEET_KEY)).bytes_of_router(name);
        write_new_secret(&self.path(&format!("{name}.key")), key).unwrap();
    }

    /// The key of a router.
    pub(crate) fn router_key(&self, router: &str) -> Secret {
        Secret::new(FleetKey::new(Secret::new(FLEET_KEY)).bytes_of_router(router))
    }

    /// Where the snapshots of a router are made.
    pub(crate) fn made(&self, router: &str) -> PathBuf {
        self.path("made").join(router)
    }

    /// The directory that is shipped.
    pub(crate) fn spool(&self, router: &str) -> PathBuf {
        self.path("spool").join(router)
    }

    /// The names of a router's snapshots, in order.
    pub(crate) fn snapshots(&self, router: &str) -> Vec<String> {
        names(&self.made(router)).into_iter().filter(|name| name.starts_with("snapshot-")).collect()
    }

    /// Puts a snapshot into the directory that is shipped, as a live capture does.
    pub(crate) fn put(&self, router: &str, name: &str) {
        let temporary = self.spool(router).join(".new");
        fs::copy(self.made(router).join(name), &temporary).unwrap();
        fs::rename(temporary, self.spool(router).join(name)).unwrap();
    }

    pub(crate) fn put_all(&self, router: &str) {
        self.snapshots(router).iter().for_each(|name| self.put(router, name));
    }

    /// `flowpeel-fleet ship` of a router.
    pub(crate) fn ship(&self, router: &str, url: &str, options: &[&str]) -> Command {
        let mut command = fleet("ship");
        command.arg("--spool").arg(self.spool(router)).arg("--router-key").arg(self.path(&format!("{router}.key")));
        command.args(["--nats", url]).args(options);
        command
    }

    /// `flowpeel-fleet collect` into `out`.
    pub(crate) fn collect(&self, out: &str, url: &str, options: &[&str]) -> Command {
        let mut command = fleet("collect");
        command.arg("--out").arg(self.path(out)).arg("--fleet-key").arg(self.path("fleet.key"));
        command.args(["--nats", url, "--stream-mib", "64"]).args(options);
        command
    }

    /// Compares the lists of a router in `out` with those of `flowpeel snapshot collect`.
    pub(crate) fn assert_lists(&self, out: &str, router: &str) {
        let (expected, found) = (self.path("expected").join(router), self.path(out).join(router));
        let lists = |directory: &Path| {
            names(directory).into_iter().filter(|name| name.ends_with(".ndjson")).collect::<Vec<String>>()
        };
        assert_eq!(lists(&found), lists(&expected));
        assert!(lists(&found).len() > 3);
        for name in lists(&expected) {
            let [expected, found] = [&expected, &found].map(|directory| fs::read(directory.join(&name)).unwrap());
            assert!(expected == found, "{router}: {name} differs");
        }
    }

    /// The lists of a router in a directory, by the names of their files.
    pub(crate) fn lists(&self, out: &str, router: &str) -> BTreeSet<String> {
        let directory = self.path(out).join(router);
        let all = if directory.is_dir() { names(&directory) } else { Vec::new() };
        all.into_iter().filter(|name| name.ends_with(".ndjson")).collect()
    }

    /// Asserts that the lists of a router in these directories, of one collector after another, are all those in
    /// `expected`, byte for byte, and that the last has all behind its first. Returns how many the last has.
    pub(crate) fn assert_goes_on(&self, outs: &[&str], router: &str, expected: &str) -> usize {
        let all = self.lists(expected, router);
        let found: Vec<BTreeSet<String>> = outs.iter().map(|out| self.lists(out, router)).collect();
        assert_eq!(found.iter().flatten().cloned().collect::<BTreeSet<_>>(), all, "{router}");
        for (out, names) in outs.iter().zip(&found) {
            for name in names {
                let [expected, found] =
                    [expected, out].map(|place| fs::read(self.path(place).join(router).join(name)).unwrap());
                assert!(expected == found, "{router}: {name} of {out} differs");
            }
        }
        let last = found.last().unwrap();
        assert!(all.range(last.first().unwrap().clone()..).all(|name| last.contains(name)), "{router} has a gap");
        last.len()
    }
}

/// A command of the fleet.
pub(crate) fn fleet(command: &str) -> Command {
    let mut fleet = Command::new(env!("CARGO_BIN_EXE_flowpeel-fleet"));
    fleet.arg(command).stdin(Stdio::null());
    fleet
}

/// The names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// How long what is waited for may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command to its end. Returns its status and what it said.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String) {
    let Ended { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Runs a command that must do all it was asked for. Returns what it said.
pub(crate) fn done(command: &mut Command) -> String {
    let (status, said) = run(command);
    assert_eq!(status, Some(0), "{said}");
    said
}

/// A command in the background. It ends with this, by SIGKILL.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Running(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Starts it, and waits for the first line that it says.
    pub(crate) fn with_first_line(command: &mut Command) -> (Self, String) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = child.stderr.take().unwrap();
        let running = Running(child);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).unwrap();
        (running, line)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
