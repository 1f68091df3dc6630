//! A capture that is killed and goes on: what was open before is still listed, marked until it is known to be still
//! open.

use crate::lab::{End, Lab, join};
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
    let (a, b) = (lab.host("a"), lab.host("b"));
    join(&End(&a, "eth0", &["10.0.2.2/24"]), &End(&b, "eth0", &["10.0.2.1/24"]), 1500);
    let secret = lab.path("secret");
    fs::write(&secret, "00112233445566778899aabbccddeeff").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let state = lab.path("state");
    let options = format!(
        "-i eth0 --every 500ms --connections 10k --pickup 0 --idle-timeout 10s --secret-file {} --state {} --state-every 1ms",
        secret.display(),
        state.display()
    );
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
