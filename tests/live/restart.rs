//! A capture that is killed and goes on: what was open before is still listed, marked until it is known to be still
//! open.

use crate::lab::Lab;
use crate::process::{Crowd, until};
use crate::sockets::settled;
use crate::support::command::List;
use crate::watch::{Watch, connections};
use jiff::Timestamp;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The part of a list that is marked, or that is not.
fn part(list: &List, is_unsettled: bool) -> List {
    let flows = list.flows.iter().filter(|row| row["flow"].get("unsettled").is_some() == is_unsettled);
    List { header: list.header.clone(), flows: flows.cloned().collect() }
}

/// How many connections a header says are not settled; 0 if it does not say.
fn unsettled(list: &List) -> u64 {
    list.header["flow_list"].get("unsettled").map_or(0, |count| count.as_u64().unwrap())
}

/// The options of a capture that saves its state there as often as it can, with these of its own.
fn options(lab: &Lab, own: &str, state: &Path) -> String {
    let secret = lab.path("secret");
    fs::write(&secret, "00112233445566778899aabbccddeeff").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let (secret, state) = (secret.display(), state.display());
    format!("-i eth0 --every 500ms --connections 10k {own} --secret-file {secret} --state {state} --state-every 1ms")
}

/// Waits until a state has been saved of which all was cut from now on.
fn wait_for_state(state: &Path) {
    let newest = || fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name()).max();
    let first = newest();
    let mut seen = BTreeSet::from([first]);
    // One may have been cut before, and be written now.
    until(
        || "no state is saved".to_owned(),
        || {
            seen.insert(newest());
            (seen.len() > 3).then_some(())
        },
    );
}

#[test]
fn what_may_have_closed_meanwhile_is_marked_until_it_is_settled() {
    let Some(lab) = Lab::new() else { return };
    let [a, b] = lab.pair();
    let state = lab.path("state");
    let options = options(&lab, "--pickup 0 --idle-timeout 10s", &state);
    let _server = Crowd::serve(&b, &[7000]);
    let (mut closes, stays) = (Crowd::start(&a), RefCell::new(Crowd::start(&a)));
    let mut watch = Watch::start(&lab, &b, "before", &options);
    closes.ask("open 200 10.0.2.1 7000");
    stays.borrow_mut().ask("open 150 10.0.2.1 7000");
    let before = watch.list_when(|list| list.count("flows") == 350);
    assert_eq!((unsettled(&before), part(&before, true).flows.len()), (0, 0));
    wait_for_state(&state);
    watch.process.signal("-KILL");
    assert_eq!(watch.process.wait().status.code(), None);

    closes.ask("close 200");
    let open = settled(&[(&a, &[]), (&b, &[])]);
    assert_eq!(open.len(), 150);
    let mut watch = Watch::start(&lab, &b, "after", &options);
    let after = watch.list_when(|_| true);
    assert!(after.count("interval") > before.count("interval"));
    assert_eq!((after.count("flows"), unsettled(&after)), (350, 350), "{}", after.header);
    assert_eq!(connections(&part(&after, true)), connections(&before));

    // A packet of each that is open, and no more than these are settled by it.
    stays.borrow_mut().ask("say");
    let spoken = watch.list_when(|list| unsettled(list) == 200);
    assert_eq!(connections(&part(&spoken, false)), open);
    assert_eq!(spoken.count("flows"), 350);
    // Silent connections are taken off once they have been silent for long enough.
    let settled = watch.list_when(|list| {
        stays.borrow_mut().ask("say");
        unsettled(list) == 0
    });
    assert_eq!(connections(&settled), open, "{}", settled.header);

    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("continuing from state") && ended.stderr.contains("state saved "),
        "{}",
        ended.stderr
    );
    let then = Timestamp::now();
    let mut watch = Watch::start(&lab, &b, "again", &options);
    let again = watch.list_after(then);
    assert_eq!((again.count("flows"), unsettled(&again)), (150, 150), "what was saved at the stop");
    stays.borrow_mut().ask("close 150");
    let closed = watch.list_when(|list| list.count("flows") == 0);
    assert_eq!(unsettled(&closed), 0);
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn of_what_one_side_ends_after_a_restart_it_is_not_known_whether_the_other_has() {
    let Some(lab) = Lab::new() else { return };
    let [a, b] = lab.pair();
    let state = lab.path("state");
    let options = options(&lab, "--idle-timeout 20s", &state);
    let (mut ending, _other) = (Crowd::serve(&b, &[7000]), Crowd::serve(&b, &[7001]));
    ending.ask("at-end hold");
    let (mut ended, stays) = (Crowd::start(&a), RefCell::new(Crowd::start(&a)));
    let mut watch = Watch::start(&lab, &b, "before", &options);
    ended.ask("open 40 10.0.2.1 7000");
    stays.borrow_mut().ask("open 30 10.0.2.1 7001");
    watch.list_when(|list| list.count("flows") == 70);
    wait_for_state(&state);
    watch.process.signal("-KILL");
    assert_eq!(watch.process.wait().status.code(), None);

    // The clients' FINs pass unseen, and the servers' do not.
    ended.ask("half-close 40");
    ending.ask("held 0");
    let mut watch = Watch::start(&lab, &b, "after", &options);
    let after = watch.list_when(|_| true);
    assert_eq!((after.count("flows"), unsettled(&after)), (70, 70), "{}", after.header);
    ending.kill();
    let open = settled(&[(&a, &[]), (&b, &[])]);
    assert_eq!(open.len(), 30);
    stays.borrow_mut().ask("say");
    watch.list_when(|list| unsettled(list) == 40);
    // A list later they are still in doubt, and what is in no doubt is open. Silent, they are taken off.
    let then = Timestamp::now();
    let later = watch.list_after(then);
    assert_eq!((later.count("flows"), unsettled(&later)), (70, 40), "{}", later.header);
    assert_eq!(connections(&part(&later, false)), open);
    let left = watch.list_when(|list| {
        stays.borrow_mut().ask("say");
        list.count("flows") == 30
    });
    assert_eq!((unsettled(&left), connections(&left)), (0, open), "{}", left.header);
    let (ended, _) = watch.stop("-TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}
