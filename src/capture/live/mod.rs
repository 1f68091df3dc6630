//! Live capture: the packets of an interface as a source.
//!
//! [`open`] returns [`Live`] sources, one for each capture thread. On Linux the kernel filters before it copies, and
//! hands over packets through a ring of shared memory, or through pnet's receiver on a socket with the same filter. An
//! interface that goes down or is removed is waited for: that is a [`Condition`](super::Condition), not an error. On
//! other systems pnet captures everything, without a filter.

#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod device;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod interfaces;
#[cfg(target_os = "linux")]
mod linux;
mod pnet;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
mod ring_memory;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod socket_options;

#[cfg(target_os = "linux")]
pub use bpf::BpfProgram;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{BpfProgram, Live, drop_privileges, drop_privileges_but_net_admin, open};
pub use interfaces::{Interface, InterfaceLink, interfaces};
#[cfg(target_os = "linux")]
pub use linux::{Live, open};
#[cfg(target_os = "linux")]
pub use privileges::{drop_privileges, drop_privileges_but_net_admin};

use crate::capture::PACKET_SIZE_MAX;
pub use bpf::BPF_INSTRUCTION_COUNT_MAX;
use std::time::{SystemTime, UNIX_EPOCH};

/// The size of a block of the ring, in bytes. The kernel hands over whole blocks, and a packet lies in one of them: it
/// holds twice the longest IP packet. Smaller ones would make a ring that nobody reads last longer, since slow traffic
/// fills no block either.
pub(super) const RING_BLOCK_SIZE: u32 = 128 << 10;

/// The default size of the ring of each capture thread, in bytes. At a million packets a second, of which 250 bytes are
/// kept each, it holds a sixteenth of a second. At any lower rate it holds more than a second: 128 blocks, of which one
/// is handed over every 10 ms.
pub const RING_SIZE_DEFAULT: u64 = 16 << 20;

/// The smallest ring, in bytes: one block that is read, one that is filled, and two to spare.
pub const RING_SIZE_MIN: u64 = 4 * RING_BLOCK_SIZE as u64;

/// The largest ring, in bytes: its memory cannot be swapped out, and a reader that is a second late never catches up.
pub const RING_SIZE_MAX: u64 = 1 << 30;

/// The most capture threads on one interface: the kernel shares packets out by a hash, and no router has more cores for
/// it.
pub const FANOUT_COUNT_MAX: usize = 64;

const _: () = assert!(RING_BLOCK_SIZE.is_power_of_two() && RING_BLOCK_SIZE as usize <= PACKET_SIZE_MAX);

const _: () = assert!(RING_SIZE_MIN <= RING_SIZE_DEFAULT && RING_SIZE_DEFAULT <= RING_SIZE_MAX);

const _: () = assert!(RING_SIZE_MAX.is_multiple_of(RING_BLOCK_SIZE as u64));

/// The wall clock, in nanoseconds since 1970. A clock before 1970 was never set and counts as 1970.
pub(crate) fn wall_ns() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
}

/// How packets come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Through a ring of shared memory, with the kernel's time stamps and VLAN tags. Linux only.
    Ring,
    /// Through pnet, with at least one system call a packet. A packet's time is when it is read, and the outermost VLAN
    /// tag, which Linux takes out of the frame, is unknown.
    Pnet,
}

/// Which packets are captured, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// The headers of every TCP packet, also behind VLAN tags, MPLS labels and PPPoE.
    Headers,
    /// The headers of TCP packets with SYN, FIN or RST.
    Flags,
    /// The beginning of every packet, so that tunnels are parsed too.
    Everything,
    /// What this program takes.
    Program(BpfProgram),
}

/// What to capture, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveConfig {
    /// The name of the interface.
    pub interface: String,
    /// How packets come from the kernel.
    pub backend: Backend,
    /// Which packets are captured, and how much of them.
    pub capture: CaptureMode,
    /// How many sources share the packets; all packets of a connection come to the same one.
    pub fanout_count: usize,
    /// The ring of each source, in bytes, rounded down to whole blocks. Without a ring: how many bytes of unread
    /// packets the kernel is to keep, if it allows this process so many.
    pub ring_size: u64,
    /// Whether the interface is promiscuous while it is captured: it then takes packets for any address.
    pub promiscuous: bool,
}

impl LiveConfig {
    /// The usual capture of this interface: one ring, the headers of TCP, promiscuous.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        LiveConfig {
            interface: interface.into(),
            backend: Backend::Ring,
            capture: CaptureMode::Headers,
            fanout_count: 1,
            ring_size: RING_SIZE_DEFAULT,
            promiscuous: true,
        }
    }

    /// The memory that all sources together take, in the kernel and in this process, in bytes.
    #[must_use]
    pub fn memory_size(&self) -> u64 {
        let each = match self.backend {
            Backend::Ring => u64::from(self.block_count()) * u64::from(RING_BLOCK_SIZE),
            Backend::Pnet => self.ring_size + PACKET_SIZE_MAX as u64,
        };
        each.saturating_mul(self.fanout_count as u64)
    }

    /// The number of blocks of each ring.
    fn block_count(&self) -> u32 {
        let size = self.ring_size.clamp(RING_SIZE_MIN, RING_SIZE_MAX);
        (size / u64::from(RING_BLOCK_SIZE)) as u32
    }
}
