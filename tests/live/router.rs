//! `examples/router.rs`, a forwarder with the engine inside, between two hosts: its lists are what the kernels of the
//! hosts know.

use crate::lab::{End, Lab, join, run, traffic};
use crate::process::{Crowd, until};
use crate::sockets::{Connection, settled};
use crate::support::say::skipped;
use crate::watch::{assert_listed, lists_in};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const PORT: u16 = 7000;

/// The example beside this test program, where it was built.
fn example() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_flowpeel")).with_file_name("examples").join("router");
    if !path.is_file() {
        skipped("examples/router.rs is not built: cargo build --example router, in the same profile");
        return None;
    }
    Some(path)
}

/// The router, which is ended however a test ends.
struct Router(Child);

impl Drop for Router {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_router_with_the_engine_inside_lists_what_the_kernels_know() {
    let Some((lab, example)) = Lab::new().zip(example()) else { return };
    let (a, router, b) = (lab.host("a"), lab.host("router"), lab.host("b"));
    join(&End(&a, "eth0", &["10.0.2.2/24", "fd00:2::2/64"]), &End(&router, "to-a", &[]), 1500);
    join(&End(&b, "eth0", &["10.0.2.1/24", "fd00:2::1/64"]), &End(&router, "to-b", &[]), 1500);
    // The router does neither checksums nor segmentation.
    run(a.command(traffic("pcaps/traffic/offload"), ["eth0"]));
    run(b.command(traffic("pcaps/traffic/offload"), ["eth0"]));
    let directory = lab.path("lists");
    let mut command = router.command(example, ["to-a", "to-b"]);
    command.arg(&directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Router(command.spawn().unwrap());
    let mut output = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");

    let hosts = [(&a, &[][..]), (&b, &[][..])];
    let check = |when: &str| -> BTreeSet<Connection> {
        let mut tries = 0;
        loop {
            let known = settled(&hosts);
            let then = Timestamp::now();
            let newest = || lists_in(&directory).into_values().map(|(list, _)| list).next_back();
            let is_after = |list: &crate::support::command::List| crate::watch::time(list, "start") >= then;
            let list = until(|| format!("{when}: no list of the router"), || newest().filter(&is_after));
            if settled(&hosts) == known {
                assert_listed(&list, &known, &format!("{when}: the router"));
                assert_eq!(list.header["flow_list"]["complete"], true, "{}", list.header);
                return known;
            }
            tries += 1;
            assert!(tries < 5, "{when}: the sockets do not come to rest");
        }
    };
    let (mut server, mut client) = (Crowd::serve(&b, &[PORT]), Crowd::start(&a));
    for address in ["10.0.2.1", "fd00:2::1"] {
        client.ask(&format!("open 100 {address} {PORT}"));
    }
    server.ask("held 200");
    assert_eq!(check("200 opened").len(), 200);
    // One after the other: at once they might choose the same connections.
    for (crowd, left) in [(&mut client, 140), (&mut server, 80)] {
        crowd.ask("close 30");
        crowd.ask("reset 30");
        assert_eq!(check("60 closed and reset").len(), left);
    }
    for crowd in [&mut client, &mut server] {
        crowd.ask("at-end hold");
    }
    client.ask("half-close 10");
    client.ask("say");
    assert_eq!(check("ten closed by one side").len(), 80);
    drop((client, server));
    assert_eq!(check("both killed").len(), 0);

    drop(running.0.stdin.take());
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(running.0.wait().unwrap().success(), "{said}");
    assert!(said.ends_with(" frames, 200 connections opened and 200 closed\n"), "{said}");
    let lists = lists_in(&directory);
    let sum = |name: &str| lists.values().map(|(list, _)| list.count(name)).sum::<u64>();
    assert_eq!((sum("opened"), sum("closed"), sum("dropped")), (200, 200, 0));
}
