//! Everything is killed, and delivered twice: the lists are those of one machine.

use crate::server::Server;
use crate::site::{Running, Site, done, fleet, wait_until};
use crate::twins::twins;
use crate::union::{assert_union, has_duckdb};
use async_nats::jetstream::stream;
use flowpeel::disk::Check;
use flowpeel::export::SnapshotName;
use flowpeel::snapshot::SnapshotFile;
use flowpeel_fleet::frame::{FRAME_VERSION, Hashed, Keys, Place, RunId, seal};
use flowpeel_fleet::key::RouterKey;
use flowpeel_fleet::{broker, piece, subject};
use flowpeel_iblt::hash::Secret;
use flowpeel_traffic::TrafficConfig;
use std::fs;
use std::thread;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(5);

/// Two routers, one of which lacks some of the connections that the other sees.
fn site(every: Duration) -> Site {
    twins(TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(1, 2_000) }, every)
}

/// Asserts that the view of the lists in `out` is the union of the newest lists that the routers would have written.
fn assert_joined(site: &Site, out: &str, routers: [&str; 2]) {
    if !has_duckdb() {
        return;
    }
    let (newest, joined) = (site.path("newest"), site.path("joined.ndjson"));
    for router in routers {
        let name = site.lists("expected", router).pop_last().unwrap();
        fs::create_dir_all(newest.join(router)).unwrap();
        fs::copy(site.path("expected").join(router).join(&name), newest.join(router).join(&name)).unwrap();
    }
    done(fleet("join").arg("--from").arg(site.path(out)).arg("--out").arg(&joined));
    let count = assert_union(&newest, &joined);
    assert!(count > 100, "{count}");
}

/// A stream that forgets at once what it has, so that whatever is sent twice is in it twice.
fn forgetful_stream(server: &Server) {
    server.on_jetstream(async |context| {
        let config = stream::Config {
            name: broker::STREAM.to_owned(),
            subjects: vec![subject::ALL.to_owned()],
            duplicate_window: Duration::from_millis(100),
            ..stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
    });
}

/// The frame as a later version writes it, which readers of this one understand: with more in its header.
fn of_later_version(mut frame: Vec<u8>, key: &Secret) -> Vec<u8> {
    const PREAMBLE_SIZE: usize = 12;
    let added = b"what is not known yet";
    let header_size = u32::from_le_bytes(std::array::from_fn(|at| frame[8 + at])) as usize;
    frame[4..6].copy_from_slice(&(FRAME_VERSION + 1).to_le_bytes());
    frame[8..12].copy_from_slice(&((header_size + added.len()) as u32).to_le_bytes());
    let end = PREAMBLE_SIZE + header_size;
    frame.splice(end..end, *added);
    let end = end + added.len();
    let mut tag = key.authentication(b"flowpeel fleet frame");
    Check::update(&mut tag, &frame[..end]);
    frame[end..end + 32].copy_from_slice(&tag.sum());
    frame
}

/// Sends these snapshots of a router as the shipper of a later version does.
fn ship_as_later_version(site: &Site, server: &Server, router: &str, names: &[String]) {
    let key = site.router_key(router);
    server.on_jetstream(async |context| {
        for name in names {
            let snapshot = SnapshotFile::open(&site.made(router).join(name), &Secret::REPLAY).unwrap();
            let source = &snapshot.header.sources[0];
            for (partition, image) in snapshot.partition_images(&Secret::REPLAY).unwrap().into_iter().enumerate() {
                let place = Place {
                    router: router.to_owned(),
                    key_id: snapshot.header.key_id,
                    run: RunId { run: source.run, origin_ns: source.origin_ns() },
                    interval: source.figures.interval,
                    end: (source.end_tick, source.within_tick_ns),
                    name: SnapshotName::parse(name).unwrap(),
                    partition,
                };
                let keys = Keys { secret: &Secret::REPLAY, router: &RouterKey::new(key.clone()) };
                let frame = of_later_version(seal(&place, &Hashed::new(image), None, keys).unwrap(), &key);
                for (_, piece) in piece::cut(&frame) {
                    let subject = subject::of(router, partition);
                    context.publish(subject, piece.into()).await.unwrap().await.unwrap();
                }
            }
        }
    });
}

#[test]
fn broker_collector_and_shippers_are_killed_and_all_comes_twice() {
    let Some(mut server) = Server::start("") else { return };
    let site = site(EVERY);
    let url = server.url();
    forgetful_stream(&server);
    let start_collector = || Running::start(&mut site.collect("out", &url, &["--checkpoint-every", "3"]));
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
        if let Some(name) = west.get(at).filter(|_| at + 3 < west.len()) {
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
                // Its machine is gone for good: another goes on, with nothing but what is at the broker.
                wait_until("there are checkpoints", || lists("east") > 6);
                drop(collector.take());
                collector = Some(Running::start(&mut site.collect("spare", &url, &[])));
            }
            22 => shippers[1] = Some(start_shipper("west")),
            _ => {}
        }
        thread::sleep(Duration::from_millis(30));
    }
    assert!(west.len() > 22 && shippers[1].is_some(), "west was cut off, and came back");
    drop(collector);
    // The west is upgraded before it sends the last of its snapshots.
    let (before, last) = west.split_last_chunk::<3>().unwrap();
    drop(shippers);
    before.iter().for_each(|name| site.put("west", name));
    done(&mut site.ship("west", &url, &["--once"]));
    ship_as_later_version(&site, &server, "west", last);
    for router in ["east", "west"] {
        site.put_all(router);
        done(&mut site.ship(router, &url, &["--once"]));
        // All of it once more, from the beginning.
        fs::remove_file(site.path(&format!("spool/{router}.shipped"))).unwrap();
        done(&mut site.ship(router, &url, &["--once"]));
    }
    let said = done(&mut site.collect("spare", &url, &["--once"]));
    assert!(said.contains("late or twice"), "{said}");
    for router in ["east", "west"] {
        let count = site.assert_goes_on(&["out", "spare"], router, "expected");
        assert!(count > 3, "{count}");
    }
    assert_joined(&site, "spare", ["east", "west"]);
}

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Broker,
    Shipper,
    /// It is started again where it was.
    Collector,
    /// Its machine is gone: another begins with nothing.
    CollectorForGood,
}

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    /// A number below this one.
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Kills at random, so often, while snapshots come; then everything that was sent is listed.
fn kill_at_random(seed: u64, kill_count: usize) {
    let Some(mut server) = Server::start("") else { return };
    let (site, routers) = (site(Duration::from_secs(1)), ["east", "west"]);
    let url = server.url();
    forgetful_stream(&server);
    let mut outs = vec!["out-0".to_owned()];
    let collect = |out: &str| Running::start(&mut site.collect(out, &url, &["--checkpoint-every", "3"]));
    let ship = |router: &str| Running::start(&mut site.ship(router, &url, &[]));
    let mut collector = Some(collect(&outs[0]));
    let mut shippers = routers.map(|router| Some(ship(router)));
    let snapshots = routers.map(|router| site.snapshots(router));
    let step_count = snapshots.iter().map(Vec::len).max().unwrap_or_default();
    let (mut dice, mut killed) = (Dice(seed), 0);
    for at in 0..step_count {
        for (router, names) in routers.iter().zip(&snapshots) {
            names.get(at).into_iter().for_each(|name| site.put(router, name));
        }
        while killed < kill_count * (at + 1) / step_count {
            killed += 1;
            if dice.roll(3) == 0 {
                // Everything has caught up; else it is killed at its work.
                let newest = site.lists("expected", "east").into_iter().nth(at.min(snapshots[0].len() - 1)).unwrap();
                let out = outs.last().unwrap();
                wait_until("the newest is listed", || site.lists(out, "east").contains(&newest));
            } else {
                thread::sleep(Duration::from_millis(dice.roll(800)));
            }
            let kinds = [Victim::Broker, Victim::Shipper, Victim::Collector, Victim::CollectorForGood];
            match kinds[dice.roll(kinds.len() as u64) as usize] {
                Victim::Broker => server.restart(),
                Victim::Shipper => {
                    let which = dice.roll(2) as usize;
                    drop(shippers[which].take());
                    shippers[which] = Some(ship(routers[which]));
                }
                Victim::Collector => {
                    drop(collector.take());
                    collector = outs.last().map(|out| collect(out));
                }
                Victim::CollectorForGood => {
                    drop(collector.take());
                    outs.push(format!("out-{}", outs.len()));
                    collector = outs.last().map(|out| collect(out));
                }
            }
        }
    }
    assert_eq!(killed, kill_count);
    drop((collector, shippers));
    for router in routers {
        done(&mut site.ship(router, &url, &["--once"]));
    }
    let last = outs.last().unwrap();
    done(&mut site.collect(last, &url, &["--once"]));
    let machines: Vec<&str> = outs.iter().map(String::as_str).collect();
    for router in routers {
        let count = site.assert_goes_on(&machines, router, "expected");
        println!("{router}: {kill_count} kills, {} collectors, the last has {count} lists", machines.len());
    }
    assert_joined(&site, last, routers);
}

#[test]
#[ignore = "a hundred kills take minutes"]
fn a_hundred_kills_at_random_cost_nothing() {
    kill_at_random(26, 100);
}
