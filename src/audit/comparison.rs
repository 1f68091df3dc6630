//! What a list and the kernel do not agree on, and why.

use crate::flow::AnyKey;
use std::collections::{HashMap, HashSet};

/// How long before the end of a list a connection may have ended and still be listed, or opened and not be, in ns: the
/// last packets take some round trips, more of them where packets are lost.
pub const ROUND_TRIPS_NS: i64 = 2_000_000_000;

/// A list that is compared.
#[derive(Clone, Debug, Default)]
pub struct AuditedList {
    /// When it ends, in ns since 1970.
    pub end_ns: i64,
    /// Its established connections, without VLAN tags.
    pub listed: HashSet<AnyKey>,
    /// Whether something was lost on the way to it, so that the list itself says that it is not complete; not because
    /// older connections are still being found.
    pub is_lossy: bool,
}

/// What the kernel has open, each connection under one or two names, which are canonical keys.
#[derive(Clone, Debug, Default)]
pub struct KernelTable {
    /// The connections, as their clients have them, with the other name of those that are translated.
    open: Vec<(AnyKey, AnyKey)>,
    /// The place of each name.
    names: HashMap<AnyKey, usize>,
    /// Whether changes were lost that say how connections ended.
    pub has_lost_changes: bool,
    /// When it had been read, in ns since 1970: it may have connections that opened until then.
    pub read_ns: i64,
}

impl KernelTable {
    /// Puts in an open connection with both names, client first.
    pub fn put(&mut self, original: AnyKey, translated: AnyKey) {
        let place = self.open.len();
        self.open.push((original, translated));
        self.names.insert(original.canonical(), place);
        self.names.insert(translated.canonical(), place);
    }

    /// Whether a connection is open under this name.
    #[must_use]
    pub fn has(&self, name: &AnyKey) -> bool {
        self.names.contains_key(&name.canonical())
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// What the kernel says of a connection that it does not have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSays {
    /// Packets have ended it, at this time in ns since 1970.
    Ended(i64),
    /// It was given up while it was open, because nothing came for too long.
    GivenUp,
    /// The handshake is not complete.
    HalfOpen,
    /// Nothing.
    Nothing,
}

impl KernelSays {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KernelSays::Ended(_) => "ended",
            KernelSays::GivenUp => "given_up",
            KernelSays::HalfOpen => "half_open",
            KernelSays::Nothing => "nothing",
        }
    }
}

/// Why a list and the kernel differ about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It opened within the last round trips before the list's end, or after it, and the next list has it; or it is
    /// older than the start, of which the kernel's sockets alone know, and has said nothing since.
    NotYetSeen,
    /// It ended within the last round trips before the list's end, or after it.
    JustEnded,
    /// Something was lost on the way to the list, which says so, or on the way from the kernel.
    Lost,
    /// The kernel does not know that it is open: it gave it up, never tracked it, or took its packets for invalid.
    UnknownToKernel,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Reason::NotYetSeen, Reason::JustEnded, Reason::Lost, Reason::UnknownToKernel];

    /// Its name in reports and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::NotYetSeen => "not_yet_seen",
            Reason::JustEnded => "just_ended",
            Reason::Lost => "lost",
            Reason::UnknownToKernel => "unknown_to_kernel",
        }
    }
}

/// A connection about which a list and the kernel differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The connection: client first where the kernel has it, otherwise the lower end.
    pub key: AnyKey,
    /// Whether the list has it, and the kernel not; otherwise it is the reverse.
    pub is_listed: bool,
    /// What the kernel says of it, if it does not have it open.
    pub kernel: Option<KernelSays>,
    /// Why; `None` is what should not be.
    pub reason: Option<Reason>,
    /// The end of the first list in which it differed, in ns since 1970.
    pub since_ns: i64,
}

/// A difference that may still be the moment's.
struct Pending {
    is_listed: bool,
    since_ns: i64,
    /// The time that a list has to be past to decide it: of a list that waited to be compared, the kernel's table is
    /// newer.
    known_ns: i64,
    is_lossy: bool,
    is_reported: bool,
}

/// Compares lists with the kernel, one after the other.
pub struct Comparison {
    pending: HashMap<AnyKey, Pending>,
    older: Older,
}

/// What lists are to know of connections that are older than the first of them.
enum Older {
    /// All.
    Known,
    /// Those that have said something. Of the others not even the first list was compared.
    Unread,
    /// As before, and these the first list did not have, and no list since.
    Silent(HashSet<AnyKey>),
}

impl Comparison {
    /// A comparison of lists that begin with all that the kernel has open if they are said to `know_older`, otherwise
    /// with what has said something since the start.
    #[must_use]
    pub fn new(know_older: bool) -> Self {
        Comparison { pending: HashMap::new(), older: if know_older { Older::Known } else { Older::Unread } }
    }

    /// Compares the next list with what the kernel has open just behind its end. `says` is what the kernel says of a
    /// connection, by its canonical key, that it does not have open. Returns the differences that are decided now, each
    /// once: those of lists before that have gone, and those that have not gone for as long as round trips take.
    ///
    /// Complexity: linear in both.
    pub fn compare(
        &mut self,
        list: &AuditedList,
        kernel: &KernelTable,
        says: impl Fn(&AnyKey) -> KernelSays,
    ) -> Vec<Difference> {
        let mut present: HashMap<AnyKey, (AnyKey, bool)> = HashMap::new();
        let not_open = list.listed.iter().filter(|key| !kernel.names.contains_key(*key));
        present.extend(not_open.map(|key| (*key, (*key, true))));
        for (original, translated) in &kernel.open {
            let is_listed = [original, translated].iter().any(|name| list.listed.contains(&name.canonical()));
            if !is_listed {
                present.insert(original.canonical(), (*original, false));
            }
        }
        let is_lossy = list.is_lossy || kernel.has_lost_changes;
        self.older.compare(&present);
        let older = &self.older;
        let mut decided = Vec::new();
        self.pending.retain(|canonical, pending| {
            pending.is_lossy |= is_lossy;
            let still = present.get(canonical).filter(|(_, is_listed)| *is_listed == pending.is_listed);
            if pending.is_reported {
                return still.is_some();
            }
            let key = still.map_or(*canonical, |(key, _)| *key);
            let difference = |reason| Difference {
                key,
                is_listed: pending.is_listed,
                kernel: pending.is_listed.then(|| says(canonical)),
                reason,
                since_ns: pending.since_ns,
            };
            if still.is_none() {
                let is_open_in_both = list.listed.contains(canonical) && kernel.names.contains_key(canonical);
                let reason = if is_open_in_both { Reason::NotYetSeen } else { Reason::JustEnded };
                decided.push(difference(Some(reason)));
                return false;
            }
            if list.end_ns.saturating_sub(pending.known_ns) >= ROUND_TRIPS_NS {
                let reason = lasting_reason(pending, says(canonical)).or_else(|| older.reason(canonical));
                decided.push(difference(reason));
                pending.is_reported = true;
            }
            true
        });
        for (canonical, (_, is_listed)) in present {
            let since_ns = list.end_ns;
            let known_ns = since_ns.max(kernel.read_ns);
            let pending = Pending { is_listed, since_ns, known_ns, is_lossy, is_reported: false };
            self.pending.entry(canonical).or_insert(pending);
        }
        decided.sort_by_key(|difference| difference.key);
        decided
    }

    /// The differences of the last lists that are not decided, for there was no list after them that could.
    #[must_use]
    pub fn undecided(&self) -> usize {
        self.pending.values().filter(|pending| !pending.is_reported).count()
    }
}

impl Older {
    /// Takes in which connections a list and the kernel differ about.
    fn compare(&mut self, present: &HashMap<AnyKey, (AnyKey, bool)>) {
        let is_unlisted = |key: &AnyKey| present.get(key).is_some_and(|(_, is_listed)| !is_listed);
        match self {
            Older::Known => {}
            Older::Unread => *self = Older::Silent(present.keys().filter(|key| is_unlisted(key)).copied().collect()),
            Older::Silent(silent) => silent.retain(is_unlisted),
        }
    }

    /// Why a connection is not listed, if it is one that has said nothing since the start.
    fn reason(&self, canonical: &AnyKey) -> Option<Reason> {
        match self {
            Older::Silent(silent) => silent.contains(canonical).then_some(Reason::NotYetSeen),
            Older::Known | Older::Unread => None,
        }
    }
}

/// Why a difference lasts.
fn lasting_reason(pending: &Pending, says: KernelSays) -> Option<Reason> {
    match (pending.is_listed, says) {
        _ if pending.is_lossy => Some(Reason::Lost),
        // It may have opened and ended again under the same name since the list before.
        (true, KernelSays::Ended(at_ns)) if at_ns >= pending.since_ns.saturating_add(ROUND_TRIPS_NS) => {
            Some(Reason::JustEnded)
        }
        (true, KernelSays::Ended(_)) => None,
        (true, _) => Some(Reason::UnknownToKernel),
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;

    const SECOND_NS: i64 = 1_000_000_000;

    fn key(client_port: u16) -> AnyKey {
        let client = format!("10.0.0.1:{client_port}").parse().unwrap();
        AnyKey::of_ends(client, "192.0.2.1:443".parse().unwrap(), VlanTags::NONE).unwrap()
    }

    fn list(second: i64, ports: &[u16]) -> AuditedList {
        let listed = ports.iter().map(|port| key(*port).canonical()).collect();
        AuditedList { end_ns: second * SECOND_NS, listed, is_lossy: false }
    }

    fn kernel(ports: &[u16]) -> KernelTable {
        let mut kernel = KernelTable::default();
        ports.iter().for_each(|port| kernel.put(key(*port), key(*port)));
        kernel
    }

    fn reasons(differences: &[Difference]) -> Vec<(bool, Option<Reason>)> {
        differences.iter().map(|difference| (difference.is_listed, difference.reason)).collect()
    }

    #[test]
    fn what_is_gone_by_the_next_list_was_the_moment() {
        let mut comparison = Comparison::new(true);
        let says = |_: &AnyKey| KernelSays::Ended(10 * SECOND_NS);
        assert!(comparison.compare(&list(10, &[1, 2, 3]), &kernel(&[1, 2, 4]), says).is_empty());
        assert_eq!(comparison.undecided(), 2);
        let decided = comparison.compare(&list(20, &[1, 2, 4]), &kernel(&[1, 2, 4]), says);
        assert_eq!(reasons(&decided), [(true, Some(Reason::JustEnded)), (false, Some(Reason::NotYetSeen))]);
        assert_eq!(decided[0].kernel, Some(KernelSays::Ended(10 * SECOND_NS)));
        assert_eq!(comparison.undecided(), 0);
    }

    #[test]
    fn what_stays_has_no_reason_if_the_kernel_saw_it_end_or_has_it_open() {
        let mut comparison = Comparison::new(true);
        let says = |_: &AnyKey| KernelSays::Ended(9 * SECOND_NS);
        comparison.compare(&list(10, &[1]), &kernel(&[2]), says);
        // A list that ends sooner decides nothing.
        assert!(comparison.compare(&list(11, &[1]), &kernel(&[2]), says).is_empty());
        let decided = comparison.compare(&list(20, &[1]), &kernel(&[2]), says);
        assert_eq!(reasons(&decided), [(true, None), (false, None)]);
        assert!(comparison.compare(&list(30, &[1]), &kernel(&[2]), says).is_empty(), "each is reported once");
        assert_eq!(comparison.undecided(), 0);
    }

    #[test]
    fn a_list_decides_nothing_that_came_before_the_kernels_table_was_read() {
        let mut comparison = Comparison::new(true);
        let says = |_: &AnyKey| KernelSays::Nothing;
        // Two lists waited, and a connection opened behind both.
        let late = |second: i64| KernelTable { read_ns: second * SECOND_NS, ..kernel(&[1]) };
        assert!(comparison.compare(&list(10, &[]), &late(25), says).is_empty());
        assert!(comparison.compare(&list(20, &[]), &late(26), says).is_empty());
        let decided = comparison.compare(&list(30, &[1]), &late(30), says);
        assert_eq!(reasons(&decided), [(false, Some(Reason::NotYetSeen))]);
    }

    #[test]
    fn what_stays_has_a_reason_if_something_was_lost_or_the_kernel_does_not_know() {
        for (says, is_lossy, reason) in [
            (KernelSays::Nothing, false, Some(Reason::UnknownToKernel)),
            (KernelSays::GivenUp, false, Some(Reason::UnknownToKernel)),
            (KernelSays::HalfOpen, false, Some(Reason::UnknownToKernel)),
            (KernelSays::Ended(0), false, None),
            (KernelSays::Ended(0), true, Some(Reason::Lost)),
            (KernelSays::Ended(15 * SECOND_NS), false, Some(Reason::JustEnded)),
        ] {
            let mut comparison = Comparison::new(true);
            comparison.compare(&AuditedList { is_lossy, ..list(10, &[1]) }, &kernel(&[]), |_| says);
            let decided = comparison.compare(&list(20, &[1]), &kernel(&[]), |_| says);
            assert_eq!(reasons(&decided), [(true, reason)], "{says:?} {is_lossy}");
        }
    }

    #[test]
    fn what_is_older_and_silent_is_not_yet_seen() {
        let says = |_: &AnyKey| KernelSays::Nothing;
        let mut comparison = Comparison::new(false);
        comparison.compare(&list(10, &[]), &kernel(&[1, 2]), says);
        comparison.compare(&list(20, &[1]), &kernel(&[1, 2, 3]), says);
        let reason = Some(Reason::NotYetSeen);
        let decided = comparison.compare(&list(30, &[]), &kernel(&[1, 2, 3]), says);
        assert_eq!(reasons(&decided), [(false, None)], "it is newer");
        // One that was listed is known from then on.
        let decided = comparison.compare(&list(40, &[]), &kernel(&[1, 2, 3]), says);
        assert_eq!(reasons(&decided), [(false, None)]);
        let mut comparison = Comparison::new(false);
        comparison.compare(&list(10, &[]), &kernel(&[2]), says);
        assert_eq!(reasons(&comparison.compare(&list(20, &[]), &kernel(&[2]), says)), [(false, reason)]);
    }

    #[test]
    fn a_translated_connection_is_listed_under_either_name() {
        let mut table = KernelTable::default();
        table.put(key(1), key(2));
        for ports in [&[1][..], &[2], &[1, 2]] {
            let mut comparison = Comparison::new(true);
            comparison.compare(&list(10, ports), &table, |_| KernelSays::Nothing);
            assert_eq!(comparison.undecided(), 0, "{ports:?}");
        }
    }
}
