//! The joined view against the union, taken connection by connection.

use super::*;
use flowpeel::flow::VlanTags;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;

const END_NS: i64 = 1_767_225_610_000_000_000;

/// A row of few possible ones, so that routers see the same.
fn row(number: u8, start_us: i64, state: RowState, flags: (bool, bool, bool)) -> Row {
    let end = |host: u8, port: u16| -> SocketAddr {
        let text = if number.is_multiple_of(3) {
            format!("[2001:db8::{host:x}]:{port}")
        } else {
            format!("10.0.0.{host}:{port}")
        };
        text.parse().unwrap()
    };
    let start_ns = start_us * 1_000;
    Row {
        vlan: if number.is_multiple_of(5) { VlanTags::NONE.with(7) } else { VlanTags::NONE },
        start_ns,
        age_ns: END_NS - start_ns,
        state,
        midstream: flags.0,
        unsettled: flags.1,
        start_is_bound: flags.2,
        ..Row::between([end(number % 16, 40_000), end(200, 440 + u16::from(number / 16))])
    }
}

fn key(row: &Row) -> AnyKey {
    AnyKey::of_ends(row.client, row.server, row.vlan).unwrap()
}

prop_compose! {
    fn rows()(
        parts in prop::collection::vec((any::<u8>(), 0..5i64, 0..3usize, any::<(bool, bool, bool)>()), 0..60)
    ) -> Vec<Row> {
        let states = [RowState::Established, RowState::SynSent, RowState::SynRecv];
        let rows = parts.into_iter().map(|(number, start, state, flags)| row(number, start, states[state], flags));
        let by_key: BTreeMap<AnyKey, Row> = rows.map(|row| (key(&row), row)).collect();
        by_key.into_values().collect()
    }
}

fn joined(lists: &[Vec<Row>]) -> Joined {
    Joined::new(END_NS, lists.iter().map(|rows| rows.iter().map(|row| Ok(*row))).collect()).unwrap()
}

proptest! {
    #[test]
    fn it_is_the_union(lists in prop::collection::vec(rows(), 0..12)) {
        let mut union: BTreeMap<AnyKey, Vec<(usize, Row)>> = BTreeMap::new();
        for (router, rows) in lists.iter().enumerate() {
            rows.iter().for_each(|row| union.entry(key(row)).or_default().push((router, *row)));
        }
        let joined = joined(&lists);
        prop_assert_eq!(joined.len(), union.len());
        for (place, ((row, seen), (key, expected))) in joined.iter().zip(&union).enumerate() {
            prop_assert_eq!(&self::key(&row), key);
            prop_assert_eq!(joined.place_of(key), place);
            prop_assert_eq!(seen.iter().collect::<Vec<_>>(), expected.iter().map(|(router, _)| *router).collect::<Vec<_>>());
            prop_assert_eq!(seen.count() as usize, expected.len());
            prop_assert!(expected.iter().all(|(router, _)| seen.has(*router)) && !seen.has(500));
            let all = || expected.iter().map(|(_, row)| row);
            let first = all().map(|row| row.start_ns).min().unwrap();
            prop_assert_eq!((row.start_ns, row.age_ns), (first, END_NS - first));
            let has = |state| all().any(|row| row.state == state);
            let state = [RowState::Established, RowState::SynRecv].into_iter().find(|state| has(*state));
            prop_assert_eq!(row.state, state.unwrap_or(RowState::SynSent));
            prop_assert_eq!(row.midstream, all().all(|row| row.midstream));
            prop_assert_eq!(row.unsettled, all().all(|row| row.unsettled));
            let bound = all().filter(|row| row.start_ns == first).all(|row| row.start_is_bound);
            prop_assert_eq!(row.start_is_bound, bound);
        }
        let established = union.values().filter(|expected| expected.iter().any(|(_, row)| row.state == RowState::Established));
        prop_assert_eq!(joined.established_count(), established.count());
    }

    #[test]
    fn courses_come_back(start_ns: i64, state in 0..3usize, flags: (bool, bool, bool)) {
        let state = [RowState::Established, RowState::SynSent, RowState::SynRecv][state];
        let course = Course::of(&Row { start_ns, ..row(1, 0, state, flags) });
        prop_assert_eq!((course.start_us(), course.state()), (start_ns.div_euclid(1_000), state));
        let has = (course.has(Course::MIDSTREAM), course.has(Course::UNSETTLED), course.has(Course::BOUND));
        prop_assert_eq!(has, flags);
    }
}

#[test]
fn a_list_in_another_order_is_refused_by_its_router() {
    let [one, two] = [1, 2].map(|number| row(number, 0, RowState::Established, (false, false, false)));
    let bad = Joined::new(0, vec![vec![Ok(one)].into_iter(), vec![Ok(two), Ok(one)].into_iter()]).err().unwrap();
    assert_eq!((bad.router, bad.error.to_string().as_str()), (1, "the connections are not in the order of a list"));
    let twice = Joined::new(0, vec![vec![Ok(one), Ok(one)].into_iter()]).err().unwrap();
    assert_eq!(twice.router, 0);
    let cut = Joined::new(0, vec![vec![Ok(one), Err(Error::new("cut"))].into_iter()]).err().unwrap();
    assert_eq!(cut.error.to_string(), "cut");
}

#[test]
fn a_connection_takes_its_key_a_word_and_a_bit_a_router() {
    const COUNT: u32 = 10_000;
    let rows = |v6: bool| {
        (0..COUNT).map(move |client| {
            let plain = row(1, 0, RowState::Established, (false, false, false));
            let client = client.to_be_bytes();
            let [a, b, c, d] = client;
            let text = if v6 { format!("[::{a:x}{b:02x}:{c:x}{d:02x}]:1") } else { format!("{a}.{b}.{c}.{d}:1") };
            let server = if v6 { "[::1]:443" } else { "10.0.0.1:443" };
            Ok(Row { client: text.parse().unwrap(), server: server.parse().unwrap(), ..plain })
        })
    };
    for (v6, size) in [(false, 24), (true, 48)] {
        for routers in [1usize, 10, 100] {
            let joined = Joined::new(0, (0..routers).map(|_| rows(v6)).collect::<Vec<_>>()).unwrap();
            assert_eq!(joined.len(), COUNT as usize);
            assert_eq!(joined.memory_size(), COUNT as usize * (size + routers.div_ceil(8)));
        }
    }
}
