//! Pages of archives that the engine's own writer makes.

use super::*;
use flowpeel::archive::{ArchiveConfig, Fate, Query, Writer};
use flowpeel::flow::VlanTags;
use flowpeel::record::Ending;

fn entry(client: u8, port: u16, start: i64, end: i64, fate: Fate) -> Entry {
    let key = AnyKey::of_ends(([10, 0, 0, client], port).into(), ([10, 0, 1, 1], 443).into(), VlanTags::NONE).unwrap();
    Entry { end, key, start, clock_set: 0, fate, midstream: false, may_be_older: false }
}

fn archive(directory: &Path, router: &str, entries: &[Entry]) -> RouterArchive {
    let directory = directory.join(router);
    let (mut writer, _) = Writer::open(&directory, ArchiveConfig::default()).unwrap();
    for chunk in entries.chunks(1_000) {
        writer.add(chunk).unwrap();
        writer.seal().unwrap();
    }
    writer.finish().unwrap();
    RouterArchive::new(&directory).unwrap()
}

fn query(end: &str, limit: usize, after: Option<&str>) -> PastQuery {
    let ends = Some(Query { one: PastQuery::endpoint("end", end).unwrap(), other: None });
    PastQuery::new(Question { ends, ..Question::default() }, limit, after).unwrap()
}

#[test]
fn pages_have_each_connection_of_an_address_once_the_latest_first() {
    let place = tempfile::tempdir().unwrap();
    let ended = Fate::Ended(Ending::Fin);
    // Starts that are equal, ends in another order, other clients between them.
    let entries: Vec<Entry> = (0..3_000)
        .map(|at: u16| {
            let start = i64::from(at) * 7 % 1_000;
            entry((at % 2) as u8 + 1, at, start, start + i64::from(at % 13), ended)
        })
        .collect();
    let archives = [archive(place.path(), "a~b", &entries), archive(place.path(), "c", &entries[..1_500])];
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = past(&archives, &query("10.0.0.1", 170, after.as_deref()), || true);
        assert!(page.is_whole && page.problems.is_empty(), "{:?}", page.problems);
        found.extend(page.entries);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let of = |entries: &[Entry]| entries.iter().filter(|entry| entry.client().ip().to_string() == "10.0.0.1").count();
    assert_eq!(found.len(), of(&entries) + of(&entries[..1_500]));
    let ranks: Vec<Rank> = found.iter().map(|(entry, router)| Rank::of(entry, router)).collect();
    assert!(ranks.is_sorted_by(|one, other| one < other));
    assert!(found.iter().any(|(_, router)| router == "c") && found[0].0.start == 999 || found[0].0.start == 998);
}

#[test]
fn what_is_open_is_there_and_what_is_no_archive_is_named() {
    let place = tempfile::tempdir().unwrap();
    let entries = [entry(1, 1, 10, 20, Fate::Open), entry(1, 2, 5, 9, Fate::Ended(Ending::Rst))];
    let archives = [archive(place.path(), "a", &entries)];
    let page = past(&archives, &query("10.0.0.1", 10, None), || true);
    let found: Vec<_> = page.entries.iter().map(|(entry, _)| entry.fate.reason()).collect();
    assert_eq!((found, page.next), (vec![None, Some("rst")], None));
    assert!(!past(&archives, &query("10.0.0.1", 10, None), || false).is_whole, "the time was up");
    assert!(past(&archives, &query("10.0.0.9:1", 10, None), || true).entries.is_empty());
    let nothing = RouterArchive::new(place.path()).unwrap();
    let page = past(&[nothing], &query("10.0.0.1", 10, None), || true);
    assert!(!page.is_whole && page.problems[0].contains("there is no archive here"), "{:?}", page.problems);
    assert!(RouterArchive::new(&place.path().join("nowhere")).is_err());
}

#[test]
fn what_is_no_cursor_is_refused() {
    for text in [
        "",
        "1",
        "1~2~3",
        "1~2~10.0.0.1:1~[::1]:2~~fin~a",
        "x~2~10.0.0.1:1~10.0.0.2:2~~fin~a",
        "1~2~10.0.0.1:1~10.0.0.2:2~~fin",
    ] {
        assert_eq!(PastQuery::new(Question::default(), 1, Some(text)).unwrap_err().parameter, "after", "{text}");
    }
    let text = format!("{}~{}~10.0.0.1:1~10.0.0.2:2~4095.1~fin~a~b", i64::MIN, i64::MAX);
    assert!(past(&[], &PastQuery::new(Question::default(), 1, Some(&text)).unwrap(), || true).entries.is_empty());
}
