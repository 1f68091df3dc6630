//! Programs run under a time limit, above all the built command, and its lists read back.

use super::say::skipped;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that runs longer hangs.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(60);

/// Whether this program is installed; if not, says that the test or its part is skipped.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !found {
        skipped(&format!("{program} is not installed"));
    }
    found
}

pub(crate) const FLOWPEEL: &str = env!("CARGO_BIN_EXE_flowpeel");

/// The program with its arguments, without standard input.
pub(crate) fn command<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end, without standard input.
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())).wait()
}

/// `flowpeel` with these arguments, run to its end.
pub(crate) fn flowpeel<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    Running::start(&mut command(FLOWPEEL, arguments)).wait()
}

/// `flowpeel replay` with these arguments, run to its end.
pub(crate) fn replay<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    let mut command = command(FLOWPEEL, ["replay"]);
    command.args(arguments);
    Running::start(&mut command).wait()
}

/// A program that runs, its output being read.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

fn gather(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes).unwrap();
        }
        bytes
    })
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Running::of(command.spawn().unwrap())
    }

    /// Takes over a child that was started already; what was taken of its output is left to the caller.
    pub(crate) fn of(mut child: Child) -> Self {
        let (stdout, stderr) = (gather(child.stdout.take()), gather(child.stderr.take()));
        Running { child, stdout, stderr }
    }

    /// Waits for the end, which must come in time and may not be a panic.
    pub(crate) fn wait(mut self) -> Ended {
        let deadline = Instant::now() + TIME_MAX;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("it hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let ended = Ended {
            status,
            stdout: self.stdout.join().unwrap(),
            stderr: String::from_utf8(self.stderr.join().unwrap()).unwrap(),
        };
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        assert_ne!(ended.status.code(), Some(101), "a panic that could not be printed");
        ended
    }
}

/// The result of a program.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    /// The error lines.
    pub(crate) fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("error: ")).collect()
    }

    /// Asserts that it failed with one error line, which holds all of these parts, and printed no control character.
    pub(crate) fn assert_failed(&self, parts: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{}", self.stderr);
        let errors = self.errors();
        assert_eq!(errors.len(), 1, "{}", self.stderr);
        for part in parts {
            assert!(errors[0].contains(part), "{part:?} is not in {:?}", errors[0]);
        }
        assert!(self.stderr.lines().all(|line| !line.contains(|c: char| c.is_control())), "{}", self.stderr);
    }

    /// Asserts that nothing was read: it printed no list, and nothing but the error.
    pub(crate) fn assert_nothing(&self) {
        assert!(self.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&self.stdout));
        self.assert_one_line();
    }

    /// Asserts that it printed one line, after the announcement of its memory if there is one.
    pub(crate) fn assert_one_line(&self) {
        let said = self.stderr.lines().filter(|line| !line.starts_with("room for "));
        assert_eq!(said.count(), 1, "{}", self.stderr);
    }

    /// The lists on standard output.
    pub(crate) fn lists(&self) -> Vec<List> {
        lists(&self.stdout)
    }
}

/// What was printed, which has to be text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A list as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List {
    pub(crate) header: Value,
    pub(crate) flows: Vec<Value>,
}

impl List {
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.header["flow_list"][name].as_u64().unwrap()
    }
}

/// Lists read back.
///
/// # Panics
///
/// A line is not whole, or a list does not hold as many connections as its header says.
pub(crate) fn lists(bytes: &[u8]) -> Vec<List> {
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "the last line is not whole");
    let mut lists: Vec<List> = Vec::new();
    for line in std::str::from_utf8(bytes).unwrap().lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        match value["event_type"].as_str() {
            Some("flow_list") => lists.push(List { header: value, flows: Vec::new() }),
            Some("flow") => lists.last_mut().unwrap().flows.push(value),
            other => panic!("what is {other:?}?"),
        }
    }
    for list in &lists {
        let said = list.count("flows") + list.count("half_open");
        assert_eq!(list.flows.len() as u64, said, "{}", list.header);
    }
    lists
}
