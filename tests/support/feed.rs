//! Feeding traffic to the whole pipeline without a file between, and keeping its lists for comparison.

use flowpeel::capture::{Packet, PacketSource, Progress, Stamp};
use flowpeel::engine::{Config, Plan, Summary};
use flowpeel::error::Result;
use flowpeel::export::Exporter;
use flowpeel::list::{Header, List, Row};
use flowpeel::parse::LinkType;
use flowpeel::run::run;
use flowpeel_traffic::{Traffic, TrafficConfig};

/// Generated traffic as a source of packets.
pub(crate) struct Generated {
    traffic: Traffic,
    is_finished: bool,
}

impl Generated {
    pub(crate) fn new(config: TrafficConfig) -> Self {
        Generated { traffic: Traffic::new(config).unwrap(), is_finished: false }
    }
}

impl PacketSource for Generated {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let frame = self.traffic.next_frame();
        self.is_finished = frame.is_none();
        Ok(frame.map(|frame| Packet::whole(frame.time_us as i64 * 1_000, LinkType::ETHERNET, frame.bytes)))
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// Frames with their times in microseconds.
pub(crate) type Frames = Vec<(u64, Vec<u8>)>;

/// A frame, and when it came by which clock.
pub(crate) type Stamped = (Stamp, Vec<u8>);

/// Frames as a source of packets.
struct Recorded {
    frames: std::vec::IntoIter<Stamped>,
    present: Vec<u8>,
}

impl PacketSource for Recorded {
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let Some((Stamp { time_ns, clock }, bytes)) = self.frames.next() else { return Ok(None) };
        self.present = bytes;
        Ok(Some(Packet { clock, ..Packet::whole(time_ns, LinkType::ETHERNET, &self.present) }))
    }

    fn is_finished(&self) -> bool {
        self.frames.len() == 0
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// Runs the pipeline over frames.
pub(crate) fn lists_of(frames: Frames, config: &Config) -> (Vec<Kept>, Summary) {
    let stamped = frames.into_iter().map(|(time_us, frame)| (Stamp::unnamed(time_us as i64 * 1_000), frame));
    lists_of_stamped(stamped.collect(), config)
}

/// Runs the pipeline over frames that several clocks have stamped.
pub(crate) fn lists_of_stamped(frames: Vec<Stamped>, config: &Config) -> (Vec<Kept>, Summary) {
    let mut lists = Vec::new();
    let mut exporter = |list: &List| {
        lists.push(Kept { header: list.header, rows: list.rows().collect() });
        Ok(())
    };
    let summary = stamped_into(frames, config, &mut exporter);
    (lists, summary)
}

/// Runs the pipeline over frames into an exporter.
pub(crate) fn frames_into(frames: Frames, config: &Config, exporter: &mut dyn Exporter) -> Summary {
    let stamped = frames.into_iter().map(|(time_us, frame)| (Stamp::unnamed(time_us as i64 * 1_000), frame));
    stamped_into(stamped.collect(), config, exporter)
}

fn stamped_into(frames: Vec<Stamped>, config: &Config, exporter: &mut dyn Exporter) -> Summary {
    let source = Recorded { frames: frames.into_iter(), present: Vec::new() };
    run(&Plan::new(config).unwrap(), std::iter::once(Ok(source)), exporter, &mut (), None).unwrap()
}

/// A list that was exported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub(crate) header: Header,
    pub(crate) rows: Vec<Row>,
}

/// Runs the pipeline over generated traffic.
pub(crate) fn lists(traffic: TrafficConfig, config: &Config) -> (Vec<Kept>, Summary) {
    let mut lists = Vec::new();
    let summary = visit(traffic, config, |list| lists.push(Kept { header: list.header, rows: list.rows().collect() }));
    (lists, summary)
}

/// Runs the pipeline over generated traffic and shows each list to `visit`.
pub(crate) fn visit(traffic: TrafficConfig, config: &Config, mut visit: impl FnMut(&List) + Send) -> Summary {
    let mut exporter = |list: &List| {
        visit(list);
        Ok(())
    };
    let inputs = std::iter::once(Ok(Generated::new(traffic)));
    run(&Plan::new(config).unwrap(), inputs, &mut exporter, &mut (), None).unwrap()
}
