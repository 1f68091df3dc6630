//! A soak: a load that changes, interfaces that go and come back, and nothing that grows, is late, or is lost silently.
//!
//! The short form is a test. `scripts/soak` runs the long one, which also holds lists to their time.

use crate::burst::{generate, send, summed, total};
use crate::lab::{End, Host, Lab, has, join, run};
use crate::process::{Crowd, until};
use crate::support::command::List;
use crate::support::say::say;
use crate::watch::{Watch, lists_in, time};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the long form runs, by a name that `scripts/soak` sets.
const MINUTES: &str = "FLOWPEEL_SOAK_MINUTES";

/// The length of an interval.
const EVERY: Duration = Duration::from_secs(1);

/// The memory in use may grow this far after half of the time: parts of tables that were not touched before.
const GROWTH_MAX_KIB: u64 = 2 * 1024;

/// Connections between hosts of a fixed address, and a cable whose far end may be pulled.
struct Load<'a> {
    lab: &'a Lab,
    a: Host,
    b: Host,
    client: Crowd,
    server: Crowd,
    capture: PathBuf,
    open_count: u64,
    /// Packets of `eth1` that earlier interfaces of that name counted.
    packets_before: u64,
}

impl<'a> Load<'a> {
    fn new(lab: &'a Lab) -> Self {
        let (a, b) = (lab.host("a"), lab.host("b"));
        for host in [&a, &b] {
            run(host.command("sh", ["-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"]));
        }
        join(&End(&a, "eth0", &["10.0.2.2/24"]), &End(&b, "eth0", &["10.0.2.1/24"]), 1500);
        join(&End(&a, "eth1", &[]), &End(&b, "eth1", &[]), 1500);
        // Resolving link addresses would send packets that are not TCP.
        for (host, other, address) in [(&a, &b, "10.0.2.1"), (&b, &a, "10.0.2.2")] {
            let hardware = other.run("cat /sys/class/net/eth0/address");
            host.run(&format!("ip neighbour add {address} lladdr {} dev eth0 nud permanent", hardware.trim()));
        }
        let (server, client) = (Crowd::serve(&b, &[7000]), Crowd::start(&a));
        let capture = generate(lab, "3k");
        Load { lab, a, b, client, server, capture, open_count: 0, packets_before: 0 }
    }

    /// Rounds of a few seconds, in which the number of connections goes up and down; `round` counts them.
    fn round(&mut self, round: u64) {
        let change = [400, 50, 900, 10, 200][(round % 5) as usize];
        self.client.ask(&format!("open {change} 10.0.2.1 7000"));
        self.open_count += change;
        self.client.ask("say");
        let end_count = self.open_count / 3;
        for command in [format!("close {end_count}"), format!("reset {end_count}")] {
            let is_close = command.starts_with("close");
            if is_close { &mut self.client } else { &mut self.server }.ask(&command);
            self.open_count -= end_count;
            // Before the other side ends any, it has to know which are left.
            for crowd in [&mut self.client, &mut self.server] {
                crowd.ask(&format!("held {}", self.open_count));
            }
        }
        // A burst on the other cable, at a rate of its own.
        let rate = ["--topspeed", "--pps=20000", "--pps=60000"][(round % 3) as usize];
        let sent = send(self.lab, &self.a, "eth1", &self.capture, rate).wait();
        assert_eq!(sent.status.code(), Some(0), "{}", sent.stderr);
    }

    /// The far cable is down for a while, under load.
    fn go_down_and_up(&mut self) {
        let mut sent = send(self.lab, &self.a, "eth1", &self.capture, "--pps=20000 --loop=3");
        self.b.run("ip link set eth1 down");
        std::thread::sleep(EVERY);
        assert!(sent.is_running() || !sent.said().is_empty());
        self.b.run("ip link set eth1 up");
        sent.wait();
    }

    /// The far cable is taken away and another put in its place.
    fn vanish_and_come_back(&mut self) {
        self.packets_before += self.b.packet_count("eth1");
        self.b.run("ip link del eth1");
        std::thread::sleep(EVERY);
        join(&End(&self.a, "eth1", &[]), &End(&self.b, "eth1", &[]), 1500);
        let index = self.b.run("cat /sys/class/net/eth1/ifindex");
        until(
            || format!("nothing captures the new eth1: {}", self.b.run("cat /proc/net/packet")),
            || {
                let sockets = self.b.run("cat /proc/net/packet");
                sockets.lines().any(|line| line.split_whitespace().nth(4) == Some(index.trim())).then_some(())
            },
        );
    }

    fn packet_count(&self) -> u64 {
        self.packets_before + self.b.packet_count("eth0") + self.b.packet_count("eth1")
    }
}

fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Every interval is there once, each begins where the one before ended, and all are equally long but the first and the
/// last.
fn assert_consecutive(lists: &[List]) {
    assert_eq!(lists[0].count("interval"), 1);
    for pair in lists.windows(2) {
        assert_eq!(pair[1].count("interval"), pair[0].count("interval") + 1, "{}", pair[1].header);
        assert_eq!(time(&pair[1], "start"), time(&pair[0], "end"), "{}", pair[1].header);
    }
    for list in &lists[1..lists.len() - 1] {
        let length = time(list, "start").duration_until(time(list, "end"));
        assert_eq!(length.unsigned_abs(), EVERY, "{}", list.header);
    }
}

/// The longest time between the end of an interval and its list.
fn latest(directory: &Path) -> Duration {
    let late = lists_in(directory).into_values().map(|(list, path)| {
        let written: jiff::Timestamp = fs::metadata(path).unwrap().modified().unwrap().try_into().unwrap();
        time(&list, "end").duration_until(written)
    });
    late.max().unwrap().unsigned_abs()
}

/// Soaks for this long. Returns how late the latest list was.
fn soak(test: &str, duration: Duration) -> Option<Duration> {
    let lab = Lab::new().filter(|_| has("tcpreplay"))?;
    let mut load = Load::new(&lab);
    let started_count = load.packet_count();
    let options = "-i eth0 -i eth1 --every 1s --connections 100k";
    let watch = Watch::start(&lab, &load.b, "lists", options);
    let began = Instant::now();
    let mut middle_kib = None;
    for round in 0.. {
        load.round(round);
        match round % 4 {
            1 => load.go_down_and_up(),
            3 => load.vanish_and_come_back(),
            _ => (),
        }
        if began.elapsed() > duration / 2 && middle_kib.is_none() {
            middle_kib = Some(memory_kib(watch.process.pid()));
        }
        if began.elapsed() > duration && round >= 4 {
            break;
        }
    }
    let end_kib = memory_kib(watch.process.pid());
    let directory = watch.directory.clone();
    let (ended, lists) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_consecutive(&lists);
    let (seen, lost, dropped) = (summed(&ended, "packets"), summed(&ended, "lost_packets"), total(&lists, "dropped"));
    assert_eq!(seen + lost, load.packet_count() - started_count, "{lost} lost: {}", ended.stderr);
    assert_eq!(dropped, lost + summed(&ended, "lost_signals"), "{}", ended.stderr);
    let middle_kib = middle_kib.unwrap();
    let (lists, late) = (lists.len(), latest(&directory));
    say(&format!(
        "{test}: {lists} lists, the latest {late:?} late; {seen} packets and {dropped} dropped; {middle_kib} KiB in the middle, \
         {end_kib} at the end"
    ));
    assert!(end_kib <= middle_kib + GROWTH_MAX_KIB, "memory grew from {middle_kib} to {end_kib} KiB");
    Some(late)
}

#[test]
fn under_a_changing_load_nothing_grows_or_is_missed() {
    soak("a short soak", Duration::from_secs(15));
}

#[test]
#[ignore = "takes minutes: scripts/soak runs it"]
fn for_minutes_nothing_grows_or_is_missed_or_late() {
    let minutes = std::env::var(MINUTES).map_or(1, |minutes| minutes.parse().unwrap());
    if let Some(late) = soak("a soak", Duration::from_secs(60 * minutes)) {
        assert!(late < EVERY, "a list came {late:?} after the end of its interval");
    }
}
