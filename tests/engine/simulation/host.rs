//! Hosts with the TCP of smoltcp: what they send and answer is up to its state machines, and an application that
//! connects, says something now and then, and ends.

use super::wire::{End, RST, SYN, Segment};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint, Ipv4Address};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The port that all servers listen on.
pub(super) const SERVER_PORT: u16 = 443;

/// Listening sockets of a server: as many may answer at once.
const BACKLOG: usize = 4;

/// How long a host waits for an answer until it gives up, as the stacks of most systems do.
const GIVES_UP_US: i64 = 1_200_000_000;

const BUFFER_SIZE: usize = 4_096;

/// Who a packet is of: the connection, numbered over the world, and the side that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) connection: u32,
    pub(super) is_client: bool,
}

/// A packet that a host sends.
pub(super) struct Sent {
    pub(super) packet: Vec<u8>,
    pub(super) segment: Segment,
    /// `None` for what a host answers to a connection that it never had.
    pub(super) sender: Option<Sender>,
    /// Whether its sender knows nothing of the connection any more: a RST then ends it for good.
    pub(super) is_gone: bool,
}

/// What an application does next with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Send(u16),
    /// Sends a FIN, and receives on.
    Close,
    /// Sends a RST.
    Abort,
    /// The host forgets the connection without a packet, as one that crashed.
    Forget,
}

/// Packets on their way into a host and out of it.
#[derive(Default)]
struct Wires {
    arrived: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

struct Sending<'a>(&'a mut Vec<Vec<u8>>);

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Wires {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Sending<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Sending(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1_500;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

/// The other end and the own port of a connection.
type Local = (u16, End);

/// A host.
pub(super) struct Host {
    address: u32,
    interface: Interface,
    sockets: SocketSet<'static>,
    wires: Wires,
    is_server: bool,
    keep_alive: Option<Duration>,
    /// The last connection with these ends, whether it is open or not.
    connections: HashMap<Local, Sender>,
    /// The sockets of connections that are not over.
    open: BTreeMap<u32, SocketHandle>,
    /// Those of them that wait for an answer, and since when.
    waiting_us: HashMap<u32, i64>,
}

fn instant(now_us: i64) -> Instant {
    Instant::from_micros(now_us)
}

fn endpoint(end: End) -> IpEndpoint {
    IpEndpoint::new(IpAddress::Ipv4(Ipv4Address::from_bits(end.address)), end.port)
}

fn end_of(endpoint: IpEndpoint) -> End {
    let IpAddress::Ipv4(address) = endpoint.addr;
    End { address: address.to_bits(), port: endpoint.port }
}

/// Whether a socket has these ends.
fn is_of(socket: &Socket, (port, other): Local) -> bool {
    socket.local_endpoint().is_some_and(|local| local.port == port)
        && socket.remote_endpoint().is_some_and(|remote| end_of(remote) == other)
}

impl Host {
    pub(super) fn new(address: u32, seed: u64, is_server: bool, keep_alive_s: u64) -> Self {
        let mut wires = Wires::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wires, Instant::ZERO);
        let own = IpCidr::new(IpAddress::Ipv4(Ipv4Address::from_bits(address)), 0);
        interface.update_ip_addrs(|addresses| addresses.push(own).expect("the first fits"));
        let mut host = Host {
            address,
            interface,
            sockets: SocketSet::new(Vec::new()),
            wires,
            is_server,
            keep_alive: (keep_alive_s > 0).then(|| Duration::from_secs(keep_alive_s)),
            connections: HashMap::new(),
            open: BTreeMap::new(),
            waiting_us: HashMap::new(),
        };
        if is_server {
            (0..BACKLOG).for_each(|_| host.listen());
        }
        host
    }

    pub(super) fn address(&self) -> u32 {
        self.address
    }

    fn socket(&self) -> Socket<'static> {
        let buffer = || SocketBuffer::new(vec![0; BUFFER_SIZE]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_keep_alive(self.keep_alive);
        socket
    }

    fn listen(&mut self) {
        let mut socket = self.socket();
        socket.listen(SERVER_PORT).expect("the socket is new");
        self.sockets.add(socket);
    }

    /// Whether a socket of this host may still send for a connection with these ends.
    fn is_live(&self, local: Local) -> bool {
        let is_it = |socket: &Socket| is_of(socket, local) && !matches!(socket.state(), State::Closed | State::Listen);
        self.sockets.iter().any(|(_, smoltcp::socket::Socket::Tcp(socket))| is_it(socket))
    }

    /// Begins a connection; `false` if the host has one with these ends.
    pub(super) fn connect(&mut self, connection: u32, port: u16, server: End) -> bool {
        if self.is_live((port, server)) {
            return false;
        }
        let mut socket = self.socket();
        socket.connect(self.interface.context(), endpoint(server), port).expect("the ends are valid");
        let handle = self.sockets.add(socket);
        self.open.insert(connection, handle);
        self.connections.insert((port, server), Sender { connection, is_client: true });
        true
    }

    /// The application of a connection acts, if the host still has it. Returns whether it does.
    pub(super) fn act(&mut self, connection: u32, act: Act) -> bool {
        let Some(handle) = self.open.get(&connection).copied() else { return false };
        let socket = self.sockets.get_mut::<Socket>(handle);
        match act {
            Act::Send(size) => drop(socket.send_slice(&vec![0; usize::from(size)])),
            Act::Close => socket.close(),
            Act::Abort => socket.abort(),
            Act::Forget => {
                self.sockets.remove(handle);
                self.open.remove(&connection);
                return false;
            }
        }
        true
    }

    /// A packet arrives that a connection's other side, or somebody else, has sent.
    pub(super) fn arrives(&mut self, now_us: i64, packet: Vec<u8>, sender: Option<Sender>, out: &mut Vec<Sent>) {
        let segment = Segment::of_packet(&packet);
        self.wires.arrived.push_back(packet);
        // A SYN that is repeated is of the connection that the first has begun, if any of the sockets has it.
        let is_repeat = self.is_server && segment.has(SYN) && self.has_begun((segment.dst.port, segment.src));
        if is_repeat {
            self.each_listener(|socket| socket.abort());
        }
        self.interface.poll(instant(now_us), &mut self.wires, &mut self.sockets);
        if is_repeat {
            self.each_listener(|socket| socket.listen(SERVER_PORT).expect("it has listened before"));
        }
        if self.is_server
            && segment.has(SYN)
            && let Some(sender) = sender
        {
            self.accept((segment.dst.port, segment.src), Sender { is_client: false, ..sender });
        }
        self.poll(now_us, out);
    }

    /// Whether there is a connection with these ends that has not said its last.
    fn has_begun(&self, local: Local) -> bool {
        let is_it = |socket: &Socket| {
            is_of(socket, local) && !matches!(socket.state(), State::Closed | State::Listen | State::TimeWait)
        };
        self.sockets.iter().any(|(_, smoltcp::socket::Socket::Tcp(socket))| is_it(socket))
    }

    fn each_listener(&mut self, act: impl Fn(&mut Socket)) {
        let open: HashSet<SocketHandle> = self.open.values().copied().collect();
        for (handle, smoltcp::socket::Socket::Tcp(socket)) in self.sockets.iter_mut() {
            if !open.contains(&handle) && matches!(socket.state(), State::Closed | State::Listen) {
                act(socket);
            }
        }
    }

    /// Keeps the socket that has just answered a SYN, if one has, and listens on with another one.
    fn accept(&mut self, local: Local, sender: Sender) {
        let found = self.sockets.iter().find(|(handle, smoltcp::socket::Socket::Tcp(socket))| {
            socket.state() == State::SynReceived
                && is_of(socket, local)
                && !self.open.values().any(|open| open == handle)
        });
        if let Some((handle, _)) = found {
            self.open.insert(sender.connection, handle);
            self.connections.insert(local, sender);
            self.listen();
        }
    }

    /// Sends what is due.
    pub(super) fn poll(&mut self, now_us: i64, out: &mut Vec<Sent>) {
        self.give_up(now_us);
        self.interface.poll(instant(now_us), &mut self.wires, &mut self.sockets);
        for handle in self.open.values() {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            if socket.can_recv() {
                let _ = socket.recv(|data| (data.len(), ()));
            }
        }
        let sent = std::mem::take(&mut self.wires.sent);
        for packet in sent {
            let segment = Segment::of_packet(&packet);
            let local = (segment.src.port, segment.dst);
            let sender = self.connections.get(&local).copied();
            let is_gone = segment.has(RST) && !self.is_live(local);
            out.push(Sent { packet, segment, sender, is_gone });
        }
        self.remove_closed();
    }

    /// Resets connections that have waited for an answer for too long.
    fn give_up(&mut self, now_us: i64) {
        for (connection, handle) in &self.open {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            let is_quiet = matches!(socket.state(), State::Established | State::CloseWait | State::FinWait2);
            if is_quiet && socket.send_queue() == 0 {
                self.waiting_us.remove(connection);
            } else if now_us - *self.waiting_us.entry(*connection).or_insert(now_us) > GIVES_UP_US {
                socket.abort();
            }
        }
    }

    fn remove_closed(&mut self) {
        let sockets = &mut self.sockets;
        self.open.retain(|_, handle| {
            let state = sockets.get::<Socket>(*handle).state();
            // One that was reset before its handshake was complete listens again.
            let is_over = matches!(state, State::Closed | State::Listen);
            if is_over {
                sockets.remove(*handle);
            }
            !is_over
        });
    }

    /// When this host has to be polled next, if nothing arrives.
    pub(super) fn poll_at(&mut self, now_us: i64) -> Option<i64> {
        self.interface.poll_at(instant(now_us), &self.sockets).map(|at| at.total_micros())
    }

    /// Connections that the other side has ended and this one has not.
    pub(super) fn half_closed(&self) -> impl Iterator<Item = u32> {
        let is_half_closed = |handle: SocketHandle| self.sockets.get::<Socket>(handle).state() == State::CloseWait;
        self.open.iter().filter(move |(_, handle)| is_half_closed(**handle)).map(|(connection, _)| *connection)
    }
}
