//! A router with the engine inside: it forwards frames between two interfaces, and writes the list of the open TCP
//! connections through it to a directory every second.
//!
//! ```text
//! cargo run --example router -- lan wan lists/
//! ```
//!
//! Each direction has a thread, and each thread a port of the engine. Forwarding never waits for the engine: a port
//! makes no system call and takes no lock, and what a full queue cannot take is counted. The router ends when its
//! standard input does. It forwards frames as they are, so the interfaces must not leave checksums or segmentation to a
//! card (`ethtool -K lan tx off gso off`).

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the example sends frames through Linux' packet sockets");
}

#[cfg(target_os = "linux")]
mod linux {
    use flowpeel::engine::{Config, Engine, EventKind, Events, Port, Sink};
    use flowpeel::export::{Directory, Format, Keep};
    use flowpeel::parse::LinkType;
    use pnet::datalink::{Channel, DataLinkReceiver, DataLinkSender};
    use std::error::Error;
    use std::io::{ErrorKind, Read};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    /// How long a thread waits for a frame before it says that there is none.
    const WAIT: Duration = Duration::from_millis(5);

    /// Openings and closings, as the engine reports them.
    static OPENED: AtomicU64 = AtomicU64::new(0);
    static CLOSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [one, other, directory] = &arguments[..] else { return Err("router IFACE IFACE DIRECTORY".into()) };
        let ((one_out, one_in), (other_out, other_in)) = (open(one)?, open(other)?);

        // The lists go to files here, and could as well go to a function that takes a list. Both are called on threads
        // of the engine's.
        let lists = Directory::new(directory, false, Format::default(), Keep::default())?;
        let sink = Sink::lists(lists).events(|batch: &Events| {
            for event in batch.events {
                let count = if event.kind == EventKind::Opened { &OPENED } else { &CLOSED };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (engine, mut ports) = Engine::live(&Config::live(Duration::from_secs(1))?, 2, sink)?;
        let (Some(first), Some(second)) = (ports.pop(), ports.pop()) else {
            return Err("two ports were asked for".into());
        };

        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let directions = [(one_in, other_out, first), (other_in, one_out, second)];
            for (input, output, port) in directions {
                scope.spawn(|| forward(input, output, port, &is_over));
            }
            println!("ready");
            drop(std::io::stdin().read_to_end(&mut Vec::new()));
            is_over.store(true, Ordering::Relaxed);
        });
        // The ports have gone with their threads: the last list is of all that was forwarded.
        let summary = engine.stop()?;
        let (opened, closed) = (OPENED.load(Ordering::Relaxed), CLOSED.load(Ordering::Relaxed));
        println!("{} frames, {} connections opened and {} closed", summary.packets, opened, closed);
        Ok(())
    }

    /// Forwards what comes in until it is over. The port sees each frame once, where it comes in.
    fn forward(
        mut input: Box<dyn DataLinkReceiver>,
        mut output: Box<dyn DataLinkSender>,
        mut port: Port,
        is_over: &AtomicBool,
    ) {
        while !is_over.load(Ordering::Relaxed) {
            match input.next() {
                Ok(frame) => {
                    // Before it is forwarded: the answer may come in at the other port, and must not have an earlier
                    // time.
                    port.frame(now_ns(), LinkType::ETHERNET, frame);
                    // What the other interface does not take is lost, as on any router.
                    drop(output.send_to(frame, None));
                }
                // Nothing to forward: nothing of the other port waits for this one.
                Err(error) if error.kind() == ErrorKind::TimedOut => port.idle(now_ns()),
                Err(error) => return eprintln!("router: {error}"),
            }
        }
    }

    /// Both ends of a socket.
    type Socket = (Box<dyn DataLinkSender>, Box<dyn DataLinkReceiver>);

    /// A socket of this interface: what is sent through it does not come back in.
    fn open(name: &str) -> Result<Socket, Box<dyn Error>> {
        let interfaces = pnet::datalink::interfaces();
        let interface = interfaces.iter().find(|interface| interface.name == name);
        let interface = interface.ok_or_else(|| format!("there is no interface {name}"))?;
        let config =
            pnet::datalink::Config { read_timeout: Some(WAIT), read_buffer_size: 1 << 16, ..Default::default() };
        match pnet::datalink::channel(interface, config)? {
            Channel::Ethernet(output, input) => Ok((output, input)),
            _ => Err(format!("{name} is no Ethernet interface").into()),
        }
    }

    /// The wall clock. A router that has the time of a frame from its loop gives that, and one that has it from its
    /// card, after a call of `Port::set_own_clock`, any clock's.
    fn now_ns() -> i64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
    }
}
