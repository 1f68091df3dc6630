//! Messages to people, on standard error.

use crate::metrics::Count;
use flowpeel::error::Error;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Sets whether nothing but errors is printed.
pub(super) fn set_quiet(is_quiet: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
}

/// Prints a line. If standard error is closed or full the line is lost, and the work continues.
pub(super) fn line(text: fmt::Arguments) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        drop(writeln!(std::io::stderr(), "{text}"));
    }
}

/// Prints a warning.
pub(super) fn warning(text: impl fmt::Display) {
    line(format_args!("warning: {text}"));
}

/// Prints an error.
pub(super) fn error(error: &Error) {
    drop(writeln!(std::io::stderr(), "error: {error}"));
}

/// Counts with what they are of, those that are not 0, and the first in any case.
pub(super) fn counts(all: &[(u64, &str)]) -> String {
    let some = all.iter().enumerate().filter(|(at, (count, _))| *at == 0 || *count > 0);
    some.map(|(_, (count, what))| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// What was counted, in this way.
pub(super) fn in_words(all: impl IntoIterator<Item = Count>) -> Vec<(u64, &'static str)> {
    all.into_iter().map(|count| (count.value, count.words)).collect()
}

/// A name without what could act on a terminal.
pub(super) fn printable(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
