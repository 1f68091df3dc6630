//! The pages and their responses.
//!
//! What enters: a request and the metrics. What leaves: the bytes of a whole response, after which the connection is
//! closed.

use crate::metrics::Metrics;
use crate::serve::request::Request;
use std::time::Instant;

/// The statuses of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The page follows.
    Ok,
    /// The request is not valid HTTP/1.
    BadRequest,
    /// There is no such page.
    NotFound,
    /// The method is neither GET nor HEAD.
    MethodNotAllowed,
    /// The head of the request is larger than the limit.
    HeadersTooLarge,
    /// Something is wrong with the lists.
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::HeadersTooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const INDEX: &str = concat!("flowpeel ", env!("CARGO_PKG_VERSION"), ": see /metrics and /healthz\n");

struct Page {
    status: Status,
    content_type: &'static str,
    body: String,
}

impl Page {
    /// A page with only the text of its status.
    fn bare(status: Status) -> Self {
        Page { status, content_type: TEXT, body: format!("{}\n", status.line()) }
    }

    fn bytes(&self, has_body: bool) -> Vec<u8> {
        let allow = if self.status == Status::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
            self.status.line(),
            self.content_type,
            self.body.len(),
            if has_body { &self.body } else { "" }
        );
        text.into_bytes()
    }
}

/// The response to a request.
pub(super) fn respond(request: Result<Request, Status>, metrics: &Metrics, now: Instant) -> Vec<u8> {
    match request {
        Err(status) => Page::bare(status).bytes(true),
        Ok(Request { method: "GET", path }) => page(path, metrics, now).bytes(true),
        Ok(Request { method: "HEAD", path }) => page(path, metrics, now).bytes(false),
        Ok(_) => Page::bare(Status::MethodNotAllowed).bytes(true),
    }
}

fn page(path: &str, metrics: &Metrics, now: Instant) -> Page {
    match path {
        "/" => Page { status: Status::Ok, content_type: TEXT, body: INDEX.to_owned() },
        "/metrics" => Page { status: Status::Ok, content_type: EXPOSITION, body: metrics.exposition(now) },
        "/healthz" => {
            let (status, line) = match metrics.health(now) {
                None => (Status::Ok, "ok".to_owned()),
                Some(problems) => (Status::Unavailable, problems),
            };
            Page { status, content_type: TEXT, body: line + "\n" }
        }
        _ => Page::bare(Status::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Setup;

    fn response(method: &str, path: &str) -> (String, String) {
        let metrics = Metrics::new(Setup::default());
        metrics.list_failed();
        let response = String::from_utf8(respond(Ok(Request { method, path }), &metrics, Instant::now())).unwrap();
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
}
