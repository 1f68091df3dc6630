//! Two network namespaces with a cable between them, made for one test and gone after it.

use crate::support::say::skipped;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The cable's near end, in the namespace where packets are captured.
pub(super) const NEAR: &str = "near0";
/// Its far end.
pub(super) const FAR: &str = "far0";

pub(super) struct Namespaces {
    near: String,
    far: String,
}

/// Runs `ip` with these arguments; whether it succeeded.
fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).output().is_ok_and(|output| output.status.success())
}

impl Namespaces {
    /// Two namespaces; `None`, after saying so, where none can be made.
    pub(super) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("ring-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let namespaces = Namespaces { near: format!("{id}-near"), far: format!("{id}-far") };
        if !ip(&format!("netns add {}", namespaces.near)) {
            skipped("no network namespace can be made here (it takes root and the ip command)");
            return None;
        }
        assert!(ip(&format!("netns add {}", namespaces.far)));
        namespaces.plug_in();
        for namespace in [&namespaces.near, &namespaces.far] {
            assert!(ip(&format!("-n {namespace} link set lo up")));
        }
        Some(namespaces)
    }

    /// Lays the cable.
    pub(super) fn plug_in(&self) {
        self.plug_in_with("");
    }

    /// Lays a cable whose near end has something special about it.
    pub(super) fn plug_in_with(&self, special: &str) {
        let Namespaces { near, far } = self;
        assert!(ip(&format!("link add {NEAR} {special} netns {near} type veth peer name {FAR} netns {far}")));
        for (namespace, interface, host) in [(near, NEAR, 1), (far, FAR, 2)] {
            assert!(ip(&format!("-n {namespace} address add 10.77.0.{host}/24 dev {interface}")));
            assert!(ip(&format!("-n {namespace} address add fd77::{host}/64 dev {interface} nodad")));
            assert!(ip(&format!("-n {namespace} link set {interface} up")));
        }
    }

    /// Runs `ip` in the near namespace.
    pub(super) fn near_ip(&self, arguments: &str) -> bool {
        ip(&format!("-n {} {arguments}", self.near))
    }

    /// Moves the near end to the far namespace.
    pub(super) fn lend(&self) -> bool {
        self.near_ip(&format!("link set {NEAR} netns {}", self.far))
    }

    /// Moves it back.
    pub(super) fn take_back(&self) -> bool {
        ip(&format!("-n {} link set {NEAR} netns {}", self.far, self.near))
    }

    /// A command in the near namespace.
    pub(super) fn near_command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.near, program]);
        command
    }

    /// Does something on a thread of its own in the near namespace.
    pub(super) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.near, work)
    }

    /// Does something on a thread of its own in the far namespace.
    pub(super) fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.far, work)
    }

    /// Opens and closes `count` connections to a server at the far end, one after the other, each with a few bytes both
    /// ways.
    pub(super) fn connect(&self, address: &str, count: usize) {
        use std::io::{Read, Write};
        let listener = self.far(|| TcpListener::bind((address, 0)).unwrap());
        let server = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..count {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut bytes = [0; 5];
                    stream.read_exact(&mut bytes).unwrap();
                    stream.write_all(&bytes).unwrap();
                }
            });
            self.near(|| {
                for _ in 0..count {
                    let mut stream = TcpStream::connect(server).unwrap();
                    stream.write_all(b"hello").unwrap();
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).unwrap();
                    assert_eq!(bytes, b"hello");
                }
            });
        });
    }

    /// Sends frames from the far end.
    pub(super) fn send<'a>(&self, frames: impl IntoIterator<Item = &'a [u8]> + Send) {
        self.far(|| {
            let interface = pnet::datalink::interfaces().into_iter().find(|interface| interface.name == FAR).unwrap();
            let channel = pnet::datalink::channel(&interface, pnet::datalink::Config::default()).unwrap();
            let pnet::datalink::Channel::Ethernet(mut sender, _) = channel else { panic!("{FAR} is Ethernet") };
            for frame in frames {
                sender.send_to(frame, None).unwrap().unwrap();
            }
        });
    }
}

fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.near, &self.far] {
            ip(&format!("netns delete {namespace}"));
        }
    }
}
