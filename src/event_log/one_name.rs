//! Events of translated connections, each under one name.
//!
//! Captured on both sides of a translation, a connection has two names and gives every event twice. The one under the
//! name that its client has is written, with the other name in it; the other is passed over. One that comes under the
//! name behind the translation alone, because only that side is captured, is written too, later.

use crate::export::{Change, FlowEvent};
use crate::flow::{AnyKey, VlanTags};
use crate::list::{Nat, TranslationSource};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long every event waits: the kernel says a name up to 100 ms after a connection was answered, on a busy machine
/// some times as long.
const NAME_WAIT: Duration = Duration::from_secs(1);

/// The events that wait for their names, at most: 16,000 a second. When there are more the oldest do not wait.
const UNNAMED_MAX: usize = 1 << 14;

/// How many ends of intervals an event under the name behind the translation waits for: the other one may be of the
/// interval after its own, and comes at that interval's end at the latest.
const INTERVALS_WAITED: u64 = 2;

/// The events of translated connections that are remembered under each of the two names, at most.
const NAMED_MAX: usize = 1 << 15;

/// What is called with each event that is to be written.
type Write<'a> = &'a mut dyn FnMut(&FlowEvent);

/// A connection, by the canonical key of the name that its client has, and what happened to it.
type Happened = (AnyKey, Change);

/// An event under the name behind the translation.
struct Behind {
    happened: Happened,
    event: FlowEvent,
    /// How many intervals had ended when it came.
    interval: u64,
}

/// Events under the name before the translation that were written, and not met under the other one yet.
struct Written {
    count: u32,
    /// How many intervals had ended when the last of them came.
    interval: u64,
}

/// Events on their way to be written under one name.
pub(super) struct OneName {
    names: Arc<dyn TranslationSource>,
    unnamed: VecDeque<(Instant, FlowEvent)>,
    behind: VecDeque<Behind>,
    written: HashMap<Happened, Written>,
    /// How many intervals have ended.
    interval: u64,
    /// Whether events were written that are in the log under both names, because they were too many.
    is_beyond: bool,
}

impl OneName {
    /// The most memory that it takes, in bytes.
    pub(super) const SIZE_MAX: u64 = (UNNAMED_MAX * size_of::<(Instant, FlowEvent)>()
        + NAMED_MAX * (size_of::<Behind>() + 2 * size_of::<(Happened, Written)>()))
        as u64;

    pub(super) fn new(names: Arc<dyn TranslationSource>) -> Self {
        let (unnamed, behind, written) = (VecDeque::new(), VecDeque::new(), HashMap::new());
        OneName { names, unnamed, behind, written, interval: 0, is_beyond: false }
    }

    /// Takes an event.
    pub(super) fn put(&mut self, event: FlowEvent, now: Instant, write: Write) {
        if self.unnamed.len() == UNNAMED_MAX
            && let Some((_, oldest)) = self.unnamed.pop_front()
        {
            self.name(oldest, write);
        }
        // The kernel may forget the name sooner than a second from now, if it is known.
        self.unnamed.push_back((now, FlowEvent { nat: self.nat_of(&event), ..event }));
    }

    /// Whether events wait for their names.
    pub(super) fn waits(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// Writes what has waited long enough for its name.
    pub(super) fn pass(&mut self, now: Instant, write: Write) {
        while self.unnamed.front().is_some_and(|(since, _)| now.duration_since(*since) >= NAME_WAIT)
            && let Some((_, event)) = self.unnamed.pop_front()
        {
            self.name(event, write);
        }
    }

    /// Counts the end of an interval, and writes what has waited for its other name long enough.
    pub(super) fn end_interval(&mut self, write: Write) {
        self.interval += 1;
        while self.behind.front().is_some_and(|behind| self.interval - behind.interval >= INTERVALS_WAITED)
            && let Some(behind) = self.behind.pop_front()
        {
            self.write_unless_met(&behind, write);
        }
        // Its other half has been written or passed over by then.
        self.written.retain(|_, written| self.interval - written.interval <= 2 * INTERVALS_WAITED);
    }

    /// Writes all that waits.
    pub(super) fn finish(&mut self, write: Write) {
        while let Some((_, event)) = self.unnamed.pop_front() {
            self.name(event, write);
        }
        while let Some(behind) = self.behind.pop_front() {
            self.write_unless_met(&behind, write);
        }
    }

    /// When the first of what waits happened, in ns since 1970.
    pub(super) fn oldest_ns(&self) -> Option<i64> {
        let events = self.unnamed.iter().map(|(_, event)| event).chain(self.behind.iter().map(|behind| &behind.event));
        events.map(|event| event.flow.end_ns).min()
    }

    /// Whether, since this was asked before, events were written under both names, because there were too many.
    pub(super) fn take_beyond(&mut self) -> bool {
        std::mem::take(&mut self.is_beyond)
    }

    /// The other name of an event's connection, if that is translated and known.
    fn nat_of(&self, event: &FlowEvent) -> Option<Nat> {
        let key = AnyKey::of_ends(event.flow.client, event.flow.server, VlanTags::NONE)?;
        self.names.name_of(&key)
    }

    /// Writes an event whose name is known now as well as it will be, unless it is to wait for the other one.
    fn name(&mut self, event: FlowEvent, write: Write) {
        let nat = event.nat.or_else(|| self.nat_of(&event));
        let event = FlowEvent { nat, ..event };
        let Some(nat) = nat else { return write(&event) };
        let before = if nat.is_original { (nat.client, nat.server) } else { (event.flow.client, event.flow.server) };
        let Some(key) = AnyKey::of_ends(before.0, before.1, VlanTags::NONE) else { return write(&event) };
        let happened = (key.canonical(), event.change);
        if nat.is_original {
            if self.behind.len() == NAMED_MAX
                && let Some(oldest) = self.behind.pop_front()
            {
                self.is_beyond |= self.write_unless_met(&oldest, write);
            }
            self.behind.push_back(Behind { happened, event, interval: self.interval });
            return;
        }
        write(&event);
        let interval = self.interval;
        if let Some(written) = self.written.get_mut(&happened) {
            (written.count, written.interval) = (written.count.saturating_add(1), interval);
        } else if self.written.len() < NAMED_MAX {
            self.written.insert(happened, Written { count: 1, interval });
        } else {
            self.is_beyond = true;
        }
    }

    /// Writes an event under the name behind the translation, unless it was written under the one before. Returns
    /// whether it was written.
    fn write_unless_met(&mut self, behind: &Behind, write: Write) -> bool {
        if let Some(written) = self.written.get_mut(&behind.happened)
            && written.count > 0
        {
            written.count -= 1;
            return false;
        }
        write(&behind.event);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::ArchivedFlow;
    use crate::list::Translations;
    use crate::record::Record;
    use std::sync::Mutex;

    struct Known(Mutex<Translations>);

    impl TranslationSource for Known {
        fn with_current(&self, with: &mut dyn FnMut(&mut Translations)) {
            with(&mut self.0.lock().unwrap());
        }
    }

    const SERVER: &str = "192.0.2.1:443";

    fn key(client: &str) -> AnyKey {
        AnyKey::of_ends(client.parse().unwrap(), SERVER.parse().unwrap(), VlanTags::NONE).unwrap()
    }

    fn event(client: &str, change: Change) -> FlowEvent {
        let record = Record {
            key: key(client),
            start: 0,
            end: 1,
            clock_set: 0,
            ending: None,
            seen: None,
            midstream: false,
            may_be_older: false,
        };
        let flow = ArchivedFlow::from(&crate::archive::Entry::from(&record));
        FlowEvent { change, flow, sequence: 0, seen: None, nat: None }
    }

    /// What is written, as client, change, and which name the other one is.
    #[derive(Default)]
    struct Log(Vec<(String, Change, Option<&'static str>)>);

    impl Log {
        fn write(&mut self) -> impl FnMut(&FlowEvent) {
            |event| self.0.push((event.flow.client.to_string(), event.change, event.nat.map(|nat| nat.name())))
        }
    }

    fn start() -> (Arc<Known>, OneName, Instant) {
        let known = Arc::new(Known(Mutex::new(Translations::new(100))));
        (Arc::clone(&known), OneName::new(known), Instant::now())
    }

    const INSIDE: &str = "10.0.0.1:1000";
    const OUTSIDE: &str = "198.51.100.1:2000";

    #[test]
    fn an_event_under_both_names_is_written_under_the_one_that_its_client_has() {
        for order in [[INSIDE, OUTSIDE], [OUTSIDE, INSIDE]] {
            let (known, mut one_name, began) = start();
            let mut log = Log::default();
            for client in order {
                one_name.put(event(client, Change::Opened), began, &mut log.write());
            }
            // The kernel says it a moment later.
            known.0.lock().unwrap().put(&key(INSIDE), &key(OUTSIDE));
            one_name.pass(began + NAME_WAIT / 2, &mut log.write());
            assert!(log.0.is_empty() && one_name.waits());
            one_name.pass(began + NAME_WAIT, &mut log.write());
            for client in order {
                one_name.put(event(client, Change::Closed), began + NAME_WAIT, &mut log.write());
            }
            one_name.pass(began + 2 * NAME_WAIT, &mut log.write());
            (0..3).for_each(|_| one_name.end_interval(&mut log.write()));
            let expected =
                [Change::Opened, Change::Closed].map(|change| (INSIDE.to_owned(), change, Some("translated")));
            assert_eq!(log.0, expected, "{order:?}");
            assert!(one_name.oldest_ns().is_none());
        }
    }

    #[test]
    fn what_comes_under_the_name_behind_the_translation_alone_is_written_two_intervals_later() {
        let (known, mut one_name, began) = start();
        known.0.lock().unwrap().put(&key(INSIDE), &key(OUTSIDE));
        let mut log = Log::default();
        for change in [Change::Opened, Change::Closed] {
            one_name.put(event(OUTSIDE, change), began, &mut log.write());
        }
        one_name.pass(began + NAME_WAIT, &mut log.write());
        one_name.end_interval(&mut log.write());
        assert!(log.0.is_empty() && one_name.oldest_ns().is_some());
        one_name.end_interval(&mut log.write());
        let expected = [Change::Opened, Change::Closed].map(|change| (OUTSIDE.to_owned(), change, Some("original")));
        assert_eq!(log.0, expected);
    }

    #[test]
    fn the_end_of_a_run_waits_for_nothing() {
        let (known, mut one_name, began) = start();
        known.0.lock().unwrap().put(&key(INSIDE), &key(OUTSIDE));
        let mut log = Log::default();
        for client in [OUTSIDE, INSIDE, "10.0.0.9:9"] {
            one_name.put(event(client, Change::Closed), began, &mut log.write());
        }
        one_name.finish(&mut log.write());
        let written: Vec<_> = log.0.iter().map(|(client, _, nat)| (client.as_str(), *nat)).collect();
        assert_eq!(written, [(INSIDE, Some("translated")), ("10.0.0.9:9", None)]);
    }

    #[test]
    fn a_connection_that_comes_again_has_its_events_again() {
        let (known, mut one_name, began) = start();
        known.0.lock().unwrap().put(&key(INSIDE), &key(OUTSIDE));
        let mut log = Log::default();
        for client in [INSIDE, OUTSIDE, INSIDE, OUTSIDE, OUTSIDE] {
            one_name.put(event(client, Change::Closed), began, &mut log.write());
        }
        one_name.finish(&mut log.write());
        let written: Vec<_> = log.0.iter().map(|(client, ..)| client.as_str()).collect();
        assert_eq!(written, [INSIDE, INSIDE, OUTSIDE], "the last has no other half");
    }

    #[test]
    fn more_than_can_wait_is_written_and_said() {
        let (known, mut one_name, began) = start();
        known.0.lock().unwrap().put(&key(INSIDE), &key(OUTSIDE));
        let mut count = 0;
        for _ in 0..UNNAMED_MAX + NAMED_MAX + 10 {
            one_name.put(event(OUTSIDE, Change::Closed), began, &mut |_| count += 1);
        }
        assert_eq!(count, 10);
        assert!(one_name.take_beyond() && !one_name.take_beyond());
    }
}
