//! The events of a router beside those of its kernel's connection tracking: the same connections open and end, about
//! the same time; and if the capture is killed and continues, each once, or in a time of which the log says that events
//! are missing.

use crate::conntrack::{rules, track};
use crate::lab::{Host, Lab, has, routed, run};
use crate::process::{Process, until};
use crate::watch::Watch;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Takes connections on port 7000, and ends each when its client does.
const SERVER: &str = "
import asyncio
async def serve(reader, writer):
    try: await reader.read()
    except OSError: pass
    writer.close()
async def main():
    await (await asyncio.start_server(serve, '0.0.0.0', 7000, backlog=1000)).serve_forever()
asyncio.run(main())";

/// Opens so many connections that live from 20 ms to so many seconds, short ones as often as long ones by the order of
/// magnitude, each from a port of its own; one in four ends with a RST.
const CLIENT: &str = "
import asyncio, random, socket, struct, sys
count, longest = int(sys.argv[1]), float(sys.argv[2])
random.seed(25)
async def one(number):
    life = 0.02 * (longest / 0.02) ** random.random()
    await asyncio.sleep(random.random() * longest)
    reader, writer = await asyncio.open_connection('10.0.2.1', 7000, local_addr=('10.0.1.1', 10000 + number))
    await asyncio.sleep(life)
    if number % 4 == 0:
        socket_of = writer.get_extra_info('socket')
        socket_of.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    writer.close()
async def main():
    await asyncio.gather(*(one(number) for number in range(count)))
asyncio.run(main())";

type Ends = [SocketAddr; 2];

/// When each connection opened and ended, in microseconds since 1970.
#[derive(Debug, Default)]
struct Times {
    opened: BTreeMap<Ends, i64>,
    /// When the first of its sides ended, by the kernel alone.
    half_closed: BTreeMap<Ends, i64>,
    ended: BTreeMap<Ends, i64>,
}

/// What the kernel says: a connection is open once both sides have answered, and has ended with the FIN of the second
/// side, or a RST.
fn of_kernel(text: &str) -> Times {
    let mut times = Times::default();
    for line in text.lines() {
        let stamp = line.strip_prefix('[').and_then(|line| line.split_once(']')).unwrap().0;
        let (seconds, us) = stamp.split_once('.').unwrap();
        let time_us = seconds.trim().parse::<i64>().unwrap() * 1_000_000 + us.trim().parse::<i64>().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).unwrap();
        let end =
            |address: &str, port: &str| SocketAddr::new(value(address).parse().unwrap(), value(port).parse().unwrap());
        let ends = [end("src=", "sport="), end("dst=", "dport=")];
        if words.contains(&"ESTABLISHED") {
            times.opened.entry(ends).or_insert(time_us);
        } else if words.contains(&"FIN_WAIT") {
            times.half_closed.entry(ends).or_insert(time_us);
        } else if ["LAST_ACK", "TIME_WAIT", "CLOSE"].iter().any(|state| words.contains(state)) {
            times.ended.entry(ends).or_insert(time_us);
        }
    }
    times
}

/// What the log says.
fn of_log(text: &str) -> Times {
    let mut times = Times::default();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let time: jiff::Timestamp = event["timestamp"].as_str().unwrap().parse().unwrap();
        let ends = ["src", "dest"].map(|side| {
            let ip = event[format!("{side}_ip")].as_str().unwrap().parse().unwrap();
            SocketAddr::new(ip, event[format!("{side}_port")].as_u64().unwrap() as u16)
        });
        let of = match event["change"].as_str().unwrap() {
            "opened" => &mut times.opened,
            "closed" => &mut times.ended,
            other => panic!("{other}"),
        };
        assert!(of.insert(ends, time.as_microsecond()).is_none(), "twice: {event}");
    }
    times
}

/// The greatest difference of two times of one connection, in ms. Both have the same connections.
fn greatest_difference_ms(kernel: &BTreeMap<Ends, i64>, log: &BTreeMap<Ends, i64>) -> i64 {
    let ends = |times: &BTreeMap<Ends, i64>| times.keys().copied().collect::<BTreeSet<_>>();
    assert_eq!(ends(kernel), ends(log));
    kernel.iter().map(|(ends, time_us)| (time_us - log[ends]).abs()).max().unwrap_or(0) / 1_000
}

fn python(host: &Host, lab: &Lab, name: &str, program: &str) -> Process {
    Process::start(host.command("python3", ["-c", program]), &lab.path(name))
}

/// Holds the events of so many connections that live up to so many seconds against the kernel's.
fn compare(count: usize, longest_s: &str) {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack")) else { return };
    let (a, router, b) = routed(&lab);
    track(&router);
    let mut server = python(&b, &lab, "server", SERVER);
    until(|| "nobody listens".to_owned(), || b.run("ss -ltn").contains(":7000").then_some(()));
    let events = ["-E", "-p", "tcp", "-o", "timestamp", "-b", "8388608"];
    let mut kernel = Process::start(router.command("conntrack", events), &lab.path("kernel"));
    until(|| "conntrack does not begin".to_owned(), || kernel.said().contains("buffer").then_some(()));
    let log = lab.path("events.ndjson");
    let options = format!("-i to-a --every 1s --connections 10k --events-open --events {}", log.display());
    let watch = Watch::start(&lab, &router, "lists", &options);
    run(a.command("python3", ["-c", CLIENT, &count.to_string(), longest_s]));
    let read = || (of_kernel(&String::from_utf8_lossy(&kernel.printed())), fs::read_to_string(&log).unwrap());
    until(|| "not all have ended".to_owned(), || (read().0.ended.len() == count).then_some(()));
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let (exact, text) = read();
    [&mut kernel, &mut server].iter_mut().for_each(|process| process.signal("-INT"));
    let found = of_log(&text);
    assert_eq!((exact.opened.len(), exact.ended.len()), (count, count));
    let opened_ms = greatest_difference_ms(&exact.opened, &found.opened);
    let ended_ms = greatest_difference_ms(&exact.ended, &found.ended);
    println!("{count} connections: times differ by {opened_ms} ms at openings and {ended_ms} ms at ends, at most");
}

#[test]
fn a_translated_connection_has_each_event_once_with_its_other_name() {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack")) else { return };
    let (a, router, b) = routed(&lab);
    track(&router);
    rules(
        &router,
        "add table ip nat
         add chain ip nat post { type nat hook postrouting priority 100 ; }
         add rule ip nat post oifname to-b masquerade",
    );
    let mut server = python(&b, &lab, "server", SERVER);
    until(|| "nobody listens".to_owned(), || b.run("ss -ltn").contains(":7000").then_some(()));
    let log = lab.path("events.ndjson");
    let log_outside = lab.path("outside.ndjson");
    let options = |interfaces: &str, log: &Path| {
        format!("{interfaces} --conntrack --every 1s --connections 10k --events-open --events {}", log.display())
    };
    let both = Watch::start(&lab, &router, "both", &options("-i to-a -i to-b", &log));
    let outside = Watch::start(&lab, &router, "behind", &options("-i to-b", &log_outside));
    run(a.command("python3", ["-c", CLIENT, "20", "1"]));
    let lines = |log: &Path| fs::read_to_string(log).unwrap().lines().count();
    until(|| "not all have ended".to_owned(), || (lines(&log) >= 40 && lines(&log_outside) >= 40).then_some(()));
    for watch in [both, outside] {
        let (ended, _) = watch.stop("-TERM");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    }
    server.signal("-INT");
    let [inside_address, outside_address] = ["10.0.1.1", "10.0.2.2"];
    for (log, own, other, name) in [
        (&log, inside_address, outside_address, "translated"),
        (&log_outside, outside_address, inside_address, "original"),
    ] {
        let text = fs::read_to_string(log).unwrap();
        let found = of_log(&text);
        assert_eq!((found.opened.len(), found.ended.len()), (20, 20), "{text}");
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&event["src_ip"], &event["nat"]["src_ip"], &event["nat"]["name"]),
                (&own.into(), &other.into(), &name.into())
            );
        }
    }
}

#[test]
fn the_kernel_has_the_same_openings_and_ends() {
    compare(60, "2");
}

#[test]
#[ignore = "takes two minutes: cargo test --test live events -- --ignored --nocapture"]
fn the_kernel_has_the_same_openings_and_ends_of_a_thousand_connections() {
    compare(1_000, "60");
}

/// What a log says that was continued after kills: when each connection ended, by the times of its events, and in which
/// times events are missing, in microseconds since 1970. None ends twice.
fn of_killed_log(text: &str) -> (Times, Vec<[i64; 2]>) {
    let (mut times, mut gaps, mut sequence) = (Times::default(), Vec::new(), 0);
    let time_us = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_microsecond();
    for line in text.lines() {
        // What a killed run left of a line stands alone.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        if event["event_type"] == "flow_gap" {
            gaps.push(["start", "end"].map(|name| time_us(&event["flow_gap"][name])));
            continue;
        }
        let number = event["seq"].as_u64().unwrap();
        assert!(number > sequence, "numbers go on: {event}");
        sequence = number;
        let ends = ["src", "dest"].map(|side| {
            let ip = event[format!("{side}_ip")].as_str().unwrap().parse().unwrap();
            SocketAddr::new(ip, event[format!("{side}_port")].as_u64().unwrap() as u16)
        });
        match event["change"].as_str().unwrap() {
            // One whose opening no saved state has is found again, and opens once more.
            "opened" => drop(times.opened.entry(ends).or_insert(time_us(&event["timestamp"]))),
            "closed" => {
                assert!(times.ended.insert(ends, time_us(&event["timestamp"])).is_none(), "ended twice: {event}");
            }
            other => panic!("{other}"),
        }
    }
    (times, gaps)
}

/// Kills a capture so many times while so many connections come and go over so many seconds twice.
fn kill(kill_count: usize, count: usize, longest_s: u64) {
    let Some(lab) = Lab::new().filter(|_| has("nft") && has("conntrack")) else { return };
    let (a, router, b) = routed(&lab);
    track(&router);
    let mut server = python(&b, &lab, "server", SERVER);
    until(|| "nobody listens".to_owned(), || b.run("ss -ltn").contains(":7000").then_some(()));
    let words = ["-E", "-p", "tcp", "-o", "timestamp", "-b", "8388608"];
    let mut kernel = Process::start(router.command("conntrack", words), &lab.path("kernel"));
    until(|| "conntrack does not begin".to_owned(), || kernel.said().contains("buffer").then_some(()));
    let [log, secret, state] = ["events.ndjson", "secret", "state"].map(|name| lab.path(name));
    fs::write(&secret, "00112233445566778899aabbccddeeff").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let options = format!(
        "-i to-a --every 100ms --connections 10k --secret-file {} --state {} --state-every 100ms --events-open --events {}",
        secret.display(),
        state.display(),
        log.display()
    );
    let mut watch = Watch::start(&lab, &router, "lists", &options);
    let longest = longest_s.to_string();
    let mut client =
        Process::start(a.command("python3", ["-c", CLIENT, &count.to_string(), &longest]), &lab.path("client"));
    for number in 0..kill_count {
        // Moments that have nothing to do with intervals and saves.
        std::thread::sleep(Duration::from_millis(1_500 + (number as u64 * 379) % 1_400));
        watch.process.signal("-KILL");
        assert_eq!(watch.process.wait().status.code(), None);
        watch = Watch::start(&lab, &router, &format!("lists-{number}"), &options);
    }
    let is_running = client.is_running();
    // The long form's traffic lasts longer than anything else is waited for.
    for _ in 0..10 * (2 * longest_s) {
        if client.is_running() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert_eq!(client.wait().status.code(), Some(0));
    let exact = || of_kernel(&String::from_utf8_lossy(&kernel.printed()));
    // On a busy machine the kernel does not say everything: what it does not say is not compared.
    let said_min = count - count / 100;
    until(|| format!("{} have ended", exact().ended.len()), || (exact().ended.len() >= said_min).then_some(()));
    let exact = exact();
    let then = jiff::Timestamp::now();
    watch.list_after(then);
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    [&mut kernel, &mut server].iter_mut().for_each(|process| process.signal("-INT"));
    let (found, gaps) = of_killed_log(&fs::read_to_string(&log).unwrap());
    assert_eq!(gaps.len(), kill_count);
    const NEAR_US: i64 = 250_000;
    let is_said = |time_us: i64| gaps.iter().any(|[start, end]| (start - NEAR_US..=end + NEAR_US).contains(&time_us));
    let missing = |exact: &BTreeMap<Ends, i64>, found: &BTreeMap<Ends, i64>| {
        exact.keys().filter(|ends| !found.contains_key(*ends)).copied().collect::<Vec<_>>()
    };
    let (opened, ended) = (missing(&exact.opened, &found.opened), missing(&exact.ended, &found.ended));
    for ends in &opened {
        assert!(is_said(exact.opened[ends]), "{ends:?} opened at {}: {gaps:?}", exact.opened[ends]);
    }
    // Of one whose first side ended in a gap the end of the other does not show that it has ended.
    let touches = |ends: &Ends| {
        let times = [&exact.opened, &exact.half_closed, &exact.ended];
        times.iter().filter_map(|times| times.get(ends)).any(|time_us| is_said(*time_us))
    };
    // What opened in a gap and was silent until its end is not known to have been there, so of one whose opening the
    // kernel did not say nothing is known.
    let (compared, unknown): (Vec<_>, Vec<_>) = ended.iter().partition(|ends| exact.opened.contains_key(*ends));
    for ends in compared {
        assert!(touches(ends), "{ends:?} from {} to {}: {gaps:?}", exact.opened[ends], exact.ended[ends]);
    }
    assert!(unknown.len() <= count / 100, "{} openings that the kernel did not say", unknown.len());
    let (opened, ended) = (opened.len(), ended.len());
    let outside = exact.ended.keys().filter(|ends| !touches(ends)).count();
    println!(
        "{kill_count} kills, traffic to the last {is_running}: of {} connections {opened} openings and {ended} ends \
         are missing, all in times that the log names, and the {outside} that opened and ended outside of these are \
         there; none ends twice",
        exact.ended.len()
    );
    assert!(outside > count / 10, "{outside} outside of the times that the log names");
}

#[test]
fn killed_during_traffic_a_log_has_every_event_once_or_says_that_it_is_missing() {
    kill(4, 400, 6);
}

#[test]
#[ignore = "takes minutes: cargo test --test live killed_a -- --ignored --nocapture"]
fn killed_a_hundred_times_during_traffic_a_log_has_every_event_once_or_says_that_it_is_missing() {
    kill(100, 12_000, 150);
}
