//! What a run takes of the memory.
//!
//! It takes a configuration, and the shapes that follow from it, and gives sizes in bytes, part by part, for the limit
//! and for people.

use crate::engine::{Config, Setting};
use crate::handover::{ANNOUNCEMENTS_MAX, Inquiry};
use crate::list::{EarlierList, FlowListConfig};
use crate::signal::PARTITION_COUNT;
use crate::track::PartitionConfig;

/// The most that one listed connection takes in a saved state, in bytes: the key and the start of an IPv6 connection.
pub const STATE_ENTRY_SIZE: u64 = 48;

/// The addresses that the stack of a thread takes, in bytes: those of the standard library.
const STACK_SIZE: u64 = 2 << 20;

/// The threads of a run beside its shards and ports: those of the lists, the state, the clock, the events, the archive
/// and its index, of metrics, views, messages and signals, and those that ask the kernel.
const OTHER_THREAD_COUNT: u64 = 12;

/// The addresses that are left for what is not announced, in bytes: output buffers, and what libraries take.
const UNANNOUNCED_SIZE: u64 = 16 << 20;

/// The addresses of a run that takes this much memory in so many shards and ports, in bytes.
pub(crate) fn addresses_size(memory: &Memory, thread_count: u64) -> u64 {
    let stacks_size = (thread_count + OTHER_THREAD_COUNT) * STACK_SIZE;
    let beside_size = stacks_size + flowpeel_lines::mapped_unused_max() + UNANNOUNCED_SIZE;
    memory.total_size().saturating_add(beside_size)
}

/// The sizes that follow from a [`Config`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The connection filters.
    pub filter_size: u64,
    /// What is known of connections that are open and not tracked; announced with the filters.
    pub refused_size: u64,
    /// The half-open rings, the ring of candidates, the cache of waiting handshakes, and the watch over connections
    /// that may have ended unseen.
    pub rings_size: u64,
    /// The deltas, those in use and the empty ones, and the residues.
    pub tables_size: u64,
    /// The queues, and the capture buffer or the rings that the kernel fills.
    pub queues_size: u64,
    /// The most that the list takes: open connections, the half-open ones that a list is made of, what the exporter
    /// keeps of the list before, what ended since then, and the questions whether connections are still alive. It grows
    /// to this only when that many are open.
    pub list_size_max: u64,
    /// The counters of sources, and what a report is made from; 0 when sources are not counted.
    pub sources_size: u64,
    /// The copies that a saved state is made of, while it is being written; 0 when no state is saved.
    pub state_size: u64,
    /// The names of translated connections; 0 where nobody knows them.
    pub translations_size: u64,
    /// The archive: records on their way, the records of the segment that is being filled, and its index.
    pub archive_size: u64,
    /// Events on their way, and those that wait for their destinations.
    pub event_log_size: u64,
    /// The copy of a list's rows for those who look at it, and what it takes to sort them; 0 where nobody can.
    pub view_size: u64,
}

impl Memory {
    /// Every part once, with the name that metrics and plans have for it, and its size in bytes.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 11] {
        [
            ("filter", self.filter_size + self.refused_size),
            ("half_open", self.rings_size),
            ("tables", self.tables_size),
            ("queues", self.queues_size),
            ("list", self.list_size_max),
            ("state", self.state_size),
            ("archive", self.archive_size),
            ("events", self.event_log_size),
            ("sources", self.sources_size),
            ("view", self.view_size),
            ("translations", self.translations_size),
        ]
    }

    /// The sum of all parts, in bytes.
    #[must_use]
    pub fn total_size(&self) -> u64 {
        self.parts().iter().map(|(_, size)| size).sum()
    }

    /// The setting that takes most of the memory, and how much that is, in bytes: where memory is short, that one is to
    /// be lowered. `buffers_size` is the part of it that is for the buffers of captures, of which a replay has a single
    /// small one.
    pub(crate) fn largest(&self, buffers_size: u64) -> (Setting, u64) {
        let parts = [
            // The copies for a state are mostly of these two, and so are those for a view.
            (
                Setting::Connections,
                self.filter_size + self.refused_size + self.list_size_max + self.state_size + self.view_size,
            ),
            (Setting::HalfOpen, self.rings_size),
            (Setting::Churn, self.tables_size),
            (Setting::Shards, self.queues_size.saturating_sub(buffers_size)),
            (Setting::Rings, buffers_size),
            (Setting::Sources, self.sources_size),
            (Setting::Archive, self.archive_size + self.event_log_size),
        ];
        parts.into_iter().max_by_key(|(_, size)| *size).unwrap_or((Setting::Connections, 0))
    }
}

/// The tables of a partition beside the spare deltas: a delta and a residue. With snapshots there are the sum, and a
/// file of about its size that is written; without a list there is no residue.
pub(crate) fn table_count(config: &Config) -> u64 {
    match (&config.snapshots, config.keeps_list()) {
        (None, _) => 2,
        (Some(_), true) => 4,
        (Some(_), false) => 3,
    }
}

/// The size of the questions to all partitions, of the answers, and of what partitions announce where the list could
/// not decode everything.
pub(crate) fn questions_size(list: &FlowListConfig) -> u64 {
    let most = |count: usize| list.partition_connections_max.min(count as u64);
    let count = 2 * most(2 * list.inquiry_max) + most(ANNOUNCEMENTS_MAX);
    PARTITION_COUNT as u64 * count * Inquiry::QUESTION_SIZE as u64
}

/// The size of the copies of a state: filter, rings, residues and the sums of snapshots once each, and the entries of
/// the list, each written out at [`STATE_ENTRY_SIZE`], without the list's index.
pub(crate) fn state_size(partition: &PartitionConfig, config: &Config, listed_max: u64) -> u64 {
    let tracker = &partition.tracker;
    let table_count = if config.snapshots.is_some() { 2 } else { 1 };
    let partition_size = tracker.state_size() + table_count * partition.geometry.size();
    let earlier_size = config.format.changes.map_or(0, |_| listed_max.saturating_mul(EarlierList::ENTRY_SIZE as u64));
    let list_size = listed_max.saturating_mul(STATE_ENTRY_SIZE).saturating_add(earlier_size);
    let list_size = list_size.saturating_add(names_size(config, listed_max));
    (PARTITION_COUNT as u64 * partition_size as u64).saturating_add(list_size)
}

/// The size of the names of translated connections in a list that changes build on. With VLAN tags in keys, several
/// connections may have the same.
pub(crate) fn names_size(config: &Config, listed_max: u64) -> u64 {
    let translations_max = config.translations_max.filter(|_| config.format.changes.is_some());
    let names_max = translations_max.map_or(0, |count| if config.vlan_key { listed_max } else { count as u64 });
    names_max.saturating_mul(EarlierList::NAME_SIZE as u64)
}
