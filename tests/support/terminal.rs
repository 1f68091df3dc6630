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

/// The program that runs another on a terminal of 80 columns and 24 lines; the other and its arguments follow.
pub(crate) fn on_terminal() -> [String; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/on_terminal");
    [path.display().to_string(), "80".to_owned(), "24".to_owned()]
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

    /// What the terminal was sent, without colours and places.
    pub(crate) fn text(&self) -> String {
        let sent = self.sent();
        let mut parts = sent.split('\u{1b}');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |end| end + 1);
            // Whatever goes to another place is apart from what came before.
            text.push_str(if part[..end].ends_with('H') { "\n" } else { "" });
            text.push_str(&part[end..]);
        }
        text
    }

    /// Waits until the terminal was sent this.
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
