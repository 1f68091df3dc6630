//! The newest lists of directories: in full, as changes, damaged.

use super::*;
use std::fs::File;

const HEAD: &str = "\"timestamp\":\"2026-01-01T00:00:10.000000Z\",\"event_type\":\"flow\"";

/// A list in full, or as changes of the one before, of these lines.
fn text(interval: u64, is_changes: bool, lines: &[String]) -> String {
    let end = |interval: u64| format!("2026-01-01T00:00:{:02}.000000Z", interval * 10);
    let id = |interval: u64| format!("{{\"interval\":{interval},\"end\":\"{}\"}}", end(interval));
    let times = format!("\"start\":\"{}\",\"end\":\"{}\"", end(interval - 1), end(interval));
    let about = format!("\"interval\":{interval},{times},\"complete\":true,\"missing\":0");
    let fields = if is_changes {
        let [opened, closed] = ["opened", "closed"].map(|mark| lines.iter().filter(|line| line.contains(mark)).count());
        let base = format!("\"base\":{},\"full\":{},\"elapsed\":10.0", id(interval - 1), id(1));
        let counts = format!("\"flows\":9,\"half_open\":3,\"listed\":{opened},\"delisted\":{closed}");
        format!("\"flow_changes\":{{{about},{base},{counts}}}")
    } else {
        format!("\"flow_list\":{{{about},\"flows\":{},\"half_open\":0}}", lines.len())
    };
    format!("{{{fields}}}\n{}", lines.concat())
}

fn line(client: u8, state: &str, change: &str) -> String {
    let change = if change.is_empty() { String::new() } else { format!(",\"change\":\"{change}\"") };
    format!(
        "{{{HEAD}{change},\"src_ip\":\"10.0.0.{client}\",\"src_port\":1,\"dest_ip\":\"10.0.1.1\",\"dest_port\":443,\
         \"flow\":{{\"start\":\"2026-01-01T00:00:0{client}.000000Z\",\"age\":1.0,\"state\":\"{state}\"}}}}\n"
    )
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join(name), text).unwrap();
}

fn clients(list: NewestList) -> Vec<String> {
    list.rows().map(|row| row.unwrap().client.ip().to_string()).collect()
}

#[test]
fn changes_are_applied_to_the_list_in_full() {
    let place = tempfile::tempdir().unwrap();
    let router = place.path().join("edge-1");
    let full = text(1, false, &[line(1, "established", ""), line(2, "syn_sent", ""), line(3, "established", "")]);
    write(&router, "flows-20260101T000010Z.ndjson", &full);
    let found = places(&[place.path().to_path_buf()]).unwrap();
    assert_eq!(found.iter().map(|place| place.router.as_str()).collect::<Vec<_>>(), ["edge-1"]);
    let newest = || found[0].newest();
    let list = newest().unwrap().unwrap();
    let facts = &list.facts;
    assert_eq!((facts.list.id.interval, facts.list.interval_ns(), facts.is_restarted), (1, 10_000_000_000, false));
    assert!(list.facts.written.elapsed().unwrap_or_default() < Duration::from_secs(60));
    assert_eq!(clients(list), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let changes = [line(0, "established", "opened"), line(3, "closed", "closed")];
    write(&router, "changes-20260101T000020Z.ndjson", &text(2, true, &changes));
    let changes = [line(4, "established", "opened"), line(5, "established", "opened")];
    write(&router, "changes-20260101T000030Z.ndjson", &text(3, true, &changes));
    let list = newest().unwrap().unwrap();
    assert_eq!(list.facts.list.id.interval, 3);
    assert_eq!(clients(list), ["10.0.0.0", "10.0.0.1", "10.0.0.4", "10.0.0.5"]);
    fs::remove_file(router.join("changes-20260101T000020Z.ndjson")).unwrap();
    assert!(newest().err().unwrap().to_string().ends_with("do not build on the list before them"));
    fs::remove_file(router.join("flows-20260101T000010Z.ndjson")).unwrap();
    assert!(newest().err().unwrap().to_string().contains("build on is gone"));
}

#[test]
fn a_router_that_began_anew_is_marked() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "flows-20260101T000050Z.ndjson", &text(5, false, &[]));
    write(place.path(), "flows-20260101T000055Z.ndjson", &text(1, false, &[]));
    let found = places(&[place.path().to_path_buf()]).unwrap();
    assert!(found[0].newest().unwrap().unwrap().facts.is_restarted);
}

#[test]
fn what_is_no_list_is_refused_and_what_is_not_there_is_none() {
    let place = tempfile::tempdir().unwrap();
    let found = |name: &str| Place { router: name.to_owned(), directory: place.path().join(name) };
    fs::create_dir(place.path().join("empty")).unwrap();
    assert!(found("empty").newest().unwrap().is_none());
    assert!(found("absent").newest().is_err());
    for (name, text) in [
        ("garbage", "garbage\n".to_owned()),
        ("merged", text(1, false, &[]).replace("\"flows\"", "\"routers\":2,\"flows\"")),
        ("joined", text(1, false, &[]).replace("\"flows\"", "\"routers\":[],\"flows\"")),
    ] {
        write(&place.path().join(name), "flows-20260101T000010Z.ndjson", &text);
        assert!(found(name).newest().is_err(), "{name}");
    }
    let line = line(1, "established", "");
    for (name, text) in [
        ("short", text(1, false, &[line.clone(), line.clone()]).replacen(&line, "", 1)),
        ("long", text(1, false, std::slice::from_ref(&line)) + &line),
        ("state", text(1, false, &[line.replace("established", "open")])),
        ("time", text(1, false, &[line.replace("T00:00:01.0", "x")])),
    ] {
        write(&place.path().join(name), "flows-20260101T000010Z.ndjson", &text);
        let list = found(name).newest().unwrap().unwrap();
        assert!(list.rows().any(|row| row.is_err()), "{name}");
    }
}

/// Makes all directories look as if they had changed a while ago.
fn settle(directory: &Path) {
    let earlier = SystemTime::now() - Duration::from_secs(60);
    File::open(directory).unwrap().set_modified(earlier).unwrap();
    let below = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    below.filter(|path| path.is_dir()).for_each(|path| settle(&path));
}

#[test]
fn a_list_in_the_directory_of_an_hour_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let place = Place { router: "edge".to_owned(), directory: root.path().to_path_buf() };
    let mut mark = place.mark(&Mark::default()).unwrap();
    let times = ["20260101T080000Z", "20260101T081000Z", "20260101T090000Z", "20260102T000000Z"];
    for (at, time) in times.into_iter().enumerate() {
        let name = ListName::parse(&format!("flows-{time}.parquet")).unwrap();
        let path = root.path().join(name.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        let newer = place.mark(&mark).unwrap();
        assert!(newer.is_other(&mark), "{time}");
        assert_eq!(names(root.path()).unwrap().len(), at + 1);
        settle(root.path());
        // The second look may still read the names: of the third nothing but times is asked.
        mark = place.mark(&place.mark(&newer).unwrap()).unwrap();
        assert!(!mark.is_other(&newer) && mark.directories_changed.len() == 3, "{mark:?}");
        assert_eq!(place.mark(&mark).unwrap(), mark);
    }
    // A file of another format does not belong there, and is none of the lists.
    fs::write(root.path().join("date=2026-01-02/hour=00/flows-20260102T001000Z.ndjson"), "").unwrap();
    assert_eq!(names(root.path()).unwrap().len(), times.len());
    fs::remove_dir_all(root.path().join("date=2026-01-02")).unwrap();
    assert!(place.mark(&mark).unwrap().is_other(&mark));
}
