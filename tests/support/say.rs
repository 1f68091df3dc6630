//! Telling people something past the test harness, which captures what passing tests print.

use std::io::Write;

/// Writes a line to standard error, past the harness.
pub(crate) fn say(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Says that the test that calls it is skipped, or a part of it, and why.
pub(crate) fn skipped(reason: &str) {
    // The harness runs each test on a thread with the test's name, unless there is one thread for all.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("a test");
    say(&format!("{test} is skipped: {reason}"));
}
