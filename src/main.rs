//! The `flowpeel` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: flowpeel::cli::Allocator = flowpeel::cli::Allocator;

fn main() -> ExitCode {
    flowpeel::cli::main().into()
}
