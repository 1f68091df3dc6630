//! A broker that lets each router publish under its own subjects alone: the configuration that `docs/fleet.md` has.

use crate::server::Server;
use crate::site::{Site, done, names, run};
use nkeys::KeyPair;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// The part of the documented configuration that is to be tested, with the keys of this test.
fn configuration(keys: [(&str, &KeyPair); 3]) -> String {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md")).unwrap();
    let begin = text.find("accounts {").expect("the documented configuration");
    let end = begin + text[begin..].find("```").unwrap();
    let mut configuration = text[begin..end].to_owned();
    for (of, key) in keys {
        configuration = configuration.replace(&format!("U...{of}"), &key.public_key());
    }
    configuration.replace("edge-1", "east").replace("edge-2", "west")
}

#[test]
fn a_router_publishes_under_its_own_subjects_alone() {
    let [collector, east, west] = [(); 3].map(|()| KeyPair::new_user());
    let configuration = configuration([("collector", &collector), ("edge-1", &east), ("edge-2", &west)]);
    let Some(server) = Server::start(&configuration) else { return };
    let site = Site::new();
    for (name, key) in [("collector", collector), ("east", east), ("west", west)] {
        let path = site.path(&format!("{name}.nk"));
        fs::write(&path, key.seed().unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let nkey = |name: &str| site.path(&format!("{name}.nk")).to_str().unwrap().to_owned();
    site.router("east", 1, 500, Duration::from_secs(20));
    site.put_all("east");
    done(&mut site.collect("out", &server.url(), &["--once", "--nkey", &nkey("collector")]));
    // West's account is good for west's subjects only.
    let (status, said) = run(&mut site.ship("east", &server.url(), &["--once", "--nkey", &nkey("west")]));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("does not let this router publish under flowpeel.v1.east.0"), "{said}");
    done(&mut site.collect("out", &server.url(), &["--once", "--nkey", &nkey("collector")]));
    assert!(names(&site.path("out")).iter().all(|name| name != "east"), "nothing came");
    done(&mut site.ship("east", &server.url(), &["--once", "--nkey", &nkey("east")]));
    done(&mut site.collect("out", &server.url(), &["--once", "--nkey", &nkey("collector")]));
    site.assert_lists("out", "east");
}
