//! Clients of the metrics server, honest and other.

use crate::support::say::skipped;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Far longer than the server may take for anything: a wait of this length is a hang.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// An answer: the status, the head and the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect_timeout(&address, HANG).unwrap();
    client.set_read_timeout(Some(HANG)).unwrap();
    client.set_write_timeout(Some(HANG)).unwrap();
    client
}

/// Everything that comes until the server closes, in order or by a reset.
///
/// # Panics
///
/// The server does not close.
pub(crate) fn read_to_close(client: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match client.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server does not close: {error}"),
    }
    answer
}

/// Sends bytes as they are and closes the sending side. Returns what comes back.
pub(crate) fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut client = connect(address);
    // The server may have refused it by the first bytes.
    drop(client.write_all(bytes));
    drop(client.shutdown(Shutdown::Write));
    read_to_close(&mut client)
}

/// Sends a request and reads the whole answer.
pub(crate) fn ask(address: SocketAddr, request: &str) -> Answer {
    let text = String::from_utf8(send(address, request.as_bytes())).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    assert!(head.contains("\r\nConnection: close"), "{head}");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// Whether a program succeeds, and its output; `None`, after saying so, where it is not installed.
pub(crate) fn run(program: &str, arguments: &[&str], input: &str) -> Option<(bool, String)> {
    use std::process::Stdio;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skipped(&format!("{program} is not installed"));
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    // A program that does not read its input may be gone by now.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), said))
}
