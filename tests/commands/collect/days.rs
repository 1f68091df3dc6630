//! More than 29 hours between two snapshots: every start is the router's, or it is marked, and later by whole wraps of
//! its ticks.

use super::{Site, flowpeel, list_names, list_stem, text};
use crate::support::captures::{START_S, opening, pcap_at};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How long ticks of 100 ms take to wrap, in seconds.
const WRAP_S: f64 = (1 << 20) as f64 / 10.0;

/// The hours at which connections open that stay open, the first of port 40,000, and so on. In every hour that has a
/// half there is another packet, so that there is a snapshot.
const HOURS: [u32; 7] = [0, 40, 60, 85, 100, 128, 130];

/// The routers' files of five and a half days, with lists of this length.
fn site(every: &str) -> Site {
    let site = Site(tempfile::tempdir().unwrap());
    let mut timed = Vec::new();
    for (hour, port) in HOURS.into_iter().zip(40_000..) {
        timed.extend(opening(port).map(|frame| (START_S + hour * 3_600 + 60, frame)));
    }
    // The last ones are not behind enough others to show that time has passed.
    for hour in 0..142 {
        // A SYN that nobody answers.
        timed.push((START_S + hour * 3_600 + 1_800, opening(50_000 + hour as u16)[0].clone()));
    }
    timed.sort_by_key(|(seconds, _)| *seconds);
    fs::write(site.path("capture.pcap"), pcap_at(&timed)).unwrap();
    site.replay(&[&site.path("capture.pcap")], &format!("--every {every} --churn 1k --connections 10k"));
    site
}

impl Site {
    /// The name of the first snapshot that ends at this hour or later.
    fn snapshot_after(&self, hour: u32) -> String {
        let name = |hour: u32| format!("snapshot-202601{:02}T{:02}", 1 + hour / 24, hour % 24);
        self.snapshots().into_iter().find(|snapshot| *snapshot > name(hour)).unwrap()
    }

    fn remove_snapshots(&self, hours: std::ops::Range<u32>) {
        let (first, last) = (self.snapshot_after(hours.start), self.snapshot_after(hours.end));
        let between = self.snapshots().into_iter().filter(|name| *name > first && *name < last);
        between.for_each(|name| self.remove_snapshot(&name));
    }
}

/// The established connections of a list by client port: the age, and whether the start is marked as a bound.
fn connections(list: &[u8]) -> BTreeMap<u64, (f64, bool)> {
    let lines = text(list).lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    let established = lines.iter().filter(|line| line["flow"]["state"] == "established");
    let of = |line: &Value| (line["flow"]["age"].as_f64().unwrap(), line["flow"]["start_is_bound"] == true);
    established.map(|line| (line["src_port"].as_u64().unwrap(), of(line))).collect()
}

/// Checks a list against the router's. Returns the hours of the starts that are marked, and how many of them are not
/// what they were.
fn marked(list: &[u8], router: &[u8]) -> (Vec<u32>, usize) {
    let (list, router) = (connections(list), connections(router));
    assert!(list.keys().eq(router.keys()) && !router.is_empty());
    assert!(router.values().all(|(_, is_bound)| !is_bound), "a router knows all starts");
    let mut hours = Vec::new();
    let mut wrong_count = 0;
    for (port, (age, is_bound)) in list {
        let wraps = (router[&port].0 - age) / WRAP_S;
        assert!(wraps >= 0.0 && (wraps - wraps.round()).abs() < 1e-9, "{port}: {wraps} wraps");
        assert!(is_bound || wraps == 0.0, "{port} is {wraps} wraps off and not marked");
        wrong_count += usize::from(wraps > 0.0);
        hours.extend(is_bound.then(|| HOURS[port as usize - 40_000]));
    }
    (hours, wrong_count)
}

fn read(directory: &Path, name: &str) -> Vec<u8> {
    fs::read(directory.join(name)).unwrap()
}

#[test]
fn without_a_gap_an_agents_lists_are_the_routers() {
    let site = site("1h");
    let (said, status) = site.collect("agent", "");
    assert_eq!(status, Some(0), "{said}");
    site.assert_same("agent", &[]);
}

#[test]
fn starts_that_a_gap_leaves_open_are_marked_and_stay_so() {
    let site = site("1h");
    site.remove_snapshots(50..110);
    // The agent is restarted behind the gap.
    let late = site.path("late");
    fs::create_dir(&late).unwrap();
    let last = site.snapshot_after(120);
    for name in site.snapshots().into_iter().filter(|name| *name > last) {
        fs::rename(site.path("snapshots").join(&name), late.join(&name)).unwrap();
    }
    assert_eq!(site.collect("agent", "").1, Some(0));
    for entry in fs::read_dir(&late).unwrap().map(|entry| entry.unwrap()) {
        fs::rename(entry.path(), site.path("snapshots").join(entry.file_name())).unwrap();
    }
    assert_eq!(site.collect("agent", "").1, Some(0));
    let names = list_names(&site.path("agent"));
    let of = |name: &String| marked(&read(&site.path("agent"), name), &read(&site.path("lists"), name));
    let gap_end = list_stem(&site.snapshot_after(110)) + ".ndjson";
    assert!(names.iter().filter(|name| **name < gap_end).all(|name| of(name) == (Vec::new(), 0)));
    let behind: Vec<_> = names.iter().filter(|name| **name >= gap_end).collect();
    assert!(behind.len() > 15);
    // What opened in the gap: that of hour 60 is taken to be of hour 89, and the others might be of 29 hours earlier.
    assert!(behind.iter().all(|name| of(name) == (vec![60, 85, 100], 1)), "{:?}", of(behind[0]));
}

#[test]
fn an_agent_that_begins_on_the_fifth_day_marks_what_it_can_not_know() {
    let site = site("1h");
    site.remove_snapshots(0..119);
    let first = site.snapshots().remove(0);
    site.remove_snapshot(&first);
    assert_eq!(site.collect("agent", "").1, Some(0));
    for name in list_names(&site.path("agent")) {
        // Those of the last 29 hours are right and marked; what opens from now on is not.
        let (hours, wrong_count) = marked(&read(&site.path("agent"), &name), &read(&site.path("lists"), &name));
        assert_eq!((hours, wrong_count), (vec![0, 40, 60, 85, 100], 4), "{name}");
    }
}

#[test]
fn a_base_settles_the_starts_that_it_has_and_bounds_the_others() {
    let site = site("1h");
    let snapshot = site.path("snapshots").join(site.snapshot_after(131));
    let router = read(&site.path("lists"), &(list_stem(&site.snapshot_after(131)) + ".ndjson"));
    let peeled = |base: Option<u32>| {
        let mut words = vec!["snapshot".to_owned(), "peel".to_owned(), snapshot.display().to_string()];
        if let Some(hour) = base {
            let list = site.path("lists").join(list_stem(&site.snapshot_after(hour)) + ".ndjson");
            words.extend(["--base".to_owned(), list.display().to_string()]);
        }
        let ended = flowpeel(words);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended.stdout
    };
    assert_eq!(marked(&peeled(None), &router).0, HOURS);
    assert_eq!(marked(&peeled(Some(50)), &router).0, [60, 85, 100, 128, 130]);
    assert_eq!(marked(&peeled(Some(90)), &router), (vec![100, 128, 130], 1));
    // That of hour 128 would have opened before the base.
    assert_eq!(marked(&peeled(Some(101)), &router), (vec![130], 0));
    assert!(peeled(Some(110)) == router, "less than 29 hours lie between");
}

#[test]
fn intervals_of_more_than_a_day_leave_starts_open() {
    let site = site("40h");
    let (said, status) = site.collect("agent", "");
    assert_eq!(status, Some(0), "{said}");
    let mut seen = BTreeSet::new();
    for name in list_names(&site.path("agent")) {
        seen.extend(marked(&read(&site.path("agent"), &name), &read(&site.path("lists"), &name)).0);
    }
    // Intervals end at the hours 24, 64, 104 and 132.
    assert_eq!(seen, BTreeSet::from([60, 100]));
}
