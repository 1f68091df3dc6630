//! What is watched, and the screen over it: started together, and ended together.

use super::Arguments;
use super::asking::{Asking, Link, News};
use super::keys::{self, Effect};
use super::screen::{self, Paint};
use super::state::{Selected, State};
use super::terminal::{self, FullScreen};
use crate::capture::{Condition, Paced, Replay};
use crate::cli::capture::input_of;
use crate::cli::interrupts::Interrupts;
use crate::cli::report::{self, Voice};
use crate::cli::{Failure, Outcome, Status, values};
use crate::engine::{Config, Plan, Summary};
use crate::error::{Error, Result};
use crate::list::List;
use crate::metrics::{Metrics, Setup};
use crate::run::{LiveObserver, Observer, SystemView};
use crate::view::{Board, ControlServer, Feed, ViewClient};
use crossbeam::channel::{Receiver, Sender, unbounded};
use flowpeel_iblt::hash::Secret;
use parking_lot::Mutex;
use ratatui::crossterm::event::{self, Event};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

/// The warning of a run that does not stop at once.
const PATIENCE: &str = "stopping; Ctrl-C ends it now";

/// How long the screen and the reader of keys wait before they look whether they are to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Watches what the arguments name.
pub(in crate::cli) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    terminal::check().map_err(Failure::wrong_usage)?;
    match (&arguments.attach, arguments.interfaces.is_empty()) {
        (Some(path), _) => attach(arguments, path.clone()),
        (None, true) => play(arguments, voice),
        (None, false) => capture(arguments, voice),
    }
}

impl Arguments {
    fn config(&self, default: Config, secret: fn() -> Result<Secret>) -> Result<Config> {
        let config = self.tracking.config(default, Some(self.every), true, secret)?;
        Ok(Config { has_view: true, ..config })
    }

    fn state(&self, title: &[String]) -> State {
        let names: Vec<_> = title.iter().map(|name| name.escape_debug().to_string()).collect();
        let selected = Selected {
            filter: self.filter.as_ref().map_or(String::new(), |filter| filter.text().to_owned()),
            sort: self.sort,
            group_by: self.group_by,
            ..Selected::default()
        };
        State { title: names.join(", "), selected, ..State::default() }
    }
}

/// Attaches to a live that runs already.
fn attach(arguments: &Arguments, path: PathBuf) -> Outcome {
    let client = ViewClient::attach(&path)?;
    let interrupts = Interrupts::catch(PATIENCE)?;
    interrupts.set_bar(true);
    let state = arguments.state(&[path.display().to_string()]);
    watch(state, Link::Attached(path, client), &interrupts, &Running::default(), || false)?;
    interrupts.finish();
    Ok(Status::Done)
}

/// Captures interfaces.
fn capture(arguments: &Arguments, voice: Voice) -> Outcome {
    let prepare = || {
        let sources = arguments.capture.sources(&arguments.interfaces, arguments.tracking.vlan_key)?;
        let config = arguments.config(Config::live_defaults(), values::random_secret)?;
        let config = Config { answer_opens: arguments.capture.shows_flags_alone(), ..config };
        Ok((Plan::live(&config, input_of(&sources))?, sources))
    };
    let (plan, sources) = prepare().map_err(Failure::wrong_usage)?;
    plan.check_addresses()?;
    let opened = arguments.capture.open(&sources)?;
    let names = sources.iter().flat_map(|source| std::iter::repeat_n(source.interface.clone(), source.fanout_count));
    let metrics =
        Metrics::new(Setup { interfaces: names.collect(), interval: plan.config().every, ..Setup::default() });
    let engine = |feed: Feed, running: &Running| {
        let system = SystemView::default();
        crate::run::live(&plan, opened, &mut exporter(feed), &metrics, running, None, system)
    };
    over_engine(arguments, voice, &plan, &arguments.interfaces, engine)
}

/// Plays captures.
fn play(arguments: &Arguments, voice: Voice) -> Outcome {
    let prepare = || Plan::new(&arguments.config(Config::default(), || Ok(Secret::REPLAY))?);
    let plan = prepare().map_err(Failure::wrong_usage)?;
    plan.check_addresses()?;
    // The first is opened before there is a screen over the reason why it cannot be.
    let mut files = arguments.files.iter();
    let first = files.next().map(|path| Replay::open(path)).transpose()?;
    let engine = |feed: Feed, running: &Running| {
        let paced = |source| Paced::new(source, arguments.speed, Arc::clone(&running.should_stop));
        let inputs = first.into_iter().map(Ok).chain(files.map(|path| Replay::open(path)));
        crate::run::run(&plan, inputs.map(|input| input.map(paced)), &mut exporter(feed), &mut &*running, None)
    };
    let names: Vec<_> = arguments.files.iter().map(|path| path.display().to_string()).collect();
    over_engine(arguments, voice, &plan, &names, engine)
}

/// An exporter that shows lists and writes none.
fn exporter(mut feed: Feed) -> impl FnMut(&List) -> Result<()> {
    move |list: &List| {
        feed.list(list);
        Ok(())
    }
}

/// The screen over an engine of this process.
fn over_engine(
    arguments: &Arguments,
    voice: Voice,
    plan: &Plan,
    names: &[String],
    engine: impl FnOnce(Feed, &Running) -> Result<Summary> + Send,
) -> Outcome {
    if voice > Voice::Quiet {
        report::memory(plan);
    }
    let (board, feed) = Board::new();
    let (_server, stream) = ControlServer::pair(board)?;
    let interrupts = Interrupts::catch(PATIENCE)?;
    interrupts.set_bar(true);
    let running = Running::default();
    let state = arguments.state(names);
    let is_capture = !arguments.interfaces.is_empty();
    let (watched, summary) = std::thread::scope(|scope| {
        let started = Builder::new().name("engine".to_owned()).spawn_scoped(scope, || engine(feed, &running));
        let thread = started.map_err(|error| Error::new("cannot start a thread").because(error))?;
        // A capture ends by itself only where it fails, and a capture file that was read stays on the screen.
        let has_failed = || is_capture && thread.is_finished();
        let watched = watch(state, Link::Own(stream), &interrupts, &running, has_failed);
        running.should_stop.store(true, Ordering::Relaxed);
        Result::Ok((watched, join(thread)))
    })?;
    interrupts.finish();
    watched?;
    let summary = summary?;
    summary.errors.iter().for_each(|error| report::error(error, ""));
    if voice > Voice::Quiet && summary.lists > 0 {
        report::summary(&summary, voice);
    }
    Ok(if summary.errors.is_empty() { Status::Done } else { Status::Failed })
}

fn join<T>(thread: ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What the screen and an engine under it know of each other.
#[derive(Default)]
struct Running {
    should_stop: Arc<AtomicBool>,
    /// What there is to say of the source. It is held only to be copied.
    note: Mutex<Option<String>>,
}

impl LiveObserver for Running {
    fn changed(&self, _index: usize, condition: Condition) {
        *self.note.lock() = match condition {
            Condition::Up => None,
            Condition::Down => Some("an interface is down: waiting for it".to_owned()),
            Condition::Gone => Some("an interface is gone: waiting for one of that name".to_owned()),
        };
    }

    fn is_stopped(&self) -> bool {
        self.should_stop.load(Ordering::Relaxed)
    }
}

impl Observer for &Running {
    fn failed(&mut self, error: &Error, _packets: u64) {
        *self.note.lock() = Some(error.to_string());
    }

    fn is_stopped(&self) -> bool {
        self.should_stop.load(Ordering::Relaxed)
    }
}

/// Draws until somebody ends it, by a key or a signal, or `has_failed` says that nothing more comes.
///
/// # Errors
///
/// The terminal cannot be drawn on, or a thread not started.
fn watch(
    mut state: State,
    link: Link,
    interrupts: &Interrupts,
    running: &Running,
    has_failed: impl Fn() -> bool,
) -> Result<()> {
    let paint = Paint { is_coloured: report::is_stdout_coloured() };
    let (sender, news) = unbounded();
    let should_stop = Arc::new(AtomicBool::new(false));
    let mut screen = FullScreen::take()?;
    let keys = read_keys(sender.clone(), Arc::clone(&should_stop))?;
    let asking = Asking::start(link, sender)?;
    let mut asked = None;
    let shown = loop {
        // Drawn first: that is how it is known how many lines there are to ask for.
        let drawn = screen.terminal.draw(|frame| screen::draw(frame, &mut state, paint));
        if let Err(error) = drawn {
            break Err(Error::new("cannot draw on this terminal").because(error));
        }
        let wanted = Some(state.request()).filter(|_| !state.is_frozen);
        if asked.as_ref() != Some(&wanted) {
            asking.want(wanted.clone());
            asked = Some(wanted);
        }
        match wait(&mut state, &news, running, || interrupts.is_interrupted() || has_failed()) {
            Ok(Effect::Continue) => {}
            Ok(Effect::Quit) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    should_stop.store(true, Ordering::Relaxed);
    drop(screen);
    // Keys that are pressed from now on are for the shell.
    drop(keys.join());
    shown
}

/// Waits for news, and takes all that there are.
fn wait(state: &mut State, news: &Receiver<News>, running: &Running, is_over: impl Fn() -> bool) -> Result<Effect> {
    let mut first = None;
    while first.is_none() {
        if is_over() {
            return Ok(Effect::Quit);
        }
        let note = running.note.lock().clone();
        if state.note != note {
            state.note = note;
            return Ok(Effect::Continue);
        }
        first = news.recv_timeout(LOOK_INTERVAL).ok();
    }
    for news in first.into_iter().chain(news.try_iter()) {
        match news {
            News::Answer(answer) => {
                let (request, answer) = *answer;
                state.take(&request, answer);
            }
            News::Lost(error) => state.lost = Some(error.to_string()),
            News::Key(key) => {
                if keys::press(state, key) == Effect::Quit {
                    return Ok(Effect::Quit);
                }
            }
            News::Resized => {}
            News::NoKeys(error) => return Err(Error::new("cannot read keys").because(error)),
        }
    }
    Ok(Effect::Continue)
}

/// Reads keys on a thread of their own until it is to stop.
fn read_keys(news: Sender<News>, should_stop: Arc<AtomicBool>) -> Result<std::thread::JoinHandle<()>> {
    let next = move || -> std::io::Result<Option<News>> {
        if !event::poll(LOOK_INTERVAL)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) => Some(News::Key(key)),
            Event::Resize(..) => Some(News::Resized),
            _ => None,
        })
    };
    let read = move || {
        while !should_stop.load(Ordering::Relaxed) {
            let read = next().unwrap_or_else(|error| Some(News::NoKeys(error)));
            let is_end = matches!(read, Some(News::NoKeys(_)));
            if read.is_some_and(|read| news.send(read).is_err()) || is_end {
                return;
            }
        }
    };
    let started = Builder::new().name("keys".to_owned()).spawn(read);
    started.map_err(|error| Error::new("cannot start a thread").because(error))
}
