//! The joined view: each open connection of a network once, with the routers that see it.
//!
//! Each router's list comes in the order of keys, so one pass merges all of them, and nothing is held but what comes
//! out. A connection takes its key, a word for its course, and a bit for each router: 24 bytes and a bit a router for
//! IPv4, 48 for IPv6. Two bits more a router say which side alone it saw, where any router saw one side alone.

use flowpeel::error::{Error, Result};
use flowpeel::flow::{AnyKey, FlowKey, KeyV4, KeyV6};
use flowpeel::handover::SidesSeen;
use flowpeel::list::{Row, RowState};
use flowpeel::select::Rows;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The most routers of a view: the names of all of them stand in a line of a connection that all of them see.
pub const ROUTER_COUNT_MAX: usize = 1_024;

/// What is known of a connection beside its key, in one word: from the top bit down two bits for the state, one for a
/// start that is a bound, one for midstream, one for unsettled, and the start in µs since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Course(u64);

impl Course {
    const START_BITS: u32 = 59;
    const UNSETTLED: u64 = 1 << Self::START_BITS;
    const MIDSTREAM: u64 = Self::UNSETTLED << 1;
    const BOUND: u64 = Self::MIDSTREAM << 1;
    const STATE_SHIFT: u32 = Self::START_BITS + 3;
    const START_MASK: u64 = Self::UNSETTLED - 1;

    fn of(row: &Row) -> Self {
        let flags =
            [(row.start_is_bound, Self::BOUND), (row.midstream, Self::MIDSTREAM), (row.unsettled, Self::UNSETTLED)];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        // All times in ns that there are have fewer bits in µs.
        let start_us = row.start_ns.div_euclid(1_000) as u64 & Self::START_MASK;
        Course((row.state as u64) << Self::STATE_SHIFT | flags | start_us)
    }

    fn state(self) -> RowState {
        match self.0 >> Self::STATE_SHIFT {
            0 => RowState::Established,
            1 => RowState::SynSent,
            _ => RowState::SynRecv,
        }
    }

    fn start_us(self) -> i64 {
        let unused = u64::BITS - Self::START_BITS;
        (self.0 << unused) as i64 >> unused
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// The course of a connection that two routers tell differently: the first start, the most advanced state. It is
    /// midstream or unsettled if it is so for both, and the start is a bound if it is for the one who tells the first.
    fn joined(self, other: Self) -> Self {
        let (first, later) = if self.start_us() <= other.start_us() { (self, other) } else { (other, self) };
        let is_same = first.start_us() == later.start_us();
        let bound = if is_same { first.0 & later.0 } else { first.0 } & Self::BOUND;
        let both = first.0 & later.0 & (Self::MIDSTREAM | Self::UNSETTLED);
        let state = if advance(first.state()) >= advance(later.state()) { first } else { later }.state();
        Course((state as u64) << Self::STATE_SHIFT | bound | both | first.0 & Self::START_MASK)
    }
}

const _: () =
    assert!(RowState::Established as u64 == 0 && RowState::SynSent as u64 == 1 && RowState::SynRecv as u64 == 2);
const _: () = assert!(i64::MAX / 1_000 < 1 << (Course::START_BITS - 1));

/// How far a state is on the way to established.
fn advance(state: RowState) -> u8 {
    match state {
        RowState::SynSent => 0,
        RowState::SynRecv => 1,
        RowState::Established => 2,
    }
}

/// The connections of one family, as columns in the order of keys.
struct Table<K> {
    keys: Vec<K>,
    courses: Vec<Course>,
    /// For each connection the bits of its routers, `set_size` bytes.
    seen: Vec<u8>,
    /// The bits of those that saw the client's side alone, then of those that saw the server's side alone. Empty until
    /// there is one, and so short as the last connection that has one says.
    one_sided: Vec<u8>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table { keys: Vec::new(), courses: Vec::new(), seen: Vec::new(), one_sided: Vec::new() }
    }
}

impl<K: FlowKey> Table<K> {
    /// Adds what a router says of a connection, which comes after all others or is the last of them.
    fn add(&mut self, key: K, (course, sides): (Course, SidesSeen), router: usize, set_size: usize) {
        match (self.keys.last(), self.courses.last_mut()) {
            (Some(last), Some(known)) if *last == key => *known = known.joined(course),
            _ => {
                self.keys.push(key);
                self.courses.push(course);
                self.seen.resize(self.keys.len() * set_size, 0);
            }
        }
        let set = self.seen.len() - set_size;
        if let Some(byte) = self.seen.get_mut(set + router / 8) {
            *byte |= 1 << (router % 8);
        }
        let shift = match sides {
            SidesSeen::Both => return,
            SidesSeen::Client => 0,
            SidesSeen::Server => set_size,
        };
        self.one_sided.resize(2 * self.seen.len(), 0);
        if let Some(byte) = self.one_sided.get_mut(2 * set + shift + router / 8) {
            *byte |= 1 << (router % 8);
        }
    }

    fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.courses.shrink_to_fit();
        self.seen.shrink_to_fit();
        self.one_sided.shrink_to_fit();
    }

    fn size(&self) -> usize {
        self.keys.capacity() * size_of::<K>()
            + self.courses.capacity() * size_of::<Course>()
            + self.seen.capacity()
            + self.one_sided.capacity()
    }

    fn get(&self, place: usize, set_size: usize) -> Option<(&K, Course, RouterSet<'_>)> {
        let seen = self.seen.get(place * set_size..(place + 1) * set_size)?;
        let one_sided = self.one_sided.get(place * 2 * set_size..(place + 1) * 2 * set_size).unwrap_or_default();
        let (client, server) = one_sided.split_at(one_sided.len() / 2);
        Some((self.keys.get(place)?, *self.courses.get(place)?, RouterSet { seen, client, server }))
    }
}

/// The routers that see a connection, by their places among those that were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterSet<'a> {
    seen: &'a [u8],
    /// Those that saw the client's side alone, and the server's; empty if there is none.
    client: &'a [u8],
    server: &'a [u8],
}

fn has(bits: &[u8], router: usize) -> bool {
    bits.get(router / 8).is_some_and(|byte| byte >> (router % 8) & 1 != 0)
}

impl<'a> RouterSet<'a> {
    /// Their places, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> + 'a {
        let bits = |(at, byte): (usize, &u8)| {
            let byte = *byte;
            (0..8).filter(move |bit| byte >> bit & 1 != 0).map(move |bit| at * 8 + bit)
        };
        self.seen.iter().enumerate().flat_map(bits)
    }

    /// How many they are.
    #[must_use]
    pub fn count(self) -> u32 {
        self.seen.iter().map(|byte| byte.count_ones()).sum()
    }

    /// Whether the router at this place is among them.
    #[must_use]
    pub fn has(self, router: usize) -> bool {
        has(self.seen, router)
    }

    /// The sides that the router at this place saw, which is among them.
    #[must_use]
    pub fn sides_of(self, router: usize) -> SidesSeen {
        match (has(self.client, router), has(self.server, router)) {
            (true, false) => SidesSeen::Client,
            (false, true) => SidesSeen::Server,
            _ => SidesSeen::Both,
        }
    }

    /// Whether any of them saw one side alone.
    #[must_use]
    pub fn is_one_sided(self) -> bool {
        self.client.iter().chain(self.server).any(|byte| *byte != 0)
    }

    /// The sides that they saw together.
    fn sides(self) -> SidesSeen {
        let seen = self.iter().map(|router| self.sides_of(router));
        seen.reduce(|one, other| if one == other { one } else { SidesSeen::Both }).unwrap_or_default()
    }

    /// The bits, as they are: equal sets have equal bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.seen
    }
}

/// The connections of several routers together.
pub struct Joined {
    end_ns: i64,
    set_size: usize,
    v4: Table<KeyV4>,
    v6: Table<KeyV6>,
    established_count: usize,
}

/// Why lists could not be joined: what is wrong with that of the router at this place. The others can be joined.
#[derive(Debug)]
pub struct BadList {
    /// The place of the router.
    pub router: usize,
    /// What is wrong.
    pub error: Error,
}

/// The next connection of a router's list.
struct Next {
    key: AnyKey,
    course: Course,
    sides: SidesSeen,
    router: usize,
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next {}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.key, self.router).cmp(&(other.key, other.router))
    }
}

/// The sides that a router has seen of a connection. Of a half-open one its state gives the side.
fn sides_of(row: &Row) -> SidesSeen {
    match row.state {
        RowState::Established => row.sides,
        RowState::SynSent => SidesSeen::Client,
        RowState::SynRecv => SidesSeen::Server,
    }
}

/// The next connection of a list, which has to come after this key.
fn next(rows: &mut impl Iterator<Item = Result<Row>>, router: usize, before: Option<AnyKey>) -> Result<Option<Next>> {
    let Some(row) = rows.next().transpose()? else { return Ok(None) };
    let key = AnyKey::of_ends(row.client, row.server, row.vlan);
    let key = key.ok_or_else(|| Error::new("a connection goes from one address family to another"))?;
    if before.is_some_and(|before| before >= key) {
        return Err(Error::new("the connections are not in the order of a list"));
    }
    Ok(Some(Next { key, course: Course::of(&row), sides: sides_of(&row), router }))
}

impl Joined {
    /// Joins lists, one of each router, into the view of `end_ns`.
    ///
    /// Complexity: n log r steps for n lines of r lists, and memory for what comes out alone.
    ///
    /// # Errors
    ///
    /// A list cannot be read to its end, or its lines are not in the order of a list.
    pub fn new<I>(end_ns: i64, mut lists: Vec<I>) -> std::result::Result<Self, BadList>
    where
        I: Iterator<Item = Result<Row>>,
    {
        let set_size = lists.len().div_ceil(8);
        let mut joined = Joined { end_ns, set_size, v4: Table::default(), v6: Table::default(), established_count: 0 };
        let mut heads = BinaryHeap::new();
        for (router, rows) in lists.iter_mut().enumerate() {
            heads.extend(next(rows, router, None).map_err(|error| BadList { router, error })?.map(Reverse));
        }
        while let Some(mut head) = heads.peek_mut() {
            let Reverse(Next { key, course, sides, router }) = *head;
            match key {
                AnyKey::V4(key) => joined.v4.add(key, (course, sides), router, set_size),
                AnyKey::V6(key) => joined.v6.add(key, (course, sides), router, set_size),
            }
            let Some(rows) = lists.get_mut(router) else { break };
            match next(rows, router, Some(key)).map_err(|error| BadList { router, error })? {
                Some(after) => *head = Reverse(after),
                None => drop(std::collections::binary_heap::PeekMut::pop(head)),
            }
        }
        joined.v4.shrink();
        joined.v6.shrink();
        let courses = joined.v4.courses.iter().chain(&joined.v6.courses);
        joined.established_count = courses.filter(|course| course.state() == RowState::Established).count();
        Ok(joined)
    }

    /// The time at which the connections are said to be open, in ns since 1970.
    #[must_use]
    pub fn end_ns(&self) -> i64 {
        self.end_ns
    }

    /// How many connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.keys.len() + self.v6.keys.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are established; the others are half-open.
    #[must_use]
    pub fn established_count(&self) -> usize {
        self.established_count
    }

    /// What it takes, in bytes.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.v4.size() + self.v6.size()
    }

    /// The connection at a place of the order of a list, and who sees it.
    ///
    /// Its age runs from the first start to the end of the view.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<(Row, RouterSet<'_>)> {
        match place.checked_sub(self.v4.keys.len()) {
            None => self.v4.get(place, self.set_size).map(|found| self.of(found)),
            Some(place) => self.v6.get(place, self.set_size).map(|found| self.of(found)),
        }
    }

    fn of<'a, K: FlowKey>(&self, (key, course, seen): (&K, Course, RouterSet<'a>)) -> (Row, RouterSet<'a>) {
        let start_ns = course.start_us().saturating_mul(1_000);
        let row = Row {
            client: key.first(),
            server: key.second(),
            vlan: key.vlan(),
            start_ns,
            age_ns: self.end_ns.saturating_sub(start_ns).max(0),
            state: course.state(),
            midstream: course.has(Course::MIDSTREAM),
            unsettled: course.has(Course::UNSETTLED),
            nat: None,
            start_is_bound: course.has(Course::BOUND),
            sides: if course.state() == RowState::Established { seen.sides() } else { SidesSeen::Both },
        };
        (row, seen)
    }

    /// All connections in the order of a list: by client address, client port, server address, server port and VLAN,
    /// IPv4 before IPv6.
    pub fn iter(&self) -> impl Iterator<Item = (Row, RouterSet<'_>)> {
        (0..self.len()).map_while(|place| self.get(place))
    }

    /// The place of the first connection whose key is not before this one.
    #[must_use]
    pub fn place_of(&self, key: &AnyKey) -> usize {
        match key {
            AnyKey::V4(key) => self.v4.keys.partition_point(|known| known < key),
            AnyKey::V6(key) => self.v4.keys.len() + self.v6.keys.partition_point(|known| known < key),
        }
    }
}

impl Rows for Joined {
    fn count(&self) -> usize {
        self.len()
    }

    fn row(&self, place: usize) -> Option<Row> {
        self.get(place).map(|(row, _)| row)
    }
}

#[cfg(test)]
mod tests;
