//! flowpeel tells which TCP connections are open through a software router, from the packets that pass, in a memory
//! that no traffic can make grow.
//!
//! A capture thread turns TCP's SYN, FIN and RST into signals, and lock-free queues carry them to shards. Each shard
//! sums what opens and closes into invertible Bloom lookup tables of fixed size. At every interval the list peels the
//! tables and is exact again.
//!
//! # Example
//!
//! The connections that are open at the end of a capture:
//!
//! ```
//! use flowpeel::engine::Config;
//! use flowpeel::list::List;
//! use flowpeel::run::replay;
//!
//! let mut open = Vec::new();
//! let mut exporter = |list: &List| {
//!     assert!(list.header.complete);
//!     open.extend(list.rows().map(|row| (row.client, row.server, row.state.name())));
//!     Ok(())
//! };
//! let summary = replay(&["pcaps/ssh.pcap"], &Config::default(), &mut exporter, &mut ())?;
//! assert!(summary.errors.is_empty());
//! assert_eq!(open.len(), 1);
//! assert_eq!((open[0].1.port(), open[0].2), (2222, "established"));
//! # Ok::<(), flowpeel::error::Error>(())
//! ```
//!
//! # The way of a packet
//!
//! [`capture`] reads the packet, [`parse`] finds its TCP header, [`signal`] decides whether it can matter, and a
//! [`queue`] carries it to its [`shard`]. There the [`connection`] filter turns it into an opening or a closing that is
//! summed into a [`sketch`]. A [`snapshot`] of the sums goes to the [`list`], which an [`export`]er writes.
//!
//! With an [`archive`] a [`record`] of every connection that ends is kept. The [`engine`] puts all this on threads,
//! [`run`] feeds it from captures and interfaces, and `cli` (a feature of that name) puts it on a command line. [`metrics`] count what happens on the way, and a small HTTP server serves them. A
//! [`state`] holds what a run needs to go on after a crash. [`agent`] makes lists from the snapshots of a router
//! elsewhere. [`generate`] makes traffic to try it all on.
//!
//! Modules import only from lower layers; `tests/house/layers.rs` lists the layers and checks it.

pub mod agent;
pub mod archive;
pub mod capture;
#[cfg(feature = "cli")]
pub mod cli;
pub mod disk;
pub mod engine;
pub mod error;
pub mod export;
pub mod flow;
pub mod handover;
pub mod list;
pub mod metrics;
pub mod parse;
pub mod queue;
pub mod record;
pub mod run;
pub mod signal;
pub mod sketch;
pub mod snapshot;
pub mod sources;
pub mod state;
pub mod track;

pub use self::disk::whole_file; // alias until the tree has settled

/// What tracks connections, under its former names.
pub mod connection {
    pub use crate::handover::{Counts, HalfOpen, HalfOpenList, ISN_BITS, MIDSTREAM, ticks_since};
    pub use crate::track::*;
}
pub use self::track as shard;

/// The list under its former name.
pub use self::list as flow_list;
/// The metrics server under its former name.
pub use self::metrics::http as serve;

/// The engine and what feeds it under their former name.
pub mod pipeline {
    pub use crate::engine::*;
    pub use crate::run::*;
}

#[cfg(any(test, feature = "cli"))]
pub use flowpeel_traffic as generate;

pub use flowpeel_iblt::{hash, interval};
pub use flowpeel_lines as lines;

/// Prefetching.
pub mod prefetch {
    pub use flowpeel_lines::prefetch;
}
