//! Output that cannot be written: full disks, closed pipes, names in the way, and a run that is killed.

use super::file;
use crate::support::captures::{frames, opening, pcap};
use crate::support::command::{FLOWPEEL, Running, command, flowpeel, lists, replay};
use crate::support::files::names;
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use std::fs::{self, File};
use std::io::{BufWriter, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A list of every second of this lasts longer than it takes to kill, and is longer than any pipe or buffer.
fn busy() -> (TempDir, PathBuf) {
    let (directory, path) = file("busy.pcap", b"");
    let config = TrafficConfig { data_packets: 0..=0, ..TrafficConfig::mixed(5, 40_000) };
    let mut out = BufWriter::new(File::create(&path).unwrap());
    write_pcap(&mut Traffic::new(config).unwrap(), &mut out).unwrap();
    (directory, path)
}

/// Checks that every list in a directory is whole. Returns how many there are.
fn whole_lists(directory: &Path) -> usize {
    let names = names(directory);
    let kept = names.iter().filter(|name| name.starts_with("flows-") && name.ends_with(".ndjson"));
    kept.map(|name| assert_eq!(lists(&fs::read(directory.join(name)).unwrap()).len(), 1, "{name}")).count()
}

#[test]
fn a_full_disk_behind_standard_output() {
    let (_directory, path) = file("good.pcap", &pcap(&frames()));
    let mut command = command(FLOWPEEL, ["replay".as_ref(), path.as_os_str()]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let ended = Running::start(&mut command).wait();
    ended.assert_failed(&[
        "error: standard output: cannot write the list: No space left",
        "; no list was written whole",
    ]);
    ended.assert_nothing();
}

#[test]
fn a_closed_pipe_ends_the_run() {
    let (_directory, path) = busy();
    for before in [0, 100] {
        let mut command = command(FLOWPEEL, ["replay", "--every", "1s"]);
        command.arg(&path);
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut vec![0; before]).unwrap();
        drop(pipe);
        child.stdout = None;
        let ended = Running::of(child).wait();
        ended.assert_failed(&["error: standard output: cannot write the list: Broken pipe", " list"]);
        ended.assert_one_line();
    }
}

#[test]
fn nobody_who_listens_is_no_reason_to_panic() {
    let (_directory, path) = file("good.pcap", &pcap(&frames()));
    let (_text, text) = file("text.pcap", b"hello, I am no capture\n");
    for format in ["text", "json"] {
        for (inputs, status) in [(vec![&path], 0), (vec![&text], 1), (vec![&path, &text], 1)] {
            let mut command = command(FLOWPEEL, ["replay", "-v", "--log-format", format]);
            command.args(&inputs).stderr(File::options().write(true).open("/dev/full").unwrap());
            let ended = Running::start(&mut command).wait();
            assert_eq!(ended.status.code(), Some(status));
            assert_eq!(ended.lists().len(), usize::from(inputs.contains(&&path)));
        }
    }
}

#[test]
fn a_file_is_no_directory_for_lists() {
    let (_directory, path) = file("good.pcap", &pcap(&frames()));
    let ended = replay(["--out".as_ref(), path.as_os_str(), path.as_os_str()]);
    ended.assert_failed(&[path.to_str().unwrap(), "it is not a directory: lists are written to files in one"]);
    ended.assert_nothing();
    assert_eq!(fs::read(&path).unwrap(), pcap(&frames()), "it is as it was");
}

#[test]
fn lists_are_private_and_come_with_nothing_beside_them() {
    let (directory, path) = file("good.pcap", &pcap(&frames()));
    let out = directory.path().join("a/b/lists");
    let arguments = ["-q", "--every", "5s", "--out", out.to_str().unwrap(), path.to_str().unwrap()];
    assert_eq!(replay(arguments).status.code(), Some(0));
    let expected = ["flows-20260101T000005Z.ndjson", "flows-20260101T000010Z.ndjson", "flows-20260101T000011Z.ndjson"];
    assert_eq!(names(&out), expected);
    assert_eq!(whole_lists(&out), 3);
    for name in expected {
        assert_eq!(fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o7777, 0o640);
    }
    // Another run over the same packets puts equal lists in the place of these.
    let before: Vec<_> = expected.iter().map(|name| fs::read(out.join(name)).unwrap()).collect();
    assert_eq!(replay(arguments).status.code(), Some(0));
    assert_eq!(names(&out), expected);
    assert_eq!(before, expected.map(|name| fs::read(out.join(name)).unwrap()));
}

#[test]
fn a_list_that_can_not_take_its_name_leaves_nothing() {
    let (directory, path) = file("good.pcap", &pcap(&frames()));
    let out = directory.path().join("lists");
    let taken = out.join("flows-20260101T000010Z.ndjson");
    fs::create_dir_all(&taken).unwrap();
    let ended = replay(["--every", "5s", "--out", out.to_str().unwrap(), path.to_str().unwrap()]);
    ended.assert_failed(&[taken.to_str().unwrap(), "cannot write the list", "; the list before it is whole"]);
    assert_eq!(names(&out), ["flows-20260101T000005Z.ndjson", "flows-20260101T000010Z.ndjson"]);
}

#[test]
fn a_run_that_is_killed_leaves_no_half_list() {
    let (directory, path) = busy();
    let mut lists_count = 0;
    let mut cut_count = 0;
    for round in 0..12_u64 {
        let out = directory.path().join(format!("lists-{round}"));
        let mut command = command(FLOWPEEL, ["replay", "-q", "--every", "100ms", "--out"]);
        command.args([&out, &path]);
        let mut running = Running::start(&mut command);
        std::thread::sleep(Duration::from_millis(150 + 37 * round));
        running.child.kill().unwrap();
        assert_eq!(running.wait().status.code(), None, "it was still at it");
        lists_count += whole_lists(&out);
        cut_count += names(&out).iter().filter(|name| name.ends_with(".tmp")).count();
    }
    assert!(lists_count > 0, "none was written");
    println!("{lists_count} lists whole, {cut_count} cut under a temporary name");
}

#[test]
fn help_and_version_that_can_not_be_printed_are_errors() {
    for words in ["--version", "--help", "-h", "help", "replay --help", "help find"] {
        let mut command = command(FLOWPEEL, words.split(' '));
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        Running::start(&mut command).wait().assert_failed(&["standard output: cannot write it: No space left"]);
        assert_eq!(flowpeel(words.split(' ')).status.code(), Some(0), "{words}");
    }
    // Who closes the pipe has read enough.
    let ended = Running::start(&mut command("sh", ["-c", "\"$0\" --help | true", FLOWPEEL])).wait();
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_list_that_becomes_too_long_leaves_nothing() {
    let (directory, path) = busy();
    let out = directory.path().join("lists");
    for options in [&["--every", "10s"][..], &[], &["--compress"]] {
        // Nobody ignores the signal of the limit but flowpeel itself.
        let arguments = ["-c", "ulimit -f 8; exec \"$@\"", "sh", FLOWPEEL, "replay", "-q", "--out"];
        let mut command = command("sh", arguments);
        let ended = Running::start(command.arg(&out).args(options).arg(&path)).wait();
        ended.assert_failed(&["cannot write the list: File too large"]);
        assert!(names(&out).iter().all(|name| !name.ends_with(".tmp")), "{:?}", names(&out));
    }
}

#[test]
fn generate_reports_what_it_can_not_write() {
    let (_directory, path) = file("taken", b"");
    let below = path.join("below");
    for (out, name) in [(Path::new("/dev/full"), "/dev/full"), (&below, below.to_str().unwrap())] {
        let mut command = command(FLOWPEEL, ["generate", "--connections", "1k", "--out"]);
        command.arg(out);
        let ended = Running::start(&mut command).wait();
        ended.assert_failed(&[name, "cannot write the capture"]);
        ended.assert_nothing();
    }
    let mut command = command(FLOWPEEL, ["generate", "--connections", "1k"]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    Running::start(&mut command).wait().assert_failed(&["standard output: cannot write the capture: No space left"]);
}

#[test]
fn what_generate_does_not_write_whole_leaves_the_file_before() {
    let (directory, path) = file("a.pcap", b"before");
    let unchanged = || {
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(names(directory.path()), ["a.pcap"]);
    };
    let out = path.to_str().unwrap();
    // No file may be longer than some kilobytes, for root too.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let arguments = ["-c", script, "sh", FLOWPEEL, "generate", "--connections", "10k", "--out", out];
    let ended = Running::start(&mut command("sh", arguments)).wait();
    ended.assert_failed(&[out, "cannot write the capture: File too large"]);
    unchanged();
    let running =
        Running::start(&mut command(FLOWPEEL, ["generate", "--flood", "acks", "--flood-packets", "1G", "--out", out]));
    std::thread::sleep(Duration::from_millis(300));
    let pid = running.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    running.wait().assert_failed(&[out, "cannot write the capture: interrupted"]);
    unchanged();
    let ended = flowpeel(["generate", "--connections", "10", "--out", out]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(replay([&path]).status.code(), Some(0));
    assert_eq!(names(directory.path()), ["a.pcap"]);
}

#[test]
fn generate_writes_into_pipes_and_through_links() {
    let (directory, path) = file("a.pcap", b"before");
    let expected = Running::start(&mut command(FLOWPEEL, ["generate", "--connections", "10"])).wait().stdout;
    assert!(!expected.is_empty());
    let generated = |out: &Path| {
        let ended = flowpeel(["generate", "--connections", "10", "--out", out.to_str().unwrap()]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended.stdout
    };
    assert!(generated(Path::new("/dev/stdout")) == expected);
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    generated(&link);
    assert!(link.is_symlink() && fs::read(&path).unwrap() == expected);
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    generated(&pipe);
    assert!(reader.join().unwrap() == expected);
    assert_eq!(names(directory.path()), ["a.pcap", "link", "pipe"]);
}

#[test]
fn a_long_list_reaches_a_slow_reader_whole() {
    let frames: Vec<_> = (1..5_000).flat_map(opening).collect();
    let (_directory, path) = file("long.pcap", &pcap(&frames));
    let mut child = command(FLOWPEEL, ["replay".as_ref(), "-q".as_ref(), path.as_os_str()]).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    assert_eq!(Running::of(child).wait().status.code(), Some(0));
    assert_eq!(lists(&bytes)[0].count("flows"), 4_999);
}
