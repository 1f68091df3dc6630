//! Hosts that are network namespaces, and the cables between them.
//!
//! What enters: names, addresses. What leaves: places where programs run whose traffic stays among them. Whatever a
//! test did and however it ended, its namespaces are removed, and every process in them is ended by its own number.

pub(crate) use crate::support::command::has;
use crate::support::say::skipped;
use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// What the names of namespaces begin with, before the number of the process that made them.
const PREFIX: &str = "flowpeel-live-";

/// Labs of this test program so far.
static LAB_COUNT: AtomicU32 = AtomicU32::new(0);

/// The settings of a host's kernel: packets pass routers, addresses are usable at once, and rules come before the
/// host's own addresses, so that one of them can drop incoming packets. IPv6 packets come from programs alone.
const SETTINGS: &str = "cd /proc/sys/net && echo 1 >ipv4/ip_forward && echo 0 >ipv4/ip_early_demux && \
    for c in all default; do echo 1 >ipv6/conf/$c/forwarding; echo 0 >ipv6/conf/$c/accept_dad; \
    echo 0 >ipv6/conf/$c/router_solicitations; done && ip link set lo up && \
    for f in -4 -6; do ip $f rule add pref 1000 lookup local && ip $f rule del pref 0; done";

/// Runs a program to its end, and asserts its success.
pub(crate) fn run(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn ip(words: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(words.split_whitespace());
    command
}

/// A test's hosts, and a directory that every user may enter.
pub(crate) struct Lab {
    prefix: String,
    namespaces: RefCell<Vec<String>>,
    directory: TempDir,
}

impl Lab {
    /// A lab; `None`, after saying why, where there can be no namespaces.
    pub(crate) fn new() -> Option<Lab> {
        if !["ip", "ss", "python3"].iter().all(|program| has(program)) {
            return None;
        }
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            skipped("network namespaces need root");
            return None;
        }
        let number = LAB_COUNT.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            remove_leftovers();
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let prefix = format!("{PREFIX}{}-{number}-", std::process::id());
        let lab = Lab { prefix, namespaces: RefCell::default(), directory };
        let probe = format!("{}probe", lab.prefix);
        let output = ip(&format!("netns add {probe}")).output().unwrap();
        if !output.status.success() {
            skipped(&format!("no namespaces: {}", String::from_utf8_lossy(&output.stderr).trim()));
            return None;
        }
        lab.namespaces.borrow_mut().push(probe);
        Some(lab)
    }

    /// A new host, which also passes packets on.
    pub(crate) fn host(&self, name: &str) -> Host {
        let namespace = format!("{}{name}", self.prefix);
        run(ip(&format!("netns add {namespace}")));
        self.namespaces.borrow_mut().push(namespace.clone());
        let host = Host { namespace };
        run(host.command("sh", ["-c", SETTINGS]));
        host
    }

    /// Two new hosts on one cable, a with the address 10.0.2.2 and b with 10.0.2.1, each at its `eth0`.
    pub(crate) fn pair(&self) -> [Host; 2] {
        let [a, b] = ["a", "b"].map(|name| self.host(name));
        join(&End(&a, "eth0", &["10.0.2.2/24"]), &End(&b, "eth0", &["10.0.2.1/24"]), 1500);
        [a, b]
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.namespaces.borrow().iter().for_each(|namespace| remove(namespace));
    }
}

/// Removes a namespace and ends what runs in it, all of which was started by who made it.
fn remove(namespace: &str) {
    let pids = ip(&format!("netns pids {namespace}")).output().map(|output| output.stdout).unwrap_or_default();
    for pid in String::from_utf8_lossy(&pids).split_whitespace() {
        drop(Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status());
    }
    drop(ip(&format!("netns del {namespace}")).status());
}

/// Removes what killed test programs left.
fn remove_leftovers() {
    let namespaces = ip("netns list").output().map(|output| output.stdout).unwrap_or_default();
    for line in String::from_utf8_lossy(&namespaces).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if maker.and_then(|pid| pid.parse::<u32>().ok()).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        {
            remove(name);
        }
    }
}

/// A namespace.
pub(crate) struct Host {
    namespace: String,
}

impl Host {
    /// A program that is to run on this host.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = ip(&format!("netns exec {}", self.namespace));
        command.arg(program).args(arguments);
        command
    }

    /// Runs a command line without quotes to its end, and asserts its success.
    pub(crate) fn run(&self, words: &str) -> String {
        let mut words = words.split_whitespace();
        run(self.command(words.next().unwrap(), words))
    }

    /// The packets that went through an interface, both ways, by its own count.
    pub(crate) fn packet_count(&self, interface: &str) -> u64 {
        let links = self.run("cat /proc/net/dev");
        let counts = links.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
        let counts: Vec<u64> = counts.split_whitespace().map(|count| count.parse().unwrap()).collect();
        counts[1] + counts[9]
    }

    /// Drops TCP packets to this port silently: a rule sends them into a black hole.
    pub(crate) fn drop_port(&self, interface: &str, port: u16) {
        for family in ["-4", "-6"] {
            self.run(&format!("ip {family} rule add pref 10 ipproto tcp iif {interface} dport {port} blackhole"));
        }
    }
}

/// One end of a cable: a host's interface and its addresses.
pub(crate) struct End<'a>(pub(crate) &'a Host, pub(crate) &'a str, pub(crate) &'a [&'a str]);

/// Joins two ends by a cable, with the kernel's usual offloads: large segments, checksums left to the card.
pub(crate) fn join(one: &End, other: &End, mtu: u32) {
    let End(host, interface, _) = one;
    let End(other_host, other_interface, _) = other;
    let other_namespace = &other_host.namespace;
    let peer = format!("{other_interface} mtu {mtu} netns {other_namespace}");
    host.run(&format!("ip link add {interface} mtu {mtu} type veth peer name {peer}"));
    for End(host, interface, addresses) in [one, other] {
        for address in *addresses {
            host.run(&format!("ip address add {address} dev {interface}"));
        }
        host.run(&format!("ip link set {interface} up"));
    }
}

/// Two hosts with a router between: `a` has 10.0.1.1 and fd00:1::1, `b` 10.0.2.1 and fd00:2::1, both on `eth0`; the
/// router's interfaces are `to-a` and `to-b`.
pub(crate) fn routed(lab: &Lab) -> (Host, Host, Host) {
    let (a, router, b) = (lab.host("a"), lab.host("router"), lab.host("b"));
    join(
        &End(&a, "eth0", &["10.0.1.1/24", "fd00:1::1/64"]),
        &End(&router, "to-a", &["10.0.1.2/24", "fd00:1::2/64"]),
        1500,
    );
    join(
        &End(&b, "eth0", &["10.0.2.1/24", "fd00:2::1/64"]),
        &End(&router, "to-b", &["10.0.2.2/24", "fd00:2::2/64"]),
        1500,
    );
    for (host, network) in [(&a, 1), (&b, 2)] {
        host.run(&format!("ip route add default via 10.0.{network}.2"));
        host.run(&format!("ip route add default via fd00:{network}::2"));
    }
    (a, router, b)
}

/// A program of ours that makes traffic.
pub(crate) fn traffic(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
