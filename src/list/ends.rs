//! The ends of connections since a list, in the order of lists.

use crate::error::Result;
use crate::flow::{AnyKey, ByFamily, FlowKey, KeyV4, KeyV6, saved_key};
use crate::handover::{Ended, Ending, Ends, MIDSTREAM, ticks_since};
use crate::list::row::Listed;
use crate::signal::TICK_BITS;
use crate::state::{Decoder, Encoder};

/// The most ends that are kept for a later list because this one still shows the connection: a list that could not be
/// decoded to its end lacks a few.
const UNLISTED_ENDS_MAX: usize = 1 << 12;

/// An end, in the order of lists and of one connection in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndedRow<K> {
    pub(super) key: K,
    /// Its place among the ends of the partition, which has all connections with this key.
    order: u32,
    payload: u32,
    pub(super) tick: u64,
    pub(super) ending: Ending,
}

impl<K> EndedRow<K> {
    /// The latest tick at which it can have started.
    pub(super) fn start_tick(&self) -> u64 {
        self.tick.saturating_sub(u64::from(ticks_since(self.payload, self.tick)))
    }

    pub(super) fn is_midstream(&self) -> bool {
        self.payload & MIDSTREAM != 0
    }

    /// Whether this is the end of a connection that started at this tick. Payloads have the low bits of a tick alone.
    pub(super) fn started_at(&self, tick: u64) -> bool {
        const MASK: u32 = (1 << TICK_BITS) - 1;
        (tick as u32 ^ self.payload) & MASK == 0
    }
}

/// The connections that ended since a list.
#[derive(Default)]
pub struct ListEnds {
    rows: ByFamily<Vec<EndedRow<KeyV4>>, Vec<EndedRow<KeyV6>>>,
    /// How many there was no room for.
    lost: u64,
}

impl ListEnds {
    /// What one end takes, in bytes: on the way from its partition to the list, and here.
    pub const ENTRY_SIZE: usize = 2 * size_of::<Ended>() + size_of::<EndedRow<KeyV6>>();

    /// Gathers the ends of an interval after those that an earlier list had no use for.
    ///
    /// Complexity: sorts them.
    pub fn gather(&mut self, earlier: &UnlistedEnds, ends: &[Ends]) {
        self.rows.v4.clear();
        self.rows.v6.clear();
        self.rows.v4.extend_from_slice(&earlier.rows.v4);
        self.rows.v6.extend_from_slice(&earlier.rows.v6);
        self.lost = ends.iter().map(Ends::lost).sum();
        for ends in ends {
            for (order, ended) in ends.all().iter().enumerate() {
                // Those before come from earlier lists.
                let order = u32::try_from(order + UNLISTED_ENDS_MAX).unwrap_or(u32::MAX);
                let Ended { payload, tick, ending, .. } = *ended;
                match ended.key {
                    AnyKey::V4(key) => self.rows.v4.push(EndedRow { key, order, payload, tick, ending }),
                    AnyKey::V6(key) => self.rows.v6.push(EndedRow { key, order, payload, tick, ending }),
                }
            }
        }
        settle(&mut self.rows.v4);
        settle(&mut self.rows.v6);
    }

    /// How many ends there was no room for.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn v4(&self) -> &[EndedRow<KeyV4>] {
        &self.rows.v4
    }

    pub(super) fn v6(&self) -> &[EndedRow<KeyV6>] {
        &self.rows.v6
    }
}

/// Brings ends into order, and leaves out those that turned out to be none.
fn settle<K: FlowKey>(rows: &mut Vec<EndedRow<K>>) {
    rows.sort_unstable();
    let mut kept = 0;
    for at in 0..rows.len() {
        let row = rows[at];
        if row.ending != Ending::Reopened {
            rows[kept] = row;
            kept += 1;
        } else if kept > 0 && rows[kept - 1].key == row.key && rows[kept - 1].payload == row.payload {
            kept -= 1;
        }
    }
    rows.truncate(kept);
}

/// The ends of connections that a list still showed.
#[derive(Default)]
pub struct UnlistedEnds {
    rows: ByFamily<Vec<EndedRow<KeyV4>>, Vec<EndedRow<KeyV6>>>,
}

impl UnlistedEnds {
    /// Keeps of these ends those whose connection is among these rows, both in the order of lists.
    pub(super) fn keep<'a>(
        &mut self,
        ends: &ListEnds,
        v4: impl Iterator<Item = &'a Listed<KeyV4>>,
        v6: impl Iterator<Item = &'a Listed<KeyV6>>,
    ) {
        keep(&mut self.rows.v4, ends.v4(), v4);
        keep(&mut self.rows.v6, ends.v6(), v6);
    }

    /// Encodes them for a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        save_rows(encoder, &self.rows.v4);
        save_rows(encoder, &self.rows.v6);
    }

    /// Decodes what was saved.
    ///
    /// # Errors
    ///
    /// The bytes are not those of ends.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(UnlistedEnds { rows: ByFamily { v4: saved_rows(decoder)?, v6: saved_rows(decoder)? } })
    }
}

fn keep<'a, K: FlowKey>(
    kept: &mut Vec<EndedRow<K>>,
    ends: &[EndedRow<K>],
    listed: impl Iterator<Item = &'a Listed<K>>,
) {
    kept.clear();
    if ends.is_empty() {
        return;
    }
    let mut listed = listed.peekable();
    for ended in ends {
        while listed.next_if(|row| row.key < ended.key).is_some() {}
        let shown = listed.peek().filter(|row| row.key == ended.key && ended.started_at(row.start_tick()));
        if shown.is_some() && kept.len() < UNLISTED_ENDS_MAX {
            let order = kept.len() as u32;
            kept.push(EndedRow { order, ..*ended });
        }
    }
}

fn save_rows<K: FlowKey>(encoder: &mut Encoder, rows: &[EndedRow<K>]) {
    encoder.length(rows.len());
    for row in rows {
        encoder.words(row.key.words());
        encoder.u32(row.payload);
        encoder.u64(row.tick);
        encoder.u8(row.ending as u8);
    }
}

fn saved_rows<K: FlowKey>(decoder: &mut Decoder) -> Result<Vec<EndedRow<K>>> {
    let count = decoder.length(K::WORD_COUNT * size_of::<u64>() + size_of::<u32>(), UNLISTED_ENDS_MAX)?;
    let mut rows = Vec::with_capacity(count);
    for order in 0..count as u32 {
        let (key, payload, tick, code) = (saved_key(decoder)?, decoder.u32()?, decoder.count()?, decoder.u8()?);
        let ending = [Ending::Fin, Ending::Rst, Ending::Timeout, Ending::Evicted, Ending::Replaced]
            .into_iter()
            .find(|ending| *ending as u8 == code);
        rows.push(EndedRow { key, order, payload, tick, ending: decoder.some(ending, "an unknown way to end")? });
    }
    Ok(rows)
}
