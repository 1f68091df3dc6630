//! Two collectors with a share each, and a server beside each: the one that is asked has the shares of both.

use crate::access::Site;
use crate::network::{Network, Serving, escaped};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The parts of the lists of a network, by the places of their lines, in a directory for each share.
struct Shares {
    place: TempDir,
    network: Network,
}

impl Shares {
    fn new() -> Self {
        let shares = Shares { place: tempfile::tempdir().unwrap(), network: Network::of(&["east", "we st"], 3_000) };
        for share in 0..2 {
            for router in ["east", "we st"] {
                shares.write(share, router);
            }
        }
        shares
    }

    fn directory(&self, share: usize) -> PathBuf {
        self.place.path().join(share.to_string())
    }

    fn write(&self, share: usize, router: &str) {
        let (path, mut header, lines) = self.network.list_of(router);
        let mut part = header["flow_list"].take();
        let lines: Vec<String> =
            lines.into_iter().enumerate().filter(|(at, _)| at % 2 == share).map(|(_, line)| line).collect();
        let half_open = lines.iter().filter(|line| !line.contains("\"state\":\"established\"")).count();
        part["half_open"] = half_open.into();
        part["flows"] = (lines.len() - half_open).into();
        part["partitions"] = (0..8).filter(|partition| partition % 2 == share).collect::<Vec<_>>().into();
        let header = json!({ "flow_part": part });
        let folder = self.directory(share).join(flowpeel_fleet::subject::folder(router));
        fs::create_dir_all(&folder).unwrap();
        let text: String = std::iter::once(header.to_string()).chain(lines).map(|line| line + "\n").collect();
        fs::write(folder.join(path.file_name().unwrap()), text).unwrap();
    }

    fn serve(&self, share: usize, options: &[&str]) -> Serving {
        Serving::start(&self.directory(share), options)
    }
}

fn all(serving: &Serving, parameters: &str) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let answer = serving.get(&format!("/api/v1/connections?limit=500&{parameters}{after}")).json();
        let items = answer["groups"].as_array().or_else(|| answer["connections"].as_array());
        found.extend(items.unwrap().iter().cloned());
        match answer["next"].as_str() {
            Some(next) => after = format!("&after={}", escaped(next)),
            None => return found,
        }
    }
}

/// Asks until what the view says of itself is this.
fn until_complete(serving: &Serving, is_complete: bool) -> Value {
    loop {
        let answer = serving.get("/api/v1/routers").json();
        if answer["view"]["complete"] == is_complete {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_one_that_is_asked_has_the_shares_of_both() {
    let shares = Shares::new();
    let whole = shares.network.serve();
    let one = shares.serve(0, &[]);
    assert_eq!(one.get("/api/v1/routers").json()["view"]["complete"], false, "half of the partitions are not all");
    let peer = format!("http://127.0.0.1:{}", one.address.port());
    let other = shares.serve(1, &["--peer", &peer]);
    for parameters in [
        "",
        "sort=-age",
        "group=server",
        "group=router",
        "filter=server+port+443&sort=state",
        "seen_by=one",
        "router=we+st",
    ] {
        let (expected, found) = (all(&whole, parameters), all(&other, parameters));
        assert!(!expected.is_empty() && expected == found, "{parameters}: {} and {}", expected.len(), found.len());
    }
    let answer = until_complete(&other, true);
    assert_eq!((answer["problem"].as_str(), &answer["routers"][0]["partitions_missing"]), (None, &Value::Null));
    assert!(other.get("/metrics").body.contains("\nflowpeel_fleet_peers_answering 1\n"));
    // Nobody is asked for what is another's.
    assert_eq!(other.get("/api/v1/lists").json().as_array().unwrap().len(), 2);
    let lists = one.get("/api/v1/lists").json();
    let file = format!("/api/v1/lists/{}/{}", lists[0]["number"], lists[0]["name"].as_str().unwrap());
    assert_eq!(one.get(&file).status, 200);
    for path in ["/api/v1/lists/9/x", "/api/v1/lists/0/..%2F..%2Fsecret", "/api/v1/lists/x/y", "/api/v1/lists/0/"] {
        assert!(matches!(one.get(path).status, 400 | 404), "{path}");
    }
    drop(one);
    let answer = until_complete(&other, false);
    assert!(answer["problem"].as_str().unwrap().contains(&peer), "{answer}");
    assert_eq!(other.get("/api/v1/connections").json()["view"]["complete"], false);
    assert!(other.get("/metrics").body.contains("\nflowpeel_fleet_peers_answering 0\n"));
    assert!(!all(&other, "").is_empty(), "what was there is still shown");
}

#[test]
fn a_new_list_of_a_peer_comes_into_the_view() {
    let shares = Shares::new();
    let one = shares.serve(0, &[]);
    let other = shares.serve(1, &["--peer", &format!("http://127.0.0.1:{}", one.address.port())]);
    let before = all(&other, "").len();
    let (path, header, lines) = shares.network.list_of("east");
    let name = path.file_name().unwrap().to_str().unwrap().replace(".ndjson", "_002.ndjson");
    shares.network.write("east", &name, header, &lines[..20]);
    (0..2).for_each(|share| shares.write(share, "east"));
    let seen_by_east = || all(&other, "router=east").len();
    while seen_by_east() != 20 {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(all(&other, "").len() < before);
}

#[test]
fn peers_are_asked_over_tls_with_a_token() {
    let Some(site) = Site::new() else { return };
    let shares = Shares::new();
    let options = site.options();
    let one = shares.serve(0, &options.iter().map(String::as_str).collect::<Vec<_>>());
    let peer = format!("https://127.0.0.1:{}", one.address.port());
    let file = |name: &str| site.path(name).to_str().unwrap().to_owned();
    let (ca, token) = (file("ca.pem"), file("token"));
    let other = shares.serve(1, &["--peer", &peer, "--peer-ca", &ca, "--peer-token-file", &token]);
    until_complete(&other, true);
    let without = shares.serve(1, &["--peer", &peer, "--peer-ca", &ca]);
    assert!(until_complete(&without, false)["problem"].as_str().unwrap().contains("--peer-token-file"));
    let stranger = shares.serve(1, &["--peer", &peer, "--peer-ca", &file("client.pem"), "--peer-token-file", &token]);
    assert!(until_complete(&stranger, false)["problem"].as_str().unwrap().contains(&peer));
}

#[test]
fn what_is_no_peer_is_refused() {
    let shares = Shares::new();
    for url in [
        "http://192.0.2.1:9180",
        "ftp://127.0.0.1",
        "127.0.0.1:9180",
        "http://127.0.0.1/path",
        "https://collector.example",
        "http://a@127.0.0.1",
    ] {
        let mut serve = crate::network::fleet("serve");
        let ended =
            serve.args(["--peer", url, "--listen", "127.0.0.1:0", "--from"]).arg(shares.directory(0)).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{url}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("peer"), "{url}");
    }
}
