//! More events than a destination takes: whoever records waits for nothing, memory has its bound, and every event is
//! written or counted as lost, in the log too.

use super::*;
use crate::flow::{AnyKey, VlanTags};
use crate::record::Recorder;
use crate::signal::{PARTITION_COUNT, TimeBase};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const EVENT_COUNT: u64 = 1_000_000;

/// Records a million ends of connections for a live log with this destination, as fast as they can be. Returns how many
/// were written and lost.
fn overload(destination: &str) -> [u64; 2] {
    overload_with(destination, EVENT_COUNT, |_| {})
}

/// Records so many, and calls `observe` with how many there were after each tenth of them.
fn overload_with(destination: &str, event_count: u64, mut observe: impl FnMut(u64)) -> [u64; 2] {
    let log = EventLog::start(EventLogConfig {
        destinations: vec![destination.parse().unwrap()],
        openings: false,
        rotation: Rotation::default(),
        is_live: true,
        saved: None,
        reopens: Arc::default(),
        counts: Arc::default(),
        warn: Box::new(|_| {}),
    })
    .unwrap();
    let base = TimeBase { first_tick: 1 << 20, offset_ns: 1_767_225_600_000_000_000 };
    let mut recorders: Vec<_> = (0..PARTITION_COUNT).map(|index| Recorder::new(index, log.inlet())).collect();
    recorders.iter_mut().for_each(|recorder| recorder.start_base(base));
    for index in 0..event_count {
        let client = SocketAddr::from(((index as u32).to_be_bytes(), 40_000));
        let key = AnyKey::of_ends(client, ([192, 0, 2, 1], 443).into(), VlanTags::NONE).unwrap();
        let recorder = &mut recorders[index as usize % PARTITION_COUNT];
        recorder.record(key, 0, Some(Ending::Fin), None, base.first_tick + index / 10_000);
        if (index + 1).is_multiple_of(event_count / 10) {
            observe(index + 1);
        }
    }
    recorders.iter_mut().for_each(Recorder::flush);
    drop(recorders);
    let counts = log.finish();
    [&counts.written, &counts.lost].map(|count| count.load(Ordering::Relaxed))
}

/// The events in these lines, and those that the lines say are lost: all from the number that is expected next on,
/// which is moved.
fn count(text: &str, next: &mut u64) -> [u64; 2] {
    let mut counts = [0; 2];
    // A line may be cut where a stream broke.
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    for line in whole.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["event_type"] == "flow_loss" {
            let lost = line["flow_loss"]["lost"].as_u64().unwrap();
            *next += lost;
            counts[1] += lost;
            assert_eq!(line["flow_loss"]["seq"], *next);
        } else {
            assert_eq!(line["seq"], *next);
            *next += 1;
            counts[0] += 1;
        }
    }
    counts
}

#[test]
fn what_a_file_gets_and_what_is_said_to_be_lost_is_all() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("events.ndjson");
    let [written, lost] = overload(path.to_str().unwrap());
    assert_eq!(written + lost, EVENT_COUNT);
    let mut next = 1;
    let [found, said] = count(&fs::read_to_string(path).unwrap(), &mut next);
    assert_eq!(found, written);
    // What is lost behind the last line is in the counts alone.
    assert!(found > 0 && said <= lost && next - 1 == found + said, "{found} {said} {lost}");
}

#[test]
fn a_reader_that_sleeps_costs_what_it_does_not_take() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("receiver");
    let listener = UnixListener::bind(&path).unwrap();
    let [written, lost] = overload(&format!("unix:{}", path.display()));
    assert_eq!(written + lost, EVENT_COUNT);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert!(text.len() < pending::PENDING_SIZE_MAX, "what is in the socket's own buffer");
    let [found, _] = count(&text, &mut 1);
    // The line that the socket has taken in part counts as written.
    assert!(found > 0 && (found..=found + 1).contains(&written), "{found} {written}");
}

#[test]
fn a_full_disk_and_a_receiver_that_is_not_there_cost_everything() {
    for destination in ["/dev/full", "unix:/nonexistent/receiver"] {
        if destination != "/dev/full" || Path::new(destination).exists() {
            assert_eq!(overload(destination), [0, EVENT_COUNT], "{destination}");
        }
    }
}

#[test]
fn a_receiver_that_comes_back_sees_what_it_has_missed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("receiver");
    let destination = format!("unix:{}", path.display());
    let listener = UnixListener::bind(&path).unwrap();
    let receiver = std::thread::spawn(move || {
        let mut first = vec![0; 100_000];
        let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
        stream.read_exact(&mut first).unwrap();
        drop((stream, listener));
        fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let mut second = String::new();
        listener.accept().unwrap().0.read_to_string(&mut second).unwrap();
        [String::from_utf8(first).unwrap(), second]
    });
    let [written, lost] = overload(&destination);
    assert_eq!(written + lost, EVENT_COUNT);
    let [first, second] = receiver.join().unwrap();
    let mut next = 1;
    let [found_before, said_before] = count(&first, &mut next);
    let again: Value = serde_json::from_str(second.lines().next().unwrap()).unwrap();
    let again = again["seq"]
        .as_u64()
        .or_else(|| Some(again["flow_loss"]["seq"].as_u64()? - again["flow_loss"]["lost"].as_u64()?));
    let missed = again.unwrap() - next;
    next += missed;
    let [found, said] = count(&second, &mut next);
    assert!(found_before > 0 && found > 0);
    // What was in the socket's own buffer when the receiver went away shows as a gap. Losses that were said there are
    // in the gap as well, and what was lost behind the last line is in the counts alone.
    let lost_behind = EVENT_COUNT + 1 - next;
    let lost_in_gap = lost.checked_sub(said_before + said + lost_behind).expect("no more is said to be lost than was");
    let gone = missed.checked_sub(lost_in_gap).expect("the gap has room for what was lost in it");
    let line_size = first.len() / found_before as usize;
    assert!(gone as usize * line_size < pending::PENDING_SIZE_MAX, "{gone} lines of {line_size} bytes in a socket");
}

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Twenty million events into this destination: prints how fast they came and what the memory was after each tenth,
/// and asserts that it is flat from the second on and that every event is written or lost.
fn overload_for_long(name: &str, destination: &str) -> [u64; 2] {
    const LONG_COUNT: u64 = 20 * EVENT_COUNT;
    let began = std::time::Instant::now();
    let mut resident = Vec::new();
    let mut recorded = Duration::ZERO;
    let [written, lost] = overload_with(destination, LONG_COUNT, |_| {
        resident.push(resident_kib());
        recorded = began.elapsed();
    });
    let per_s = LONG_COUNT as f64 / recorded.as_secs_f64() / 1e6;
    println!("{name}: {per_s:.2}M events a second, {written} written, {lost} lost, KiB after each tenth {resident:?}");
    assert_eq!(written + lost, LONG_COUNT);
    let (least, most) = (resident[1..].iter().min().unwrap(), resident[1..].iter().max().unwrap());
    assert!(most - least < 2_048, "{resident:?}");
    [written, lost]
}

#[test]
#[ignore = "takes a minute and wants root: cargo test --lib event_log -- --ignored --nocapture --test-threads 1"]
fn a_million_events_a_second_leave_memory_flat_wherever_they_go() {
    let place = tempfile::tempdir().unwrap();
    overload_for_long("nobody there", "unix:/nonexistent/receiver");
    let path = place.path().join("slow");
    let listener = UnixListener::bind(&path).unwrap();
    let reader = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let (mut size, mut some) = (0, vec![0; 1 << 16]);
        while let Ok(count) = stream.read(&mut some)
            && count > 0
        {
            size += count;
            std::thread::sleep(Duration::from_millis(10));
        }
        size
    });
    overload_for_long("a slow reader", &format!("unix:{}", path.display()));
    println!("the slow reader took {} bytes", reader.join().unwrap());
    let path = place.path().join("vanishes");
    let listener = UnixListener::bind(&path).unwrap();
    let gone = path.clone();
    let reader = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
        fs::remove_file(gone).unwrap();
    });
    overload_for_long("a reader that goes away", &format!("unix:{}", path.display()));
    reader.join().unwrap();
    let full = place.path().join("full");
    fs::create_dir(&full).unwrap();
    let mount = |program: &str, words: &[&str]| {
        let path = full.to_str().unwrap();
        std::process::Command::new(program).args(words).arg(path).status().is_ok_and(|status| status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=32m", "none"]) {
        println!("skipped: a file system that fills, without root");
        return;
    }
    let file = full.join("events.ndjson");
    let [written, _] = overload_for_long("a disk that fills", file.to_str().unwrap());
    let text = fs::read_to_string(&file).unwrap();
    assert!(mount("umount", &[]));
    let [found, _] = count(&text, &mut 1);
    // The line that was cut where the disk was full counts as written.
    assert!(found > 0 && (found..=found + 1).contains(&written), "{found} {written}");
}

#[test]
fn a_directory_that_cannot_be_written_to_loses_what_its_file_had() {
    if !cfg!(feature = "parquet") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let events = place.path().join("events");
    let [written, lost] = overload(&format!("parquet:{}", events.display()));
    assert!(written > 0 && written + lost == EVENT_COUNT, "{written} {lost}");
    let files = |directory: &Path| {
        fs::read_dir(directory).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    assert_eq!(files(&events), 1, "one day");
    let mut is_gone = false;
    let [written, lost] = overload_with(&format!("parquet:{}", events.display()), EVENT_COUNT, |_| {
        // A file in the place of the directory, which may be made again meanwhile.
        if !std::mem::replace(&mut is_gone, true) {
            let mut moved = (0..).map(|number| place.path().join(format!("moved-{number}")));
            while fs::write(&events, "").is_err() {
                fs::rename(&events, moved.next().unwrap()).unwrap();
            }
        }
    });
    assert_eq!([written, lost], [0, EVENT_COUNT]);
}
