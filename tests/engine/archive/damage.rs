//! Flipped bits and cut files: find reports any damage, misses nothing of the rest and invents nothing.

use super::{archive, between, ended, exact, files, found, sorted};
use crate::support::command::{self, FLOWPEEL, command, text};
use flowpeel::archive::find;
use flowpeel::engine::Config;
use flowpeel_traffic::TrafficConfig;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Numbers that depend on a seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % count
    }
}

fn write_all(directory: &Path, files: &std::collections::BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).unwrap();
    }
}

#[test]
fn damage_is_named_and_costs_no_more_than_it_has_to() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(77, 150_000) };
    let whole = tempfile::tempdir().unwrap();
    archive(whole.path(), traffic.clone(), &Config::default());
    let (files, exact) = (files(whole.path()), exact(traffic));
    let names: Vec<&String> = files.keys().collect();
    assert!(names.len() > 34, "{}", names.len());
    let mut dice = Dice(1);
    let (mut named, mut missed) = (0, 0);
    for round in 0..24 {
        let place = tempfile::tempdir().unwrap();
        write_all(place.path(), &files);
        // Every third time the index, which is one of many files.
        let name = if round % 3 == 0 {
            names.iter().find(|name| name.starts_with("index-")).unwrap()
        } else {
            names[dice.below(names.len())]
        };
        let mut bytes = files[name].clone();
        if round % 4 == 3 {
            bytes.truncate(dice.below(bytes.len()));
        } else {
            let at = dice.below(bytes.len());
            bytes[at] ^= 1 << dice.below(8);
        }
        fs::write(place.path().join(name), &bytes).unwrap();
        for _ in 0..12 {
            let ends = &exact[dice.below(exact.len())];
            let query = between(ends.client, ends.server);
            let answer = find(place.path(), &query).unwrap();
            let expected = sorted(&found(whole.path(), &query).entries);
            let reported: BTreeSet<_> = answer.entries.iter().map(ended).collect();
            assert!(reported.iter().all(|reported| expected.contains(reported)), "{name}: {reported:?}");
            named += usize::from(!answer.damages.is_empty());
            if reported.len() < expected.len() {
                assert!(!answer.damages.is_empty(), "{name}: {ends:?} is missing and nothing is said");
                missed += 1;
            }
            assert!(
                answer.damages.iter().all(|damage| damage.to_string().contains(name.as_str())),
                "{name}: {:?}",
                answer.damages
            );
        }
    }
    // An index that is damaged costs nothing, and one segment of a hundred little.
    assert!(named > 20 && missed < 12, "{named} answers named damage, {missed} lacked something");
}

#[test]
fn a_segment_that_was_taken_away_is_missed() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(78, 20_000) };
    let place = tempfile::tempdir().unwrap();
    archive(place.path(), traffic.clone(), &Config::default());
    fs::remove_file(place.path().join("segment-0000000002.fpa")).unwrap();
    let ends = &exact(traffic)[0];
    let answer = find(place.path(), &between(ends.client, ends.server)).unwrap();
    let said: Vec<String> = answer.damages.iter().map(ToString::to_string).collect();
    assert!(said.len() == 1 && said[0].ends_with("segment-0000000002.fpa: this segment is missing"), "{said:?}");
}

#[test]
fn find_fails_visibly_when_the_newest_segment_was_taken_away() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(80, 20_000) };
    let place = tempfile::tempdir().unwrap();
    archive(place.path(), traffic.clone(), &Config::default());
    let newest = files(place.path()).into_keys().rfind(|name| name.starts_with("segment-")).unwrap();
    fs::remove_file(place.path().join(&newest)).unwrap();
    let server = exact(traffic)[0].server.ip().to_string();
    let (status, printed, said) = run(place.path(), &[&server]);
    assert_eq!(status, Some(1), "{said}");
    assert!(printed.lines().count() > 1 && said.contains(&format!("{newest}: this segment is missing")), "{said}");
}

/// Runs `flowpeel find`: its exit status, what it prints, and what it says.
fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut find = command(FLOWPEEL, ["find"]);
    let ended = command::run(find.arg(directory).args(arguments));
    (ended.status.code(), text(&ended.stdout), ended.stderr)
}

#[test]
fn the_exit_status_separates_found_from_not_found_and_damaged() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(79, 5_000) };
    let place = tempfile::tempdir().unwrap();
    archive(place.path(), traffic.clone(), &Config::default());
    let exact = exact(traffic);
    let (client, server) = (exact[0].client.to_string(), exact[0].server.to_string());
    let (status, printed, said) = run(place.path(), &[&client, &server, "--explain"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("segments, 0 in vain"), "{said}");
    for line in printed.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["event_type"], &line["proto"]), (&"flow".into(), &"TCP".into()));
        let ends = ["src_ip", "dest_ip"].map(|name| line[name].as_str().unwrap().to_owned());
        assert!(ends.contains(&exact[0].client.ip().to_string()), "{line}");
    }
    let v6 = exact.iter().find(|ended| ended.client.is_ipv6()).unwrap();
    let (status, printed, _) = run(place.path(), &[&v6.client.to_string(), "--format", "table"]);
    assert_eq!(status, Some(0));
    assert!(printed.starts_with("START") && printed.contains(&v6.client.to_string()), "{printed}");
    assert_eq!(run(place.path(), &["198.51.100.7:1", "198.51.100.8:2"]), (Some(3), String::new(), String::new()));
    assert_eq!(run(place.path(), &["nonsense"]).0, Some(2));
    assert_eq!(run(&place.path().join("nowhere"), &["10.0.0.1"]).0, Some(1));
    for name in ["segment-0000000001.fpa", "open.fpa"] {
        let path = place.path().join(name);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        bytes[60] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (status, _, said) = run(place.path(), &[&exact[0].server.ip().to_string()]);
        assert_eq!(status, Some(1), "{name}");
        assert!(said.contains(name) && said.contains("at byte 24"), "{said}");
        fs::write(&path, whole).unwrap();
    }
}
