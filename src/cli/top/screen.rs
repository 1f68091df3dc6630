//! The state in, a screen out: from one that fills a wall to one of 40 columns and 10 lines. Of what came over the wire
//! it shows addresses and numbers, and formats no more than the lines that it has room for.

use super::keys::HELP;
use super::life::{Life, Moment};
use super::state::{FilterLine, Mode, State};
use crate::cli::report::grouped;
use crate::export::{age_text, end_text, rfc3339, since_text};
use crate::list::{Row, RowState};
use crate::select::Sort;
use crate::view::protocol::{GroupName, GroupObject, Losses, Overview, Sample};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

/// The fewest lines of a screen that has room for how the numbers went.
const SPARKLINES_HEIGHT_MIN: u16 = 16;

/// The fewest columns of a screen that has room for when connections started.
const SINCE_WIDTH_MIN: usize = 80;

/// The fewest columns of a screen that has room for the names of states; below it there are marks.
const STATE_WIDTH_MIN: usize = 67;

/// The widths of columns.
const STATE_WIDTH: usize = 11;
const MARK_WIDTH: usize = 4;
const AGE_WIDTH: usize = 7;
const SINCE_WIDTH: usize = 11;
const COUNT_WIDTH: usize = 11;
const COUNT_WIDTH_MIN: usize = 7;

/// The widest column of an end: the longest IPv6 address with its port.
const END_WIDTH_MAX: usize = 47;

/// Whether there are colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) is_coloured: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }

    fn warning(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn state(self, state: RowState) -> Style {
        self.colour(match state {
            RowState::Established => Color::Green,
            RowState::SynSent => Color::Yellow,
            RowState::SynRecv => Color::Cyan,
        })
    }
}

/// Draws the state, and notes in it how many lines of the list there is room for.
pub(super) fn draw(frame: &mut Frame, state: &mut State, paint: Paint) {
    let width = usize::from(frame.area().width);
    let losses = losses(state.watched.overview.as_ref(), paint);
    let foot = foot(state, width, paint);
    let height = |lines: usize| Constraint::Length(u16::try_from(lines).unwrap_or(u16::MAX));
    let sparkline_count = if frame.area().height < SPARKLINES_HEIGHT_MIN { 0 } else { 2 };
    let parts = [height(2), height(sparkline_count), height(1), height(1), Constraint::Min(0), height(foot.len())];
    let [head_area, sparkline_area, losses_area, heading_area, list_area, foot_area] =
        Layout::vertical(parts).areas(frame.area());
    state.height = u64::from(list_area.height);
    state.keep_cursor_inside();
    frame.render_widget(Paragraph::new(head(state, width, paint)), head_area);
    sparklines(frame, state, sparkline_area, paint);
    frame.render_widget(Paragraph::new(losses), losses_area);
    let (heading, lines) = match &state.mode {
        Mode::Help => ("KEYS".to_owned(), help(width)),
        Mode::Life(life) => ("CONNECTION".to_owned(), life_lines(life, state.watched.page.end_ns, paint)),
        Mode::List | Mode::Filter(_) if state.selected.group_by.is_some() => groups(state, width, paint),
        Mode::List | Mode::Filter(_) => rows(state, width, paint),
    };
    let heading = Span::styled(format!("{heading:width$}"), Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Paragraph::new(Line::from(heading)), heading_area);
    frame.render_widget(Paragraph::new(lines), list_area);
    frame.render_widget(Paragraph::new(foot), foot_area);
    if let Mode::Filter(line) = &state.mode {
        let column = 1 + shown_from(line, width).1;
        frame.set_cursor_position(Position::new(u16::try_from(column).unwrap_or(u16::MAX), foot_area.y));
    }
}

/// The first two lines: what is watched, as of when, and the counts.
fn head(state: &State, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let frozen = if state.is_frozen { "FROZEN  " } else { "" };
    let Some(overview) = state.watched.overview else {
        let text = both_sides(&format!("flowpeel top  {}", state.title), "no list yet", width);
        return vec![Line::raw(text), Line::raw("")];
    };
    let last = if overview.is_last { "the last " } else { "" };
    let list = format!("{frozen}{last}list {} of {}", grouped(overview.list), time_of_day(overview.end_ns));
    let title = both_sides(&format!("flowpeel top  {}", state.title), &list, width);
    let mut counts = vec![
        Span::styled(grouped(overview.established), paint.colour(Color::Green).add_modifier(Modifier::BOLD)),
        Span::raw(" open  "),
        Span::styled(grouped(overview.half_open), paint.colour(Color::Yellow)),
        Span::raw(" half-open  "),
        match overview {
            Overview { complete: true, .. } => Span::raw("complete"),
            // What is missing then is what was found last: a number that says little.
            Overview { warming_up: true, .. } => {
                Span::styled("warming up: finding older ones", paint.colour(Color::Yellow))
            }
            _ => Span::styled(format!("NOT COMPLETE: about {}", grouped(overview.missing)), paint.warning()),
        },
    ];
    if let Some(since_ns) = overview.since_ns {
        counts.push(Span::raw(format!("  since {}", since_of_day(since_ns, overview.end_ns))));
    }
    if overview.unsettled > 0 {
        counts.push(Span::raw(format!("  {} unsettled", grouped(overview.unsettled))));
    }
    let page = &state.watched.page;
    if !state.selected.filter.is_empty() {
        counts.push(Span::raw(format!("  selected {} of {}", grouped(page.selected), grouped(page.listed))));
    }
    vec![Line::styled(title, Style::new().add_modifier(Modifier::BOLD)), Line::from(counts)]
}

/// Two lines: how many opened and closed a second, list by list, the latest on the right.
fn sparklines(frame: &mut Frame, state: &State, area: Rect, paint: Paint) {
    let [opened_area, closed_area] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let samples = &state.watched.samples;
    // The latest first.
    let rates = |count: fn(&Sample) -> u64| -> Vec<f64> {
        let a_second = |sample: &Sample| count(sample) as f64 * 1e9 / sample.length_ns.max(1) as f64;
        samples.iter().rev().map(a_second).collect()
    };
    for (name, area, colour, rates) in [
        ("opened/s", opened_area, Color::Green, rates(|sample| sample.opened)),
        ("closed/s", closed_area, Color::Blue, rates(|sample| sample.closed)),
    ] {
        let latest = rates.first().copied().unwrap_or(0.0);
        let label = format!("{name} {:>9} ", rate_text(latest));
        let label_width = u16::try_from(label.len()).unwrap_or(u16::MAX);
        let [label_area, line_area] =
            Layout::horizontal([Constraint::Length(label_width), Constraint::Min(0)]).areas(area);
        frame.render_widget(Paragraph::new(label), label_area);
        // In tenths, so that a few connections in a long interval show.
        let data = rates.iter().take(usize::from(line_area.width)).map(|a_second| (a_second * 10.0) as u64);
        let line = Sparkline::default().data(data).direction(RenderDirection::RightToLeft).style(paint.colour(colour));
        frame.render_widget(line, line_area);
    }
}

/// A rate with a digit behind the point where it is small.
fn rate_text(a_second: f64) -> String {
    if a_second < 100.0 { format!("{a_second:.1}") } else { grouped(a_second as u64) }
}

/// What was lost in the latest interval, and in all.
fn losses(overview: Option<&Overview>, paint: Paint) -> Line<'static> {
    let Some(overview) = overview else { return Line::raw("") };
    if overview.losses_in_all.are_none() {
        return Line::raw("lost: nothing");
    }
    let text = |losses: &Losses| {
        let Losses { dropped, unusable, untracked, recycled, merged } = *losses;
        let parts = [
            (dropped, "packets"),
            (unusable, "unreadable"),
            (untracked, "no room"),
            (recycled, "half-open"),
            (merged, "lists"),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", grouped(count)))
            .collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    };
    let style = if overview.losses.are_none() { Style::new() } else { paint.warning() };
    Line::from(vec![
        Span::styled(format!("lost: {}", text(&overview.losses)), style),
        Span::raw(format!("; since the start: {}", text(&overview.losses_in_all))),
    ])
}

/// The heading and the lines of connections.
fn rows(state: &State, width: usize, paint: Paint) -> (String, Vec<Line<'static>>) {
    let is_wide = width >= STATE_WIDTH_MIN;
    let has_since = width >= SINCE_WIDTH_MIN;
    let state_width = if is_wide { STATE_WIDTH } else { MARK_WIDTH };
    let gap = if is_wide { 2 } else { 1 };
    let rest = state_width + AGE_WIDTH + 3 * gap + if has_since { gap + SINCE_WIDTH } else { 0 };
    let end_width = (width.saturating_sub(rest) / 2).min(END_WIDTH_MAX);
    let mark = |sorts: &[Sort], name: &str| match state.selected.sort {
        Some(sort) if sorts.contains(&sort) => format!("{name}{}", if sort == Sort::Youngest { '^' } else { 'v' }),
        _ => name.to_owned(),
    };
    let server = if state.selected.sort == Some(Sort::Port) { "SERVER:PORT".to_owned() } else { "SERVER".to_owned() };
    let heading = format!(
        "{:<end_width$}{:gap$}{:<end_width$}{:gap$}{:<state_width$}{:gap$}{:>AGE_WIDTH$}{:gap$}{}",
        cut(&mark(&[Sort::Client], "CLIENT"), end_width),
        "",
        cut(&mark(&[Sort::Server, Sort::Port], &server), end_width),
        "",
        cut(&mark(&[Sort::State], "STATE"), state_width),
        "",
        mark(&[Sort::Age, Sort::Youngest], "AGE"),
        "",
        if has_since { "SINCE" } else { "" },
    );
    let page = &state.watched.page;
    let end = |end| cut(&end_text(end, end_width), end_width);
    let line = |(number, row): (u64, Row)| {
        let style = cursor_style(state, number);
        let since = if has_since { since_text(&row, page.end_ns) } else { String::new() };
        let name = if is_wide { row.state.name() } else { state_mark(row.state) };
        Line::from(vec![
            Span::raw(format!("{:<end_width$}{:gap$}{:<end_width$}{:gap$}", end(row.client), "", end(row.server), "")),
            Span::styled(format!("{name:<state_width$}"), paint.state(row.state)),
            Span::raw(format!("{:gap$}{:>AGE_WIDTH$}{:gap$}{since}", "", age_text(row.age_ns), "")),
        ])
        .style(style)
    };
    (heading, shown(state, &page.rows).map(|(number, row)| (number, Row::from(row))).map(line).collect())
}

/// The lines of a page that are on the screen, with their numbers.
fn shown<'a, T>(state: &State, lines: &'a [T]) -> impl Iterator<Item = (u64, &'a T)> {
    let (top, offset) = (state.selected.top, state.watched.page.offset);
    let skipped = usize::try_from(top.saturating_sub(offset)).unwrap_or(usize::MAX);
    // Where the page begins below the first line there is nothing to show yet.
    let height = if top < offset { 0 } else { usize::try_from(state.height).unwrap_or(usize::MAX) };
    (top..).zip(lines.iter().skip(skipped).take(height))
}

fn cursor_style(state: &State, number: u64) -> Style {
    if number == state.selected.cursor { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
}

/// A state in four columns.
fn state_mark(state: RowState) -> &'static str {
    match state {
        RowState::Established => "est",
        RowState::SynSent => "sent",
        RowState::SynRecv => "recv",
    }
}

/// The heading and the lines of groups.
fn groups(state: &State, width: usize, paint: Paint) -> (String, Vec<Line<'static>>) {
    let name = state.selected.group_by.map_or("", |group_by| group_by.name()).to_uppercase();
    let is_wide = width >= STATE_WIDTH_MIN;
    let count_width = if is_wide { COUNT_WIDTH } else { COUNT_WIDTH_MIN };
    let (established, half_open) = if is_wide { ("ESTABLISHED", "HALF-OPEN") } else { ("EST", "HALF") };
    let key_width = width.saturating_sub(2 * (count_width + 1) + AGE_WIDTH + 1).min(END_WIDTH_MAX);
    let heading = format!(
        "{:<key_width$} {established:>count_width$} {half_open:>count_width$} {:>AGE_WIDTH$}",
        cut(&name, key_width),
        "OLDEST"
    );
    let line = |(number, group): (u64, &GroupObject)| {
        let key = match group.key {
            GroupName::Address(address) => address.to_string(),
            GroupName::Port(port) => port.to_string(),
            GroupName::State(state) => state.name().to_owned(),
        };
        Line::from(vec![
            Span::raw(format!("{:<key_width$} ", cut(&key, key_width))),
            Span::styled(format!("{:>count_width$}", grouped(group.established)), paint.colour(Color::Green)),
            Span::raw(format!(" {:>count_width$} {:>AGE_WIDTH$}", grouped(group.half_open), age_text(group.oldest_ns))),
        ])
        .style(cursor_style(state, number))
    };
    (heading, shown(state, &state.watched.page.groups).map(line).collect())
}

/// The keys, in as many columns as there is room for.
fn help(width: usize) -> Vec<Line<'static>> {
    let line = |(key, what): (&str, &str)| format!("{key:<12} {what}");
    let widest = HELP.into_iter().map(line).map(|line| line.chars().count()).max().unwrap_or(0) + 2;
    let columns = (width / widest).clamp(1, 2);
    let height = HELP.len().div_ceil(columns);
    let cell = |index: usize| HELP.get(index).copied().map(line).unwrap_or_default();
    let text = |row: usize| (0..columns).map(|column| format!("{:<widest$}", cell(column * height + row))).collect();
    (0..height).map(|row| Line::raw::<String>(text(row))).collect()
}

/// The life of a connection, as of a list with this end.
fn life_lines(life: &Life, list_end_ns: i64, paint: Paint) -> Vec<Line<'static>> {
    let row = &life.row;
    let tags: Vec<_> = row.vlan.iter().map(|tag| tag.to_string()).collect();
    let started = match (row.midstream, row.start_is_bound) {
        (true, _) => "  (seen first then: it is older)",
        (_, true) => "  (or earlier)",
        _ => "",
    };
    let now = if life.is_listed { row.state.name() } else { "no longer open" };
    let style = if life.is_listed { paint.state(row.state) } else { Style::new().add_modifier(Modifier::BOLD) };
    let field = |name: &str, value: String| Line::raw(format!("{name:<9} {value}"));
    let mut lines = vec![field("client", row.client.to_string()), field("server", row.server.to_string())];
    if let Some(nat) = life.nat {
        let side = if nat.is_original { "before" } else { "behind" };
        lines.push(field("NAT", format!("{} to {} {side} the translation", nat.client, nat.server)));
    }
    if !tags.is_empty() {
        lines.push(field("VLAN", tags.join(" ")));
    }
    lines.push(Line::from(vec![Span::raw(format!("{:<9} ", "state")), Span::styled(now, style)]));
    lines.push(field("started", format!("{}{started}", start_text(row.start_ns))));
    lines.push(field("age", format!("{} at {}", age_text(row.age_ns), time_of_day(list_end_ns))));
    if row.unsettled {
        lines.push(Line::raw("It may have closed while flowpeel was down: no packet of it was seen since."));
    }
    if let Some(neighbours) = life.neighbours {
        let (of_client, of_server) = (grouped(neighbours.of_client), grouped(neighbours.of_server));
        lines.push(field("open now", format!("{of_client} of its client, {of_server} of its server")));
        lines.push(field("", format!("{} of its client to the same port of its server", grouped(neighbours.of_both))));
    }
    lines.push(Line::raw(""));
    for (index, (time_ns, moment)) in life.moments.iter().enumerate() {
        let what = match moment {
            Moment::Is(state) => state.name(),
            Moment::Left => "no longer listed",
        };
        let seen = if index == 0 { ", when you looked at it first" } else { "" };
        lines.push(Line::raw(format!("{}  {what}{seen}", time_of_day(*time_ns))));
    }
    lines
}

/// The last lines: the filter that is written, what there is to know, or the keys.
fn foot(state: &State, width: usize, paint: Paint) -> Vec<Line<'static>> {
    if let Mode::Filter(line) = &state.mode {
        return filter_lines(line, width, paint);
    }
    let mut lines = Vec::new();
    if !state.selected.filter.is_empty() {
        lines.push(Line::raw(cut(&format!("filter: {}", printable(&state.selected.filter)), width)));
    }
    lines.push(match state.lost.as_ref().or(state.note.as_ref()) {
        Some(note) => Line::styled(cut(&printable(note), width), paint.warning()),
        None => {
            let keys =
                if state.is_frozen { "space go on  " } else { "/ filter  g group  a c s p t sort  space freeze  " };
            Line::raw(cut(&format!("? help  q quit  {keys}Enter life"), width))
        }
    });
    lines
}

/// The filter that is written, with a mark below the character at which it is wrong, and why.
fn filter_lines(line: &FilterLine, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let (skipped, _) = shown_from(line, width);
    let text: String = printable(&line.text).chars().skip(skipped).collect();
    let mut lines = vec![Line::raw(cut(&format!("/{text}"), width))];
    if let Some(error) = &line.error {
        let before = line.text.get(..error.position()).unwrap_or(&line.text).chars().count();
        let column = (1 + before.saturating_sub(skipped)).min(width.saturating_sub(1));
        lines.push(Line::styled(format!("{:column$}^", ""), paint.warning()));
        lines.push(Line::styled(cut(error.reason(), width), paint.warning()));
    }
    lines
}

/// How many characters of a filter stand left of the screen, and the column of its cursor behind the slash.
fn shown_from(line: &FilterLine, width: usize) -> (usize, usize) {
    let before = line.text.get(..line.cursor).map_or(0, |text| text.chars().count());
    let room = width.saturating_sub(2);
    let skipped = before.saturating_sub(room);
    (skipped, before - skipped)
}

/// A text with one character for each, none of which commands a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A text of no more columns than this: what is cut off is marked.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('\u{2026}');
    }
    cut
}

/// One text on the left and another on the right, which gives way last.
fn both_sides(left: &str, right: &str, width: usize) -> String {
    let right = cut(right, width);
    let room = width - right.chars().count();
    let left = cut(left, room.saturating_sub(1));
    format!("{left:<room$}{right}")
}

/// A time before this end: the time of day, or the day if that was another.
fn since_of_day(time_ns: i64, end_ns: i64) -> String {
    let [text, end] = [time_ns, end_ns].map(rfc3339);
    let is_same_day = text.get(..10) == end.get(..10);
    if is_same_day { time_of_day(time_ns) } else { text.get(..10).unwrap_or_default().to_owned() }
}

/// A time with its day, as precise as starts are: to 100 ms.
fn start_text(time_ns: i64) -> String {
    let text = rfc3339(time_ns);
    format!("{}Z", text.get(..21).unwrap_or_default())
}

/// The time of day to the second.
fn time_of_day(time_ns: i64) -> String {
    let text = rfc3339(time_ns);
    format!("{}Z", text.get(11..19).unwrap_or_default())
}
