//! A packet socket: opening it, its losses, and waiting for it.
//!
//! Until it is started it takes nothing, so that no packet comes in that the filter would have
//! held back, or before all members of its group share the work.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_error};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::bpf::{self, BpfProgram};
use super::device::{Device, DeviceKind};
use super::socket_options as options;
use crate::capture::Losses;

/// A packet socket.
pub(super) struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// A socket for interfaces of this kind, bound to none, which takes nothing yet.
    ///
    /// # Errors
    /// The system refuses, above all without the privilege to capture.
    pub(super) fn open(kind: DeviceKind) -> io::Result<Self> {
        let socket_type = match kind {
            DeviceKind::Ethernet => SocketType::RAW,
            // Packets begin with IP: the interface's own link header, if it has one, is left out.
            DeviceKind::Ip => SocketType::DGRAM,
        };
        // Protocol 0: nothing is received before it is bound.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::PACKET, socket_type, flags, None)?;
        let socket = PacketSocket { fd };
        options::attach_filter(socket.fd(), &bpf::nothing())?;
        Ok(socket)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Binds the socket to this interface, in place of the one before.
    pub(super) fn bind(&self, device: &Device) -> io::Result<()> {
        options::bind(self.fd(), device.index)
    }

    /// Whether it receives the packets of this interface: one that left has to be bound anew, though it came back at
    /// once.
    pub(super) fn is_bound_to(&self, device: &Device) -> bool {
        options::bound_index(self.fd()).is_ok_and(|index| index == device.index)
    }

    /// Makes the interface promiscuous: it takes packets for any address.
    pub(super) fn enter_promiscuous_mode(&self, device: &Device) -> io::Result<()> {
        options::enter_promiscuous_mode(self.fd(), device.index)
    }

    /// Takes nothing until it is started again, and leaves promiscuous mode on this interface.
    pub(super) fn leave(&self, device: &Device) {
        // Where either cannot be done the interface is gone, and with it what was asked of it.
        drop(options::attach_filter(self.fd(), &bpf::nothing()));
        drop(options::leave_promiscuous_mode(self.fd(), device.index));
    }

    /// Joins the fanout group of this number, or a new one. Returns its number. Packets of both directions of a
    /// connection come to the same member, and fragments are reassembled before they are distributed.
    pub(super) fn join_fanout(&self, group: Option<u16>) -> io::Result<u16> {
        const MODE: u32 = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_DEFRAG;
        let argument = match group {
            Some(group) => u32::from(group) | MODE << 16,
            // The kernel chooses a number that is in no other use.
            None => (MODE | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        };
        options::join_fanout(self.fd(), argument)?;
        Ok(options::fanout(self.fd())? as u16)
    }

    /// Sets the buffer for unread packets to this many bytes, or as many as this process may query for.
    pub(super) fn set_buffer_size(&self, buffer_size: u64) -> io::Result<()> {
        // The kernel doubles what it is asked for.
        let half = usize::try_from(buffer_size / 2).unwrap_or(usize::MAX);
        set_socket_recv_buffer_size_force(&self.fd, half)
            .or_else(|_| set_socket_recv_buffer_size(&self.fd, half))
            .map_err(io::Error::from)
    }

    /// Starts to take what the filter lets pass.
    pub(super) fn start(&self, filter: &BpfProgram) -> io::Result<()> {
        options::attach_filter(self.fd(), filter)
    }

    /// Sleeps until there are packets, the time is over, or the socket has an error, which is returned: the interface
    /// is down or gone.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Errno> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::ERR)];
        // A timeout too long for the type is as good as none.
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => self.take_error(),
            Ok(_) | Err(Errno::INTR) => None,
            Err(errno) => Some(errno),
        }
    }

    /// Takes the socket's error, which the kernel clears.
    fn take_error(&self) -> Option<Errno> {
        match socket_error(&self.fd) {
            Ok(Ok(())) => None,
            Ok(Err(errno)) | Err(errno) => Some(errno),
        }
    }

    /// Takes the kernel's counters of what the socket has received and lost since they were taken last.
    pub(super) fn take_losses(&self) -> Losses {
        // This cannot fail on a packet socket.
        let [packets, dropped, freezes] = options::take_statistics(self.fd.as_fd()).unwrap_or_default();
        // The kernel counts dropped packets among the packets.
        let received = u64::from(packets.saturating_sub(dropped));
        Losses { received, dropped: u64::from(dropped), freezes: u64::from(freezes) }
    }
}
