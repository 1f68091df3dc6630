//! The formats of the rows: text for a terminal, JSON for programs, Markdown for docs/performance.md.

use crate::machine::Machine;
use crate::row::{Row, Spread};
use serde_json::{Value, json};

/// The circumstances under which rows were measured.
pub(crate) struct Setting {
    pub(crate) machine: Machine,
    /// The date; today if it is `None`.
    pub(crate) date: Option<String>,
    pub(crate) rounds: usize,
    pub(crate) is_quick: bool,
}

impl Setting {
    fn date(&self) -> String {
        self.date.clone().unwrap_or_else(|| jiff::Timestamp::now().strftime("%F").to_string())
    }
}

const HEADS: [&str; 7] = ["work", "against", "unit", "work / limit", "ratio (min..max)", "at most", ""];

/// The columns of a row.
fn columns(row: &Row) -> [String; 7] {
    let case = &row.case;
    let (cost, ratio) = match &row.skipped {
        Some(reason) => (String::new(), reason.clone()),
        None => (costs(row), ratio(row)),
    };
    let at_most = case.at_most.map_or_else(String::new, |most| format!("{most}x"));
    let work = format!("{} ({})", case.work, case.name);
    [work, case.limit.to_owned(), case.unit.to_owned(), cost, ratio, at_most, row.verdict().to_owned()]
}

/// The medians of both costs.
fn costs(row: &Row) -> String {
    let median = |measurements| Spread::of(measurements).map_or(f64::NAN, |spread| spread.median);
    format!("{} / {}", significant(median(&row.work)), significant(median(&row.limit)))
}

fn ratio(row: &Row) -> String {
    let spread = Spread::of(&row.ratios());
    spread.map_or_else(String::new, |ratio| format!("{:.2}x ({:.2}..{:.2})", ratio.median, ratio.min, ratio.max))
}

/// A figure with three significant digits, or with all digits before the point.
fn significant(figure: f64) -> String {
    match figure.abs() {
        small if small < 10.0 => format!("{figure:.2}"),
        middle if middle < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// The table for a terminal.
pub(crate) fn text(rows: &[Row]) -> String {
    let rows: Vec<_> = std::iter::once(HEADS.map(str::to_owned)).chain(rows.iter().map(columns)).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    let lines = rows.iter().map(|row| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    });
    lines.collect()
}

/// The rows as one JSON object, with every measurement.
pub(crate) fn json(rows: &[Row], setting: &Setting) -> String {
    let rows: Vec<Value> = rows.iter().map(object).collect();
    let machine = &setting.machine;
    let all = json!({
        "date": setting.date(),
        "machine": { "processor": machine.processor, "cores": machine.core_count, "huge_pages": machine.huge_pages },
        "rounds": setting.rounds,
        "quick": setting.is_quick,
        "rows": rows,
    });
    format!("{all:#}\n")
}

fn object(row: &Row) -> Value {
    let case = &row.case;
    let spread = |measurements: &[f64]| {
        Spread::of(measurements).map(|spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max }))
    };
    json!({
        "name": case.name,
        "work": case.work,
        "limit": case.limit,
        "unit": case.unit,
        "at_most": case.at_most,
        "met": row.is_met(),
        "skipped": row.skipped,
        "ratio": spread(&row.ratios()),
        "ratios": row.ratios(),
        "work_costs": row.work,
        "limit_costs": row.limit,
    })
}

/// The rows as a section of Markdown.
pub(crate) fn markdown(rows: &[Row], setting: &Setting) -> String {
    let machine = &setting.machine;
    let quick = if setting.is_quick {
        " These are figures of a quick run: they show that it works, and nothing else."
    } else {
        ""
    };
    let mut text = format!(
        "## Parts against their limits\n\n`cargo bench --bench limits`, {}, on {} cores of {} (huge pages: {}). Each row is the median of {} \
         rounds in which the work and its limit were measured in turns; ratios count, times are this machine's.{quick}\n\n",
        setting.date(),
        machine.core_count,
        machine.processor,
        machine.huge_pages,
        setting.rounds
    );
    text += &format!("| {} |\n|---|---|---|---:|---:|---:|---|\n", HEADS.join(" | "));
    for row in rows {
        // A bar within a cell would begin the next cell.
        text += &format!("| {} |\n", columns(row).map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}
