//! Live capture where there is no packet ring: pnet's own socket, without a filter in the kernel.
//!
//! Packets that the system dropped are not counted, and an interface that goes down ends the capture.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::pnet::{self, PnetReceiver};
use super::{Backend, CaptureMode, LiveConfig};
use crate::capture::{Condition, LiveSource, Losses, Packet, PacketSource, Progress};
use crate::error::{Error, Result};

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
    receiver: PnetReceiver,
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
    let interface = pnet::interfaces().into_iter().find(|interface| interface.name == config.interface);
    let Some(interface) = interface else {
        return Err(Error::new(format!("there is no interface {name}: flowpeel interfaces lists them")));
    };
    let receiver = PnetReceiver::new(&interface, config.promiscuous)
        .map_err(|error| Error::new(format!("cannot capture {name}")).because(error))?;
    Ok(vec![Live { receiver, received: 0, finished: false }])
}

/// Fails: giving up privileges needs Linux.
///
/// # Errors
///
/// Always.
pub fn drop_privileges(_user: Option<&str>) -> Result<()> {
    Err(Error::new("privileges can be given up on Linux only"))
}

/// Refuses, as [`drop_privileges`] does.
///
/// # Errors
///
/// Always.
pub fn drop_privileges_but_net_admin(user: Option<&str>) -> Result<()> {
    drop_privileges(user)
}

impl LiveSource for Live {
    /// Does not sleep, because each call for a packet does.
    fn wait(&mut self, _timeout: Duration) -> Option<Condition> {
        None
    }

    /// Always up: the system does not say.
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
        match self.receiver.next_packet() {
            Ok(packet) => {
                self.received += u64::from(packet.is_some());
                Ok(packet)
            }
            Err(error) => {
                self.finished = true;
                Err(Error::new("cannot capture any more").because(error))
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
