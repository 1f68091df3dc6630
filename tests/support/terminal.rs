//! Programs on a terminal of their own: keys in, what they draw out.

use crate::support::command::TIME_MAX;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What takes over the terminal, and what gives it back.
pub(crate) const ENTERED: &str = "\u{1b}[?1049h";
pub(crate) const LEFT: &str = "\u{1b}[?1049l";

/// The size of the terminals.
const COLUMNS: usize = 80;
const LINES: usize = 24;

/// The program that runs another on a terminal of 80 columns and 24 lines; the other and its arguments follow.
pub(crate) fn on_terminal() -> [String; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/on_terminal");
    [path.display().to_string(), COLUMNS.to_string(), LINES.to_string()]
}

/// A program on a terminal; it is ended when this is dropped.
pub(crate) struct OnTerminal {
    child: Child,
    keys: Option<ChildStdin>,
    /// The number of the process of the program itself.
    pub(crate) pid: u32,
    sent: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    /// Starts a command line that begins, perhaps behind other programs, with [`on_terminal`].
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut number = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut number).unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (mut stdout, gathered) = (child.stdout.take().unwrap(), Arc::clone(&sent));
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut chunk) {
                gathered.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        let keys = child.stdin.take();
        OnTerminal { pid: number.trim().parse().unwrap(), child, keys, sent, reader: Some(reader) }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.pid.to_string()]).status().unwrap().success());
    }

    /// What the terminal was sent, as it was sent.
    pub(crate) fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }

    /// What stands on the screen, a line for each of its lines.
    pub(crate) fn text(&self) -> String {
        let sent = self.sent();
        let mut grid = [[' '; COLUMNS]; LINES];
        let (mut line, mut column) = (0, 0);
        let mut rest = sent.as_str();
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            let Some(sequence) = rest.strip_prefix('[').filter(|_| c == '\u{1b}') else {
                match c {
                    '\r' => column = 0,
                    '\n' => line += 1,
                    c if line < LINES && column < COLUMNS => {
                        grid[line][column] = c;
                        column += 1;
                    }
                    _ => {}
                }
                continue;
            };
            let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { break };
            match &sequence[end..=end] {
                "H" => {
                    let mut places = sequence[..end].split(';').map(|place| place.parse().unwrap_or(1));
                    let mut next = || places.next().unwrap_or(1).max(1) - 1;
                    (line, column) = (next(), next());
                }
                "J" => grid = [[' '; COLUMNS]; LINES],
                // Colours, and what takes the terminal over and gives it back.
                _ => {}
            }
            rest = &sequence[end + 1..];
        }
        let lines: Vec<String> =
            grid.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// Waits until this stands on the screen.
    ///
    /// # Panics
    ///
    /// It was not in [`TIME_MAX`].
    pub(crate) fn until(&self, what: &str) {
        let deadline = Instant::now() + TIME_MAX;
        while !self.text().contains(what) {
            assert!(Instant::now() < deadline, "{what:?} is not shown:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end of the program. Returns its status and all that the terminal was sent.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + TIME_MAX;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        self.reader.take().unwrap().join().unwrap();
        (status, self.sent())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Without its terminal the program ends too.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
