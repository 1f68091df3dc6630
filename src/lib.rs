//! flowpeel tells which TCP connections are open through a software router, from the packets that pass.
#![warn(missing_docs)]

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
pub mod parse;
pub mod pipeline;
pub mod prefetch;
pub mod queue;
pub mod shard;
pub mod signal;
pub mod sketch;
pub mod snapshot;
