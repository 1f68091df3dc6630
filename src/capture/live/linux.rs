//! Live capture on Linux: sources of an interface's packets that outlive its going down and coming back.
//!
//! The packets of a source come from a socket with a filter in the kernel, through a ring or pnet's receiver. An
//! interface that is gone is looked up again at growing intervals; when it is back the socket is bound to it again,
//! which needs no privilege. A new socket, which does need the privilege, is opened if the interface came back as
//! another kind, and in a fanout group, which the kernel lets no socket leave. For a process that has given up the
//! privilege each member of a group has a socket in reserve. That one roams: it is bound to all interfaces, and its
//! filter names the one that is wanted, so it follows the interface whenever that comes back. Not all sockets roam
//! from the start, because the kernel then shows them every packet of every interface.

use super::bpf::{self, BpfProgram};
use super::device::{Device, DeviceKind, hardware_name, query_socket};
use super::pnet::PnetReceiver;
use super::ring::Ring;
use super::socket::PacketSocket;
use super::{Backend, CaptureMode, LiveConfig, privileges};
use crate::capture::live::{FANOUT_COUNT_MAX, RING_SIZE_MAX, RING_SIZE_MIN};
use crate::capture::{Condition, LiveSource, Losses, Packet, PacketSource, Progress};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first pause before an interface that is away is looked up again, in milliseconds: a flapping one is back that
/// soon.
const INTERFACE_RETRY_MIN_MS: u64 = 50;

/// The longest pause before it is looked up again, in milliseconds: pauses double up to it.
const INTERFACE_RETRY_MAX_MS: u64 = 2_000;

const _: () = assert!(INTERFACE_RETRY_MIN_MS <= INTERFACE_RETRY_MAX_MS);

/// The index by which a socket is bound to all interfaces.
const ALL_INTERFACES: i32 = 0;

/// One source of an interface's packets, of all of them or of a share.
///
/// # Example
///
/// ```no_run
/// use flowpeel::capture::{LiveSource, PacketSource};
/// use flowpeel::capture::live::{self, LiveConfig};
/// use std::time::Duration;
///
/// let mut source = live::open(&LiveConfig::new("eth0"))?.remove(0);
/// while !source.is_finished() {
///     while let Some(packet) = source.next_packet()? {
///         println!("{} bytes", packet.bytes.len());
///     }
///     if let Some(condition) = source.wait(Duration::from_millis(100)) {
///         println!("eth0 is {condition:?}");
///     }
/// }
/// # Ok::<(), flowpeel::error::Error>(())
/// ```
pub struct Live {
    config: Arc<LiveConfig>,
    group: Arc<Mutex<Option<FanoutGroup>>>,
    source: CaptureSocket,
    /// In a group, the socket for an interface that comes back when there is no privilege left to open one.
    reserve: Option<PacketSocket>,
    condition: Condition,
    /// Whether the socket is bound to the interface that has the name now. After an interface was gone the socket has
    /// to be bound again, even if the index is the same.
    is_bound: bool,
    retry: RetryTimer,
    /// What its sockets received and lost, up to the last time they were asked.
    losses: Losses,
    /// The error that ended the capture, until it has been returned.
    failure: Option<Error>,
    finished: bool,
}

/// The fanout group of all members.
#[derive(Clone, Copy)]
struct FanoutGroup {
    /// The index of the interface that they are bound to, or [`ALL_INTERFACES`].
    interface_index: i32,
    number: u16,
}

/// When to look for the interface again.
struct RetryTimer {
    at: Instant,
    pause: Duration,
}

impl RetryTimer {
    const FIRST: Duration = Duration::from_millis(INTERFACE_RETRY_MIN_MS);
    const LONGEST: Duration = Duration::from_millis(INTERFACE_RETRY_MAX_MS);

    fn soon() -> Self {
        RetryTimer { at: Instant::now() + Self::FIRST, pause: Self::FIRST }
    }

    fn later(&mut self) {
        self.pause = (self.pause * 2).min(Self::LONGEST);
        self.at = Instant::now() + self.pause;
    }
}

/// Opens the sources of an interface: as many as [`LiveConfig::fanout_count`] says.
///
/// # Errors
///
/// There is no such interface, or its packets cannot be read; this process may not capture, and the error says what to
/// do; the configuration is out of bounds; or there is no memory for the rings.
pub fn open(config: &LiveConfig) -> Result<Vec<Live>> {
    check(config)?;
    let name = config.interface.escape_debug();
    let cannot = |error| cannot_capture(config, error);
    let query_socket = query_socket().map_err(cannot)?;
    let device = Device::find(query_socket.as_fd(), &config.interface).map_err(cannot)?;
    let Some(device) = device else {
        return Err(Error::new(format!("there is no interface {name}: flowpeel interfaces lists them")));
    };
    let kind = kind_of(config, &device)?;
    let group = Arc::new(Mutex::new(None));
    let config = Arc::new(config.clone());
    let mut members = Vec::new();
    for _ in 0..config.fanout_count {
        let source = open_member(&config, &group, device, kind).map_err(cannot)?;
        let has_reserve = config.fanout_count > 1;
        members.push(Live {
            config: Arc::clone(&config),
            group: Arc::clone(&group),
            source,
            reserve: has_reserve.then(|| PacketSocket::open(kind)).transpose().map_err(cannot)?,
            condition: if device.is_up { Condition::Up } else { Condition::Down },
            is_bound: true,
            retry: RetryTimer::soon(),
            losses: Losses::default(),
            failure: None,
            finished: false,
        });
    }
    // Only now that all are in the group, so that no packet comes to two of them.
    for member in &members {
        member.source.start(&config.capture).map_err(cannot)?;
    }
    Ok(members)
}

fn check(config: &LiveConfig) -> Result<()> {
    if !(1..=FANOUT_COUNT_MAX).contains(&config.fanout_count) {
        return Err(Error::new(format!("an interface is captured by 1 to {FANOUT_COUNT_MAX} threads")));
    }
    if !(RING_SIZE_MIN..=RING_SIZE_MAX).contains(&config.ring_size) {
        let (min, max) = (RING_SIZE_MIN >> 10, RING_SIZE_MAX >> 20);
        return Err(Error::new(format!("a ring has from {min} KiB to {max} MiB")));
    }
    Ok(())
}

fn kind_of(config: &LiveConfig, device: &Device) -> Result<DeviceKind> {
    DeviceKind::of_hardware(device.hardware).ok_or_else(|| {
        let (name, hardware) = (config.interface.escape_debug(), device.hardware);
        Error::new(format!("{name} is of a kind that cannot be read: {} (ARPHRD {hardware})", hardware_name(hardware)))
    })
}

fn cannot_capture(config: &LiveConfig, error: io::Error) -> Error {
    let name = config.interface.escape_debug();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => privileges::missing(&format!("cannot capture {name}")),
        Some(libc::ENOMEM) => Error::new(format!("there is no memory for the rings of {name}: ask for smaller ones")),
        Some(libc::EINVAL) if matches!(config.capture, super::CaptureMode::Program(_)) => {
            Error::new(format!("cannot capture {name}: the kernel does not take this program")).because(error)
        }
        _ => Error::new(format!("cannot capture {name}")).because(error),
    }
}

fn open_member(
    config: &LiveConfig,
    group: &Mutex<Option<FanoutGroup>>,
    device: Device,
    kind: DeviceKind,
) -> io::Result<CaptureSocket> {
    let mut source = CaptureSocket::open(config, device, kind)?;
    if config.fanout_count > 1 {
        join_group(&mut source, group, device.index)?;
    }
    Ok(source)
}

/// Joins the group of those that are bound to this interface, or begins it.
fn join_group(source: &mut CaptureSocket, group: &Mutex<Option<FanoutGroup>>, interface_index: i32) -> io::Result<()> {
    let mut group = group.lock();
    let known = group.filter(|group| group.interface_index == interface_index).map(|group| group.number);
    // The kernel's group may have ended with its last member; a new one is begun then.
    let number = source.join_fanout(known).or_else(|_| source.join_fanout(None))?;
    *group = Some(FanoutGroup { interface_index, number });
    Ok(())
}

impl Live {
    /// Handles an error of the socket: the interface is down or gone, or the capture fails.
    fn record_error(&mut self, errno: Errno) {
        if !matches!(errno, Errno::NETDOWN | Errno::NODEV | Errno::NXIO) {
            self.failure = Some(cannot_capture(&self.config, errno.into()));
            return;
        }
        let found = self.current_device().unwrap_or_default();
        self.check_binding(found);
        // An interface that is up again already has been down: that is reported first.
        self.condition = if found.is_some() { Condition::Down } else { Condition::Gone };
        self.retry = RetryTimer::soon();
    }

    /// Updates `is_bound`: whether the socket is still bound to the interface of the configured name. If not, it takes
    /// nothing more.
    fn check_binding(&mut self, found: Option<Device>) {
        let source = &self.source;
        let is_bound_to = |device: &Device| source.is_roaming || source.socket.is_bound_to(device);
        let is_same = |device: &Device| device.index == source.device.index && is_bound_to(device);
        let is_bound = self.is_bound && found.is_some_and(|device| is_same(&device));
        if self.is_bound && !is_bound {
            // It may be there under another name.
            source.leave();
        }
        self.is_bound = is_bound;
    }

    /// The interface that has the name now.
    fn current_device(&self) -> io::Result<Option<Device>> {
        Device::find(self.source.socket.fd(), &self.config.interface)
    }

    /// Updates the condition of the interface, and captures it again if it is back.
    fn check_interface(&mut self) {
        let found = self.current_device().unwrap_or_default();
        self.check_binding(found);
        self.condition = match found {
            None => Condition::Gone,
            Some(device) if !device.is_up => Condition::Down,
            Some(_) if self.is_bound => Condition::Up,
            Some(device) => match self.capture_again(device) {
                Ok(()) => {
                    self.is_bound = true;
                    Condition::Up
                }
                Err(error) => {
                    self.failure = error;
                    self.condition
                }
            },
        };
        self.retry.later();
    }

    /// Captures the interface that has the name now. An error of `None` is temporary.
    fn capture_again(&mut self, device: Device) -> std::result::Result<(), Option<Error>> {
        let outcome = if self.source.can_move_to(&device) {
            self.source.move_to(device, &self.config)
        } else {
            let kind = kind_of(&self.config, &device).map_err(Some)?;
            self.open_again(device, kind)
        };
        outcome.map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO | libc::ENETDOWN) => None,
            Some(libc::EPERM | libc::EACCES) => Some(self.cannot_open_again()),
            _ => Some(cannot_capture(&self.config, error)),
        })
    }

    fn open_again(&mut self, device: Device, kind: DeviceKind) -> io::Result<()> {
        let opened = open_member(&self.config, &self.group, device, kind);
        let source = match opened {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                self.roam(device, kind)?.ok_or(error)?
            }
            opened => opened?,
        };
        source.start(&self.config.capture)?;
        self.losses += self.source.socket.take_losses();
        self.source = source;
        Ok(())
    }

    /// The source of the socket in reserve; `None` if there is none for interfaces of this kind.
    fn roam(&mut self, device: Device, kind: DeviceKind) -> io::Result<Option<CaptureSocket>> {
        let Some(socket) = self.reserve.take_if(|_| kind == self.source.kind) else { return Ok(None) };
        let mut source = CaptureSocket::roaming(&self.config, socket, device, kind)?;
        join_group(&mut source, &self.group, ALL_INTERFACES)?;
        Ok(Some(source))
    }

    fn cannot_open_again(&self) -> Error {
        let name = self.config.interface.escape_debug();
        Error::new(format!(
            "{name} is back, and cannot be captured again without the privilege CAP_NET_RAW: it came back as another kind \
             of interface: start again"
        ))
    }

    #[cold]
    fn fail(&mut self) -> Result<Option<Packet<'_>>> {
        self.finished = true;
        self.failure.take().map_or(Ok(None), Err)
    }
}

impl LiveSource for Live {
    fn condition(&self) -> Condition {
        self.condition
    }

    fn losses(&mut self) -> Losses {
        self.losses += self.source.socket.take_losses();
        self.losses
    }

    fn is_filling(&self) -> bool {
        self.source.is_filling()
    }

    fn wait(&mut self, timeout: Duration) -> Option<Condition> {
        let before = self.condition;
        if self.finished || self.failure.is_some() || self.source.has_packet() {
            return None;
        }
        let timeout = match before {
            Condition::Up => timeout,
            _ => timeout.min(self.retry.at.saturating_duration_since(Instant::now())),
        };
        if let Some(errno) = self.source.wait(timeout) {
            self.record_error(errno);
        }
        // The kernel reports to no roaming socket that an interface has left.
        if (self.condition != Condition::Up || self.source.is_roaming) && Instant::now() >= self.retry.at {
            self.check_interface();
            if before == Condition::Up && self.condition != Condition::Up {
                self.retry = RetryTimer::soon();
            }
        }
        (self.condition != before).then_some(self.condition)
    }
}

impl PacketSource for Live {
    /// The next packet; never waits for one.
    #[inline]
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        if self.finished || self.failure.is_some() {
            return self.fail();
        }
        match &mut self.source.reader {
            SocketReader::Ring(ring) => ring.next_packet().inspect_err(|_| self.finished = true),
            // `wait` reports the errors of its socket.
            SocketReader::Pnet(pnet) => Ok(pnet.next_packet()),
        }
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// The reader of a socket.
enum SocketReader {
    /// A ring.
    Ring(Ring),
    /// pnet's receiver.
    Pnet(PnetReceiver),
}

/// A socket that is open, and its reader.
struct CaptureSocket {
    // Declared before the socket, so that its memory is unmapped first.
    reader: SocketReader,
    socket: PacketSocket,
    device: Device,
    kind: DeviceKind,
    is_grouped: bool,
    /// Whether it is bound to all interfaces, and its filter names the one that is wanted.
    is_roaming: bool,
}

impl CaptureSocket {
    /// Opens a source that takes no packets before it is [started](CaptureSocket::start).
    fn open(config: &LiveConfig, device: Device, kind: DeviceKind) -> io::Result<Self> {
        CaptureSocket::on(config, PacketSocket::open(kind)?, device, kind, false)
    }

    /// A source on this socket that needs no privilege to follow the interface, wherever that comes back.
    fn roaming(config: &LiveConfig, socket: PacketSocket, device: Device, kind: DeviceKind) -> io::Result<Self> {
        CaptureSocket::on(config, socket, device, kind, true)
    }

    fn on(
        config: &LiveConfig,
        socket: PacketSocket,
        device: Device,
        kind: DeviceKind,
        is_roaming: bool,
    ) -> io::Result<Self> {
        let bound_to = if is_roaming { Device { index: ALL_INTERFACES, ..device } } else { device };
        let reader = match config.backend {
            Backend::Ring => SocketReader::Ring(Ring::new(&socket, config.block_count(), kind.link())?),
            Backend::Pnet => SocketReader::Pnet(PnetReceiver::new(&socket, &bound_to, kind.link(), config.ring_size)?),
        };
        let source = CaptureSocket { reader, socket, device, kind, is_grouped: false, is_roaming };
        source.attach(config)?;
        Ok(source)
    }

    /// Joins a fanout group, or begins one. Returns its number.
    fn join_fanout(&mut self, group: Option<u16>) -> io::Result<u16> {
        let group = self.socket.join_fanout(group)?;
        self.is_grouped = true;
        Ok(group)
    }

    /// Starts to take packets.
    fn start(&self, capture: &CaptureMode) -> io::Result<()> {
        let filter = filter(capture, self.kind);
        self.socket.start(&if self.is_roaming { filter.of_interface(self.device.index) } else { filter })
    }

    /// Whether the socket can follow to this interface: not if that is of another kind, and, unless it roams, not in a
    /// fanout group, which the kernel does not let it leave.
    fn can_move_to(&self, device: &Device) -> bool {
        (!self.is_grouped || self.is_roaming) && DeviceKind::of_hardware(device.hardware) == Some(self.kind)
    }

    /// Stops taking packets of an interface that has another name now.
    fn leave(&self) {
        self.socket.leave(&self.device);
    }

    /// Captures this interface from now on. It needs no privilege.
    fn move_to(&mut self, device: Device, config: &LiveConfig) -> io::Result<()> {
        self.device = device;
        self.attach(config)?;
        self.start(&config.capture)
    }

    /// Whether a packet can be read without asking the kernel.
    fn has_packet(&self) -> bool {
        match &self.reader {
            SocketReader::Ring(ring) => ring.has_packet(),
            SocketReader::Pnet(_) => false,
        }
    }

    /// Whether the kernel has no more room than it has packets for this source.
    fn is_filling(&self) -> bool {
        match &self.reader {
            SocketReader::Ring(ring) => ring.is_filling(),
            SocketReader::Pnet(_) => false,
        }
    }

    /// Sleeps until there are packets, the time is over, or the socket has an error, which is returned.
    fn wait(&mut self, timeout: Duration) -> Option<Errno> {
        let met = match &mut self.reader {
            SocketReader::Ring(_) => None,
            SocketReader::Pnet(pnet) => pnet.take_error(),
        };
        met.or_else(|| self.socket.wait(timeout))
    }

    fn attach(&self, config: &LiveConfig) -> io::Result<()> {
        if !self.is_roaming {
            self.socket.bind(&self.device)?;
        } else if !self.is_grouped {
            self.socket.bind(&Device { index: ALL_INTERFACES, ..self.device })?;
        }
        if config.promiscuous {
            self.socket.enter_promiscuous_mode(&self.device)?;
        }
        Ok(())
    }
}

/// The filter for this mode and kind of interface.
fn filter(capture: &CaptureMode, kind: DeviceKind) -> BpfProgram {
    match capture {
        CaptureMode::Headers => bpf::headers(kind.link()),
        CaptureMode::Flags => bpf::flags(kind.link()),
        CaptureMode::Everything => bpf::everything(),
        CaptureMode::Program(program) => program.clone(),
    }
}
