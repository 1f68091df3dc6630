//! Everything is killed, and delivered twice: the lists are those of one machine.

use crate::server::Server;
use crate::site::{Running, Site, done};
use async_nats::jetstream::stream;
use flowpeel_fleet::{broker, subject};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(5);

/// How long all that was sent may take to be listed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A stream that forgets at once what it has, so that whatever is sent twice is in it twice.
fn forgetful_stream(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::ConnectOptions::new().connect(url).await.unwrap();
        let config = stream::Config {
            name: broker::STREAM.to_owned(),
            subjects: vec![subject::ALL.to_owned()],
            duplicate_window: Duration::from_millis(100),
            ..stream::Config::default()
        };
        async_nats::jetstream::new(client).create_stream(config).await.unwrap();
    });
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn broker_collector_and_shippers_are_killed_and_all_comes_twice() {
    let Some(mut server) = Server::start("") else { return };
    let site = Site::new();
    for (router, seed) in [("east", 1), ("west", 2)] {
        site.router(router, seed, 2_000, EVERY);
    }
    let url = server.url();
    forgetful_stream(&url);
    let start_collector = || Running::start(&mut site.collect("out", &url, &[]));
    let mut collector = Some(start_collector());
    let start_shipper = |router: &str| Running::start(&mut site.ship(router, &url, &[]));
    let mut shippers = [Some(start_shipper("east")), Some(start_shipper("west"))];
    let lists = |router: &str| fs::read_dir(site.path("out").join(router)).map_or(0, Iterator::count);
    let (east, west) = (site.snapshots("east"), site.snapshots("west"));
    let count = east.len().max(west.len());
    for at in 0..count {
        if let Some(name) = east.get(at) {
            site.put("east", name);
        }
        if let Some(name) = west.get(at) {
            site.put("west", name);
        }
        match at {
            // West is cut off for 20 intervals.
            2 => drop(shippers[1].take()),
            4 => wait_until("lists come", || lists("east") > 3),
            6 => {
                drop(collector.take());
                collector = Some(start_collector());
            }
            9 => {
                drop(shippers[0].take());
                shippers[0] = Some(start_shipper("east"));
            }
            12 => server.kill(),
            15 => server.restart(),
            18 => {
                drop(collector.take());
                collector = Some(start_collector());
            }
            22 => shippers[1] = Some(start_shipper("west")),
            _ => {}
        }
        thread::sleep(Duration::from_millis(30));
    }
    assert!(west.len() > 22 && shippers[1].is_some(), "west was cut off, and came back");
    drop(shippers);
    drop(collector);
    for router in ["east", "west"] {
        done(&mut site.ship(router, &url, &["--once"]));
        // All of it once more, from the beginning.
        fs::remove_file(site.path(&format!("spool/{router}.shipped"))).unwrap();
        done(&mut site.ship(router, &url, &["--once"]));
    }
    let said = done(&mut site.collect("out", &url, &["--once"]));
    assert!(said.contains("late or twice"), "{said}");
    for router in ["east", "west"] {
        site.assert_lists("out", router);
    }
}
