//! The files that come with the command, tried where they are used: completions in a shell, man pages in man, the unit
//! in systemd.

use super::{FLOWPEEL, files, flowpeel, has, name};
use crate::support::command::{command, run, text};
use crate::support::say::skipped;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations/flowpeel@.service");

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = flowpeel(["completions", shell]);
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""), "{shell}");
        let script = text(&output.stdout);
        assert!(script.contains("syn-timeout") && script.contains("flowpeel"), "{shell}");
    }
    assert_eq!(flowpeel(["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn bash_completes() {
    if !has("bash") {
        return;
    }
    let script = r#"source <("$1" completions bash) || exit 1
        COMP_WORDS=(flowpeel $2) COMP_CWORD=$(($# - 1 > 1 ? $3 : 1))
        _flowpeel flowpeel "${COMP_WORDS[$COMP_CWORD]}" "${COMP_WORDS[$((COMP_CWORD - 1))]}"
        echo "${COMPREPLY[*]}""#;
    for (words, completed) in
        [("replay --ro", "--router"), ("rep", "replay"), ("replay --keep 7d --comp", "--compress")]
    {
        let last = words.split(' ').count().to_string();
        let output = run(&mut command("bash", ["-c", script, "bash", FLOWPEEL, words, &last]));
        assert_eq!(text(&output.stdout).trim(), completed, "{}", output.stderr);
    }
}

/// The commands that a help names.
fn commands(words: &[&str]) -> Vec<String> {
    let help = String::from_utf8(flowpeel(words).stdout).unwrap();
    let listed = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_page_that_man_takes_without_a_word() {
    let place = tempfile::tempdir().unwrap();
    let output = flowpeel([Path::new("manual"), Path::new("--out"), place.path()]);
    assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""));
    let pages = files(place.path());
    let names: Vec<_> = pages.iter().map(|page| name(page)).collect();
    let groups = ["snapshot", "archive"].map(|group| (group, commands(&[group, "--help"])));
    let of_groups = groups.iter().flat_map(|(group, names)| names.iter().map(move |name| format!("{group}-{name}")));
    let commands = commands(&["--help"]).into_iter().chain(of_groups);
    let mut expected: Vec<_> = commands.map(|command| format!("flowpeel-{command}.1")).collect();
    expected.push("flowpeel.1".to_owned());
    expected.sort();
    assert_eq!(names, expected);
    let printed = flowpeel(["manual"]);
    let size: usize = pages.iter().map(|page| fs::read(page).unwrap().len()).sum();
    assert_eq!((printed.status.code(), printed.stdout.len()), (Some(0), size));
    if !has("man") {
        return;
    }
    for page in &pages {
        let mut man = command("man", ["--warnings", "-E", "UTF-8", "-l"]);
        let output = run(man.arg(page).env("MANWIDTH", "80"));
        assert!(output.status.success(), "{}", output.stderr);
        assert_eq!(output.stderr, "", "{}", page.display());
        assert!(text(&output.stdout).contains("--help"), "{}", page.display());
    }
}

#[test]
fn a_page_that_can_not_be_written_is_named() {
    let output = flowpeel(["manual", "--out", "/dev/null/pages"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("/dev/null/pages: cannot write the man page"), "{}", output.stderr);
}

/// The unit as it would be installed, with the command where it is here.
fn unit(directory: &Path) -> std::path::PathBuf {
    let unit = fs::read_to_string(UNIT).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/flowpeel live -i %i "));
    let path = directory.join("flowpeel@eth0.service");
    fs::write(&path, unit.replace("/usr/bin/flowpeel", FLOWPEEL)).unwrap();
    path
}

#[test]
fn systemd_takes_the_unit_without_a_word() {
    if !has("systemd-analyze") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut verify = command("systemd-analyze", ["verify", "--man=no"]);
    let output = run(verify.arg(unit(place.path())));
    let said = output.stderr;
    // Units of the system may have faults of their own.
    let own: Vec<_> = said.lines().filter(|line| line.contains("flowpeel")).collect();
    assert!(output.status.success() && own.is_empty(), "{said}");
}

#[test]
fn the_unit_is_closed_to_all_it_does_not_need() {
    if !has("systemd-analyze") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut security = command("systemd-analyze", ["security", "--offline=true", "--no-pager", "--threshold=20"]);
    let output = run(security.arg(unit(place.path())));
    let said = text(&output.stdout) + &output.stderr;
    if said.contains("unrecognized option") {
        return skipped("this systemd-analyze does not look at files");
    }
    // The threshold is ten times the exposure that is shown.
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_package_installs_runs_and_leaves_nothing() {
    let programs = ["cargo-deb", "dpkg", "ip", "python3", "setpriv", "strip"];
    if !programs.iter().all(|program| has(program)) {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        return skipped("an overlay of the system takes root");
    }
    let place = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/");
    let mut package = command(&format!("{root}package"), ["--deb", FLOWPEEL, "--out"]);
    let made = run(package.arg(place.path()));
    assert!(made.status.success(), "{}", made.stderr);
    let [package] = &files(place.path())[..] else { panic!("not one package") };
    let checked = run(command(&format!("{root}check-package"), [OsStr::new(package)]).env("LC_ALL", "C"));
    let said = text(&checked.stdout) + &checked.stderr;
    assert!(checked.status.success(), "{said}");
    assert!(said.contains("installed, ran as flowpeel with +net_raw, removed, purged"), "{said}");
}
