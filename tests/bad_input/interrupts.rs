//! Ctrl-C and SIGTERM: the first ends the run with a list of what was read, the second ends it at once.

use crate::captures::{opening, pcap};
use crate::command::{Ended, FLOWPEEL, Running, command};
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Sends SIGINT to one process, and gives it time to notice.
fn interrupt(child: &Child) {
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    std::thread::sleep(Duration::from_millis(300));
}

/// A replay of a pipe that is told to end when it has read half of what is to come.
fn interrupted(interrupt: impl FnOnce(&Child)) -> Ended {
    let mut command = command(FLOWPEEL, ["replay", "-"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut pipe = running.child.stdin.take().unwrap();
    let frames: Vec<_> = (1..10_000).flat_map(opening).collect();
    let bytes = pcap(&frames);
    let (before, after) = bytes.split_at(bytes.len() / 2);
    pipe.write_all(before).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&running.child);
    // The pipe may be closed at any time from now on, and the capture goes on without an end.
    while pipe.write_all(after).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.wait()
}

/// What was read is listed, as after any interrupt.
fn assert_listed(ended: &Ended) {
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    assert!(ended.errors().is_empty(), "{}", ended.stderr);
    assert!(ended.stderr.contains("warning: interrupted: what was read before is listed"), "{}", ended.stderr);
    let lists = ended.lists();
    assert_eq!(lists.len(), 1);
    assert!(lists[0].count("flows") > 4_000, "{}", lists[0].header);
}

#[test]
fn the_first_lists_what_was_read() {
    assert_listed(&interrupted(interrupt));
}

#[cfg(target_os = "linux")]
#[test]
fn a_hangup_that_was_ignored_ends_nothing() {
    let mut command = command("sh", ["-c", "trap '' HUP; exec \"$0\" replay -", FLOWPEEL]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut pipe = running.child.stdin.take().unwrap();
    let frames: Vec<_> = (1..10_000).flat_map(opening).collect();
    let bytes = pcap(&frames);
    let (before, after) = bytes.split_at(bytes.len() / 2);
    pipe.write_all(before).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        std::process::Command::new("kill").args(["-HUP", &running.child.id().to_string()]).status().unwrap().success()
    );
    std::thread::sleep(Duration::from_millis(300));
    pipe.write_all(after).unwrap();
    drop(pipe);
    let ended = running.wait();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.lists()[0].count("flows"), 9_999);
}

#[test]
fn one_that_comes_twice_at_once_is_the_first() {
    // As `timeout` does: the child, then the group that it is in.
    assert_listed(&interrupted(|child| {
        let twice = format!("kill -TERM {0}; sleep 0.001; kill -TERM {0}", child.id());
        assert!(std::process::Command::new("sh").args(["-c", &twice]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(300));
    }));
}

#[test]
fn the_second_ends_at_once() {
    let mut command = command(FLOWPEEL, ["replay", "-"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let pipe = running.child.stdin.take();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&running.child);
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(running.child.try_wait().unwrap().is_none(), "it waits for its input");
    interrupt(&running.child);
    let ended = running.wait();
    drop(pipe);
    assert_eq!(ended.status, Some(130));
    assert!(ended.stdout.is_empty());
    assert_eq!(ended.errors(), ["error: ended at once by a second signal; what was not written yet is lost"]);
    assert!(ended.stderr.contains("warning: stopping when more input comes"), "{}", ended.stderr);
}
