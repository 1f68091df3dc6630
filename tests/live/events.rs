//! The events of a router beside those of its kernel's connection tracking: the same connections open and end, about
//! the same time.

use crate::conntrack::{rules, track};
use crate::lab::{Host, Lab, has, routed, run};
use crate::process::{Process, until};
use crate::watch::Watch;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;

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
fn events_have_the_other_name_of_a_translated_connection() {
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
    let options = format!("-i to-a -i to-b --conntrack --every 1s --connections 10k --events {}", log.display());
    let watch = Watch::start(&lab, &router, "lists", &options);
    run(a.command("python3", ["-c", CLIENT, "20", "1"]));
    until(
        || "not all have ended".to_owned(),
        || (fs::read_to_string(&log).unwrap().lines().count() == 40).then_some(()),
    );
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    server.signal("-INT");
    let mut names = BTreeMap::<_, u32>::new();
    for line in fs::read_to_string(&log).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let (nat, own) = (&event["nat"], event["src_ip"].as_str().unwrap());
        *names.entry((own.to_owned(), nat["src_ip"].to_string(), nat["name"].to_string())).or_default() += 1;
    }
    let name = |own: &str, other: &str, is: &str| (own.to_owned(), format!("{other:?}"), format!("{is:?}"));
    let [inside, outside] = ["10.0.1.1", "10.0.2.2"];
    let expected = [(name(inside, outside, "translated"), 20), (name(outside, inside, "original"), 20)];
    assert_eq!(names, BTreeMap::from(expected));
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
