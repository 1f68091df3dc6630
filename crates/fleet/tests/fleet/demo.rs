//! The demonstration of a whole fleet, in its short form.

use crate::server::program;
use crate::site::done;
use std::path::Path;
use std::process::Command;

/// Runs the demonstration with these options, if everything is installed that it needs.
fn run(options: &[&str]) {
    let programs = Path::new(env!("CARGO_BIN_EXE_flowpeel-fleet")).parent().unwrap();
    if program().is_none() {
        return;
    }
    if !programs.join("flowpeel").is_file() || Command::new("python3").arg("--version").output().is_err() {
        return eprintln!("skipped: python3 is not installed, or flowpeel is not built beside flowpeel-fleet");
    }
    let mut demo = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/fleet-demo"));
    done(demo.args(options).arg("--programs").arg(programs));
}

#[test]
#[ignore = "it takes minutes on a machine that is busy"]
fn three_brokers_ten_routers_and_two_collectors_make_one_view() {
    run(&["--quick"]);
}

/// `cargo test --release -p flowpeel-fleet --test fleet on_the_page -- --ignored`, with flowpeel built beside it.
#[test]
#[ignore = "it takes two minutes, and Chromium"]
fn a_killed_router_an_asymmetric_pair_and_what_one_tap_misses_show_on_the_page() {
    if ["node", "chromium"].iter().any(|program| Command::new(program).arg("--version").output().is_err()) {
        return eprintln!("skipped: Chromium or Node.js is not installed");
    }
    let screenshots = tempfile::tempdir().unwrap();
    run(&["--look", screenshots.path().to_str().unwrap()]);
}
