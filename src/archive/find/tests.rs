//! The entries that are removed from an answer, and those that are not.

use super::*;
use crate::record::Ending;

fn entry(port: u16, start: i64, end: i64, fate: Fate) -> Entry {
    let key = AnyKey::of_ends(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 443).into(), VlanTags::NONE).unwrap();
    Entry { end, key, start, clock_set: 0, fate, midstream: false, may_be_older: false }
}

#[test]
fn of_what_is_open_the_latest_word_counts() {
    let ended = Fate::Ended(Ending::Fin);
    let entries = [
        entry(1, 5, 20, Fate::Open),
        entry(1, 5, 30, Fate::Open),
        entry(1, 5, 30, Fate::Open),
        entry(1, 6, 25, Fate::Open),
        entry(2, 5, 20, Fate::Open),
        entry(2, 5, 20, ended),
        entry(3, 5, 5, ended),
        entry(3, 5, 5, ended),
        entry(3, 5, 20, Fate::Open),
    ];
    let mut found = Vec::new();
    let question = Question::default();
    let mut finder = Finder::new(Path::new("nowhere"), &question, |entry| {
        found.push(*entry);
        Ok(true)
    });
    for is_for_open in [true, false] {
        finder.is_for_open = is_for_open;
        finder.take(&entries);
    }
    finder.finish().unwrap();
    let expected = [
        entry(2, 5, 20, ended),
        // Two of one tick are two, and one that began in the same tick is still open.
        entry(3, 5, 5, ended),
        entry(3, 5, 5, ended),
        // What is open comes last, by start.
        entry(3, 5, 20, Fate::Open),
        entry(1, 5, 30, Fate::Open),
        entry(1, 6, 25, Fate::Open),
    ];
    assert_eq!(found, expected);
}

#[test]
fn ends_match_either_way_round() {
    let entry = entry(40_000, 1, 2, Fate::Open);
    let end = |text: &str, port| Endpoint { address: text.parse().unwrap(), port };
    let holds = |one, other| Query { one, other }.holds(&entry);
    assert!(holds(end("10.0.0.1", None), None) && holds(end("10.0.0.2", Some(443)), None));
    assert!(holds(end("10.0.0.1", Some(40_000)), Some(end("10.0.0.2", None))));
    assert!(holds(end("10.0.0.2", None), Some(end("10.0.0.1", None))));
    assert!(!holds(end("10.0.0.1", Some(443)), None) && !holds(end("10.0.0.3", None), None));
    assert!(!holds(end("10.0.0.1", None), Some(end("10.0.0.1", None))));
    assert!(!holds(end("10.0.0.1", Some(40_000)), Some(end("10.0.0.2", Some(40_000)))));
}

#[test]
fn what_is_no_archive_is_said_to_be_none() {
    let place = tempfile::tempdir().unwrap();
    let query = Query { one: Endpoint { address: "10.0.0.1".parse().unwrap(), port: None }, other: None };
    assert!(find(place.path(), &query).unwrap_err().to_string().contains("there is no archive here"));
    assert!(find(&place.path().join("nowhere"), &query).is_err());
}

#[test]
fn what_was_open_is_asked_about_as_of_the_last_time_it_was_seen() {
    let question = Question { filter: Some("age < 2s".parse().unwrap()), ..Question::default() };
    let mut found = Vec::new();
    let mut finder = Finder::new(Path::new("nowhere"), &question, |entry| {
        found.push(*entry);
        Ok(true)
    });
    finder.is_for_open = true;
    let entries = [entry(1, 5, 30, Fate::Open), entry(1, 5, 20, Fate::Open), entry(2, 5, 20, Fate::Open)];
    finder.take(&entries);
    finder.finish().unwrap();
    assert_eq!(found, [entries[2]]);
}

#[test]
fn ends_are_addresses_with_or_without_a_port() {
    let end = |address: &str, port| Endpoint { address: address.parse().unwrap(), port };
    let read = |text: &str| text.parse::<Endpoint>();
    assert_eq!(read("10.0.0.1").unwrap(), end("10.0.0.1", None));
    assert_eq!(read("10.0.0.1:443").unwrap(), end("10.0.0.1", Some(443)));
    assert_eq!(["::1", "[::1]"].map(|text| read(text).unwrap()), [end("::1", None), end("::1", None)]);
    assert_eq!(read("[::1]:443").unwrap(), end("::1", Some(443)));
    for wrong in ["", "10.0.0", "10.0.0.1:", "10.0.0.1:65536", "host", "[::1", "::1]:443"] {
        assert!(read(wrong).unwrap_err().to_string().contains("an end is an address"), "{wrong}");
    }
}
