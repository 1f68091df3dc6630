//! Ends by signals under load, and without any warning.

use crate::burst::{generate, send, silent_pair, summed, total};
use crate::lab::{Lab, has};
use crate::process::{Crowd, until};
use crate::support::command::FLOWPEEL;
use crate::watch::{Watch, errors, lists_in, time};
use jiff::Timestamp;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn the_first_signal_under_load_leaves_a_last_list() {
    let Some(lab) = Lab::new().filter(|_| has("tcpreplay")) else { return };
    let (a, b) = silent_pair(&lab);
    let capture = generate(&lab, "5k");
    for signal in ["-TERM", "-INT"] {
        let mut watch = Watch::start(&lab, &b, signal, "-i eth0 --every 1s");
        let mut load = send(&lab, &a, "eth0", &capture, "--topspeed --loop=1000000");
        watch.list_when(|list| list.count("flows") > 1_000);
        let then = Timestamp::now();
        let (ended, lists) = watch.stop(signal);
        assert!(load.is_running(), "the load ended first");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(errors(&ended).is_empty(), "{}", ended.stderr);
        let last = lists.last().unwrap();
        assert!(time(last, "end") >= then, "{}", last.header);
        let is_whole = last.header["flow_list"]["complete"] == true;
        assert!(is_whole || total(&lists, "dropped") > 0, "{}", last.header);
        assert!(summed(&ended, "packets") > 0, "{}", ended.stderr);
    }
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let Some(lab) = Lab::new() else { return };
    let [a, b] = lab.pair();
    // The lists are not read: once they fill the pipe, the first signal cannot be obeyed.
    let options = ["live", "-i", "eth0", "--every", "100ms", "--connections", "10k"];
    let mut command = b.command(FLOWPEEL, options);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let mut first = [0];
    pipe.read_exact(&mut first).unwrap();
    assert_eq!(first, *b"{");
    let _server = Crowd::serve(&b, &[7000]);
    let mut client = Crowd::start(&a);
    client.ask("open 900 10.0.2.1 7000");
    std::thread::sleep(Duration::from_secs(2));
    let pid = child.id().to_string();
    let signal = || assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    signal();
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "it has a list to write that nobody reads");
    signal();
    let status = until(|| "it does not end".to_owned(), || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn kill_9_leaves_no_half_list() {
    const RUNS: u64 = 20;
    let Some(lab) = Lab::new() else { return };
    let [a, b] = lab.pair();
    let mut server = Crowd::serve(&b, &[7000]);
    let mut client = Crowd::start(&a);
    client.ask("open 3000 10.0.2.1 7000");
    server.ask("held 3000");
    let directory = lab.path("lists");
    fs::create_dir(&directory).unwrap();
    for run in 0..RUNS {
        let options = "-i eth0 --every 100ms --connections 10k --pickup 1";
        let mut watch = Watch::start_into(&b, directory.clone(), options, &["live"]);
        client.ask("say");
        watch.list_when(|list| list.count("flows") == 3_000);
        // Evenly over an interval, in an order that no run follows by itself.
        std::thread::sleep(Duration::from_millis(run * 7 % RUNS * 100 / RUNS));
        drop(watch);
        // A file that is not whole fails to be read.
        for (number, (list, path)) in lists_in(&directory) {
            assert_eq!(list.count("interval"), number);
            fs::remove_file(path).unwrap();
        }
    }
}
