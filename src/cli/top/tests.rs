//! Screens of several sizes, and what keys do to them.

use super::keys::{Effect, press};
use super::screen::{Paint, draw};
use super::state::{Mode, State};
use crate::list::{Nat, RowState};
use crate::select::{GroupBy, Sort};
use crate::view::protocol::{
    Answer, Connection, Ends, GroupName, GroupObject, Losses, Overview, PROTOCOL_VERSION, Page, Request, RowObject,
    Sample,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

const DAY_NS: i64 = 86_400_000_000_000;

/// The end of the lists here.
const END_NS: i64 = 20_000 * DAY_NS + 3_600_000_000_000;

/// A run with so many connections, which answers as the server of a view does.
struct Fake {
    count: u64,
    list: u64,
}

impl Fake {
    fn row(number: u64) -> RowObject {
        let [.., high, low] = (number as u32).to_be_bytes();
        let client = match number % 10 {
            7 => format!("[2001:db8:1234:5678:9abc:def0:{high:x}:{low:x}]:50000").parse().unwrap(),
            _ => format!("10.1.{high}.{low}:40000").parse().unwrap(),
        };
        RowObject {
            ends: Ends { client, server: "93.184.216.34:443".parse().unwrap(), vlan: Vec::new() },
            state: [RowState::Established, RowState::Established, RowState::SynSent][number as usize % 3],
            start_ns: END_NS - number as i64 * 1_000_000_000,
            age_ns: number as i64 * 1_000_000_000,
            midstream: number.is_multiple_of(4),
            unsettled: false,
            start_is_bound: false,
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let selected = if request.filter.is_empty() { self.count } else { self.count / 2 };
        let line_count = if request.group_by.is_some() { selected.min(5) } else { selected };
        let offset = request.offset.min(line_count.saturating_sub(request.count));
        let lines = offset..line_count.min(offset + request.count);
        let group = |number: u64| GroupObject {
            key: match request.group_by.unwrap() {
                GroupBy::Client | GroupBy::Server => GroupName::Address(Fake::row(number).ends.client.ip()),
                GroupBy::Port => GroupName::Port(443),
                GroupBy::State => GroupName::State(RowState::SynSent),
            },
            established: 1_000_000 - number,
            half_open: number,
            oldest_ns: 7_500_000_000_000,
        };
        let losses_in_all = Losses { dropped: 1_234, ..Losses::default() };
        let overview = Overview {
            list: self.list,
            end_ns: END_NS,
            established: self.count,
            half_open: 12,
            complete: !self.list.is_multiple_of(2),
            missing: 3,
            losses: if self.list.is_multiple_of(2) { losses_in_all } else { Losses::default() },
            losses_in_all: if self.list > 1 { losses_in_all } else { Losses::default() },
            ..Overview::default()
        };
        let sample = |list: u64| Sample {
            list,
            length_ns: 1_000_000_000,
            opened: list % 9 * 10,
            closed: list % 5,
            ..Sample::default()
        };
        let is_group = request.group_by.is_some();
        Answer {
            version: PROTOCOL_VERSION,
            overview: Some(overview),
            samples: (request.known_list + 1..=self.list).map(sample).collect(),
            rows_of: self.list,
            page: Some(Page {
                listed: self.count,
                selected,
                group_count: if is_group { line_count } else { 0 },
                offset,
                end_ns: END_NS,
                rows: if is_group { Vec::new() } else { lines.clone().map(Fake::row).collect() },
                groups: if is_group { lines.map(group).collect() } else { Vec::new() },
            }),
            ..Answer::default()
        }
    }
}

/// A screen over a run.
struct Screen {
    terminal: Terminal<TestBackend>,
    state: State,
    run: Fake,
    is_coloured: bool,
}

impl Screen {
    fn new(width: u16, height: u16, count: u64) -> Self {
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let state = State { title: "eth0".to_owned(), ..State::default() };
        let mut screen = Screen { terminal, state, run: Fake { count, list: 1 }, is_coloured: true };
        screen.draw();
        screen.ask();
        screen
    }

    fn draw(&mut self) {
        let paint = Paint { is_coloured: self.is_coloured };
        self.terminal.draw(|frame| draw(frame, &mut self.state, paint)).unwrap();
    }

    /// Answers what the screen asks for, and draws.
    fn ask(&mut self) {
        let request = self.state.request();
        let known_list = self.state.watched.samples.back().map_or(0, |sample| sample.list);
        let answer = self.run.answer(&Request { known_list, ..request.clone() });
        self.state.take(&request, answer);
        self.draw();
    }

    /// Presses keys, with what they ask for answered.
    fn press(&mut self, keys: &[KeyCode]) {
        for key in keys {
            assert_eq!(press(&mut self.state, KeyEvent::from(*key)), Effect::Continue);
            self.draw();
            self.ask();
        }
    }

    fn write(&mut self, text: &str) {
        self.press(&text.chars().map(KeyCode::Char).collect::<Vec<_>>());
    }

    fn lines(&self) -> Vec<String> {
        let buffer = self.terminal.backend().buffer();
        let line =
            |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..buffer.area.height).map(line).collect()
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }
}

#[test]
fn a_screen_of_80_columns_has_every_column() {
    let screen = Screen::new(80, 24, 3);
    let lines = screen.lines();
    assert_eq!(lines[0], format!("flowpeel top  eth0{:>62}", "list 1 of 01:00:00Z"));
    assert_eq!(lines[1], "3 open  12 half-open  complete");
    assert!(lines[2].starts_with("opened/s      10.0 ") && lines[3].starts_with("closed/s       1.0 "), "{lines:?}");
    assert_eq!(lines[4], "lost: nothing");
    assert_eq!(lines[5], "CLIENT                 SERVER                 STATE            AGE  SINCE");
    assert_eq!(lines[6], "10.1.0.0:40000         93.184.216.34:443      established     0.0s  <01:00:00Z");
    assert_eq!(lines[8], "10.1.0.2:40000         93.184.216.34:443      syn_sent        2.0s  00:59:58Z");
    assert_eq!(lines[9], "");
    assert!(lines[23].starts_with("? help  q quit"), "{lines:?}");
}

#[test]
fn screens_of_every_size_hold_what_they_can() {
    for (width, height) in
        [(1, 1), (2, 3), (10, 4), (40, 10), (66, 15), (79, 16), (80, 24), (120, 40), (200, 50), (300, 100)]
    {
        for count in [0, 3, 10_000] {
            let mut screen = Screen::new(width, height, count);
            let keys = [KeyCode::Char('?'), KeyCode::Esc, KeyCode::Char('g'), KeyCode::Char('g'), KeyCode::Enter];
            screen.press(&keys);
            screen.press(&[
                KeyCode::Esc,
                KeyCode::Char('c'),
                KeyCode::End,
                KeyCode::Enter,
                KeyCode::Esc,
                KeyCode::Char('/'),
            ]);
            screen.write(&"x".repeat(usize::from(width) + 5));
            screen.press(&[KeyCode::Enter, KeyCode::Home, KeyCode::Esc]);
        }
    }
    let screen = Screen::new(40, 10, 10_000);
    let lines = screen.lines();
    assert_eq!(lines[0], "flowpeel top  eth0   list 1 of 01:00:00Z");
    assert!(lines[1].starts_with("10,000 open  12 half-open"), "{lines:?}");
    assert!(lines[3].starts_with("CLIENT"), "{lines:?}");
    assert!(lines[4].starts_with("10.1.0.0:40000") || lines[4].contains('\u{2026}'), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains(" est ") || line.contains(" sent ")).count(), 5, "{lines:?}");
    let wide = Screen::new(200, 50, 10_000);
    assert!(wide.text().contains("[2001:db8:1234:5678:9abc:def0:0:7]:50000"), "{}", wide.text());
}

#[test]
fn ten_thousand_scroll_and_only_a_window_is_asked_for() {
    let mut screen = Screen::new(80, 24, 10_000);
    assert!(screen.state.request().count <= 5 * 24);
    screen.press(&[KeyCode::End]);
    assert!(screen.text().contains(&Fake::row(9_999).ends.client.to_string()), "{}", screen.text());
    screen.press(&[KeyCode::PageUp, KeyCode::Up]);
    let height = screen.state.height;
    assert_eq!(screen.state.selected.cursor, 9_999 - height - 1);
    assert_eq!(screen.state.selected.top, 9_999 - height - 1);
    screen.press(&[KeyCode::Home]);
    assert!(screen.text().contains("10.1.0.0:40000"));
    // When most have gone the cursor stays on a line that there is.
    screen.press(&[KeyCode::End]);
    screen.run = Fake { count: 2, list: 2 };
    screen.ask();
    assert_eq!((screen.state.selected.cursor, screen.state.selected.top), (1, 0));
    screen.ask();
    assert!(screen.text().contains("10.1.0.1:40000"), "{}", screen.text());
}

#[test]
fn orders_and_groups_are_asked_for() {
    let mut screen = Screen::new(80, 24, 10_000);
    for (key, sort) in [
        ('a', Some(Sort::Age)),
        ('a', Some(Sort::Youngest)),
        ('a', Some(Sort::Age)),
        ('c', Some(Sort::Client)),
        ('s', Some(Sort::Server)),
        ('p', Some(Sort::Port)),
        ('t', Some(Sort::State)),
        ('l', None),
    ] {
        screen.press(&[KeyCode::Char(key)]);
        assert_eq!(screen.state.request().sort, sort);
    }
    for group_by in [Some(GroupBy::Client), Some(GroupBy::Server), Some(GroupBy::Port), Some(GroupBy::State), None] {
        screen.press(&[KeyCode::Char('g')]);
        assert_eq!(screen.state.request().group_by, group_by);
    }
    screen.press(&[KeyCode::Char('g'), KeyCode::Char('g')]);
    let lines = screen.lines();
    assert!(lines[5].starts_with("SERVER") && lines[5].ends_with("ESTABLISHED   HALF-OPEN  OLDEST"), "{lines:?}");
    assert!(lines[7].contains("999,999") && lines[7].ends_with("2h05m"), "{lines:?}");
    // Into a group, and back to where one was.
    screen.press(&[KeyCode::Down, KeyCode::Enter]);
    let request = screen.state.request();
    assert_eq!((request.filter.as_str(), request.group_by), ("server host 10.1.0.1", None));
    assert!(screen.text().contains("selected 5,000 of 10,000"), "{}", screen.text());
    screen.press(&[KeyCode::Esc]);
    assert_eq!((screen.state.request().group_by, screen.state.selected.cursor), (Some(GroupBy::Server), 1));
}

#[test]
fn a_wrong_filter_is_pointed_at_and_a_right_one_taken() {
    let mut screen = Screen::new(80, 24, 10_000);
    screen.press(&[KeyCode::Char('/')]);
    screen.write("client prot 443");
    screen.press(&[KeyCode::Enter]);
    let lines = screen.lines();
    assert_eq!(lines[21..23], ["/client prot 443", "        ^"]);
    assert!(lines[23].starts_with("an address, a network, \"port\""), "{lines:?}");
    assert_eq!(screen.state.request().filter, "");
    // The error goes with what was wrong.
    screen.press(&[KeyCode::Home]);
    screen.press(&[KeyCode::Right; 8]);
    screen.press(&[KeyCode::Delete, KeyCode::Delete, KeyCode::Delete]);
    screen.write("ort");
    assert_eq!(screen.lines()[23], "/client port 443");
    screen.press(&[KeyCode::Enter]);
    assert_eq!((screen.state.request().filter.as_str(), &screen.state.mode), ("client port 443", &Mode::List));
    assert!(screen.lines()[22].starts_with("filter: client port 443"));
    // Esc gives up what is written, and once more the filter.
    screen.press(&[KeyCode::Char('/'), KeyCode::Backspace, KeyCode::Esc]);
    assert_eq!(screen.state.request().filter, "client port 443");
    screen.press(&[KeyCode::Esc]);
    assert_eq!(screen.state.request().filter, "");
}

#[test]
fn a_frozen_screen_stays() {
    let mut screen = Screen::new(80, 24, 10_000);
    screen.press(&[KeyCode::Char(' ')]);
    let frozen = screen.text();
    assert!(frozen.contains("FROZEN"));
    screen.run = Fake { count: 3, list: 2 };
    screen.ask();
    screen.press(&[KeyCode::Char('a'), KeyCode::Char('g'), KeyCode::Char('/')]);
    assert_eq!(screen.text(), frozen);
    screen.press(&[KeyCode::Char(' ')]);
    assert!(screen.text().contains("3 open") && !screen.text().contains("FROZEN"), "{}", screen.text());
}

#[test]
fn a_life_goes_from_state_to_state_and_ends() {
    let mut screen = Screen::new(80, 24, 10_000);
    screen.press(&[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    let row = Fake::row(2);
    assert_eq!(screen.state.request().connection.as_ref(), Some(&row.ends));
    let established = RowObject { state: RowState::Established, ..row.clone() };
    let outside = "203.0.113.9:61000".parse().unwrap();
    for row in [Some(row.clone()), Some(established.clone()), Some(established), None, None] {
        let nat = row.as_ref().map(|_| Nat { client: outside, server: Fake::row(2).ends.server, is_original: false });
        let connection = Connection { ends: Fake::row(2).ends, row, nat, of_client: 1, of_server: 7_000, of_both: 1 };
        let request = screen.state.request();
        let answer = Answer { connection: Some(connection), ..screen.run.answer(&request) };
        screen.state.take(&request, answer);
        screen.draw();
    }
    let text = screen.text();
    for expected in [
        "client    10.1.0.2:40000",
        "no longer open",
        "syn_sent, when you looked",
        "established",
        "7,000 of its server",
        "NAT       203.0.113.9:61000 to ",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(text.matches("01:00:00Z  ").count(), 3, "{text}");
    screen.press(&[KeyCode::Esc]);
    assert_eq!(screen.state.mode, Mode::List);
}

#[test]
fn losses_and_what_is_missing_are_said_in_red_or_bold() {
    let mut screen = Screen::new(80, 24, 3);
    screen.run.list = 2;
    screen.ask();
    let lines = screen.lines();
    assert_eq!(lines[1], "3 open  12 half-open  NOT COMPLETE: about 3");
    let overview = screen.state.watched.overview.as_mut().unwrap();
    (overview.since_ns, overview.warming_up) = (Some(END_NS - 90_000_000_000), true);
    screen.draw();
    assert_eq!(screen.lines()[1], "3 open  12 half-open  warming up: finding older ones  since 00:58:30Z");
    assert_eq!(lines[4], "lost: 1,234 packets; since the start: 1,234 packets");
    assert_eq!(screen.terminal.backend().buffer()[(0, 4)].fg, Color::Red);
    screen.is_coloured = false;
    screen.draw();
    let buffer = screen.terminal.backend().buffer();
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    screen.run.list = 3;
    screen.ask();
    assert_eq!(screen.lines()[4], "lost: nothing; since the start: 1,234 packets");
}

#[test]
fn what_comes_from_outside_commands_no_terminal() {
    let mut screen = Screen::new(80, 24, 3);
    let refused = crate::view::protocol::RequestError { reason: "\u{1b}[2Jgone".to_owned(), position: None };
    let request = screen.state.request();
    screen.state.take(&request, Answer { error: Some(refused), ..screen.run.answer(&request) });
    screen.draw();
    assert!(screen.text().contains("refuses what is asked") && !screen.text().contains("gone"), "{}", screen.text());
    screen.state.note = Some("\u{1b}]0;title\u{7}".to_owned());
    screen.draw();
    assert!(!screen.text().chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn the_end_is_q_or_control_c_and_not_within_a_filter() {
    let mut screen = Screen::new(80, 24, 3);
    let key = |c| KeyEvent::from(KeyCode::Char(c));
    assert_eq!(press(&mut screen.state, key('q')), Effect::Quit);
    screen.press(&[KeyCode::Char('/')]);
    assert_eq!(press(&mut screen.state, key('q')), Effect::Continue);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut screen.state, control_c), Effect::Quit);
}
