//! The events of shared captures against what the packets of their truth say: every connection ends once, when and how
//! they say.

use super::{CAPTURES, files, shared_captures};
use crate::support::command::replay;
use crate::support::say::say;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

/// A tick of flowpeel's time: events have times to 100 ms.
const TICKS_PER_S: i64 = 10;

/// Both ends of a connection, client first.
type Ends = [SocketAddr; 2];

/// A connection as the truth or the events have it: when it started and ended, in ticks since 1970, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Course {
    start: i64,
    /// `None` of one that was open at the end of the capture.
    end: Option<(i64, String)>,
}

/// The tick of a time stamp of tshark's, seconds with nine decimals.
fn tick(stamp: &Value) -> i64 {
    let (seconds, fraction) = stamp.as_str().unwrap().split_once('.').unwrap();
    seconds.parse::<i64>().unwrap() * TICKS_PER_S + fraction[..1].parse::<i64>().unwrap()
}

fn ends(conversation: &Value) -> Ends {
    ["client", "server"].map(|side| {
        let end = &conversation[side];
        SocketAddr::new(end[0].as_str().unwrap().parse().unwrap(), end[1].as_u64().unwrap() as u16)
    })
}

/// What the packets of a conversation say: `Ok(None)` if no handshake was completed.
///
/// # Errors
///
/// They can be read in more than one way.
fn course(conversation: &Value) -> Result<Option<Course>, ()> {
    let count = |field: &str| conversation[field].as_u64().unwrap_or(0);
    let packets = conversation["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_repeated = conversation["isns"]["c2s"].as_array().is_some_and(|isns| isns.len() > 1);
    let is_odd = count("syn_after_close") + count("syn_with_fin_or_rst") > 0
        || conversation["simultaneous_open"] == true
        || is_repeated
        || packets.windows(2).any(|pair| tick(&pair[1][1]) < tick(&pair[0][1]));
    // flowpeel counts such a tunnel as one that is not opened.
    let is_in_l2tp = conversation["protocols_first_frame"].as_str().is_some_and(|names| names.contains(":l2tp:"));
    if is_odd || is_in_l2tp {
        return Err(());
    }
    let (mut start, mut is_answered, mut end) = (None, false, None);
    let mut finished = BTreeSet::new();
    for packet in packets {
        let (when, way, flags) = (tick(&packet[1]), packet[2].as_str().unwrap(), packet[3].as_str().unwrap());
        match flags {
            _ if end.is_some() => {}
            _ if flags.contains('R') => end = Some((when, "rst")),
            _ if flags.contains('S') && flags.contains('A') => is_answered = true,
            _ if flags.contains('S') => start = start.or(Some(when)),
            _ if flags.contains('F') => {
                finished.insert(way);
                if finished.len() == 2 {
                    end = Some((when, "fin"));
                }
            }
            _ => {}
        }
    }
    let Some(start) = start else { return if is_answered { Err(()) } else { Ok(None) } };
    let sent = conversation["packets"]["c2s"].as_u64().unwrap();
    let flagged = packets.iter().filter(|packet| packet[2] == "c2s").count() as u64;
    if !is_answered || sent <= flagged && !finished.contains("c2s") {
        return Ok(None);
    }
    Ok(Some(Course { start, end: end.map(|(when, how)| (when, how.to_owned())) }))
}

/// The connections of a truth by their ends, without the ends of which something can be read in more than one way.
fn expected(truth: &Value) -> (BTreeMap<Ends, Vec<Course>>, BTreeSet<Ends>) {
    let (mut courses, mut doubtful) = (BTreeMap::<Ends, Vec<Course>>::new(), BTreeSet::new());
    for conversation in truth["conversations"].as_array().unwrap() {
        let key @ [client, server] = ends(conversation);
        match course(conversation) {
            Ok(course) => courses.entry(key).or_default().extend(course),
            Err(()) => doubtful.extend([key, [server, client]]),
        }
        // What takes the place of a connection that had not ended, and what one side means otherwise than the other.
        let is_open = |course: &Course| course.end.is_none();
        let before = courses.get(&key).map(Vec::as_slice).unwrap_or_default();
        if before.len() > 1 && before[..before.len() - 1].iter().any(is_open) || courses.contains_key(&[server, client])
        {
            doubtful.extend([key, [server, client]]);
        }
    }
    courses.retain(|key, courses| !courses.is_empty() && !doubtful.contains(key));
    (courses, doubtful)
}

/// The connections of a log by their ends: each closed as often as it was opened or reopened, or open at the end.
fn logged(text: &str) -> BTreeMap<Ends, Vec<Course>> {
    let time = |value: &Value| {
        let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
        time.as_nanosecond().div_euclid(1_000_000_000 / i128::from(TICKS_PER_S)) as i64
    };
    let mut open = BTreeSet::new();
    let mut courses = BTreeMap::<u64, (Ends, Course)>::new();
    for (number, line) in text.lines().enumerate() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["seq"], number + 1);
        let key = ["src", "dest"].map(|side| {
            let ip = event[format!("{side}_ip")].as_str().unwrap().parse().unwrap();
            SocketAddr::new(ip, event[format!("{side}_port")].as_u64().unwrap() as u16)
        });
        let flow = &event["flow"];
        let (id, start) = (event["flow_id"].as_u64().unwrap(), time(&flow["start"]));
        let reason = flow["reason"].as_str().map(str::to_owned);
        match event["change"].as_str().unwrap() {
            "opened" | "reopened" => assert!(open.insert(id), "opened twice: {event}"),
            "closed" => {
                assert!(open.remove(&id), "not open: {event}");
                courses.insert(id, (key, Course { start, end: Some((time(&flow["end"]), reason.unwrap())) }));
            }
            "unfinished" => {
                assert!(open.remove(&id), "not open: {event}");
                courses.insert(id, (key, Course { start, end: None }));
            }
            other => panic!("{other}"),
        }
    }
    assert!(open.is_empty(), "neither closed nor open at the end");
    let mut by_ends = BTreeMap::<Ends, Vec<Course>>::new();
    courses.into_values().for_each(|(key, course)| by_ends.entry(key).or_default().push(course));
    by_ends.values_mut().for_each(|courses| courses.sort());
    by_ends
}

/// Compares the events of a capture with its truth. Returns how many connections were compared, and differences.
fn compare(capture: &Path, log: &Path) -> (usize, Vec<String>) {
    let name = capture.file_name().unwrap().to_str().unwrap();
    let truth = std::fs::read(capture.with_file_name(format!("{name}.truth.json"))).unwrap();
    let truth: Value = serde_json::from_slice(&truth).unwrap();
    let summary = |field: &str| truth["summary"][field].as_u64().unwrap_or(0);
    let words = ["-q", capture.to_str().unwrap(), "--events-open", "--events", log.to_str().unwrap()];
    if replay(words).stdout.is_empty() || summary("tcp_truncated_header") > 0 {
        return (0, Vec::new());
    }
    let (exact, doubtful) = expected(&truth);
    let mut found = logged(&std::fs::read_to_string(log).unwrap());
    // Where a clock leaps by more than a month nobody knows how much time has passed.
    let packet_times = truth["conversations"].as_array().unwrap().iter().map(|of| tick(&of["t_first_packet"]));
    let mut starts: Vec<_> = packet_times.collect();
    starts.sort_unstable();
    let leaps = starts.windows(2).any(|pair| pair[1] - pair[0] > 30 * 86_400 * TICKS_PER_S);
    let has_times = summary("backward_timestamps") == 0 && !leaps;
    let (mut count, mut differences) = (0, Vec::new());
    for (ends, mut courses) in exact {
        let mut found = found.remove(&ends).unwrap_or_default();
        count += courses.len();
        if !has_times {
            let timeless = |course: &mut Course| {
                course.start = 0;
                course.end.iter_mut().for_each(|end| end.0 = 0);
            };
            found.iter_mut().for_each(timeless);
            courses.iter_mut().for_each(timeless);
        }
        courses.sort();
        if found != courses {
            differences.push(format!("{name}: {ends:?}: {found:?} and not {courses:?}"));
        }
    }
    let surplus = found.keys().filter(|ends| !doubtful.contains(*ends));
    differences.extend(surplus.map(|ends| format!("{name}: {ends:?} is in no truth")));
    (count, differences)
}

#[test]
fn events_of_shared_captures_are_what_their_packets_say() {
    let Some(directory) = shared_captures("the comparison of events") else { return };
    let place = tempfile::tempdir().unwrap();
    let (mut count, mut differences) = (0, Vec::new());
    for (number, capture) in files(&directory, &CAPTURES).iter().enumerate() {
        let (compared, different) = compare(capture, &place.path().join(format!("{number}.ndjson")));
        count += compared;
        differences.extend(different);
    }
    say(&format!("captures: events of {count} connections compared with the truth"));
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(count > 500, "{count}");
}
