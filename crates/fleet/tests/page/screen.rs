//! The page's modules in Node.js, and the page itself in headless Chromium, each where it is installed.

use crate::network::Network;
use serde_json::{Value, json};
use std::process::Command;

/// What people type, and the filter that it stands for.
const WORDS: [(&str, &str); 14] = [
    ("", ""),
    ("10.0.0.7", "10.0.0.7"),
    ("10.", "net 10.0.0.0/8"),
    ("10.1.2", "net 10.1.2.0/24"),
    ("443", "port 443"),
    ("https established", "port 443 and established"),
    ("10.0.0.7:22", "10.0.0.7 port 22"),
    ("[2001:db8::1]:443", "2001:db8::1 port 443"),
    ("2001:db8:", "net 2001:db8::/32"),
    ("10.2.0.0/16 >1h", "10.2.0.0/16 and age > 1h"),
    ("client net 10.0.0.0/8 and age > 1h", "client net 10.0.0.0/8 and age > 1h"),
    ("300.1.1.1", "300.1.1.1"),
    ("<b>", "<b>"),
    ("toString", "toString"),
];

fn page(file: &str) -> String {
    format!("{}/src/serve/page/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// What a module prints; `None` where Node.js is not installed.
fn node(script: &str) -> Option<String> {
    let ended = Command::new("node").args(["--input-type=module", "--eval", script]).output().ok()?;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn plain_words_become_filters() {
    let typed: Vec<&str> = WORDS.iter().map(|(typed, _)| *typed).collect();
    let script = format!(
        "import {{ toFilter, both }} from {:?}; const all = {}.map(toFilter); all.push(both('a or b', 'c')); \
         console.log(JSON.stringify(all))",
        page("words.js"),
        serde_json::to_string(&typed).unwrap()
    );
    let Some(found) = node(&script) else {
        eprintln!("skipped: Node.js is not installed");
        return;
    };
    let found: Vec<String> = serde_json::from_str(&found).unwrap();
    let expected: Vec<&str> = WORDS.iter().map(|(_, filter)| *filter).chain(["(a or b) and c"]).collect();
    assert_eq!(found, expected);
    for (filter, _) in found.iter().zip(WORDS).filter(|(filter, (typed, _))| filter != typed) {
        assert!(filter.parse::<flowpeel::select::Filter>().is_ok(), "{filter}");
    }
}

#[test]
fn csv_cannot_become_a_formula_or_another_column() {
    let script = format!(
        "import {{ csv, span }} from {:?}; const flow = {{ start: 's', age: 1.5, state: 'established' }}; \
         console.log(csv([{{ src_ip: '::1', src_port: 1, dest_ip: '10.0.0.1', dest_port: 2, flow, routers: ['=1+1', 'a,\"b'] }}]), span(90061), span(0))",
        page("show.js")
    );
    let Some(found) = node(&script) else {
        eprintln!("skipped: Node.js is not installed");
        return;
    };
    let line = found.lines().nth(1).unwrap();
    assert_eq!(line, "::1,1,10.0.0.1,2,s,1.5,established,\"'=1+1 a,\"\"b\"");
    assert_eq!(found.lines().last().unwrap().trim(), "1d 1h 0s");
}

/// `browser.mjs` says what it does there: it searches, opens, groups and goes through all views by keyboard.
#[test]
fn the_page_is_used_by_keyboard_in_a_browser() {
    let runs = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|ended| ended.status.success());
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers.into_iter().find(|name| runs(name)).filter(|_| runs("node")) else {
        eprintln!("skipped: Chromium or Node.js is not installed");
        return;
    };
    let network = Network::of(&["<img src=x onerror=alert(1)>", "west"], 5_000);
    let serving = network.serve();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/browser.mjs");
    let url = format!("http://localhost:{}/", serving.address.port());
    let mut command = Command::new("node");
    command.args([script, browser, &url]).args(std::env::var_os("FLOWPEEL_SCREENSHOTS"));
    let ended = command.output().unwrap();
    let result: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let expected = json!({ "markup": 0, "unnamed": [], "outside": [], "faults": [] });
    assert_eq!(result, expected, "{}", result["failed"].as_str().unwrap_or_default());
}
