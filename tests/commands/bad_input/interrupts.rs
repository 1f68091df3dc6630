//! Ctrl-C and SIGTERM: the first ends the run with a list of what was read, the second ends it at once.

use crate::support::captures::{opening, pcap};
use crate::support::command::{Ended, FLOWPEEL, Running, command};
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// Sends a signal to one process.
fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// A run of 9,999 connections from a pipe.
struct HalfRead {
    running: Running,
    pipe: ChildStdin,
    /// The half that is still to come.
    rest: Vec<u8>,
}

impl HalfRead {
    /// Starts a replay of standard input and writes the first half of the capture. A pipe holds far less, so the replay
    /// is at it when this is back, and catches signals.
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut pipe = running.child.stdin.take().unwrap();
        let frames: Vec<_> = (1..10_000).flat_map(opening).collect();
        let mut bytes = pcap(&frames);
        // Behind a whole packet, so that the rest may come again and again.
        let rest = bytes.split_off(pcap(&frames[..frames.len() / 2]).len());
        pipe.write_all(&bytes).unwrap();
        HalfRead { running, pipe, rest }
    }
}

/// A replay with these options that is asked to end when it has read half of what is to come.
fn interrupted(options: &[&str], interrupt: impl FnOnce(&Child)) -> Ended {
    let mut command = command(FLOWPEEL, ["replay", "-"]);
    command.args(options);
    let HalfRead { running, mut pipe, rest } = HalfRead::start(command);
    interrupt(&running.child);
    // The pipe may be closed at any time from now on, and the capture goes on without an end.
    while pipe.write_all(&rest).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.wait()
}

/// What was read is listed, as after any interrupt.
fn assert_listed(ended: &Ended) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.errors().is_empty(), "{}", ended.stderr);
    let lists = ended.lists();
    assert_eq!(lists.len(), 1);
    assert!(lists[0].count("flows") > 4_000, "{}", lists[0].header);
}

const WARNING: &str = "warning: interrupted: what was read before is listed";

#[test]
fn the_first_lists_what_was_read() {
    let ended = interrupted(&[], |child| send("-INT", child));
    assert_listed(&ended);
    assert!(ended.stderr.contains(WARNING), "{}", ended.stderr);
}

#[test]
fn a_quiet_run_that_ends_early_says_nothing() {
    let ended = interrupted(&["-q"], |child| send("-INT", child));
    assert_listed(&ended);
    assert_eq!(ended.stderr, "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_hangup_that_was_ignored_ends_nothing() {
    let command = command("sh", ["-c", "trap '' HUP; exec \"$0\" replay -", FLOWPEEL]);
    let HalfRead { running, mut pipe, rest } = HalfRead::start(command);
    send("-HUP", &running.child);
    // If it did end it, it would do so before the rest comes.
    std::thread::sleep(Duration::from_millis(300));
    pipe.write_all(&rest).unwrap();
    drop(pipe);
    let ended = running.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.lists()[0].count("flows"), 9_999);
}

#[test]
fn one_that_comes_twice_at_once_is_the_first() {
    // As `timeout` does: the child, then the group that it is in.
    let ended = interrupted(&[], |child| {
        let twice = format!("kill -TERM {0}; sleep 0.001; kill -TERM {0}", child.id());
        assert!(Command::new("sh").args(["-c", &twice]).status().unwrap().success());
    });
    assert_listed(&ended);
    assert!(ended.stderr.contains(WARNING), "{}", ended.stderr);
}

#[test]
fn the_second_ends_at_once() {
    let mut command = command(FLOWPEEL, ["replay", "-"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let pipe = running.child.stdin.take();
    std::thread::sleep(Duration::from_millis(300));
    send("-INT", &running.child);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(running.child.try_wait().unwrap().is_none(), "it waits for its input");
    send("-INT", &running.child);
    let ended = running.wait();
    drop(pipe);
    assert_eq!(ended.status.code(), Some(130));
    assert!(ended.stdout.is_empty());
    assert_eq!(ended.errors(), ["error: ended at once by a second signal; what was not written yet is lost"]);
    assert!(ended.stderr.contains("warning: stopping when more input comes"), "{}", ended.stderr);
}
