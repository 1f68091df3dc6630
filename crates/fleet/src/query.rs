//! A question about a network, as a request asks it, and the page of connections or groups that answers it.
//!
//! Pages follow each other by the last connection of the page before, not by a number: while connections come and go,
//! each one that stays, with what it is sorted by, is on exactly one page. So is each group that stays: its pages
//! follow a [`group_order`](crate::group_order).

use crate::group_order::{GroupName, GroupOrder, GroupOrders};
use crate::joined::RouterSet;
use crate::network::Network;
use flowpeel::flow::{AnyKey, VlanTags};
use flowpeel::list::{Row, RowState};
use flowpeel::select::{Facts, Filter, GroupBy, GroupKey, Sort};
use serde::Deserialize;
use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The most connections or groups of one page.
pub const PAGE_COUNT_MAX: usize = 1_000;

/// How many a page has unless the request says.
const PAGE_COUNT: usize = 100;

/// The longest cursor in bytes: two IPv6 ends, a time and tags take a hundred, the name of a router as much.
const CURSOR_SIZE_MAX: usize = 512;

/// The parameters of a request, as they came.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    filter: String,
    router: Option<String>,
    seen_by: Option<String>,
    sort: Option<String>,
    group: Option<String>,
    limit: Option<String>,
    after: Option<String>,
}

/// Why a request is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadQuery {
    /// The parameter.
    pub parameter: &'static str,
    /// What is wrong with it.
    pub reason: String,
    /// The byte of the filter at which it goes wrong, if it is about the filter.
    pub position: Option<usize>,
    /// Whether it follows a page that is not remembered any more.
    pub is_forgotten: bool,
}

/// A request that is none for this parameter.
pub(crate) fn bad(parameter: &'static str, reason: impl Into<String>) -> BadQuery {
    BadQuery { parameter, reason: reason.into(), position: None, is_forgotten: false }
}

/// The filter of a request; `None` selects everything.
pub(crate) fn filter(text: &str) -> Result<Option<Filter>, BadQuery> {
    let filter = Some(text).filter(|text| !text.trim().is_empty());
    filter.map(str::parse::<Filter>).transpose().map_err(|error| BadQuery {
        parameter: "filter",
        reason: error.reason().to_owned(),
        position: Some(error.position()),
        is_forgotten: false,
    })
}

/// How many a page has.
pub(crate) fn page_limit(asked: Option<&str>) -> Result<usize, BadQuery> {
    let limit = asked.map_or(Some(PAGE_COUNT), |text| text.parse().ok());
    let limit = limit.filter(|limit| (1..=PAGE_COUNT_MAX).contains(limit));
    limit.ok_or_else(|| bad("limit", format!("limit is a number from 1 to {PAGE_COUNT_MAX}")))
}

fn bad_cursor() -> BadQuery {
    bad("after", "after is what the page before has as next")
}

/// VLAN tags as a cursor has them.
pub(crate) fn tags_text(vlan: VlanTags) -> String {
    vlan.iter().map(|tag| tag.to_string()).collect::<Vec<_>>().join(".")
}

/// The VLAN tags of a cursor; `None` of what is none.
pub(crate) fn tags(text: &str) -> Option<VlanTags> {
    let tags = text.split('.').filter(|tag| !tag.is_empty()).map(str::parse);
    tags.take(2).try_fold(VlanTags::NONE, |tags, tag| Some(tags.with(tag.ok()?)))
}

/// An order of connections, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    sort: Sort,
    is_reversed: bool,
}

impl Order {
    fn parse(text: &str) -> Option<Self> {
        let (name, is_reversed) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        let sort = match name {
            "client" => Sort::Client,
            "server" => Sort::Server,
            "port" => Sort::Port,
            "state" => Sort::State,
            "age" => Sort::Age,
            "youngest" => Sort::Youngest,
            _ => return None,
        };
        Some(Order { sort, is_reversed })
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let order = self.sort.compare(one, other);
        if self.is_reversed { order.reverse() } else { order }
    }
}

/// What connections are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// By what lists are grouped by.
    By(GroupBy),
    /// By the routers that see them: a connection is in the group of each.
    Router,
}

impl Grouping {
    fn parse(text: &str) -> Option<Self> {
        let all = [GroupBy::Client, GroupBy::Server, GroupBy::Port, GroupBy::State];
        let by = all.into_iter().find(|by| by.name() == text).map(Grouping::By);
        by.or((text == "router").then_some(Grouping::Router))
    }

    /// What a group's value stands for.
    fn name(self, value: &str) -> Option<GroupName> {
        let states = [RowState::Established, RowState::SynSent, RowState::SynRecv];
        let key = match self {
            Grouping::Router => return Some(GroupName::Router(value.to_owned())),
            Grouping::By(GroupBy::Client | GroupBy::Server) => GroupKey::Address(value.parse().ok()?),
            Grouping::By(GroupBy::Port) => GroupKey::Port(value.parse().ok()?),
            Grouping::By(GroupBy::State) => GroupKey::State(states.into_iter().find(|state| state.name() == value)?),
        };
        Some(GroupName::Key(key))
    }
}

/// The last connection of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowCursor {
    client: SocketAddr,
    server: SocketAddr,
    vlan: VlanTags,
    start_ns: i64,
    state: RowState,
}

impl fmt::Display for RowCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowCursor { client, server, vlan, start_ns, state } = *self;
        write!(f, "{client}~{server}~{start_ns}~{}~{}", state as u8, tags_text(vlan))
    }
}

impl RowCursor {
    fn of(row: &Row) -> Self {
        let Row { client, server, vlan, start_ns, state, .. } = *row;
        RowCursor { client, server, vlan, start_ns, state }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('~');
        let mut next = || parts.next();
        let (client, server) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let (start_ns, state) = (next()?.parse().ok()?, next()?);
        let states = [RowState::Established, RowState::SynSent, RowState::SynRecv];
        let state = states.into_iter().find(|known| (*known as u8).to_string() == state)?;
        let vlan = tags(next()?)?;
        let cursor = RowCursor { client, server, vlan, start_ns, state };
        (next().is_none() && cursor.key().is_some()).then_some(cursor)
    }

    fn key(&self) -> Option<AnyKey> {
        AnyKey::of_ends(self.client, self.server, self.vlan)
    }

    /// The row as it is compared in a view that ends then.
    fn row(&self, end_ns: i64) -> Row {
        let RowCursor { client, server, vlan, start_ns, state } = *self;
        let age_ns = end_ns.saturating_sub(start_ns).max(0);
        Row { vlan, start_ns, age_ns, state, ..Row::between([client, server]) }
    }
}

/// The place behind the last group of a page.
#[derive(Clone, Debug)]
struct GroupCursor {
    order: Arc<GroupOrder>,
    /// How many groups of the order are on pages before.
    place: usize,
    /// The last group that is not in the order, if one was on a page.
    name: Option<GroupName>,
}

impl fmt::Display for GroupCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}~{}", self.order.id(), self.place)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, "~{name}"))
    }
}

impl GroupCursor {
    fn parse(text: &str, grouping: Grouping, orders: &GroupOrders) -> Result<Self, BadQuery> {
        // A name may have any character.
        let mut parts = text.splitn(3, '~');
        let mut next = || parts.next();
        let id = next().and_then(|id| u64::from_str_radix(id, 16).ok()).ok_or_else(bad_cursor)?;
        let place = next().and_then(|place| place.parse().ok()).ok_or_else(bad_cursor)?;
        let name = next().map(|name| grouping.name(name).ok_or_else(bad_cursor)).transpose()?;
        let forgotten = "the page before is not remembered any more: ask for the first one again";
        let order = orders.find(id).ok_or_else(|| BadQuery { is_forgotten: true, ..bad("after", forgotten) })?;
        Ok(GroupCursor { order, place, name })
    }

    /// The groups behind it, of these, which are in the order of their names; each with the place behind itself.
    fn following<'a>(&'a self, groups: &'a [NamedGroup]) -> impl Iterator<Item = (Self, &'a NamedGroup)> {
        let (names, known) = (self.order.names(), self.order.set());
        let ordered = names.iter().enumerate().skip(self.place).filter_map(|(place, name)| {
            let group = groups.binary_search_by(|group| group.name.cmp(name)).ok().and_then(|at| groups.get(at))?;
            Some((place + 1, None, group))
        });
        let is_before = |group: &NamedGroup| self.name.as_ref().is_some_and(|name| group.name <= *name);
        let others = groups.get(groups.partition_point(is_before)..).unwrap_or_default().iter();
        let others = others.filter(move |group| !known.contains(&group.name));
        let others = others.map(|group| (names.len(), Some(&group.name), group));
        ordered.chain(others).map(|(place, name, group)| {
            (GroupCursor { order: Arc::clone(&self.order), place, name: name.cloned() }, group)
        })
    }
}

/// A question about a network.
#[derive(Clone, Debug)]
pub struct Query {
    filter: Option<Filter>,
    router: Option<String>,
    is_only_one: bool,
    order: Order,
    grouping: Option<Grouping>,
    limit: usize,
    after_row: Option<RowCursor>,
    after_group: Option<GroupCursor>,
}

impl Query {
    /// The question that a request asks, of which a page of groups may follow one of these orders.
    ///
    /// # Errors
    ///
    /// A parameter is none, or the order that the page follows is not remembered any more.
    pub fn new(asked: &Parameters, orders: &GroupOrders) -> Result<Self, BadQuery> {
        let filter = filter(&asked.filter)?;
        let is_only_one = match asked.seen_by.as_deref() {
            None => false,
            Some("one") => true,
            Some(_) => return Err(bad("seen_by", "seen_by is \"one\": connections that one router alone sees")),
        };
        let order = Order::parse(asked.sort.as_deref().unwrap_or("client"));
        let sorts = "sort is client, server, port, state, age or youngest, with - before it for the reverse";
        let order = order.ok_or_else(|| bad("sort", sorts))?;
        let grouping = asked.group.as_deref().map(|text| {
            Grouping::parse(text).ok_or_else(|| bad("group", "group is client, server, port, state or router"))
        });
        let grouping = grouping.transpose()?;
        let limit = page_limit(asked.limit.as_deref())?;
        let after = asked.after.as_deref();
        if after.is_some_and(|after| after.len() > CURSOR_SIZE_MAX) {
            return Err(bad_cursor());
        }
        let (mut after_row, mut after_group) = (None, None);
        match (after, grouping) {
            (None, _) => {}
            (Some(text), None) => after_row = Some(RowCursor::parse(text).ok_or_else(bad_cursor)?),
            (Some(text), Some(grouping)) => after_group = Some(GroupCursor::parse(text, grouping, orders)?),
        }
        let router = asked.router.clone();
        Ok(Query { filter, router, is_only_one, order, grouping, limit, after_row, after_group })
    }
}

/// Connections that answer a query.
pub struct RowPage<'a> {
    /// How many are selected in all.
    pub selected: u64,
    /// Those of this page, in their order.
    pub rows: Vec<(Row, RouterSet<'a>)>,
    /// What the next page follows; `None` after the last.
    pub next: Option<String>,
}

/// A group of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedGroup {
    /// What they have in common.
    pub name: GroupName,
    /// How many are established.
    pub established: u64,
    /// How many are half-open.
    pub half_open: u64,
    /// The age of the oldest in ns.
    pub oldest_ns: i64,
}

impl NamedGroup {
    fn count(&self) -> u64 {
        self.established + self.half_open
    }
}

/// Groups that answer a query.
pub struct GroupPage {
    /// How many connections are selected in all.
    pub selected: u64,
    /// How many groups they are in.
    pub group_count: usize,
    /// Those of this page, with the sizes that they have now. The order is that in which they were when the first page
    /// was asked for: the largest first, and equal ones in the order of what they have in common.
    pub groups: Vec<NamedGroup>,
    /// What the next page follows; `None` after the last.
    pub next: Option<String>,
}

/// What answers a query.
pub enum Page<'a> {
    /// Connections.
    Rows(RowPage<'a>),
    /// Groups.
    Groups(GroupPage),
}

impl Query {
    /// Answers it.
    ///
    /// Complexity: a pass over the connections, and sorting what the page has. All connections in the order of a list
    /// cost no more than the page. Of groups that are more than a page the order is remembered.
    #[must_use]
    pub fn page<'a>(&self, network: &'a Network, orders: &GroupOrders) -> Page<'a> {
        match self.grouping {
            Some(grouping) => Page::Groups(self.group_page(network, grouping, orders)),
            None if self.is_all() && self.order.sort == Sort::Client => Page::Rows(self.slice(network)),
            None => Page::Rows(self.sorted(network)),
        }
    }

    /// Whether all connections are selected.
    fn is_all(&self) -> bool {
        self.filter.is_none() && self.router.is_none() && !self.is_only_one
    }

    /// The connections that are selected.
    fn selected<'a>(&self, network: &'a Network) -> impl Iterator<Item = (Row, RouterSet<'a>)> {
        let bit = self.router.as_deref().map(|name| network.bit_of(name));
        network.joined.iter().filter(move |(row, seen)| {
            bit.is_none_or(|bit| bit.is_some_and(|bit| seen.has(bit)))
                && (!self.is_only_one || seen.count() == 1)
                && self.filter.as_ref().is_none_or(|filter| filter.selects(&Facts::from(row)))
        })
    }

    /// A page of all connections in the order of a list.
    fn slice<'a>(&self, network: &'a Network) -> RowPage<'a> {
        let joined = &network.joined;
        let after = self.after_row.and_then(|cursor| Some((cursor.key()?, cursor)));
        let first_not_before = after.map(|(key, cursor)| {
            let place = joined.place_of(&key);
            let is_there = joined.get(place).is_some_and(|(row, _)| {
                (row.client, row.server, row.vlan) == (cursor.client, cursor.server, cursor.vlan)
            });
            (place, is_there)
        });
        let count = joined.len();
        let places: Vec<usize> = if self.order.is_reversed {
            let end = first_not_before.map_or(count, |(place, _)| place);
            (end.saturating_sub(self.limit + 1)..end).rev().collect()
        } else {
            let start = first_not_before.map_or(0, |(place, is_there)| place + usize::from(is_there));
            (start..count.min(start.saturating_add(self.limit + 1))).collect()
        };
        let rows = places.into_iter().filter_map(|place| joined.get(place)).collect();
        self.row_page(count as u64, rows)
    }

    /// A page of the connections that are selected, in their order.
    fn sorted<'a>(&self, network: &'a Network) -> RowPage<'a> {
        let after = self.after_row.map(|cursor| cursor.row(network.joined.end_ns()));
        let compare = |one: &(Row, RouterSet), other: &(Row, RouterSet)| self.order.compare(&one.0, &other.0);
        let wanted = self.limit + 1;
        let (mut selected, mut first) = (0, Vec::new());
        for found in self.selected(network) {
            selected += 1;
            if after.as_ref().is_some_and(|after| self.order.compare(&found.0, after) != Ordering::Greater) {
                continue;
            }
            first.push(found);
            // What cannot be on the page goes now and then, so that little is held and little is sorted.
            if first.len() >= 4 * wanted {
                first.select_nth_unstable_by(wanted - 1, compare);
                first.truncate(wanted);
            }
        }
        first.sort_unstable_by(compare);
        first.truncate(wanted);
        self.row_page(selected, first)
    }

    /// The page of these connections, of which there is one too many unless they are the last.
    fn row_page<'a>(&self, selected: u64, mut rows: Vec<(Row, RouterSet<'a>)>) -> RowPage<'a> {
        let has_more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let last = rows.last().filter(|_| has_more);
        let next = last.map(|(row, _)| RowCursor::of(row).to_string());
        RowPage { selected, rows, next }
    }

    fn group_page(&self, network: &Network, grouping: Grouping, orders: &GroupOrders) -> GroupPage {
        let (selected, mut groups) = match grouping {
            Grouping::By(by) => self.groups(network, by),
            Grouping::Router => self.router_groups(network),
        };
        let group_count = groups.len();
        if self.after_group.is_none() && group_count <= self.limit {
            return GroupPage { selected, group_count, groups, next: None };
        }
        let first = || {
            let order = orders.remember(groups.iter().map(|group| group.name.clone()));
            GroupCursor { order, place: 0, name: None }
        };
        let after = self.after_group.clone().unwrap_or_else(first);
        groups.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut following = after.following(&groups);
        let of_page: Vec<(GroupCursor, &NamedGroup)> = following.by_ref().take(self.limit).collect();
        let last = of_page.last().filter(|_| following.next().is_some());
        let next = last.map(|(cursor, _)| cursor.to_string());
        GroupPage { selected, group_count, groups: of_page.into_iter().map(|(_, group)| group.clone()).collect(), next }
    }

    /// How many connections are selected, and their groups, the largest first.
    fn groups(&self, network: &Network, by: GroupBy) -> (u64, Vec<NamedGroup>) {
        let groups = by.of(self.selected(network).map(|(row, _)| row)).into_iter().map(|group| NamedGroup {
            name: GroupName::Key(group.key),
            established: group.flows,
            half_open: group.half_open,
            oldest_ns: group.oldest_ns,
        });
        let groups: Vec<NamedGroup> = groups.collect();
        (groups.iter().map(NamedGroup::count).sum(), groups)
    }

    /// The same for the groups of routers, in which a connection is more than once.
    fn router_groups(&self, network: &Network) -> (u64, Vec<NamedGroup>) {
        let name = |bit| GroupName::Router(network.member(bit).to_owned());
        let empty = |bit| NamedGroup { name: name(bit), established: 0, half_open: 0, oldest_ns: 0 };
        let mut groups: Vec<NamedGroup> = (0..network.member_count()).map(empty).collect();
        let mut selected = 0;
        for (row, seen) in self.selected(network) {
            selected += 1;
            for bit in seen.iter() {
                let Some(group) = groups.get_mut(bit) else { continue };
                *(if row.state == RowState::Established { &mut group.established } else { &mut group.half_open }) += 1;
                group.oldest_ns = group.oldest_ns.max(row.age_ns);
            }
        }
        groups.retain(|group| group.count() > 0);
        groups.sort_by(|one, other| (Reverse(one.count()), &one.name).cmp(&(Reverse(other.count()), &other.name)));
        (selected, groups)
    }
}

#[cfg(test)]
mod tests;
