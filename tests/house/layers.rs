//! The rules of the source: imports point down only, and how every file has to look.

use super::source::{Source, all_sources, sources_below};

/// The modules from top to bottom. A module may import those of lower layers; of its own layer only what [`BESIDE`]
/// says.
const LAYERS: [&[&str]; 7] = [
    &["main", "cli"],
    &["run", "engine", "paper", "agent"],
    &["archive", "export", "list", "capture"],
    &["metrics", "generate", "shard", "record", "queue", "snapshot", "bfield_store"],
    &["connection", "sources", "signal"],
    &["parse", "sketch"],
    &["flow", "hash", "error", "prefetch", "lines", "interval", "state", "disk"],
];

/// The imports that are allowed within a layer. There can be no cycle, because each layer lists importers before the
/// imported.
const BESIDE: [(&str, &str); 15] = [
    ("main", "cli"),
    ("run", "engine"),
    ("archive", "export"),
    ("archive", "list"),
    ("export", "list"),
    ("shard", "record"),
    ("shard", "snapshot"),
    ("record", "queue"),
    ("queue", "snapshot"),
    ("connection", "signal"),
    ("sources", "signal"),
    // A hash of a flow key reads it as the words that it is made of.
    ("hash", "flow"),
    ("state", "error"),
    ("state", "disk"),
    ("disk", "error"),
];

/// Modules that may import less than their layer allows, with everything that they may import.
const ALONE: [(&str, &[&str]); 9] = [
    // Pure algorithms: they know keys and how to hash them, but no packets.
    ("sketch", &["flow", "hash", "prefetch", "lines"]),
    // Fields and their files: what the keys are is known to the layers above.
    ("bfield_store", &["sketch", "error", "disk"]),
    // Generated traffic tests the rest, so it must share nothing with it.
    ("generate", &["error"]),
    // Packets as they come: their contents are for the layers above.
    ("capture", &["parse", "error"]),
    // It knows only the files of a router, no packets and no threads.
    ("agent", &["export", "list", "snapshot", "signal", "flow", "hash", "error"]),
    // It knows what is counted, and no addresses.
    ("metrics", &["handover", "signal", "parse", "error"]),
    // The modules that save encode their own here; it knows none of them.
    ("disk", &["error"]),
    ("state", &["error", "disk"]),
    // It experiments with the tables and the list over them: no packets, no capture and no threads.
    (
        "paper",
        &["sketch", "list", "shard", "snapshot", "connection", "signal", "flow", "hash", "error", "config", "interval"],
    ),
];

/// The parts of `std` and of other crates that an algorithm does not need.
const NOT_IN_SKETCH: [(&str, &[&str]); 3] = [
    ("std::", &["thread", "sync", "fs", "net", "io", "path", "process", "env", "time", "os"]),
    ("crossbeam::", &[]),
    ("parking_lot::", &[]),
];

/// The only files with unsafe code, each with the reason.
const UNSAFE: [&str; 5] = [
    // A prefetch cannot fault, and there is no safe one.
    "prefetch.rs",
    // Memory in huge pages of which several owners have a part each: the standard library has neither.
    "lines.rs",
    // Memory that the kernel writes to: no established crate with a permissive licence reads such a ring.
    "capture/live/ring_memory.rs",
    // Options of packet sockets and questions about interfaces, for which no crate has a safe wrapper.
    "capture/live/socket_options.rs",
    // A signal that is to stay ignored, which no crate in use tells or sets without.
    "cli/hangup.rs",
];

const LINES_MAX: usize = 400;

/// The longest line of a comment, which rustfmt does not wrap.
const COLUMNS_MAX: usize = 120;

/// Longer files, each with the reason.
const LONG: [(&str, &str); 1] = [("config.rs", "every limit has its one home there")];

/// Names that say nothing.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "tools"];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Why `importer` may not import `imported`, if so.
fn objection(importer: &str, imported: &str) -> Option<String> {
    let (Some(from), Some(to)) = (layer_of(importer), layer_of(imported)) else {
        return Some("one of them has no layer".to_owned());
    };
    if let Some((_, allowed)) = ALONE.iter().find(|(module, _)| *module == importer)
        && !allowed.contains(&imported)
    {
        return Some(format!("{importer} imports {allowed:?} and nothing else"));
    }
    if from > to {
        return Some("that is a layer above".to_owned());
    }
    let is_beside = from == to && !BESIDE.contains(&(importer, imported));
    is_beside.then(|| "that is in the same layer".to_owned())
}

/// What is wrong with the imports of a source.
fn import_violations(source: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    let importer = source.module();
    for (line, imported) in source.own_modules() {
        if imported != importer
            && let Some(reason) = objection(importer, &imported)
        {
            violations.push(format!("src/{}:{line}: {importer} imports {imported}: {reason}", source.path));
        }
    }
    if importer == "sketch" {
        for (root, denied) in NOT_IN_SKETCH {
            let heads = source.heads_below(root).into_iter();
            for (line, head) in heads.filter(|(_, head)| denied.is_empty() || denied.contains(&head.as_str())) {
                violations.push(format!("src/{}:{line}: {root}{head} in a pure algorithm", source.path));
            }
        }
    }
    violations
}

/// What is wrong with a source as a file, tests included.
fn file_violations(source: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    let mut say = |what: &str| violations.push(format!("src/{}: {what}", source.path));
    if !source.text.starts_with("//! ") {
        say("does not open with a //! comment that says what it is");
    }
    if !UNSAFE.contains(&source.path.as_str()) && source.words().any(|word| word == "unsafe" || word == "unsafe_code") {
        say("has unsafe code");
    }
    let is_long = source.text.lines().count() > LINES_MAX;
    if is_long != LONG.iter().any(|(path, _)| *path == source.path) {
        say(if is_long { "has over 400 lines" } else { "is no longer long: strike it off the exceptions" });
    }
    if source.path.trim_end_matches(".rs").split('/').any(|name| EMPTY_NAMES.contains(&name)) {
        say("has a name that says nothing");
    }
    if source.words_without_tests().is_some_and(|mut words| words.any(|word| word == "tests")) {
        say("has tests that are not under #[cfg(test)]");
    }
    violations
}

/// The comments of a source in a folder that are too long. The row of a table cannot be wrapped.
fn comment_violations(folder: &str, source: &Source) -> Vec<String> {
    let is_prose = |line: &str| {
        let line = line.trim_start();
        line.starts_with("//") && !line.trim_start_matches(['/', '!', ' ']).starts_with('|')
    };
    let comments = (1..).zip(source.text.lines()).filter(|(_, line)| is_prose(line));
    let long = comments.filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    long.map(|(number, _)| format!("{folder}/{}:{number}: has over {COLUMNS_MAX} columns", source.path)).collect()
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn imports_point_down() {
    let violations: Vec<String> = all_sources().iter().flat_map(import_violations).collect();
    assert_none(&violations);
}

#[test]
fn files_are_as_they_should_be() {
    let sources = all_sources();
    assert!(sources.len() > 50);
    let violations: Vec<String> = sources.iter().flat_map(file_violations).collect();
    assert_none(&violations);
}

#[test]
fn a_module_of_several_files_stands_in_its_folder() {
    let sources = all_sources();
    let is_beside = |source: &&Source| {
        let folder = format!("{}/", source.path.trim_end_matches(".rs"));
        sources.iter().any(|other| other.path.starts_with(&folder))
    };
    let violations =
        sources.iter().filter(is_beside).map(|source| format!("src/{}: has a folder beside it", source.path));
    assert_none(&violations.collect::<Vec<_>>());
}

#[test]
fn comments_are_wrapped() {
    let violations = |columns| {
        let text = format!("//! |{}|\nfn f() {{}}\n    // {}\n", "-".repeat(200), "é".repeat(columns - 7));
        comment_violations("src", &Source::new("flow/key.rs", &text))
    };
    assert_eq!(violations(COLUMNS_MAX), Vec::<String>::new());
    assert_eq!(violations(COLUMNS_MAX + 1), ["src/flow/key.rs:3: has over 120 columns"]);
    let below = |folder| sources_below(folder).into_iter().flat_map(move |source| comment_violations(folder, &source));
    let violations: Vec<String> = ["src", "tests"].into_iter().flat_map(below).collect();
    assert_none(&violations);
}

#[test]
fn every_module_has_its_layer_and_every_layer_its_modules() {
    let mut modules: Vec<String> = all_sources().iter().map(|source| source.module().to_owned()).collect();
    modules.retain(|module| module != "lib");
    modules.sort();
    modules.dedup();
    let mut layered = LAYERS.concat();
    layered.sort_unstable();
    assert_eq!(modules, layered);
    for (importer, imported) in BESIDE {
        let layer = layer_of(importer).filter(|layer| layer_of(imported) == Some(*layer)).unwrap();
        let place = |module| LAYERS[layer].iter().position(|name| *name == module);
        // The bottom layer is in no order of its own.
        assert!(place(importer) < place(imported) || layer == LAYERS.len() - 1, "{importer} before {imported}");
    }
}

fn violations_of(path: &str, text: &str) -> Vec<String> {
    import_violations(&Source::new(path, text))
}

#[test]
fn an_import_that_points_up_is_found_however_it_is_written() {
    for (path, text) in [
        ("parse/tcp.rs", "use crate::signal::Signal;"),
        ("parse/tcp.rs", "use crate::{config::LIMIT, signal::{self, Signal}};"),
        ("parse/tcp.rs", "fn f() -> crate :: signal :: Signal { }"),
        ("parse/tcp.rs", "use super::super::signal::Signal;"),
        ("parse/mod.rs", "pub(crate) use super::{config, signal};"),
        ("parse/tcp.rs", "use flowpeel::signal::Signal;"),
        ("parse/tcp.rs", "use crate::*;"),
        ("parse/tcp.rs", "#[cfg(test)] mod tests { use crate::flow::X; } use crate::signal::Signal;"),
        ("parse/tcp.rs", "#[cfg(test)] mod tests; use crate::signal::Signal;"),
        ("parse/tcp.rs", "#[cfg(not(test))] use crate::signal::Signal;"),
        ("parse/tcp.rs", "const A: &str = \"//\"; use crate::signal::Signal;"),
        ("parse/tcp.rs", "const A: char = '\"'; fn f<'a>() {} use crate::signal::Signal; const B: char = '\"';"),
        ("export/mod.rs", "use crate::capture::Replay;"),
        ("list/mod.rs", "use crate::export::Ndjson;"),
        ("queue.rs", "use crate::shard::Shard;"),
        ("error.rs", "use crate::config::LIMIT;"),
        ("cli/mod.rs", "use crate::unheard_of::X;"),
        ("generate/mod.rs", "use crate::parse::LinkType;"),
        ("sketch/peel.rs", "use crate::parse::LinkType;"),
        ("sketch/peel.rs", "use std::{collections::HashMap, thread};"),
        ("sketch/peel.rs", "let now = std::time::Instant::now();"),
        ("sketch/peel.rs", "use crossbeam::channel;"),
    ] {
        assert_eq!(violations_of(path, text).len(), 1, "{path}: {text}");
    }
}

#[test]
fn an_import_that_points_down_is_let_pass() {
    for (path, text) in [
        ("signal/mod.rs", "use crate::parse::TcpSegment; use crate::{flow::Side, config};"),
        ("signal/mod.rs", "use super::parse::TcpSegment;"),
        ("signal/clock.rs", "use super::Signal; use crate::signal::Signal;"),
        ("queue.rs", "use crate::snapshot::Marker;"),
        ("main.rs", "fn main() { flowpeel::cli::main(); }"),
        ("error.rs", "//! See [`Unusable`](crate::parse::Unusable).\n/* crate::cli /* crate::cli */ crate::cli */"),
        ("error.rs", "const A: &str = \"crate::cli\"; const B: &str = r#\"crate::cli\" crate::cli\"#;"),
        ("error.rs", "#[cfg(test)]\n#[allow(x)]\nmod tests { fn f() { { use crate::cli::X; } } }"),
        ("error.rs", "#[cfg(test)] use crate::cli::X;"),
        ("parse/tests.rs", "use crate::cli::X;"),
        ("parse/tests/frames.rs", "use crate::cli::X;"),
        ("sketch/cell.rs", "use std::{fmt, mem}; use std::marker::PhantomData;"),
    ] {
        assert_eq!(violations_of(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn a_file_that_is_not_as_it_should_be_is_found() {
    let long = format!("//! A.\n{}", "\n".repeat(LINES_MAX));
    for (path, text) in [
        ("flow/key.rs", ""),
        ("flow/key.rs", "// A.\n"),
        ("flow/key.rs", "//! A.\nunsafe { f() }"),
        ("flow/key.rs", "//! A.\n#[cfg(test)]\nmod tests { #![allow(unsafe_code)] }"),
        ("flow/key.rs", long.as_str()),
        ("flow/utils.rs", "//! A.\n"),
        ("helpers/mod.rs", "//! A.\n"),
        ("flow/key.rs", "//! A.\nmod tests;"),
    ] {
        assert_eq!(file_violations(&Source::new(path, text)).len(), 1, "{path}: {text}");
    }
    for (path, text) in [
        ("flow/key.rs", "//! A: nothing unsafe.\nfn f() { \"unsafe\"; }\n#[cfg(test)]\nmod tests;"),
        ("prefetch.rs", "//! A.\n#![allow(unsafe_code)]\nunsafe { f() }"),
    ] {
        assert_eq!(file_violations(&Source::new(path, text)), Vec::<String>::new(), "{path}: {text}");
    }
}
