//! Two taps of the same traffic, one of which does not see all of it.

use crate::asymmetric::{addresses, split};
use crate::site::{Running, Site, fleet, run, wait_until};
use flowpeel::engine::Config;
use flowpeel_traffic::TrafficConfig;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(10);

/// Whether the west sees an IP packet: it sees those between addresses whose sum is not a multiple of eight.
fn is_in_west(ip: &[u8]) -> bool {
    let sum: u32 = addresses(ip).into_iter().flatten().map(|byte| u32::from(*byte)).sum();
    !sum.is_multiple_of(8)
}

/// Two routers that replay this traffic, of which the west lacks some connections.
pub(crate) fn twins(traffic: TrafficConfig, every: Duration) -> Site {
    let site = Site::new();
    let capture = site.capture(traffic);
    let [west, rest] = ["west.pcap", "rest.pcap"].map(|name| site.path(name));
    split(&capture, [&west, &rest], is_in_west);
    let config = || Config { every: Some(every), ..Config::default() };
    site.router_of("east", &capture, config());
    site.router_of("west", &west, config());
    site
}

fn site() -> Site {
    twins(TrafficConfig::mixed(5, 3_000), EVERY)
}

fn lines_in(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The established connections of the last list of a router that are at least so old.
fn established(site: &Site, router: &str, age_s: f64) -> BTreeSet<String> {
    let name = site.lists("expected", router).pop_last().unwrap();
    let lines = lines_in(&fs::read_to_string(site.path("expected").join(router).join(name)).unwrap());
    let rows = lines.iter().filter(|line| line["flow"]["state"] == "established");
    let old = rows.filter(|row| row["flow"]["age"].as_f64().unwrap() >= age_s);
    old.map(|row| row["community_id"].to_string()).collect()
}

#[test]
fn what_one_tap_alone_sees_is_what_the_other_lacks() {
    let site = site();
    let ended = fleet("diff")
        .arg("--from")
        .arg(site.path("expected"))
        .args(["--once", "--twins", "west,east", "--grace", "1"])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let lines = lines_in(std::str::from_utf8(&ended.stdout).unwrap());
    let (status, differences) = lines.split_first().unwrap();
    assert_eq!((&status["event_type"], &status["twins"]["comparable"]), (&"twins".into(), &true.into()));
    let (east, west) = (established(&site, "east", EVERY.as_secs_f64()), established(&site, "west", 0.0));
    let expected: BTreeSet<&String> = east.difference(&west).collect();
    let found: BTreeSet<String> = differences.iter().map(|line| line["community_id"].to_string()).collect();
    assert!(expected.len() > 20, "{}", expected.len());
    assert_eq!(found.iter().collect::<BTreeSet<_>>(), expected);
    for line in differences {
        assert_eq!(
            (&line["routers"], &line["difference"]["missing_from"]),
            (&serde_json::json!(["east"]), &"west".into())
        );
        assert_eq!(line["difference"]["change"], "stands");
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains(&format!("{} differences stand", differences.len())), "{said}");
}

/// Puts a list where the lists of a router come.
fn put(site: &Site, router: &str, name: &str) {
    let (from, to) = (site.path("expected").join(router), site.path("lists").join(router));
    fs::create_dir_all(&to).unwrap();
    let temporary = to.join(".new");
    fs::copy(from.join(name), &temporary).unwrap();
    fs::rename(temporary, to.join(name)).unwrap();
}

#[test]
fn a_standing_query_follows_the_lists_and_says_who_is_late() {
    let site = site();
    let [east, west] = ["east", "west"].map(|router| Vec::from_iter(site.lists("expected", router)));
    put(&site, "east", &east[0]);
    put(&site, "west", &west[0]);
    let out = site.path("differences.ndjson");
    let mut diff = fleet("diff");
    diff.arg("--from").arg(site.path("lists")).args(["--twins", "east,west"]);
    let _diff = Running::start(diff.stdout(fs::File::create(&out).unwrap()));
    let printed = |out: &Path| lines_in(&fs::read_to_string(out).unwrap());
    let has = |what: &str| fs::read_to_string(&out).unwrap().contains(what);
    wait_until("it says how they are", || has("\"comparable\":true"));
    let behind = 5;
    for (one, other) in east.iter().zip(&west).take(behind).skip(1) {
        put(&site, "east", one);
        put(&site, "west", other);
    }
    wait_until("differences stand", || has("\"stands\""));
    assert!(printed(&out).iter().all(|line| line["difference"]["missing_from"] != "east"), "the east sees all");
    // The west stays behind.
    assert!(east.len() > behind + 3);
    east.iter().skip(behind).for_each(|name| put(&site, "east", name));
    wait_until("it says that the west is late", || has("\"health\":\"late\"") || has("\"health\":\"gone\""));
    let last = printed(&out).into_iter().rfind(|line| line["event_type"] == "twins").unwrap();
    assert_eq!(last["twins"]["comparable"], false);
}

#[test]
fn twins_are_two_that_are_there() {
    let site = site();
    for (twins, what) in [("east", "twins are two names"), ("east,north", "no folder here with lists of north")] {
        let (status, said) = run(fleet("diff").arg("--from").arg(site.path("expected")).args(["--twins", twins]));
        assert!(status == Some(2) && said.contains(what), "{said}");
    }
}
