//! Files of lists: compressed, kept within bounds, whole however a run ends, and one run's at a time.

use super::{FLOWPEEL, capture, files, flowpeel, name, replayed};
use crate::support::command::{command, run};
use crate::support::say::skipped;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The lines of a stored list, which has to be whole.
fn lines(path: &Path) -> Vec<Value> {
    let bytes = fs::read(path).unwrap();
    let bytes = if name(path).ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.ends_with('\n'), "{}", path.display());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Compares a file's header with its lines.
fn assert_whole(path: &Path) {
    let lines = lines(path);
    let said = match lines[0]["event_type"].as_str().unwrap() {
        "flow_list" => ["flows", "half_open"].map(|count| lines[0]["flow_list"][count].as_u64().unwrap()),
        "flow_changes" => ["listed", "delisted"].map(|count| lines[0]["flow_changes"][count].as_u64().unwrap()),
        other => panic!("what is {other}?"),
    };
    let closings = lines[0]["closings"]["lines"].as_u64().unwrap_or(0);
    assert_eq!(lines.len() as u64 - 1, said.iter().sum::<u64>() + closings, "{}", path.display());
}

#[test]
fn compressed_lists_hold_the_same_bytes() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 3_000);
    let (plain, packed) = (place.path().join("plain"), place.path().join("packed"));
    replayed(&format!("-q --every 20s --out {}", plain.display()), &[&capture]);
    replayed(&format!("-q --every 20s --compress --out {}", packed.display()), &[&capture]);
    let stream = replayed("-q --every 20s --compress", &[&capture]).stdout;
    let plain = files(&plain);
    let packed = files(&packed);
    assert!(plain.len() >= 6 && plain.len() == packed.len());
    let mut all = Vec::new();
    for (plain, packed) in plain.iter().zip(&packed) {
        assert_eq!(format!("{}.zst", name(plain)), name(packed));
        assert_eq!(fs::metadata(packed).unwrap().permissions().mode() & 0o7777, 0o640);
        let bytes = fs::read(plain).unwrap();
        assert_eq!(zstd::decode_all(&fs::read(packed).unwrap()[..]).unwrap(), bytes);
        all.extend(bytes);
    }
    assert_eq!(zstd::decode_all(&stream[..]).unwrap(), all, "frames behind one another are one stream");
}

#[test]
fn a_directory_is_kept_within_bounds_while_lists_come() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 20_000);
    let out = place.path().join("lists");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("flows-20250101T000000Z.ndjson"), "old\n").unwrap();
    fs::write(out.join("README"), "kept\n").unwrap();
    let options = format!("-q --every 5s --out {}", out.display());
    replayed(&format!("{options} --keep 30s"), &[&capture]);
    let left = files(&out);
    let (other, lists) = left.split_first().unwrap();
    assert_eq!(name(other), "README");
    assert_eq!(name(lists.first().unwrap()).get(..20), Some("flows-20260101T00013"));
    assert_eq!(lists.len(), 7, "{lists:?}");
    replayed(&format!("{options} --keep 6MiB --keep 7d"), &[&capture]);
    let left = files(&out);
    let size = |path: &std::path::PathBuf| fs::metadata(path).unwrap().len();
    assert!((2..=7).contains(&left.len()), "{left:?}");
    assert!(left[1..].iter().map(size).sum::<u64>() <= 6 << 20);
    assert_eq!(name(left.last().unwrap()), "flows-20260101T000159Z.ndjson");
}

#[test]
fn what_keep_can_not_mean_is_refused_before_anything_is_read() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("lists");
    for (options, part) in [
        (vec!["--keep", "7d"], "--keep removes files"),
        (vec!["--keep", "7", "--out", out.to_str().unwrap()], "an age (7d, 36h) or a size"),
        (vec!["--keep", "7d", "--keep", "6d", "--out", out.to_str().unwrap()], "no two of a kind"),
        (vec!["--changes=0"], "--changes must be from 1 to 8640"),
        (vec!["--changes=x"], "a whole number"),
        (vec!["--idle-timeout", "30s"], "give their length, as in --every 10s"),
        (vec!["--max-age", "1d", "--idle-timeout", "0"], "give their length, as in --every 10s"),
    ] {
        let output = flowpeel([&["replay"], &options[..], &["/nonexistent"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(output.stderr.contains(part), "{options:?}: {}", output.stderr);
        assert!(!out.exists());
    }
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 10);
    let out = place.path().join("lists");
    let mut first = Command::new(FLOWPEEL)
        .args(["replay", "-q", "--out", out.to_str().unwrap(), "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lock = out.join(flowpeel::state::LOCK_FILE);
    while !fs::File::open(&lock).is_ok_and(|lock| lock.try_lock().is_err()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = flowpeel(["replay", "-q", "--out", out.to_str().unwrap(), capture.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stderr.contains("another process writes lists here"), "{}", second.stderr);
    first.kill().unwrap();
    first.wait().unwrap();
    replayed(&format!("-q --out {}", out.display()), &[&capture]);
    assert_eq!(files(&out).len(), 1);
}

#[test]
fn who_may_only_read_a_directory_keeps_no_run_from_it() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let capture = capture(place.path(), "mixed.pcap", 10);
    let [out, archive, snapshots] = ["lists", "archive", "snapshots"].map(|name| place.path().join(name));
    let replay_all = || {
        let directories = [("--out", &out), ("--archive", &archive), ("--snapshots", &snapshots)];
        let mut replay = command(FLOWPEEL, ["replay", "-q"]);
        for (option, path) in directories {
            replay.arg(option).arg(path);
        }
        let ended = run(replay.arg(&capture));
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    };
    replay_all();
    for (directory, kind) in [&out, &archive, &snapshots].into_iter().flat_map(|path| [(path, "-x"), (path, "-s")]) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        // Somebody else holds every lock that can be had there until its input ends.
        let script = r#"exec 9<"$1" && flock "$2" -n 9 || exit 9
            if (exec 8<"$1/.flowpeel.lock") 2>/dev/null; then exit 8; fi
            echo held; cat"#;
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, "sh"];
        let mut other = command("setpriv", user);
        let other = other.arg(directory).arg(kind).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut other) = other else { return skipped("there is no setpriv") };
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(other.stdout.take().unwrap()), &mut said).unwrap();
        if said != "held\n" {
            let status = other.wait().unwrap().code();
            assert_ne!(status, Some(8), "others can open the lock of {}", directory.display());
            return skipped("no other user can be had here who locks a directory");
        }
        replay_all();
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
    }
}

#[test]
fn however_often_it_is_killed_every_file_is_whole_and_the_next_run_tidies_up() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 40_000);
    let out = place.path().join("lists");
    let (mut whole_count, mut cut_count) = (0, 0);
    for (round, options) in ["", "--compress", "--changes=4", "--changes=3 --compress"].repeat(4).iter().enumerate() {
        let mut running = Command::new(FLOWPEEL)
            .args(["replay", "-q", "--every", "100ms", "--keep", "10s", "--out"])
            .arg(&out)
            .args(options.split_whitespace())
            .arg(&capture)
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(120 + 53 * round as u64));
        running.kill().unwrap();
        running.wait().unwrap();
        let (cut, whole): (Vec<_>, Vec<_>) = files(&out).into_iter().partition(|path| name(path).ends_with(".tmp"));
        assert!(cut.len() <= 1, "the leftovers of runs before are gone: {cut:?}");
        whole.iter().for_each(|path| assert_whole(path));
        (whole_count, cut_count) = (whole_count + whole.len(), cut_count + cut.len());
    }
    assert!(whole_count > 100, "{whole_count}");
    println!("{whole_count} files whole, {cut_count} cut under a temporary name");
}

#[test]
fn a_full_disk_is_named_and_what_was_written_is_whole() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 40_000);
    let disk = place.path().join("disk");
    let kept = place.path().join("kept");
    fs::create_dir(&disk).unwrap();
    let probe = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none"]).arg(&disk).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skipped("no disk can be mounted here");
    }
    // A disk of 1 MiB in a namespace of its own, which ends with the process; its files are copied out at the end.
    let script = r#"mount -t tmpfs -o size=1m none "$1" || exit
        "$3" replay -q --every 1s --compress --changes=20 --out "$1/lists" "$4"; status=$?
        cp -r "$1/lists" "$2"; exit $status"#;
    let mut unshare = command("unshare", ["-m", "sh", "-c", script, "sh"]);
    unshare.args([disk.as_os_str(), kept.as_os_str(), FLOWPEEL.as_ref(), capture.as_os_str()]);
    let output = run(&mut unshare);
    let said = output.stderr;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(disk.join("lists/").to_str().unwrap()), "{said}");
    assert!(said.contains("cannot write the list: No space left"), "{said}");
    let kept = files(&kept);
    assert!(kept.len() > 3);
    kept.iter().for_each(|path| assert_whole(path));
    assert!(said.contains(&format!("; the {} lists before it are whole", kept.len())), "{said}");
}
