//! A socket and its reader: a ring, or pnet.
//!
//! What enters: an interface that exists, and what to capture of it. What leaves: a source of its packets, which can be
//! bound to another interface when this one is gone.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::bpf::{self, BpfProgram};
use super::device::{Device, Kind};
use super::pnet::Pnet;
use super::ring::Ring;
use super::socket::PacketSocket;
use super::{Backend, CaptureMode, LiveConfig};

/// The reader of a socket.
pub(super) enum Reader {
    /// A ring.
    Ring(Ring),
    /// pnet's receiver.
    Pnet(Pnet),
}

/// A socket that is open, and its reader.
pub(super) struct Source {
    // Declared before the socket, so that its memory is unmapped first.
    pub(super) reader: Reader,
    pub(super) socket: PacketSocket,
    pub(super) device: Device,
    kind: Kind,
    is_grouped: bool,
}

impl Source {
    /// Opens a source that takes no packets before it is [started](Source::start).
    pub(super) fn open(config: &LiveConfig, device: Device, kind: Kind) -> io::Result<Self> {
        let socket = PacketSocket::open(kind)?;
        let reader = match config.backend {
            Backend::Ring => Reader::Ring(Ring::new(&socket, config.block_count(), kind.link())?),
            Backend::Pnet => Reader::Pnet(Pnet::new(&socket, &device, kind.link(), config.ring_size)?),
        };
        let source = Source { reader, socket, device, kind, is_grouped: false };
        source.attach(config)?;
        Ok(source)
    }

    /// Joins a fanout group, or begins one. Returns its number.
    pub(super) fn join_fanout(&mut self, group: Option<u16>) -> io::Result<u16> {
        let group = self.socket.join_fanout(group)?;
        self.is_grouped = true;
        Ok(group)
    }

    /// Starts to take packets.
    pub(super) fn start(&self, capture: &CaptureMode) -> io::Result<()> {
        self.socket.start(&filter(capture, self.kind))
    }

    /// Whether the socket can be bound to this interface: not if that is of another kind, and not in a fanout group,
    /// which the kernel does not let it leave.
    pub(super) fn can_move_to(&self, device: &Device) -> bool {
        !self.is_grouped && Kind::of_hardware(device.hardware) == Some(self.kind)
    }

    /// Takes nothing any more of an interface that has another name now.
    pub(super) fn leave(&self) {
        self.socket.leave(&self.device);
    }

    /// Captures this interface from now on. It needs no privilege.
    pub(super) fn move_to(&mut self, device: Device, config: &LiveConfig) -> io::Result<()> {
        self.device = device;
        self.attach(config)?;
        self.start(&config.capture)
    }

    /// Whether a packet can be read without asking the kernel.
    pub(super) fn has_packet(&self) -> bool {
        match &self.reader {
            Reader::Ring(ring) => ring.has_packet(),
            Reader::Pnet(_) => false,
        }
    }

    /// Sleeps until there are packets, the time is over, or the socket has an error, which is returned.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<Errno> {
        let met = match &mut self.reader {
            Reader::Ring(_) => None,
            Reader::Pnet(pnet) => pnet.take_trouble(),
        };
        met.or_else(|| self.socket.wait(timeout))
    }

    fn attach(&self, config: &LiveConfig) -> io::Result<()> {
        self.socket.bind(&self.device)?;
        if config.promiscuous {
            self.socket.be_promiscuous(&self.device)?;
        }
        Ok(())
    }
}

/// The filter for this mode and kind of interface.
fn filter(capture: &CaptureMode, kind: Kind) -> BpfProgram {
    match capture {
        CaptureMode::Headers => bpf::headers(kind.link()),
        CaptureMode::Flags => bpf::flags(kind.link()),
        CaptureMode::Everything => bpf::everything(),
        CaptureMode::Program(program) => program.clone(),
    }
}
