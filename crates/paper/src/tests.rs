//! Verdicts and reports.

use super::*;
use crate::row::grouped;

#[test]
fn a_promise_about_every_trial_is_broken_by_one() {
    assert!(Row::always("", (100, 100)).is_inside(2.0));
    assert!(!Row::always("", (99, 100)).is_inside(9.0));
    let row = |reference| Row::percent("", Source::Goal, reference, Measure::Share { count: 99, trial_count: 100 });
    assert!(row(Reference::AtLeast(0.999)).is_inside(4.0), "so few trials decide nothing");
    assert!(!row(Reference::AtMost(0.5)).is_inside(2.0));
    assert!(!row(Reference::Value { value: 0.5, tolerance: 0.1 }).is_inside(2.0));
    assert!(row(Reference::Value { value: 0.9, tolerance: 0.1 }).is_inside(2.0));
}

#[test]
fn rows_say_what_they_are() {
    let row = Row::counted("complete", (19_998, 20_000), (4_000, 4_000)).because("because");
    let texts = ["complete", "99.990 % of 20,000", "100.000 %", "4,000", "99.904 to 100.000 %", "inside"];
    assert_eq!(row.texts(), texts);
    let wrong = Row { reference: Reference::AtMost(0.5), ..row };
    assert_eq!(wrong.texts()[5], "**outside**: because");
    assert_eq!(grouped(1_234_567), "1,234,567");
    assert_eq!(grouped(12), "12");
}

#[test]
fn a_report_has_every_row_and_every_plot() {
    let line = Line { name: "one".to_owned(), points: vec![(1.0, 2.0), (2.0, 3.0)] };
    let plot = Plot { file_name: "one.svg", title: "One", x: "x", y: "y", lines: vec![line.clone(), line] };
    let rows = vec![Row::counted("right", (10, 10), (10, 10)), Row::counted("wrong", (10, 10), (0, 10))];
    let table = RowTable { caption: "Both".to_owned(), rows };
    let section = Section { title: "Title", text: "Text.", tables: vec![table], plots: vec![plot] };
    let setting = Setting { seed: 7, is_quick: true, kept: None };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.md");
    write(std::slice::from_ref(&section), &setting, &path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("--quick --seed 7") && text.contains("2 rows, 1 outside:\n\n- Title, wrong"), "{text}");
    assert!(text.contains("![One](report/one.svg)") && text.contains("| right | "));
    let svg = std::fs::read_to_string(folder.path().join("report/one.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("One") && svg.len() < 20_000);
    assert!(write(&[section], &setting, folder.path().join("report").as_path()).is_err(), "there would be no folder");
}
