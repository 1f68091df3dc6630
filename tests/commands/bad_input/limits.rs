//! Runs that the system gives too few addresses: they end with an error before anything is written, or do all they are
//! to.

use super::file;
use crate::support::captures::{frames, pcap};
use crate::support::command::{FLOWPEEL, Running, command};
use crate::support::say::skipped;

/// The sizes of the address space in KiB, from where hardly the program fits to where every run does.
const SIZES: [u32; 14] = [
    60_000, 80_000, 100_000, 120_000, 140_000, 160_000, 200_000, 240_000, 280_000, 320_000, 360_000, 400_000, 600_000,
    1_000_000,
];

/// Whether the shell can limit the addresses of what it starts.
fn can_limit() -> bool {
    let can = Running::start(&mut command("sh", ["-c", "ulimit -v 1000000"])).wait().status.success();
    if !can {
        skipped("this shell cannot limit addresses (ulimit -v)");
    }
    can
}

#[test]
fn a_run_without_addresses_for_its_memory_writes_nothing() {
    if !can_limit() {
        return;
    }
    let (directory, path) = file("good.pcap", &pcap(&frames()));
    let (mut done, mut refused) = (0, 0);
    for (round, size) in SIZES.into_iter().enumerate() {
        for trace in ["0", "1"] {
            let place = directory.path().join(format!("{round}-{trace}"));
            let script = format!("ulimit -v {size}; exec \"$@\"");
            let mut command = command("sh", ["-c", &script, "sh", FLOWPEEL, "replay", "-q", "--every", "1s"]);
            for option in ["--out", "--archive", "--state"] {
                command.arg(option).arg(place.join(option));
            }
            let ended = Running::start(command.arg(&path).env("RUST_BACKTRACE", trace)).wait();
            match ended.status.code() {
                Some(0) => done += 1,
                Some(1) => {
                    ended.assert_failed(&["MiB of addresses", "the system gives", "--connections", "ulimit -v"]);
                    assert!(!place.exists() && !ended.stderr.contains("  "), "{size}: {}", ended.stderr);
                    refused += 1;
                }
                other => panic!("{size}: {other:?}: {}", ended.stderr),
            }
        }
    }
    assert!(done > 0 && refused > 0, "{done} were done and {refused} refused");
}

#[test]
fn smaller_tables_need_fewer_addresses() {
    if !can_limit() {
        return;
    }
    let (_directory, path) = file("good.pcap", &pcap(&frames()));
    let run = |options: &[&str]| {
        let mut command = command("sh", ["-c", "ulimit -v 900000; exec \"$@\"", "sh", FLOWPEEL, "replay", "-q"]);
        Running::start(command.args(options).arg(&path)).wait()
    };
    run(&["--connections", "20M", "--memory", "4GiB"]).assert_failed(&["lower --connections"]);
    assert_eq!(run(&["--connections", "1M", "--memory", "4GiB"]).status.code(), Some(0));
}
