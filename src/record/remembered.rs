//! Connections that a live run has written behind the state that it continues from: the state takes them to be open, so
//! they are going to end once more, and are recognised then.

/// The most connections that are remembered from behind the save point: at a save a minute, those of 8,000 endings a
/// second over two minutes.
const REMEMBERED_MAX: usize = 1 << 20;

/// Connections by their numbers or hashes.
#[derive(Default)]
pub(crate) struct Remembered {
    /// The numbers, at first as they came, with whether the end was taken back; in order once they are
    /// [sorted](Self::sort), with whether the connection has come again.
    numbers: Vec<(u64, bool)>,
    /// How many there are beyond those that are remembered.
    pub(crate) surplus_count: u64,
}

impl Remembered {
    /// The memory in bytes that it takes at most. At the start of a run, before there is much else, it is twice as
    /// much.
    pub(crate) const SIZE_MAX: u64 = (REMEMBERED_MAX * size_of::<(u64, bool)>()) as u64;

    /// Remembers a connection that has ended.
    pub(crate) fn remember(&mut self, number: u64) {
        self.push(number, false);
    }

    /// Takes back the end of a connection, if it is remembered.
    pub(crate) fn take_back(&mut self, number: u64) {
        self.push(number, true);
    }

    fn push(&mut self, number: u64, is_taken_back: bool) {
        if self.numbers.len() < REMEMBERED_MAX {
            self.numbers.push((number, is_taken_back));
        } else {
            self.surplus_count += 1;
        }
    }

    /// Ends what is remembered: from now on it can be [met](Self::meets).
    pub(crate) fn sort(&mut self) {
        // Of one connection in the order in which they came.
        self.numbers.sort_by_key(|(number, _)| *number);
        let mut ended = Vec::with_capacity(self.numbers.len());
        for same in self.numbers.chunk_by(|(one, _), (other, _)| one == other) {
            let before = ended.len();
            for (number, is_taken_back) in same {
                if !is_taken_back {
                    ended.push((*number, false));
                } else if ended.len() > before {
                    ended.pop();
                }
            }
        }
        self.numbers = ended;
    }

    /// Those that have not been met yet, in order.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().filter(|(_, is_met)| !is_met).map(|(number, _)| *number)
    }

    /// Whether this connection is remembered. Each is met once.
    pub(crate) fn meets(&mut self, number: u64) -> bool {
        let at = self.numbers.partition_point(|(other, _)| *other < number);
        let equal = self.numbers[at..].iter_mut().take_while(|(other, _)| *other == number);
        let unmet = equal.into_iter().find(|(_, is_met)| !is_met);
        unmet.map(|(_, is_met)| *is_met = true).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_is_not_remembered_and_each_is_met_once() {
        let mut remembered = Remembered::default();
        [7, 7, 3, 9].iter().for_each(|number| remembered.remember(*number));
        // An end that was taken back counts only if it came before.
        [3, 5].iter().for_each(|number| remembered.take_back(*number));
        remembered.remember(5);
        remembered.sort();
        assert_eq!(remembered.unmet().collect::<Vec<_>>(), [5, 7, 7, 9]);
        let met: Vec<_> = [7, 3, 7, 7, 5, 4].iter().map(|number| remembered.meets(*number)).collect();
        assert_eq!(met, [true, false, true, false, true, false]);
        assert_eq!(remembered.unmet().collect::<Vec<_>>(), [9]);
    }
}
