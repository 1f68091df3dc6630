//! The report: one Markdown file with a table for each group of rows, and a folder of the same name with the plots. It
//! names neither machine nor date, so equal settings give equal bytes.

use crate::claims;
use crate::plot::svg;
use crate::{Section, Setting};
use flowpeel::error::{Error, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

const HEADS: [&str; 6] = ["", "expected", "ours", "trials", "95 % interval", ""];

/// The report as text; `folder` is where the plots are, relative to the report.
#[must_use]
pub fn markdown(sections: &[Section], setting: &Setting, folder: &str) -> String {
    let mut text = "# The papers' experiments, run again\n\n".to_owned();
    let command = if setting.is_quick { "flowpeel-paper --quick" } else { "flowpeel-paper" };
    text += &format!(
        "Goodrich and Mitzenmacher, *Invertible Bloom Lookup Tables*, [arXiv:1101.2245](https://arxiv.org/abs/1101.2245); Ding and \
         Rauen, *Improving Retrieval Performance for Invertible Bloom Counters*; Greenfield's B-field: their tables, figures, theorems \
         and claims beside what is found here, and some beyond. Made by `{command} --seed {}` \
         (`cargo run --release -p flowpeel-paper`), which writes the same bytes again.\n\n\
         *inside*: chance explains the difference, in 95 of 100 cases (Wilson's interval for shares; where the paper \
         counted trials too, Newcombe's for their difference; Student's for means). So one row in twenty may be outside by chance \
         alone, and [the run under other seeds]({folder}/seeds.md) counts how many are; \
         what is wrong in the paper is said beside it. Expected values marked *(formula)* are the paper's formulas at that \
         point; *(prototype)* marks independent measurements with other hashes, and *(graph)* those of the keys' graph without a table; \
         *always*, *at least* and *at most* are what flowpeel \
         promises. Trials are as many as the paper's, 20,000 a point, but with 100,000 keys fewer, as each row says. \
         [What it took]({folder}/times.md).\n\n",
        setting.seed
    );
    text += &summary(sections);
    text += &claims::markdown(sections);
    for section in sections {
        text += &format!("\n## {}\n\n{}\n", section.title, section.text);
        for table in &section.tables {
            text += &format!("\n**{}**\n\n| {} |\n|---|---:|---:|---:|---:|---|\n", table.caption, HEADS.join(" | "));
            for row in &table.rows {
                text += &format!("| {} |\n", row.texts().join(" | "));
            }
        }
        for plot in &section.plots {
            text += &format!("\n![{}]({folder}/{})\n", plot.title, plot.file_name);
        }
    }
    text
}

/// How many rows are inside, and which are not.
fn summary(sections: &[Section]) -> String {
    let rows: Vec<_> = sections.iter().flat_map(|section| section.rows().map(|row| (section.title, row))).collect();
    let outside = rows.iter().filter(|(_, row)| !row.is_expected());
    let outside: Vec<_> = outside.collect();
    let mut text =
        format!("{} rows, {} outside{}\n", rows.len(), outside.len(), if outside.is_empty() { "." } else { ":\n" });
    for (title, row) in outside {
        let [what, expected, ours, ..] = row.texts();
        let note = if row.note.is_empty() { "no other reason than chance is known" } else { row.note };
        text += &format!("- {title}, {what}: expected {expected}, ours {ours} ({note})\n");
    }
    text
}

/// Writes the report to `path`, and its plots to a folder of that name without the extension.
///
/// # Errors
///
/// A file or the folder cannot be written, or `path` has no name.
pub fn write(sections: &[Section], setting: &Setting, path: &Path) -> Result<()> {
    let cannot =
        |path: &Path, error: std::io::Error| Error::new("cannot write the report").in_file(path).because(error);
    let folder = path.with_extension("");
    let name = folder.file_name().filter(|_| folder != path);
    let name = name.ok_or_else(|| Error::new("the report needs a name with an ending: paper.md").in_file(path))?;
    fs::create_dir_all(&folder).map_err(|error| cannot(&folder, error))?;
    for plot in sections.iter().flat_map(|section| &section.plots) {
        let path = folder.join(plot.file_name);
        fs::write(&path, svg(plot)?).map_err(|error| cannot(&path, error))?;
    }
    let text = markdown(sections, setting, &name.to_string_lossy());
    fs::write(path, text).map_err(|error| cannot(path, error))
}

/// The processor time that an experiment took.
#[derive(Clone, Debug, PartialEq)]
pub struct Took {
    /// The title of the experiment.
    pub title: &'static str,
    /// The time.
    pub time: Duration,
}

/// Writes what each experiment took beside the plots of the report at `path`. It is a file of its own, since it differs
/// between two runs that are otherwise equal.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_times(took: &[Took], path: &Path) -> Result<()> {
    let minutes = |time: Duration| format!("{:.1}", time.as_secs_f64() / 60.0);
    let mut text = "# What the experiments took\n\nProcessor time of one core, in minutes, of the run that wrote \
                    [the report](../paper.md), and of those that it continued.\n\n| experiment | minutes |\n|---|---:|\n"
        .to_owned();
    for Took { title, time } in took {
        text += &format!("| {title} | {} |\n", minutes(*time));
    }
    text += &format!("| all | {} |\n", minutes(took.iter().map(|took| took.time).sum()));
    let path = path.with_extension("").join("times.md");
    let cannot = |error| Error::new("cannot write the times").in_file(&path).because(error);
    fs::write(&path, text).map_err(cannot)
}
