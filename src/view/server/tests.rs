//! The control socket with clients of every kind.

use super::*;
use crate::view::protocol::{ANSWER_SIZE_MAX, PROTOCOL_VERSION};
use crate::view::{Feed, ViewClient};
use std::io::BufRead;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream as StdStream;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn request() -> Request {
    Request { version: PROTOCOL_VERSION, count: 10, ..Request::default() }
}

struct Served {
    server: ControlServer,
    path: PathBuf,
    _directory: tempfile::TempDir,
    _feed: Feed,
}

fn served() -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let (board, feed) = Board::new();
    let server = ControlServer::listen(&path, board).unwrap();
    Served { server, path, _directory: directory, _feed: feed }
}

fn connected(served: &Served) -> StdStream {
    let stream = StdStream::connect(&served.path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that comes until the server ends the connection.
fn rest(stream: &mut StdStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn nobody_but_the_owner_can_reach_the_socket() {
    let Served { server, path, _directory, _feed } = served();
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.mode() & 0o777, 0o600);
    // Nothing else is left beside it.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_is_there_already_is_replaced_only_if_it_is_a_socket_that_nobody_listens_at() {
    let served = served();
    let (board, _feed) = Board::new();
    let error = ControlServer::listen(&served.path, Arc::clone(&board)).err().unwrap();
    assert!(error.to_string().contains("another process listens here"), "{error}");

    let directory = tempfile::tempdir().unwrap();
    let stale = directory.path().join("stale");
    drop(net::UnixListener::bind(&stale).unwrap());
    let server = ControlServer::listen(&stale, Arc::clone(&board)).unwrap();
    ViewClient::attach(&stale).unwrap().ask(&request()).unwrap();
    drop(server);

    let file = directory.path().join("file");
    fs::write(&file, "kept").unwrap();
    let error = ControlServer::listen(&file, Arc::clone(&board)).err().unwrap();
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    let error = ControlServer::listen(&directory.path().join("none/control"), board).err().unwrap();
    assert!(error.to_string().contains("cannot listen here"), "{error}");
}

#[test]
fn garbage_is_refused_with_its_place() {
    let served = served();
    for (sent, reason) in [
        ("\n", "this is no request, at byte"),
        ("hello\n", "this is no request, at byte 1"),
        ("{\"version\":1,\"count\":-1}\n", "this is no request, at byte"),
        ("\u{0}\u{1b}[2J\n", "this is no request, at byte"),
    ] {
        let mut stream = connected(&served);
        stream.write_all(sent.as_bytes()).unwrap();
        let answer: Answer = serde_json::from_str(&rest(&mut stream)).unwrap();
        let error = answer.error.unwrap();
        assert!(error.reason.starts_with(reason), "{sent:?}: {error:?}");
        assert!(!error.reason.contains('\u{1b}'));
    }
    let mut client = ViewClient::attach(&served.path).unwrap();
    let wrong = Request { filter: "client prot 443".to_owned(), ..request() };
    assert_eq!(client.ask(&wrong).unwrap().error.unwrap().position, Some(7));
    // A filter that is wrong ends nothing.
    assert_eq!(client.ask(&request()).unwrap().error, None);
    let mut later = connected(&served);
    later.write_all(b"{\"version\":2}\n").unwrap();
    let mut line = String::new();
    BufReader::new(later).read_line(&mut line).unwrap();
    let answer: Answer = serde_json::from_str(&line).unwrap();
    assert_eq!(answer.error.unwrap().reason, "this flowpeel speaks version 1 of the protocol, not 2");
}

#[test]
fn a_request_without_end_is_cut_off() {
    let served = served();
    let mut stream = connected(&served);
    // The server may close before all of it is taken.
    drop(stream.write_all(&vec![b'['; 4 * REQUEST_SIZE_MAX]));
    let mut answer = Vec::new();
    // Closing with unread bytes may reset the connection before the answer is read.
    drop(stream.read_to_end(&mut answer));
    assert!(answer.len() < 1_000);
    ViewClient::attach(&served.path).unwrap().ask(&request()).unwrap();
}

#[test]
fn more_clients_than_there_is_room_for_are_refused_and_the_others_served() {
    let served = served();
    let mut clients: Vec<_> = (0..CONTROL_CLIENTS_MAX).map(|_| ViewClient::attach(&served.path).unwrap()).collect();
    clients.iter_mut().for_each(|client| drop(client.ask(&request()).unwrap()));
    let answer: Answer = serde_json::from_str(&rest(&mut connected(&served))).unwrap();
    assert!(answer.error.unwrap().reason.contains("are attached"));
    clients.iter_mut().for_each(|client| drop(client.ask(&request()).unwrap()));
    // There is room again when one has gone.
    clients.pop();
    let began = Instant::now();
    while ViewClient::attach(&served.path).unwrap().ask(&request()).unwrap().error.is_some() {
        assert!(began.elapsed() < PATIENCE);
    }
}

#[test]
fn one_that_takes_no_answer_keeps_nobody_waiting() {
    let served = served();
    let mut greedy = connected(&served);
    greedy.set_nonblocking(true).unwrap();
    let asked = b"{\"version\":1,\"count\":1000}\n".repeat(1_000);
    let mut sent = 0;
    // It asks until neither side takes any more, and reads nothing.
    let mut client = ViewClient::attach(&served.path).unwrap();
    for _ in 0..200 {
        match greedy.write(&asked[sent % asked.len()..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        client.ask(&request()).unwrap();
    }
    assert!(sent > 0);
}

#[test]
fn the_pair_is_served_without_a_path() {
    let (board, _feed) = Board::new();
    let (server, stream) = ControlServer::pair(board).unwrap();
    let mut client = ViewClient::of(stream).unwrap();
    let answer = client.ask(&request()).unwrap();
    assert_eq!((answer.version, answer.rows_of, answer.page), (PROTOCOL_VERSION, 0, None));
    drop(server);
    assert!(client.ask(&request()).is_err());
}

#[test]
fn an_answer_beyond_all_limits_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other");
    let listener = net::UnixListener::bind(&path).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(stream.write_all(&vec![b' '; 2 * ANSWER_SIZE_MAX]));
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"\x1b[2J hello\n").unwrap();
    });
    for _ in 0..2 {
        let error = ViewClient::attach(&path).unwrap().ask(&request()).unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
    other.join().unwrap();
}
