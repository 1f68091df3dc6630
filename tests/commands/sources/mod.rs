//! The sources of connections: `--sources` against exact counts of generated and real traffic, and under a flood.

mod shared;

use crate::support::captures::{START_S, block, opening, packet_body, pcapng_header};
use crate::support::command::{Ended, FLOWPEEL, command, flowpeel, replay, run as run_command, text};
use crate::support::feed::Generated;
use crate::support::oracle::{Oracle, Rules, lists_of};
use flowpeel::capture::{Packet, PacketSource, Progress, Replay};
use flowpeel::engine::{Config, Plan};
use flowpeel::error::Result;
use flowpeel::export::{self, Exporter};
use flowpeel::parse::LinkType;
use flowpeel::run::run;
use flowpeel::sources::Report;
use flowpeel_traffic::{Flood, FloodConfig, TrafficConfig};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts, answers and refusals of each source.
type Exact = BTreeMap<IpAddr, [u64; 3]>;

/// Keeps reports, and counts the lists.
#[derive(Default)]
struct Reports(Vec<Report>, u64);

impl Exporter for Reports {
    fn write(&mut self, output: export::Output) -> Result<()> {
        match output {
            export::Output::List(_) => self.1 += 1,
            export::Output::Sources(report) => self.0.push(report.clone()),
            export::Output::Snapshot(_) => {}
        }
        Ok(())
    }
}

/// The reports of a run over this source; there is one for every list.
fn reports(source: impl PacketSource, config: &Config) -> Vec<Report> {
    let mut reports = Reports::default();
    run(&Plan::new(config).unwrap(), std::iter::once(Ok(source)), &mut reports, &mut (), None).unwrap();
    assert_eq!(reports.0.len() as u64, if config.sources_max.is_some() { reports.1 } else { 0 });
    reports.0
}

fn config(every_s: u64, sources_max: u64, shards: usize) -> Config {
    let every = Some(Duration::from_secs(every_s));
    Config { every, sources_max: Some(sources_max), shards, ..Config::default() }
}

/// The exact counts of generated traffic, interval by interval.
fn exact(traffic: TrafficConfig, every_s: u64) -> Vec<Exact> {
    let rules = Rules { every_us: Some(every_s * 1_000_000), ..Rules::default() };
    lists_of(traffic, rules).into_iter().map(|list| list.sources).collect()
}

#[track_caller]
fn assert_exact(report: &Report, exact: &Exact) {
    assert!(report.complete && report.missing == 0, "{} of {} named", report.sources.len(), exact.len());
    let listed: Exact = report
        .sources
        .iter()
        .map(|source| (source.address, [source.attempts, source.answered, source.refused]))
        .collect();
    for (address, counts) in exact {
        assert_eq!(listed.get(address), Some(counts), "{address}");
    }
    assert_eq!(listed.len(), exact.len());
    let totals = [report.attempts, report.answered, report.refused];
    assert_eq!(totals, std::array::from_fn(|at| exact.values().map(|counts| counts[at]).sum::<u64>()));
    assert!(report.sources.iter().all(|source| source.attempts_max.is_none()));
}

#[test]
fn generated_sources_are_counted_exactly_whatever_the_shards() {
    let traffic = TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(2027, 40_000) };
    let first = reports(Generated::new(traffic.clone()), &config(10, 30_000, 1));
    let exact = exact(traffic.clone(), 10);
    assert_eq!(first.len(), exact.len());
    assert!(first.len() > 3 && first.iter().any(|report| report.refused > 50));
    first.iter().zip(&exact).for_each(|(report, exact)| assert_exact(report, exact));
    for shards in [2, 8] {
        assert!(reports(Generated::new(traffic.clone()), &config(10, 30_000, shards)) == first, "{shards} shards");
    }
}

/// Traffic with a scanner in it: every `every` packets a SYN to the next port.
struct Scanned {
    inner: Generated,
    packet_count: u64,
    scan: Vec<u8>,
    every: u64,
}

impl Scanned {
    /// A frame of the scan: a SYN from 198.51.100.7, padded as short frames are.
    fn frame(port: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 51, 100, 7, 203, 0, 113, 9]);
        frame.extend(40_000u16.to_be_bytes().into_iter().chain(port.to_be_bytes()));
        frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame
    }
}

impl PacketSource for Scanned {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        self.packet_count += 1;
        let number = self.packet_count / self.every;
        let is_scan = self.packet_count.is_multiple_of(self.every);
        let Some(packet) = self.inner.next_packet()? else { return Ok(None) };
        if !is_scan {
            return Ok(Some(packet));
        }
        // It takes the place of a packet, and its time.
        let time_ns = packet.time_ns;
        self.scan = Self::frame(number as u16);
        Ok(Some(Packet::whole(time_ns, LinkType::ETHERNET, &self.scan)))
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

#[test]
fn a_scanner_is_named_amid_a_flood_that_nothing_can_list() {
    let every = 1_000;
    let flood = FloodConfig::new(Flood::Unanswered);
    let source = || Scanned {
        inner: Generated::new(TrafficConfig::flooded(5, flood.clone())),
        packet_count: 0,
        scan: Vec::new(),
        every,
    };
    let flooded = |shards| {
        let mut reports = reports(source(), &config(1, 30_000, shards));
        reports.retain(|report| report.attempts > 900_000);
        reports
    };
    let first = flooded(1);
    assert!(first.len() >= 4, "a million attempts a second for five seconds");
    for report in &first {
        assert!(!report.complete, "no counter of this size lists a million");
        let total = report.missing + report.sources.len() as u64;
        assert!((900_000..1_100_000).contains(&total), "{total} sources");
        let scanner = &report.sources[0];
        assert_eq!(scanner.address, "198.51.100.7".parse::<IpAddr>().unwrap());
        let sent = 1_000;
        assert!(scanner.attempts > sent * 9 / 10 && scanner.attempts <= sent + 30, "{scanner:?}");
        let most = scanner.attempts_max.unwrap();
        assert!(most >= sent - 30 && most < 2 * sent, "{scanner:?}");
        assert!(report.sources.len() < 20_000, "what came once is not named");
    }
    assert!(flooded(8) == first, "with 8 shards");
}

/// The files of sources that a successful replay writes, in order.
fn source_files(capture: &Path, options: &[&str]) -> Vec<Vec<u8>> {
    let (output, files) = replayed(capture, options);
    assert!(output.status.success(), "{}: {}", capture.display(), output.stderr);
    files
}

/// The output of a replay, and the files of sources that it writes, in order.
fn replayed(capture: &Path, options: &[&str]) -> (Ended, Vec<Vec<u8>>) {
    let out = tempfile::tempdir().unwrap();
    let mut replay = command(FLOWPEEL, ["replay"]);
    let output = run_command(replay.arg(capture).args(options).arg("--out").arg(out.path()));
    let mut paths: Vec<PathBuf> = std::fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_sources = |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("sources-");
    let files = paths.iter().filter(is_sources).map(|path| std::fs::read(path).unwrap()).collect();
    (output, files)
}

/// The contents of a file: header and sources.
fn read_back(file: &[u8]) -> (Value, Exact) {
    let text = str::from_utf8(file).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    assert_eq!(header["event_type"], "source_list");
    let counts = lines.map(|line| {
        assert_eq!((&line["event_type"], &line["source"]["sure"]), (&"source".into(), &true.into()), "{line}");
        let count = |name: &str| line["source"][name].as_u64().unwrap();
        let counts = ["attempts", "answered", "refused"].map(count);
        assert_eq!(count("unanswered"), counts[0].saturating_sub(counts[1] + counts[2]));
        (line["src_ip"].as_str().unwrap().parse().unwrap(), counts)
    });
    let counts: Exact = counts.collect();
    assert_eq!(header["source_list"]["sources"], counts.len());
    (header, counts)
}

/// The exact counts of a capture of Ethernet frames; `None` for other captures.
fn exact_of(capture: &Path) -> Option<Exact> {
    let mut replay = Replay::open(capture).unwrap();
    let mut oracle = Oracle::new(Rules::default());
    while let Some(packet) = replay.next_packet().unwrap() {
        if packet.link != LinkType::ETHERNET {
            return None;
        }
        oracle.frame((packet.time_ns / 1_000) as u64, packet.bytes);
    }
    Some(oracle.finish().unwrap().sources)
}

#[test]
fn the_captures_of_this_project_are_counted_exactly() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let mut compared = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let capture = entry.unwrap().path();
        let name = capture.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.contains(".pcap") {
            continue;
        }
        let first = source_files(&capture, &["--sources", "--shards", "1"]);
        assert_eq!(first.len(), 1, "{name}");
        for shards in ["2", "8"] {
            assert!(source_files(&capture, &["--sources", "--shards", shards]) == first, "{name}: {shards} shards");
        }
        let (header, counts) = read_back(&first[0]);
        assert_eq!(header["source_list"]["complete"], true);
        // The oracle does not see what is in a tunnel, or under a tag of another kind.
        let is_plain = !name.starts_with("tunnel") && !name.starts_with("vlan");
        if let Some(exact) = exact_of(&capture).filter(|_| is_plain) {
            assert_eq!(counts, exact, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}");
}

#[test]
fn the_command_shows_what_a_replay_wrote() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/scan.pcap");
    let folder = tempfile::tempdir().unwrap();
    let plain = source_files(&capture, &["--sources=2k"]);
    let packed = source_files(&capture, &["--sources=2k", "--compress"]);
    let shown = [(&plain[0], "a.ndjson"), (&packed[0], "a.ndjson.zst")].map(|(bytes, name)| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = flowpeel(["sources", "--top", "3", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", output.stderr);
        text(&output.stdout)
    });
    assert_eq!(shown[0], shown[1]);
    let (header, counts) = read_back(&plain[0]);
    let (most, _) = counts.iter().max_by_key(|(_, counts)| counts[0]).unwrap();
    assert!(shown[0].contains(&format!("\n{most} ")) && header["source_list"]["attempts"].as_u64().unwrap() > 0);
    let cut = folder.path().join("cut.ndjson");
    let first_line = plain[0].iter().position(|&byte| byte == b'\n').unwrap();
    std::fs::write(&cut, &plain[0][..=first_line]).unwrap();
    let output = flowpeel(["sources", cut.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "lines are missing");
}

#[test]
fn sources_are_written_to_standard_output_or_beside_snapshots_as_well() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/scan.pcap");
    let capture = capture.to_str().unwrap();
    let files = source_files(Path::new(capture), &["--sources"]);
    let printed = replay([capture, "--sources"]);
    assert_eq!(printed.status.code(), Some(0), "{}", printed.stderr);
    assert!(printed.stdout.ends_with(&files[0]) && printed.stdout.len() > files[0].len(), "a list, then its sources");
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (out, snapshots) = (path("out"), path("snapshots"));
    let alone = replay([capture, "--sources", "--no-list", "--snapshots", &snapshots, "--out", &out]);
    assert_eq!(alone.status.code(), Some(0), "{}", alone.stderr);
    let names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    let written: Vec<_> = names.iter().filter(|path| path.extension().is_some_and(|end| end == "ndjson")).collect();
    let [file] = written[..] else { panic!("{names:?}") };
    assert!(file.file_name().unwrap().to_str().unwrap().starts_with("sources-"));
    assert!(std::fs::read(file).unwrap() == files[0]);
}

#[test]
fn a_packet_at_two_interfaces_counts_once_and_a_retransmission_again() {
    let [syn, syn_ack, _] = opening(40_000);
    let mut capture = [pcapng_header(&[]), block(1, &[1, 0, 0, 0, 0, 0, 4, 0])].concat();
    for second in [0, 1, 3] {
        for (interface, after_us) in [(0, 0), (1, 40)] {
            let ticks = (u64::from(START_S) + second) * 1_000_000 + after_us;
            capture.extend(block(6, &packet_body(interface, ticks, &syn)));
        }
    }
    for (interface, after_us) in [(1, 100), (0, 130)] {
        let ticks = (u64::from(START_S) + 3) * 1_000_000 + after_us;
        capture.extend(block(6, &packet_body(interface, ticks, &syn_ack)));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forwarded.pcapng");
    std::fs::write(&path, capture).unwrap();
    let (header, counts) = read_back(&source_files(&path, &["--sources"])[0]);
    assert_eq!((&header["source_list"]["attempts"], &header["source_list"]["answered"]), (&3.into(), &1.into()));
    assert_eq!(counts, Exact::from([(IpAddr::from([10, 0, 0, 1]), [3, 1, 0])]));
}

#[test]
fn sources_need_sensible_numbers() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/scan.pcap");
    let out = tempfile::tempdir().unwrap();
    let out = out.path().to_str().unwrap();
    for options in [&["--sources=1"][..], &["--sources=1", "--out", out], &["--sources=5M", "--out", out]] {
        let output = replay([capture.as_os_str()].into_iter().chain(options.iter().map(OsStr::new)));
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let said = output.stderr;
        assert!(said.contains("sources"), "{said}");
    }
}
