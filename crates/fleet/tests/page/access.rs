//! TLS and a token: who has it gets in, by real TLS (curl), and nobody else.

use crate::certificates::certificates;
use crate::network::{Network, Serving, fleet};
use crate::screen::{browse, browser};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const TOKEN: &str = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9v";

/// A place with certificates and a token; `None`, and a word about it, where openssl is not installed.
pub(crate) struct Site {
    place: TempDir,
    network: Network,
}

fn private(path: &Path) {
    fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

impl Site {
    pub(crate) fn new() -> Option<Self> {
        let site = Site { place: tempfile::tempdir().unwrap(), network: Network::of(&["east", "west"], 2_000) };
        certificates(site.place.path())?;
        fs::write(site.path("token"), format!("{TOKEN}\n")).unwrap();
        private(&site.path("token"));
        private(&site.path("server.key"));
        Some(site)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn options(&self) -> Vec<String> {
        let file = |name: &str| self.path(name).to_str().unwrap().to_owned();
        [("--tls-certificate", file("server.pem")), ("--tls-key", file("server.key")), ("--token-file", file("token"))]
            .into_iter()
            .flat_map(|(option, value)| [option.to_owned(), value])
            .collect()
    }

    fn serve(&self, listen: &str) -> Serving {
        let options = self.options();
        Serving::listening(listen, &self.network.lists(), &options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What curl gets: the status, and all that came.
    fn curl(&self, serving: &Serving, path: &str, options: &[&str]) -> (String, String) {
        let url = format!("https://127.0.0.1:{}{path}", serving.address.port());
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--include", "--write-out", "\n%{http_code}", "--max-time", "60", "--cacert"]);
        let ended = curl.arg(self.path("ca.pem")).args(options).arg(url).output().unwrap();
        let text = String::from_utf8(ended.stdout).unwrap();
        let (text, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), text.to_owned())
    }
}

fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok_and(|ended| ended.status.success());
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

#[test]
fn who_has_the_token_gets_in_and_nobody_else() {
    let Some(site) = Site::new().filter(|_| is_there("curl")) else { return };
    let serving = site.serve("0.0.0.0:0");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    for path in ["/api/v1/routers", "/api/v1/connections", "/api/v1/events", "/metrics", "/openapi.json", "/nothing"] {
        let (status, text) = site.curl(&serving, path, &[]);
        assert_eq!(status, "401", "{path}");
        assert!(text.contains("www-authenticate: Bearer"), "{text}");
        for wrong in ["Authorization: Bearer x", &format!("Authorization: Basic {TOKEN}"), "Cookie: __Host-flowpeel=x"]
        {
            assert_eq!(site.curl(&serving, path, &["--header", wrong]).0, "401", "{path} {wrong}");
        }
    }
    for path in ["/", "/page.js", "/page.css", "/icon.svg"] {
        assert_eq!(site.curl(&serving, path, &[]).0, "200", "{path}");
    }
    for path in ["/api/v1/routers", "/api/v1/connections?limit=1", "/metrics", "/openapi.json"] {
        assert_eq!(site.curl(&serving, path, &["--header", &bearer]).0, "200", "{path}");
    }
    // Any name will do: it is the token that opens.
    assert_eq!(
        site.curl(&serving, "/api/v1/routers", &["--header", &bearer, "--header", "Host: flows.example"]).0,
        "200"
    );
    assert_eq!(site.curl(&serving, "/session", &["--request", "POST"]).0, "401");
    assert_eq!(site.curl(&serving, "/session", &["--request", "POST", "--header", "Authorization: Bearer x"]).0, "401");
    let (status, text) = site.curl(&serving, "/session", &["--request", "POST", "--header", &bearer]);
    assert_eq!(status, "204");
    let cookie = text.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for attribute in ["__Host-flowpeel=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Domain") && !text.contains(TOKEN));
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(site.curl(&serving, "/api/v1/routers", &["--header", &cookie]).0, "200");
    let (_, events) = site.curl(&serving, "/api/v1/events", &["--header", &cookie, "--max-time", "3"]);
    assert!(events.contains("event: view\n"), "{events}");
    let (status, text) = site.curl(&serving, "/session", &["--request", "DELETE"]);
    assert!(status == "204" && text.contains("Max-Age=0"), "{text}");
    let said = serving.ended();
    assert!(said.contains("https://") && !said.contains(TOKEN) && said.lines().count() == 1, "{said}");
}

#[test]
fn what_is_no_tls_costs_nobody_anything() {
    let Some(site) = Site::new().filter(|_| is_there("curl")) else { return };
    let serving = site.serve("127.0.0.1:0");
    let _silent: Vec<_> = (0..20).map(|_| serving.connect()).collect();
    let plain = serving.get("/");
    assert!(plain.status == 0 || plain.body.is_empty(), "{plain:?}");
    let mut garbage = serving.connect();
    drop(garbage.write_all(&[0x16; 5_000]));
    let bearer = format!("Authorization: Bearer {TOKEN}");
    for options in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let options = [options, &["--header", &bearer]].concat();
        assert_eq!(site.curl(&serving, "/api/v1/routers", &options).0, "200");
    }
    assert_eq!(site.curl(&serving, "/", &["--tls-max", "1.1"]).0, "000");
}

#[test]
fn half_of_it_is_refused() {
    let Some(site) = Site::new() else { return };
    let refused = |listen: &str, options: &[String]| {
        let mut command = fleet("serve");
        command.args(["--listen", listen, "--from"]).arg(site.network.lists()).args(options);
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{options:?}");
        String::from_utf8(ended.stderr).unwrap()
    };
    let all = site.options();
    assert!(refused("0.0.0.0:0", &all[..4]).contains("--token-file"));
    assert!(refused("0.0.0.0:0", &all[4..]).contains("--tls-certificate"));
    assert!(refused("127.0.0.1:0", &all[..2]).contains("--tls-key"));
    let with = |at: usize, value: PathBuf| {
        let mut options = site.options();
        options[at] = value.to_str().unwrap().to_owned();
        refused("0.0.0.0:0", &options)
    };
    fs::copy(site.path("token"), site.path("open")).unwrap();
    fs::set_permissions(site.path("open"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(with(5, site.path("open")).contains("chmod 600"));
    fs::copy(site.path("server.key"), site.path("open.key")).unwrap();
    fs::set_permissions(site.path("open.key"), PermissionsExt::from_mode(0o640)).unwrap();
    assert!(with(3, site.path("open.key")).contains("chmod 600"));
    private(&site.path("client.key"));
    assert!(with(3, site.path("client.key")).contains("cannot serve under this certificate"));
    assert!(with(3, site.path("token")).contains("no private key"));
    assert!(with(1, site.path("token")).contains("no certificate"));
    assert!(with(1, site.path("nowhere")).contains("cannot read the certificate"));
}

#[test]
fn the_page_asks_for_the_token_once() {
    let Some(browser) = browser() else { return };
    let Some(site) = Site::new() else { return };
    let serving = site.serve("127.0.0.1:0");
    let url = format!("https://127.0.0.1:{}/", serving.address.port());
    let result = browse(browser, &url, &[("FLOWPEEL_TOKEN", TOKEN)]);
    assert_eq!(result, json!({ "kept": "", "faults": [] }), "{}", result["failed"].as_str().unwrap_or_default());
    assert!(!serving.ended().contains(TOKEN));
}
