//! Live capture where there is no packet ring: pnet's own socket, without a filter in the kernel.
//!
//! What enters: an interface that pnet knows. What leaves: its packets, with the time at which they were read. Packets
//! that the system dropped are not counted, and an interface that goes down ends the capture.

use std::io;
use std::path::Path;
use std::time::Duration;

use pnet_datalink::{Channel, Config, DataLinkReceiver, NetworkInterface};

use super::{Backend, CaptureMode, LiveConfig, wall_ns};
use crate::capture::{Condition, LiveSource, Losses, PACKET_SIZE_MAX, Packet, PacketSource, Progress};
use crate::error::{Error, Result};
use crate::parse::LinkType;

/// The longest that one look for a packet takes.
const LOOK: Duration = Duration::from_millis(1);

/// A program for a filter in the kernel: there is none on this system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BpfProgram {}

impl BpfProgram {
    /// Fails: there are no programs on this system.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn read(path: &Path) -> Result<Self> {
        Err(Error::new("filter programs need Linux").in_file(path))
    }

    /// Fails: there are no programs on this system.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn from_listing(_text: &str) -> Result<Self> {
        Err(Error::new("filter programs need Linux"))
    }
}

/// A source of an interface's packets.
pub struct Live {
    receiver: Box<dyn DataLinkReceiver>,
    received: u64,
    finished: bool,
}

/// Opens the one source of an interface.
///
/// # Errors
///
/// The system has no such interface or does not let it be captured, or the configuration asks for something that needs
/// Linux.
pub fn open(config: &LiveConfig) -> Result<Vec<Live>> {
    let name = config.interface.escape_debug();
    if config.backend == Backend::Ring || config.fanout_count != 1 || config.capture == CaptureMode::Flags {
        return Err(Error::new("a ring, several threads, or a filter in the kernel need Linux: use --backend pnet"));
    }
    let is_it = |interface: &NetworkInterface| interface.name == config.interface;
    let interface = pnet_datalink::interfaces().into_iter().find(is_it);
    let Some(interface) = interface else {
        return Err(Error::new(format!("there is no interface {name}: flowpeel interfaces lists them")));
    };
    let settings = Config {
        read_buffer_size: PACKET_SIZE_MAX,
        read_timeout: Some(LOOK),
        promiscuous: config.promiscuous,
        ..Config::default()
    };
    let cannot = |error: io::Error| Error::new(format!("cannot capture {name}")).because(error);
    match pnet_datalink::channel(&interface, settings).map_err(cannot)? {
        Channel::Ethernet(_, receiver) => Ok(vec![Live { receiver, received: 0, finished: false }]),
        _ => Err(Error::new(format!("{name} is of a kind that cannot be read"))),
    }
}

/// Fails: giving up privileges needs Linux.
///
/// # Errors
///
/// Always.
pub fn drop_privileges(_user: Option<&str>) -> Result<()> {
    Err(Error::new("privileges can be given up on Linux only"))
}

impl LiveSource for Live {
    /// Does not sleep, because each look for a packet does.
    fn wait(&mut self, _timeout: Duration) -> Option<Condition> {
        None
    }

    /// Always up: the system does not tell.
    fn condition(&self) -> Condition {
        Condition::Up
    }

    /// Nothing: the losses are unknown.
    fn losses(&mut self) -> Losses {
        Losses { received: self.received, ..Losses::default() }
    }
}

impl PacketSource for Live {
    /// The next packet, for which this waits a millisecond at most.
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        if self.finished {
            return Ok(None);
        }
        match self.receiver.next() {
            Ok(bytes) => {
                self.received += 1;
                Ok(Some(Packet { time_ns: wall_ns(), link: LinkType::ETHERNET, bytes, vlan: None }))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Ok(None),
            Err(error) => {
                self.finished = true;
                Err(Error::new("cannot capture on").because(error))
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}
