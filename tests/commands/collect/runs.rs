//! Several runs of a router in one directory: each is followed from its beginning, in whatever order their snapshots
//! come.

use super::Site;
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use std::fs::{self, File};
use std::io::BufWriter;

const OPTIONS: &str = "--every 10s --churn 10k";

impl Site {
    /// Replays another generated capture, which begins so many minutes after the first, into the same directories.
    fn replay_later(&self, minutes: u64) {
        let mut config = TrafficConfig::mixed(23, 3_000);
        config.start_us += minutes * 60_000_000;
        let capture = self.path("later.pcap");
        write_pcap(&mut Traffic::new(config).unwrap(), &mut BufWriter::new(File::create(&capture).unwrap())).unwrap();
        self.replay(&[&capture], OPTIONS);
    }

    /// Puts snapshots that are elsewhere back where the agent looks, as if they were copied now.
    fn put_back(&self, names: &[String]) {
        for name in names {
            let bytes = fs::read(self.path("aside").join(name)).unwrap();
            fs::write(self.path("snapshots").join(name), bytes).unwrap();
        }
    }
}

#[test]
fn a_replay_of_another_capture_into_the_same_directory_is_a_run_of_its_own() {
    let site = Site::replayed(5_000, OPTIONS);
    assert_eq!(site.collect("agent", "").1, Some(0));
    site.replay_later(10);
    let (said, status) = site.collect("agent", "");
    assert!(status == Some(0) && !said.contains("late or doubled"), "{said}");
    site.assert_same("agent", &[]);
}

#[test]
fn a_late_snapshot_of_a_run_that_nobody_knew_does_not_keep_the_present_one_out() {
    let site = Site::replayed(5_000, OPTIONS);
    let first = site.snapshots();
    site.replay_later(10);
    let second: Vec<String> = site.snapshots().into_iter().filter(|name| !first.contains(name)).collect();
    assert!(first.len() > 3 && second.len() > 3, "{first:?} {second:?}");
    fs::rename(site.path("snapshots"), site.path("aside")).unwrap();
    fs::create_dir(site.path("snapshots")).unwrap();
    let (late, next) = (&first[first.len() - 1..], second.len() / 2);
    for (names, lists) in
        [(&second[..1], 1), (late, 1), (&second[1..next], next - 1), (&second[next..], second.len() - next)]
    {
        site.put_back(names);
        let (said, status) = site.collect("agent", "");
        assert!(status == Some(0) && said.contains(&format!("{lists} lists")), "{said}");
    }
    let without = &first[..first.len() - 1];
    site.assert_same("agent", without);
}
