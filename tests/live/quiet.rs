//! What `--quiet` does not say.

use crate::lab::Lab;
use crate::process::until;
use crate::watch::Watch;

#[test]
fn an_interface_that_goes_and_comes_back_is_no_news_to_a_quiet_run() {
    let Some(lab) = Lab::new() else { return };
    let [_a, b] = lab.pair();
    let mut quiet = Watch::start(&lab, &b, "quiet", "-q -i eth0 --every 200ms");
    let mut loud = Watch::start(&lab, &b, "loud", "-i eth0 --every 200ms");
    for state in ["down", "up"] {
        b.run(&format!("ip link set eth0 {state}"));
        let is_reported = |said: String| said.contains(&format!("eth0 is {state}")).then_some(());
        until(|| loud.process.said(), || is_reported(loud.process.said()));
    }
    // A list later both have looked at the interface again.
    let then = jiff::Timestamp::now();
    [&mut quiet, &mut loud].into_iter().for_each(|watch| drop(watch.list_after(then)));
    for (watch, is_quiet) in [(quiet, true), (loud, false)] {
        let (ended, _) = watch.stop("-TERM");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert_eq!(ended.stderr.is_empty(), is_quiet, "{}", ended.stderr);
    }
}
