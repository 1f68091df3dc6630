//! The thread that asks for what the screen shows, so that keys never wait for an answer.

use crate::error::{Error, Result};
use crate::view::ViewClient;
use crate::view::protocol::{Answer, Request};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use ratatui::crossterm::event::KeyEvent;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often news are asked for: a list that comes every second is on the screen soon enough.
const ASK_INTERVAL: Duration = Duration::from_millis(250);

/// How long after it was lost another try is made to reach who is attached to.
const ATTACH_RETRY: Duration = Duration::from_secs(1);

/// What the screen learns.
pub(super) enum News {
    /// An answer to this request.
    Answer(Box<(Request, Answer)>),
    /// Nobody answers, for this reason.
    Lost(Error),
    /// A key was pressed.
    Key(KeyEvent),
    /// The screen has another size.
    Resized,
    /// No more keys can come.
    NoKeys(std::io::Error),
}

/// Who answers.
pub(super) enum Link {
    /// The server of this process.
    Own(UnixStream),
    /// The socket of another, which was reached, and may be gone and come back.
    Attached(PathBuf, ViewClient),
}

/// The running thread. It ends when this is dropped.
pub(super) struct Asking {
    wanted: Sender<Option<Request>>,
}

impl Asking {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// There is no thread for it.
    pub(super) fn start(link: Link, news: Sender<News>) -> Result<Self> {
        let (wanted, wishes) = unbounded();
        let (path, client) = match link {
            Link::Own(stream) => (None, ViewClient::of(stream)?),
            Link::Attached(path, client) => (Some(path), client),
        };
        let thread = Thread { path, client: Some(client), retry_at: Instant::now(), answered: None, wishes, news };
        let started = Builder::new().name("asking".to_owned()).spawn(move || thread.run());
        started.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(Asking { wanted })
    }

    /// Asks for this from now on, or for nothing.
    pub(super) fn want(&self, request: Option<Request>) {
        // It has ended only if the process does.
        drop(self.wanted.send(request));
    }
}

struct Thread {
    path: Option<PathBuf>,
    client: Option<ViewClient>,
    retry_at: Instant,
    /// The last request that was answered, with what its answer made known.
    answered: Option<Request>,
    wishes: Receiver<Option<Request>>,
    news: Sender<News>,
}

impl Thread {
    fn run(mut self) {
        let mut wanted = None;
        loop {
            match self.wishes.recv_timeout(ASK_INTERVAL) {
                Ok(wish) => wanted = self.wishes.try_iter().last().unwrap_or(wish),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(news) = wanted.as_ref().and_then(|wanted| self.ask(wanted)) else { continue };
            if self.news.send(news).is_err() {
                return;
            }
        }
    }

    /// Asks for this, if there is somebody to ask.
    fn ask(&mut self, wanted: &Request) -> Option<News> {
        if self.client.is_none() && self.retry_at <= Instant::now() {
            self.retry_at = Instant::now() + ATTACH_RETRY;
            let attached = ViewClient::attach(self.path.as_ref()?);
            match attached {
                Ok(client) => (self.client, self.answered) = (Some(client), None),
                Err(error) => return Some(News::Lost(error)),
            }
        }
        let client = self.client.as_mut()?;
        let mut request = wanted.clone();
        if let Some(answered) = &self.answered {
            request.known_list = answered.known_list;
            let is_same = Request { known_rows: 0, ..answered.clone() } == request;
            request.known_rows = if is_same { answered.known_rows } else { 0 };
        }
        match client.ask(&request) {
            Ok(answer) => {
                let known_list = answer.samples.last().map_or(request.known_list, |sample| sample.list);
                self.answered = Some(Request { known_list, known_rows: answer.rows_of, ..request.clone() });
                Some(News::Answer(Box::new((request, answer))))
            }
            Err(error) => {
                self.client = None;
                self.retry_at = Instant::now() + ATTACH_RETRY;
                Some(News::Lost(error))
            }
        }
    }
}
