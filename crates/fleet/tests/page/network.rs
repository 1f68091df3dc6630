//! Routers with lists of generated traffic, and a server over them.

use flowpeel::engine::Config;
use flowpeel::export::{Directory, Format, Keep};
use flowpeel::run::replay;
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Routers with their lists.
pub(crate) struct Network(TempDir);

/// The header and the lines of a list.
fn list(path: &Path) -> (Value, Vec<String>) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header = serde_json::from_str(lines.next().unwrap()).unwrap();
    (header, lines.map(str::to_owned).collect())
}

impl Network {
    /// No router yet.
    pub(crate) fn empty() -> Self {
        Network(tempfile::tempdir().unwrap())
    }

    /// Routers with these names, each of which sees a part of the same generated connections: all but those whose place
    /// in the list is at its own place among them, counted round.
    pub(crate) fn of(names: &[&str], connection_count: u64) -> Self {
        let network = Network::empty();
        let capture = network.0.path().join("capture.pcap");
        let config = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(7, connection_count) };
        write_pcap(&mut Traffic::new(config).unwrap(), &mut BufWriter::new(File::create(&capture).unwrap())).unwrap();
        let whole = network.0.path().join("whole");
        let mut directory = Directory::new(&whole, false, Format::default(), Keep::default()).unwrap();
        let config = Config { every: Some(Duration::from_secs(10)), ..Config::default() };
        replay(&[capture], &config, &mut directory, &mut ()).unwrap();
        drop(directory);
        // Of all lists the fullest: in the last most connections are closed.
        let paths = fs::read_dir(&whole).unwrap().map(|entry| entry.unwrap().path());
        let lists = paths.filter(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
        let fullest = lists.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
        let (header, lines) = list(&fullest);
        for (at, name) in names.iter().enumerate() {
            let is_seen = |place: usize| names.len() == 1 || place % (names.len() + 1) != at;
            let seen = lines.iter().enumerate().filter(|(place, _)| is_seen(*place)).map(|(_, line)| line.clone());
            network.write(
                name,
                fullest.file_name().unwrap().to_str().unwrap(),
                header.clone(),
                &seen.collect::<Vec<_>>(),
            );
        }
        network
    }

    /// Writes a list of these lines, as a router does: whole or not at all.
    pub(crate) fn write(&self, router: &str, name: &str, mut header: Value, lines: &[String]) {
        let half_open = lines.iter().filter(|line| !line.contains("\"state\":\"established\"")).count();
        header["flow_list"]["half_open"] = half_open.into();
        header["flow_list"]["flows"] = (lines.len() - half_open).into();
        let directory = self.lists().join(router);
        fs::create_dir_all(&directory).unwrap();
        let text: String =
            std::iter::once(header.to_string()).chain(lines.iter().cloned()).map(|line| line + "\n").collect();
        fs::write(directory.join(".new"), text).unwrap();
        fs::rename(directory.join(".new"), directory.join(name)).unwrap();
    }

    /// The directory with a folder of lists for each router.
    pub(crate) fn lists(&self) -> PathBuf {
        self.0.path().join("lists")
    }

    /// The list of a router: its path, its header and its lines.
    pub(crate) fn list_of(&self, router: &str) -> (PathBuf, Value, Vec<String>) {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(self.lists().join(router)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let path = paths.pop().unwrap();
        let (header, lines) = list(&path);
        (path, header, lines)
    }

    /// A server over all routers.
    pub(crate) fn serve(&self) -> Serving {
        Serving::start(&self.lists(), &[])
    }
}

/// A command of the fleet.
pub(crate) fn fleet(command: &str) -> Command {
    let mut fleet = Command::new(env!("CARGO_BIN_EXE_flowpeel-fleet"));
    fleet.arg(command).stdin(Stdio::null());
    fleet
}

/// A server, which ends with this.
pub(crate) struct Serving {
    process: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
    pub(crate) address: SocketAddr,
}

impl Serving {
    pub(crate) fn start(lists: &Path, options: &[&str]) -> Self {
        Serving::listening("127.0.0.1:0", lists, options)
    }

    pub(crate) fn listening(at: &str, lists: &Path, options: &[&str]) -> Self {
        let mut command = fleet("serve");
        command.args(["--listen", at, "--from"]).arg(lists).args(options).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        let address = said.split("://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
        Serving { process, stderr, said, address }
    }

    /// Ends it, and returns all that it has printed.
    pub(crate) fn ended(mut self) -> String {
        self.process.kill().unwrap();
        self.stderr.read_to_string(&mut self.said).unwrap();
        std::mem::take(&mut self.said)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends this text and reads all that comes.
    pub(crate) fn send(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A request that is refused need not be read to its end.
        drop(stream.write_all(request));
        let mut text = Vec::new();
        drop(stream.read_to_end(&mut text));
        Answer::of(&String::from_utf8_lossy(&text))
    }

    /// Asks for a path.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
    }

    /// Asks for connections with these parameters.
    pub(crate) fn ask(&self, parameters: &[(&str, &str)]) -> Answer {
        let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
        self.get(&format!("/api/v1/connections?{}", pairs.collect::<Vec<_>>().join("&")))
    }

    /// The bytes of memory that the process has.
    pub(crate) fn memory_size(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A text as a part of an address.
pub(crate) fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// The body of an answer that was given.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }
}
