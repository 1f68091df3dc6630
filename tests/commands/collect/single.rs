//! `flowpeel snapshot peel` and `flowpeel snapshot get`: one snapshot at a time.

use super::{Site, flowpeel, list_stem, text};
use serde_json::Value;
use std::fs;

fn arguments<'a>(command: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["snapshot", command][..], rest].concat()
}

#[test]
fn a_snapshot_lists_by_itself_while_it_fits_and_with_a_base_beyond() {
    let site = Site::replayed(40_000, "--every 10s --churn 2k");
    let all = site.snapshots();
    let (mut alone, mut with_base) = (0, 0);
    for (at, name) in all.iter().enumerate() {
        let snapshot = site.path("snapshots").join(name);
        let snapshot = snapshot.to_str().unwrap();
        let list_of = |name: &str| site.path("lists").join(list_stem(name) + ".ndjson");
        let list = fs::read(list_of(name)).unwrap();
        let ended = flowpeel(arguments("peel", &[snapshot]));
        if ended.status.code() == Some(0) {
            assert!(ended.stdout == list, "{name} alone");
            alone += 1;
        } else {
            assert!(ended.status.code() == Some(4) && ended.stderr.contains("name a list from before it with --base"));
            let first: Value = serde_json::from_str(text(&ended.stdout).lines().next().unwrap()).unwrap();
            assert!(first["flow_list"]["complete"] == false && first["flow_list"]["missing"].as_u64() > Some(0));
            let base = list_of(&all[at - 1]);
            let packed = site.path("base.zst");
            fs::write(&packed, zstd::encode_all(&fs::read(&base).unwrap()[..], 1).unwrap()).unwrap();
            for base in [base, packed] {
                let ended = flowpeel(arguments("peel", &[snapshot, "--base", base.to_str().unwrap()]));
                assert!(ended.status.success() && ended.stdout == list, "{name}: {}", ended.stderr);
            }
            with_base += 1;
        }
    }
    assert!(alone > 0 && with_base > 0, "{alone} and {with_base}");
}

#[test]
fn a_base_that_is_none_is_refused() {
    let site = Site::replayed(1_000, "--every 10s --changes=3");
    let all = site.snapshots();
    let snapshot = site.path("snapshots").join(&all[4]);
    let snapshot = snapshot.to_str().unwrap();
    let full = fs::read(site.path("lists").join(list_stem(&all[3]) + ".ndjson")).unwrap();
    let cut = full[..full.len() / 2].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let other_time = text(&full).replacen("\"end\":\"2026", "\"end\":\"2027", 1).into_bytes();
    let changes = fs::read(site.path("lists").join(list_stem(&all[4]).replace("flows-", "changes-") + ".ndjson"));
    for (bytes, part) in [
        (Vec::new(), "it is empty"),
        (b"{}\n".to_vec(), "its first line is no header"),
        (full[..cut].to_vec(), "the list was cut short"),
        ([&full[..], &full].concat(), "something follows the list"),
        (other_time, "did not end within the run"),
        (changes.unwrap(), "these are changes"),
        (vec![b' '; 5_000], "a line is longer than any of a list"),
        ([&full[..cut], b"x\n"].concat(), "this is no line of a list"),
    ] {
        let base = site.path("base");
        fs::write(&base, bytes).unwrap();
        let ended = flowpeel(arguments("peel", &[snapshot, "--base", base.to_str().unwrap()]));
        let said = ended.stderr;
        assert!(ended.status.code() == Some(1) && said.contains(part) && ended.stdout.is_empty(), "{part} in {said}");
    }
}

#[test]
fn one_connection_is_asked_for_without_a_list() {
    let site = Site::replayed(6_000, "--every 60s --churn 20k");
    let name = &site.snapshots()[0];
    let snapshot = site.path("snapshots").join(name);
    let snapshot = snapshot.to_str().unwrap();
    let list = fs::read_to_string(site.path("lists").join(list_stem(name) + ".ndjson")).unwrap();
    let mut asked = [0; 3];
    for line in list.lines().skip(1).step_by(40) {
        let row: Value = serde_json::from_str(line).unwrap();
        let end = |ip: &str, port: &str| {
            let (ip, port) = (row[ip].as_str().unwrap(), &row[port]);
            if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
        };
        let (client, server) = (end("src_ip", "src_port"), end("dest_ip", "dest_port"));
        let state = row["flow"]["state"].as_str().unwrap();
        let ended = flowpeel(arguments("get", &[snapshot, &client, &server]));
        let (status, said) = match state {
            "established" => (0, "open\n".to_owned()),
            state => (3, format!("not open, {state}\n")),
        };
        assert_eq!((ended.status.code(), text(&ended.stdout)), (Some(status), said), "{line}");
        asked[usize::from(state != "established")] += 1;
        let ended = flowpeel(arguments("get", &[snapshot, &server, &client]));
        assert_eq!((ended.status.code(), text(&ended.stdout)), (Some(3), "not open\n".to_owned()), "{line}");
        asked[2] += 1;
    }
    assert!(asked.iter().all(|count| *count > 0), "{asked:?}");
    let tagged = flowpeel(arguments("get", &[snapshot, "10.0.0.1:1", "10.0.0.2:2", "--vlan", "7"]));
    assert!(tagged.status.code() == Some(1) && tagged.stderr.contains("ask without --vlan"));
}

#[test]
fn what_a_table_can_not_resolve_is_unknown() {
    let site = Site::replayed(80_000, "--churn 1k");
    let name = &site.snapshots()[0];
    let snapshot = site.path("snapshots").join(name);
    let ended = flowpeel(arguments("get", &[snapshot.to_str().unwrap(), "10.0.0.1:1", "10.0.0.2:2"]));
    assert_eq!((ended.status.code(), text(&ended.stdout)), (Some(4), "unknown\n".to_owned()));
}
