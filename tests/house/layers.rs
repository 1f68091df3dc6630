//! The rules of the source that the compiler does not check: imports point down, unsafe code stays where it is named,
//! and every file says what it is.

use std::fs;
use std::path::Path;

/// The rooms of src from the ground up: a room imports only those before it, or beside it.
const ROOMS: [&[&str]; 26] = [
    &["error"],
    &["disk", "serving"],
    &["state"],
    &["flow"],
    &["parse"],
    &["capture"],
    &["signal"],
    &["queue"],
    &["handover"],
    &["sources"],
    &["track", "record"],
    &["snapshot"],
    &["list"],
    &["kernel"],
    &["select"],
    &["view"],
    &["export"],
    &["agent"],
    &["archive"],
    &["metrics"],
    &["event_log"],
    &["audit"],
    &["engine"],
    &["run"],
    &["cli"],
    &["main"],
];

/// Rooms that import less than stands below them.
const CLOSED: [(&str, &[&str]); 3] = [
    // Packets as they come: what they hold is for the rooms above.
    ("capture", &["error", "parse"]),
    // It knows nothing of those who save.
    ("disk", &["error"]),
    // It knows what is counted, and no addresses: of the list, its header.
    ("metrics", &["error", "serving", "parse", "signal", "handover", "list", "snapshot"]),
];

/// The files with unsafe code, each with the reason.
const UNSAFE: [&str; 8] = [
    // A packed cell is laid out as the words that it consists of, which memory in huge pages needs to know.
    "crates/iblt/src/cell/packed.rs",
    // Memory in huge pages of which several owners have a part each: the standard library has neither.
    "crates/lines/src/lines.rs",
    // A prefetch cannot fault, and there is no safe one.
    "crates/lines/src/prefetch.rs",
    // Which types memory of zeros makes.
    "crates/lines/src/row.rs",
    // Memory that the kernel writes to: no established crate with a permissive licence reads such a ring.
    "src/capture/live/ring_memory.rs",
    // Options of packet sockets and questions about interfaces, for which no crate has a safe wrapper.
    "src/capture/live/socket_options.rs",
    // An allocator is unsafe by its nature.
    "src/cli/allocator.rs",
    // Signals that are to stay ignored, which no crate in use reads or sets without.
    "src/cli/ignored_signals.rs",
];

/// How a file declares tests that stand in a file of their own.
const TESTS_APART: &str = "#[cfg(test)]\nmod tests;";

/// Names that say nothing.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "tools"];

/// The longest line of a comment, which rustfmt does not wrap.
const COLUMNS_MAX: usize = 120;

/// The path and the text of every Rust file below a folder of the project.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    for entry in entries.into_iter().flatten().map(Result::unwrap) {
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(sources(&path));
        } else if path.ends_with(".rs") {
            found.push((path, fs::read_to_string(entry.path()).unwrap()));
        }
    }
    found
}

fn room(name: &str) -> Option<usize> {
    ROOMS.iter().position(|names| names.contains(&name))
}

/// The objections to the imports of a file of src, given its path below src.
fn import_violations(path: &str, text: &str) -> Vec<String> {
    let own = path.split(['/', '.']).next().unwrap();
    let depth = path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').count();
    // Tests within a file stand at its end.
    let tests = text.match_indices("#[cfg(test)]\nmod ").find(|(at, _)| !text[*at..].starts_with(TESTS_APART));
    let shipped = &text[..tests.map_or(text.len(), |(at, _)| at)];
    let mut violations = Vec::new();
    for (number, line) in (1..).zip(shipped.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
        let mut object = |why: &str| violations.push(format!("src/{path}:{number}: {why}: {}", line.trim()));
        if line.contains("crate::{") || line.contains("crate::*") || line.contains(&"super::".repeat(depth)) {
            object("name the room, one in a line");
        }
        let names = line.split("crate::").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_'));
        for name in
            names.filter_map(|mut words| words.next()).filter(|name| !name.is_empty() && room(name) != room(own))
        {
            let is_closed = CLOSED.iter().any(|(closed, open)| *closed == own && !open.contains(&name));
            if room(name).is_none() || room(own).is_none() || room(name) > room(own) || is_closed {
                object("this room is not below");
            }
        }
    }
    violations
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn imports_point_down() {
    let is_shipped = |path: &str| !path.ends_with("tests.rs") && !path.contains("/tests/") && path != "src/lib.rs";
    let sources = sources("src").into_iter().filter(|(path, _)| is_shipped(path));
    assert_none(&sources.flat_map(|(path, text)| import_violations(&path[4..], &text)).collect::<Vec<_>>());
    let bad = ["use crate::cli::X;", "use crate::{flow::A, cli::B};", "use super::signal::X;", "use crate::nobody::X;"];
    assert!(bad.iter().all(|text| import_violations("parse/mod.rs", text).len() == 1));
    assert_none(&import_violations("parse/tcp.rs", "use crate::flow::X;\nuse super::Y;\n// crate::cli"));
}

#[test]
fn unsafe_code_is_where_it_is_named() {
    let files = ["src", "crates"].map(sources).concat().into_iter();
    let mut found: Vec<_> =
        files.filter(|(_, text)| text.contains("allow(unsafe_code)")).map(|(path, _)| path).collect();
    found.sort();
    assert_eq!(found, UNSAFE);
}

#[test]
fn files_say_what_they_are_in_lines_that_fit() {
    let mut violations = Vec::new();
    for (path, text) in ["src", "crates", "tests", "benches", "examples"].map(sources).concat() {
        if !text.starts_with("//! ") {
            violations.push(format!("{path} does not open with a //! comment that says what it is"));
        }
        if path.split(['/', '.']).any(|name| EMPTY_NAMES.contains(&name)) {
            violations.push(format!("{path} has a name that says nothing"));
        }
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > COLUMNS_MAX) {
            // The row of a table cannot be wrapped.
            let comment = line.trim_start().strip_prefix("//").map(|line| line.trim_start_matches(['/', '!', ' ']));
            if comment.is_some_and(|comment| !comment.starts_with('|')) {
                violations.push(format!("{path}:{number} has over {COLUMNS_MAX} columns"));
            }
        }
    }
    assert_none(&violations);
}
