//! The terminal while a screen is drawn on it: taken over, and given back however the process ends.

use crate::error::{Error, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{BufWriter, IsTerminal, Stdout, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is taken over.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Makes that a panic gives the terminal back before it prints.
static PANICS: Once = Once::new();

/// The terminal, taken over until this is dropped.
pub(super) struct FullScreen {
    pub(super) terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl FullScreen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// Standard output is no terminal, or one that cannot do this.
    pub(super) fn take() -> Result<Self> {
        let cannot = |cause: std::io::Error| Error::new("cannot draw on this terminal").because(cause);
        PANICS.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                print(panic);
            }));
        });
        enable_raw_mode().map_err(cannot)?;
        IS_TAKEN.store(true, Ordering::Release);
        // Not by the clearing of `Terminal`, which asks the terminal where its cursor is, and fails where that is slow.
        let screen = execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))
            .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(stdout()))));
        match screen {
            Ok(terminal) => Ok(FullScreen { terminal }),
            Err(cause) => {
                leave();
                Err(cannot(cause))
            }
        }
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back if it is taken over.
pub(in crate::cli) fn leave() {
    if IS_TAKEN.swap(false, Ordering::AcqRel) {
        // Where this fails the terminal is gone.
        drop(execute!(stdout(), LeaveAlternateScreen, Show));
        drop(disable_raw_mode());
    }
}

/// Checks that there is a terminal to draw on.
///
/// # Errors
///
/// Standard output is none.
pub(super) fn check() -> Result<()> {
    if stdout().is_terminal() {
        return Ok(());
    }
    Err(Error::new(
        "standard output is no terminal, and flowpeel top draws on one: flowpeel live and flowpeel replay write lists",
    ))
}
