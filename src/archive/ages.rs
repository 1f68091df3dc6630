//! The open connections that are so old that their records do not know when they started.
//!
//! It takes the rows of a list and gives records with corrected starts. The connection filter knows a start up to the
//! wrap of its ticks, 29 hours; the list knows it for good. So the list reports the starts of the connections that are
//! older than half of that, and a record is compared with these.

use crate::archive::Entry;
use crate::disk::{Decoder, Encoder};
use crate::error::Result;
use crate::flow::AnyKey;
use crate::list::List;
use crate::signal::{TICK_BITS, TICK_NS};
use ahash::AHashMap;

/// The most connections older than half a wrap of the tick whose starts are remembered: some megabytes.
const ARCHIVE_AGES_MAX: usize = 1 << 16;

const WRAP_TICKS: i64 = 1 << TICK_BITS;

/// The starts of old connections, as of one list, for all that take records, as [`ListFeed`](crate::archive::ListFeed).
#[derive(Debug, Default)]
pub struct Ages {
    starts: AHashMap<AnyKey, i64>,
    /// The end of the list in ticks of wall time; `None` if there was no list, or more old connections than are
    /// remembered.
    whole_at: Option<i64>,
}

impl Ages {
    /// The starts of the connections that are old at the end of this list.
    ///
    /// Complexity: a pass over its established connections.
    #[must_use]
    pub fn of(list: &List) -> Self {
        let mut ages = Ages { starts: AHashMap::new(), whole_at: Some(list.header.figures.end_ns.div_euclid(TICK_NS)) };
        let is_old = |age_ns: i64| age_ns / TICK_NS >= WRAP_TICKS / 2;
        for row in list.established().filter(|row| is_old(row.age_ns)) {
            if ages.starts.len() == ARCHIVE_AGES_MAX {
                ages.whole_at = None;
                break;
            }
            if let Some(key) = AnyKey::of_ends(row.client, row.server, row.vlan) {
                ages.starts.insert(key, row.start_ns.div_euclid(TICK_NS));
            }
        }
        ages
    }

    /// Encodes them for a saved state.
    pub(crate) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.whole_at, Encoder::i64);
        // In an order that is no map's: equal runs have equal states.
        let mut starts: Vec<_> = self.starts.iter().collect();
        starts.sort_unstable();
        encoder.length(starts.len());
        for (key, start) in starts {
            key.save(encoder);
            encoder.i64(*start);
        }
    }

    /// Decodes what was saved.
    pub(crate) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let mut ages = Ages { whole_at: decoder.option(Decoder::i64)?, starts: AHashMap::new() };
        for _ in 0..decoder.length(1 + size_of::<i64>(), ARCHIVE_AGES_MAX)? {
            ages.starts.insert(AnyKey::saved(decoder)?, decoder.i64()?);
        }
        Ok(ages)
    }

    /// An entry with its start corrected, if it is known here.
    pub(crate) fn with_known_start(&self, entry: Entry) -> Entry {
        if !entry.may_be_older {
            return entry;
        }
        match self.starts.get(&entry.key) {
            Some(start) if (entry.start - start) % WRAP_TICKS == 0 => {
                Entry { start: *start, may_be_older: false, ..entry }
            }
            // A connection that was younger than half the wrap at the list's end is not a whole wrap old yet.
            None if self.whole_at.is_some_and(|at| entry.end - at < WRAP_TICKS / 2) => {
                Entry { may_be_older: false, ..entry }
            }
            _ => entry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Fate;
    use crate::flow::VlanTags;
    use crate::record::Ending;

    #[test]
    fn an_old_start_is_put_right_and_a_young_one_believed() {
        let key =
            |port| AnyKey::of_ends(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 443).into(), VlanTags::NONE).unwrap();
        let day = WRAP_TICKS;
        let ages = Ages { starts: AHashMap::from_iter([(key(1), 5)]), whole_at: Some(3 * day) };
        let fate = Fate::Ended(Ending::Fin);
        let entry = |port, start| Entry {
            end: 3 * day + 100,
            key: key(port),
            start,
            clock_set: 0,
            fate,
            midstream: false,
            may_be_older: true,
        };
        let corrected = ages.with_known_start(entry(1, 5 + 3 * day));
        assert_eq!((corrected.start, corrected.may_be_older), (5, false));
        let reused = ages.with_known_start(entry(1, 77 + 3 * day));
        assert_eq!((reused.start, reused.may_be_older), (77 + 3 * day, true));
        let young = ages.with_known_start(entry(2, 3 * day));
        assert_eq!((young.start, young.may_be_older), (3 * day, false));
        assert!(Ages::default().with_known_start(entry(1, 5)).may_be_older, "nobody knows");
        let long_ago = Ages { whole_at: Some(2 * day), ..Ages::default() };
        assert!(long_ago.with_known_start(entry(2, 3 * day)).may_be_older);
    }
}
