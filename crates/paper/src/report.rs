//! The report: one Markdown file with a table for each group of rows, and a folder of the same name with the plots. It
//! names neither machine nor date, so equal settings give equal bytes.

use crate::plot::svg;
use crate::{Section, Setting};
use flowpeel::error::{Error, Result};
use std::fs;
use std::path::Path;

const HEADS: [&str; 6] = ["", "expected", "ours", "trials", "95 % interval", ""];

/// The report as text; `folder` is where the plots are, relative to the report.
#[must_use]
pub fn markdown(sections: &[Section], setting: &Setting, folder: &str) -> String {
    let mut text = "# The paper's experiments, run again\n\n".to_owned();
    let command = if setting.is_quick { "flowpeel-paper --quick" } else { "flowpeel-paper" };
    text += &format!(
        "Goodrich and Mitzenmacher, *Invertible Bloom Lookup Tables*, [arXiv:1101.2245](https://arxiv.org/abs/1101.2245): \
         every figure of its section 5 beside what the tables here give, and some beyond. Made by `{command} --seed {}` \
         (`cargo run --release -p flowpeel-paper`), which writes the same bytes again.\n\n\
         *inside*: chance explains the difference, in 95 of 100 cases (Wilson's interval for shares; where the paper \
         counted trials too, Newcombe's for their difference). So one row in twenty may be outside by chance alone; \
         what is wrong in the paper is said beside it. Expected values marked *(formula)* are the paper's formulas at that \
         point; *(prototype)* marks independent measurements with other hashes; *always*, *at least* and *at most* are what flowpeel \
         promises.\n\n",
        setting.seed
    );
    text += &summary(sections);
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
