//! `flowpeel top` over a `live` that runs: what is killed, stopped or hostile costs the capture nothing.

use crate::lab::{Host, Lab};
use crate::process::Crowd;
use crate::support::command::FLOWPEEL;
use crate::support::terminal::{LEFT, OnTerminal, on_terminal};
use crate::watch::Watch;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

fn top(host: &Host, arguments: &[&str]) -> OnTerminal {
    let [program, columns, lines] = on_terminal();
    let mut command = host.command(program, [columns, lines, FLOWPEEL.to_owned(), "top".to_owned()]);
    command.args(arguments);
    OnTerminal::start(command)
}

#[test]
fn who_looks_costs_the_lists_nothing() {
    let Some(lab) = Lab::new() else { return };
    let [a, b] = lab.pair();
    let control = lab.path("control");
    let path = control.to_str().unwrap();
    let mut watch = Watch::start(&lab, &b, "lists", &format!("-i eth0 --every 200ms --pickup 1 --control {path}"));
    assert_eq!(fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
    let _server = Crowd::serve(&b, &[7000]);
    let mut client = Crowd::start(&a);
    client.ask("open 200 10.0.2.1 7000");
    watch.list_when(|list| list.count("flows") == 200);

    let killed = top(&b, &["--attach", path]);
    killed.until("200 open");
    killed.until("10.0.2.1:7000");
    killed.signal("-KILL");
    let (status, _) = killed.wait();
    assert_eq!(status.code(), Some(128 + 9));

    // One that is stopped in the middle, and others that send no request, half of one, or garbage.
    let stopped = top(&b, &["--attach", path]);
    stopped.until("200 open");
    stopped.signal("-STOP");
    let strangers = ["", "{\"version\":1,", "\u{0}\u{1}\n", "{\"version\":1,\"count\":1000}\n"];
    let _strangers = strangers.map(|sent| {
        let mut stream = UnixStream::connect(&control).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        stream
    });
    client.ask("open 50 10.0.2.1 7000");
    watch.list_when(|list| list.count("flows") == 250);
    let mut third = top(&b, &["--attach", path, "--filter", "server port 7000", "--group-by", "server"]);
    third.until("250 open");
    third.until("selected 250 of 250");
    third.press("q");
    let (status, sent) = third.wait();
    assert_eq!(status.code(), Some(0));
    assert!(sent.contains(LEFT));
    stopped.signal("-CONT");
    drop(stopped);

    let (ended, lists) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(!control.exists());
    for (number, list) in (1..).zip(&lists) {
        assert_eq!(list.count("interval"), number, "a list is missing: {}", list.header);
        let fields = &list.header["flow_list"];
        let is_warming_up = fields["warming_up"] == true;
        assert_eq!(list.count("dropped"), 0, "{}", list.header);
        assert_eq!(fields["complete"], !is_warming_up, "{}", list.header);
    }
}

#[test]
fn top_captures_by_itself() {
    let Some(lab) = Lab::new() else { return };
    let [a, b] = lab.pair();
    let mut top = top(&b, &["-i", "eth0", "--every", "200ms", "--user", "nobody"]);
    // Of lists that come faster than the screen is drawn, not each is shown.
    top.until(" of ");
    let _server = Crowd::serve(&b, &[7000]);
    let mut client = Crowd::start(&a);
    client.ask("open 20 10.0.2.1 7000");
    top.until("10.0.2.1:7000");
    b.run("ip link set eth0 down");
    top.until("an interface is down");
    top.press("q");
    let (status, sent) = top.wait();
    assert_eq!(status.code(), Some(0), "{sent}");
}
