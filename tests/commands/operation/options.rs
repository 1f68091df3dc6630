//! What docs/options.md says of the options, against what the command says itself.

use crate::support::command::{FLOWPEEL, command, flowpeel, run, text};
use std::collections::BTreeMap;

const OPTIONS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/options.md"));

/// The long options of a command, each with its default where that is a value as it would be typed.
fn options(command: &str) -> BTreeMap<String, Option<String>> {
    let help = String::from_utf8(flowpeel([command, "--help"]).stdout).unwrap();
    let mut options = BTreeMap::new();
    let mut last = String::new();
    for line in help.lines() {
        // What is said of an option stands further in, and may begin with the name of another.
        let is_heading = line.trim_start().starts_with('-') && !line.starts_with("          ");
        if is_heading && let Some((_, option)) = line.split_once("--") {
            last = option.split([' ', '[', '=']).next().unwrap().to_owned();
            options.insert(last.clone(), None);
        } else if let Some((_, default)) = line.split_once("[default: ")
            && let Some((default, _)) = default.split_once(']')
            && !default.contains(' ')
            && default != "none"
        {
            options.insert(last.clone(), Some(default.to_owned()));
        }
    }
    options
}

/// The default that the table gives for an option.
fn documented(option: &str) -> Option<&'static str> {
    let rows = OPTIONS.lines().filter(|line| line.starts_with("| `-"));
    let mut rows = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let names = |cell: &str| {
        let mut words = cell.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
        words.any(|word| word.strip_prefix("--") == Some(option))
    };
    rows.find(|cells| names(cells[0])).map(|cells| cells[1])
}

#[test]
fn every_option_stands_in_a_group_and_short_help_fits_a_screen() {
    for name in ["replay", "live"] {
        let help = text(&flowpeel([name, "--help"]).stdout);
        let options = help.lines().skip_while(|line| *line != "Options:").skip(1);
        let ungrouped: Vec<_> = options
            .take_while(|line| line.starts_with(' ') || line.is_empty())
            .filter(|line| line.starts_with("  -") || line.starts_with("      --"))
            .collect();
        assert_eq!(ungrouped, ["  -h, --help", "  -V, --version"], "{name}");
        let short = text(&run(command(FLOWPEEL, [name, "-h"]).env("COLUMNS", "80")).stdout);
        assert!(short.lines().count() <= 24, "{short}");
        assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
    }
}

#[test]
fn every_option_is_documented_with_its_default() {
    for command in ["replay", "live"] {
        let options = options(command);
        assert_eq!(options["connections"].as_deref(), Some("500k"));
        for (option, default) in options {
            if ["help", "version"].contains(&option.as_str()) {
                continue;
            }
            let reported =
                documented(&option).unwrap_or_else(|| panic!("{command} --{option} is not in docs/options.md"));
            if let Some(default) = default {
                assert!(reported.contains(&format!("`{default}`")), "{command} --{option} {default}: {reported}");
            }
        }
    }
}
