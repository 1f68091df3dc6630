//! Routers, a real broker and collectors: the lists elsewhere are those of `flowpeel snapshot collect`, byte for byte,
//! whatever was killed, sent twice or forged.
//!
//! Tests that need nats-server are skipped, and say so, where it is not installed.

mod asymmetric;
mod certificates;
mod delivery;
mod demo;
mod kills;
mod metrics;
mod parquet;
mod permissions;
mod scale;
mod server;
mod shares;
mod site;
mod standby;
mod tls;
mod twins;
mod union;
mod wire;
