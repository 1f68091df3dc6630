//! Requests of any kind, from a seed: no answer is a failure of the server, JSON is JSON, memory stays where it is.
//!
//! `FLOWPEEL_FUZZ_REQUESTS` says how many there are: a million take half an hour and more.

use crate::network::Serving;
use crate::past::Years;
use flowpeel_traffic::Random;
use std::io::{Read, Write};
use std::net::Shutdown;

const REQUESTS: u64 = 1_500;

/// What the process may grow by.
const GROWTH_MAX: u64 = 96 << 20;

const PATHS: [&str; 14] = [
    "/",
    "/page.js",
    "/api/v1/connections",
    "/api/v1/connections",
    "/api/v1/connections",
    "/api/v1/routers",
    "/api/v1/history",
    "/api/v1/life",
    "/api/v1/past",
    "/api/v1/lists",
    "/api/v1/lists/0/flows-20260101T000010Z.ndjson",
    "/metrics",
    "/openapi.json",
    "/session",
];

const NAMES: [&str; 18] = [
    "filter", "filter", "filter", "router", "seen_by", "sort", "group", "limit", "after", "since", "until", "points",
    "client", "server", "vlan", "end", "other", "unknown",
];

/// Words of which values are put together, good ones and others.
const WORDS: [&str; 60] = [
    "established",
    "half_open",
    "syn_sent",
    "not",
    "and",
    "or",
    "(",
    ")",
    "client",
    "server",
    "port",
    "net",
    "host",
    "portrange",
    "vlan",
    "age",
    "start",
    "reason",
    "end",
    ">",
    "<",
    ">=",
    "=",
    "10.0.0.1",
    "10.0.0.0/8",
    "::1",
    "2001:db8::/32",
    "203.0.113.7:443",
    "[::1]:443",
    "443",
    "1-1024",
    "70000",
    "-1",
    "0",
    "1",
    "1000",
    "1001",
    "18446744073709551616",
    "1h",
    "5m",
    "9999999999d",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    "1677-09-21",
    "9999-12-31T23:59:59Z",
    "fin",
    "rst",
    "east",
    "one",
    "age",
    "-age",
    "youngest",
    "router",
    "state",
    "~",
    "1~2~10.0.0.1:1~10.0.0.2:2~~fin~east",
    "10.0.0.1:1~10.0.0.2:2~0~0~",
    "\u{0}",
    "\u{1b}[2J",
    "\u{10ffff}é<img src=x>",
];

fn word(random: &mut Random) -> &'static str {
    WORDS[random.below(WORDS.len() as u64) as usize]
}

fn escaped(text: &str, random: &mut Random) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b':' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
        if random.chance(0.002) {
            out += ["%", "%zz", "&", "=", "#", "%00", "%FF", "+"][random.below(8) as usize];
        }
    }
    out
}

fn query(random: &mut Random) -> String {
    let mut pairs = Vec::new();
    for _ in 0..random.below(4) {
        let words = if random.chance(0.01) { random.below(3_000) } else { 1 + random.below(5) };
        let value = (0..words).map(|_| word(random)).collect::<Vec<_>>().join(" ");
        pairs.push(format!("{}={}", NAMES[random.below(NAMES.len() as u64) as usize], escaped(&value, random)));
    }
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn request(random: &mut Random) -> Vec<u8> {
    let method = ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "DELETE", "PUT", "get", "CONNECT", ""]
        [random.below(13) as usize];
    let path = PATHS[random.below(PATHS.len() as u64) as usize];
    let version =
        if random.chance(0.02) { ["HTTP/1.0", "HTTP/2", "HTTP/9.9", ""][random.below(4) as usize] } else { "HTTP/1.1" };
    let mut text = format!("{method} {path}{} {version}\r\n", query(random));
    if !random.chance(0.03) {
        text += "Host: localhost\r\n";
    }
    if random.chance(0.1) {
        text += [
            "Content-Length: 5\r\n",
            "Content-Length: -1\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Host: evil.example\r\n",
            "Range: bytes=0-0\r\n",
            "Expect: 100-continue\r\n",
            "Cookie: __Host-flowpeel=x\r\n",
            "Authorization: Bearer x\r\n",
            "Upgrade: h2c\r\n",
            " folded\r\n",
            "X: \u{1}\r\n",
        ][random.below(11) as usize];
    }
    text += "Connection: close\r\n\r\n";
    let mut bytes = text.into_bytes();
    if random.chance(0.05) {
        bytes.extend((0..random.below(64)).map(|_| random.below(256) as u8));
    }
    for _ in 0..if random.chance(0.1) { random.below(8) } else { 0 } {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.below(256) as u8;
    }
    if random.chance(0.05) {
        bytes.truncate(random.below(bytes.len() as u64) as usize);
    }
    bytes
}

/// The status of an answer, once what it says was looked at. Of a stream of events only the beginning is read.
fn answered(serving: &Serving, request: &[u8], seed: u64) -> u16 {
    let mut stream = serving.connect();
    drop(stream.write_all(request));
    drop(stream.shutdown(Shutdown::Write));
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let asked = || String::from_utf8_lossy(request).into_owned();
    let known = [0, 200, 204, 400, 401, 404, 405, 408, 411, 413, 414, 417, 421, 431, 503, 505];
    assert!(known.contains(&status), "request {seed} is answered with {status}: {}", asked());
    let head = head.to_ascii_lowercase();
    // What follows answers a second request, which the first became by chance.
    let size = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    let size = if request.starts_with(b"HEAD") { 0 } else { size.unwrap_or(body.len()) };
    let body = body.get(..size).unwrap_or(body);
    if head.contains("content-type: application/json") && !body.is_empty() {
        let json = serde_json::from_str::<serde_json::Value>(body);
        assert!(json.is_ok(), "request {seed} is answered with what is no JSON: {}: {body}", asked());
    }
    assert!(status != 200 || head.contains("content-security-policy: default-src 'none'"), "{seed}: {head}");
    status
}

#[test]
fn no_request_is_a_failure_of_the_server() {
    let years = Years::new();
    let serving = years.serve();
    let count = std::env::var("FLOWPEEL_FUZZ_REQUESTS").map_or(REQUESTS, |text| text.parse().unwrap());
    let mut statuses = std::collections::BTreeMap::<u16, u64>::new();
    let mut before = 0;
    for seed in 0..count {
        *statuses.entry(answered(&serving, &request(&mut Random::new(seed)), seed)).or_default() += 1;
        if seed == count / 3 {
            before = serving.memory_size();
        }
    }
    let after = serving.memory_size();
    println!("{count} requests: {statuses:?}; {} MiB, then {} MiB", before >> 20, after >> 20);
    assert!(after.saturating_sub(before) < GROWTH_MAX, "{before} bytes, then {after}");
    assert!(statuses.len() > 4, "{statuses:?}");
    assert_eq!(serving.get("/api/v1/routers").status, 200);
}
