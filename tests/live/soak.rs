//! A soak: a load that changes, interfaces that go and come back, and nothing that grows, is late, or is lost silently.
//!
//! The short form is a test, `scripts/soak` runs the long one. How late lists are is printed and not asserted: it
//! depends on what else the machine has to do.

use crate::burst::{generate, send, summed};
use crate::lab::{End, Host, Lab, has, join, run};
use crate::privacy::nobodys_directory;
use crate::process::{Crowd, until};
use crate::support::command::List;
use crate::support::progress::Progress;
use crate::support::say::say;
use crate::watch::{Watch, lists_in, time};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the long form runs, by a name that `scripts/soak` sets.
const MINUTES: &str = "FLOWPEEL_SOAK_MINUTES";

/// How many threads capture each of its interfaces, by another; more than one give up their privileges.
const THREADS: &str = "FLOWPEEL_SOAK_THREADS";

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

    /// The far cable is taken away and another put in its place, once all of the capture's threads have seen it gone.
    fn vanish_and_come_back(&mut self, watch: &Watch, thread_count: usize) {
        let reported = |what: &str| watch.process.said().matches(&format!("eth1 is {what}")).count();
        let (gone_count, up_count) = (reported("gone") + thread_count, reported("up") + thread_count);
        self.packets_before += self.b.packet_count("eth1");
        self.b.run("ip link del eth1");
        until(|| "nobody says that eth1 is gone".to_owned(), || (reported("gone") >= gone_count).then_some(()));
        join(&End(&self.a, "eth1", &[]), &End(&self.b, "eth1", &[]), 1500);
        until(|| "nothing captures the new eth1".to_owned(), || (reported("up") >= up_count).then_some(()));
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

/// What the lists of a soak have to be, held against them while it goes on: each is read once, and removed.
struct Intervals {
    directory: PathBuf,
    last: Option<List>,
    count: u64,
    merged_count: u64,
    dropped_count: u64,
    latest: Duration,
    late_count: u64,
}

impl Intervals {
    fn of(directory: &Path) -> Self {
        let (directory, latest) = (directory.to_owned(), Duration::ZERO);
        Intervals { directory, last: None, count: 0, merged_count: 0, dropped_count: 0, latest, late_count: 0 }
    }

    /// Takes the lists that have come since. Every interval is there once, and each begins where the one before ended.
    fn take(&mut self) {
        for (list, path) in lists_in(&self.directory).into_values() {
            let (before, before_start) = match &self.last {
                Some(last) => (last.count("interval"), Some(time(last, "end"))),
                None => (0, None),
            };
            assert_eq!(list.count("interval"), before + 1, "{}", list.header);
            assert!(before_start.is_none_or(|end| end == time(&list, "start")), "{}", list.header);
            // But for the first and the last, which is checked when another follows, all are equally long. One that
            // came while the lists were behind is part of the next.
            if let Some(last) = self.last.as_ref().filter(|_| before > 1) {
                let length = time(last, "start").duration_until(time(last, "end"));
                let interval_count = 1 + last.count("merged") as u32;
                assert_eq!(length.unsigned_abs(), interval_count * EVERY, "{}", last.header);
            }
            self.merged_count += list.count("merged");
            let written: jiff::Timestamp = fs::metadata(&path).unwrap().modified().unwrap().try_into().unwrap();
            let late = time(&list, "end").duration_until(written).unsigned_abs();
            self.latest = self.latest.max(late);
            self.late_count += u64::from(late >= EVERY);
            self.count += 1;
            self.dropped_count += list.count("dropped");
            self.last = Some(List { flows: Vec::new(), ..list });
            fs::remove_file(path).unwrap();
        }
    }
}

/// How a soak is run.
struct Form<'a> {
    name: &'a str,
    duration: Duration,
    /// From the start of one round to that of the next.
    pace: Duration,
    /// Those that capture an interface.
    thread_count: usize,
    /// Options of `flowpeel live` beside these.
    options: &'a str,
}

/// `None` where it is skipped.
fn soak(form: &Form, progress: &Progress) -> Option<()> {
    let lab = Lab::new().filter(|_| has("tcpreplay"))?;
    let mut load = Load::new(&lab);
    let started_count = load.packet_count();
    let (thread_count, more) = (form.thread_count, form.options);
    let options = format!("-i eth0 -i eth1 --every 1s --connections 100k --fanout {thread_count} {more}");
    let watch = Watch::start_into(&load.b, nobodys_directory(&lab), &options, &["live"]);
    let mut intervals = Intervals::of(&watch.directory);
    let began = Instant::now();
    let mut middle_kib = None;
    for round in 0.. {
        let round_began = Instant::now();
        load.round(round);
        match round % 4 {
            1 => load.go_down_and_up(),
            3 => load.vanish_and_come_back(&watch, thread_count),
            _ => (),
        }
        intervals.take();
        let kib = memory_kib(watch.process.pid());
        if began.elapsed() > form.duration / 2 {
            let middle_kib = *middle_kib.get_or_insert(kib);
            assert!(kib <= middle_kib + GROWTH_MAX_KIB, "memory grew from {middle_kib} to {kib} KiB");
        }
        // The last minute counts when all checks have passed: the script records it.
        progress.record(began.elapsed().min(form.duration).as_secs().saturating_sub(1) / 60);
        if began.elapsed() > form.duration && round >= 4 {
            break;
        }
        std::thread::sleep(form.pace.saturating_sub(round_began.elapsed()));
    }
    let (middle_kib, end_kib) = (middle_kib.unwrap(), memory_kib(watch.process.pid()));
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    intervals.take();
    let (seen, lost) = (summed(&ended, "packets"), summed(&ended, "lost_packets"));
    assert_eq!(seen + lost, load.packet_count() - started_count, "{lost} lost: {}", ended.stderr);
    assert_eq!(intervals.dropped_count, lost + summed(&ended, "lost_signals"), "{}", ended.stderr);
    let Intervals { count, merged_count, dropped_count, latest, late_count, .. } = intervals;
    say(&format!(
        "{}, {} s: {count} lists for {} intervals, {late_count} of them late by an interval, the latest {latest:?}; \
         {seen} packets and {dropped_count} dropped; {middle_kib} KiB in the middle, {end_kib} at the end",
        form.name,
        began.elapsed().as_secs(),
        count + merged_count
    ));
    assert!(end_kib <= middle_kib + GROWTH_MAX_KIB, "memory grew from {middle_kib} to {end_kib} KiB");
    Some(())
}

#[test]
fn under_a_changing_load_nothing_grows_or_is_missed() {
    for (name, thread_count, options) in
        [("a short soak", 1, ""), ("a short soak of two threads without privileges", 2, "--user nobody")]
    {
        let duration = Duration::from_secs(15);
        soak(&Form { name, duration, pace: Duration::ZERO, thread_count, options }, &Progress::of_this_run());
    }
}

#[test]
#[ignore = "takes minutes: scripts/soak runs it"]
fn for_minutes_nothing_grows_or_is_missed() {
    let minutes: u64 = std::env::var(MINUTES).map_or(1, |minutes| minutes.parse().unwrap());
    let thread_count = std::env::var(THREADS).map_or(1, |count| count.parse().unwrap());
    let options = if thread_count > 1 { "--user nobody" } else { "" };
    let progress = Progress::of_this_run();
    let duration = Duration::from_secs(60 * minutes.saturating_sub(progress.before()));
    let form = Form { name: "a soak", duration, pace: Duration::from_secs(5), thread_count, options };
    assert!(soak(&form, &progress).is_some(), "it was skipped");
}
