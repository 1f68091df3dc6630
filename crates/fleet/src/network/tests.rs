//! How routers are, by the age of their lists.

use super::*;
use std::fs;
use std::path::Path;

fn list(directory: &Path, router: &str, end_s: u32, client: u8, is_complete: bool) {
    let time = |end_s: u32| format!("2026-01-01T00:{:02}:{:02}.000000Z", end_s / 60, end_s % 60);
    let directory = directory.join(router);
    fs::create_dir_all(&directory).unwrap();
    let header = format!(
        "{{\"flow_list\":{{\"interval\":{end_s},\"start\":\"{}\",\"end\":\"{}\",\"complete\":{is_complete},\
         \"missing\":{},\"flows\":1,\"half_open\":0}}}}\n",
        time(end_s - 10),
        time(end_s),
        u8::from(!is_complete)
    );
    let line = format!(
        "{{\"src_ip\":\"10.0.0.{client}\",\"src_port\":1,\"dest_ip\":\"10.0.1.1\",\"dest_port\":443,\
         \"flow\":{{\"start\":\"{}\",\"age\":1.0,\"state\":\"established\"}}}}\n",
        time(1)
    );
    let name = format!("flows-20260101T00{:02}{:02}Z.ndjson", end_s / 60, end_s % 60);
    fs::write(directory.join(name), header + &line).unwrap();
}

fn read(directory: &Path) -> Network {
    Network::read(&crate::newest::places(&[directory.to_path_buf()]).unwrap()).unwrap()
}

fn health_of(routers: &[Router]) -> Vec<(&str, Health, bool)> {
    routers.iter().map(|router| (router.name.as_str(), router.health, router.in_view)).collect()
}

#[test]
fn a_router_that_falls_behind_is_late_and_then_gone() {
    let place = tempfile::tempdir().unwrap();
    list(place.path(), "a", 600, 1, true);
    list(place.path(), "b", 600, 1, true);
    let network = read(place.path());
    assert!(is_complete(&network.routers) && missing(&network.routers) == 0);
    assert_eq!((network.joined.len(), network.routers[0].connections, network.routers[0].only_here), (1, 1, 0));
    list(place.path(), "c", 580, 2, true);
    let network = read(place.path());
    let expected = [("a", Health::Reporting, true), ("b", Health::Reporting, true), ("c", Health::Late, true)];
    assert_eq!(health_of(&network.routers), expected);
    assert_eq!((is_complete(&network.routers), network.joined.len(), network.routers[2].only_here), (false, 2, 1));
    list(place.path(), "a", 690, 1, true);
    list(place.path(), "b", 690, 1, false);
    let network = read(place.path());
    assert_eq!(health_of(&network.routers)[2], ("c", Health::Gone, false));
    assert_eq!((network.joined.len(), missing(&network.routers), network.member_count()), (1, 1, 2));
    assert_eq!((network.member(0), network.bit_of("b"), network.bit_of("c")), ("a", Some(1), None));
}

#[test]
fn when_all_are_silent_all_are_gone_and_what_they_said_is_still_there() {
    let place = tempfile::tempdir().unwrap();
    list(place.path(), "a", 600, 1, true);
    let now = SystemTime::now();
    let network = read(place.path());
    assert!(is_complete(&network.routers_at(now)));
    let late = network.routers_at(now + Duration::from_secs(25));
    assert_eq!(health_of(&late), [("a", Health::Late, true)]);
    let gone = network.routers_at(now + Duration::from_secs(200));
    assert_eq!((health_of(&gone)[0], is_complete(&gone)), (("a", Health::Gone, true), false));
    assert!(gone[0].silent.is_some_and(|silent| silent > 190.0));
}

#[test]
fn a_router_whose_list_cannot_be_read_costs_the_others_nothing() {
    let place = tempfile::tempdir().unwrap();
    list(place.path(), "a", 600, 1, true);
    list(place.path(), "b", 600, 2, true);
    let path = place.path().join("b/flows-20260101T001000Z.ndjson");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("established", "open")).unwrap();
    fs::create_dir(place.path().join("c")).unwrap();
    let network = read(place.path());
    let expected = [("a", Health::Reporting, true), ("b", Health::Unreadable, false), ("c", Health::Waiting, false)];
    assert_eq!(health_of(&network.routers), expected);
    assert_eq!((network.joined.len(), is_complete(&network.routers)), (1, false));
    assert!(network.routers[1].problem.as_ref().is_some_and(|problem| problem.contains("state")));
}

#[test]
fn two_routers_of_one_name_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let both = ["a", "b"].map(|parent| place.path().join(parent));
    both.iter().for_each(|parent| list(parent, "edge", 600, 1, true));
    let network = Network::read(&crate::newest::places(&both).unwrap()).unwrap();
    assert_eq!(health_of(&network.routers), [("edge", Health::Unreadable, false)]);
    assert!(network.routers[0].problem.as_ref().is_some_and(|problem| problem.contains("of this name")));
}

#[test]
fn the_parts_of_a_list_are_one_and_a_part_that_is_missing_or_late_is_named() {
    let place = tempfile::tempdir().unwrap();
    let shares = ["a", "b"].map(|share| place.path().join(share));
    let part = |index: usize, end_s: u32, client: u8| {
        list(&shares[index], "edge", end_s, client, true);
        let path = shares[index].join(format!("edge/flows-20260101T00{:02}{:02}Z.ndjson", end_s / 60, end_s % 60));
        let partitions = serde_json::to_string(&PartitionSet::share(index, 2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("{\"flow_list\":{", &format!("{{\"flow_part\":{{\"partitions\":{partitions},"));
        fs::write(&path, text).unwrap();
    };
    let read = |shares: &[std::path::PathBuf]| Network::read(&crate::newest::places(shares).unwrap()).unwrap();
    part(0, 600, 2);
    part(1, 600, 1);
    let network = read(&shares);
    assert_eq!((network.joined.len(), network.routers.len(), is_complete(&network.routers)), (2, 1, true));
    let network = read(&shares[..1]);
    assert_eq!((network.joined.len(), is_complete(&network.routers)), (1, false));
    assert_eq!(network.routers[0].partitions_missing, PartitionSet::share(1, 2));
    // The collector of the other share has stopped.
    part(0, 620, 2);
    let network = read(&shares);
    assert_eq!((network.joined.len(), network.routers[0].partitions_missing), (2, PartitionSet::share(1, 2)));
    part(0, 900, 2);
    let network = read(&shares);
    assert_eq!((network.joined.len(), network.routers[0].partitions_missing), (1, PartitionSet::share(1, 2)));
    assert_eq!(health_of(&network.routers), [("edge", Health::Reporting, true)]);
}
