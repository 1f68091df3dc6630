//! One partition's end of the queue: closings in, records out.
//!
//! It takes what the connection filter knows of a connection that ends, and the time bases, and gives records with wall
//! times, in blocks. A block is sent when it is full, at the end of an interval, at a cut, and when its oldest record
//! is more than a second old.

use crate::disk::{Decoder, Encoder};
use crate::error::Result;
use crate::flow::AnyKey;
use crate::handover::{MIDSTREAM, ticks_since};
use crate::record::{Block, Ending, Inlet, RECORD_BLOCK_COUNT, Record, SidesSeen};
use crate::signal::{TICK_BITS, TICK_NS, TimeBase, TimeBases};

/// How long a record waits for its block to fill, in ticks: a second, so that a crash loses no more.
const RECORD_DELAY_MAX_TICKS: u64 = 10;

const WRAP_TICKS: u64 = 1 << TICK_BITS;

/// The time bases of a run, from which records have their wall times.
#[derive(Clone, Default)]
pub struct RecordedTime {
    bases: TimeBases,
    /// The tick at which the first time base began.
    first_tick: Option<u64>,
}

impl RecordedTime {
    /// Decodes what [`Recorder::save`] encoded.
    ///
    /// # Errors
    ///
    /// The bytes encode no time bases.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(RecordedTime { bases: TimeBases::saved(decoder)?, first_tick: decoder.option(Decoder::u64)? })
    }

    /// The wall time of a tick, in ticks since 1970. Bases are whole ticks apart, so this is exact.
    fn wall(&self, tick: u64) -> i64 {
        self.bases.wall_ns(tick).div_euclid(TICK_NS)
    }
}

/// The recorder of one partition.
pub struct Recorder {
    partition: usize,
    inlet: Inlet,
    block: Box<Block>,
    /// When the oldest record of the block ended, in ticks.
    block_since: u64,
    time: RecordedTime,
    dropped: u64,
}

impl Recorder {
    /// A recorder for this partition.
    #[must_use]
    pub fn new(partition: usize, inlet: Inlet) -> Self {
        let time = RecordedTime::default();
        Recorder { partition, inlet, block: Block::new(), block_since: 0, time, dropped: 0 }
    }

    /// Begins a new time base.
    pub fn start_base(&mut self, base: TimeBase) {
        self.time.first_tick.get_or_insert(base.first_tick);
        self.time.bases.learn(base);
    }

    /// Whether openings are recorded too.
    #[must_use]
    pub fn takes_openings(&self) -> bool {
        self.inlet.takes_openings
    }

    /// Whether the records are for an archive.
    #[must_use]
    pub fn is_of_archive(&self) -> bool {
        self.inlet.is_of_archive
    }

    /// Records a connection that opened with this payload and ends at the tick `now`, after these sides were seen, or,
    /// without an ending, is established then.
    pub fn record(&mut self, key: AnyKey, payload: u32, ending: Option<Ending>, seen: Option<SidesSeen>, now: u64) {
        let run_ticks = now.saturating_sub(self.time.first_tick.unwrap_or(now));
        if self.block.records.is_empty() {
            self.block_since = now;
        }
        let age_ticks = u64::from(ticks_since(payload, now));
        let (start, end) = (self.time.wall(now.saturating_sub(age_ticks)), self.time.wall(now));
        self.block.records.push(Record {
            key,
            start,
            end,
            clock_set: end.saturating_sub(start).saturating_sub_unsigned(age_ticks),
            ending,
            seen,
            midstream: payload & MIDSTREAM != 0,
            may_be_older: run_ticks >= WRAP_TICKS,
        });
        let is_late = now.saturating_sub(self.block_since) > RECORD_DELAY_MAX_TICKS;
        if self.block.records.len() == RECORD_BLOCK_COUNT || is_late {
            self.flush();
        }
    }

    /// Sends the block, if there is anything in it.
    pub fn flush(&mut self) {
        if !self.block.records.is_empty() {
            self.block.partition = self.partition;
            self.dropped += self.inlet.send(&mut self.block);
        }
    }

    /// Sends the block, and then a cut.
    pub fn cut(&mut self) {
        self.flush();
        self.inlet.cut(self.partition, false);
    }

    /// Sends the block, and then the cut at which the state of the run is saved.
    pub fn cut_for_save(&mut self) {
        self.flush();
        self.inlet.cut(self.partition, true);
    }

    /// Encodes what the next record depends on, for a saved state. The block must have been sent.
    pub fn save(&self, encoder: &mut Encoder) {
        debug_assert!(self.block.records.is_empty());
        self.time.bases.save(encoder);
        encoder.option(self.time.first_tick, Encoder::u64);
    }

    /// Continues in the time of a run whose state was saved.
    pub fn restore(&mut self, time: &RecordedTime) {
        self.time = time.clone();
    }

    /// How many records were dropped so far because the queue was full or closed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
