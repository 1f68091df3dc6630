//! A network of routers that run flowpeel: their snapshots over NATS JetStream, and the lists of all of them elsewhere.
//!
//! The process that captures packets writes snapshots to a directory and knows no network. `flowpeel-fleet` is another
//! process, which takes them from there.
//!
//! # The way of a snapshot
//!
//! ```text
//! spool -> frame -> piece -> ship ~ broker ~ collect -> inbox -> lists
//! ```
//!
//! On a router the [`spool`] gives the next snapshot, cut into its partitions; each becomes a signed [`frame`] under
//! the router's [`key`], cut into [`piece`]s, which [`ship`] publishes under the router's [`subject`]s of the
//! [`broker`]. Elsewhere [`collect`] takes them from there in the order of the stream, all or those of a share of the
//! partitions, the [`inbox`] puts snapshots together, and [`lists`] writes the lists that the router would have
//! written, or its share's part of them. Whoever holds a share (`hold`) writes [`checkpoint`]s, from which another
//! collector continues.
//!
//! # The joined view
//!
//! ```text
//! lists of each router -> newest -> joined -> network -> joined_list
//!                                             network -> query -> serve
//!                                             network -> twins
//!                         history, life -------------------------> serve
//! archives of routers -> past -----------------------------------> serve
//! ```
//!
//! The [`newest`] lists of all routers are [`joined`] into one view of the [`network`], which is written as a
//! [`joined_list`], or asked by a [`query`] that comes over HTTP ([`serve`]); or it is followed where two [`twins`] do
//! not agree. The lists before them say how much there was ([`history`]) and what became of a connection ([`life`]),
//! the archives of routers what an address had in the [`past`].
//!
//! # In operation
//!
//! [`ship`] and [`collect`] publish their figures as [`metrics`], which flowpeel's server of metrics shows. What serves
//! them is to [`listen`] on this machine alone.
//!
//! All but `broker`, `ship`, `collect` and `serve` is plain code without a network or clock, and tested as such.

pub mod broker;
pub mod checkpoint;
pub mod collect;
pub mod command;
mod feed;
pub mod frame;
pub mod group_order;
pub mod history;
mod hold;
pub mod inbox;
pub mod joined;
pub mod joined_list;
pub mod key;
pub mod life;
pub mod listen;
pub mod lists;
pub mod metrics;
pub mod network;
pub mod newest;
pub mod past;
pub mod piece;
pub mod query;
pub mod serve;
pub mod ship;
pub mod spool;
pub mod subject;
pub mod twins;

#[cfg(test)]
mod sample;
