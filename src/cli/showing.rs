//! The options that say what of a list is shown, and what it looks like.

use crate::cli::values;
use crate::cli::{heading, report};
use crate::export::{Look, Shape};
use crate::select::{Filter, GroupBy, Selection, Sort};
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, stdout};

/// What a list looks like.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ShapeKind {
    /// Aligned columns for people, as wide as the terminal
    Table,
    /// A line of JSON for the list and one for each connection
    Ndjson,
    /// As ndjson, with the lines of Suricata's EVE
    Eve,
    /// Comma-separated values, with the names of the columns first
    Csv,
}

/// An order of connections.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum SortKind {
    /// The oldest first
    Age,
    /// The youngest first
    Youngest,
    /// By the client's address and port
    Client,
    /// By the server's address and port
    Server,
    /// By the server's port
    Port,
    /// By the state
    State,
}

impl From<SortKind> for Sort {
    fn from(kind: SortKind) -> Self {
        match kind {
            SortKind::Age => Sort::Age,
            SortKind::Youngest => Sort::Youngest,
            SortKind::Client => Sort::Client,
            SortKind::Server => Sort::Server,
            SortKind::Port => Sort::Port,
            SortKind::State => Sort::State,
        }
    }
}

/// What connections are grouped by.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum GroupKind {
    /// The client's address
    Client,
    /// The server's address
    Server,
    /// The server's port
    Port,
    /// The state
    State,
}

impl From<GroupKind> for GroupBy {
    fn from(kind: GroupKind) -> Self {
        match kind {
            GroupKind::Client => GroupBy::Client,
            GroupKind::Server => GroupBy::Server,
            GroupKind::Port => GroupBy::Port,
            GroupKind::State => GroupBy::State,
        }
    }
}

/// What of lists is shown, and what they look like.
#[derive(Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct Showing {
    /// table (on a terminal), ndjson, eve or csv
    ///
    /// Elsewhere than on a terminal it is ndjson. A table is aligned columns for people, as wide as the terminal;
    /// ndjson a line of JSON for the list and one for each connection; eve the same with lines that are valid under the
    /// schema of Suricata; csv has the names of the columns first.
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<ShapeKind>,

    /// Show these only: 'port 443 and age > 1h'
    ///
    /// What is tracked stays the same, and the header says that it is a selection. docs/filter.md has the language:
    /// client, server, host, net, port, portrange, age, state, vlan, ip, ip6, and, or, not.
    #[arg(long, value_name = "EXPR")]
    filter: Option<Filter>,

    /// Show connections in this order
    #[arg(long, value_name = "BY", hide_short_help = true)]
    sort: Option<SortKind>,

    /// Show no more than this many
    #[arg(long, value_name = "N", value_parser = values::count, hide_short_help = true)]
    limit: Option<u64>,

    /// Show how many connections have this in common
    #[arg(long, value_name = "WHAT", conflicts_with = "sort", hide_short_help = true)]
    group_by: Option<GroupKind>,
}

impl Showing {
    /// What of a list is shown.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            filter: self.filter.clone(),
            sort: self.sort.map(Sort::from),
            limit: self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            group_by: self.group_by.map(GroupBy::from),
        }
    }

    /// Whether a format was asked for.
    pub(super) fn names_format(&self) -> bool {
        self.format.is_some()
    }

    /// Whether any of these options was given.
    pub(super) fn is_asked_for(&self) -> bool {
        self.names_format() || self.selection().is_partial()
    }

    /// What lists on standard output look like: what was asked for, or a table on a terminal.
    pub(super) fn on_stdout(&self) -> Shape {
        match ShapeKind::on_stdout(self.format) {
            ShapeKind::Table => Shape::Table(look()),
            other => other.in_file(),
        }
    }

    /// What lists in files look like.
    pub(super) fn in_files(&self) -> Shape {
        self.format.unwrap_or(ShapeKind::Ndjson).in_file()
    }
}

impl ShapeKind {
    /// What is written to standard output: what was asked for, or a table on a terminal.
    pub(super) fn on_stdout(asked: Option<Self>) -> Self {
        let otherwise = if stdout().is_terminal() { ShapeKind::Table } else { ShapeKind::Ndjson };
        asked.unwrap_or(otherwise)
    }

    /// What it is in a file, which has no width.
    fn in_file(self) -> Shape {
        match self {
            ShapeKind::Table => Shape::Table(Look { width: None, is_coloured: false }),
            ShapeKind::Ndjson => Shape::Ndjson,
            ShapeKind::Eve => Shape::Eve,
            ShapeKind::Csv => Shape::Csv,
        }
    }
}

/// How a table looks on standard output: as wide as the terminal and in its colours, or neither cut nor coloured.
fn look() -> Look {
    let width = terminal_size::terminal_size_of(stdout()).map(|(width, _)| usize::from(width.0));
    Look { width: width.filter(|_| stdout().is_terminal()), is_coloured: report::is_stdout_coloured() }
}
