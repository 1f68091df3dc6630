//! `flowpeel live` on a host, and its lists.

use crate::lab::{Host, Lab};
use crate::process::{Process, until};
use crate::sockets::Connection;
use crate::support::command::{Ended, FLOWPEEL, List, lists};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A time of a list's header.
pub(crate) fn time(list: &List, name: &str) -> Timestamp {
    list.header["flow_list"][name].as_str().unwrap().parse().unwrap()
}

/// Whether a list says that connections older than the capture are still being found.
pub(crate) fn is_warming_up(list: &List) -> bool {
    list.header["flow_list"].get("warming_up").is_some()
}

/// The lists of a directory by their numbers, each in a file of its own that is whole.
pub(crate) fn lists_in(directory: &Path) -> BTreeMap<u64, (List, PathBuf)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_list = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("flows-");
    let mut found = BTreeMap::new();
    for path in entries.filter(is_list) {
        let mut read = lists(&fs::read(&path).unwrap());
        let list = read.pop().unwrap();
        assert!(read.is_empty(), "{} holds several lists", path.display());
        let twice = found.insert(list.count("interval"), (list, path));
        assert!(twice.is_none(), "interval {:?} is there twice", twice.map(|(list, _)| list.header));
    }
    found
}

/// The file of the latest list.
fn latest(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("flows-"));
    // A file that was there a moment ago may have got another name since.
    let dated = files.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    dated.max().map(|(_, path)| path)
}

/// A list's connections; none may be there twice.
pub(crate) fn connections(list: &List) -> BTreeSet<Connection> {
    let found: BTreeSet<Connection> = list.flows.iter().map(connection).collect();
    assert_eq!(found.len(), list.flows.len(), "a connection is listed twice: {}", list.header);
    found
}

fn connection(row: &Value) -> Connection {
    let end = |address: &str, port: &str| {
        let port = u16::try_from(row[port].as_u64().unwrap()).unwrap();
        SocketAddr::new(row[address].as_str().unwrap().parse().unwrap(), port)
    };
    let state = match row["flow"]["state"].as_str().unwrap() {
        "established" => "established",
        "syn_sent" => "syn_sent",
        "syn_recv" => "syn_recv",
        other => panic!("there is no state {other}"),
    };
    let tags = row
        .get("vlan")
        .map_or(Vec::new(), |tags| tags.as_array().unwrap().iter().map(|tag| tag.as_u64().unwrap()).collect());
    (tags, end("src_ip", "src_port"), end("dest_ip", "dest_port"), state)
}

/// A capture that runs.
pub(crate) struct Watch {
    pub(crate) process: Process,
    /// What it was given.
    pub(crate) options: String,
    pub(crate) directory: PathBuf,
}

impl Watch {
    /// `flowpeel live` on a host with these options, lists going to a directory of its own; it captures when this is
    /// back.
    pub(crate) fn start(lab: &Lab, host: &Host, name: &str, options: &str) -> Self {
        let directory = lab.path(name);
        fs::create_dir(&directory).unwrap();
        Watch::start_into(host, directory, options, &["live"])
    }

    /// As [`Self::start`], into a directory that exists, by a command line that may begin with other programs.
    pub(crate) fn start_into(host: &Host, directory: PathBuf, options: &str, live: &[&str]) -> Self {
        let (program, before) = if live.len() > 1 { (live[0], &live[1..]) } else { (FLOWPEEL, live) };
        let mut command = host.command(program, before);
        command.args(options.split_whitespace()).arg("--out").arg(&directory);
        let mut watch = Watch { process: Process::start(command, &directory), options: options.to_owned(), directory };
        watch.list_when(|_| true);
        watch
    }

    /// Waits for a latest list for which `is_true` holds.
    pub(crate) fn list_when(&mut self, is_true: impl Fn(&List) -> bool) -> List {
        let Watch { process, options, directory } = self;
        let mut looked_at = PathBuf::new();
        until(
            || format!("no such list of {options}: {}", fs::read_to_string(directory.with_extension("err")).unwrap()),
            || {
                assert!(process.is_running(), "{options} has ended: {}", process.said());
                let latest = latest(directory).filter(|path| *path != looked_at)?;
                let list = lists(&fs::read(&latest).unwrap()).pop().unwrap();
                looked_at = latest;
                is_true(&list).then_some(list)
            },
        )
    }

    /// The list of an interval that began after this time, of a capture that is no longer finding older connections:
    /// until then none is complete.
    pub(crate) fn list_after(&mut self, then: Timestamp) -> List {
        self.list_when(|list| time(list, "start") >= then && !is_warming_up(list))
    }

    /// Ends it by a signal.
    pub(crate) fn stop(mut self, signal: &str) -> (Ended, Vec<List>) {
        self.process.signal(signal);
        let ended = self.process.wait();
        (ended, lists_in(&self.directory).into_values().map(|(list, _)| list).collect())
    }
}

/// The lines of the log that report an error.
pub(crate) fn errors(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| line.contains(" ERROR ")).collect()
}

/// Compares a list with the connections that there are.
pub(crate) fn assert_listed(list: &List, expected: &BTreeSet<Connection>, who: &str) {
    let listed = connections(list);
    let missing: Vec<_> = expected.difference(&listed).take(5).collect();
    let wrong: Vec<_> = listed.difference(expected).take(5).collect();
    let is_equal = listed == *expected;
    assert!(
        is_equal,
        "{who}\n{}\nlisted {} of {}; not listed: {missing:?}...\nlisted wrongly: {wrong:?}...",
        list.header,
        listed.len(),
        expected.len()
    );
    assert_eq!(list.header["flow_list"]["complete"], true, "{who}: {}", list.header);
}
