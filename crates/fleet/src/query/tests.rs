//! Pages of generated connections against the selections of lists, and pages while connections come and go.

use super::*;
use flowpeel::select::Selection;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const END_NS: i64 = 1_767_225_610_000_000_000;

const FILTERS: [&str; 12] = [
    "",
    "established",
    "half_open",
    "10.0.0.3",
    "net 10.0.0.0/29",
    "client net 10.0.0.8/29 or server port 443",
    "age > 3s",
    "age <= 2s and not established",
    "ip6",
    "port 441",
    "vlan 7 or midstream",
    "unsettled and start > 2025-12-31",
];

const SORTS: [(&str, Option<Sort>); 7] = [
    ("", None),
    ("client", Some(Sort::Client)),
    ("server", Some(Sort::Server)),
    ("port", Some(Sort::Port)),
    ("state", Some(Sort::State)),
    ("age", Some(Sort::Age)),
    ("youngest", Some(Sort::Youngest)),
];

/// A connection of few possible ones.
fn row(number: u16) -> Row {
    let end = |host: u16, port: u16| -> SocketAddr {
        let text = if number.is_multiple_of(4) {
            format!("[2001:db8::{host:x}]:{port}")
        } else {
            format!("10.0.0.{host}:{port}")
        };
        text.parse().unwrap()
    };
    let start_ns = END_NS - i64::from(number % 6) * 1_000_000_000;
    Row {
        vlan: if number.is_multiple_of(7) { VlanTags::NONE.with(7) } else { VlanTags::NONE },
        start_ns,
        age_ns: END_NS - start_ns,
        state: [RowState::Established, RowState::Established, RowState::SynSent, RowState::SynRecv]
            [usize::from(number / 5 % 4)],
        midstream: number.is_multiple_of(11),
        unsettled: number.is_multiple_of(13),
        ..Row::between([end(number % 16, 40_000 + number / 64 % 4), end(200 + number / 16 % 2, 440 + number / 32 % 5)])
    }
}

fn key(row: &Row) -> AnyKey {
    AnyKey::of_ends(row.client, row.server, row.vlan).unwrap()
}

fn listed(numbers: impl IntoIterator<Item = u16>) -> Vec<Row> {
    let by_key: BTreeMap<AnyKey, Row> = numbers.into_iter().map(row).map(|row| (key(&row), row)).collect();
    by_key.into_values().collect()
}

fn query(parameters: &Parameters) -> Query {
    Query::new(parameters, &GroupOrders::default()).unwrap()
}

/// A page of groups, which may follow one of these orders.
fn groups(network: &Network, asked: &Parameters, orders: &GroupOrders) -> GroupPage {
    match Query::new(asked, orders).unwrap().page(network, orders) {
        Page::Groups(page) => page,
        Page::Rows(_) => panic!("groups were asked for"),
    }
}

fn parameters(filter: &str, sort: &str, limit: usize) -> Parameters {
    Parameters {
        filter: filter.to_owned(),
        sort: Some(sort.to_owned()).filter(|sort| !sort.is_empty()),
        limit: Some(limit.to_string()),
        ..Parameters::default()
    }
}

fn rows<'a>(network: &'a Network, asked: &Parameters) -> RowPage<'a> {
    match query(asked).page(network, &GroupOrders::default()) {
        Page::Rows(page) => page,
        Page::Groups(_) => panic!("groups were not asked for"),
    }
}

/// All pages, one after another, with the selected count of each.
fn all_rows(network: &Network, mut asked: Parameters) -> Vec<Row> {
    let mut all = Vec::new();
    loop {
        let page = rows(network, &asked);
        all.extend(page.rows.iter().map(|(row, _)| *row));
        match page.next {
            Some(next) => asked.after = Some(next),
            None => {
                assert_eq!(page.selected as usize, all.len());
                return all;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_are_what_a_selection_of_the_list_is(numbers in prop::collection::vec(any::<u16>(), 0..200), limit in 1usize..40) {
        let list = listed(numbers);
        let network = Network::of_rows(END_NS, &[("a", list.clone())]);
        for filter in FILTERS {
            for (name, sort) in SORTS {
                let selection = Selection { filter: filter.parse().ok(), sort, ..Selection::default() };
                let mut expected: Vec<Row> = selection.rows(list.iter().copied()).collect();
                prop_assert_eq!(&all_rows(&network, parameters(filter, name, limit)), &expected, "{} by {}", filter, name);
                expected.reverse();
                let reversed = format!("-{}", if name.is_empty() { "client" } else { name });
                prop_assert_eq!(&all_rows(&network, parameters(filter, &reversed, limit)), &expected);
            }
        }
    }

    #[test]
    fn groups_are_those_of_a_selection(numbers in prop::collection::vec(any::<u16>(), 0..200), limit in 1usize..10) {
        let list = listed(numbers);
        let network = Network::of_rows(END_NS, &[("a", list.clone())]);
        for filter in FILTERS {
            for by in [GroupBy::Client, GroupBy::Server, GroupBy::Port, GroupBy::State] {
                let selection = Selection { filter: filter.parse().ok(), group_by: Some(by), ..Selection::default() };
                let (expected, count) = selection.groups(list.iter().copied()).unwrap();
                let mut asked = Parameters { group: Some(by.name().to_owned()), ..parameters(filter, "", limit) };
                let (mut found, orders) = (Vec::new(), GroupOrders::default());
                loop {
                    let page = groups(&network, &asked, &orders);
                    prop_assert_eq!(page.group_count, count);
                    found.extend(page.groups);
                    match page.next {
                        Some(next) => asked.after = Some(next),
                        None => break,
                    }
                }
                let parts = |group: &NamedGroup| (group.name.to_string(), group.established, group.half_open, group.oldest_ns);
                let expected = expected.iter().map(|group| (group.key.to_string(), group.flows, group.half_open, group.oldest_ns));
                prop_assert_eq!(found.iter().map(parts).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn what_stays_is_on_exactly_one_page(
        stay in prop::collection::btree_set(any::<u16>(), 0..150),
        others in prop::collection::vec(prop::collection::btree_set(any::<u16>(), 0..60), 1..20),
        limit in 1usize..20,
    ) {
        let staying: BTreeSet<AnyKey> = stay.iter().map(|number| key(&row(*number))).collect();
        for (sort, _) in SORTS.into_iter().skip(1) {
            for sort in [sort.to_owned(), format!("-{sort}")] {
                let mut asked = parameters("", &sort, limit);
                let mut seen: BTreeMap<AnyKey, usize> = BTreeMap::new();
                // The list changes before every page.
                for at in 0.. {
                    let now = listed(others[at % others.len()].iter().chain(&stay).copied());
                    let network = Network::of_rows(END_NS + at as i64 * 10_000_000_000, &[("a", now)]);
                    let page = rows(&network, &asked);
                    for (row, _) in &page.rows {
                        *seen.entry(key(row)).or_default() += 1;
                    }
                    let Some(next) = page.next else { break };
                    asked.after = Some(next);
                }
                prop_assert!(staying.iter().all(|key| seen.get(key) == Some(&1)), "{}", sort);
            }
        }
    }

    #[test]
    fn a_group_that_stays_is_on_exactly_one_page(
        stay in prop::collection::btree_set(any::<u16>(), 0..60),
        others in prop::collection::vec(prop::collection::btree_set(any::<u16>(), 0..150), 1..20),
        limit in 1usize..5,
        name_count_max in 1usize..20,
    ) {
        let routers = |now: &[u16]| -> Vec<(String, Vec<Row>)> {
            let of = |router: u16| listed(now.iter().copied().filter(|number| number % 9 % 5 == router));
            (0..5).map(|router| (format!("r~{router}"), of(router))).collect()
        };
        for group in ["client", "server", "port", "state", "router"] {
            let orders = GroupOrders::new(name_count_max, usize::MAX);
            let mut asked = Parameters { group: Some(group.to_owned()), ..parameters("", "", limit) };
            // A group that no view lacks has stayed.
            let (mut seen, mut staying): (BTreeMap<GroupName, usize>, Option<BTreeSet<GroupName>>) = Default::default();
            for at in 0.. {
                let now: Vec<u16> = others[at % others.len()].iter().chain(&stay).copied().collect();
                let now = routers(&now);
                let lists: Vec<(&str, Vec<Row>)> = now.iter().map(|(name, rows)| (name.as_str(), rows.clone())).collect();
                let network = Network::of_rows(END_NS + at as i64 * 10_000_000_000, &lists);
                let all = Parameters { limit: Some(PAGE_COUNT_MAX.to_string()), after: None, ..asked.clone() };
                let there: BTreeSet<GroupName> = groups(&network, &all, &orders).groups.into_iter().map(|group| group.name).collect();
                staying = Some(staying.map_or(there.clone(), |before| &before & &there));
                let page = groups(&network, &asked, &orders);
                prop_assert!(page.groups.iter().all(|group| group.count() > 0 && there.contains(&group.name)));
                for group in page.groups {
                    *seen.entry(group.name).or_default() += 1;
                }
                let Some(next) = page.next else { break };
                asked.after = Some(next);
            }
            prop_assert!(seen.values().all(|count| *count == 1), "{} twice", group);
            prop_assert!(staying.unwrap_or_default().iter().all(|name| seen.contains_key(name)), "{} missed", group);
        }
    }

    #[test]
    fn cursors_come_back(number: u16, start_ns: i64) {
        let cursor = RowCursor { start_ns, ..RowCursor::of(&row(number)) };
        prop_assert_eq!(RowCursor::parse(&cursor.to_string()), Some(cursor));
    }

    #[test]
    fn no_parameters_do_harm(filter in "\\PC{0,40}", sort in "-?[a-z]{0,10}", after in "\\PC{0,60}", group in "[a-z]{0,8}") {
        let network = Network::of_rows(END_NS, &[("a", listed(0..50))]);
        let asked = Parameters { after: Some(after), group: Some(group), ..parameters(&filter, &sort, 10) };
        for group in [asked.group.clone(), Some("client".to_owned()), Some("router".to_owned()), None] {
            let orders = GroupOrders::default();
            if let Ok(query) = Query::new(&Parameters { group, ..asked.clone() }, &orders) {
                let count = match query.page(&network, &orders) {
                    Page::Rows(page) => page.rows.len(),
                    Page::Groups(page) => page.groups.len(),
                };
                prop_assert!(count <= 10);
            }
        }
    }
}

#[test]
fn who_sees_a_connection_can_be_asked_for() {
    let (a, b) = (listed(0..100), listed(50..200));
    let network = Network::of_rows(END_NS, &[("a", a.clone()), ("b", b.clone())]);
    let keys = |rows: &[Row]| rows.iter().map(key).collect::<BTreeSet<_>>();
    let asked = |router: Option<&str>, seen_by: Option<&str>| {
        let router = router.map(str::to_owned);
        all_rows(&network, Parameters { router, seen_by: seen_by.map(str::to_owned), ..parameters("", "age", 7) })
    };
    assert_eq!(keys(&asked(Some("a"), None)), keys(&a));
    assert_eq!(keys(&asked(Some("b"), Some("one"))), keys(&b).difference(&keys(&a)).copied().collect());
    assert_eq!(keys(&asked(None, Some("one"))), keys(&b).symmetric_difference(&keys(&a)).copied().collect());
    assert!(asked(Some("c"), None).is_empty());
    let by_router = Parameters { group: Some("router".to_owned()), ..parameters("", "", 10) };
    let page = groups(&network, &by_router, &GroupOrders::default());
    let counts: Vec<_> = page.groups.iter().map(|group| (group.name.to_string(), group.count() as usize)).collect();
    assert_eq!(counts, [("b".to_owned(), b.len()), ("a".to_owned(), a.len())]);
}

#[test]
fn a_request_that_is_none_is_refused_by_its_parameter() {
    let refused = |asked: Parameters| Query::new(&asked, &GroupOrders::default()).map(|_| ()).unwrap_err();
    let error = refused(parameters("client prot 443", "", 10));
    assert_eq!((error.parameter, error.position), ("filter", Some(7)));
    assert_eq!(refused(parameters("", "size", 10)).parameter, "sort");
    assert_eq!(refused(parameters("", "", 0)).parameter, "limit");
    assert_eq!(refused(parameters("", "", PAGE_COUNT_MAX + 1)).parameter, "limit");
    let other = |asked: Parameters| refused(asked).parameter;
    assert_eq!(other(Parameters { seen_by: Some("two".to_owned()), ..Parameters::default() }), "seen_by");
    assert_eq!(other(Parameters { group: Some("age".to_owned()), ..Parameters::default() }), "group");
    for after in [
        "",
        "x",
        "1.2.3.4:5~[::1]:1~0~0~",
        "1.2.3.4:5~1.2.3.4:5~0~3~",
        "1.2.3.4:5~1.2.3.4:5~0~0~~",
        "1.2.3.4:5~1.2.3.4:5~0~0~x",
    ] {
        assert_eq!(other(Parameters { after: Some(after.to_owned()), ..Parameters::default() }), "after", "{after}");
    }
    let grouped = |group: &str, after: &str| {
        let (group, after) = (Some(group.to_owned()), Some(after.to_owned()));
        refused(Parameters { group, after, ..Parameters::default() })
    };
    for after in ["", "x", "1", "1~", "1~x", "x~1", "1~1~x", "1~1~", "-1~1"] {
        let error = grouped("port", after);
        assert_eq!((error.parameter, error.is_forgotten), ("after", false), "{after}");
    }
    assert!(grouped("port", "1~1").is_forgotten && grouped("router", "1~1~x~y").is_forgotten);
    let long = "1".repeat(CURSOR_SIZE_MAX + 1);
    assert_eq!(other(Parameters { after: Some(long), ..Parameters::default() }), "after");
}
