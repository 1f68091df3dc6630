//! Points of generated headers.

use super::*;
use std::fs;
use std::path::Path;

const SECOND_NS: i64 = 1_000_000_000;

/// 2026-01-01 in seconds since 1970.
const DAY_S: i64 = 1_767_225_600;

fn list(directory: &Path, router: &str, end_s: u32, fields: &str) {
    let time = |end_s: u32| format!("2026-01-01T00:{:02}:{:02}.000000Z", end_s / 60, end_s % 60);
    let directory = directory.join(router);
    fs::create_dir_all(&directory).unwrap();
    let (kind, fields) = if fields.contains("partitions") { ("flow_part", fields) } else { ("flow_list", fields) };
    let header = format!(
        "{{\"{kind}\":{{\"interval\":{end_s},\"start\":\"{}\",\"end\":\"{}\",{fields}}}}}\n",
        time(end_s - 10),
        time(end_s)
    );
    fs::write(directory.join(format!("flows-20260101T00{:02}{:02}Z.ndjson", end_s / 60, end_s % 60)), header).unwrap();
}

fn read(history: &mut History, directories: &[&Path]) {
    let directories: Vec<_> = directories.iter().map(|directory| directory.to_path_buf()).collect();
    let places = newest::places(&directories).unwrap();
    for place in &places {
        let news = history.look(place, places.len()).unwrap();
        history.take(news);
    }
    history.keep(&places);
}

fn span(router: Option<&str>, point_count: usize) -> Span {
    Span { router: router.map(str::to_owned), since_ns: None, until_ns: None, point_count }
}

fn ends(course: &Course) -> Vec<i64> {
    course.points.iter().map(|point| point.end_ns / SECOND_NS - DAY_S).collect()
}

#[test]
fn routers_are_added_up_step_by_step() {
    let place = tempfile::tempdir().unwrap();
    for end_s in (10..=60).step_by(10) {
        let complete = end_s != 30;
        list(
            place.path(),
            "a",
            end_s,
            &format!(
                "\"flows\":{end_s},\"half_open\":1,\"opened\":5,\"closed\":2,\"complete\":{complete},\"missing\":{}",
                u8::from(!complete)
            ),
        );
        if end_s != 60 {
            list(
                place.path(),
                "b",
                end_s,
                "\"flows\":7,\"half_open\":0,\"opened\":1,\"closed\":1,\"complete\":true,\"dropped\":3",
            );
        }
    }
    let mut history = History::default();
    read(&mut history, &[place.path()]);
    let course = history.course(&span(None, 100));
    assert_eq!((course.step_ns, course.routers), (10 * SECOND_NS, 2));
    assert_eq!(course.kept_since_ns, Some(DAY_S * SECOND_NS));
    // The sixth list of b is still to come.
    assert_eq!(ends(&course), [10, 20, 30, 40, 50]);
    let third = Point {
        end_ns: (DAY_S + 30) * SECOND_NS,
        open: 37,
        half_open: 1,
        opened: 6,
        closed: 3,
        missing: 1,
        dropped: 3,
        is_complete: false,
        routers: 2,
    };
    assert_eq!(course.points[2], third);
    assert!(course.points[3].is_complete);
    assert_eq!(ends(&history.course(&span(Some("a"), 100))), [10, 20, 30, 40, 50, 60]);
    assert!(history.course(&span(Some("c"), 100)).points.is_empty());
    // In steps of two intervals: the later list says what is open, and both what came and went.
    let course = history.course(&span(Some("a"), 4));
    assert_eq!((course.step_ns, ends(&course)), (20 * SECOND_NS, vec![20, 40, 60]));
    assert_eq!((course.points[1].open, course.points[1].opened, course.points[1].missing), (40, 10, 0));
    assert!(!course.points[1].is_complete);
    let later =
        Span { since_ns: Some((DAY_S + 20) * SECOND_NS), until_ns: Some((DAY_S + 40) * SECOND_NS), ..span(None, 9) };
    assert_eq!(ends(&history.course(&later)), [30, 40]);
}

#[test]
fn parts_of_a_list_are_one() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    list(
        one.path(),
        "a",
        10,
        "\"flows\":4,\"half_open\":1,\"opened\":9,\"closed\":3,\"complete\":true,\"partitions\":[0,2,4,6]",
    );
    list(
        other.path(),
        "a",
        10,
        "\"flows\":5,\"half_open\":2,\"opened\":9,\"closed\":3,\"complete\":false,\"missing\":2,\"partitions\":[1,3,5,7]",
    );
    let mut history = History::default();
    read(&mut history, &[one.path(), other.path()]);
    let course = history.course(&span(None, 10));
    let [point] = course.points[..] else { panic!("{course:?}") };
    assert_eq!((course.routers, point.routers, point.open, point.half_open), (1, 1, 9, 3));
    assert_eq!((point.opened, point.closed, point.missing, point.is_complete), (9, 3, 2, false));
    let mut history = History::default();
    read(&mut history, &[one.path()]);
    assert!(!history.course(&span(None, 10)).points[0].is_complete, "half of the partitions are not all");
}

#[test]
fn what_is_gone_or_no_list_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    for end_s in [10, 20, 30] {
        list(place.path(), "a", end_s, "\"flows\":1,\"half_open\":0");
    }
    let first = place.path().join("a/flows-20260101T000010Z.ndjson");
    fs::write(&first, "no list").unwrap();
    let mut history = History::default();
    read(&mut history, &[place.path()]);
    assert_eq!(ends(&history.course(&span(None, 10))), [20, 30]);
    fs::remove_file(first).unwrap();
    fs::remove_file(place.path().join("a/flows-20260101T000020Z.ndjson")).unwrap();
    read(&mut history, &[place.path()]);
    assert_eq!(ends(&history.course(&span(None, 10))), [30]);
    history.keep(&[]);
    assert_eq!(history.course(&span(None, 10)), Course { step_ns: 1, kept_since_ns: None, routers: 0, points: vec![] });
}

#[test]
fn however_far_lists_are_apart_points_are_few() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("a");
    fs::create_dir_all(&directory).unwrap();
    for (year, second) in [("1700", 1), ("1999", 2), ("2026", 3), ("2026", 4), ("2200", 5)] {
        let end = format!("{year}-01-01T00:00:0{second}.000000Z");
        let header = format!(
            "{{\"flow_list\":{{\"interval\":{second},\"start\":\"{year}-01-01T00:00:00Z\",\"end\":\"{end}\",\"flows\":{},\"half_open\":0}}}}\n",
            u64::MAX
        );
        fs::write(directory.join(format!("flows-{year}0101T00000{second}Z.ndjson")), header).unwrap();
    }
    let mut history = History::default();
    read(&mut history, &[place.path()]);
    for count in [1, 2, 3, POINT_COUNT_MAX] {
        let course = history.course(&span(None, count));
        assert!((1..=count.max(2)).contains(&course.points.len()), "{count}: {course:?}");
    }
}
