//! `--events`: the lines of generated and real traffic against an independent state table; files and sockets.

mod killed;

use crate::support::captures::{pcap_header, record_header};
use crate::support::command::{Ended, FLOWPEEL, Running, command, flowpeel, has, lists, replay, run};
use crate::support::files::names;
use crate::support::oracle::{Ended as OracleEnded, Oracle, Rules, frames_of_pcap, segment};
use crate::support::say::skipped;
use flowpeel_traffic::is_client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const EVERY_US: u64 = 10_000_000;

/// A generated capture that ends in the middle of its connections.
fn capture(place: &TempDir, connections: &str) -> PathBuf {
    let path = place.path().join("whole.pcap");
    let words = ["generate", "--seed", "2501", "--connections", connections, "--ipv6", "0.3", "--out"];
    let made = flowpeel(words.iter().map(|word| word.as_ref()).chain([path.as_os_str()]));
    assert!(made.status.success(), "{}", made.stderr);
    path
}

/// Replays a capture with these options, and asserts that it worked.
fn replayed(path: &Path, options: &[&str]) -> Ended {
    let ended = replay(["-q", path.to_str().unwrap(), "--every", "10s"].iter().chain(options));
    assert!(ended.status.success(), "{}", ended.stderr);
    ended
}

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn time_us(value: &Value) -> u64 {
    let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
    time.as_microsecond() as u64
}

/// The ends of a connection, client first.
fn ends(line: &Value) -> [SocketAddr; 2] {
    ["src", "dest"].map(|side| {
        let ip = line[format!("{side}_ip")].as_str().unwrap().parse().unwrap();
        SocketAddr::new(ip, line[format!("{side}_port")].as_u64().unwrap() as u16)
    })
}

/// What distinguishes a connection from all others: its ends and when it started.
type Known = ([SocketAddr; 2], u64);

fn known(line: &Value) -> Known {
    (ends(line), time_us(&line["flow"]["start"]))
}

/// A connection that has ended, as the oracle has it.
fn ended(line: &Value) -> OracleEnded {
    let ([client, server], start_us) = known(line);
    let reasons = ["fin", "rst", "replaced"];
    let reason = reasons.iter().find(|reason| line["flow"]["reason"] == **reason);
    let reason = reason.unwrap_or_else(|| panic!("{line}"));
    OracleEnded { client, server, start_us, end_us: time_us(&line["flow"]["end"]), reason }
}

/// Asserts that events are numbered, that a connection opens before it closes and does each once, that openings and
/// closings so far make the list of every interval, and that what has ended is what the oracle says.
fn assert_events(capture: &Path, events: &[Value], listed: &[u8], rules: Rules) {
    let bytes = fs::read(capture).unwrap();
    let mut oracle = Oracle::new(Rules { every_us: Some(EVERY_US), ..rules });
    let mut exact_ended = Vec::new();
    for (time_us, frame) in frames_of_pcap(&bytes) {
        oracle.frame(time_us, frame);
        exact_ended.extend(oracle.take_ended());
    }
    exact_ended.sort();
    let of = |change: &'static str| events.iter().filter(move |event| event["change"] == change);
    let mut all_ended: Vec<_> = of("closed").map(ended).collect();
    all_ended.sort();
    assert_eq!(all_ended.len(), exact_ended.len());
    for (event, exact) in all_ended.iter().zip(&exact_ended) {
        assert_eq!(event, exact);
    }
    let mut open = BTreeMap::<Known, u64>::new();
    let mut next = 0;
    let mut take_until = |end_us: u64, open: &mut BTreeMap<Known, u64>| {
        while let Some(event) = events.get(next)
            && time_us(&event["timestamp"]) < end_us
            && event["change"] != "unfinished"
        {
            next += 1;
            assert_eq!(event["seq"], next);
            let is_new = match event["change"].as_str().unwrap() {
                "opened" => open.insert(known(event), event["flow_id"].as_u64().unwrap()).is_none(),
                "closed" => open.remove(&known(event)) == event["flow_id"].as_u64(),
                other => panic!("{other}"),
            };
            assert!(is_new, "{event}");
        }
        next
    };
    for list in lists(listed) {
        let end_us = time_us(&list.header["flow_list"]["end"]);
        // The last list ends with the capture, between two ticks.
        if end_us.is_multiple_of(EVERY_US) {
            take_until(end_us, &mut open);
            let is_established = |line: &&Value| line["flow"]["state"] == "established";
            let rows: BTreeSet<_> = list.flows.iter().filter(is_established).map(known).collect();
            assert!(rows == open.keys().copied().collect(), "the list of {end_us}");
        }
    }
    let next = take_until(u64::MAX, &mut open);
    let unfinished: BTreeMap<_, _> =
        events[next..].iter().map(|event| (known(event), event["flow_id"].as_u64().unwrap())).collect();
    assert_eq!(unfinished, open, "what is open at the end of the input");
}

#[test]
fn events_of_generated_traffic_are_those_of_an_exact_table_whatever_the_shards() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "20k");
    let mut texts = Vec::new();
    for shards in ["1", "3"] {
        let log = place.path().join(format!("{shards}.ndjson"));
        let options = ["--events-open", "--shards", shards, "--events", log.to_str().unwrap()];
        let listed = replayed(&path, &options).stdout;
        texts.push((fs::read_to_string(&log).unwrap(), listed));
    }
    assert!(texts[0] == texts[1]);
    let (text, listed) = &texts[0];
    assert_events(&path, &parsed(text), listed, Rules::default());
}

#[test]
#[ignore = "takes a minute: cargo test --test commands events_of_four -- --ignored --nocapture"]
fn events_of_four_hundred_thousand_connections_are_those_of_an_exact_table() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "400k");
    let log = place.path().join("log.ndjson");
    let listed = replayed(&path, &["--events-open", "--events", log.to_str().unwrap()]).stdout;
    let events = parsed(&fs::read_to_string(&log).unwrap());
    assert_events(&path, &events, &listed, Rules::default());
    let of = |change: &str| events.iter().filter(|event| event["change"] == change).count();
    let [opened, closed, unfinished] = ["opened", "closed", "unfinished"].map(of);
    println!("{opened} opened, {closed} closed, {unfinished} unfinished: none missing, double or wrong");
}

/// What is in a capture of the packets from clients, or from servers.
fn one_way(capture: &[u8], from_clients: bool) -> Vec<u8> {
    let mut kept = pcap_header(65_535);
    for (time_us, frame) in frames_of_pcap(capture) {
        if segment(frame).is_some_and(|segment| is_client(segment.src.ip()) == from_clients) {
            let mut header = record_header((time_us / 1_000_000) as u32, frame.len() as u32);
            header[4..8].copy_from_slice(&((time_us % 1_000_000) as u32).to_le_bytes());
            kept.extend(header);
            kept.extend(frame);
        }
    }
    kept
}

#[test]
fn a_closed_connection_says_which_sides_were_seen() {
    let place = tempfile::tempdir().unwrap();
    let whole = capture(&place, "2k");
    let bytes = fs::read(&whole).unwrap();
    let [clients, servers] = [("clients.pcap", true), ("servers.pcap", false)].map(|(name, from_clients)| {
        let path = place.path().join(name);
        fs::write(&path, one_way(&bytes, from_clients)).unwrap();
        path
    });
    for (path, options, seen) in [
        (&whole, &[][..], "both"),
        (&whole, &["--pickup", "4"], "both"),
        (&clients, &["--one-way"], "client"),
        (&servers, &["--one-way"], "server"),
    ] {
        let log = place.path().join(format!("{seen}{}.ndjson", options.len()));
        replayed(path, &[options, &["--events-open", "--events", log.to_str().unwrap()]].concat());
        let events = parsed(&fs::read_to_string(&log).unwrap());
        let mut closed_count = 0;
        for event in &events {
            let is_closed = event["change"] == "closed";
            let expected =
                if is_closed && event["flow"]["midstream"] != true { Value::from(seen) } else { Value::Null };
            assert_eq!(event["flow"]["seen"], expected, "{event}");
            closed_count += u64::from(is_closed);
        }
        assert!(closed_count > 500, "{closed_count} closed");
    }
}

#[test]
fn closings_alone_are_the_same_events_without_the_openings() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "2k");
    let [all, closings] = [&["--events-open"][..], &[]].map(|options| {
        let log = place.path().join(format!("{}.ndjson", options.len()));
        replayed(&path, &[options, &["--events", log.to_str().unwrap()]].concat());
        parsed(&fs::read_to_string(&log).unwrap())
    });
    let without_number = |event: &Value| {
        let mut event = event.clone();
        event["seq"].take();
        event
    };
    let expected: Vec<_> = all.iter().filter(|event| event["change"] != "opened").map(without_number).collect();
    assert_eq!(closings.iter().map(without_number).collect::<Vec<_>>(), expected);
    assert_eq!(closings.last().unwrap()["seq"], closings.len());
}

#[test]
fn lines_of_eve_are_valid_under_suricatas_schema() {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/schemas/eve-schema.json");
    if !schema.is_file() {
        return skipped(
            "Suricata's schema is not here; its rules for lines of flows are restated in src/export/eve.rs",
        );
    }
    let has_validator = run(&mut command("python3", ["-c", "import jsonschema"])).status.success();
    if !has_validator {
        return skipped("python3 has no jsonschema");
    }
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("eve.json");
    let to_log = format!("eve:{}", log.display());
    let mut text = Vec::new();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    for name in names(&captures).iter().filter(|name| name.contains(".pcap")) {
        let path = captures.join(name);
        for options in [&[][..], &["--vlan-key", "--pickup", "1"]] {
            let to_both = ["--format", "eve", "--events-open", "--events", to_log.as_str()];
            text.extend(replayed(&path, &[&to_both[..], options].concat()).stdout);
        }
    }
    text.extend(fs::read(&log).unwrap());
    fs::write(&log, text).unwrap();
    let check = r#"
import json, sys, jsonschema
validator = jsonschema.Draft202012Validator(json.load(open(sys.argv[1])))
count = 0
for line in open(sys.argv[2]):
    event = json.loads(line)
    if event["event_type"] == "flow":
        validator.validate(event)
        count += 1
print(count)"#;
    let checked = run(&mut command("python3", ["-c", check, schema.to_str().unwrap(), log.to_str().unwrap()]));
    assert!(checked.status.success(), "{}", checked.stderr);
    let count: u64 = String::from_utf8(checked.stdout).unwrap().trim().parse().unwrap();
    assert!(count > 100, "{count} lines");
}

#[test]
fn a_file_grows_and_is_continued_under_another_name() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "3k");
    let logs = place.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let log = logs.join("events.ndjson");
    let to_log = log.to_str().unwrap();
    replayed(&path, &["--events", to_log]);
    let whole = fs::read_to_string(&log).unwrap();
    // What a killed run left of a line is a line of its own.
    fs::write(&log, "{\"cut").unwrap();
    replayed(&path, &["--events", to_log]);
    assert!(fs::read_to_string(&log).unwrap() == format!("{{\"cut\n{whole}"));
    fs::remove_file(&log).unwrap();

    replayed(&path, &["--events", to_log, "--events-rotate", "1MiB", "--events-rotate", "30s"]);
    let parts = names(&logs);
    assert!(parts.len() >= 4 && parts.contains(&"events.ndjson".to_owned()), "{parts:?}");
    let mut text = String::new();
    for part in parts.iter().filter(|name| *name != "events.ndjson") {
        let lines = fs::read_to_string(logs.join(part)).unwrap();
        let times: BTreeSet<_> = parsed(&lines).iter().map(|line| time_us(&line["timestamp"]) / 30_000_000).collect();
        assert!(times.len() == 1, "{part} is of {times:?}");
        text += &lines;
    }
    assert!(text + &fs::read_to_string(&log).unwrap() == whole);
}

#[test]
fn sockets_and_standard_output_take_the_lines_of_the_file() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "3k");
    let [log, stream, datagrams, syslog, lists] =
        ["log", "stream", "datagrams", "syslog", "lists"].map(|name| place.path().join(name));
    let listener = UnixListener::bind(&stream).unwrap();
    let received = std::thread::spawn(move || {
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        text
    });
    let receivers = [&datagrams, &syslog].map(|path| {
        let socket = UnixDatagram::bind(path).unwrap();
        std::thread::spawn(move || {
            let (mut lines, mut buffer) = (Vec::new(), [0; 4096]);
            loop {
                let size = socket.recv(&mut buffer).unwrap();
                let line = String::from_utf8(buffer[..size].to_vec()).unwrap();
                if line == "end" {
                    return lines;
                }
                lines.push(line);
            }
        })
    });
    let destinations = [
        format!("{}", log.display()),
        format!("unix:{}", stream.display()),
        format!("unixgram:{}", datagrams.display()),
        format!("syslog:{}", syslog.display()),
        "-".to_owned(),
    ];
    let mut options = vec!["--out", lists.to_str().unwrap()];
    destinations.iter().for_each(|destination| options.extend(["--events", destination]));
    let printed = replayed(&path, &options).stdout;
    let whole = fs::read_to_string(&log).unwrap();
    assert!(String::from_utf8(printed).unwrap() == whole);
    assert!(received.join().unwrap() == whole);
    let end = UnixDatagram::unbound().unwrap();
    for path in [&datagrams, &syslog] {
        end.send_to(b"end", path).unwrap();
    }
    let [datagrams, syslog] = receivers.map(|receiver| receiver.join().unwrap());
    assert_eq!(datagrams, whole.lines().collect::<Vec<_>>());
    assert!(syslog.len() == datagrams.len() && syslog.len() > 1_000);
    let (head, line) = syslog[0].split_once(" - - ").unwrap();
    assert!(head.starts_with("<134>1 2026-01-01T00:00:0") && head.contains(" - flowpeel "), "{head}");
    assert_eq!(line, whole.lines().next().unwrap());
}

#[test]
fn what_a_destination_did_not_take_is_counted() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "2k");
    let [log, gone] = ["log", "gone"].map(|name| place.path().join(name));
    let to_gone = format!("unix:{}", gone.display());
    let ended = replay(["-q", path.to_str().unwrap(), "--events", log.to_str().unwrap(), "--events", &to_gone]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let ended = replay([path.to_str().unwrap(), "--events", &to_gone]);
    let count = fs::read_to_string(&log).unwrap().lines().count();
    assert!(count > 1_000);
    let grouped = format!("{},{:03} events were lost, 0 written", count / 1_000, count % 1_000);
    assert!(ended.stderr.contains(&grouped), "{grouped}: {}", ended.stderr);
    assert!(ended.stderr.contains("gone: cannot write events"), "{}", ended.stderr);
    // Nobody listens there: messages of many records are lost, and each record is counted.
    let ended = replay([path.to_str().unwrap(), "--events", "ipfix:tcp:127.0.0.1:1"]);
    assert!(ended.stderr.contains(&grouped), "{grouped}: {}", ended.stderr);
    // A full device takes nothing, and the lists are written all the same.
    if Path::new("/dev/full").exists() {
        let ended = replay([path.to_str().unwrap(), "--events", "/dev/full"]);
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.stderr.contains("0 written") && ended.stderr.contains("/dev/full"), "{}", ended.stderr);
        assert_eq!(ended.lists().len(), 1);
    }
}

#[test]
fn a_receiver_that_goes_away_finds_what_is_repeated_by_its_number() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "20k");
    let [log, stream] = ["log", "stream"].map(|name| place.path().join(name));
    let listener = UnixListener::bind(&stream).unwrap();
    let mut program = command(FLOWPEEL, ["replay", "-q"]);
    program.arg(&path).arg("--events").arg(&log).arg("--events").arg(format!("unix:{}", stream.display()));
    let running = Running::start(program.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut first = BufReader::new(listener.accept().unwrap().0);
    let mut numbers = Vec::new();
    let number = |line: &str| serde_json::from_str::<Value>(line).ok().and_then(|line| line["seq"].as_u64());
    for _ in 0..1_000 {
        let mut line = String::new();
        first.read_line(&mut line).unwrap();
        numbers.extend(number(&line));
    }
    drop(first);
    let mut rest = String::new();
    listener.accept().unwrap().0.read_to_string(&mut rest).unwrap();
    running.wait();
    let whole = fs::read_to_string(&log).unwrap().lines().count() as u64;
    let lines = parsed(&rest);
    let again = lines[0]["seq"].as_u64().unwrap();
    assert!(lines.iter().zip(again..).all(|(line, number)| line["seq"] == number), "no gap after the break");
    assert_eq!(lines.last().unwrap()["seq"], whole);
    assert_eq!(numbers, (1..=1_000).collect::<Vec<_>>());
}

/// A program that collects, which is ended in order however a test ends, with the processes that it has started.
struct Collector(Child);

impl Collector {
    fn start(program: &str, words: &[&str]) -> Self {
        let mut command = command(program, words);
        Collector(command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let mut signals = ["-TERM", "-INT", "-KILL"].iter();
        while self.0.try_wait().is_ok_and(|status| status.is_none())
            && let Some(signal) = signals.next()
        {
            drop(Command::new("kill").args([signal, "--", &group]).status());
            for _ in 0..20 {
                if self.0.try_wait().is_ok_and(|status| status.is_some()) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Waits until somebody listens at this UDP port of loopback.
fn until_listening(port: u16) {
    let own = format!(":{port:04X}");
    for _ in 0..600 {
        let sockets = fs::read_to_string("/proc/net/udp").unwrap();
        if sockets.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&own))) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nobody listens at {port}");
}

/// Replays a capture of some connections to a collector again and again, until `shows` says that they came out of it:
/// it may listen long before the process is ready that writes. Returns their events.
fn until_collecting(to_collector: &str, place: &TempDir, shows: impl Fn() -> bool) -> Vec<Value> {
    let log = place.path().join("probe.ndjson");
    for _ in 0..60 {
        drop(fs::remove_file(&log));
        let words = ["-q", "pcaps/web.pcap", "--events", log.to_str().unwrap(), "--events", to_collector];
        assert!(replay(words).status.success());
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(100));
            if shows() {
                return parsed(&fs::read_to_string(&log).unwrap());
            }
        }
    }
    panic!("nothing comes out of the collector");
}

/// A port of loopback that is free.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Ends, start and duration in ms of the connections that have ended, sorted.
fn flows_of(events: &[Value]) -> Vec<(String, String, u64, u64)> {
    let of = |event: &Value| {
        let [client, server] = ends(event);
        let start_ms = time_us(&event["flow"]["start"]) / 1_000;
        let end_ms = time_us(&event["timestamp"]) / 1_000;
        (client.to_string(), server.to_string(), start_ms, end_ms - start_ms)
    };
    let mut flows: Vec<_> = events.iter().map(of).collect();
    flows.sort();
    flows
}

/// Asserts that both are the same. They are long: the first difference says more than both.
#[track_caller]
fn assert_same<T: PartialEq + std::fmt::Debug>(collected: &[T], expected: &[T]) {
    for (collected, expected) in collected.iter().zip(expected) {
        assert_eq!(collected, expected);
    }
    assert_eq!(collected.len(), expected.len());
}

#[test]
fn nfcapd_has_the_connections_that_ended() {
    if !has("nfcapd") || !has("nfdump") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "3k");
    let (log, flows) = (place.path().join("log"), place.path().join("flows"));
    fs::create_dir(&flows).unwrap();
    let port = free_port();
    // Its buffer takes the whole: nothing of a replay is paced.
    let words = ["-b", "127.0.0.1", "-p", &port.to_string(), "-B", "8000000", "-w", flows.to_str().unwrap()];
    let collector = Collector::start("nfcapd", &words);
    until_listening(port);
    let to_collector = format!("ipfix:udp:127.0.0.1:{port}");
    replayed(&path, &["--events", log.to_str().unwrap(), "--events", &to_collector]);
    std::thread::sleep(Duration::from_secs(1));
    drop(collector);
    let file = names(&flows).into_iter().find(|name| name.starts_with("nfcapd.2")).unwrap();
    let format = "fmt:%sa|%sp|%da|%dp|%ts|%td";
    let read =
        run(command("nfdump", ["-r", flows.join(file).to_str().unwrap(), "-q", "-6", "-o", format]).env("TZ", "UTC"));
    assert!(read.status.success(), "{}", read.stderr);
    let text = String::from_utf8(read.stdout).unwrap();
    let of = |line: &str| {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let [client, server] =
            [0, 2].map(|at| SocketAddr::new(fields[at].parse().unwrap(), fields[at + 1].parse().unwrap()).to_string());
        let start: jiff::Timestamp = format!("{}Z", fields[4].replace(' ', "T")).parse().unwrap();
        let seconds = fields[5].split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap());
        (client, server, start.as_millisecond() as u64, (seconds * 1_000.0).round() as u64)
    };
    let mut collected: Vec<_> = text.lines().filter(|line| line.contains('|')).map(of).collect();
    collected.sort();
    let expected = flows_of(&parsed(&fs::read_to_string(&log).unwrap()));
    assert_same(&collected, &expected);
}

#[test]
fn nfacctd_has_the_connections_that_ended() {
    if !has("nfacctd") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place, "1k");
    let [log, config, output] = ["log", "nfacctd.conf", "out.json"].map(|name| place.path().join(name));
    let port = free_port();
    let settings = [
        "daemonize: false".to_owned(),
        "nfacctd_ip: 127.0.0.1".to_owned(),
        format!("nfacctd_port: {port}"),
        "plugins: print".to_owned(),
        "aggregate: src_host, dst_host, src_port, dst_port, proto, timestamp_start, timestamp_end".to_owned(),
        "timestamps_since_epoch: true".to_owned(),
        "print_output: json".to_owned(),
        format!("print_output_file: {}", output.display()),
        "print_refresh_time: 2".to_owned(),
        "nfacctd_pipe_size: 8000000".to_owned(),
        "print_output_file_append: true".to_owned(),
    ];
    fs::write(&config, settings.join("\n") + "\n").unwrap();
    let words = ["-f", config.to_str().unwrap()];
    let _collector = Collector::start("nfacctd", &words);
    until_listening(port);
    let to_collector = format!("ipfix:udp:127.0.0.1:{port}");
    let printed = || fs::read_to_string(&output).unwrap_or_default();
    let probes = flows_of(&until_collecting(&to_collector, &place, || printed().ends_with('\n')));
    replayed(&path, &["--events", log.to_str().unwrap(), "--events", &to_collector]);
    let expected = flows_of(&parsed(&fs::read_to_string(&log).unwrap()));
    let of = |flow: &Value| {
        let [client, server] = ["src", "dst"].map(|side| {
            let ip = flow[format!("ip_{side}")].as_str().unwrap().parse().unwrap();
            SocketAddr::new(ip, flow[format!("port_{side}")].as_u64().unwrap() as u16).to_string()
        });
        let ms = |name: &str| (flow[name].as_str().unwrap().parse::<f64>().unwrap() * 1_000.0).round() as u64;
        (client, server, ms("timestamp_start"), ms("timestamp_end") - ms("timestamp_start"))
    };
    let mut collected = Vec::new();
    for _ in 0..600 {
        std::thread::sleep(Duration::from_millis(100));
        let text = printed();
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        collected = parsed(whole).iter().map(of).filter(|flow| !probes.contains(flow)).collect();
        if collected.len() >= expected.len() {
            break;
        }
    }
    collected.sort();
    assert_same(&collected, &expected);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log").to_str().unwrap().to_owned();
    for (options, part) in [
        (&["--events", "-"][..], "give lists a directory"),
        (&["--events", ""], "name a file"),
        (&["--events", "parquet:"], "name a directory"),
        (&["--events", "ipfix:udp:collector"], "ipfix:udp:HOST:PORT"),
        (&["--events", &log, "--events", &format!("eve:{log}")], "write to one place"),
        (&["--events-open"], "--events <DEST>"),
        (&["--events", &log, "--events-rotate", "1d", "--events-rotate", "2d"], "--events-rotate takes one age"),
    ] {
        let refused = replay(["pcaps/web.pcap"].iter().chain(options));
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(part), "{options:?}: {}", refused.stderr);
    }
    assert!(!Path::new(&log).exists());
}
