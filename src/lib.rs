//! flowpeel tells which TCP connections are open through a software router, from the packets that pass, in a memory that no
//! traffic can make grow.
//!
//! A capture thread turns TCP's SYN, FIN and RST into signals; lock-free queues carry them to shards; each shard sums
//! what opens and closes into invertible Bloom lookup tables of fixed size; at every interval the list peels the tables
//! and is exact again.
//!
//! # Example
//!
//! The connections that are open at the end of a capture:
//!
//! ```
//! use flowpeel::flow_list::List;
//! use flowpeel::pipeline::{Config, replay};
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
//! [`capture`] reads it, [`parse`] finds its TCP header, [`signal`] decides whether it can matter, a [`queue`] carries it to
//! its [`shard`], where the [`connection`] filter turns it into an opening or a closing that is summed into a
//! [`sketch`]; a [`snapshot`] of the sums goes to the [`flow_list`], and an [`export`]er writes that down. With an [`archive`] a
//! [`record`] of every connection that ends is kept, to be found again. [`pipeline`] puts
//! these on threads, and [`cli`] on a command line. [`generate`] makes traffic to try it all on. What happens on the way is
//! counted in [`metrics`], and [`serve`] tells it over HTTP. What a run has to know to go on after a crash is kept in a [`state`]. With the feature `paper`, module `paper` runs the experiments of
//! the paper behind the sketch again.
//!
//! Modules import only what stands further down in this list: `cli`; `pipeline`, `paper`, `agent`; `archive`, `export`, `flow_list`, `capture`, `serve`;
//! `generate`, `shard`, `record`, `queue`, `snapshot`, `bfield_store`; `connection`, `signal`, `sources`; `parse`, `sketch`; `flow`, `hash`, `config`,
//! `error`, `metrics`, `prefetch`, `lines`, `interval`, `state`, `whole_file`. (Within a layer, `archive` imports `export` and `flow_list`, `export` imports `flow_list`,
//! `shard` imports `record`, `record` imports `queue`, `shard` and `queue` import `snapshot`,
//! `connection` and `sources` import `signal`, `hash` imports `flow`, `metrics` imports `config`, and `state` imports `error`, `config` and `whole_file`.)

pub mod agent;
pub mod archive;
pub mod bfield_store;
pub mod capture;
pub mod cli;
pub mod config;
pub mod connection;
pub mod error;
pub mod export;
pub mod flow;
pub mod flow_list;
pub mod generate;
pub mod hash;
pub mod interval;
pub mod lines;
pub mod metrics;
#[cfg(feature = "paper")]
pub mod paper;
pub mod parse;
pub mod pipeline;
pub mod prefetch;
pub mod queue;
pub mod record;
pub mod serve;
pub mod shard;
pub mod signal;
pub mod sketch;
pub mod snapshot;
pub mod sources;
pub mod state;
pub mod whole_file;
