//! The view of the network against the union of the routers' own lists.

use crate::site::{Site, done, names};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(20);

/// The established connections of a list: what names them, and their starts.
fn established(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    let established = lines.filter(|line| line["flow"]["state"] == "established");
    let named = established.map(|line| {
        let ends = ["src_ip", "src_port", "dest_ip", "dest_port"].map(|field| line[field].to_string());
        (ends.join(" "), line["flow"]["start"].as_str().unwrap().to_owned())
    });
    named.collect()
}

fn view(site: &Site, options: &[&str]) -> (Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowpeel-fleet"));
    let output = command.arg("view").arg(site.path("out")).args(options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    (serde_json::from_str(text.lines().next().unwrap()).unwrap(), text)
}

/// Writes the lists of these routers, from their directories.
fn collect(site: &Site, routers: &[&str]) {
    let mut collect = Command::new(env!("CARGO_BIN_EXE_flowpeel-fleet"));
    collect.args(["collect", "--once", "--out"]).arg(site.path("out"));
    for router in routers {
        collect.arg("--from").arg(site.made(router));
    }
    done(&mut collect);
}

fn last_list(site: &Site, router: &str) -> String {
    let directory = site.path("out").join(router);
    let last = names(&directory).into_iter().rfind(|name| name.starts_with("flows-")).unwrap();
    fs::read_to_string(directory.join(last)).unwrap()
}

#[test]
fn the_view_is_the_union_of_the_lists() {
    let site = Site::new();
    // East and middle see the same connections, west others.
    for (router, seed) in [("east", 1), ("middle", 1), ("west", 2)] {
        site.router(router, seed, 1_000, EVERY);
    }
    collect(&site, &["east", "middle", "west"]);
    let mut union: BTreeMap<String, (Vec<&str>, String)> = BTreeMap::new();
    for router in ["east", "middle", "west"] {
        for (ends, start) in established(&last_list(&site, router)) {
            let entry = union.entry(ends).or_insert_with(|| (Vec::new(), start.clone()));
            entry.0.push(router);
            entry.1 = start.min(entry.1.clone());
        }
    }
    let (header, text) = view(&site, &[]);
    assert_eq!(header["flow_view"]["complete"], true);
    assert_eq!(header["flow_view"]["flows"], union.len());
    let found: Vec<(String, String)> = established(&text);
    assert_eq!(found.len(), union.len());
    for (line, (ends, start)) in text.lines().skip(1).zip(found) {
        let routers = &serde_json::from_str::<Value>(line).unwrap()["routers"];
        let (expected, first) = &union[&ends];
        assert_eq!((routers, &start), (&Value::from(expected.clone()), first));
    }
    assert!(
        union.values().any(|(routers, _)| routers.len() == 2)
            && union.values().any(|(routers, _)| *routers == ["west"])
    );
}

#[test]
fn a_router_that_is_late_is_marked_and_one_that_is_gone_is_left_out() {
    let site = Site::new();
    for (router, seed) in [("east", 1), ("west", 2)] {
        site.router(router, seed, 500, EVERY);
    }
    // The last three snapshots of west never came.
    let snapshots = site.snapshots("west");
    snapshots[snapshots.len() - 3..].iter().for_each(|name| fs::remove_file(site.made("west").join(name)).unwrap());
    collect(&site, &["east", "west"]);
    for (options, presence) in
        [(["--late", "10s", "--gone", "1h"], "late"), (["--late", "1s", "--gone", "10s"], "gone")]
    {
        let (header, text) = view(&site, &options);
        let routers = &header["flow_view"]["routers"];
        assert_eq!((&routers[0]["presence"], &routers[1]["presence"]), (&"current".into(), &presence.into()));
        assert!(routers[1]["age"].as_f64().unwrap() > 10.0 && header["flow_view"]["complete"] == false);
        let has_west = text.lines().skip(1).any(|line| line.contains("\"west\""));
        assert_eq!(has_west, presence == "late");
    }
}
