//! The demonstration of a whole fleet, in its short form.

use crate::server::program;
use crate::site::done;
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "it takes minutes on a machine that is busy"]
fn three_brokers_ten_routers_and_two_collectors_make_one_view() {
    let programs = Path::new(env!("CARGO_BIN_EXE_flowpeel-fleet")).parent().unwrap();
    if program().is_none() {
        return;
    }
    if !programs.join("flowpeel").is_file() || Command::new("python3").arg("--version").output().is_err() {
        return eprintln!("skipped: python3 is not installed, or flowpeel is not built beside flowpeel-fleet");
    }
    let mut demo = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/fleet-demo"));
    done(demo.args(["--quick", "--programs"]).arg(programs));
}
