//! Parsing frames: from the bytes of a frame to its TCP header.
//!
//! The limit reads the first 64 bytes of each frame, and does not interpret them. Frames lie in a buffer of the size
//! that replay reads at once, as they would in a capture file.

use crate::clock::thread_ns_each;
use crate::row::{Case, Pair, Scale, Suite};
use flowpeel::capture::CAPTURE_READ_SIZE;
use flowpeel::parse::{LinkType, parse_frame};
use flowpeel_traffic::{Traffic, TrafficConfig};
use std::hint::black_box;

/// Passes over the buffer in one round.
const PASS_COUNT: usize = 500;
const PASS_COUNT_QUICK: usize = 20;

/// The bytes that a capture of headers keeps of a frame.
const SNAP_SIZE: usize = 128;

/// The bytes that the limit reads of a frame.
const HEAD_SIZE: usize = 64;

pub(crate) fn run(suite: &mut Suite) {
    let case = |name, work| Case { name, work, limit: "reading the first 64 bytes", unit: "ns a frame", at_most: None };
    suite.compare(case("parse/ipv4", "parse, TCP in IPv4 in Ethernet"), |scale| Frames::new(0.0, scale));
    suite.compare(case("parse/ipv6", "parse, TCP in IPv6 in Ethernet"), |scale| Frames::new(1.0, scale));
}

struct Frames {
    bytes: Vec<u8>,
    /// Where each frame begins, and where it ends.
    bounds: Vec<(u32, u32)>,
    pass_count: usize,
}

impl Frames {
    fn new(ipv6_share: f64, scale: Scale) -> Result<Self, String> {
        let config = TrafficConfig { ipv6_share, ..TrafficConfig::mixed(1, 10_000) };
        let mut traffic = Traffic::new(config).map_err(|error| error.to_string())?;
        let (mut bytes, mut bounds) = (Vec::with_capacity(CAPTURE_READ_SIZE), Vec::new());
        while let Some(frame) = traffic.next_frame()
            && bytes.len() + SNAP_SIZE <= CAPTURE_READ_SIZE
        {
            let begin = bytes.len() as u32;
            bytes.extend_from_slice(&frame.bytes[..frame.bytes.len().min(SNAP_SIZE)]);
            bounds.push((begin, bytes.len() as u32));
        }
        let is_tcp = |&&(begin, end): &&(u32, u32)| {
            parse_frame(LinkType::ETHERNET, &bytes[begin as usize..end as usize]).is_ok()
        };
        let tcp_count = bounds.iter().filter(is_tcp).count();
        if tcp_count < bounds.len() || bounds.is_empty() {
            return Err(format!("{tcp_count} of {} frames are TCP", bounds.len()));
        }
        bytes.resize(bytes.len() + HEAD_SIZE, 0);
        Ok(Frames { bytes, bounds, pass_count: scale.of(PASS_COUNT, PASS_COUNT_QUICK) })
    }

    /// The cost of `look` for each frame, which is given where the frame begins and ends.
    fn cost(&self, mut look: impl FnMut(usize, usize)) -> f64 {
        thread_ns_each(self.pass_count * self.bounds.len(), || {
            for _ in 0..self.pass_count {
                self.bounds.iter().for_each(|&(begin, end)| look(begin as usize, end as usize));
            }
        })
    }
}

impl Pair for Frames {
    fn work(&mut self) -> f64 {
        self.cost(|begin, end| {
            // By reference, so that the whole result has to be computed.
            black_box(&parse_frame(LinkType::ETHERNET, &self.bytes[begin..end]).ok());
        })
    }

    fn limit(&mut self) -> f64 {
        let mut sum = 0u64;
        let bytes = &self.bytes;
        let cost = self.cost(|begin, _| {
            // Whole words only: behind a shorter frame the bytes of the next are read, which is cheaper than a test.
            for word in bytes[begin..begin + HEAD_SIZE].as_chunks().0 {
                sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        });
        black_box(sum);
        cost
    }
}
