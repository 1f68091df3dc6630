//! Lists held against the connection tracking of a router's kernel: what is older than the start, and what is
//! translated.

use crate::lab::{Host, Lab, has, routed};
use crate::older::Older;
use crate::process::{Crowd, Process, until};
use crate::sockets::settled;
use crate::support::command::{FLOWPEEL, List};
use crate::support::say::skipped;
use crate::watch::{Watch, connections, is_warming_up, lists_in};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

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

/// A masquerading router, and a crowd that is served through it.
fn masqueraded() -> Option<(Lab, [Host; 3], Crowd)> {
    let (lab, hosts) = tracking_router()?;
    rules(
        &hosts[1],
        "add table ip nat
         add chain ip nat post { type nat hook postrouting priority 100 ; }
         add rule ip nat post oifname to-b masquerade",
    );
    let server = Crowd::serve(&hosts[2], &[7000, 7001]);
    Some((lab, hosts, server))
}

/// The lines of a list by their ends and starts, without what changes with its age.
fn by_ends(lines: &[Value]) -> BTreeMap<String, Value> {
    let of = |line: &Value| {
        let ends = ["src_ip", "src_port", "dest_ip", "dest_port"].map(|name| line[name].to_string()).join(" ");
        (ends, serde_json::json!([line["flow"]["start"], line["flow"].get("midstream"), line.get("nat")]))
    };
    let found: BTreeMap<_, _> = lines.iter().map(of).collect();
    assert_eq!(found.len(), lines.len(), "a connection is there twice");
    found
}

#[test]
fn changes_of_translated_connections_turn_one_list_into_the_next() {
    let Some((lab, [a, router, _b], _server)) = masqueraded() else { return };
    let open = |crowd: &mut Crowd, count: usize| {
        for to in ["10.0.2.1 7000", "fd00:2::1 7000"] {
            crowd.ask(&format!("open {count} {to}"));
        }
    };
    // One whose handshake stays as it is: the server does not get what completes it.
    rules(
        &a,
        "add table ip mute
         add chain ip mute out { type filter hook output priority 0 ; }
         add rule ip mute out tcp dport 7001 tcp flags & (syn | ack) == ack drop",
    );
    let mut older = Crowd::start(&a);
    open(&mut older, 10);
    let options = "-i to-a -i to-b --conntrack --changes=4 --every 1s --connections 10k";
    let mut watch = Watch::start(&lab, &router, "lists", options);
    let mut newer = Crowd::start(&a);
    newer.ask("try 1 10.0.2.1 7001");
    for round in 0..6 {
        open(&mut newer, 20);
        // Those that open and end between two lists too, for the kernel as well.
        open(&mut older, 5);
        older.ask(if round % 2 == 0 { "reset 10" } else { "close 10" });
        newer.ask("close 10");
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    let header = |lines: &[Value], name: &str| {
        let list = lines[0].get("flow_list").or_else(|| lines[0].get("flow_changes")).unwrap();
        list[name].clone()
    };
    let read = |path: &PathBuf| -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let directory = watch.directory.clone();
    let files = || {
        let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
        files.sort_by_key(|path| path.file_name().unwrap().to_str().unwrap().split_once('-').unwrap().1.to_owned());
        files
    };
    until(
        || format!("not 200 in {:?}", files().last().map(read).map(|lines| lines[0].clone())),
        || {
            let last = read(files().last()?);
            let count = |name: &str| header(&last, name).as_u64();
            (count("interval") > Some(10) && count("flows") == Some(200)).then_some(())
        },
    );
    let last = tracked(&router);
    watch.process.signal("-TERM");
    let ended = watch.process.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);

    let all: Vec<Vec<Value>> = files().iter().map(read).collect();
    assert!(all.windows(2).all(|two| header(&two[0], "interval").as_u64() < header(&two[1], "interval").as_u64()));
    let (mut open, mut opened_count, mut ended_count) = (BTreeMap::new(), 0, 0);
    let (mut full_count, mut half_open_count) = (0, 0);
    for lines in &all {
        let (head, lines) = (&lines[0], &lines[1..]);
        let counted = |name: &str| header(std::slice::from_ref(head), name).as_u64().unwrap();
        if head["event_type"] == "flow_list" {
            let established: Vec<Value> = lines
                .iter()
                .filter(|line| line.get("change").is_none() && line["flow"]["state"] == "established")
                .cloned()
                .collect();
            full_count += 1;
            let named = lines.iter().filter(|line| line.get("change").is_none() && line.get("nat").is_some()).count();
            assert_eq!(counted("translated"), named as u64, "{head}");
            // Every fourth list is whole, and says nothing of what opened; those between add up to the one before it.
            open = by_ends(&established);
            let closings = lines.iter().filter(|line| line["change"] == "closed");
            ended_count += closings.filter(|line| line.get("nat").is_some()).count();
            continue;
        }
        for line in lines {
            let (ends, what) = by_ends(std::slice::from_ref(line)).pop_first().unwrap();
            let is_v4 = !line["src_ip"].as_str().unwrap().contains(':');
            assert!(line["src_ip"] != "10.0.2.2", "a second name: {line}");
            if line["change"] == "opened" {
                opened_count += usize::from(is_v4 && line.get("nat").is_some());
                assert!(open.insert(ends, what).is_none(), "opened twice: {line}");
            } else {
                ended_count += usize::from(line.get("nat").is_some() && line["flow"].get("reason").is_some());
                assert_eq!(open.remove(&ends), Some(what), "{line}");
            }
        }
        assert_eq!(open.len() as u64, counted("flows"), "{head}");
        // What is half-open may have a name too, and is in no change.
        let named = open.values().filter(|what| !what[2].is_null()).count() as u64;
        let [translated, half_open] = ["translated", "half_open"].map(counted);
        assert!((named..=named + half_open).contains(&translated), "{named} named: {head}");
        half_open_count += translated - named;
    }
    assert!(full_count > 1 && opened_count > 20 && ended_count > 20, "{full_count} {opened_count} {ended_count}");
    assert!(half_open_count > 0, "the name of what is half-open is in no header");
    assert_eq!((open.len(), last.len()), (200, 200));
}

/// Sends forged SYNs to a server: from many addresses with one number, and from two addresses with each of many.
const FORGE: &str = "
import socket, struct
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def syn(client, isn):
    source, target = socket.inet_aton(f'10.0.1.{client}'), socket.inet_aton('10.0.2.1')
    ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 40, 0, 0, 64, 6, 0, source, target)
    tcp = struct.pack('!HHIIBBHHH', 40000, 7000, isn, 0, 0x50, 2, 1024, 0, 0)
    out.sendto(ip + tcp, ('10.0.2.1', 0))
for number in range(3000):
    syn(10 + number % 200, 7)
    syn(10 + number % 200, 1000 + number // 2)
";

#[test]
fn who_captures_both_sides_of_a_translation_is_warned_and_nobody_else() {
    let Some((lab, [a, router, _b], _server)) = masqueraded() else { return };
    let warning = "connections come under two names";
    let options = "-i to-a -i to-b --every 1s --connections 10k";
    let mut crowd = Crowd::start(&a);
    let mut inside = Watch::start(&lab, &router, "inside", &options.replace("-i to-b", ""));
    let mut both = Watch::start(&lab, &router, "both", options);
    for _ in 0..3 {
        crowd.ask("open 5 10.0.2.1 7000");
    }
    let list = both.list_when(|list| list.header["flow_list"].get("doubled").is_some());
    assert!(list.count("doubled") >= 3 && list.count("doubled") <= 15, "{}", list.header);
    inside.list_when(|list| list.count("flows") == 15);
    let (ended, _) = both.stop("-TERM");
    assert_eq!(ended.stderr.matches(warning).count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("Add --conntrack, or capture the inside interface alone"), "{}", ended.stderr);
    let (ended, lists) = inside.stop("-TERM");
    assert!(!ended.stderr.contains(warning) && lists.iter().all(|list| list.header.get("doubled").is_none()));

    // Routed alone, with forged SYNs; and translated, with the names known.
    let known = Watch::start(&lab, &router, "known", &format!("{options} --conntrack"));
    crowd.ask("open 10 10.0.2.1 7000");
    rules(&router, "flush table ip nat");
    let mut routed = Watch::start(&lab, &router, "routed", options);
    crowd.ask("open 15 10.0.2.1 7000");
    assert!(a.command("python3", ["-c", FORGE]).status().unwrap().success());
    routed.list_when(|list| list.count("opened") == 0 && list.count("half_open") > 150);
    for watch in [known, routed] {
        let (ended, lists) = watch.stop("-TERM");
        assert!(lists.iter().all(|list| list.header["flow_list"].get("doubled").is_none()), "{}", ended.stderr);
        assert!(!ended.stderr.contains(warning), "{}", ended.stderr);
    }
}

#[test]
fn csv_and_parquet_have_the_other_name_of_a_connection() {
    let duckdb = std::process::Command::new("python3").args(["-c", "import duckdb"]).output();
    if !duckdb.is_ok_and(|ended| ended.status.success()) {
        return skipped("python3 has no duckdb");
    }
    let Some((lab, [a, router, _b], _server)) = masqueraded() else { return };
    let mut crowd = Crowd::start(&a);
    crowd.ask("open 10 10.0.2.1 7000");
    crowd.ask("open 5 fd00:2::1 7000");
    let script = "import duckdb, sys\n\
        names = 'nat_name, nat_src_ip, nat_src_port, nat_dest_ip, nat_dest_port'\n\
        for row in duckdb.sql(f'select distinct src_ip, src_port, {names} from \"{sys.argv[1]}\" order by all').fetchall():\n\
        \tprint(*row)";
    let mut found = Vec::new();
    for format in ["csv", "parquet"] {
        let directory = lab.path(format);
        let options = format!("live -i to-a -i to-b --conntrack --every 1s --connections 10k --format {format} --out");
        let arguments = options.split_whitespace().map(OsString::from).chain([directory.clone().into_os_string()]);
        let mut process = Process::start(router.command(FLOWPEEL, arguments), &directory);
        let files = if format == "csv" { "*.csv" } else { "*/*/*.parquet" };
        let rows = until(
            || format!("no list of 15 in {format}: {}", fs::read_to_string(directory.with_extension("err")).unwrap()),
            || {
                assert!(process.is_running(), "{}", process.said());
                let glob = directory.join(files).display().to_string();
                let ended = std::process::Command::new("python3").args(["-c", script, &glob]).output().unwrap();
                let text = String::from_utf8(ended.stdout).unwrap();
                (text.lines().count() == 15).then_some(text)
            },
        );
        found.push(rows);
        process.signal("-TERM");
        process.wait();
    }
    assert_eq!(found[0], found[1]);
    let translated = found[0].lines().filter(|line| line.contains(" translated 10.0.2.2 ")).count();
    assert_eq!((translated, found[0].matches("None None None None None").count()), (10, 5), "{}", found[0]);
}

#[test]
fn when_the_kernel_loses_changes_its_table_is_read_again() {
    let Some((lab, [a, router, _b], _server)) = masqueraded() else { return };
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
