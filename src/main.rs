//! The `flowpeel` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    flowpeel::cli::main().into()
}
