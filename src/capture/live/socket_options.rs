//! The system calls on packet sockets for which there is no safe wrapper.
//!
//! Every function is
//! safe to call with any arguments: it passes the kernel references to memory of its own frame, with their true sizes.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::bpf::BpfProgram;

/// The parameters of a ring, in bytes, items and milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingRequest {
    pub(super) block_size: u32,
    pub(super) block_count: u32,
    pub(super) frame_size: u32,
    pub(super) retire_ms: u32,
}

/// A type that consists of numbers only: any bytes are a valid value, and it has no padding that the kernel could read.
///
/// # Safety
/// The implementing type must be one.
unsafe trait PlainOldData: Copy {}
// SAFETY: a number.
unsafe impl PlainOldData for u32 {}
// SAFETY: numbers of four bytes.
unsafe impl PlainOldData for libc::tpacket_req3 {}
// SAFETY: numbers of four bytes.
unsafe impl PlainOldData for libc::tpacket_stats_v3 {}
// SAFETY: 4 + 2 + 2 + 8 bytes, aligned to 4.
unsafe impl PlainOldData for libc::packet_mreq {}

fn checked(result: c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set<T: PlainOldData>(fd: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is that of a live reference, the size that of what it points to, and `T` is initialised
    // throughout.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

fn get<T: PlainOldData>(fd: BorrowedFd<'_>, option: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `size` bytes, which is what `value` has.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, value.as_mut_ptr().cast(), &raw mut size)
    })?;
    // SAFETY: what the kernel did not write is zero, and any bytes are a value of a plain type.
    Ok(unsafe { value.assume_init() })
}

/// Sets the version of the socket's rings to the third, whose blocks hold packets of any length.
pub(super) fn use_version_3(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as u32))
}

/// Gives the socket a ring.
pub(super) fn make_ring(fd: BorrowedFd<'_>, request: RingRequest) -> io::Result<()> {
    let frames_per_block = request.block_size / request.frame_size.max(1);
    let request = libc::tpacket_req3 {
        tp_block_size: request.block_size,
        tp_block_nr: request.block_count,
        tp_frame_size: request.frame_size,
        tp_frame_nr: frames_per_block.saturating_mul(request.block_count),
        tp_retire_blk_tov: request.retire_ms,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set(fd, libc::PACKET_RX_RING, &request)
}

/// Keeps the interface in promiscuous mode for as long as this socket is open: it takes packets for any address.
pub(super) fn enter_promiscuous_mode(fd: BorrowedFd<'_>, interface_index: i32) -> io::Result<()> {
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &promiscuity(interface_index))
}

/// Leaves the promiscuous mode that this socket asked for; an error if it did not.
pub(super) fn leave_promiscuous_mode(fd: BorrowedFd<'_>, interface_index: i32) -> io::Result<()> {
    set(fd, libc::PACKET_DROP_MEMBERSHIP, &promiscuity(interface_index))
}

fn promiscuity(interface_index: i32) -> libc::packet_mreq {
    libc::packet_mreq {
        mr_ifindex: interface_index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    }
}

/// Joins a fanout group: the number of the group in the low 16 bits, mode and flags above.
pub(super) fn join_fanout(fd: BorrowedFd<'_>, argument: u32) -> io::Result<()> {
    set(fd, libc::PACKET_FANOUT, &argument)
}

/// The group that the socket is in, as for [`join_fanout`].
pub(super) fn fanout(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get(fd, libc::PACKET_FANOUT)
}

/// Takes the kernel's counters since the last call: all packets, those of them that were dropped, and how often the
/// ring was full. The last is 0 without a ring of the third version.
pub(super) fn take_statistics(fd: BorrowedFd<'_>) -> io::Result<[u32; 3]> {
    let statistics: libc::tpacket_stats_v3 = get(fd, libc::PACKET_STATISTICS)?;
    Ok([statistics.tp_packets, statistics.tp_drops, statistics.tp_freeze_q_cnt])
}

/// Attaches a filter, in place of the one before.
pub(super) fn attach_filter(fd: BorrowedFd<'_>, program: &BpfProgram) -> io::Result<()> {
    let mut instructions: Vec<libc::sock_filter> = program
        .instructions()
        .iter()
        .map(|from| libc::sock_filter { code: from.code, jt: from.jump_true, jf: from.jump_false, k: from.operand })
        .collect();
    let len = u16::try_from(instructions.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
    // SAFETY: `program` is live and of that size; it points to `len` instructions, which live until the call has
    // returned, when the kernel has its own copy of them.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })
}

/// Binds the socket to an interface, to receive all its packets.
pub(super) fn bind(fd: BorrowedFd<'_>, interface_index: i32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface_index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the pointer is that of a live and initialised address, the size is its own.
    checked(unsafe {
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    })
}

/// The index of the interface that the socket is bound to; -1 once that has left, even if it has come back since.
pub(super) fn bound_index(fd: BorrowedFd<'_>) -> io::Result<i32> {
    let mut address = MaybeUninit::<libc::sockaddr_ll>::zeroed();
    let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `size` bytes, which is what `address` has.
    checked(unsafe { libc::getsockname(fd.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut size) })?;
    // SAFETY: what the kernel did not write is zero, and any bytes are an address, which is of numbers.
    Ok(unsafe { address.assume_init() }.sll_ifindex)
}

/// A question about an interface.
#[derive(Clone, Copy, Debug)]
pub(super) enum InterfaceQuery {
    /// The index.
    Index,
    /// The flags (IFF_UP and others).
    Flags,
    /// The hardware type (ARPHRD_).
    HardwareType,
    /// The largest packet that the interface carries, in bytes.
    Mtu,
}

/// Asks about the interface of this name. Any socket will do.
pub(super) fn query(fd: BorrowedFd<'_>, name: &str, question: InterfaceQuery) -> io::Result<u32> {
    // SAFETY: an interface request consists of numbers and bytes, in every variant that is asked for here.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero, which ends the name.
    if name.len() >= request.ifr_name.len() || name.bytes().any(|byte| byte == 0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let number = match question {
        InterfaceQuery::Index => libc::SIOCGIFINDEX,
        InterfaceQuery::Flags => libc::SIOCGIFFLAGS,
        InterfaceQuery::HardwareType => libc::SIOCGIFHWADDR,
        InterfaceQuery::Mtu => libc::SIOCGIFMTU,
    };
    // SAFETY: these requests read the name and write within the request, which is live.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), number as _, &raw mut request) })?;
    // SAFETY: the request is initialised throughout, and each of these variants consists of numbers.
    Ok(unsafe {
        match question {
            InterfaceQuery::Index => request.ifr_ifru.ifru_ifindex as u32,
            InterfaceQuery::Flags => u32::from(request.ifr_ifru.ifru_flags as u16),
            InterfaceQuery::HardwareType => u32::from(request.ifr_ifru.ifru_hwaddr.sa_family),
            InterfaceQuery::Mtu => request.ifr_ifru.ifru_mtu as u32,
        }
    })
}
