//! The view of a network, made anew when lists have come, and what the headers of the lists before them say.

use super::peers::{PeerStates, Peers};
use crate::history::History;
use crate::network::{self, Network, Router};
use crate::newest::{self, Mark, Place};
use flowpeel::error::Error;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// How often directories are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How often folders of routers that are new are looked for.
const PLACES_INTERVAL: Duration = Duration::from_secs(5);

/// For how many looks lists that come together are waited for.
const GATHER_LOOKS: u32 = 2;

/// A view takes at most this part of the time: the next is not made before so many times as long has passed.
const REST_FACTOR: u32 = 2;

/// A network as it was read last.
pub(super) struct View {
    /// The number of the view, from 1; 0 before the first.
    pub(super) number: u64,
    /// The network.
    pub(super) network: Network,
    /// Where its lists are.
    pub(super) places: Vec<Place>,
    /// Those of them that are no peer's.
    pub(super) own_places: Vec<Place>,
    /// Whether the peers answer.
    pub(super) peers: PeerStates,
    /// When the routers began anew of which that was noticed, by the ends of their lists.
    restarts: BTreeMap<String, String>,
    /// How long it took to read.
    pub(super) took: Duration,
}

impl View {
    /// All routers as they are now.
    #[must_use]
    pub(super) fn routers(&self) -> Vec<Router> {
        let mut routers = self.network.routers_at(SystemTime::now());
        for router in &mut routers {
            router.restarted = self.restarts.get(&router.name).cloned();
        }
        routers
    }

    /// Whether everything known to be open is in it, with these routers as they are now.
    #[must_use]
    pub(super) fn is_complete(&self, routers: &[Router]) -> bool {
        network::is_complete(routers) && self.peers.all_answer()
    }
}

/// What a follower could not do, for who asks.
#[derive(Clone, Default)]
pub(super) struct Problem(Arc<Mutex<Option<String>>>);

impl Problem {
    /// Why directories cannot be read; what was read before is still shown.
    #[must_use]
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, problem: Option<String>) {
        *self.0.lock() = problem;
    }
}

/// Follows directories on a thread of its own until it is dropped.
pub(super) struct Follower {
    /// What it cannot do.
    pub(super) problem: Problem,
    /// The headers of the lists that have been read.
    pub(super) history: Arc<RwLock<History>>,
    should_stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Follows the lists in these directories, and those of peers. The first view is there when this returns.
///
/// # Errors
///
/// A directory cannot be read, two are of one router, or no thread can be started.
pub(super) fn follow(
    directories: Vec<PathBuf>,
    peers: &Peers,
) -> flowpeel::error::Result<(Follower, watch::Receiver<Arc<View>>)> {
    let (own, states) = (directories.len(), peers.states());
    let directories: Vec<PathBuf> = directories.into_iter().chain(peers.directories()).collect();
    let (places, own_places) = places(&directories, own)?;
    let network = Network::read(&places)?;
    let view = View {
        number: 1,
        network,
        places: places.clone(),
        own_places: own_places.clone(),
        peers: states.clone(),
        restarts: BTreeMap::new(),
        took: Duration::ZERO,
    };
    let (sender, receiver) = watch::channel(Arc::new(view));
    let should_stop = Arc::new(AtomicBool::new(false));
    let marks = vec![Mark::default(); places.len()];
    let problem = Problem::default();
    let history = Arc::default();
    let following = Following {
        directories,
        own,
        places,
        own_places,
        peers: states,
        marks,
        sender,
        number: 1,
        restarts: BTreeMap::new(),
        problem: problem.clone(),
        history: Arc::clone(&history),
        should_stop: Arc::clone(&should_stop),
    };
    let builder = std::thread::Builder::new().name("follow".to_owned());
    let thread = builder.spawn(move || following.run());
    let thread = thread.map_err(|error| Error::new("cannot follow the lists").because(error))?;
    Ok((Follower { problem, history, should_stop, thread: Some(thread) }, receiver))
}

/// The places in all directories, and in the first of them, which are our own.
fn places(directories: &[PathBuf], own: usize) -> flowpeel::error::Result<(Vec<Place>, Vec<Place>)> {
    Ok((newest::places(directories)?, newest::places(directories.get(..own).unwrap_or_default())?))
}

struct Following {
    directories: Vec<PathBuf>,
    own: usize,
    places: Vec<Place>,
    own_places: Vec<Place>,
    peers: PeerStates,
    marks: Vec<Mark>,
    sender: watch::Sender<Arc<View>>,
    number: u64,
    restarts: BTreeMap<String, String>,
    problem: Problem,
    history: Arc<RwLock<History>>,
    should_stop: Arc<AtomicBool>,
}

impl Following {
    fn run(mut self) {
        self.read_headers();
        let (mut looks, mut rest_until, mut places_looked) = (0, Instant::now(), Instant::now());
        while !self.should_stop.load(Ordering::Relaxed) {
            let mut is_due = looks > 0;
            if places_looked.elapsed() > PLACES_INTERVAL {
                places_looked = Instant::now();
                is_due |= self.look_for_places();
            }
            is_due |= self.look();
            if is_due {
                looks += 1;
            }
            if looks >= GATHER_LOOKS && Instant::now() >= rest_until {
                looks = 0;
                let took = self.read();
                self.read_headers();
                rest_until = Instant::now() + took * REST_FACTOR;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Looks for routers. Returns whether they are others than before.
    fn look_for_places(&mut self) -> bool {
        let (places, own_places) = match places(&self.directories, self.own) {
            Ok(places) => places,
            Err(error) => {
                self.problem.set(Some(error.to_string()));
                return false;
            }
        };
        self.problem.set(None);
        let is_other = places != self.places;
        if is_other {
            self.marks = vec![Mark::default(); places.len()];
            (self.places, self.own_places) = (places, own_places);
        }
        is_other
    }

    /// Looks for lists. Returns whether there are new ones.
    fn look(&mut self) -> bool {
        let mut is_new = false;
        for (place, mark) in self.places.iter().zip(&mut self.marks) {
            // A directory that cannot be read is reported with its router.
            let now = place.mark(mark).unwrap_or_default();
            is_new |= now.is_other(mark);
            *mark = now;
        }
        is_new
    }

    /// Makes a view of what is there. Returns how long that took.
    fn read(&mut self) -> Duration {
        let began = Instant::now();
        match Network::read(&self.places) {
            Ok(network) => {
                self.number += 1;
                let restarted =
                    network.routers.iter().filter_map(|router| Some((router.name.clone(), router.restarted.clone()?)));
                self.restarts.extend(restarted);
                self.restarts.retain(|name, _| network.routers.iter().any(|router| router.name == *name));
                let (number, restarts) = (self.number, self.restarts.clone());
                let view = View {
                    number,
                    network,
                    places: self.places.clone(),
                    own_places: self.own_places.clone(),
                    peers: self.peers.clone(),
                    restarts,
                    took: began.elapsed(),
                };
                self.sender.send_replace(Arc::new(view));
            }
            Err(error) => self.problem.set(Some(error.to_string())),
        }
        began.elapsed()
    }

    /// Reads the headers of lists that are new. A directory that cannot be read is reported with its router.
    fn read_headers(&self) {
        for place in &self.places {
            if self.should_stop.load(Ordering::Relaxed) {
                return;
            }
            // Nobody else writes, so who asks does not wait while files are read.
            let news = self.history.read().look(place, self.places.len());
            if let Ok(news) = news {
                self.history.write().take(news);
            }
        }
        self.history.write().keep(&self.places);
    }
}
