//! The life of one connection: what the lists have shown of it since it is looked at.

use crate::list::{Nat, Row, RowState};
use crate::view::protocol::{Connection, Ends, RowObject};

/// The moments of one connection that are kept: handshake, end, and a few returns.
const MOMENTS_MAX: usize = 32;

/// A connection that is looked at.
#[derive(Debug, PartialEq)]
pub(super) struct Life {
    ends: Ends,
    /// Its row when it was listed last.
    pub(super) row: Row,
    /// Whether the latest rows have it.
    pub(super) is_listed: bool,
    /// Its other name, where the router translates it.
    pub(super) nat: Option<Nat>,
    /// How many connections its ends have; `None` until that came.
    pub(super) neighbours: Option<Neighbours>,
    /// What happened to it, and at the end of which list that was seen, in ns since 1970.
    pub(super) moments: Vec<(i64, Moment)>,
}

/// What a list shows of a connection that the one before did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// It is in this state.
    Is(RowState),
    /// It is listed no more.
    Left,
}

/// How many connections the ends of a connection have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbours {
    pub(super) of_client: u64,
    pub(super) of_server: u64,
    pub(super) of_both: u64,
}

impl Life {
    /// The life of a connection, from a list with this end on.
    pub(super) fn new(row: &RowObject, list_end_ns: i64) -> Self {
        Life {
            ends: row.ends.clone(),
            row: Row::from(row),
            is_listed: true,
            nat: None,
            neighbours: None,
            moments: vec![(list_end_ns, Moment::Is(row.state))],
        }
    }

    /// Its addresses and ports.
    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Takes what a list with this end shows of it.
    pub(super) fn take(&mut self, connection: Connection, list_end_ns: i64) {
        let Connection { ends, row, nat, of_client, of_server, of_both } = connection;
        if ends != self.ends {
            return;
        }
        let moment = row.as_ref().map_or(Moment::Left, |row| Moment::Is(row.state));
        if self.moments.last().is_none_or(|(_, last)| *last != moment) {
            if self.moments.len() == MOMENTS_MAX {
                self.moments.remove(0);
            }
            self.moments.push((list_end_ns, moment));
        }
        self.is_listed = row.is_some();
        if let Some(row) = &row {
            self.row = Row::from(row);
        }
        // The kernel forgets it behind the end.
        self.nat = nat.or(self.nat);
        self.neighbours = Some(Neighbours { of_client, of_server, of_both });
    }
}
