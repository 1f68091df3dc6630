//! The options that say what of a list is shown, and what it looks like.

use crate::cli::values;
use crate::cli::{heading, report};
use crate::export::{Look, Shape};
use crate::select::{Filter, GroupBy, Selection, Sort};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, stdout};

/// Why a table is refused where files are written.
pub(super) const TABLE_IN_FILES: &str = "a table is for people: leave out --out, or take --format csv or ndjson";

/// Why Parquet is refused where no directory is named.
pub(super) const PARQUET_ON_STDOUT: &str = "Parquet is written to files: name a directory with --out DIR";

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
    /// Columns of Parquet, in files below --out
    Parquet,
}

/// The orders as they are typed.
impl ValueEnum for Sort {
    fn value_variants<'a>() -> &'a [Self] {
        &[Sort::Age, Sort::Youngest, Sort::Client, Sort::Server, Sort::Port, Sort::State]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Sort::Age => ("age", "The oldest first"),
            Sort::Youngest => ("youngest", "The youngest first"),
            Sort::Client => ("client", "By the client's address and port"),
            Sort::Server => ("server", "By the server's address and port"),
            Sort::Port => ("port", "By the server's port"),
            Sort::State => ("state", "By the state"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// What connections are grouped by, as it is typed.
impl ValueEnum for GroupBy {
    fn value_variants<'a>() -> &'a [Self] {
        &[GroupBy::Client, GroupBy::Server, GroupBy::Port, GroupBy::State]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            GroupBy::Client => "The client's address",
            GroupBy::Server => "The server's address",
            GroupBy::Port => "The server's port",
            GroupBy::State => "The state",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

/// What of lists is shown, and what they look like.
#[derive(Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct Showing {
    /// table (on a terminal), ndjson, eve, csv or parquet
    ///
    /// Elsewhere than on a terminal it is ndjson. A table is aligned columns for people, as wide as the terminal;
    /// ndjson a line of JSON for the list and one for each connection; eve the same with lines that are valid under the
    /// schema of Suricata; csv has the names of the columns first; parquet is files below --out, in a directory for
    /// each hour, if flowpeel was built with --features parquet.
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
    sort: Option<Sort>,

    /// Show no more than this many
    #[arg(long, value_name = "N", value_parser = values::count, hide_short_help = true)]
    limit: Option<u64>,

    /// Show how many connections have this in common
    #[arg(long, value_name = "WHAT", conflicts_with = "sort", hide_short_help = true)]
    group_by: Option<GroupBy>,
}

impl Showing {
    /// What of a list is shown.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            filter: self.filter.clone(),
            sort: self.sort,
            limit: self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            group_by: self.group_by,
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
            ShapeKind::Parquet => Shape::Parquet,
        }
    }
}

/// How a table looks on standard output: as wide as the terminal and in its colours, or neither cut nor coloured.
fn look() -> Look {
    let width = terminal_size::terminal_size_of(stdout()).map(|(width, _)| usize::from(width.0));
    Look { width: width.filter(|_| stdout().is_terminal()), is_coloured: report::is_stdout_coloured() }
}
