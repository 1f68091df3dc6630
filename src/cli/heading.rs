//! The headings under which `--help` groups the options of a run.

pub(super) const CAPTURE: &str = "Capture";
pub(super) const OUTPUT: &str = "Interval and output";
pub(super) const SIZE: &str = "Size and memory";
pub(super) const TRACKING: &str = "What is tracked";
pub(super) const FILES: &str = "Files that stay";
pub(super) const SNAPSHOTS: &str = "Snapshots";
pub(super) const MESSAGES: &str = "Messages and metrics";
