//! A port of an engine on the wall clock, pushed a million packets a second, beside one that goes by its packets' time,
//! as a replay's does.

use crate::clock::thread_ns;
use crate::row::{Case, Pair, Scale, Suite};
use flowpeel::engine::{Config, Engine, Sink, Summary};
use flowpeel::list::List;
use flowpeel::parse::LinkType;
use flowpeel_traffic::{Traffic, TrafficConfig};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The packets that are pushed, over and over: more than a second's, so that connections of the round before have
/// ended or are repeated.
const FRAME_COUNT: usize = 1_500_000;
const FRAME_COUNT_QUICK: usize = 50_000;

/// The packets of a burst, and the time from burst to burst: a million packets a second.
const BURST_COUNT: usize = 250;
const BURST_INTERVAL: Duration = Duration::from_micros(250);

/// The length of an interval: short, so that a port soon knows that no connection is older than its start. Until then
/// it inspects every packet.
const EVERY: Duration = Duration::from_millis(100);

/// One in this many packets is pushed before any is measured, which takes five intervals.
const WARM_UP_DIVISOR: usize = 3;

struct Port {
    /// The frames one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Port {
    fn new(scale: Scale) -> Result<Self, String> {
        let count = scale.of(FRAME_COUNT, FRAME_COUNT_QUICK);
        // Some packets of data to each connection, as in `mixed`.
        let config = TrafficConfig { data_packets: 0..=46, ..TrafficConfig::mixed(2, count as u64 / 20) };
        let mut traffic = Traffic::new(config).map_err(|error| error.to_string())?;
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
        while ends.len() < count
            && let Some(frame) = traffic.next_frame()
        {
            bytes.extend_from_slice(frame.bytes);
            ends.push(bytes.len());
        }
        Ok(Port { bytes, ends })
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// Checks that nothing was lost, and returns the cost of each of the packets that were measured.
    fn cost(&self, took_ns: u64, measured_count: usize, summary: &Summary) -> f64 {
        if summary.queue_full > 0 || summary.packets != self.ends.len() as u64 {
            eprintln!("port: {} of {} packets, {} signals lost", summary.packets, self.ends.len(), summary.queue_full);
            return f64::NAN;
        }
        took_ns as f64 / measured_count as f64
    }
}

fn nowhere() -> Sink {
    Sink::lists(|_: &List| Ok(()))
}

fn wall_ns() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
}

impl Pair for Port {
    /// The processor time of the thread that pushes, a million packets a second, once it has warmed up.
    fn work(&mut self) -> f64 {
        let config = Config { every: Some(EVERY), shards: 1, ..Config::live_defaults() };
        let Ok((engine, mut ports)) = Engine::live(&config, 1, nowhere()) else { return f64::NAN };
        let port = &mut ports[0];
        let warm_up_count = self.ends.len() / WARM_UP_DIVISOR;
        let (began, mut took_ns, mut measured_count) = (Instant::now(), 0, 0);
        let mut frames = self.frames();
        for burst in 0.. {
            let due = BURST_INTERVAL * burst;
            while began.elapsed() < due {
                std::hint::spin_loop();
            }
            let (now_ns, burst_began) = (wall_ns(), thread_ns());
            let mut count = 0;
            for frame in frames.by_ref().take(BURST_COUNT) {
                port.frame(now_ns, LinkType::ETHERNET, frame);
                count += 1;
            }
            if burst as usize * BURST_COUNT >= warm_up_count {
                took_ns += thread_ns() - burst_began;
                measured_count += count;
            }
            if count < BURST_COUNT {
                break;
            }
        }
        drop(ports);
        engine.stop().map_or(f64::NAN, |summary| self.cost(took_ns, measured_count, &summary))
    }

    /// The same frames by their own time, as fast as they are taken.
    fn limit(&mut self) -> f64 {
        let config = Config { shards: 1, ..Config::default() };
        let Ok((engine, mut port)) = Engine::replay(&config, nowhere()) else { return f64::NAN };
        let began = thread_ns();
        for (at, frame) in self.frames().enumerate() {
            port.frame(at as i64 * 1_000, LinkType::ETHERNET, frame);
        }
        let took_ns = thread_ns() - began;
        drop(port);
        engine.stop().map_or(f64::NAN, |summary| self.cost(took_ns, self.ends.len(), &summary))
    }
}

/// Measures ports.
pub(crate) fn run(suite: &mut Suite) {
    let case = Case {
        name: "port/million",
        work: "a port on the wall clock, a million packets a second, none lost",
        limit: "the same packets by their own time, as in a replay",
        unit: "ns a packet",
        at_most: None,
    };
    suite.compare(case, Port::new);
}
