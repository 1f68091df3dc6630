//! Sums of the open sides of connections that are known nowhere else: an IBLT a family, in which each side that has not
//! ended is an item of its own.
//!
//! The item of a canonical key's first end is that key, the item of its second end is the key named from there. So a
//! FIN, which ends one side, is a removal like any other, and what both sides have ended leaves nothing. However many
//! connections there were, those that are left can be listed once they are few enough (section 1.3 of the paper on
//! IBLTs).

use crate::error::Result;
use crate::flow::{AnyKey, ByFamily, FlowKey, KeyV4, KeyV6, Side};
use crate::handover::{save_cells, saved_cells};
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, Iblt, Peeled, Peeler, Recipient};

/// Sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sides(u8);

impl Sides {
    pub(super) const NONE: Self = Sides(0);
    pub(super) const BOTH: Self = Sides(3);

    /// The side of this end of the canonical key.
    pub(super) const fn of(side: Side) -> Self {
        Sides(1 << side as u8)
    }

    /// The sides with these two bits.
    pub(super) const fn of_bits(bits: u64) -> Self {
        Sides(bits as u8 & Self::BOTH.0)
    }

    pub(super) const fn to_bits(self) -> u64 {
        self.0 as u64
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Sides(self.0 & other.0)
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Sides(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Sides(self.0 & !other.0)
    }

    pub(super) fn has(self, side: Side) -> bool {
        self.and(Sides::of(side)) != Sides::NONE
    }

    fn iter(self) -> impl Iterator<Item = Side> {
        [Side::First, Side::Second].into_iter().filter(move |side| self.has(*side))
    }
}

/// What was taken out of a table, an item each.
struct Items<K>(Vec<(K, i32)>);

impl<K> Recipient<K> for Items<K> {
    /// No item has a value.
    fn belongs(&self, _placement: u128, value: u64) -> bool {
        value == 0
    }

    fn take(&mut self, peeled: Peeled<K>) {
        self.0.push((peeled.change.key, peeled.change.count));
    }
}

/// The sums of one family.
struct FamilySums<K: FlowKey> {
    table: Iblt<K>,
    peeler: Peeler<K>,
}

impl<K: FlowKey> FamilySums<K> {
    fn new(secret: &Secret, geometry: Geometry) -> Self {
        let hash = KeyedHash::new(secret, Purpose::Placement);
        FamilySums { table: Iblt::new(geometry), peeler: Peeler::new(hash, geometry.cell_count()) }
    }

    fn add(&mut self, key: &K, count: i32) {
        let change = Change { key: *key, hash: self.peeler.hash().of(key), count, value: 0 };
        self.table.apply_one(&change);
    }

    fn add_sides(&mut self, canonical: &K, sides: Sides, count: i32) {
        for side in sides.iter() {
            let key = if side == Side::First { *canonical } else { canonical.reversed() };
            self.add(&key, count);
        }
    }

    /// Takes all out of the table that can be listed. Returns whether that was all.
    fn take(&mut self, items: &mut Items<K>) -> bool {
        if self.table.estimated_count() > items_max(self.table.geometry()) as u64 {
            return false;
        }
        self.peeler.peel(&mut self.table, items);
        self.table.is_key_free()
    }

    fn put_back(&mut self, items: &Items<K>) {
        items.0.iter().for_each(|(key, count)| self.add(key, *count));
    }
}

/// Joins the items of one family to connections, and passes each, in the order of their canonical keys, to `each`, with
/// how often the side of each end was there.
fn join<K: FlowKey>(items: &mut [(K, i32)], mut each: impl FnMut(K, [i32; 2])) {
    items.sort_unstable_by_key(|(key, _)| key.canonical().0);
    for sides in items.chunk_by(|one, other| one.0.canonical().0 == other.0.canonical().0) {
        let mut counts = [0; 2];
        for (key, count) in sides {
            match key.canonical().1 {
                // An end that is connected with itself has one item for both sides.
                _ if *key == key.reversed() => counts = [count / 2; 2],
                side => counts[side as usize] += count,
            }
        }
        sides.iter().take(1).for_each(|(key, _)| each(key.canonical().0, counts));
    }
}

/// The most items that a table of this shape lists: four subtables list at most one for 1.295 cells.
fn items_max(geometry: Geometry) -> usize {
    geometry.cell_count() * 4 / 5
}

/// The sums of both families. Their memory is fixed when they are made.
pub(super) struct SideSums {
    v4: FamilySums<KeyV4>,
    v6: FamilySums<KeyV6>,
}

impl SideSums {
    /// Empty sums that can list this many IPv4 connections, and half as many of IPv6.
    pub(super) fn new(secret: &Secret, connection_count: usize) -> Self {
        let geometry = Self::geometry(connection_count);
        SideSums { v4: FamilySums::new(secret, geometry.v4), v6: FamilySums::new(secret, geometry.v6) }
    }

    fn geometry(connection_count: usize) -> ByFamily<Geometry> {
        // An item a side; and IPv6 is mostly the lesser part.
        let item_count = 2 * connection_count as u64;
        ByFamily { v4: Geometry::for_items(item_count), v6: Geometry::for_items(item_count / 2) }
    }

    /// The memory of such sums, in bytes: that of the tables, and of what is listed out of them, where a connection
    /// takes so much beside its items.
    pub(super) fn size(connection_count: usize, connection_size: usize) -> usize {
        let ByFamily { v4, v6 } = Self::geometry(connection_count);
        // The peeler has a place of four bytes for every other cell.
        let listed = |geometry: Geometry, item_size: usize| {
            items_max(geometry) * (item_size + connection_size) + geometry.cell_count() / 2 * size_of::<u32>()
        };
        Self::tables_size(connection_count)
            + listed(v4, size_of::<(KeyV4, i32)>())
            + listed(v6, size_of::<(KeyV6, i32)>())
    }

    /// The memory of the tables, in bytes.
    pub(super) fn tables_size(connection_count: usize) -> usize {
        let ByFamily { v4, v6 } = Self::geometry(connection_count);
        Iblt::<KeyV4>::size(v4) + Iblt::<KeyV6>::size(v6)
    }

    /// Adds (1) or removes (-1) sides of the connection with this canonical key.
    pub(super) fn add(&mut self, key: &AnyKey, sides: Sides, count: i32) {
        match key {
            AnyKey::V4(key) => self.v4.add_sides(key, sides, count),
            AnyKey::V6(key) => self.v6.add_sides(key, sides, count),
        }
    }

    /// Puts back a connection that [`Self::take_all`] took out.
    pub(super) fn put_back(&mut self, key: &AnyKey, counts: [i32; 2]) {
        for (side, count) in [Side::First, Side::Second].into_iter().zip(counts) {
            self.add(key, Sides::of(side), count);
        }
    }

    /// Takes all connections out, and passes each to `each`, in the order of their canonical keys, IPv4 first, with how
    /// often the side of each end was added; removed, if negative. Returns whether that was possible; if they are too
    /// many to be listed nothing is changed.
    ///
    /// Complexity: a pass over the cells, and k random accesses an item.
    pub(super) fn take_all(&mut self, mut each: impl FnMut(AnyKey, [i32; 2])) -> bool {
        let (mut v4, mut v6) = (Items(Vec::new()), Items(Vec::new()));
        if !self.v4.take(&mut v4) || !self.v6.take(&mut v6) {
            self.v4.put_back(&v4);
            self.v6.put_back(&v6);
            return false;
        }
        join(&mut v4.0, |key, counts| each(AnyKey::V4(key), counts));
        join(&mut v6.0, |key, counts| each(AnyKey::V6(key), counts));
        true
    }

    /// Empties the sums.
    pub(super) fn clear(&mut self) {
        self.v4.table.clear();
        self.v6.table.clear();
    }

    /// Writes the sums into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        save_cells(&self.v4.table, encoder);
        save_cells(&self.v6.table, encoder);
    }

    /// Reads the sums from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode sums of this size.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.v4.table = saved_cells(self.v4.table.geometry(), decoder)?;
        self.v6.table = saved_cells(self.v6.table.geometry(), decoder)?;
        Ok(())
    }
}
