//! The built command: what it prints, writes and refuses.
//!
//! - `bad_input`: captures that are damaged, options that are wrong, output that fails, signals
//! - `collect`, `diff`, `merge`, `salvage`, `snapshots`: snapshots, and lists made of them
//! - `events`: a line for each connection that opened or ended
//! - `loaders`: DuckDB over what flowpeel writes
//! - `metrics`: over HTTP, by Prometheus' own tools
//! - `operation`: files, their places and rights, the log, the documented options, the packaging
//! - `plan`, `sources`, `state`: the commands and options of these names
//! - `selection`: filters, orders, groups, and what lists look like
//! - `top`: the full screen, on a terminal and without one
//! - `tunnels`: what is opened, and what is counted

mod bad_input;
mod collect;
mod diff;
mod events;
mod loaders;
mod merge;
mod metrics;
mod operation;
mod plan;
mod salvage;
mod selection;
mod snapshots;
mod sources;
mod state;
#[path = "../support/mod.rs"]
mod support;
mod top;
mod tunnels;
