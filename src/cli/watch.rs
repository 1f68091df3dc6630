//! A run as it is watched from a terminal: a progress bar, errors as they come, and Ctrl-C.

use crate::capture::Progress;
use crate::cli::report::{self, Voice, grouped};
use crate::error::{Error, Result};
use crate::pipeline::Observer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Drawn so often at most: more is not read.
const DRAWS_PER_S: u8 = 10;

/// Watches a replay.
pub(super) struct Watch {
    bar: ProgressBar,
    /// Input read in the inputs before the present one, and its size.
    read_before: u64,
    last: Progress,
    packets: u64,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// A watch that shows a bar when standard error is a terminal, unless it is to be quiet.
    ///
    /// # Errors
    ///
    /// Ctrl-C can not be caught.
    pub(super) fn new(voice: Voice) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            if seen.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })
        .map_err(|error| Error::new("can not catch Ctrl-C").because(error))?;
        let target = match voice {
            Voice::Quiet => ProgressDrawTarget::hidden(),
            _ => ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        Ok(Watch { bar, read_before: 0, last: Progress::default(), packets: 0, stop })
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes the bar off the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(is_sized: bool) -> ProgressStyle {
    let template = if is_sized {
        "{bar:24} {percent:>3} %  {bytes}  {binary_bytes_per_sec}  {msg} packets  {eta} left"
    } else {
        "{spinner} {bytes}  {binary_bytes_per_sec}  {msg} packets"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Observer for Watch {
    fn progress(&mut self, progress: Progress, packets: u64) {
        // A reading that goes back is another input's.
        if progress.read_size < self.last.read_size || progress.input_size != self.last.input_size {
            self.read_before += self.last.read_size;
            self.bar.set_style(style(progress.input_size.is_some()));
        }
        match progress.input_size {
            Some(size) => self.bar.set_length(self.read_before + size),
            None => self.bar.unset_length(),
        }
        self.last = progress;
        self.packets = packets;
        self.bar.set_position(self.read_before + progress.read_size);
        if !self.bar.is_hidden() {
            self.bar.set_message(grouped(packets));
        }
    }

    fn failed(&mut self, error: &Error, packets: u64) {
        let aftermath = match packets {
            0 => "; nothing is listed of it".to_owned(),
            1 => "; the packet before it is listed".to_owned(),
            packets => format!("; the {} packets before it are listed", grouped(packets)),
        };
        self.bar.suspend(|| report::error(error, &aftermath));
    }

    fn is_stopped(&self) -> bool {
        self.is_interrupted()
    }
}
