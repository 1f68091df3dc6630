//! Lists held against the connection tracking of a router's kernel: what is older than the start, and what is
//! translated.

use crate::lab::{Host, Lab, has, routed};
use crate::older::Older;
use crate::process::Crowd;
use crate::sockets::settled;
use crate::support::command::List;
use crate::watch::{Watch, connections, is_warming_up, lists_in};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

/// A connection with both its names, each client first; the second is missing where it is the same.
type Named = ((SocketAddr, SocketAddr), Option<(SocketAddr, SocketAddr)>);

/// Runs a command line of nft for each line.
pub(crate) fn rules(host: &Host, lines: &str) {
    lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .for_each(|line| drop(host.run(&format!("nft {line}"))));
}

/// Has the kernel of this host track connections, which it does only where a rule asks for it.
pub(crate) fn track(host: &Host) {
    rules(
        host,
        "add table inet tracking
         add chain inet tracking forward { type filter hook forward priority 0 ; }
         add rule inet tracking forward ct state established,related,new counter accept",
    );
}

/// The open connections that the kernel tracks, with their names, by `conntrack`.
pub(crate) fn tracked(host: &Host) -> BTreeSet<Named> {
    let mut found = BTreeSet::new();
    for family in ["ipv4", "ipv6"] {
        for line in host.run(&format!("conntrack -L -p tcp -f {family}")).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if !["ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT"].contains(&words[3]) {
                continue;
            }
            let values = |name: &str| -> Vec<String> {
                words.iter().filter_map(|word| Some(word.strip_prefix(name)?.to_owned())).collect()
            };
            let (sources, targets) = (values("src="), values("dst="));
            let (source_ports, target_ports) = (values("sport="), values("dport="));
            let end = |addresses: &[String], ports: &[String], at: usize| {
                SocketAddr::new(addresses[at].parse().unwrap(), ports[at].parse().unwrap())
            };
            let original = (end(&sources, &source_ports, 0), end(&targets, &target_ports, 0));
            let translated = (end(&targets, &target_ports, 1), end(&sources, &source_ports, 1));
            found.insert((original, (translated != original).then_some(translated)));
        }
    }
    found
}

/// The established connections of a list, with their names.
fn named(list: &List) -> BTreeSet<Named> {
    let ends = |object: &Value| {
        let end = |address: &str, port: &str| {
            let port = u16::try_from(object[port].as_u64().unwrap()).unwrap();
            SocketAddr::new(object[address].as_str().unwrap().parse().unwrap(), port)
        };
        (end("src_ip", "src_port"), end("dest_ip", "dest_port"))
    };
    let rows = list.flows.iter().filter(|row| row["flow"]["state"] == "established");
    let found: BTreeSet<Named> = rows
        .map(|row| match row.get("nat") {
            Some(nat) if nat["name"] == "original" => (ends(nat), Some(ends(row))),
            Some(nat) => (ends(row), Some(ends(nat))),
            None => (ends(row), None),
        })
        .collect();
    assert_eq!(found.len() as u64, list.count("flows"), "a connection is listed twice: {}", list.header);
    found
}

/// The first list that a capture wrote.
fn first_list(watch: &Watch) -> List {
    lists_in(&watch.directory).remove(&1).unwrap().0
}

/// A router whose tools are there, between two hosts, with connections tracked.
fn tracking_router() -> Option<(Lab, [Host; 3])> {
    let lab = Lab::new().filter(|_| has("nft") && has("conntrack"))?;
    let (a, router, b) = routed(&lab);
    track(&router);
    Some((lab, [a, router, b]))
}

#[test]
fn the_first_list_has_all_that_the_kernel_knows_idle_connections_too() {
    let Some((lab, [a, router, b])) = tracking_router() else { return };
    let mut older = Older::open(&a, &b);
    let all = settled(&[(&a, &[]), (&b, &[])]);
    let before = tracked(&router);
    assert_eq!((all.len(), before.len()), (200, 200));
    for (name, options) in
        [("one", "-i to-b"), ("both", "-i to-a -i to-b --user nobody"), ("tags", "-i to-a --vlan-key")]
    {
        let options = format!("{options} --conntrack --every 1s --connections 10k");
        let directory = lab.path(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        let mut watch = Watch::start_into(&router, directory, &options, &["live"]);
        let first = first_list(&watch);
        assert_eq!(named(&first), before, "{options}: {}", first.header);
        let plain: BTreeSet<_> = connections(&first).into_iter().map(|(_, one, other, _)| (one, other)).collect();
        assert_eq!(plain, all.iter().map(|(_, one, other, _)| (*one, *other)).collect(), "{options}");
        assert!(is_warming_up(&first) && first.header["flow_list"]["complete"] == false, "{}", first.header);
        assert!(first.flows.iter().all(|row| row["flow"]["midstream"] == true), "{options}");
        older.speak();
        let warm = watch.list_when(|list| !is_warming_up(list));
        assert_eq!(named(&warm), before, "{options}: {}", warm.header);
        assert!(warm.header["flow_list"]["complete"] == true, "{options}: {}", warm.header);
        assert_eq!(warm.count("translated"), 0);
        let (ended, _) = watch.stop("-TERM");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("the kernel knows 200 open connections"), "{}", ended.stderr);
    }
    // An interface through which nothing goes.
    let mut watch = Watch::start(&lab, &router, "lo", "-i lo --conntrack --every 1s --connections 10k");
    assert_eq!(watch.list_when(|_| true).count("flows"), 0);
    // What had ended on one side before the start ends with the other.
    let mut watch = Watch::start(&lab, &router, "ends", "-i to-a --conntrack --every 1s --connections 10k");
    watch.list_when(|list| list.count("flows") == 200);
    older.end();
    watch.list_when(|list| list.count("flows") == 0 && tracked(&router).is_empty());
}

#[test]
fn a_translated_connection_is_one_line_with_both_names() {
    let Some((lab, [a, router, b])) = tracking_router() else { return };
    rules(
        &router,
        "add table ip nat
         add chain ip nat pre { type nat hook prerouting priority -100 ; }
         add chain ip nat post { type nat hook postrouting priority 100 ; }
         add rule ip nat post oifname to-b masquerade
         add rule ip nat pre iifname to-a tcp dport 8080 dnat to 10.0.2.1:7000
         add rule ip nat pre iifname to-a tcp dport 9090 dnat to 10.0.1.1:7001
         add rule ip nat post oifname to-a ip saddr 10.0.1.0/24 masquerade",
    );
    let (_server, _inside) = (Crowd::serve(&b, &[7000]), Crowd::serve(&a, &[7001]));
    let mut older = Crowd::start(&a);
    // Masquerade, DNAT with masquerade, and back to where they come from; and some that are not translated.
    let open = |crowd: &mut Crowd, count: usize| {
        for to in ["10.0.2.1 7000", "10.0.1.2 8080", "10.0.1.2 9090", "fd00:2::1 7000"] {
            crowd.ask(&format!("open {count} {to}"));
        }
    };
    open(&mut older, 10);
    let options = "-i to-a -i to-b --conntrack --every 1s --connections 10k";
    let mut watches: Vec<Watch> = ["", "--vlan-key", "--translations 10 --connections 11k"]
        .iter()
        .zip(["lists", "tags", "few"])
        .map(|(more, name)| {
            let options = if more.contains("--connections") {
                options.replace("--connections 10k", "")
            } else {
                options.to_owned()
            };
            Watch::start(&lab, &router, name, &format!("{options} {more}"))
        })
        .collect();
    let few = watches.pop().unwrap();
    for watch in &mut watches {
        let first = first_list(watch);
        assert_eq!(named(&first), tracked(&router), "{}", first.header);
        assert_eq!((first.count("flows"), first.count("translated")), (40, 30));
    }
    let mut newer = Crowd::start(&a);
    open(&mut newer, 20);
    older.ask("say");
    let known = tracked(&router);
    assert_eq!(known.len(), 120);
    for watch in &mut watches {
        let list = watch.list_when(|list| list.count("flows") == 120 && !is_warming_up(list));
        assert_eq!(named(&list), known, "{}", list.header);
        let header = &list.header["flow_list"];
        assert!(header["translated"] == 90 && header["complete"] == true, "{}", list.header);
        assert!(
            header.get("untranslated").is_none()
                && list.flows.iter().all(|row| row.get("nat").is_none() || row["nat"]["name"] == "translated")
        );
    }
    newer.ask("close 40");
    newer.ask("reset 40");
    for watch in &mut watches {
        let list = watch.list_when(|list| list.count("flows") == 40);
        assert_eq!((list.count("translated"), named(&list)), (30, tracked(&router)));
    }
    // Beyond the room for names connections are listed twice, and counted.
    let mut few = few;
    let list = few.list_when(|list| list.count("flows") > 40 && !is_warming_up(list));
    assert!(list.count("untranslated") > 0 && list.header["flow_list"]["complete"] == false, "{}", list.header);
}

#[test]
fn when_the_kernel_loses_changes_its_table_is_read_again() {
    let Some((lab, [a, router, b])) = tracking_router() else { return };
    rules(
        &router,
        "add table ip nat
         add chain ip nat post { type nat hook postrouting priority 100 ; }
         add rule ip nat post oifname to-b masquerade",
    );
    let _server = Crowd::serve(&b, &[7000]);
    let mut crowd = Crowd::start(&a);
    crowd.ask("open 50 10.0.2.1 7000");
    let mut watch = Watch::start(&lab, &router, "lists", "-i to-a -i to-b --conntrack --every 1s --connections 10k");
    watch.list_when(|list| list.count("flows") == 50 && !is_warming_up(list));
    watch.process.signal("-STOP");
    crowd.ask("reset 30");
    crowd.ask("open 80 10.0.2.1 7000");
    // The kernel keeps some ten thousand changes. These are of connections that no captured interface shows.
    let (_own_server, mut own) = (Crowd::serve(&router, &[7002]), Crowd::start(&router));
    for _ in 0..5 {
        own.ask("open 1000 127.0.0.1 7002");
        own.ask("reset 1000");
    }
    watch.process.signal("-CONT");
    let list = watch.list_when(|list| list.count("flows") == 100 && list.header["flow_list"]["complete"] == true);
    assert_eq!((list.count("translated"), named(&list)), (100, tracked(&router)), "{}", list.header);
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("and its table was read again"), "{}", ended.stderr);
}
