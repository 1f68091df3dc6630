//! As many packets as a program can send, a tenth of them SYN, FIN or RST.

use crate::lab::{End, Host, Lab, has, join, run};
use crate::process::Process;
use crate::support::command::{Ended, FLOWPEEL, List, lists, replay};
use crate::watch::{Watch, assert_listed, connections, is_warming_up};
use jiff::Timestamp;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A capture of about 27 packets for every connection, a tenth of them SYN, FIN or RST.
pub(crate) fn generate(lab: &Lab, connections: &str) -> PathBuf {
    let capture = lab.path("burst.pcap");
    let mut command = Command::new(FLOWPEEL);
    command.args(["generate", "--connections", connections, "--duration", "5s", "--data-packets", "30-50", "--out"]);
    command.arg(&capture);
    run(command);
    capture
}

/// Two hosts that say nothing of themselves: what goes over the cable is what a program sends.
pub(crate) fn silent_pair(lab: &Lab) -> (Host, Host) {
    let (a, b) = (lab.host("a"), lab.host("b"));
    for host in [&a, &b] {
        run(host.command("sh", ["-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"]));
    }
    join(&End(&a, "eth0", &[]), &End(&b, "eth0", &[]), 1500);
    (a, b)
}

/// Sends a capture; the options say how fast and how often.
pub(crate) fn send(lab: &Lab, host: &Host, interface: &str, capture: &Path, options: &str) -> Process {
    let mut command = host.command("tcpreplay", ["-q", "-K", "-i", interface]);
    command.args(options.split_whitespace()).arg(capture);
    Process::start(command, &lab.path("tcpreplay"))
}

/// What the summary counts under this name.
pub(crate) fn summed(ended: &Ended, name: &str) -> u64 {
    let summary =
        ended.stderr.lines().find(|line| line.contains(" ended ")).unwrap_or_else(|| panic!("{}", ended.stderr));
    let field = summary.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    field.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name} in {summary}"))
}

pub(crate) fn total(lists: &[List], name: &str) -> u64 {
    lists.iter().map(|list| list.count(name)).sum()
}

/// A capture of this many connections sent at top speed, and what flowpeel makes of it.
fn burst(test: &str, connections_sent: &str, options: &str, may_drop: bool) {
    let Some(lab) = Lab::new().filter(|_| has("tcpreplay")) else { return };
    let (a, b) = silent_pair(&lab);
    let capture = generate(&lab, connections_sent);
    let mut watch = Watch::start(&lab, &b, "lists", &format!("-i eth0 {options} --every 1s"));
    let sent = send(&lab, &a, "eth0", &capture, "--topspeed").wait();
    assert_eq!(sent.status.code(), Some(0), "{}", sent.stderr);
    let list = watch.list_after(Timestamp::now());
    let (ended, given) = watch.stop("-INT");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let lost_packets = summed(&ended, "lost_packets");
    let dropped = total(&given, "dropped");
    assert_eq!(summed(&ended, "packets") + lost_packets, b.packet_count("eth0"), "{}", ended.stderr);
    assert_eq!(dropped, lost_packets + summed(&ended, "lost_signals"), "{}", ended.stderr);
    if !may_drop {
        assert_eq!(dropped, 0, "{}", ended.stderr);
        let replayed = lists(&replay([&capture]).stdout).pop().unwrap();
        assert_listed(&list, &connections(&replayed), test);
    }
}

/// The packets of a capture behind so many.
fn without_the_first(lab: &Lab, capture: &Path, packet_count: usize) -> PathBuf {
    const HEADER_SIZE: usize = 24;
    const RECORD_SIZE: usize = 16;
    let bytes = fs::read(capture).unwrap();
    let size = |at: usize| u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let rest = (0..packet_count).fold(HEADER_SIZE, |at, _| at + RECORD_SIZE + size(at));
    let path = lab.path("rest.pcap");
    fs::write(&path, [&bytes[..HEADER_SIZE], &bytes[rest..]].concat()).unwrap();
    path
}

#[test]
fn a_capture_that_falls_behind_looks_for_older_connections_with_a_sample_and_loses_nothing() {
    let Some(lab) = Lab::new().filter(|_| has("tcpreplay")) else { return };
    let (a, b) = silent_pair(&lab);
    let capture = without_the_first(&lab, &generate(&lab, "12k"), 40_000);
    // Older connections are looked for until two intervals have had none: on a busy machine sending may begin late.
    let options = "-i eth0 --backend ring --ring-size 80MiB --every 8s";
    let mut watch = Watch::start(&lab, &b, "lists", options);
    // It gets no processor time, and the ring fills to more than half: 292,000 packets take 47 MiB of it, and up
    // to 13 MiB a second where the sender is slow, because blocks that are not full are handed over too.
    watch.process.signal("-STOP");
    let sent = send(&lab, &a, "eth0", &capture, "--topspeed").wait();
    assert_eq!(sent.status.code(), Some(0), "{}", sent.stderr);
    watch.process.signal("-CONT");
    let early = watch.list_when(|list| list.count("interval") > 1 && list.count("flows") > 0);
    let header = &early.header["flow_list"];
    assert_eq!((&header["warming_up"], &header["complete"]), (&true.into(), &false.into()), "{header}");
    assert_eq!(header["sampled_early"], true, "{header}");
    let later = watch.list_when(|list| !is_warming_up(list));
    assert!(later.header["flow_list"].get("sampled_early").is_none(), "{}", later.header);
    let (ended, given) = watch.stop("-INT");
    let (packets, dropped) = (summed(&ended, "packets"), total(&given, "dropped"));
    assert_eq!((packets, dropped), (b.packet_count("eth0"), 0), "{}", ended.stderr);
    assert!(ended.stderr.contains("packets would have been lost if every one had been inspected"), "{}", ended.stderr);
}

#[test]
fn the_ring_loses_none_of_a_million_packets() {
    burst("a million packets, ring", "37k", "--backend ring", false);
}

#[test]
fn several_threads_lose_none_either() {
    burst("packets for two threads", "10k", "--backend ring --fanout 2 --shards 2", false);
}

#[test]
fn pnet_accounts_for_what_it_loses() {
    burst("packets, pnet", "10k", "--backend pnet", true);
}
