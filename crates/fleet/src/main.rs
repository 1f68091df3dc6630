//! The `flowpeel-fleet` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    flowpeel_fleet::command::main()
}
