//! What happens in a world, in order of time: hosts and the crowd send, packets are lost, late and doubled on their way
//! past the taps, and somebody forges some.

use super::clocks::{BEGIN_US, Clocks};
use super::crowd::Scripted;
use super::host::{Act, Host, SERVER_PORT, Sender, Sent};
use super::truth::{Passed, Truth};
use super::wire::{ACK, End, Ends, FIN, RST, SYN, Segment};
use super::world::{SHARE_WHOLE, World};
use flowpeel_traffic::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

const SECOND_US: i64 = 1_000_000;

/// After so many captured packets a world ends: those that repeat without an end would never.
const PACKETS_MAX: u64 = 8_000_000;

const CLIENTS: u32 = 0x0a00_0001; // 10.0.0.1
const SERVERS: u32 = 0xc000_0201; // 192.0.2.1
const TRANSLATED: u32 = 0xcb00_7101; // 203.0.113.1
const FLOODERS: u32 = 0x0b00_0000; // 11.0.0.0
const FLOODED: u32 = 0xc000_02fe; // 192.0.2.254

/// From tap to tap, for the crowd.
const CROWD_WAY_US: i64 = 50;

const FIRST_PORT: u64 = 40_000;

/// How long a router keeps a translation that nothing uses.
const TRANSLATION_US: i64 = 600 * SECOND_US;

/// Whether it is an end of the flood.
pub(super) fn is_of_flood(end: End) -> bool {
    end.address >> 24 == FLOODERS >> 24
}

/// A packet on its way.
#[derive(Clone)]
struct Flight {
    /// The bytes, where a host is to get them.
    packet: Option<Vec<u8>>,
    segment: Segment,
    sender: Option<Sender>,
    is_forged: bool,
    is_gone: bool,
    to_server: bool,
}

enum Event {
    /// A connection begins.
    Connect(u32),
    Act {
        host: usize,
        connection: u32,
        act: Act,
    },
    Poll(usize),
    /// A packet comes to this tap.
    Tap(usize, Flight),
    Arrive(usize, Flight),
    /// A connection of the crowd begins.
    Join,
    Scripted(u32),
    /// One of the crowd sends this, perhaps again, and pauses afterwards.
    Send(u32, Flight, Option<i64>),
    Forge(Forgery),
    Flood,
    FloodAnswer(End, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgery {
    Rst,
    Fin,
    Syn,
    SynAck,
    Data,
}

/// An event, in the order of its time and then in that in which events were made.
struct Scheduled {
    at_us: i64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

/// The router's translation of the clients' ends.
#[derive(Default)]
struct Translation {
    /// The port for each end of a client and server, and when it was used last.
    outside: HashMap<(End, End), (u16, i64)>,
    inside: HashMap<(u16, End), End>,
    next: u64,
}

/// A captured packet, with the stamp of its tap's clock.
pub(super) struct Captured {
    pub(super) tap: usize,
    pub(super) stamp_us: i64,
    pub(super) passed: Passed,
}

/// A world that runs.
pub(super) struct Network {
    world: World,
    clocks: Clocks,
    now_us: i64,
    events: BinaryHeap<Reverse<Scheduled>>,
    event_count: u64,
    hosts: Vec<Host>,
    host_of: HashMap<u32, usize>,
    /// When each host is polled next.
    polls_us: Vec<Option<i64>>,
    /// The crowd's connections that are not over, and the ends that they use.
    scripted: HashMap<u32, Scripted>,
    used: HashSet<Ends>,
    translation: Translation,
    /// The ends of connections that began lately, as packets outside have them: who forges knows them.
    known: VecDeque<(End, End)>,
    closing: HashSet<(usize, u32)>,
    connection_count: u32,
    losses: Random,
    script: Random,
    forger: Random,
    flood_left: u64,
    captured: VecDeque<Captured>,
    pub(super) packets: u64,
}

impl Network {
    pub(super) fn new(world: &World) -> Self {
        let stream = |salt: u64| Random::new(world.seed.wrapping_mul(31).wrapping_add(salt));
        let mut this = Network {
            clocks: Clocks::new(world, 20 * (world.connections + world.crowd) + 2 * world.flood),
            now_us: BEGIN_US,
            events: BinaryHeap::new(),
            event_count: 0,
            hosts: Vec::new(),
            host_of: HashMap::new(),
            polls_us: Vec::new(),
            scripted: HashMap::new(),
            used: HashSet::new(),
            translation: Translation::default(),
            known: VecDeque::new(),
            closing: HashSet::new(),
            connection_count: 0,
            losses: stream(1),
            script: stream(2),
            forger: stream(3),
            flood_left: world.flood,
            captured: VecDeque::new(),
            packets: 0,
            world: world.clone(),
        };
        this.populate();
        this
    }

    fn populate(&mut self) {
        let world = self.world.clone();
        // Whoever is silent for days sends no more packets than one who is busy for hours.
        let keep_alive_s = if world.keep_alive_s > 0 { world.keep_alive_s.max(world.lasts_s / 60) } else { 0 };
        let hosts = (0..world.clients).map(|host| (CLIENTS + host as u32, false));
        for (address, is_server) in hosts.chain((0..world.servers).map(|host| (SERVERS + host as u32, true))) {
            self.host_of.insert(address, self.hosts.len());
            self.hosts.push(Host::new(address, world.seed ^ u64::from(address), is_server, keep_alive_s));
            self.polls_us.push(None);
        }
        for _ in 0..world.connections {
            let (at_us, id) = (self.some_time(), self.new_connection());
            self.schedule(at_us, Event::Connect(id));
        }
        for _ in 0..world.crowd {
            let at_us = self.some_time();
            self.schedule(at_us, Event::Join);
        }
        let forged = [
            (world.forged_rst, Forgery::Rst),
            (world.forged_fin, Forgery::Fin),
            (world.forged_syn, Forgery::Syn),
            (world.forged_syn_ack, Forgery::SynAck),
            (world.forged_data, Forgery::Data),
        ];
        for (count, forgery) in forged {
            for _ in 0..count {
                let within_us = 2 * world.busy_s.min(world.lasts_s / 2) * SECOND_US as u64;
                let at_us = BEGIN_US + self.forger.below(within_us) as i64;
                self.schedule(at_us, Event::Forge(forgery));
            }
        }
        if world.flood > 0 {
            let at_us = BEGIN_US + self.forger.below(world.busy_s * SECOND_US as u64) as i64;
            self.schedule(at_us, Event::Flood);
        }
    }

    fn some_time(&mut self) -> i64 {
        BEGIN_US + self.script.below(self.world.busy_s * SECOND_US as u64) as i64
    }

    fn new_connection(&mut self) -> u32 {
        self.connection_count += 1;
        self.connection_count
    }

    fn schedule(&mut self, at_us: i64, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse(Scheduled { at_us, number: self.event_count, event }));
    }

    /// The next packet that is captured; the truth knows it already.
    pub(super) fn next(&mut self, truth: &mut Truth) -> Option<Captured> {
        let end_us = BEGIN_US + self.world.lasts_s as i64 * SECOND_US;
        while self.captured.is_empty() {
            let Reverse(Scheduled { at_us, event, .. }) = self.events.pop()?;
            if at_us > end_us || self.packets >= PACKETS_MAX {
                return None;
            }
            self.now_us = at_us;
            self.happen(event, truth);
        }
        self.captured.pop_front()
    }

    /// The true time.
    pub(super) fn now_us(&self) -> i64 {
        self.now_us
    }

    fn happen(&mut self, event: Event, truth: &mut Truth) {
        match event {
            Event::Connect(connection) => self.connect(connection),
            Event::Act { host, connection, act } => {
                self.hosts[host].act(connection, act);
                self.poll(host);
            }
            Event::Poll(host) => {
                if self.polls_us[host] == Some(self.now_us) {
                    self.polls_us[host] = None;
                    self.poll(host);
                }
            }
            Event::Tap(tap, flight) => self.tap(tap, flight, truth),
            Event::Arrive(host, flight) => {
                let Flight { packet, sender, .. } = flight;
                let mut sent = Vec::new();
                self.hosts[host].arrives(self.now_us, packet.expect("hosts get bytes"), sender, &mut sent);
                self.send(host, sent);
            }
            Event::Join => self.join(),
            Event::Scripted(connection) => self.scripted(connection),
            Event::Send(connection, flight, pause_us) => self.send_scripted(connection, flight, pause_us, false),
            Event::Forge(forgery) => self.forge(forgery),
            Event::Flood => self.flood(),
            Event::FloodAnswer(client, isn) => {
                let server = End { address: FLOODED, port: SERVER_PORT };
                let seq = self.forger.number() as u32;
                let ack = isn.wrapping_add(1);
                let answer = Segment { src: server, dst: client, flags: SYN | ACK, seq, ack, data_size: 0 };
                self.capture(0, Passed::of_nobody(answer));
            }
        }
    }

    // Hosts and the crowd.

    fn poll(&mut self, host: usize) {
        let mut sent = Vec::new();
        self.hosts[host].poll(self.now_us, &mut sent);
        self.send(host, sent);
    }

    /// Puts what a host has sent on its way, and schedules when it has to be polled next.
    fn send(&mut self, host: usize, sent: Vec<Sent>) {
        for Sent { packet, segment, sender, is_gone } in sent {
            let to_server =
                self.host_of.get(&segment.src.address).is_some_and(|from| *from < self.world.clients as usize);
            self.depart(Flight { packet: Some(packet), segment, sender, is_forged: false, is_gone, to_server }, true);
        }
        let half_closed: Vec<u32> = self.hosts[host].half_closed().collect();
        for connection in half_closed {
            if self.closing.insert((host, connection)) && self.script.chance(0.9) {
                let pause_us = self.script.log_uniform(&(1_000..=self.world.lasts_s * SECOND_US as u64 / 2));
                self.schedule(self.now_us + pause_us as i64, Event::Act { host, connection, act: Act::Close });
            }
        }
        if let Some(at_us) = self.hosts[host].poll_at(self.now_us) {
            let at_us = at_us.max(self.now_us + 1);
            if self.polls_us[host].is_none_or(|before_us| at_us < before_us) {
                self.polls_us[host] = Some(at_us);
                self.schedule(at_us, Event::Poll(host));
            }
        }
    }

    /// Begins a connection and decides what its applications will do.
    fn connect(&mut self, connection: u32) {
        let (clients, servers) = (self.world.clients as usize, self.world.servers as usize);
        let client = self.script.below(clients as u64) as usize;
        let server = clients + self.script.below(servers as u64) as usize;
        let port = (FIRST_PORT + self.script.below(self.world.ports)) as u16;
        let to = End { address: self.hosts[server].address(), port: SERVER_PORT };
        if !self.hosts[client].connect(connection, port, to) {
            return;
        }
        let mut at_us = self.now_us;
        let longest_us = self.world.lasts_s * SECOND_US as u64 / 3;
        for _ in 0..self.script.below(8) {
            at_us += self.script.log_uniform(&(1_000..=longest_us)) as i64;
            let host = if self.script.chance(0.5) { client } else { server };
            let size = self.script.uniform(&(1..=3_000)) as u16;
            self.schedule(at_us, Event::Act { host, connection, act: Act::Send(size) });
        }
        at_us += self.script.log_uniform(&(1_000..=longest_us)) as i64;
        let host = if self.script.chance(0.6) { client } else { server };
        let act = match self.script.below(100) {
            0..60 => Some(Act::Close),
            60..75 => Some(Act::Abort),
            75..85 => Some(Act::Forget),
            _ => None,
        };
        if let Some(act) = act {
            self.schedule(at_us, Event::Act { host, connection, act });
        }
        self.poll(client);
    }

    /// A connection of the crowd begins, unless all ends that it tries are in use.
    fn join(&mut self) {
        let ends = (0..4).find_map(|_| {
            let (client, server) = Scripted::some_ends(self.world.ports, &mut self.script);
            self.used.insert(Ends::of(client, server)).then_some((client, server))
        });
        let Some(ends) = ends else { return };
        let (id, pause_us) = (self.new_connection(), self.world.lasts_s as i64 * SECOND_US / 3);
        self.scripted.insert(id, Scripted::new(id, ends, pause_us, &mut self.script));
        self.scripted(id);
    }

    fn scripted(&mut self, connection: u32) {
        if self.share(self.world.lost_before) {
            // It is sent again, as if for the first time.
            self.schedule(self.now_us + SECOND_US, Event::Scripted(connection));
            return;
        }
        let Some(scripted) = self.scripted.get_mut(&connection) else { return };
        let Some(step) = scripted.next(&mut self.script) else {
            if scripted.is_over() {
                self.used.remove(&scripted.ends());
            }
            self.scripted.remove(&connection);
            return;
        };
        let flight = Flight {
            packet: None,
            segment: step.segment,
            sender: Some(step.sender),
            is_forged: false,
            is_gone: step.is_gone,
            to_server: step.sender.is_client,
        };
        self.send_scripted(connection, flight, step.pause_us, step.may_be_late);
    }

    /// One of the crowd sends a packet, and sends the same again when nothing follows, because it was lost behind the
    /// taps.
    fn send_scripted(&mut self, connection: u32, flight: Flight, pause_us: Option<i64>, may_be_late: bool) {
        let is_late = may_be_late && self.world.jitter_us > 0;
        let late_us = if is_late { self.losses.below(self.world.jitter_us) as i64 } else { 0 };
        self.double(&flight, late_us);
        self.schedule(self.now_us + late_us, Event::Tap(self.entry(&flight), flight.clone()));
        if self.share(self.world.lost_behind) {
            self.schedule(self.now_us + SECOND_US, Event::Send(connection, flight, pause_us));
            return;
        }
        // Behind the last packet the ends are free again.
        let pause_us = pause_us.unwrap_or_else(|| self.script.log_uniform(&(1_000..=60_000_000)) as i64);
        self.schedule(self.now_us + pause_us.max(1), Event::Scripted(connection));
    }

    fn know(&mut self, client: End, server: End) {
        self.known.push_back((client, server));
        if self.known.len() > 500 {
            self.known.pop_front();
        }
    }

    // The network.

    fn share(&mut self, share: u64) -> bool {
        share > 0 && self.losses.below(SHARE_WHOLE) < share
    }

    fn way_us(&mut self) -> i64 {
        let jitter_us = if self.world.jitter_us > 0 { self.losses.below(self.world.jitter_us) as i64 } else { 0 };
        500 + jitter_us
    }

    /// A copy of a packet comes late.
    fn double(&mut self, flight: &Flight, way_us: i64) {
        if self.share(self.world.doubled) {
            let late_us = self.losses.log_uniform(&(1..=self.world.copy_late_ms * 1_000)) as i64;
            let tap = self.entry(flight);
            self.schedule(self.now_us + way_us + late_us, Event::Tap(tap, flight.clone()));
        }
    }

    /// The tap that a packet comes to first: 0 is inside of the router, and 1 outside, where forged ones come from.
    fn entry(&self, flight: &Flight) -> usize {
        let passes_inner = flight.packet.is_some() || self.world.taps == 2;
        usize::from(!(flight.to_server && passes_inner && !flight.is_forged))
    }

    /// A packet of a host leaves it.
    fn depart(&mut self, flight: Flight, may_be_lost: bool) {
        if may_be_lost && self.share(self.world.lost_before) {
            return;
        }
        let (way_us, tap) = (self.way_us(), self.entry(&flight));
        self.double(&flight, way_us);
        self.schedule(self.now_us + way_us, Event::Tap(tap, flight));
    }

    /// A packet passes a tap, and goes on to what is behind it.
    fn tap(&mut self, tap: usize, mut flight: Flight, truth: &mut Truth) {
        let has_tap = self.world.taps == 2 || tap == 1;
        if has_tap && !self.share(self.world.uncaptured) {
            let Flight { segment, sender, is_forged, is_gone, .. } = flight;
            let passed = Passed { segment, sender, is_forged, is_gone };
            truth.pass(self.now_us, &passed);
            self.capture(if self.world.taps == 2 { tap } else { 0 }, passed);
        }
        if tap == 1 && flight.segment.has(SYN) && !flight.segment.has(ACK) && !flight.is_forged {
            self.know(flight.segment.src, flight.segment.dst);
        }
        let is_inside = tap == 0;
        if flight.packet.is_none() {
            if is_inside == flight.to_server && self.world.taps == 2 {
                self.schedule(self.now_us + CROWD_WAY_US, Event::Tap(usize::from(is_inside), flight));
            }
            return;
        }
        if is_inside == flight.to_server {
            if self.world.nat == 1 && !self.translate(&mut flight) {
                return;
            }
            let way_us = 100 + self.way_us() / 4;
            self.schedule(self.now_us + way_us, Event::Tap(usize::from(is_inside), flight));
            return;
        }
        if self.share(self.world.lost_behind) {
            return;
        }
        if let Some(host) = self.host_of.get(&flight.segment.dst.address).copied() {
            let way_us = self.way_us();
            self.schedule(self.now_us + way_us, Event::Arrive(host, flight));
        }
    }

    /// Translates the ends of a packet on its way through the router; `false` if it leads nowhere.
    fn translate(&mut self, flight: &mut Flight) -> bool {
        let Segment { src, dst, .. } = flight.segment;
        let now_us = self.now_us;
        let translation = &mut self.translation;
        if flight.to_server {
            let is_kept = |(_, used_us): &(u16, i64)| now_us - used_us < TRANSLATION_US;
            let port = match translation.outside.get(&(src, dst)).copied().filter(is_kept) {
                Some((port, _)) => port,
                None => {
                    let free = (0..self.world.ports).find_map(|_| {
                        translation.next += 1;
                        let port = (FIRST_PORT + translation.next % self.world.ports) as u16;
                        let user = translation.inside.get(&(port, dst)).copied();
                        let is_free = user
                            .is_none_or(|user| translation.outside.get(&(user, dst)).is_none_or(|used| !is_kept(used)));
                        is_free.then_some(port)
                    });
                    let Some(port) = free else { return false };
                    translation.inside.insert((port, dst), src);
                    port
                }
            };
            translation.outside.insert((src, dst), (port, now_us));
            flight.segment.src = End { address: TRANSLATED, port };
        } else {
            let Some(client) = translation.inside.get(&(dst.port, src)).copied() else { return false };
            flight.segment.dst = client;
        }
        let Segment { src, dst, .. } = flight.segment;
        flight.packet.iter_mut().for_each(|packet| Segment::put_ends(packet, src, dst));
        true
    }

    fn capture(&mut self, tap: usize, passed: Passed) {
        let stamp_us = self.clocks.stamp_us(tap, self.now_us);
        self.packets += 1;
        self.captured.push_back(Captured { tap, stamp_us, passed });
    }

    // Who means harm.

    /// Forges a packet of a connection that began lately, of either side, with any numbers.
    fn forge(&mut self, forgery: Forgery) {
        if self.known.is_empty() {
            return;
        }
        let (client, server) = self.known[self.forger.below(self.known.len() as u64) as usize];
        let to_server = self.forger.chance(0.5);
        let (src, dst) = if to_server { (client, server) } else { (server, client) };
        let flags = match forgery {
            Forgery::Rst => RST,
            Forgery::Fin => FIN | ACK,
            Forgery::Syn => SYN,
            Forgery::SynAck => SYN | ACK,
            Forgery::Data => ACK,
        };
        let data_size = if forgery == Forgery::Data { self.forger.below(1_000) as u16 } else { 0 };
        let (seq, ack) = (self.forger.number() as u32, self.forger.number() as u32);
        let segment = Segment { src, dst, flags, seq, ack, data_size };
        let is_begun = forgery == Forgery::Syn && to_server;
        let sender = is_begun.then(|| Sender { connection: self.new_connection(), is_client: true });
        let is_of_host = self.host_of.contains_key(&server.address);
        let packet = is_of_host.then(|| segment.to_packet());
        let flight = Flight { packet, segment, sender, is_forged: true, is_gone: false, to_server };
        self.depart(flight, false);
    }

    fn flood(&mut self) {
        self.flood_left -= 1;
        let client = End { address: FLOODERS | self.forger.below(1 << 24) as u32, port: self.forger.number() as u16 };
        let server = End { address: FLOODED, port: SERVER_PORT };
        let isn = self.forger.number() as u32;
        let attempt = Segment { src: client, dst: server, flags: SYN, seq: isn, ack: 0, data_size: 0 };
        self.capture(0, Passed::of_nobody(attempt));
        if self.world.answered == 1 {
            self.schedule(self.now_us + 1_000, Event::FloodAnswer(client, isn));
        }
        if self.flood_left > 0 {
            let pause_us = (SECOND_US as u64 / self.world.flood_rate).max(1) as i64;
            self.schedule(self.now_us + pause_us, Event::Flood);
        }
    }
}
