//! A collector on another machine continues from the checkpoints of the one before it.

use crate::server::Server;
use crate::site::{Running, Site, done, run, wait_until};
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(5);

/// A command whose messages are kept.
fn heard(command: &mut std::process::Command) -> Child {
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// How a command that ends by itself has ended, and what it said.
fn ended(child: Child) -> (Option<i32>, String) {
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// Two routers, with some snapshots of each in the broker and listed by a collector in `first`, which still runs.
struct Begun {
    server: Server,
    site: Site,
    collector: Option<Child>,
}

impl Begun {
    fn new(options: &[&str]) -> Option<Self> {
        let server = Server::start("")?;
        let site = Site::new();
        for (router, seed) in [("east", 1), ("we.st", 2)] {
            site.router(router, seed, 2_000, EVERY);
        }
        done(&mut site.collect("first", &server.url(), &[&["--once"], options].concat()));
        let collector = heard(&mut site.collect("first", &server.url(), options));
        let begun = Begun { server, site, collector: Some(collector) };
        begun.ship(0, 10);
        for router in ["east", "we.st"] {
            wait_until("lists come", || begun.site.lists("first", router).len() == 10);
        }
        Some(begun)
    }

    /// Sends the snapshots of all routers from this one on, up to that.
    fn ship(&self, from: usize, to: usize) {
        for router in ["east", "we.st"] {
            let all = self.site.snapshots(router);
            all.iter().take(to).skip(from).for_each(|name| self.site.put(router, name));
            done(&mut self.site.ship(router, &self.server.url(), &["--once"]));
        }
    }

    /// Kills the first collector with SIGKILL.
    fn kill(&mut self) {
        let mut collector = self.collector.take().unwrap();
        collector.kill().unwrap();
        collector.wait().unwrap();
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(mut collector) = self.collector.take() {
            drop(collector.kill());
            drop(collector.wait());
        }
    }
}

#[test]
fn a_standby_with_nothing_takes_over_from_the_checkpoint_of_one_that_was_killed() {
    let Some(mut begun) = Begun::new(&["--checkpoint-every", "4"]) else { return };
    let url = begun.server.url();
    let standby = Running::start(&mut begun.site.collect("second", &url, &["--standby", "3s"]));
    begun.ship(10, 12);
    wait_until("the holder goes on", || begun.site.lists("first", "east").len() == 12);
    assert!(begun.site.lists("second", "east").is_empty(), "the standby waits");
    begun.kill();
    begun.ship(12, usize::MAX);
    for router in ["east", "we.st"] {
        let count = begun.site.snapshots(router).len();
        let last = begun.site.lists("expected", router).last().cloned().unwrap();
        assert!(count > 12);
        wait_until("the standby lists all", || begun.site.lists("second", router).contains(&last));
        // It was killed after 12 lists, of which checkpoints have the first, and then each fourth.
        let count_of_second = begun.site.assert_goes_on(&["first", "second"], router, "expected");
        assert!(count_of_second < count && count_of_second > count - 9, "{count_of_second} of {count}");
    }
    drop(standby);
}

#[test]
fn one_that_ends_in_order_hands_over_at_once() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let url = begun.server.url();
    let _standby = Running::start(&mut begun.site.collect("second", &url, &["--standby", "1h"]));
    let collector = begun.collector.take().unwrap();
    done(std::process::Command::new("kill").arg(collector.id().to_string()));
    let (status, said) = ended(collector);
    assert!(status == Some(0) && said.contains(" checkpoints, "), "{said}");
    begun.ship(10, usize::MAX);
    for router in ["east", "we.st"] {
        let all = begun.site.lists("expected", router);
        wait_until("the standby lists all", || begun.site.lists("second", router).contains(all.last().unwrap()));
        // The list of the checkpoint, and those behind it.
        assert_eq!(begun.site.assert_goes_on(&["first", "second"], router, "expected"), all.len() - 9);
    }
}

#[test]
fn who_was_replaced_stops_and_says_so() {
    let Some(mut begun) = Begun::new(&["--share", "1/2"]) else { return };
    let url = begun.server.url();
    let options = ["--share", "1/2"];
    let second = Running::start(&mut begun.site.collect("second", &url, &options));
    let (status, said) = ended(begun.collector.take().unwrap());
    assert!(status == Some(3) && said.contains("another collector has taken this share"), "{said}");
    begun.ship(10, 13);
    wait_until("the second goes on", || begun.site.lists("second", "east").len() > 3);
    drop(second);
    // The first goes on with what it has, though it lacks some lists that the second wrote.
    begun.ship(13, usize::MAX);
    let said = done(&mut begun.site.collect("first", &url, &[&["--once"], &options[..]].concat()));
    assert!(said.contains("this share is taken over from another collector"), "{said}");
    done(&mut begun.site.collect("other", &url, &[&["--once", "--name", "other"], &options[..]].concat()));
    for router in ["east", "we.st"] {
        begun.site.assert_goes_on(&["second", "first"], router, "other");
    }
}

#[test]
fn one_that_is_damaged_is_passed_over_for_the_one_before_it() {
    let Some(mut begun) = Begun::new(&["--checkpoint-every", "4"]) else { return };
    begun.kill();
    begun.ship(10, usize::MAX);
    let stream = "flowpeel-share-collect-01234567";
    // The piece of east's newest checkpoint.
    begun.server.on_jetstream(async |context| {
        let stream = context.get_stream(stream).await.unwrap();
        let piece = stream.get_last_raw_message_by_subject("flowpeel-share.collect.01234567.piece.east").await;
        assert!(stream.delete_message(piece.unwrap().sequence).await.unwrap());
    });
    let said = done(&mut begun.site.collect("second", &begun.server.url(), &["--once"]));
    assert!(said.contains("the lists of east cannot be continued from this checkpoint"), "{said}");
    assert!(said.contains("2 routers continued from checkpoints"), "{said}");
    let counts = ["east", "we.st"].map(|router| begun.site.assert_goes_on(&["first", "second"], router, "expected"));
    let all = ["east", "we.st"].map(|router| begun.site.lists("expected", router).len());
    assert!(all[0] - counts[0] < all[1] - counts[1], "east goes on from an earlier list: {counts:?} of {all:?}");
}

#[test]
fn without_any_checkpoint_lists_are_incomplete_and_it_is_said() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.kill();
    begun.server.on_jetstream(async |context| {
        context.delete_stream("flowpeel-share-collect-01234567").await.unwrap();
    });
    begun.ship(10, usize::MAX);
    let said = done(&mut begun.site.collect("second", &begun.server.url(), &["--once"]));
    assert!(said.contains("nor a checkpoint"), "{said}");
    assert!(said.contains("without the one that they build on"), "{said}");
}

#[test]
fn without_any_checkpoint_it_begins_with_the_lists_of_the_routers() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    site.router("east", 1, 100_000, Duration::from_secs(10));
    // The first collector creates the stream.
    done(&mut site.collect("first", &server.url(), &["--once"]));
    let snapshots = site.snapshots("east");
    snapshots.iter().skip(9).for_each(|name| site.put("east", name));
    done(&mut site.ship("east", &server.url(), &["--once"]));
    let base = site.path("base");
    fs::create_dir_all(base.join("east")).unwrap();
    let all = site.lists("expected", "east");
    for name in all.iter().take(9) {
        fs::copy(site.path("expected").join("east").join(name), base.join("east").join(name)).unwrap();
    }
    let from_base = ["--base", base.to_str().unwrap()];
    let collect = |out: &str, options: &[&str]| {
        done(&mut site.collect(out, &server.url(), &[options, &["--once", "--name", out]].concat()))
    };
    let said = collect("alone", &[]);
    assert!(said.contains(" not complete"), "too many are open for a snapshot to list alone: {said}");
    let said = collect("based", &from_base);
    assert!(!said.contains(" not complete"), "{said}");
    site.assert_goes_on(&["base", "based"], "east", "expected");
    let said = collect("part", &[&["--share", "2/3"], &from_base[..]].concat());
    assert!(!said.contains(" not complete"), "{said}");
}

#[test]
fn what_is_not_signed_with_the_key_of_the_fleet_is_refused() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.kill();
    let subject = "flowpeel-share.collect.01234567.holder";
    begun.server.on_jetstream(async |context| {
        let forged = [&[0; 32][..], br#"{"directory":"x","process":"y","start":1,"is_begun":true,"is_released":true}"#];
        context.publish(subject, forged.concat().into()).await.unwrap().await.unwrap();
    });
    let (status, said) = run(&mut begun.site.collect("second", &begun.server.url(), &["--once"]));
    assert!(status == Some(1) && said.contains("is not signed with the fleet's key"), "{said}");
}
