//! Hostile clients of the metrics server: none can hold it up, make it grow, or bring it down.

use super::clients::{HANG, connect, get, read_to_close, send};
use super::{metrics, served};
use flowpeel::metrics::http::{REQUEST_SIZE_MAX, SERVE_CONNECTION_COUNT_MAX};
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

/// One server for all random inputs.
fn shared() -> SocketAddr {
    static SERVER: OnceLock<flowpeel::metrics::http::Server> = OnceLock::new();
    SERVER.get_or_init(|| served(&metrics())).local_addr()
}

fn is_response(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.1 ") && bytes.windows(4).any(|window| window == b"\r\n\r\n")
}

/// What the server says of the clients that it did not answer.
fn abandoned(address: SocketAddr) -> f64 {
    let families = super::exposition::parse(&get(address, "/metrics").body);
    families["flowpeel_http_abandoned_total"].samples["flowpeel_http_abandoned_total"]
}

#[test]
fn slow_clients_keep_nobody_out() {
    let metrics = metrics();
    let server = served(&metrics);
    let address = server.local_addr();
    // Three times as many as there is room for, each with half a request.
    let mut slow: Vec<TcpStream> = (0..3 * SERVE_CONNECTION_COUNT_MAX).map(|_| connect(address)).collect();
    for client in &mut slow {
        // The oldest ones have been closed.
        drop(client.write_all(b"GET /metrics HT"));
    }
    for _ in 0..5 {
        assert_eq!(get(address, "/metrics").status, 200);
    }
    // All that came before the last ones had to make room, unanswered, and it was counted.
    assert!(abandoned(address) >= (2 * SERVE_CONNECTION_COUNT_MAX) as f64);
    assert!(read_to_close(&mut slow[0]).is_empty());
}

#[test]
fn a_client_that_drips_is_closed_in_time() {
    let metrics = metrics();
    let server = served(&metrics);
    let mut client = connect(server.local_addr());
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let limit = HANG.as_millis() / 200;
    let mut drips = 0;
    // A byte now and then keeps no connection open.
    let end = loop {
        drips += 1;
        assert!(drips < limit, "it is not closed");
        if let Err(error) = client.write_all(b"a") {
            break format!("{error:?}");
        }
        match client.read(&mut [0; 16]) {
            Ok(0) => break "closed".to_owned(),
            Ok(_) => panic!("an answer to half a request"),
            // Another test's child may have ended, which interrupts whoever waits.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => break format!("{error:?}"),
        }
    };
    assert_eq!(abandoned(server.local_addr()), 1.0, "{end} after {drips} bytes");
}

#[test]
fn who_reads_nothing_and_sends_for_ever_is_closed() {
    let metrics = metrics();
    let server = served(&metrics);
    let mut client = connect(server.local_addr());
    let mut sent: u64 = 0;
    let block = vec![b'a'; 1 << 16];
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    while client.write_all(&block).is_ok() {
        sent += block.len() as u64;
        assert!(sent < 1 << 30, "the server takes in whatever is sent");
    }
}

#[test]
fn a_request_that_is_too_large_is_refused_and_not_held() {
    let endless = "GET /".to_owned() + &"a".repeat(4 * REQUEST_SIZE_MAX);
    let answer = String::from_utf8(send(shared(), endless.as_bytes())).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn what_was_sent_is_never_sent_back() {
    let request = "GET /<script>alert(1)</script> HTTP/1.1\r\nHost: evil.example\r\nX-A: sentinel\r\n\r\n";
    let answer = String::from_utf8(send(shared(), request.as_bytes())).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(["script", "evil", "sentinel"].iter().all(|word| !answer.contains(word)), "{answer}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Nothing that a client can send keeps its connection open or the server from answering the next.
    #[test]
    fn any_bytes_are_answered_or_closed(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..3_000),
            "(GET|POST|HEAD|get|\\PC{0,4}) /?[a-z/?%]{0,12} HTTP/[0-9.]{1,3}\r\n(Host: a\r\n|[A-Z:]{0,9}\r\n|\n){0,6}(\r\n)?"
                .prop_map(String::into_bytes),
            (0..20_usize, any::<u8>()).prop_map(|(kib, byte)| vec![byte; kib << 10]),
        ],
    ) {
        let answer = send(shared(), &bytes);
        prop_assert!(answer.is_empty() || is_response(&answer), "{:?}", String::from_utf8_lossy(&answer));
        prop_assert_eq!(get(shared(), "/").status, 200);
    }
}
