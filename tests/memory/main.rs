//! Memory: what is allocated, and what the kernel counts, while everything is flooded.

mod allocations;
mod allocator;
mod floods;
#[cfg(target_os = "linux")]
mod port;
mod process;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;
