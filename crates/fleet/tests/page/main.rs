//! Lists of generated traffic -> the joined view, the API and the page: held against the lists themselves.
//!
//! What needs Python with DuckDB, Node.js or Chromium is skipped, and says so, where that is not installed.

mod access;
mod api;
#[path = "../fleet/certificates.rs"]
mod certificates;
mod duckdb;
mod fuzz;
mod hostile;
mod join;
mod network;
mod paging;
mod past;
mod peers;
mod rows;
mod schema;
mod screen;
#[path = "../fleet/union.rs"]
mod union;
