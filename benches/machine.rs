//! The machine that a measurement was made on.

use std::thread::available_parallelism;

/// The properties of a machine that figures depend on.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The name of the processor.
    pub(crate) processor: String,
    /// The cores that this process may use.
    pub(crate) core_count: usize,
    /// The kernel's policy for huge pages: the word that it has in brackets.
    pub(crate) huge_pages: String,
}

impl Machine {
    /// The machine that this runs on, by what the system says.
    pub(crate) fn this() -> Self {
        let unknown = || "unknown".to_owned();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let policy = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let chosen = policy.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Machine {
            processor: model.map_or_else(unknown, |(_, model)| model.trim().to_owned()),
            core_count: available_parallelism().map_or(1, usize::from),
            huge_pages: chosen.map_or_else(unknown, |(chosen, _)| chosen.to_owned()),
        }
    }
}
