//! The paper's experiments in their quick form: every figure is within chance of the expected one, and equal seeds give
//! equal bytes.

use flowpeel_paper::{EXPERIMENTS, Reference, Section, Setting, markdown, write};
use std::fs;

/// Of some hundred rows none may fail by chance: four standard deviations let one in ten thousand fail.
const DEVIATIONS: f64 = 4.0;

const SETTING: Setting = Setting { seed: 1, is_quick: true, kept: None };

fn sections(setting: &Setting) -> Vec<Section> {
    EXPERIMENTS.iter().map(|experiment| experiment.run(setting, &|_| ())).collect()
}

#[test]
fn every_figure_is_in_its_interval_and_equal_seeds_give_equal_bytes() {
    let first = sections(&SETTING);
    let rows: Vec<_> = first.iter().flat_map(|section| section.rows().map(|row| (section.title, row))).collect();
    assert!(rows.len() > 80, "{} rows", rows.len());
    let held = rows.iter().filter(|(_, row)| row.reference != Reference::Unknown).count();
    assert!(held > 60, "{held} rows are held against something");
    for (title, row) in &rows {
        // Without chance in it a figure that is wrong in the paper stays wrong, and says so.
        assert!(row.is_inside(DEVIATIONS) || row.note.contains("the paper is wrong"), "{title}: {row:?}");
    }
    let wrong: Vec<_> = rows.iter().filter(|(_, row)| !row.is_inside(DEVIATIONS)).collect();
    assert_eq!(wrong.len(), 2, "c_7 and what even-odd counters are said to fall short of: {wrong:?}");
    let claims = markdown(&first, &SETTING, "paper");
    assert!(!claims.contains(": 0 rows") && !claims.contains("not run"), "a claim points to tables that are not there");

    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one/paper.md", "other/paper.md"].map(|name| folder.path().join(name));
    write(&first, &SETTING, &one).unwrap();
    let second = sections(&SETTING);
    assert_eq!(first, second);
    write(&second, &SETTING, &other).unwrap();
    assert_eq!(fs::read(&one).unwrap(), fs::read(&other).unwrap());
    let plots = fs::read_dir(one.with_extension("")).unwrap().map(|entry| entry.unwrap().path());
    let plots: Vec<_> = plots.collect();
    assert_eq!(plots.len(), first.iter().map(|section| section.plots.len()).sum::<usize>());
    for plot in plots {
        let twin = other.with_extension("").join(plot.file_name().unwrap());
        assert_eq!(fs::read(&plot).unwrap(), fs::read(twin).unwrap());
    }
}

#[test]
fn another_seed_gives_other_figures() {
    let other = Setting { seed: 2, ..SETTING };
    let table1 = EXPERIMENTS[0];
    let texts = [SETTING, other].map(|setting| markdown(&[table1.run(&setting, &|_| ())], &setting, "paper"));
    assert_ne!(texts[0], texts[1]);
}
