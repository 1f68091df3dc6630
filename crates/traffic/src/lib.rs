//! Synthetic TCP traffic: captures of any length in which every byte follows from a seed.
//!
//! Real captures that are long, busy or hostile enough cannot be handed around; a seed can. A [`TrafficConfig`] says
//! how many connections there are, how they open and end, what is repeated, late or twice, and what is flooded.
//! [`Traffic`] makes the frames one by one in order of time, and [`write_pcap`] a capture file. Equal seeds give equal
//! bytes on every machine.
//!
//! Frames are made on demand. Memory grows with the connections alive at once (about 200 bytes each), not with the
//! length of the capture. A flood takes none at all, because each of its packets is a function of its number.
//!
//! Addresses say which role a host has: see [`is_client`] and [`is_server`]. All other addresses are a flood's.
//!
//! ```
//! use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
//!
//! let mut traffic = Traffic::new(TrafficConfig::mixed(7, 1_000))?;
//! let mut capture = Vec::new();
//! let counts = write_pcap(&mut traffic, &mut capture)?;
//! assert_eq!(counts.connection_count, 1_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addresses;
mod alive;
mod arrivals;
mod check;
mod config;
mod connection;
mod flood;
mod packet;
mod pcap;
mod random;
mod traffic;

pub use addresses::{ATTACKED_V4, ATTACKED_V6, is_client, is_server};
pub use check::{GENERATED_CAPTURED_SIZE_MAX, Refused};
pub use config::{
    Arrivals, EndingShares, Flood, FloodConfig, HandshakeShares, RepeatShares, ReuseShares, TrafficConfig,
};
pub use pcap::write_pcap;
pub use random::Random;
pub use traffic::{Frame, Traffic, TrafficCounts};
