//! The ends of connections in an interval, for a list that says what closed since the one before.

use crate::flow::AnyKey;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// Both sides sent a FIN.
    Fin,
    /// One side sent a RST.
    Rst,
    /// Nothing was seen of it for too long.
    Timeout,
    /// It was evicted because of its age.
    Evicted,
    /// Another connection between the same ends took its place: its end was not seen.
    Replaced,
    /// It did not end: the record of its end before this one, with the same start, was wrong.
    Reopened,
}

impl Ending {
    /// The name of the reason in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ending::Fin => "fin",
            Ending::Rst => "rst",
            Ending::Timeout => "timeout",
            Ending::Evicted => "evicted",
            Ending::Replaced => "replaced",
            Ending::Reopened => "reopened",
        }
    }
}

/// An established connection that ended, or turned out not to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The key, client first.
    pub key: AnyKey,
    /// The payload that it opened with.
    pub payload: u32,
    /// The tick at which it ended.
    pub tick: u64,
    /// How it ended.
    pub ending: Ending,
}

/// What ended in one partition, in order, up to a number.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    all: Vec<Ended>,
    count_max: usize,
    lost: u64,
}

impl Ends {
    /// Room for so many ends. It takes memory as they come.
    #[must_use]
    pub fn new(count_max: usize) -> Self {
        Ends { all: Vec::new(), count_max, lost: 0 }
    }

    /// Adds an end. Without room for it, it is counted alone.
    pub fn push(&mut self, ended: Ended) {
        if self.all.len() < self.count_max {
            self.all.push(ended);
        } else {
            self.lost += 1;
        }
    }

    /// Adds what came later. What was empty takes its place.
    pub fn append(&mut self, later: Ends) {
        if self.all.is_empty() {
            self.lost += later.lost;
            (self.all, self.count_max) = (later.all, later.count_max);
            return;
        }
        later.all.into_iter().for_each(|ended| self.push(ended));
        self.lost += later.lost;
    }

    /// Takes all of them out.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Ends::new(self.count_max))
    }

    /// Those that there was room for, in order.
    #[must_use]
    pub fn all(&self) -> &[Ended] {
        &self.all
    }

    /// How many there was no room for.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, VlanTags};

    fn ended(number: u32) -> Ended {
        let key = AnyKey::V4(KeyV4::new((number, 40_000), (7, 443), VlanTags::NONE));
        Ended { key, payload: 1, tick: u64::from(number), ending: Ending::Fin }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_also_where_intervals_are_merged() {
        let of = |numbers: std::ops::Range<u32>| {
            let mut ends = Ends::new(3);
            numbers.for_each(|number| ends.push(ended(number)));
            ends
        };
        let mut gathered = Ends::default();
        gathered.append(of(0..2));
        assert_eq!((gathered.all().len(), gathered.lost()), (2, 0));
        gathered.append(of(2..7));
        assert_eq!((gathered.all(), gathered.lost()), (&[ended(0), ended(1), ended(2)][..], 4));
        assert_eq!(gathered.take().lost(), 4);
        assert_eq!((gathered.all().len(), gathered.lost()), (0, 0));
    }
}
