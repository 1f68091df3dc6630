//! Messages as log lines, for runs that nobody watches on a terminal.
//!
//! A line on standard error for each message, with time, level and fields, as text or JSON. Control characters are
//! escaped here, since messages may hold names from outside.

use crate::error::escaped;
use clap::ValueEnum;
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing::Level;

/// The format of log lines.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum LogFormat {
    /// A time, a level and words
    Text,
    /// An object
    Json,
}

/// The format of log lines, once messages are written as such.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Writes log lines from now on if a format was asked for, or, for a service, if standard error is no terminal, since a
/// journal reads it then. People wait for the other commands, and if their standard error goes to a file it should hold
/// what a terminal would have shown.
pub(super) fn init(asked: Option<LogFormat>, is_service: bool) {
    let is_journal = is_service && !std::io::stderr().is_terminal();
    let Some(format) = asked.or_else(|| is_journal.then_some(LogFormat::Text)) else { return };
    if FORMAT.set(format).is_err() {
        return;
    }
    // Where standard error is closed or full nothing can be printed, not even that.
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false)
        .with_max_level(Level::INFO);
    let set = match format {
        LogFormat::Text => tracing::subscriber::set_global_default(lines.finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish()),
    };
    // This fails only if a subscriber was set before, and no other place sets one.
    debug_assert!(set.is_ok());
}

/// Whether log lines are written.
pub(super) fn is_on() -> bool {
    FORMAT.get().is_some()
}

/// Logs a message.
pub(super) fn info(text: &str) {
    tracing::info!("{}", escaped(text));
}

/// Logs a warning.
pub(super) fn warning(text: &str) {
    tracing::warn!("{}", escaped(text));
}

/// Logs an error.
pub(super) fn error(text: &str) {
    tracing::error!("{}", escaped(text));
}
