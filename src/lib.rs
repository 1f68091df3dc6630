//! flowpeel lists which TCP connections are open through a software router, from the packets that pass, in a memory
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
//! ```text
//! capture -> parse -> signal -> queue -> track -> handover -> list -> export
//! ```
//!
//! [`capture`] reads the packet, [`parse`] finds its TCP header, [`signal`] decides whether it can matter, and a
//! [`queue`] carries it to the thread that [tracks](track) its connection. There a filter turns it into an opening or a
//! closing that is summed into an invertible Bloom lookup table ([`flowpeel_iblt`]). The sums are [handed
//! over](handover) to the [`list`], of which [`select`] says what is shown, and which an [`export`]er writes.
//!
//! The [`engine`] puts this on threads and gives a router ports to push packets into; [`run`] feeds it from files and
//! interfaces, and `cli` (a feature of that name) puts it on a command line. [`snapshot`]s are all open connections in
//! a file, of which an [`agent`] makes lists elsewhere. An [`archive`] keeps a [`record`] of every connection that
//! ended, and an [`event_log`] has a line for each. [`sources`] are counted by who opens connections. [`metrics`] count
//! what happens on the way, and are served over HTTP. A [`state`] holds what a run needs to continue after a crash, in
//! files of the [`disk`] room.
//!
//! Five files to read first, in the order of a packet: `src/engine/port.rs`, `src/signal/signaller.rs`,
//! `src/track/tracker.rs` (its first comment has the states of a connection as a table), `src/track/partition.rs` and
//! `src/list/family.rs`. docs/design.md has a map of the threads.
//!
//! Modules import only from lower ones; `tests/house/layers.rs` has their order and checks it.

pub mod agent;
pub mod archive;
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub mod audit;
pub mod capture;
#[cfg(feature = "cli")]
pub mod cli;
pub mod disk;
pub mod engine;
pub mod error;
pub mod event_log;
pub mod export;
pub mod flow;
pub mod handover;
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub mod kernel;
pub mod list;
pub mod metrics;
pub mod parse;
pub mod queue;
pub mod record;
pub mod run;
pub mod select;
mod serving;
pub mod signal;
pub mod snapshot;
pub mod sources;
pub mod state;
pub mod track;
pub mod view;
