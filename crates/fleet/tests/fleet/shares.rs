//! Collectors that share the partitions: their parts are the lists.

use crate::server::Server;
use crate::site::{Site, done, fleet, names, run};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The header of a list or of a part of one, and its lines in order.
fn read(path: &Path) -> (serde_json::Value, Vec<String>) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header = serde_json::from_str(lines.next().unwrap()).unwrap();
    (header, lines.map(str::to_owned).collect())
}

/// What the view's header says.
fn joined(site: &Site, from: &[&str]) -> serde_json::Value {
    let out = site.path("view.ndjson");
    let mut join = fleet("join");
    for from in from {
        join.arg("--from").arg(site.path(from));
    }
    done(join.arg("--out").arg(&out));
    read(&out).0["flow_list"].take()
}

#[test]
fn the_parts_of_three_collectors_are_the_lists() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    for (router, seed) in [("east", 1), ("west", 2)] {
        site.router(router, seed, 3_000, Duration::from_secs(10));
        site.put_all(router);
    }
    let shares = ["1/3", "2/3", "3/3"];
    let outs = ["first", "second", "third"];
    let collect = |at: usize| done(&mut site.collect(outs[at], &server.url(), &["--once", "--share", shares[at]]));
    (0..3).for_each(|at| drop(collect(at)));
    for router in ["east", "west"] {
        done(&mut site.ship(router, &server.url(), &["--once"]));
    }
    let said = collect(0);
    assert!(said.ends_with("frames used of 2 routers\n"), "nothing was refused: {said}");
    let view = joined(&site, &outs[..1]);
    assert_eq!((&view["complete"], &view["routers"][0]["complete"]), (&false.into(), &false.into()));
    assert_eq!(view["routers"][1]["partitions_missing"], serde_json::json!([1, 2, 4, 5, 7]));
    (1..3).for_each(|at| drop(collect(at)));
    for router in ["east", "west"] {
        let expected = site.path("expected").join(router);
        let lists: Vec<String> = names(&expected).into_iter().filter(|name| name.ends_with(".ndjson")).collect();
        assert!(lists.len() > 3);
        for name in &lists {
            let (list, lines) = read(&expected.join(name));
            let parts = outs.map(|out| read(&site.path(out).join(router).join(name)));
            let mut merged: Vec<&String> = parts.iter().flat_map(|(_, lines)| lines).collect();
            assert!(parts.iter().all(|(_, lines)| lines.len() < merged.len()));
            let mut whole: Vec<&String> = lines.iter().collect();
            merged.sort_unstable();
            whole.sort_unstable();
            assert!(merged == whole, "{router}: {name} differs");
            for field in ["flows", "half_open", "extraneous"] {
                let sum: u64 = parts.iter().map(|(part, _)| part["flow_part"][field].as_u64().unwrap()).sum();
                assert_eq!(list["flow_list"][field], sum, "{field}");
            }
            for field in ["interval", "start", "end", "complete", "opened", "closed"] {
                assert!(parts.iter().all(|(part, _)| part["flow_part"][field] == list["flow_list"][field]), "{field}");
            }
        }
    }
    let view = joined(&site, &outs);
    let whole = joined(&site, &["expected"]);
    assert!(view["routers"][0].get("partitions_missing").is_none());
    assert_eq!(view, whole);
}

#[test]
fn the_parts_of_one_share_are_not_continued_as_another() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    site.router("east", 1, 500, Duration::from_secs(20));
    site.put_all("east");
    let collect = |share: &str| site.collect("out", &server.url(), &["--once", "--share", share]);
    done(&mut collect("1/2"));
    done(&mut site.ship("east", &server.url(), &["--once"]));
    done(&mut collect("1/2"));
    let (status, said) = run(&mut collect("2/2"));
    assert!(status == Some(1) && said.contains("of another share of the partitions"), "{said}");
    let (status, said) = run(&mut collect("3/2"));
    assert!(status == Some(2) && said.contains("a share is K/N"), "{said}");
}

#[test]
fn compressed_parts_are_the_parts_and_are_joined() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    site.router("east", 1, 2_000, Duration::from_secs(10));
    let collect = |name: &str, share: &str, options: &[&str]| {
        let share_of = format!("{share}/2");
        let options = [&["--once", "--name", name, "--share", &share_of], options].concat();
        done(&mut site.collect(&format!("{name}-{share}"), &server.url(), &options))
    };
    collect("plain", "1", &[]);
    let snapshots = site.snapshots("east");
    // Lists go on from one that is compressed, too.
    for snapshots in snapshots.chunks(snapshots.len() / 2) {
        snapshots.iter().for_each(|name| site.put("east", name));
        let said = done(&mut site.ship("east", &server.url(), &["--once"]));
        assert!(said.contains(&format!("{} snapshots sent", snapshots.len())), "{said}");
        for share in ["1", "2"] {
            collect("plain", share, &[]);
            collect("packed", share, &["--compress"]);
        }
    }
    for share in ["1", "2"] {
        let [plain, packed] = ["plain", "packed"].map(|name| site.path(&format!("{name}-{share}")).join("east"));
        let parts: Vec<String> = names(&plain).into_iter().filter(|name| name.ends_with(".ndjson")).collect();
        assert_eq!(parts.len(), snapshots.len(), "{parts:?} {snapshots:?}");
        assert!(names(&packed).iter().all(|name| !name.ends_with(".ndjson")));
        for name in parts {
            let [plain, packed] = [plain.join(&name), packed.join(name + ".zst")].map(|path| fs::read(path).unwrap());
            assert!(packed.len() < plain.len());
            assert!(zstd::decode_all(&packed[..]).unwrap() == plain);
        }
    }
    let view = joined(&site, &["packed-1", "packed-2"]);
    assert_eq!(view["complete"], true);
    assert_eq!(view, joined(&site, &["expected"]));
}
