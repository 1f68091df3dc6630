//! Writes a capture of a thousand connections under a flood of SYNs:
//! `cargo run -p flowpeel-traffic --example capture -- /tmp/flood.pcap`

use flowpeel_traffic::{Flood, FloodConfig, Traffic, TrafficConfig, write_pcap};
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the file to write")?;
    let flood = FloodConfig { packet_count: 100_000, rate_per_s: 50_000, ..FloodConfig::new(Flood::Unanswered) };
    let mut traffic = Traffic::new(TrafficConfig::flooded(7, flood))?;
    let counts = write_pcap(&mut traffic, &mut BufWriter::new(File::create(&path)?))?;
    println!(
        "{path}: {} connections, {} frames, {} of them the flood's",
        counts.connection_count, counts.frame_count, counts.flood_frame_count
    );
    Ok(())
}
