//! `flowpeel completions`: the scripts with which shells complete its command line, made from the definition of the
//! command line.

use crate::cli::{Cli, Outcome, Status, print};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completion script of a shell
#[derive(Args)]
#[command(
    display_name = "flowpeel completions",
    after_help = "Examples:\n  flowpeel completions bash > ~/.local/share/bash-completion/completions/flowpeel\n  \
    flowpeel completions zsh > /usr/local/share/zsh/site-functions/_flowpeel\n  \
    flowpeel completions fish > ~/.config/fish/completions/flowpeel.fish"
)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "flowpeel", &mut script);
    print(&script)?;
    Ok(Status::Done)
}
