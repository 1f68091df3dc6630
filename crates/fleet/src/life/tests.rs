//! A connection in lists in full, compressed, and of changes.

use super::*;
use flowpeel::flow::VlanTags;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const MINUTE_NS: i64 = 1_767_225_600 * 1_000_000_000;

fn key(port: u16) -> AnyKey {
    AnyKey::of_ends(([10, 0, 0, 1], port).into(), ([10, 0, 1, 1], 443).into(), VlanTags::NONE).unwrap()
}

fn line(port: u16, rest: &str, state: &str) -> String {
    format!(
        "{{{rest}\"src_ip\":\"10.0.0.1\",\"src_port\":{port},\"dest_ip\":\"10.0.1.1\",\"dest_port\":443,\
         \"flow\":{{\"start\":\"2026-01-01T00:00:01.000000Z\",\"age\":1.0,\"state\":\"{state}\"}}}}\n"
    )
}

/// A list that ends then, of these connections and their states.
fn list(directory: &Path, end_s: u32, rows: &[(u16, &str)], is_compressed: bool) {
    let mut text = format!(
        "{{\"flow_list\":{{\"interval\":{end_s},\"end\":\"2026-01-01T00:00:{end_s:02}.000000Z\",\"flows\":{},\"half_open\":0}}}}\n",
        rows.len()
    );
    rows.iter().for_each(|(port, state)| text += &line(*port, "", state));
    let path =
        directory.join(format!("flows-20260101T0000{end_s:02}Z.ndjson{}", if is_compressed { ".zst" } else { "" }));
    let bytes = if is_compressed { zstd::encode_all(text.as_bytes(), 1).unwrap() } else { text.into_bytes() };
    fs::write(path, bytes).unwrap();
}

fn changes(directory: &Path, base_s: u32, lines: &[(u16, &str, &str)]) {
    let (time, end_s) = (|end_s: u32| format!("2026-01-01T00:00:{end_s:02}.000000Z"), base_s + 10);
    let of = |change: &str| lines.iter().filter(|(_, is, _)| *is == change).count();
    let mut text = String::new();
    writeln!(
        text,
        "{{\"flow_changes\":{{\"interval\":{end_s},\"end\":\"{}\",\"flows\":0,\"half_open\":0,\"base\":{{\"interval\":{base_s},\"end\":\"{}\"}},\
         \"elapsed\":10.0,\"listed\":{},\"delisted\":{}}}}}",
        time(end_s),
        time(base_s),
        of("opened"),
        of("closed")
    )
    .unwrap();
    lines.iter().for_each(|(port, change, state)| text += &line(*port, &format!("\"change\":\"{change}\","), state));
    fs::write(directory.join(format!("changes-20260101T0000{end_s:02}Z.ndjson")), text).unwrap();
}

fn stages(place: &Path, port: u16) -> Vec<(&'static str, i64, i64, u64)> {
    let life = life(&newest::places(&[place.to_path_buf()]).unwrap(), &key(port));
    assert!(life.is_whole, "{life:?}");
    let seconds = |ns: i64| (ns - MINUTE_NS) / 1_000_000_000;
    let all = life.routers.into_iter().flat_map(|router| router.stages);
    all.map(|stage| (stage.state.name(), seconds(stage.since_ns), seconds(stage.until_ns), stage.lists)).collect()
}

#[test]
fn states_follow_each_other_list_by_list() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("a");
    fs::create_dir_all(&directory).unwrap();
    // So many that a list is halved several times.
    let many = |state: &'static str| {
        (1..2_000).map(|at| (2 * at, if at == 700 { state } else { "established" })).collect::<Vec<_>>()
    };
    let without = many("established").into_iter().filter(|(port, _)| *port != 1_400).collect::<Vec<_>>();
    for (at, is_compressed) in [false, true, false, false].into_iter().enumerate() {
        let rows = [many("syn_sent"), many("established"), many("established"), without.clone()];
        list(&directory, 10 * (at as u32 + 1), &rows[at], is_compressed);
    }
    assert_eq!(stages(place.path(), 1_400), [("syn_sent", 10, 10, 1), ("established", 20, 30, 2)]);
    for port in (2..4_000).step_by(198) {
        assert_eq!(stages(place.path(), port), [("established", 10, 40, 4)], "{port}");
        assert_eq!(stages(place.path(), port + 1), []);
    }
    assert_eq!(stages(place.path(), 3_998).len(), 1);
    assert_eq!((stages(place.path(), 1), stages(place.path(), 60_000)), (vec![], vec![]));
}

#[test]
fn changes_say_what_became_of_it() {
    let place = tempfile::tempdir().unwrap();
    list(place.path(), 10, &[(1, "established"), (2, "established")], false);
    changes(place.path(), 10, &[(2, "closed", "closed"), (3, "opened", "established")]);
    changes(place.path(), 20, &[(3, "closed", "closed"), (3, "opened", "established")]);
    changes(place.path(), 30, &[]);
    assert_eq!(stages(place.path(), 1), [("established", 10, 40, 4)]);
    assert_eq!(stages(place.path(), 2), [("established", 10, 10, 1)]);
    assert_eq!(stages(place.path(), 3), [("established", 20, 40, 3)]);
}

#[test]
fn what_cannot_be_read_is_counted() {
    let place = tempfile::tempdir().unwrap();
    list(place.path(), 10, &[(1, "established")], false);
    fs::write(place.path().join("flows-20260101T000020Z.ndjson"), "{}").unwrap();
    let life = life(&newest::places(&[place.path().to_path_buf()]).unwrap(), &key(1));
    assert_eq!((life.is_whole, life.lists, life.routers[0].stages.len()), (false, 1, 1));
    assert!(life.problems[0].contains("no list of flowpeel"), "{life:?}");
}
