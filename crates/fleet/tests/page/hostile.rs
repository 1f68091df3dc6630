//! Requests that mean no good, clients that are slow, and markup in what comes from outside.

use crate::network::{Network, Serving, fleet};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The most that the process may grow by while clients do their worst: two hundred answers held at once.
const GROWTH_MAX: u64 = 128 << 20;

fn request(host: &str) -> Vec<u8> {
    format!("GET /api/v1/routers HTTP/1.1\r\n{host}Connection: close\r\n\r\n").into_bytes()
}

#[test]
fn only_names_of_this_machine_are_answered() {
    let network = Network::of(&["edge"], 500);
    let serving = Serving::start(&network.lists(), &["--host", "flows.example"]);
    for host in ["localhost", "localhost:9", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "FLOWS.example:443"] {
        assert_eq!(serving.send(&request(&format!("Host: {host}\r\n"))).status, 200, "{host}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]", "", "[::1", "127.0.0.1.evil.example"]
    {
        assert_eq!(serving.send(&request(&format!("Host: {host}\r\n"))).status, 421, "{host}");
    }
    assert_eq!(serving.send(&request("")).status, 421);
    assert_eq!(serving.send(&request("Host: localhost\r\nHost: evil.example\r\n")).status, 421);
    let absolute = b"GET http://evil.example/api/v1/routers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(serving.send(absolute).status, 421);
}

#[test]
fn what_is_no_request_is_refused() {
    let network = Network::of(&["edge"], 500);
    let serving = network.serve();
    for path in ["/nothing", "/../page.js", "/api/v1/connections/1", "//", "/%00"] {
        assert_eq!(serving.get(path).status, 404, "{path}");
    }
    let with = |method: &str| {
        format!(
            "{method} /api/v1/routers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
        )
    };
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        assert_eq!(serving.send(with(method).as_bytes()).status, 405, "{method}");
    }
    for query in
        ["filter=%FF", "filter=a&filter=b", "limit=-1", "limit=99999999999999999999", "after=%00", "filter=%0A%1B%5B2J"]
    {
        let answer = serving.get(&format!("/api/v1/connections?{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(!answer.body.contains(['\u{1b}', '\u{0}']));
    }
    let parentheses = serving.ask(&[("filter", &"(".repeat(4_000))]);
    assert_eq!(parentheses.status, 400);
    let long = serving.get(&format!("/api/v1/connections?filter={}", "a".repeat(100_000)));
    assert!(matches!(long.status, 0 | 400 | 414 | 431), "{}", long.status);
    let endless = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{}",
        "X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(10_000)
    );
    assert!(matches!(serving.send(endless.as_bytes()).status, 0 | 400 | 431));
    for garbage in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert!(matches!(serving.send(garbage).status, 0 | 400 | 421 | 404 | 405 | 505));
    }
    assert_eq!(serving.get("/api/v1/routers").status, 200);
}

#[test]
fn every_answer_says_what_a_browser_may_do_with_it() {
    let network = Network::of(&["edge"], 500);
    let serving = network.serve();
    for path in [
        "/",
        "/page.js",
        "/words.js",
        "/show.js",
        "/elements.js",
        "/charts.js",
        "/timeline.js",
        "/page.css",
        "/icon.svg",
        "/api/v1/routers",
        "/api/v1/connections",
        "/metrics",
        "/nothing",
    ] {
        let answer = serving.get(path);
        for header in [
            "x-content-type-options: nosniff",
            "content-security-policy: default-src 'none'; script-src 'self'",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.head.contains(header), "{path}: {}", answer.head);
        }
        assert!(!answer.head.contains("access-control-allow-origin"), "{path}");
    }
}

#[test]
fn the_page_asks_nobody_else_and_makes_no_markup() {
    let network = Network::of(&["edge"], 500);
    let serving = network.serve();
    let html = serving.get("/").body;
    assert!(html.contains("<script type=\"module\" src=\"/page.js\">") && !html.contains("style="));
    for path in ["/", "/page.js", "/words.js", "/show.js", "/elements.js", "/charts.js", "/timeline.js", "/page.css"] {
        let text = serving.get(path).body;
        assert!(text.len() > 500, "{path}");
        for outside in [
            "http://",
            "https://",
            "//fonts",
            "@import",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "srcdoc",
        ] {
            assert!(!text.contains(outside), "{path}: {outside}");
        }
    }
}

#[test]
fn markup_in_names_and_lists_is_text_in_answers() {
    let network = Network::of(&["<img src=x onerror=alert(1)>", "\"quoted\"\\"], 500);
    let serving = network.serve();
    let answer = serving.get("/api/v1/connections");
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    let names: Vec<_> = answer.json()["connections"][1]["routers"].as_array().unwrap().clone();
    assert!(!names.is_empty());
    for name in names {
        assert_eq!(serving.ask(&[("router", name.as_str().unwrap())]).status, 200);
        assert!(["<img src=x onerror=alert(1)>", "\"quoted\"\\"].contains(&name.as_str().unwrap()));
    }
    assert!(serving.get("/metrics").body.contains("{router=\"\\\"quoted\\\"\\\\\"}"));
}

#[test]
fn slow_clients_cost_nobody_anything() {
    let network = Network::of(&["edge"], 10_000);
    let serving = network.serve();
    assert_eq!(serving.ask(&[("limit", "1000")]).status, 200);
    let before = serving.memory_size();
    let begun: Vec<TcpStream> = (0..300)
        .map(|at| {
            let mut stream = serving.connect();
            let text: &[u8] = match at % 3 {
                0 => b"GET / HT",
                1 => b"GET /api/v1/connections?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n",
                _ => b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
            };
            // One of them may have been pushed out already.
            drop(stream.write_all(text));
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(serving.ask(&[("limit", "1000"), ("sort", "age")]).status, 200);
    }
    let grown = serving.memory_size().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more for {} slow clients", begun.len());
    let metrics = serving.get("/metrics").body;
    let pushed_out = metrics.lines().find_map(|line| line.strip_prefix("flowpeel_fleet_clients_pushed_out_total "));
    assert!(pushed_out.is_some_and(|count| count.parse::<u64>().unwrap() > 100), "{metrics}");
    let mut oldest = &begun[0];
    let mut rest = Vec::new();
    drop(oldest.read_to_end(&mut rest));
    assert!(rest.is_empty(), "the oldest had to go");
}

#[test]
fn who_sends_no_request_makes_room_for_others() {
    let network = Network::of(&["edge"], 500);
    let serving = network.serve();
    let slow = |count: usize| -> Vec<TcpStream> {
        let begun = (0..count).map(|_| {
            let mut stream = serving.connect();
            drop(stream.write_all(b"GET / HT"));
            stream
        });
        begun.collect()
    };
    let mut honest = serving.connect();
    honest.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut piece = [0; 1 << 12];
    assert!(honest.read(&mut piece).unwrap() > 0);
    let begun = slow(127);
    // They have had their time for a request when the next ones come.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let others = slow(100);
    assert_eq!(serving.get("/api/v1/routers").status, 200);
    honest.set_nonblocking(true).unwrap();
    let mut left = || loop {
        match honest.read(&mut piece) {
            Ok(0) => return "closed",
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return "open",
            Err(_) => return "reset",
        }
    };
    assert_eq!(left(), "open", "it came first, and has asked; {} and {} have not", begun.len(), others.len());
}

#[test]
fn other_machines_cannot_be_listened_to() {
    let network = Network::of(&["edge"], 500);
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let ended = fleet("serve").args(["--listen", listen, "--from"]).arg(network.lists()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("ssh -L") && said.contains("reverse proxy") && said.contains("--token-file"), "{said}");
    }
}
