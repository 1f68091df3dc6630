//! What other users can read, and what flowpeel may do: no more than needed.

use crate::lab::{End, Host, Lab, has, join, run};
use crate::process::{Crowd, Process, until};
use crate::sockets::settled;
use crate::support::command::{FLOWPEEL, command};
use crate::support::say::skipped;
use crate::watch::{Watch, assert_listed, errors, lists_in};
use jiff::Timestamp;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

/// The number of a user who owns nothing.
const NOBODY: u32 = 65_534;

fn pair(lab: &Lab, interface: &str) -> (Host, Host) {
    let (a, b) = (lab.host("a"), lab.host("b"));
    join(&End(&a, "eth0", &["10.0.2.2/24"]), &End(&b, interface, &["10.0.2.1/24"]), 1500);
    (a, b)
}

/// The command where everybody may run it.
fn for_everybody(lab: &Lab) -> PathBuf {
    let program = lab.path("flowpeel");
    fs::copy(FLOWPEEL, &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

/// A directory for lists that `nobody` may write too.
pub(crate) fn nobodys_directory(lab: &Lab) -> PathBuf {
    let directory = lab.path("lists");
    fs::create_dir(&directory).unwrap();
    chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
    directory
}

/// A command line of `nobody`.
const AS_NOBODY: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];

#[test]
fn nothing_listens_and_lists_are_for_owner_and_group() {
    let Some(lab) = Lab::new() else { return };
    let (_a, b) = pair(&lab, "eth0");
    let watch = Watch::start(&lab, &b, "lists", "-i eth0 --every 1s --connections 10k");
    assert_eq!(b.run("ss -Htlnp"), "");
    for (_, path) in lists_in(&watch.directory).values() {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640, "{}", path.display());
    }
}

#[test]
fn names_from_outside_are_escaped() {
    let Some(lab) = Lab::new() else { return };
    let name = "e\u{1b}[7m\"\\\u{7}x";
    let (a, b) = pair(&lab, name);
    let listen = "127.0.0.1:9311";
    let mut watch = Watch::start(&lab, &b, "lists", &format!("-i {name} --metrics {listen} --every 1s"));
    let _server = Crowd::serve(&b, &[7000]);
    let mut client = Crowd::start(&a);
    client.ask("open 10 10.0.2.1 7000");
    let known = settled(&[(&a, &[]), (&b, &[])]);
    assert_listed(&watch.list_after(Timestamp::now()), &known, "a hostile name");
    let sockets = b.run("ss -Htln sport = :9311");
    assert_eq!(sockets.split_whitespace().nth(3), Some(listen));
    let fetch = format!("import urllib.request as u; print(u.urlopen('http://{listen}/metrics').read().decode())");
    let metrics = run(b.command("python3", ["-c", &fetch]));
    assert!(metrics.contains("flowpeel_"), "{metrics}");
    for format in ["text", "json"] {
        let text = if format == "text" { watch.process.said() } else { said_as_json(&lab, &b, name) };
        assert!(!text.is_empty() && text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
    }
    assert!(metrics.lines().all(|line| !line.contains(char::is_control)), "{metrics:?}");
    let labelled: Vec<&str> = metrics.lines().filter(|line| line.contains("[7m")).collect();
    assert!(!labelled.is_empty(), "{metrics}");
    for line in labelled.iter().filter(|line| !line.contains("cause=")) {
        let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        assert_eq!(quotes, 2, "what is in the name is escaped: {line}");
    }
}

/// What a run with `--log-format json` says, of which every line is JSON.
fn said_as_json(lab: &Lab, host: &Host, interface: &str) -> String {
    let watch = Watch::start(lab, host, "lists-json", &format!("-i {interface} --log-format json --every 1s"));
    let (ended, _) = watch.stop("-TERM");
    for line in ended.stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    ended.stderr
}

/// The command line for `setcap` that an error names.
fn named_setcap(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches(['`', '\'', '"', ',', ';'])).collect();
    let at = words.iter().position(|word| *word == "setcap").unwrap_or_else(|| panic!("no setcap in {text}"));
    words[at..at + 3].iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn without_the_capability_it_names_the_line_that_gives_it() {
    let Some(lab) = Lab::new().filter(|_| has("setpriv")) else { return };
    let (_a, b) = pair(&lab, "eth0");
    let program = for_everybody(&lab);
    let live = ["live", "-i", "eth0", "--every", "1s", "--connections", "10k", "--out"];
    for backend in ["ring", "pnet"] {
        let mut command = b.command(AS_NOBODY[0], &AS_NOBODY[1..]);
        command.arg(&program).args(live).args(["-", "--backend", backend]);
        let ended = Process::start(command, &lab.path("refused")).wait();
        let path = program.to_string_lossy();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "no list");
        let [error] = errors(&ended)[..] else { panic!("{}", ended.stderr) };
        let words = named_setcap(error);
        assert!(words[1].starts_with("cap_net_raw") && words[2] == path, "{error}");
        if backend == "pnet" && has("setcap") {
            run(command_of(&words));
            let directory = nobodys_directory(&lab);
            let program = program.to_str().unwrap();
            let line: Vec<&str> = AS_NOBODY.iter().copied().chain([program, "live"]).collect();
            let options = "-i eth0 --every 1s --connections 10k";
            let (ended, lists) = Watch::start_into(&b, directory, options, &line).stop("-TERM");
            assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
            assert!(!lists.is_empty());
        }
    }
}

fn command_of(words: &[String]) -> Command {
    command(&words[0], &words[1..])
}

/// A field of a status file of the system.
fn status_of(text: &str, name: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Asserts that every thread runs as `nobody`, without capabilities.
fn assert_is_nobody(watch: &Watch) {
    let threads = fs::read_dir(format!("/proc/{}/task", watch.process.pid())).unwrap();
    let statuses: Vec<String> =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).unwrap()).collect();
    assert!(statuses.len() > 2, "{} threads", statuses.len());
    for status in &statuses {
        assert_eq!(status_of(status, "Uid"), vec![NOBODY.to_string(); 4]);
        assert_eq!(status_of(status, "Gid"), vec![NOBODY.to_string(); 4]);
        assert!(!status_of(status, "Groups").contains(&"0".to_owned()));
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(status_of(status, set), ["0000000000000000"], "{set}");
        }
    }
}

#[test]
fn user_drops_root_and_capabilities_in_every_thread() {
    let Some(lab) = Lab::new() else { return };
    if !fs::read_to_string("/etc/passwd").is_ok_and(|users| users.contains(&format!("nobody:x:{NOBODY}:"))) {
        return skipped(&format!("there is no user nobody with the number {NOBODY}"));
    }
    let (a, b) = pair(&lab, "eth0");
    let _server = Crowd::serve(&b, &[7000]);
    let mut client = Crowd::start(&a);
    for backend in ["ring", "pnet"] {
        let directory = lab.path(backend);
        fs::create_dir(&directory).unwrap();
        chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        let options = format!("-i eth0 --backend {backend} --user nobody --every 1s --connections 10k");
        let mut watch = Watch::start_into(&b, directory, &options, &["live"]);
        assert_is_nobody(&watch);
        client.ask("open 20 10.0.2.1 7000");
        let known = settled(&[(&a, &[]), (&b, &[])]);
        assert_listed(&watch.list_after(Timestamp::now()), &known, &options);
        until(|| "lists of nobody".to_owned(), || (lists_in(&watch.directory).len() > 2).then_some(()));
        let (ended, _) = watch.stop("-TERM");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        client.ask("close 20");
    }
}
