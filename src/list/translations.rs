//! Connections whose addresses a router translates (NAT): what they are called on its other side.
//!
//! Captured on both sides, a translated connection is tracked under two names, since nothing in its packets says that
//! they are one. Who knows it, as the kernel does, fills a table of names, and a list then has one line for the two.

use crate::flow::{AnyKey, ByFamily, Family, FlowKey, KeyV4, KeyV6, Side};
use ahash::RandomState;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;

/// The other name of a translated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nat {
    /// The client's address and port under that name.
    pub client: SocketAddr,
    /// The server's.
    pub server: SocketAddr,
    /// Whether it is the name before the translation, as the client has it, and not the one behind it.
    pub is_original: bool,
}

/// The other name of a connection, as a key: with the end first that its own name has first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherKey<K> {
    pub(super) key: K,
    pub(super) is_original: bool,
}

impl<K: FlowKey> OtherKey<K> {
    /// The name as rows have it.
    pub(super) fn nat(&self) -> Nat {
        Nat { client: self.key.first(), server: self.key.second(), is_original: self.is_original }
    }
}

impl Nat {
    /// Which name it is, as lists say.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.is_original { "original" } else { "translated" }
    }
}

/// A connection of IPv6 takes as much of the table as so many of IPv4.
const V6_WEIGHT: usize = 3;

/// The highest number of a list, before they begin again from 1.
const LIST_MAX: u32 = u32::MAX - 1;

const _: () = assert!(size_of::<(KeyV6, OtherName<KeyV6>)>() <= V6_WEIGHT * size_of::<(KeyV4, OtherName<KeyV4>)>());

/// A source of the present translations, for whoever makes lists.
pub trait TranslationSource: Send + Sync {
    /// Calls `with` with the translations as they are now; they do not change meanwhile.
    fn with_current(&self, with: &mut dyn FnMut(&mut Translations));

    /// The other name of a connection as of now: see [`Translations::name_of`].
    fn name_of(&self, key: &AnyKey) -> Option<Nat> {
        let mut nat = None;
        self.with_current(&mut |names| nat = names.name_of(key));
        nat
    }
}

/// The names of translated connections, of so many at most.
pub struct Translations {
    tables: ByFamily<Names<KeyV4>, Names<KeyV6>>,
    count_max: usize,
    /// Translated connections that found no room and are not known to have ended.
    beyond: u64,
    /// Whether changes were missed, so that translations are missing or wrong until [`Self::clear`] and all is put in
    /// again.
    is_stale: bool,
    /// The number of the list whose names were marked last, from 1.
    list: u32,
    /// Whether the names of what has ended stay for the next list, which may say that it ended.
    keeps_ended: bool,
    /// Whether there may be such names.
    has_ended: bool,
}

/// The names of one family, each twice: under the name before and behind the translation.
pub(super) struct Names<K> {
    /// By the canonical key without VLAN tags.
    others: HashMap<K, OtherName<K>, RandomState>,
}

struct OtherName<K> {
    /// The other name, client first.
    key: K,
    /// Which end of the canonical key is the client.
    client: Side,
    /// Whether the other name is the one before the translation.
    is_original: bool,
    /// The list that has this name.
    list: u32,
    /// The list that has it among what ended before it.
    ended_list: u32,
    /// The list after which the connection was removed; 0 if it was not.
    removed_after: u32,
    /// Whether nobody says when the connection ends.
    is_silent: bool,
    /// Whether it was found since the last sweep began.
    is_found: bool,
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Names { others: HashMap::default() }
    }
}

/// A key whose names are in [`Translations`].
pub(super) trait Translated: FlowKey {
    /// The names of this family.
    fn names(translations: &Translations) -> &Names<Self>;
    /// The names of this family, to change them.
    fn names_mut(translations: &mut Translations) -> &mut Names<Self>;
}

impl Translated for KeyV4 {
    fn names(translations: &Translations) -> &Names<Self> {
        &translations.tables.v4
    }

    fn names_mut(translations: &mut Translations) -> &mut Names<Self> {
        &mut translations.tables.v4
    }
}

impl Translated for KeyV6 {
    fn names(translations: &Translations) -> &Names<Self> {
        &translations.tables.v6
    }

    fn names_mut(translations: &mut Translations) -> &mut Names<Self> {
        &mut translations.tables.v6
    }
}

impl<K: FlowKey> Names<K> {
    fn other(&self, key: &K) -> Option<(&OtherName<K>, Side)> {
        let (canonical, first) = key.untagged().canonical();
        self.others.get(&canonical).map(|other| (other, first))
    }

    fn other_mut(&mut self, key: &K) -> Option<&mut OtherName<K>> {
        let (canonical, _) = key.untagged().canonical();
        self.others.get_mut(&canonical)
    }

    fn put(&mut self, name: K, key: K, is_original: bool) {
        let (canonical, client) = name.untagged().canonical();
        let other = OtherName {
            key,
            client,
            is_original,
            list: 0,
            ended_list: 0,
            removed_after: 0,
            is_silent: false,
            is_found: false,
        };
        self.others.insert(canonical, other);
    }

    /// Removes a name of the connection with this other one, or has it removed behind the list after `kept_after`.
    fn remove(&mut self, name: &K, key: &K, kept_after: Option<u32>) -> bool {
        let Some(other) = self.other_mut(name).filter(|other| other.key == *key) else { return false };
        let is_there = other.removed_after == 0;
        match kept_after {
            Some(list) if is_there => other.removed_after = list,
            Some(_) => {}
            None => drop(self.others.remove(&name.untagged().canonical().0)),
        }
        is_there
    }

    /// Takes back that a name was removed.
    fn restore(&mut self, name: &K) {
        if let Some(other) = self.other_mut(name) {
            other.removed_after = 0;
        }
    }

    /// Marks a name as found in a sweep.
    fn find(&mut self, name: &K) {
        if let Some(other) = self.other_mut(name) {
            other.is_found = true;
        }
    }

    /// Marks a name as one of a connection of which nobody says when it ends.
    fn set_silent(&mut self, name: &K) {
        if let Some(other) = self.other_mut(name) {
            (other.is_silent, other.is_found) = (true, true);
        }
    }

    /// Removes what a sweep did not find, at once or behind the list after `kept_after`. Returns whether there are
    /// others of which nobody says when they end.
    fn end_sweep(&mut self, kept_after: Option<u32>) -> bool {
        let is_lost = |other: &OtherName<K>| other.is_silent && !other.is_found;
        match kept_after {
            Some(list) => {
                for other in self.others.values_mut().filter(|other| is_lost(other)) {
                    (other.is_silent, other.removed_after) = (false, list);
                }
            }
            None => self.others.retain(|_, other| !is_lost(other)),
        }
        self.others.values().any(|other| other.is_silent)
    }

    /// Removes for good what was removed before the list `list` was made, and returns whether others are left.
    fn forget(&mut self, list: u32) -> bool {
        self.others.retain(|_, other| [0, list].contains(&other.removed_after));
        self.others.values().any(|other| other.removed_after != 0)
    }
}

impl Translations {
    /// The memory that a table takes for so many connections, in bytes: two entries each, at the load at which the map
    /// is largest for what it holds.
    #[must_use]
    pub fn size(count_max: usize) -> usize {
        let entry_size = size_of::<(KeyV4, OtherName<KeyV4>)>() + 1;
        (2 * count_max * 8).div_ceil(7).next_power_of_two() * entry_size
    }

    /// An empty table for so many connections of IPv4, or a third as many of IPv6.
    #[must_use]
    pub fn new(count_max: usize) -> Self {
        Translations {
            tables: ByFamily { v4: Names::default(), v6: Names::default() },
            count_max,
            beyond: 0,
            is_stale: false,
            list: 1,
            keeps_ended: false,
            has_ended: false,
        }
    }

    /// Keeps the names of what has ended, as long as there is room, until the next list was made: it may have ended
    /// for the kernel before the list says so.
    #[must_use]
    pub fn keeping_ended(self) -> Self {
        Translations { keeps_ended: true, ..self }
    }

    /// Forgets all names, to put them in anew.
    pub fn clear(&mut self) {
        self.tables.v4.others.clear();
        self.tables.v6.others.clear();
        self.beyond = 0;
    }

    /// Records that changes were missed.
    pub fn set_stale(&mut self) {
        self.is_stale = true;
    }

    /// Records that all names are there again.
    pub fn set_current(&mut self) {
        self.is_stale = false;
    }

    /// Whether changes were missed.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// How many connections are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.tables.v4.others.len() + self.tables.v6.others.len()) / 2
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many connections found no room.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Puts in a connection with its name before and behind the translation, both client first. Of two families it
    /// is not known under both.
    pub fn put(&mut self, original: &AnyKey, translated: &AnyKey) {
        match (original, translated) {
            (AnyKey::V4(original), AnyKey::V4(translated)) => self.put_names(original, translated),
            (AnyKey::V6(original), AnyKey::V6(translated)) => self.put_names(original, translated),
            _ => {}
        }
    }

    fn put_names<K: Translated>(&mut self, original: &K, translated: &K) {
        let is_known = K::names(self).other(original).is_some_and(|(other, _)| other.key == *translated);
        if is_known {
            if self.has_ended {
                K::names_mut(self).restore(original);
                K::names_mut(self).restore(translated);
            }
            return;
        }
        let added = if K::FAMILY == Family::V6 { V6_WEIGHT } else { 1 };
        if self.weight() + added > self.count_max && self.has_ended {
            self.forget_ended(None);
        }
        if self.weight() + added > self.count_max {
            self.beyond += 1;
            return;
        }
        let names = K::names_mut(self);
        names.put(*original, *translated, false);
        names.put(*translated, *original, true);
    }

    /// The list after which names are removed, if they stay until the next.
    fn kept_after(&mut self) -> Option<u32> {
        self.has_ended |= self.keeps_ended;
        self.keeps_ended.then_some(self.list)
    }

    /// How much of the table is taken.
    fn weight(&self) -> usize {
        self.tables.v4.others.len() / 2 + V6_WEIGHT * (self.tables.v6.others.len() / 2)
    }

    /// Removes for good what has ended, but for what did after this list was made.
    fn forget_ended(&mut self, list: Option<u32>) {
        // No list has this number.
        let list = list.unwrap_or(u32::MAX);
        let are_left = [self.tables.v4.forget(list), self.tables.v6.forget(list)];
        self.has_ended = are_left.contains(&true);
    }

    /// As [`Self::put`], of a connection whose end nobody may say: it is removed by the next [sweep](Self::end_sweep)
    /// that does not find it.
    pub fn put_silent(&mut self, original: &AnyKey, translated: &AnyKey) {
        self.put(original, translated);
        for name in [original, translated] {
            match name {
                AnyKey::V4(name) => self.tables.v4.set_silent(name),
                AnyKey::V6(name) => self.tables.v6.set_silent(name),
            }
        }
    }

    /// Begins a sweep, which finds the connections that are still there one by one: see [`Self::find`].
    pub fn begin_sweep(&mut self) {
        self.tables.v4.others.values_mut().for_each(|other| other.is_found = false);
        self.tables.v6.others.values_mut().for_each(|other| other.is_found = false);
    }

    /// Finds a connection in a sweep.
    pub fn find(&mut self, original: &AnyKey, translated: &AnyKey) {
        for name in [original, translated] {
            match name {
                AnyKey::V4(name) => self.tables.v4.find(name),
                AnyKey::V6(name) => self.tables.v6.find(name),
            }
        }
    }

    /// Removes the connections whose end nobody says and that were not found. Returns whether there are others of which
    /// nobody does.
    pub fn end_sweep(&mut self) -> bool {
        let kept_after = self.kept_after();
        let are_left = [self.tables.v4.end_sweep(kept_after), self.tables.v6.end_sweep(kept_after)];
        are_left.contains(&true)
    }

    /// Removes a connection that has ended.
    pub fn remove(&mut self, original: &AnyKey, translated: &AnyKey) {
        let is_removed = match (original, translated) {
            (AnyKey::V4(original), AnyKey::V4(translated)) => self.remove_names(original, translated),
            (AnyKey::V6(original), AnyKey::V6(translated)) => self.remove_names(original, translated),
            _ => true,
        };
        if !is_removed {
            self.beyond = self.beyond.saturating_sub(1);
        }
    }

    fn remove_names<K: Translated>(&mut self, original: &K, translated: &K) -> bool {
        let kept_after = self.kept_after();
        let names = K::names_mut(self);
        let is_removed = names.remove(original, translated, kept_after);
        names.remove(translated, original, kept_after) || is_removed
    }

    /// Begins to mark the names of a list.
    pub(super) fn begin_list(&mut self) {
        if self.has_ended {
            self.forget_ended(Some(self.list));
        }
        self.list = if self.list < LIST_MAX { self.list + 1 } else { 1 };
    }

    /// Marks a name that the list has.
    pub(super) fn mark<K: Translated>(&mut self, key: &K) {
        let list = self.list;
        if let Some(other) = K::names_mut(self).other_mut(key) {
            other.list = list;
        }
    }

    /// Marks a name that is among what ended before the list.
    pub(super) fn mark_ended<K: Translated>(&mut self, key: &K) {
        let list = self.list;
        if let Some(other) = K::names_mut(self).other_mut(key) {
            other.ended_list = list;
        }
    }

    /// Whether this is the name behind a translation of a connection that the list has under the name before it too.
    pub(super) fn is_second_name<K: Translated>(&self, key: &K) -> bool {
        self.original_of(key).is_some_and(|name| name.list == self.list)
    }

    /// Whether what ended under this name did so under the name before a translation too, or is on the list under that.
    pub(super) fn is_second_end<K: Translated>(&self, key: &K) -> bool {
        self.original_of(key).is_some_and(|name| [name.list, name.ended_list].contains(&self.list))
    }

    /// The name before the translation, of the name behind one.
    fn original_of<K: Translated>(&self, key: &K) -> Option<&OtherName<K>> {
        let names = K::names(self);
        let (original, _) = names.other(key).filter(|(other, _)| other.is_original)?;
        names.other(&original.key).map(|(name, _)| name)
    }

    /// The other name of a connection, with the end first that its own name has first.
    #[must_use]
    pub fn name_of(&self, key: &AnyKey) -> Option<Nat> {
        match key {
            AnyKey::V4(key) => self.nat_of(key),
            AnyKey::V6(key) => self.nat_of(key),
        }
    }

    /// The other name of a listed connection, with the end first that its own name has first.
    pub(super) fn nat_of<K: Translated>(&self, key: &K) -> Option<Nat> {
        self.other_key(key).map(|other| other.nat())
    }

    /// As [`Self::nat_of`], as a key.
    pub(super) fn other_key<K: Translated>(&self, key: &K) -> Option<OtherKey<K>> {
        let (other, first) = K::names(self).other(key)?;
        let key = if first == other.client { other.key } else { other.key.reversed() };
        Some(OtherKey { key, is_original: other.is_original })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;

    fn key(client: &str, server: &str) -> AnyKey {
        AnyKey::of_ends(client.parse().unwrap(), server.parse().unwrap(), VlanTags::NONE).unwrap()
    }

    fn v4(key: AnyKey) -> KeyV4 {
        match key {
            AnyKey::V4(key) => key,
            AnyKey::V6(_) => panic!("of the other family"),
        }
    }

    fn masqueraded(port: u16) -> (AnyKey, AnyKey) {
        let server = "192.0.2.1:443";
        (key(&format!("10.0.0.1:{port}"), server), key(&format!("198.51.100.1:{port}"), server))
    }

    #[test]
    fn both_names_lead_to_the_other_from_either_end() {
        let mut translations = Translations::new(10);
        let (original, translated) = masqueraded(5);
        translations.put(&original, &translated);
        let (original, translated) = (v4(original), v4(translated));
        let nat = translations.nat_of(&original).unwrap();
        assert_eq!((nat.client, nat.server, nat.is_original), (translated.first(), translated.second(), false));
        let nat = translations.nat_of(&translated.reversed()).unwrap();
        assert_eq!((nat.client, nat.server, nat.is_original), (original.second(), original.first(), true));
        assert_eq!(translations.nat_of(&v4(masqueraded(6).0)), None);
        translations.begin_list();
        translations.mark(&translated);
        assert!(!translations.is_second_name(&translated), "the list has this name alone");
        translations.mark(&original.reversed());
        assert!(translations.is_second_name(&translated) && !translations.is_second_name(&original));
        translations.begin_list();
        translations.mark(&translated);
        assert!(!translations.is_second_name(&translated), "that was the list before");
    }

    #[test]
    fn a_sweep_removes_those_whose_end_nobody_says() {
        let mut translations = Translations::new(10);
        let [(one, other_one), (two, other_two), (three, other_three)] = [1, 2, 3].map(masqueraded);
        translations.put_silent(&one, &other_one);
        translations.put_silent(&two, &other_two);
        translations.put(&three, &other_three);
        translations.begin_sweep();
        translations.find(&two, &other_two);
        assert!(translations.end_sweep());
        assert_eq!(translations.len(), 2);
        translations.begin_sweep();
        assert!(!translations.end_sweep());
        assert!(translations.len() == 1 && translations.nat_of(&v4(three)).is_some());
    }

    #[test]
    fn what_has_ended_keeps_its_names_for_one_more_list_if_there_is_room() {
        let mut translations = Translations::new(2).keeping_ended();
        let [(one, other_one), (two, other_two), (three, other_three)] = [1, 2, 3].map(masqueraded);
        translations.put(&one, &other_one);
        translations.begin_list();
        translations.remove(&one, &other_one);
        translations.begin_list();
        translations.mark_ended(&v4(one));
        translations.mark_ended(&v4(other_one));
        assert!(translations.is_second_end(&v4(other_one)) && !translations.is_second_end(&v4(one)));
        assert!(!translations.is_second_name(&v4(other_one)), "it is on no list");
        assert!(translations.name_of(&one).is_some());
        translations.begin_list();
        assert!(translations.is_empty());

        // One that is there again does not go with what it was.
        translations.put(&one, &other_one);
        translations.put(&two, &other_two);
        translations.remove(&two, &other_two);
        translations.remove(&one, &other_one);
        translations.put(&one, &other_one);
        translations.put(&three, &other_three);
        assert_eq!((translations.len(), translations.beyond()), (2, 0), "what has ended makes room");
        for _ in 0..3 {
            translations.begin_list();
        }
        assert!([one, three].iter().all(|key| translations.name_of(key).is_some()));
    }

    #[test]
    fn what_finds_no_room_is_counted_until_it_ends() {
        let mut translations = Translations::new(2);
        for port in [1, 2, 2, 3, 4] {
            let (original, translated) = masqueraded(port);
            translations.put(&original, &translated);
        }
        assert_eq!((translations.len(), translations.beyond()), (2, 2));
        for (port, left) in [(3, (2, 1)), (1, (1, 1)), (4, (1, 0)), (9, (1, 0))] {
            let (original, translated) = masqueraded(port);
            translations.remove(&original, &translated);
            assert_eq!((translations.len(), translations.beyond()), left, "{port}");
        }
        translations.set_stale();
        translations.clear();
        assert!(translations.is_empty() && translations.is_stale());
        translations.set_current();
        assert!(!translations.is_stale());
    }
}
