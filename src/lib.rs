//! flowpeel tells which TCP connections are open through a software router, from the packets that pass.
#![warn(missing_docs)]

pub mod config;
pub mod error;
pub mod flow;
pub mod parse;
