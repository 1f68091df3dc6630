//! The traffic itself: frames in order of time. The next is from a connection that begins, an entry whose time has
//! come, or the flood.

use std::collections::VecDeque;

use crate::Refused;
use crate::addresses::{Endpoints, endpoints};
use crate::alive::{Alive, Waiting};
use crate::arrivals::ArrivalTimes;
use crate::config::{Arrivals, TrafficConfig};
use crate::connection::Connection;
use crate::flood::FloodPackets;
use crate::packet::Packet;
use crate::random::{Random, within};

/// Closed connections whose ports are remembered for reuse: some seconds of a busy capture.
const GENERATED_CLOSED_MAX: usize = 1_024;

/// A port is reused over an open connection only when that connection began in the same interval of this length.
const REUSE_INTERVAL_US: u64 = 10_000_000;
/// How many draws are made for such a connection. Enough connections qualify that this many draws nearly always hit
/// one.
const REUSE_TRY_COUNT: usize = 256;
/// The longest time after the last packet in which ports are reused: for about half of them, a closed connection may
/// still linger.
const REUSE_AFTER_US_MAX: u64 = 20_000_000;
/// A client of a population pauses this long between two connections, so that time passes whatever they do.
const PAUSE_US: u64 = 1_000;

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When it was captured, in microseconds since 1970.
    pub time_us: u64,
    /// The captured bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// The size on the wire, in bytes: the captured size, or more.
    pub wire_size: usize,
}

/// What a [`Traffic`] has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// All frames, including those of floods and duplicates.
    pub frame_count: u64,
    /// Frames that belong to a flood or answer it.
    pub flood_frame_count: u64,
    /// Frames that are exact copies of earlier ones.
    pub duplicate_frame_count: u64,
    /// Legitimate connections that began.
    pub connection_count: u64,
    /// Legitimate connections that took the ports of one that had ended.
    pub reused_closed_count: u64,
    /// Legitimate connections that took the ports of one that was still open.
    pub reused_open_count: u64,
    /// The most connections and delayed copies that were alive at once, which is what memory grows with.
    pub alive_count_max: usize,
}

/// Traffic that is made on demand.
pub struct Traffic {
    config: TrafficConfig,
    random: Random,
    arrivals: ArrivalTimes,
    alive: Alive,
    flood: Option<FloodPackets>,
    /// Endpoints of closed connections and when these closed, oldest first: for reuse.
    closed: VecDeque<(u64, Endpoints)>,
    next_index: u64,
    end_us: u64,
    frame: Vec<u8>,
    frame_time_us: u64,
    frame_wire_size: usize,
    /// Whether the current frame is to be given a second time.
    again: bool,
    counts: TrafficCounts,
}

/// Which of the three sources is next.
enum Source {
    Arrival,
    Alive,
    Flood,
}

impl Traffic {
    /// The traffic of this configuration.
    ///
    /// # Errors
    ///
    /// A share is not between 0 and 1, a range is empty or too large, or the flood does not fit into the duration.
    pub fn new(config: TrafficConfig) -> Result<Self, Refused> {
        super::check::check(&config)?;
        let mut random = Random::new(config.seed);
        let flood = FloodPackets::of(&config);
        Ok(Traffic {
            arrivals: ArrivalTimes::new(&config, &mut random),
            random,
            alive: Alive::default(),
            flood,
            closed: VecDeque::new(),
            next_index: 0,
            end_us: config.start_us + config.duration_us,
            frame: Vec::with_capacity(config.captured_size_max),
            frame_time_us: config.start_us,
            frame_wire_size: 0,
            again: false,
            counts: TrafficCounts::default(),
            config,
        })
    }

    /// The next frame; `None` when the duration is over or nothing more is sent. Times never go back.
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        if self.again {
            self.again = false;
            self.counts.duplicate_frame_count += 1;
        } else {
            let packet = self.next_packet()?;
            self.frame_wire_size = packet.encode(self.config.captured_size_max, &mut self.frame);
        }
        self.counts.frame_count += 1;
        Some(Frame { time_us: self.frame_time_us, bytes: &self.frame, wire_size: self.frame_wire_size })
    }

    /// What has been sent so far.
    #[must_use]
    pub fn counts(&self) -> TrafficCounts {
        self.counts
    }

    /// How many bytes of a frame are captured at most.
    #[must_use]
    pub fn captured_size_max(&self) -> usize {
        self.config.captured_size_max
    }

    /// Advances the time to that of the next packet, and returns the packet.
    fn next_packet(&mut self) -> Option<Packet> {
        loop {
            let (time_us, source) = self.next_source()?;
            if time_us >= self.end_us {
                return None;
            }
            self.frame_time_us = time_us;
            let packet = match source {
                Source::Arrival => {
                    self.arrivals.advance(&mut self.random);
                    self.begin_connection(time_us);
                    None
                }
                Source::Alive => self.run_alive(time_us),
                Source::Flood => {
                    self.counts.flood_frame_count += 1;
                    self.flood.as_mut().and_then(FloodPackets::next_packet)
                }
            };
            if packet.is_some() {
                return packet;
            }
        }
    }

    fn next_source(&self) -> Option<(u64, Source)> {
        let arrival = self.arrivals.next_us().map(|time_us| (time_us, Source::Arrival));
        let alive = self.alive.next_us().map(|time_us| (time_us, Source::Alive));
        let flood = self.flood.as_ref().and_then(FloodPackets::next_us).map(|time_us| (time_us, Source::Flood));
        [arrival, alive, flood].into_iter().flatten().min_by_key(|(time_us, _)| *time_us)
    }

    fn begin_connection(&mut self, now_us: u64) {
        while self.closed.front().is_some_and(|(closed_us, _)| now_us.saturating_sub(*closed_us) > REUSE_AFTER_US_MAX) {
            self.closed.pop_front();
        }
        let endpoints = self.draw_endpoints(now_us);
        let connection = Connection::plan(endpoints, now_us, &self.config, &mut self.random);
        self.counts.connection_count += 1;
        self.insert(Waiting::Connection(connection), now_us);
    }

    fn insert(&mut self, waiting: Waiting, time_us: u64) {
        self.alive.insert(waiting, time_us);
        self.counts.alive_count_max = self.counts.alive_count_max.max(self.alive.count());
    }

    /// New endpoints, or those of a connection that has ended, or those of one that now falls silent.
    fn draw_endpoints(&mut self, now_us: u64) -> Endpoints {
        let number = self.random.number() as u32;
        let reuse = &self.config.reuse;
        if within(number, reuse.open) {
            let interval = now_us / REUSE_INTERVAL_US;
            let open = self.alive.draw(REUSE_TRY_COUNT, &mut self.random, |connection| {
                connection.is_established() && connection.began_us() / REUSE_INTERVAL_US == interval
            });
            if let Some(connection) = open {
                self.counts.reused_open_count += 1;
                connection.abandon();
                return connection.endpoints();
            }
        } else if within(number, reuse.open + reuse.closed) {
            let drawn = self.random.below(self.closed.len() as u64) as usize;
            if let Some((_, endpoints)) = self.closed.remove(drawn) {
                self.counts.reused_closed_count += 1;
                return endpoints;
            }
        }
        let ipv6 = self.random.chance(self.config.ipv6_share);
        self.next_index += 1;
        endpoints(self.next_index - 1, ipv6, &mut self.random)
    }

    /// Lets the entry that is due first take its step; no packet when it has fallen silent.
    fn run_alive(&mut self, now_us: u64) -> Option<Packet> {
        let (_, place) = self.alive.pop()?;
        let (packet, wait_us) = match self.alive.at(place)? {
            Waiting::Copy(packet) => {
                let packet = *packet;
                self.alive.remove(place);
                self.counts.duplicate_frame_count += 1;
                return Some(packet);
            }
            Waiting::Connection(connection) => match connection.step(&mut self.random) {
                Some((packet, wait_us)) => (Some(packet), wait_us),
                None => (None, None),
            },
        };
        match wait_us {
            Some(wait_us) => self.alive.push(place, now_us + wait_us),
            None => self.end_connection(place, now_us),
        }
        if let Some(packet) = packet {
            self.capture_again(packet, now_us);
        }
        packet
    }

    /// Frees a connection's slot; if it has closed, its ports may be reused.
    fn end_connection(&mut self, place: usize, now_us: u64) {
        if let Some(Waiting::Connection(connection)) = self.alive.remove(place) {
            // Several times as many as are reused, since not all connections close, and some ports wait too long.
            let sampled = connection.is_closed() && self.random.chance((4.0 * self.config.reuse.closed).min(1.0));
            if sampled && self.closed.len() < GENERATED_CLOSED_MAX {
                self.closed.push_back((now_us, connection.endpoints()));
            }
        }
        if matches!(self.config.arrivals, Arrivals::Population { .. }) {
            self.begin_connection(now_us + PAUSE_US);
        }
    }

    /// Draws whether a packet is captured twice, and how much later.
    fn capture_again(&mut self, packet: Packet, now_us: u64) {
        let repeats = &self.config.repeats;
        if !self.random.chance(repeats.duplicate) {
            return;
        }
        if self.random.chance(0.5) {
            self.again = true;
        } else {
            let delay_us = self.random.below(repeats.duplicate_delay_us_max + 1);
            self.insert(Waiting::Copy(packet), now_us + delay_us);
        }
    }
}
