//! The progress of a replay on a terminal: a bar, errors as they come, and Ctrl-C.

use crate::capture::{Progress, SkippedPackets};
use crate::cli::interrupts::Interrupts;
use crate::cli::report::{self, Voice, grouped};
use crate::error::{Error, Result};
use crate::run::Observer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the progress bar is drawn at most: nobody reads faster.
const DRAWS_PER_S: u8 = 10;

/// The warning of a run that waits for its input.
const PATIENCE: &str = "stopping when more input comes; Ctrl-C ends it now, without the last list";

/// The observer of a replay.
pub(super) struct Watch {
    voice: Voice,
    extent: Extent,
    present_input: Rc<Cell<usize>>,
    /// The progress bar, from the first report on: a run that ends before draws nothing.
    bar: Option<ProgressBar>,
    interrupts: Interrupts,
    /// Set when the run is stopped before the end of its input.
    is_stopped: Arc<AtomicBool>,
}

impl Watch {
    /// An observer of inputs that are read in this order. It shows a bar when standard error is a terminal, unless it
    /// is to be quiet.
    ///
    /// # Errors
    ///
    /// Ctrl-C cannot be caught.
    pub(super) fn new(voice: Voice, inputs: &[PathBuf], is_stopped: Arc<AtomicBool>) -> Result<Self> {
        Ok(Watch {
            voice,
            extent: Extent::new(inputs.iter().map(|path| stored_size(path))),
            present_input: Rc::default(),
            bar: None,
            interrupts: Interrupts::catch(PATIENCE)?,
            is_stopped,
        })
    }

    /// The cell that holds the index of the input that is being read.
    pub(super) fn present_input(&self) -> Rc<Cell<usize>> {
        Rc::clone(&self.present_input)
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupts.is_interrupted()
    }

    /// Takes the bar off the terminal.
    pub(super) fn finish(&self) {
        self.interrupts.finish();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints with `say` above the bar, if there is one.
    fn say(&self, say: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    fn bar(&mut self) -> &ProgressBar {
        self.bar.get_or_insert_with(|| {
            let target = if self.voice.draws() {
                ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S)
            } else {
                ProgressDrawTarget::hidden()
            };
            let bar = ProgressBar::with_draw_target(self.extent.total_size, target);
            bar.set_style(style(self.extent.total_size.is_some()));
            self.interrupts.set_bar(!bar.is_hidden());
            bar
        })
    }
}

/// The stored size of an input in bytes: 0 where there is no file, `None` where it is a pipe.
fn stored_size(path: &Path) -> Option<u64> {
    if path == Path::new("-") {
        return None;
    }
    std::fs::metadata(path).map_or(Some(0), |metadata| metadata.is_file().then_some(metadata.len()))
}

/// The sizes of the inputs, together and one by one.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    /// Where each input begins among the bytes of all; inputs of unknown size count as empty.
    starts: Vec<u64>,
    /// The size of all inputs together; `None` when the size of any is unknown.
    total_size: Option<u64>,
}

impl Extent {
    fn new(sizes: impl Iterator<Item = Option<u64>>) -> Self {
        let mut extent = Extent { starts: Vec::new(), total_size: Some(0) };
        let mut end = 0_u64;
        for size in sizes {
            extent.starts.push(end);
            end = end.saturating_add(size.unwrap_or(0));
            extent.total_size = size.and(extent.total_size).map(|_| end);
        }
        extent
    }

    /// The position among the bytes of all inputs.
    fn position(&self, input: usize, read_size: u64) -> u64 {
        let position = self.starts.get(input).copied().unwrap_or(0).saturating_add(read_size);
        // A file may have grown since its size was read.
        position.min(self.total_size.unwrap_or(u64::MAX))
    }
}

fn style(is_sized: bool) -> ProgressStyle {
    let template = if is_sized {
        "{bar:16} {percent:>3} %  {bytes:>10} {binary_bytes_per_sec:>12}  {msg} packets {eta:>4}"
    } else {
        "{bytes:>10}  {binary_bytes_per_sec:>12}  {msg} packets"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Observer for Watch {
    fn progress(&mut self, progress: Progress, packets: u64) {
        let position = self.extent.position(self.present_input.get(), progress.read_size);
        let bar = self.bar();
        if !bar.is_hidden() {
            bar.set_message(grouped(packets));
            bar.set_position(position);
        }
    }

    fn failed(&mut self, error: &Error, packets: u64) {
        let aftermath = match packets {
            0 => "; nothing of it is listed".to_owned(),
            1 => "; the packet before it is listed".to_owned(),
            packets => format!("; the {} packets before it are listed", grouped(packets)),
        };
        self.say(|| report::error(error, &aftermath));
    }

    fn skipped(&mut self, packets: &SkippedPackets) {
        if self.voice > Voice::Quiet {
            let text = format!("{} packets of link type {packets} cannot be read", grouped(packets.total_count()));
            self.say(|| report::warning(&text));
        }
    }

    fn is_stopped(&self) -> bool {
        let is_stopped = self.is_interrupted();
        if is_stopped {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_run_on_over_all_inputs() {
        let extent = Extent::new([Some(100), Some(0), Some(100)].into_iter());
        assert_eq!(extent, Extent { starts: vec![0, 100, 100], total_size: Some(200) });
        assert_eq!([extent.position(0, 40), extent.position(2, 40), extent.position(2, 900)], [40, 140, 200]);
    }

    #[test]
    fn with_a_pipe_among_them_there_is_no_total() {
        let extent = Extent::new([Some(100), None, Some(50)].into_iter());
        assert_eq!(extent.total_size, None);
        assert_eq!(extent.position(2, 7), 107);
        assert_eq!(stored_size(Path::new("-")), None);
        assert_eq!(stored_size(Path::new("/nonexistent/file")), Some(0));
    }
}
