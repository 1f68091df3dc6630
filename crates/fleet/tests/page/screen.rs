//! The page's modules in Node.js, and the page itself in headless Chromium, each where it is installed.

use crate::past::Years;
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
fn addresses_are_ends_of_the_past() {
    let script = format!(
        "import {{ toEnds }} from {:?}; console.log(JSON.stringify(['', '10.0.0.7', '10.0.0.7 [::1]:443', 'client 10.0.0.1 and ::1', \
         '10.0.', '443', 'a or b', '10.0.0.1:70000', '1.1.1.1 1.1.1.2 1.1.1.3', '<b>'].map(toEnds)))",
        page("words.js")
    );
    let Some(found) = node(&script) else {
        eprintln!("skipped: Node.js is not installed");
        return;
    };
    let found: Value = serde_json::from_str(&found).unwrap();
    let one = json!(["10.0.0.7"]);
    let two = json!(["10.0.0.7", "[::1]:443"]);
    assert_eq!(found, json!([[], one, two, ["10.0.0.1", "::1"], null, null, null, null, null, null]));
    for end in ["10.0.0.7", "[::1]:443", "::1"] {
        assert!(end.parse::<flowpeel::archive::Endpoint>().is_ok(), "{end}");
    }
}

#[test]
fn csv_cannot_become_a_formula_or_another_column() {
    let script = format!(
        "import {{ csv }} from {:?}; import {{ span }} from {:?}; const flow = {{ start: 's', age: 1.5, state: 'established' }}; \
         console.log(csv([{{ src_ip: '::1', src_port: 1, dest_ip: '10.0.0.1', dest_port: 2, flow, routers: ['=1+1', 'a,\"b'] }}]), span(90061), span(0))",
        page("show.js"),
        page("elements.js")
    );
    let Some(found) = node(&script) else {
        eprintln!("skipped: Node.js is not installed");
        return;
    };
    let line = found.lines().nth(1).unwrap();
    assert_eq!(line, "::1,1,10.0.0.1,2,s,1.5,established,\"'=1+1 a,\"\"b\"");
    assert_eq!(found.lines().last().unwrap().trim(), "1d 1h 0s");
}

/// The browser that is installed, if there is Node.js to drive it.
pub(crate) fn browser() -> Option<&'static str> {
    let runs = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|ended| ended.status.success());
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let browser = browsers.into_iter().find(|name| runs(name)).filter(|_| runs("node"));
    if browser.is_none() {
        eprintln!("skipped: Chromium or Node.js is not installed");
    }
    browser
}

/// What `browser.mjs` found on the page at this address.
pub(crate) fn browse(browser: &str, url: &str, environment: &[(&str, &str)]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/browser.mjs");
    let mut command = Command::new("node");
    command.args([script, browser, url]).args(std::env::var_os("FLOWPEEL_SCREENSHOTS"));
    let ended = command.envs(environment.iter().copied()).output().unwrap();
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// `browser.mjs` says what it does there: it searches, opens, groups and goes through all views by keyboard. With
/// axe-core (`FLOWPEEL_AXE` is its file `axe.min.js`) each view is checked for who sees or hears the page otherwise.
#[test]
fn the_page_is_used_by_keyboard_in_a_browser() {
    let Some(browser) = browser() else { return };
    let years = Years::of(["<img src=x onerror=alert(1)>", "west"], 11);
    let serving = years.serve();
    let url = format!("http://localhost:{}/", serving.address.port());
    let result = browse(browser, &url, &[]);
    let expected = json!({ "markup": 0, "unnamed": [], "outside": [], "objections": [], "faults": [] });
    assert_eq!(result, expected, "{}", result["failed"].as_str().unwrap_or_default());
}
