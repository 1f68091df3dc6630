//! The order of groups while somebody pages through them.
//!
//! Groups are shown by their size, which changes while connections come and go, so a place in that order means nothing
//! a view later. The order in which the first page was is therefore remembered, and later pages follow it: the groups
//! that were largest then, and behind them all others in the order of what they have in common, which never changes.
//! So each group that stays is on exactly one page, with the size that it has now.
//!
//! What is remembered has a limit. Of too many orders the one goes that was not asked for the longest.

use flowpeel::select::GroupKey;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// How many of the largest groups an order has: more than anybody scrolls through.
const NAME_COUNT_MAX: usize = 4_096;

/// What all orders take at most, in bytes: some sixty of the longest, or thousands of short ones.
const SIZE_MAX: usize = 8 << 20;

/// What an order takes beside its names, in bytes, in round numbers.
const ORDER_SIZE: usize = 128;

/// What the connections of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupName {
    /// What lists are grouped by.
    Key(GroupKey),
    /// A router that sees them.
    Router(String),
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupName::Key(key) => key.fmt(f),
            GroupName::Router(name) => f.write_str(name),
        }
    }
}

impl GroupName {
    fn size(&self) -> usize {
        let text_size = if let GroupName::Router(name) = self { name.capacity() } else { 0 };
        size_of::<GroupName>() + text_size
    }
}

/// The groups that were the largest when the first page was asked for, in the order in which they were.
#[derive(Debug)]
pub struct GroupOrder {
    id: u64,
    names: Vec<GroupName>,
}

impl GroupOrder {
    /// What it is found by.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The groups.
    #[must_use]
    pub fn names(&self) -> &[GroupName] {
        &self.names
    }

    /// The groups, to look one up.
    #[must_use]
    pub fn set(&self) -> BTreeSet<&GroupName> {
        self.names.iter().collect()
    }

    fn size(&self) -> usize {
        ORDER_SIZE + self.names.iter().map(GroupName::size).sum::<usize>()
    }
}

/// The orders that are remembered.
#[derive(Debug)]
pub struct GroupOrders {
    /// The one that was not asked for the longest is first.
    kept: Mutex<Kept>,
    name_count_max: usize,
    size_max: usize,
}

#[derive(Debug)]
struct Kept {
    orders: VecDeque<Arc<GroupOrder>>,
    size: usize,
    next_id: u64,
}

impl Default for GroupOrders {
    fn default() -> Self {
        GroupOrders::new(NAME_COUNT_MAX, SIZE_MAX)
    }
}

impl GroupOrders {
    /// None yet, with so many groups in each, and so many bytes together.
    pub(crate) fn new(name_count_max: usize, size_max: usize) -> Self {
        // What a server before this one gave out must not be found here as something else.
        let next_id = RandomState::new().hash_one(());
        GroupOrders { kept: Mutex::new(Kept { orders: VecDeque::new(), size: 0, next_id }), name_count_max, size_max }
    }

    /// Remembers groups in this order. One that is the same already is that.
    pub fn remember(&self, names: impl IntoIterator<Item = GroupName>) -> Arc<GroupOrder> {
        let names: Vec<GroupName> = names.into_iter().take(self.name_count_max).collect();
        let mut kept = self.kept.lock();
        if let Some(place) = kept.orders.iter().position(|order| order.names == names)
            && let Some(order) = kept.used(place)
        {
            return order;
        }
        let order = Arc::new(GroupOrder { id: kept.next_id, names });
        kept.next_id = kept.next_id.wrapping_add(1);
        kept.size += order.size();
        kept.orders.push_back(Arc::clone(&order));
        while kept.size > self.size_max
            && let Some(oldest) = kept.orders.pop_front()
        {
            kept.size -= oldest.size();
        }
        order
    }

    /// The order of this number, if it is remembered still.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<Arc<GroupOrder>> {
        let mut kept = self.kept.lock();
        let place = kept.orders.iter().position(|order| order.id == id)?;
        kept.used(place)
    }
}

impl Kept {
    /// The order at this place, which is now the one that was asked for last.
    fn used(&mut self, place: usize) -> Option<Arc<GroupOrder>> {
        let order = self.orders.remove(place)?;
        self.orders.push_back(Arc::clone(&order));
        Some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ports: std::ops::Range<u16>) -> impl Iterator<Item = GroupName> {
        ports.map(|port| GroupName::Key(GroupKey::Port(port)))
    }

    #[test]
    fn what_was_not_asked_for_the_longest_is_forgotten() {
        let size = |count: usize| ORDER_SIZE + count * size_of::<GroupName>();
        let orders = GroupOrders::new(10, 2 * size(10));
        let (one, two) = (orders.remember(names(0..20)).id(), orders.remember(names(5..20)).id());
        assert_eq!(orders.find(one).unwrap().names(), names(0..10).collect::<Vec<_>>());
        assert_eq!(orders.remember(names(0..10)).id(), one, "the same order twice");
        let three = orders.remember(names(7..20)).id();
        assert!(orders.find(two).is_none());
        assert!(orders.find(one).is_some() && orders.find(three).is_some());
        let kept = orders.kept.lock();
        assert_eq!(kept.size, kept.orders.iter().map(|order| order.size()).sum::<usize>());
    }

    #[test]
    fn what_another_server_gave_out_is_not_found() {
        let (one, other) = (GroupOrders::default(), GroupOrders::default());
        let id = one.remember(names(0..3)).id();
        other.remember(names(0..3));
        assert!(other.find(id).is_none());
    }
}
