//! Programs that run on hosts: ended when dropped, and never waited for without a limit.

use crate::lab::{Host, traffic};
use crate::support::command::{Ended, TIME_MAX};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The time between two looks for something that is awaited.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Waits for what `look` finds, for [`TIME_MAX`] at most.
///
/// # Panics
///
/// It finds nothing in that time; the message is that of `why`.
pub(crate) fn until<T>(why: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIME_MAX;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {}", why());
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A program that runs, what it prints going to a file.
pub(crate) struct Process {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts a program that prints to these files' namesakes `.out` and `.err`.
    pub(crate) fn start(mut command: Command, log: &std::path::Path) -> Self {
        let (stdout, stderr) = (log.with_extension("out"), log.with_extension("err"));
        command.stdin(Stdio::null()).stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        Process { child: command.spawn().unwrap(), stdout, stderr }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap()).into_owned()
    }

    pub(crate) fn printed(&self) -> Vec<u8> {
        fs::read(&self.stdout).unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(&mut self, name: &str) {
        if self.is_running() {
            let status = Command::new("kill").args([name, &self.pid().to_string()]).status().unwrap();
            assert!(status.success());
        }
    }

    /// Its end, which must come in time and may not be a panic.
    pub(crate) fn wait(mut self) -> Ended {
        let Process { child, stderr, .. } = &mut self;
        let why = || format!("it hangs: {}", fs::read_to_string(&stderr).unwrap_or_default());
        let status = until(why, || child.try_wait().unwrap());
        let ended = Ended { status, stdout: self.printed(), stderr: self.said() };
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One side of many connections: `tests/live/crowd`, which takes commands.
pub(crate) struct Crowd {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Crowd {
    pub(crate) fn start(host: &Host) -> Self {
        let mut command = host.command(traffic("tests/live/crowd"), [""; 0]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Crowd { child, commands, answers }
    }

    /// Listens on these ports.
    pub(crate) fn serve(host: &Host, ports: &[u16]) -> Self {
        let mut crowd = Crowd::start(host);
        ports.iter().for_each(|port| crowd.ask(&format!("listen {port}")));
        crowd
    }

    /// Sends a command, and waits until it is done.
    pub(crate) fn ask(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n", "crowd: {command}");
    }

    /// Ends it without a warning, as `kill -9` does.
    pub(crate) fn kill(self) {}
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
