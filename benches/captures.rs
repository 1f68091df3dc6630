//! The captures that whole processes are measured on: generated, and made once.
//!
//! Each has a name, and counts of its packets and connections. The files are in `target/tmp`,
//! each with its counts beside it, and are made again if either is missing.

use flowpeel_traffic::{
    Arrivals, EndingShares, Flood, FloodConfig, ReuseShares, Traffic, TrafficConfig, TrafficCounts, write_pcap,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// The bytes that are written at once.
const BUFFER_SIZE: usize = 1 << 20;

/// The seed of all captures.
const SEED: u64 = 1;

/// A capture file, and its counts.
pub(crate) struct Capture {
    pub(crate) path: String,
    pub(crate) truth: Truth,
}

/// The counts of a capture.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Truth {
    pub(crate) packets: u64,
    /// All connections that began, except those of a flood.
    pub(crate) connections: u64,
    /// The SYNs of a flood.
    pub(crate) flood: u64,
}

/// The captures that programs can ask for by name.
pub(crate) const NAMES: [&str; 6] = ["mixed", "mixed-quick", "flood", "flood-quick", "open", "open-quick"];

/// Connections that are open at once in `open`.
pub(crate) const OPEN_COUNT: u64 = 1_000_000;

/// Connections that open and close in ten seconds of `open`.
pub(crate) const OPEN_CHURN: u64 = 100_000;

/// How many times smaller the figures of `open-quick` are.
pub(crate) const QUICK_DIVISOR: u64 = 100;

/// 9.5 million packets of everything that connections do, in two minutes, with payloads: 205 bytes on average.
fn mixed(connection_count: u64) -> TrafficConfig {
    TrafficConfig { data_packets: 0..=46, captured_size_max: 330, ..TrafficConfig::mixed(SEED, connection_count) }
}

/// Unanswered SYNs, a million a second, beside a thousand clients.
fn flood(packet_count: u64) -> TrafficConfig {
    TrafficConfig::flooded(SEED, FloodConfig { packet_count, ..FloodConfig::new(Flood::Unanswered) })
}

/// Connections over IPv4 without data, none of which fails. All of them close after about `lifetime_us`, or never if
/// that is `None`.
fn plain(connection_count: u64, duration_us: u64, lifetime_us: Option<u64>) -> TrafficConfig {
    let flooded = TrafficConfig::flooded(SEED, FloodConfig::new(Flood::Unanswered));
    let lifetime = lifetime_us.unwrap_or(duration_us);
    let never_closed = if lifetime_us.is_some() { 0.0 } else { 1.0 };
    TrafficConfig {
        duration_us,
        arrivals: Arrivals::Spread { connection_count },
        round_trip_us: 1_000..=1_000,
        lifetime_us: lifetime..=lifetime,
        data_packets: 0..=0,
        endings: EndingShares { reset: 0.0, never_closed, ..flooded.endings },
        reuse: ReuseShares { closed: 0.0, open: 0.0 },
        flood: None,
        ..flooded
    }
}

/// Traffic with `open_count` connections open at the end, `churn` of which open and close in ten seconds.
fn open(open_count: u64, churn: u64) -> TrafficConfig {
    let opened_per_s = churn / 2 / 10;
    // The mean lifetime; the longest is twice that, and from then on as many connections close as open. It is a little
    // less than the full number of connections asks for, which chance must not exceed.
    let lifetime_s = open_count / opened_per_s - 1;
    let duration_s = 2 * lifetime_s + 24;
    plain(opened_per_s * duration_s, duration_s * 1_000_000, Some(lifetime_s * 1_000_000))
}

/// The capture of one of [`NAMES`].
///
/// # Errors
///
/// There is no capture of that name, or it cannot be written.
pub(crate) fn named(name: &str) -> Result<Capture, String> {
    let config = match name {
        "mixed" => mixed(400_000),
        "mixed-quick" => mixed(10_000),
        "flood" => flood(5_000_000),
        "flood-quick" => flood(100_000),
        "open" => open(OPEN_COUNT, OPEN_CHURN),
        "open-quick" => open(OPEN_COUNT / QUICK_DIVISOR, OPEN_CHURN / QUICK_DIVISOR),
        _ => return Err(format!("there is no capture {name}: {}", NAMES.join(", "))),
    };
    made(name, config)
}

/// The capture of `connection_count` connections that open within a minute and stay, with three packets each.
///
/// # Errors
///
/// The capture cannot be written.
pub(crate) fn grown(connection_count: u64) -> Result<Capture, String> {
    made(&format!("grown-{connection_count}"), plain(connection_count, 60_000_000, None))
}

fn made(name: &str, config: TrafficConfig) -> Result<Capture, String> {
    let capture = there(name, config)?;
    read_anew(Path::new(&capture.path)).map_err(|error| format!("cannot read {}: {error}", capture.path))?;
    Ok(capture)
}

/// Reads a file from the disk into the page cache. Whether it lies there in single pages or in many at a time doubles
/// or halves the cost of copies, and would otherwise depend on how full memory was when the file was written.
fn read_anew(path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    #[cfg(target_os = "linux")]
    {
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    std::io::copy(&mut file, &mut std::io::sink())?;
    Ok(())
}

/// A capture that is made if it is missing.
fn there(name: &str, config: TrafficConfig) -> Result<Capture, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{name}.pcap"));
    let beside = folder.join(format!("{name}.json"));
    let path_text = path.to_str().ok_or("the build's folder has a name that is no text")?.to_owned();
    let known = std::fs::read_to_string(&beside).ok().and_then(|text| serde_json::from_str(&text).ok());
    if let Some(truth) = known.filter(|_| path.is_file()) {
        return Ok(Capture { path: path_text, truth });
    }
    let cannot = |error: &dyn std::fmt::Display| format!("cannot make {path_text}: {error}");
    let mut traffic = Traffic::new(config).map_err(|error| cannot(&error))?;
    let counts = write(&mut traffic, &path).map_err(|error| cannot(&error))?;
    let TrafficCounts { frame_count, flood_frame_count, connection_count, .. } = counts;
    let truth = Truth { packets: frame_count, connections: connection_count, flood: flood_frame_count };
    let text = serde_json::to_string(&truth).map_err(|error| cannot(&error))?;
    std::fs::write(&beside, text).map_err(|error| cannot(&error))?;
    Ok(Capture { path: path_text, truth })
}

/// Writes a capture whole or not at all.
fn write(traffic: &mut Traffic, path: &Path) -> std::io::Result<TrafficCounts> {
    let part = path.with_extension("part");
    let counts = write_pcap(traffic, &mut BufWriter::with_capacity(BUFFER_SIZE, File::create(&part)?))?;
    std::fs::rename(part, path)?;
    Ok(counts)
}
