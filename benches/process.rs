//! The cost of a whole process, as the kernel counts it.
//!
//! The cost of a command is the CPU time of its process, its peak of memory and its wall time. A benchmark measures
//! by a process in between that starts only that command, because the kernel's figures for ended children are sums over
//! all of them.

use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tempfile::NamedTempFile;

/// The resources that a process and its children took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The CPU time in user mode, in seconds.
    pub(crate) user_s: f64,
    /// The CPU time in the kernel, in seconds.
    pub(crate) system_s: f64,
    /// The wall time, in seconds.
    pub(crate) wall_s: f64,
    /// The most memory that was resident at once, in bytes.
    pub(crate) peak_size: u64,
}

impl Usage {
    /// The CPU time, in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// The peak of memory, in MiB.
    pub(crate) fn peak_mib(&self) -> f64 {
        self.peak_size as f64 / f64::from(1 << 20)
    }
}

/// Runs a command, and reports what it took.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Where to write that, as JSON
    usage: PathBuf,

    /// Let it have this many cores
    #[arg(long, value_name = "N")]
    cores: Option<usize>,

    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Restricts this process, and what it starts, to the first `core_count` of its cores.
fn keep_to(core_count: usize) -> Result<(), String> {
    let cannot = |error| format!("cannot choose cores: {error}");
    let all = sched_getaffinity(None).map_err(cannot)?;
    let mut some = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).take(core_count).for_each(|core| some.set(core));
    if (some.count() as usize) < core_count {
        return Err(format!("there are no {core_count} cores"));
    }
    sched_setaffinity(None, &some).map_err(cannot)
}

/// Runs the command that the arguments name.
pub(crate) fn measure(arguments: &Arguments) -> Result<ExitCode, String> {
    if let Some(core_count) = arguments.cores {
        keep_to(core_count)?;
    }
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err("there is no command".to_owned());
    };
    let began = Instant::now();
    let status = Command::new(program).args(rest).status();
    let wall_s = began.elapsed().as_secs_f64();
    let status = status.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| format!("no usage is known: {error}"))?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let usage = Usage {
        user_s: seconds(usage.user_time()),
        system_s: seconds(usage.system_time()),
        wall_s,
        // Linux counts in KiB.
        peak_size: u64::try_from(usage.max_rss()).unwrap_or_default() << 10,
    };
    let text = serde_json::to_string(&usage).map_err(|error| error.to_string())?;
    let path = &arguments.usage;
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    // A process that was killed has no code.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// A command to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    command: Vec<OsString>,
    core_count: Option<usize>,
}

/// The outcome of a task.
pub(crate) struct Outcome {
    pub(crate) usage: Usage,
    /// The text on standard error.
    pub(crate) said: String,
}

impl Task {
    /// A task of flowpeel, with these arguments.
    pub(crate) fn flowpeel(arguments: &[&str]) -> Self {
        Task::of(env!("CARGO_BIN_EXE_flowpeel").into(), arguments)
    }

    /// A task of the rival that these arguments name.
    ///
    /// # Errors
    ///
    /// The path of this program, which is also the rivals, is unknown.
    pub(crate) fn rival(arguments: &[&str]) -> Result<Self, String> {
        Ok(Task::of(this_program()?.into(), &[&["rival"], arguments].concat()))
    }

    fn of(program: OsString, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(OsString::from);
        Task { command: std::iter::once(program).chain(arguments).collect(), core_count: None }
    }

    /// This task on `core_count` cores.
    pub(crate) fn on_cores(mut self, core_count: usize) -> Self {
        self.core_count = Some(core_count);
        self
    }

    /// Runs the task, and discards its standard output.
    ///
    /// # Errors
    ///
    /// The task cannot be run, or failed.
    pub(crate) fn run(&self) -> Result<Outcome, String> {
        self.run_with(Stdio::null(), |_| ())
    }

    /// Runs the task, and passes every line of its output to `visit`: for checks, not for measuring.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub(crate) fn each_line(&self, visit: impl FnMut(&str)) -> Result<Outcome, String> {
        self.run_with(Stdio::piped(), visit)
    }

    /// Runs the task, and counts the lines that it writes.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub(crate) fn count_lines(&self) -> Result<u64, String> {
        let mut count = 0;
        self.each_line(|_| count += 1)?;
        Ok(count)
    }

    fn run_with(&self, stdout: Stdio, mut visit: impl FnMut(&str)) -> Result<Outcome, String> {
        let failed = |error: std::io::Error| format!("cannot measure {:?}: {error}", self.command);
        let (usage, said) = (NamedTempFile::new().map_err(failed)?, NamedTempFile::new().map_err(failed)?);
        let mut command = Command::new(this_program()?);
        command.arg("measure").arg(usage.path());
        if let Some(count) = self.core_count {
            command.arg("--cores").arg(count.to_string());
        }
        command.arg("--").args(&self.command).stdin(Stdio::null()).stdout(stdout);
        let mut child = command.stderr(said.reopen().map_err(failed)?).spawn().map_err(failed)?;
        if let Some(wrote) = child.stdout.take() {
            BufReader::new(wrote).lines().try_for_each(|line| line.map(|line| visit(&line))).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        let said = std::fs::read_to_string(said.path()).map_err(failed)?;
        if !status.success() {
            return Err(format!("{:?} failed: {said}", self.command));
        }
        let text = std::fs::read_to_string(usage.path()).map_err(failed)?;
        let usage = serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))?;
        Ok(Outcome { usage, said })
    }
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("this program cannot find itself: {error}"))
}
