//! Addresses, requests and pages, without a client.

use super::*;
use crate::metrics::Setup;
use proptest::prelude::*;

#[test]
fn loopback_is_not_exposed_and_all_else_is() {
    for (address, expected) in [
        ("127.0.0.1:9464", false),
        ("127.8.0.1:1", false),
        ("[::1]:9464", false),
        ("[::ffff:127.0.0.1]:9464", false),
        ("0.0.0.0:9464", true),
        ("[::]:9464", true),
        ("192.0.2.1:9464", true),
        ("[::ffff:192.0.2.1]:9464", true),
    ] {
        assert_eq!(is_exposed(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn an_address_that_is_taken_is_refused_with_the_way_out() {
    let metrics = Metrics::new(Setup::default());
    let server = serve(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::clone(&metrics)).unwrap();
    let message = serve(server.local_addr(), metrics).unwrap_err().to_string();
    assert!(message.contains(&server.local_addr().to_string()) && message.contains("--metrics"), "{message}");
}

fn path(text: &str) -> Result<&str, Status> {
    read_request(text.as_bytes()).expect("it is complete").map(|request| request.path)
}

#[test]
fn requests_are_read() {
    for (text, expected) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "/"),
        ("GET /metrics?x=1 HTTP/1.1\r\nhost: a\r\n\r\n", "/metrics"),
        ("HEAD http://a:1/healthz?x HTTP/1.1\r\nHost: a:1\r\n\r\n", "/healthz"),
        ("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", "/"),
        ("GET /?to=http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", "/"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "*"),
        ("GET /metrics HTTP/1.0\r\n\r\n", "/metrics"),
    ] {
        assert_eq!(path(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_wrong_is_refused_as_soon_as_that_shows() {
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/2.0\r\n",
        "GET /\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n",
        "\x16\x03\x01\x02",
        "\0",
    ] {
        assert_eq!(path(text), Err(Status::BadRequest), "{text:?}");
    }
}

#[test]
fn what_is_too_large_is_refused_and_what_is_short_is_waited_for() {
    let long = format!("GET /{}", "a".repeat(REQUEST_SIZE_MAX));
    assert_eq!(read_request(&long.as_bytes()[..REQUEST_SIZE_MAX - 1]), None);
    assert_eq!(path(&long[..REQUEST_SIZE_MAX]), Err(Status::HeadersTooLarge));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(REQUEST_HEADER_COUNT_MAX + 1));
    assert_eq!(path(&many), Err(Status::HeadersTooLarge));
    for text in ["", "G", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        assert_eq!(read_request(text.as_bytes()), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let read = read_request(&bytes);
        prop_assert!(read.is_none_or(|read| read.is_err() || !bytes.is_empty()));
    }

    #[test]
    fn no_target_panics(target in "[!-~]{1,40}", method in "[A-Z]{1,8}") {
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        if let Ok(request) = read_request(text.as_bytes()).unwrap() {
            prop_assert_eq!(request.method, method);
            prop_assert!(target.contains(request.path) || request.path == "/");
        }
    }
}

fn response(method: &str, path: &str) -> (String, String) {
    let metrics = Metrics::new(Setup::default());
    metrics.list_failed();
    let response = String::from_utf8(respond(Ok(Request { method, path }), &*metrics, Instant::now())).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn every_page_has_its_status_and_the_length_of_its_body() {
    for (method, path, status) in [
        ("GET", "/", "200 OK"),
        ("GET", "/metrics", "200 OK"),
        ("GET", "/healthz", "503 Service Unavailable"),
        ("GET", "/metrics/", "404 Not Found"),
        ("GET", "*", "404 Not Found"),
        ("POST", "/metrics", "405 Method Not Allowed"),
        ("get", "/metrics", "405 Method Not Allowed"),
    ] {
        let (head, body) = response(method, path);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{method} {path}: {head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{method} {path}: {head}");
        assert!(head.ends_with("\r\nConnection: close"), "{head}");
        assert_eq!(head.contains("\r\nAllow: GET, HEAD\r\n"), status.starts_with("405"), "{head}");
    }
}

#[test]
fn a_head_is_that_of_the_page_alone() {
    let (page, body) = response("GET", "/healthz");
    assert_eq!(body, "the last list could not be written\n");
    assert_eq!(response("HEAD", "/healthz"), (page, String::new()));
}
