//! An agent that is killed at any moment, and the one after it.

use super::{FLOWPEEL, Site, list_names, list_stem, without_ends};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that does not outlive a failing test.
pub(crate) struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // It has ended already unless a test has failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An agent that follows the site's snapshots.
pub(crate) fn follow(site: &Site, into: &str, options: &[&str]) -> Agent {
    let mut command = Command::new(FLOWPEEL);
    command.args(["snapshot", "collect", "--quiet"]).args(options);
    command.arg("--out").arg(site.path(into)).arg(site.path("snapshots"));
    Agent(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Waits until there are this many lists.
pub(crate) fn wait_for(directory: &Path, count: usize) {
    let began = Instant::now();
    while !directory.exists() || list_names(directory).len() < count {
        assert!(began.elapsed() < Duration::from_secs(60), "{}: no {count} lists", directory.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends an agent as an operator does, to which it responds with success.
pub(crate) fn stop(agent: &mut Agent) {
    assert!(Command::new("kill").arg("-TERM").arg(agent.0.id().to_string()).status().unwrap().success());
    assert!(agent.0.wait().unwrap().success());
}

#[test]
fn killed_at_any_moment_it_goes_on_where_it_was() {
    let options = "--every 2s --churn 5k";
    for (format, agent_format) in [("", &[][..]), ("--compress", &["--compress"])] {
        let site = Site::replayed(20_000, &format!("{options} {format}"));
        let count = site.snapshots().len();
        assert!(count > 50);
        let mut kills = 0u32;
        let began = Instant::now();
        loop {
            let mut agent = follow(&site, "agent", agent_format);
            // Moments that differ each time, and grow so that it ends.
            std::thread::sleep(Duration::from_millis(u64::from(20 + 7 * kills % 90 + kills)));
            let is_done = site.path("agent").exists() && list_names(&site.path("agent")).len() == count;
            if is_done {
                stop(&mut agent);
                break;
            }
            agent.0.kill().unwrap();
            agent.0.wait().unwrap();
            kills += 1;
            assert!(began.elapsed() < Duration::from_secs(120), "it does not get on");
        }
        assert!(kills > 0, "it was never killed");
        site.assert_same("agent", &[]);
    }
}

/// With changes between, an agent goes on from the last list in full and all that changed since: what it lists then is
/// the router's.
#[test]
fn a_chain_of_changes_is_gone_on_from() {
    let site = Site::replayed(20_000, "--every 5s --churn 3k");
    let (snapshots, aside) = (site.path("snapshots"), site.path("aside"));
    let all = site.snapshots();
    fs::create_dir(&aside).unwrap();
    let parts: Vec<&[String]> = all.chunks(all.len() / 3 + 1).collect();
    for name in parts[1..].concat() {
        fs::rename(snapshots.join(&name), aside.join(&name)).unwrap();
    }
    for (part, options) in parts.iter().zip(["--changes=100 --compress", "--changes=100", ""]) {
        for name in part.iter().filter(|name| aside.join(name).exists()) {
            fs::rename(aside.join(name), snapshots.join(name)).unwrap();
        }
        let (said, status) = site.collect("agent", options);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(&format!("{} lists", part.len())) && !said.contains("not complete"), "{said}");
    }
    let written = list_names(&site.path("agent"));
    let fulls: Vec<_> = written.iter().filter(|name| name.starts_with("flows-")).collect();
    assert_eq!(fulls.len(), 2 + parts[2].len(), "each agent begins in full: {written:?}");
    for name in fulls {
        let bytes = fs::read(site.path("agent").join(name)).unwrap();
        let router = fs::read(site.path("lists").join(name.trim_end_matches(".zst"))).unwrap();
        assert!(without_ends(&bytes) == without_ends(&router), "{name}");
    }
}

/// Changes that were written and not noted are written again, in full, and are not in the way of what comes after.
#[test]
fn killed_between_a_list_and_its_note_it_makes_the_list_again() {
    let site = Site::replayed(5_000, "--every 10s --churn 10k");
    let (snapshots, note) = (site.path("snapshots"), site.path("agent/collected.json"));
    let all = site.snapshots();
    let put_aside = |name: &String| fs::rename(snapshots.join(name), site.path(name)).unwrap();
    all[6..].iter().for_each(put_aside);
    let put_back = |name: &String| fs::rename(site.path(name), snapshots.join(name)).unwrap();
    put_aside(&all[5]);
    assert_eq!(site.collect("agent", "--changes=100").1, Some(0));
    let before = fs::read(&note).unwrap();
    put_back(&all[5]);
    assert_eq!(site.collect("agent", "--changes=100").1, Some(0));
    // As if the note, or all of it, had come too late: the last list is there already.
    let full = super::list_stem(&all[5]) + ".ndjson";
    let changes = full.replace("flows-", "changes-");
    fs::rename(site.path("agent").join(&full), site.path("agent").join(&changes)).unwrap();
    fs::write(&note, before).unwrap();
    assert_eq!(site.collect("agent", "--changes=100").1, Some(0));
    let names = list_names(&site.path("agent"));
    assert!(names.contains(&full) && !names.contains(&changes), "{names:?}");
    let [agent, router] = ["agent", "lists"].map(|directory| fs::read(site.path(directory).join(&full)).unwrap());
    assert!(without_ends(&agent) == without_ends(&router));
    all[6..].iter().for_each(put_back);
    let (said, status) = site.collect("agent", "--changes=100");
    assert!(status == Some(0) && !said.contains("cannot continue"), "{said}");
}

#[test]
fn without_its_last_list_it_says_so_and_goes_on() {
    let site = Site::replayed(20_000, "--every 10s --churn 5k");
    let snapshots = site.path("snapshots");
    let last = site.snapshots().pop().unwrap();
    fs::rename(snapshots.join(&last), site.path(&last)).unwrap();
    assert_eq!(site.collect("agent", "").1, Some(0));
    let newest = list_names(&site.path("agent")).pop().unwrap();
    fs::write(site.path("agent").join(newest), "{}\n").unwrap();
    fs::rename(site.path(&last), snapshots.join(&last)).unwrap();
    let (said, _) = site.collect("agent", "");
    assert!(
        said.contains("cannot continue from the last list") && said.contains("its first line is no header"),
        "{said}"
    );
    assert!(said.contains("1 lists"), "{said}");
    fs::write(site.path("agent/collected.json"), "{").unwrap();
    let (said, status) = site.collect("agent", "");
    assert!(status == Some(1) && said.contains("remove it to start anew"), "{said}");
}

#[test]
fn without_a_list_of_its_own_it_begins_with_one_of_the_routers() {
    let site = Site::replayed(40_000, "--every 10s --churn 2k");
    let all = site.snapshots();
    let (missed, first) = (&all[..9], &all[9]);
    missed.iter().for_each(|name| site.remove_snapshot(name));
    let (said, _) = site.collect("alone", "");
    assert!(said.contains("missing"), "too many are open for a snapshot to list alone: {said}");
    let base = site.path("base");
    fs::create_dir(&base).unwrap();
    let from_base = format!("--base {}", base.display());
    let (said, status) = site.collect("none", &from_base);
    assert!(status == Some(0) && said.contains("no list in full here that ended before the snapshot"), "{said}");
    for name in list_names(&site.path("lists")).iter().filter(|name| **name < list_stem(first)) {
        fs::copy(site.path("lists").join(name), base.join(name)).unwrap();
    }
    let (said, status) = site.collect("agent", &from_base);
    assert!(status == Some(0) && !said.contains("missing") && !said.contains("cannot"), "{said}");
    site.assert_same("agent", missed);
    // What is there to continue from counts for more than the router's list.
    fs::remove_dir_all(&base).unwrap();
    let (said, status) = site.collect("agent", &from_base);
    assert!(status == Some(0) && !said.contains("cannot"), "{said}");
}
