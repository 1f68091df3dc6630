//! What those who take records have to give when the state of a run is saved: a part of the state that fits the records
//! up to the cut.

use crossbeam::channel::{Receiver, Sender, bounded};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Asks for the part of a saved state that is kept outside of the engine.
#[derive(Clone)]
pub struct SaveHandle(Arc<dyn Fn(u64) -> Receiver<Vec<u8>> + Send + Sync>);

impl SaveHandle {
    /// A handle that asks by a command to a thread, which is made of the number of the save and where to reply.
    pub(crate) fn by<C: Send + 'static>(commands: Sender<C>, command: fn(u64, Sender<Vec<u8>>) -> C) -> Self {
        SaveHandle(Arc::new(move |mark| {
            let (reply, receiver) = bounded(1);
            drop(commands.send(command(mark, reply)));
            receiver
        }))
    }

    /// The part of the state that is saved at the save of this number, from 0. It comes when everything up to there is
    /// on the disk. Where that cannot be written nothing comes and the channel closes.
    #[must_use]
    pub fn save(&self, mark: u64) -> Receiver<Vec<u8>> {
        (self.0)(mark)
    }
}

impl fmt::Debug for SaveHandle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("SaveHandle")
    }
}

/// In a replay, what was true at the cuts of saves that were not asked for yet.
pub(crate) struct SaveCuts<T> {
    waiting: VecDeque<T>,
    /// How many saves came before these.
    passed: u64,
}

impl<T> SaveCuts<T> {
    pub(crate) fn new() -> Self {
        SaveCuts { waiting: VecDeque::new(), passed: 0 }
    }

    /// Keeps what is true at the next cut.
    pub(crate) fn push(&mut self, point: T) {
        self.waiting.push_back(point);
    }

    /// What was true at the cut of the save of this number, from 0. Those before it are no longer asked for.
    pub(crate) fn of(&mut self, mark: u64) -> Option<&T> {
        while self.passed < mark && self.waiting.pop_front().is_some() {
            self.passed += 1;
        }
        self.waiting.front()
    }
}
