//! What the screen shows, and what that asks for: a window of rows or groups around the lines on the screen.

use super::life::Life;
use crate::select::{FILTER_SIZE_MAX, Filter, FilterError, GroupBy, Sort};
use crate::view::SAMPLES_MAX;
use crate::view::protocol::{Answer, GroupName, Overview, Page, Request, Sample, WINDOW_COUNT_MAX};
use std::collections::VecDeque;

/// Screens of lines that are asked for above and below the one that is shown, so that scrolling shows rows at once.
const MARGIN_SCREENS: u64 = 2;

/// How deep one can go into groups of groups.
const BACK_MAX: usize = 16;

/// What is selected, and how it is put in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selected {
    /// The filter as it was written, which is one; empty for all.
    pub(super) filter: String,
    pub(super) sort: Option<Sort>,
    pub(super) group_by: Option<GroupBy>,
    /// The line with the cursor.
    pub(super) cursor: u64,
    /// The first line on the screen.
    pub(super) top: u64,
}

/// What is on the screen beside or instead of the list.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    List,
    /// A filter is being written.
    Filter(FilterLine),
    Help,
    Life(Box<Life>),
}

/// A filter that is being written, and why it is none yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FilterLine {
    pub(super) text: String,
    /// The byte before which the next character goes.
    pub(super) cursor: usize,
    pub(super) error: Option<FilterError>,
}

/// What was got of the run that is watched.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) overview: Option<Overview>,
    /// Oldest first.
    pub(super) samples: VecDeque<Sample>,
    pub(super) rows_of: u64,
    pub(super) page: Page,
    /// Whether the page is of what was selected before.
    is_stale: bool,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What is watched, for the first line.
    pub(super) title: String,
    pub(super) selected: Selected,
    /// Where one came from, through groups.
    pub(super) before: Vec<Selected>,
    pub(super) mode: Mode,
    pub(super) watched: Watched,
    pub(super) is_frozen: bool,
    /// What there is to know of the source, such as an interface that is down.
    pub(super) note: Option<String>,
    /// Why there are no answers.
    pub(super) lost: Option<String>,
    /// How many lines of the list fit the screen, as it was drawn last.
    pub(super) height: u64,
}

impl State {
    /// What the lines around the screen ask for.
    pub(super) fn request(&self) -> Request {
        let Selected { filter, sort, group_by, top, .. } = &self.selected;
        let height = self.height.max(1);
        let margin = MARGIN_SCREENS * height;
        let connection = match &self.mode {
            Mode::Life(life) => Some(life.ends().clone()),
            _ => None,
        };
        Request {
            filter: filter.clone(),
            sort: *sort,
            group_by: *group_by,
            offset: top.saturating_sub(margin),
            count: (height + 2 * margin).min(WINDOW_COUNT_MAX),
            connection,
            ..Request::default()
        }
    }

    /// Takes what came, in answer to this request.
    pub(super) fn take(&mut self, request: &Request, answer: Answer) {
        if self.is_frozen {
            return;
        }
        let Answer { error, overview, samples, rows_of, page, connection, .. } = answer;
        if error.is_some() {
            // The words of another process are not for the terminal.
            self.lost =
                Some("flowpeel live refuses what is asked: is it of another version, or busy with others?".to_owned());
            return;
        }
        self.lost = None;
        let watched = &mut self.watched;
        let known = watched.samples.back().map_or(0, |sample| sample.list);
        if samples.first().is_some_and(|first| first.list <= known) {
            // All of them were asked for, because this is another attachment, or another run.
            watched.samples.clear();
        }
        watched.overview = overview;
        watched.samples.extend(samples);
        let too_many = watched.samples.len().saturating_sub(SAMPLES_MAX);
        watched.samples.drain(..too_many);
        watched.rows_of = rows_of;
        let Selected { filter, sort, group_by, .. } = &self.selected;
        let is_of_this = (&request.filter, &request.sort, &request.group_by) == (filter, sort, group_by);
        if let Some(page) = page.filter(|_| is_of_this) {
            (watched.page, watched.is_stale) = (page, false);
            self.keep_cursor_inside();
        }
        if let (Mode::Life(life), Some(connection)) = (&mut self.mode, connection) {
            life.take(connection, self.watched.page.end_ns);
        }
    }

    /// How many lines there are, on the screen or not; `None` until that is known.
    fn line_count(&self) -> Option<u64> {
        let Watched { page, is_stale, .. } = &self.watched;
        let count = if self.selected.group_by.is_some() { page.group_count } else { page.selected };
        Some(count).filter(|_| !is_stale)
    }

    /// Moves the cursor, down if this is positive.
    pub(super) fn go(&mut self, lines: i64) {
        self.selected.cursor = self.selected.cursor.saturating_add_signed(lines);
        self.keep_cursor_inside();
    }

    /// Keeps the cursor on a line, and the screen around it.
    pub(super) fn keep_cursor_inside(&mut self) {
        let (count, height) = (self.line_count(), self.height.max(1));
        let Selected { cursor, top, .. } = &mut self.selected;
        if let Some(count) = count {
            *cursor = (*cursor).min(count.saturating_sub(1));
            *top = (*top).min(count.saturating_sub(height));
        }
        *top = (*top).min(*cursor).max(cursor.saturating_add(1).saturating_sub(height));
    }

    /// The index of this line in the page, if it is there.
    pub(super) fn index_in_page(&self, line: u64) -> Option<usize> {
        line.checked_sub(self.watched.page.offset).and_then(|index| usize::try_from(index).ok())
    }

    /// Selects something else, from its first line on.
    fn select(&mut self, selected: Selected) {
        self.selected = Selected { cursor: 0, top: 0, ..selected };
        self.watched.is_stale = true;
    }

    /// Puts rows in this order, or the reverse where there is one.
    pub(super) fn sort(&mut self, sort: Sort) {
        let sort = match (sort, self.selected.sort) {
            (Sort::Age, Some(Sort::Age)) => Sort::Youngest,
            (sort, _) => sort,
        };
        self.select(Selected { sort: Some(sort), group_by: None, ..self.selected.clone() });
    }

    /// Shows rows in the order of lists.
    pub(super) fn in_list_order(&mut self) {
        self.select(Selected { sort: None, group_by: None, ..self.selected.clone() });
    }

    /// Asks for the next kind of groups, or for rows after the last.
    pub(super) fn next_groups(&mut self) {
        let group_by = match self.selected.group_by {
            None => Some(GroupBy::Client),
            Some(GroupBy::Client) => Some(GroupBy::Server),
            Some(GroupBy::Server) => Some(GroupBy::Port),
            Some(GroupBy::Port) => Some(GroupBy::State),
            Some(GroupBy::State) => None,
        };
        self.select(Selected { group_by, ..self.selected.clone() });
    }

    /// Goes into the line with the cursor: the life of a connection, or the connections of a group.
    pub(super) fn enter(&mut self) {
        let Some(index) = self.index_in_page(self.selected.cursor) else { return };
        let page = &self.watched.page;
        if let Some(row) = page.rows.get(index).filter(|_| self.selected.group_by.is_none()) {
            self.mode = Mode::Life(Box::new(Life::new(row, page.end_ns)));
        } else if let (Some(group), Some(group_by)) = (page.groups.get(index), self.selected.group_by)
            && !self.is_frozen
        {
            let one = test_of(group_by, group.key);
            let filter = match self.selected.filter.as_str() {
                "" => one,
                filter => format!("({filter}) and {one}"),
            };
            if filter.len() <= FILTER_SIZE_MAX && self.before.len() < BACK_MAX {
                self.before.push(self.selected.clone());
                self.select(Selected { filter, group_by: None, ..self.selected.clone() });
            }
        }
    }

    /// Goes back: to the list, to the groups, or to all connections.
    pub(super) fn back(&mut self) {
        if self.mode != Mode::List {
            self.mode = Mode::List;
        } else if self.is_frozen {
            // What a frozen screen does not have cannot be shown.
        } else if let Some(before) = self.before.pop() {
            self.selected = before;
            self.watched.is_stale = true;
        } else if !self.selected.filter.is_empty() {
            self.select(Selected { filter: String::new(), ..self.selected.clone() });
        }
    }

    /// Begins to write a filter, with the one that there is.
    pub(super) fn write_filter(&mut self) {
        let text = self.selected.filter.clone();
        self.mode = Mode::Filter(FilterLine { cursor: text.len(), text, error: None });
    }

    /// Takes the filter that was written, if it is one.
    pub(super) fn end_filter(&mut self) {
        let Mode::Filter(line) = &mut self.mode else { return };
        let filter = line.text.trim().to_owned();
        // As it stands on the screen, for the place of an error.
        line.error = line.text.parse::<Filter>().err().filter(|_| !filter.is_empty());
        if line.error.is_some() {
            return;
        }
        self.mode = Mode::List;
        self.before.clear();
        self.select(Selected { filter, ..self.selected.clone() });
    }
}

/// The test of a filter that selects a group.
fn test_of(group_by: GroupBy, key: GroupName) -> String {
    let end = if group_by == GroupBy::Client { "client" } else { "server" };
    match key {
        GroupName::Address(address) => format!("{end} host {address}"),
        GroupName::Port(port) => format!("{end} port {port}"),
        GroupName::State(state) => state.name().to_owned(),
    }
}
