//! Keys in, changes of the state out.

use super::state::{FilterLine, Mode, State};
use crate::select::{FILTER_SIZE_MAX, Sort};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key leads to beside a new screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The screen may ask for something else.
    Continue,
    /// The end.
    Quit,
}

/// The keys, for the screen that explains them.
pub(super) const HELP: [(&str, &str); 13] = [
    ("up down j k", "a line up, down"),
    ("PgUp PgDn", "a screen up, down"),
    ("Home End", "the first, the last line"),
    ("a", "oldest first; again: youngest first"),
    ("c s p t", "by client, server, server's port, state"),
    ("l", "in the order of lists"),
    ("g", "groups: client, server, port, state, none"),
    ("Enter", "life of a connection; connections of a group"),
    ("Esc", "back; all connections"),
    ("/", "filter: port 443 and age > 1h"),
    ("space", "freeze the screen, and go on"),
    ("?", "this help"),
    ("q Ctrl-C", "the end"),
];

/// Takes a key.
pub(super) fn press(state: &mut State, key: KeyEvent) -> Effect {
    if key.kind == KeyEventKind::Release {
        return Effect::Continue;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if is_control && key.code == KeyCode::Char('c') {
        return Effect::Quit;
    }
    match &mut state.mode {
        Mode::Filter(line) => match key.code {
            KeyCode::Enter => state.end_filter(),
            KeyCode::Esc => state.mode = Mode::List,
            code => write(line, code, is_control),
        },
        Mode::Help | Mode::Life(_) => match key.code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char(' ') => state.is_frozen = !state.is_frozen,
            KeyCode::Char('?') if state.mode != Mode::Help => state.mode = Mode::Help,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Char('?') => state.back(),
            _ => {}
        },
        Mode::List => return press_in_list(state, key.code),
    }
    Effect::Continue
}

fn press_in_list(state: &mut State, code: KeyCode) -> Effect {
    let screen = i64::try_from(state.height.max(1)).unwrap_or(i64::MAX);
    match code {
        KeyCode::Char('q') => return Effect::Quit,
        KeyCode::Up | KeyCode::Char('k') => state.go(-1),
        KeyCode::Down | KeyCode::Char('j') => state.go(1),
        KeyCode::PageUp => state.go(-screen),
        KeyCode::PageDown => state.go(screen),
        KeyCode::Home => state.go(i64::MIN),
        KeyCode::End => state.go(i64::MAX),
        KeyCode::Char('?' | 'h') => state.mode = Mode::Help,
        KeyCode::Char(' ') => state.is_frozen = !state.is_frozen,
        KeyCode::Enter => state.enter(),
        KeyCode::Esc | KeyCode::Backspace => state.back(),
        // What a frozen screen does not have cannot be shown.
        _ if state.is_frozen => {}
        KeyCode::Char('/') => state.write_filter(),
        KeyCode::Char('g') => state.next_groups(),
        KeyCode::Char('a') => state.sort(Sort::Age),
        KeyCode::Char('c') => state.sort(Sort::Client),
        KeyCode::Char('s') => state.sort(Sort::Server),
        KeyCode::Char('p') => state.sort(Sort::Port),
        KeyCode::Char('t') => state.sort(Sort::State),
        KeyCode::Char('l') => state.in_list_order(),
        _ => {}
    }
    Effect::Continue
}

/// Writes in a filter.
fn write(line: &mut FilterLine, code: KeyCode, is_control: bool) {
    let before = line.text.get(..line.cursor).and_then(|text| text.chars().next_back()).map_or(0, char::len_utf8);
    let after = line.text.get(line.cursor..).and_then(|text| text.chars().next()).map_or(0, char::len_utf8);
    match code {
        KeyCode::Char('u') if is_control => *line = FilterLine::default(),
        KeyCode::Char(_) if is_control => {}
        KeyCode::Char(c) if line.text.len() + c.len_utf8() <= FILTER_SIZE_MAX && !c.is_control() => {
            line.text.insert(line.cursor, c);
            line.cursor += c.len_utf8();
            line.error = None;
        }
        KeyCode::Backspace if before > 0 => {
            line.cursor -= before;
            line.text.remove(line.cursor);
            line.error = None;
        }
        KeyCode::Delete if after > 0 => {
            line.text.remove(line.cursor);
            line.error = None;
        }
        KeyCode::Left => line.cursor -= before,
        KeyCode::Right => line.cursor += after,
        KeyCode::Home => line.cursor = 0,
        KeyCode::End => line.cursor = line.text.len(),
        _ => {}
    }
}
