//! Connections whose addresses a router translates (NAT): what they are called on its other side.
//!
//! Captured on both sides, a translated connection is tracked under two names, since nothing in its packets says that
//! they are one. Who knows it, as the kernel does, fills a table of names, and a list then has one line for the two.

use crate::flow::{AnyKey, ByFamily, Family, FlowKey, KeyV4, KeyV6, Side};
use ahash::RandomState;
use std::collections::HashMap;
use std::net::SocketAddr;

/// The other name of a translated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat {
    /// The client's address and port under that name.
    pub client: SocketAddr,
    /// The server's.
    pub server: SocketAddr,
    /// Whether it is the name before the translation, as the client has it, and not the one behind it.
    pub is_original: bool,
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

const _: () = assert!(size_of::<(KeyV6, OtherName<KeyV6>)>() <= V6_WEIGHT * size_of::<(KeyV4, OtherName<KeyV4>)>());

/// A source of the present translations, for whoever makes lists.
pub trait TranslationSource: Send + Sync {
    /// Calls `with` with the translations as they are now; they do not change meanwhile.
    fn with_current(&self, with: &mut dyn FnMut(&mut Translations));
}

/// The names of translated connections, of so many at most.
pub struct Translations {
    tables: ByFamily<Names<KeyV4>, Names<KeyV6>>,
    count_max: usize,
    /// Translated connections that found no room and have not ended, as far as is known.
    beyond: u64,
    /// Whether changes were missed, so that translations are missing or wrong until [`Self::clear`] and all is put in
    /// again.
    is_stale: bool,
    /// The list whose names were marked last.
    list: u32,
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
    /// Whether nobody says when the connection ends, and whether it was found since the last sweep began.
    is_silent: bool,
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

    fn put(&mut self, name: K, key: K, is_original: bool) {
        let (canonical, client) = name.untagged().canonical();
        self.others
            .insert(canonical, OtherName { key, client, is_original, list: 0, is_silent: false, is_found: false });
    }

    fn remove(&mut self, name: &K, key: &K) -> bool {
        let (canonical, _) = name.untagged().canonical();
        let is_there = self.others.get(&canonical).is_some_and(|other| other.key == *key);
        if is_there {
            self.others.remove(&canonical);
        }
        is_there
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
            list: 0,
        }
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
            return;
        }
        let (v4, v6) = (self.tables.v4.others.len() / 2, self.tables.v6.others.len() / 2);
        let added = if K::FAMILY == Family::V6 { V6_WEIGHT } else { 1 };
        if v4 + V6_WEIGHT * v6 + added > self.count_max {
            self.beyond += 1;
            return;
        }
        let names = K::names_mut(self);
        names.put(*original, *translated, false);
        names.put(*translated, *original, true);
    }

    /// As [`Self::put`], of a connection whose end nobody may say: it is removed by the next [sweep](Self::end_sweep)
    /// that does not find it.
    pub fn put_silent(&mut self, original: &AnyKey, translated: &AnyKey) {
        self.put(original, translated);
        self.each_name(original, translated, |is_silent, is_found| (*is_silent, *is_found) = (true, true));
    }

    /// Begins to look which connections are still there: [`Self::find`] finds one.
    pub fn begin_sweep(&mut self) {
        self.tables.v4.others.values_mut().for_each(|other| other.is_found = false);
        self.tables.v6.others.values_mut().for_each(|other| other.is_found = false);
    }

    /// Finds a connection in a sweep.
    pub fn find(&mut self, original: &AnyKey, translated: &AnyKey) {
        self.each_name(original, translated, |_, is_found| *is_found = true);
    }

    /// Removes the connections whose end nobody says and that were not found. Returns whether there are others of which
    /// nobody does.
    pub fn end_sweep(&mut self) -> bool {
        self.tables.v4.others.retain(|_, other| other.is_found || !other.is_silent);
        self.tables.v6.others.retain(|_, other| other.is_found || !other.is_silent);
        self.tables.v4.others.values().any(|other| other.is_silent)
            || self.tables.v6.others.values().any(|other| other.is_silent)
    }

    fn each_name(&mut self, original: &AnyKey, translated: &AnyKey, mut change: impl FnMut(&mut bool, &mut bool)) {
        for name in [original, translated] {
            match name.canonical() {
                AnyKey::V4(key) => {
                    let other = self.tables.v4.others.get_mut(&key);
                    other.into_iter().for_each(|other| change(&mut other.is_silent, &mut other.is_found));
                }
                AnyKey::V6(key) => {
                    let other = self.tables.v6.others.get_mut(&key);
                    other.into_iter().for_each(|other| change(&mut other.is_silent, &mut other.is_found));
                }
            }
        }
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
        let names = K::names_mut(self);
        let is_removed = names.remove(original, translated);
        names.remove(translated, original) || is_removed
    }

    /// Begins to mark the names of a list.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1).max(1);
    }

    /// Marks a name that the list has.
    pub(super) fn mark<K: Translated>(&mut self, key: &K) {
        let (list, (canonical, _)) = (self.list, key.untagged().canonical());
        if let Some(other) = K::names_mut(self).others.get_mut(&canonical) {
            other.list = list;
        }
    }

    /// Whether this is the name behind a translation of a connection that the list has under the name before it too.
    pub(super) fn is_second_name<K: Translated>(&self, key: &K) -> bool {
        let names = K::names(self);
        let original = names.other(key).filter(|(other, _)| other.is_original);
        original.and_then(|(other, _)| names.other(&other.key)).is_some_and(|(name, _)| name.list == self.list)
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
        let (other, first) = K::names(self).other(key)?;
        let key = if first == other.client { other.key } else { other.key.reversed() };
        Some(Nat { client: key.first(), server: key.second(), is_original: other.is_original })
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
