//! The head of an HTTP request.
//!
//! What enters: the bytes that a client has sent so far. What leaves: what it asks for, the status to refuse it with,
//! or nothing while the head is incomplete. A body is not read: no page takes one.

use crate::serve::connection::SERVE_READ_SIZE;
use crate::serve::pages::Status;

/// The longest request to the metrics server, in bytes: a browser with its cookies sends less.
pub const REQUEST_SIZE_MAX: usize = 8 << 10;

/// The most headers of a request to the metrics server.
const REQUEST_HEADER_COUNT_MAX: usize = 64;

const _: () = assert!(SERVE_READ_SIZE <= REQUEST_SIZE_MAX);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Without the query.
    pub(super) path: &'a str,
}

/// Reads the head of a request; `None` while it is incomplete, and neither wrong nor too large.
pub(super) fn read_request(bytes: &[u8]) -> Option<Result<Request<'_>, Status>> {
    let mut headers = [httparse::EMPTY_HEADER; REQUEST_HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_SIZE_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Err(Status::HeadersTooLarge));
        }
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Err(Status::BadRequest)),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Some(Err(Status::BadRequest));
    };
    let host_count = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host")).count();
    // HTTP/1.1 requires exactly one.
    if host_count > 1 || (version == 1 && host_count == 0) {
        return Some(Err(Status::BadRequest));
    }
    Some(Ok(Request { method, path: path_of(target) }))
}

/// The path of a target, which is `/a?b`, or `http://host/a?b` as a proxy gets it.
fn path_of(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    target.split('?').next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
