//! From spools to lists, with and without a broker.

use crate::server::Server;
use crate::site::{Site, done, run};
use std::fs;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(10);

#[test]
fn lists_without_a_broker_are_those_of_snapshot_collect() {
    let site = Site::new();
    site.router("east", 1, 3_000, EVERY);
    site.router("we.st", 2, 2_000, EVERY);
    let mut collect = std::process::Command::new(env!("CARGO_BIN_EXE_flowpeel-fleet"));
    collect.args(["collect", "--once", "--out"]).arg(site.path("out"));
    collect.arg("--from").arg(site.made("east")).arg("--from").arg(site.made("we.st"));
    let said = done(&mut collect);
    assert!(said.contains(" lists"), "{said}");
    for router in ["east", "we.st"] {
        site.assert_lists("out", router);
    }
    let (status, said) = run(collect.arg("--from").arg(site.made("east")));
    assert!(status == Some(1) && said.contains("another directory is of the same router"), "{said}");
}

#[test]
fn lists_over_a_broker_are_those_of_snapshot_collect() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    for (router, seed) in [("east", 1), ("we.st", 2)] {
        site.router(router, seed, 3_000, EVERY);
        site.put_all(router);
    }
    // A collector creates the stream.
    done(&mut site.collect("out", &server.url(), &["--once"]));
    for router in ["east", "we.st"] {
        let said = done(&mut site.ship(router, &server.url(), &["--once"]));
        assert!(said.contains(&format!("{} snapshots sent", site.snapshots(router).len())), "{said}");
    }
    let said = done(&mut site.collect("out", &server.url(), &["--once"]));
    assert!(said.ends_with("frames used of 2 routers\n"), "nothing was refused: {said}");
    for router in ["east", "we.st"] {
        site.assert_lists("out", router);
    }
    // All of it again: the broker has it already.
    fs::remove_file(site.path("spool/east.shipped")).unwrap();
    let said = done(&mut site.ship("east", &server.url(), &["--once"]));
    assert!(said.contains("which the broker had already"), "{said}");
    let said = done(&mut site.collect("out", &server.url(), &["--once"]));
    assert!(said.starts_with("0 lists, 0") || said.starts_with("0 lists of"), "{said}");
    // Another collector gets everything.
    done(&mut site.collect("other", &server.url(), &["--once", "--name", "other"]));
    site.assert_lists("other", "east");
}

#[test]
fn what_is_of_another_secret_or_key_is_refused_and_the_rest_goes_on() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    for (router, seed) in [("east", 1), ("west", 2)] {
        site.router(router, seed, 1_000, EVERY);
        site.put_all(router);
    }
    done(&mut site.collect("out", &server.url(), &["--once"]));
    // West was stolen, and speaks for east with its own key.
    let mut stolen = std::process::Command::new(env!("CARGO_BIN_EXE_flowpeel-fleet"));
    stolen.args(["ship", "--once", "--nats", &server.url(), "--spool"]).arg(site.spool("east"));
    stolen.arg("--note").arg(site.path("stolen.note")).arg("--router-key").arg(site.path("west.key"));
    done(&mut stolen);
    for router in ["west", "east"] {
        done(&mut site.ship(router, &server.url(), &["--once"]));
    }
    let said = done(&mut site.collect("out", &server.url(), &["--once"]));
    assert!(said.contains("signed with a wrong key"), "{said}");
    for router in ["east", "west"] {
        site.assert_lists("out", router);
    }
}
