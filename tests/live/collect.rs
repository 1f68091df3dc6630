//! The router on one machine, the agent on another that has only its snapshots.

use crate::lab::{Lab, routed, run};
use crate::process::{Crowd, Process, until};
use crate::support::command::FLOWPEEL;
use crate::watch::Watch;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the server listens.
const PORT: u16 = 7000;

/// The files of a directory with lists.
fn lists(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries: Vec<fs::DirEntry> =
        fs::read_dir(directory).map(|entries| entries.map(|entry| entry.unwrap()).collect()).unwrap_or_default();
    let named = entries.into_iter().map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.filter(|(name, _)| name.starts_with("flows-")).map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

#[test]
fn the_agent_writes_what_the_router_writes() {
    let Some(lab) = Lab::new() else { return };
    let (a, router, b) = routed(&lab);
    let (secret, snapshots, collected) = (lab.path("secret"), lab.path("snapshots"), lab.path("collected"));
    let mut keygen = Command::new(FLOWPEEL);
    keygen.arg("keygen").arg(&secret);
    run(keygen);
    let (mut server, mut client) = (Crowd::serve(&b, &[PORT]), Crowd::start(&a));
    // These are older than the capture.
    client.ask(&format!("open 50 10.0.2.1 {PORT}"));
    server.ask("held 50");
    let options = format!(
        "-i to-a -i to-b --pickup 1 --every 1s --connections 10k --churn 100 --secret-file {} --snapshots {}",
        secret.display(),
        snapshots.display()
    );
    let mut watch = Watch::start(&lab, &router, "lists", &options);
    let mut command = Command::new(FLOWPEEL);
    command
        .args(["snapshot", "collect", "--verbose", "--out"])
        .arg(&collected)
        .arg("--secret-file")
        .arg(&secret)
        .arg(&snapshots);
    let mut agent = Process::start(command, &lab.path("agent"));
    client.ask("say");
    server.ask("say");
    for address in ["10.0.2.1", "fd00:2::1"] {
        for _ in 0..4 {
            // No more in an interval than the tables list, as far as waiting for lists can see to that.
            client.ask(&format!("open 20 {address} {PORT}"));
            watch.list_after(Timestamp::now());
        }
    }
    client.ask("close 30");
    server.ask("reset 30");
    watch.list_after(Timestamp::now());
    let (ended, _) = watch.stop("-INT");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let written = lists(&lab.path("lists"));
    until(|| agent.said(), || (lists(&collected).len() == written.len()).then_some(()));
    agent.signal("-INT");
    let ended = agent.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let agents = lists(&collected);
    assert!(written.len() >= 8 && agents.keys().eq(written.keys()), "{:?} {:?}", agents.keys(), written.keys());
    for (name, bytes) in &written {
        let [agents, own] = [&agents[name], bytes].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let differs = agents.lines().zip(own.lines()).find(|(agents, own)| agents != own);
        assert!(agents == own, "{name} differs: {differs:?}\n{}", ended.stderr);
    }
    let midstream = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains("\"midstream\":true");
    assert!(written.values().any(midstream), "{:?}", written.keys());
    let is_warm_up = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(",\"warming_up\":true");
    assert!(written.values().any(is_warm_up), "{:?}", written.keys());
}
