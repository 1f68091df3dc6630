//! Programs that people use, beside those made for these tests.

use crate::lab::{Host, Lab, has, routed};
use crate::process::{Process, until};
use crate::sockets::settled;
use crate::watch::{Watch, assert_listed};
use jiff::Timestamp;
use std::fs;

const TEST: &str = "real programs";

fn start(lab: &Lab, host: &Host, name: &str, words: &str) -> Process {
    let mut words = words.split_whitespace();
    Process::start(host.command(words.next().unwrap(), words), &lab.path(name))
}

fn await_listener(host: &Host, port: u16) {
    let is_there = || !host.run(&format!("ss -Htln sport = :{port}")).is_empty();
    until(|| format!("nobody listens on {port}"), || is_there().then_some(()));
}

/// A web server, pages fetched, and one fetched so slowly that its connection stays.
fn web(lab: &Lab, a: &Host, b: &Host) -> Vec<Process> {
    if !has("nginx") || !has("curl") {
        return Vec::new();
    }
    let root = lab.path("www");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("page"), [b'a'; 3_000]).unwrap();
    fs::write(root.join("slow"), vec![b'b'; 2_000_000]).unwrap();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind}; ", root.display()))
        .concat();
    let config = format!(
        "daemon off; master_process off; pid {0}/pid; error_log stderr; user root;\nevents {{}}\nhttp {{ access_log off; \
         root {0}; {temporary} server {{ listen 80; listen [::]:80; location = /slow {{ limit_rate 1k; }} }} }}\n",
        root.display()
    );
    let path = lab.path("nginx.conf");
    fs::write(&path, config).unwrap();
    let path = path.display();
    let server = start(lab, b, "nginx", &format!("nginx -e stderr -p {} -c {path}", root.display()));
    await_listener(b, 80);
    for address in ["10.0.2.1", "[fd00:2::1]"] {
        let page = format!("http://{address}/page");
        a.run(&format!(
            "curl -sSg -Z --parallel-immediate -o /dev/null {page} -o /dev/null {page} -o /dev/null {page}"
        ));
        a.run(&format!("curl -sSg --http1.0 -o /dev/null {page}"));
    }
    let slow = start(lab, a, "curl", "curl -sS -o /dev/null http://10.0.2.1/slow");
    vec![server, slow]
}

/// Streams that go on, after some that came to their end.
fn streams(lab: &Lab, a: &Host, b: &Host) -> Vec<Process> {
    if !has("iperf3") {
        return Vec::new();
    }
    let server = start(lab, b, "iperf3-server", "iperf3 -s");
    await_listener(b, 5201);
    a.run("iperf3 -c fd00:2::1 -P 4 -n 4M");
    let client = start(lab, a, "iperf3", "iperf3 -c 10.0.2.1 -P 8 -t 600 -b 8K -l 128 --forceflush");
    until(|| client.said(), || String::from_utf8_lossy(&client.printed()).contains("SUM").then_some(()));
    vec![server, client]
}

/// Sessions that nobody types into.
fn sessions(lab: &Lab, a: &Host, b: &Host) -> Vec<Process> {
    if !has("ncat") {
        return Vec::new();
    }
    let server = start(lab, b, "ncat-server", "ncat -lk 2323 --exec /bin/cat");
    await_listener(b, 2323);
    // Without anything to read ever, and without an end of it.
    let session = ["-c", "sleep 600 | exec ncat fd00:2::1 2323"];
    let client = |number| Process::start(a.command("sh", session), &lab.path(&format!("ncat{number}")));
    let clients: Vec<Process> = (0..3).map(client).collect();
    until(
        || "ncat does not connect".to_owned(),
        || (a.run("ss -Htn state established dport = :2323").lines().count() == 3).then_some(()),
    );
    std::iter::once(server).chain(clients).collect()
}

#[test]
fn programs_that_people_use_are_listed_as_the_kernels_know_them() {
    let Some(lab) = Lab::new() else { return };
    let (a, router, b) = routed(&lab);
    let mut watch = Watch::start(&lab, &router, "lists", "-i to-a -i to-b --every 1s --connections 10k");
    let running: Vec<Vec<Process>> = [web, streams, sessions].iter().map(|start| start(&lab, &a, &b)).collect();
    let known = settled(&[(&a, &[]), (&b, &[])]);
    let list = watch.list_after(Timestamp::now());
    assert_eq!(settled(&[(&a, &[]), (&b, &[])]), known, "the sockets changed meanwhile");
    assert_listed(&list, &known, TEST);
    drop(running);
}
