//! Giving up privileges, in processes of their own: capturing goes on, and nothing that was given up comes back.
#![cfg(target_os = "linux")]

use crate::support::say::skipped;
use flowpeel::capture::live::{self, LiveConfig};
use flowpeel::capture::{LiveSource, PacketSource};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;

/// Runs one of the ignored tests below, in a process of its own.
fn child(program: &Path, name: &str, user: Option<u32>) -> Output {
    let mut command = Command::new(program);
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"]).current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.output().unwrap()
}

fn assert_success(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether this source captures packets on loopback.
fn captures(source: &mut live::Live) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if source.next_packet().unwrap().is_some() {
            return true;
        }
        source.wait(Duration::from_millis(100));
    }
    false
}

/// A line of what the system says of this thread.
fn status(name: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_powerless() {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(set), "0000000000000000", "{set}");
    }
    assert_eq!(status("NoNewPrivs"), "1");
    let error = live::open(&LiveConfig::new("lo")).err().unwrap().to_string();
    assert!(error.contains("run it as root, or once: sudo setcap cap_net_raw+ep /"), "{error}");
}

#[test]
fn root_becomes_somebody_else() {
    if !is_root() {
        skipped("this takes root");
        return;
    }
    assert_success(&child(&std::env::current_exe().unwrap(), "privileges::child_of_root", None));
}

#[test]
#[ignore = "changes its process: the test above runs it"]
fn child_of_root() {
    let mut source = live::open(&LiveConfig::new("lo")).unwrap().remove(0);
    let error = live::drop_privileges(Some("no such user")).unwrap_err().to_string();
    assert_eq!(error, "there is no user no such user");
    assert!(captures(&mut source), "a mistake changes nothing");
    live::drop_privileges(Some(&NOBODY.to_string())).unwrap();
    let ids = [NOBODY; 4].map(|id| id.to_string()).join(" ");
    assert_eq!((status("Uid"), status("Gid").split(' ').collect::<Vec<_>>().len()), (ids, 4));
    assert!(!status("Groups").split(' ').any(|group| group == "0"));
    assert_eq!(status("CapBnd"), "0000000000000000");
    assert_powerless();
    assert!(nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_err());
    assert!(captures(&mut source));
}

#[test]
fn a_program_with_the_capability_alone_captures_and_gives_it_up() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("a copy");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [directory.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let setcap = Command::new("setcap").arg("cap_net_raw+ep").arg(&program).output();
    if !is_root() || !setcap.is_ok_and(|output| output.status.success()) {
        skipped("this takes root, setcap, and a file system that keeps capabilities");
        return;
    }
    assert_success(&child(&program, "privileges::child_with_the_capability", Some(NOBODY)));
}

#[test]
#[ignore = "needs a capability: the test above runs it"]
fn child_with_the_capability() {
    let mut source = live::open(&LiveConfig::new("lo")).unwrap().remove(0);
    let error = live::drop_privileges(Some("root")).unwrap_err().to_string();
    assert!(error.starts_with("only root can become user root"), "{error}");
    assert!(captures(&mut live::open(&LiveConfig::new("lo")).unwrap().remove(0)), "a mistake changes nothing");
    live::drop_privileges(None).unwrap();
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(status(set), "0000000000000000", "{set}");
    }
    let error = live::open(&LiveConfig::new("lo")).err().unwrap().to_string();
    let program = std::env::current_exe().unwrap();
    assert!(error.ends_with(&format!("sudo setcap cap_net_raw+ep '{}'", program.display())), "{error}");
    assert!(captures(&mut source));
}
