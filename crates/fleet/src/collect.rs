//! From the broker to the lists: messages are acknowledged when the list that was made of them is on the disk.
//!
//! Frames build on each other, so order matters. A collector that starts, or that finds a gap in what the broker
//! delivers, has its consumers begin again behind the last message that was acknowledged, and gets all from there in
//! order; what it had already is passed over.
//!
//! A collector holds the share of the partitions that it takes: nobody else writes its checkpoints, from which another
//! continues when it is gone. One that was replaced stops.

mod checkpoints;
mod figures;

pub use checkpoints::CheckpointCounts;
pub use figures::{CollectCounts, CollectFigures, list_counts};

use crate::broker::{Broker, StreamLimits, pause};
use crate::collect::checkpoints::Checkpoints;
use crate::feed::{BrokerError, Delivered, Feed, FeedConfig, Gap, Look};
use crate::hold::{HoldConfig, HoldError, share_name};
use crate::inbox::Inbox;
use crate::key::FleetKey;
use crate::lists::Lists;
use crate::metrics::{Board, Reached};
use crate::subject;
use async_nats::connection::State;
use async_nats::jetstream::message::Acker;
use flowpeel::agent::{AgentEvent, AgentObserver};
use flowpeel::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often the stream is looked at while nothing comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a collector takes from the broker, and how.
#[derive(Clone, Debug)]
pub struct CollectConfig {
    /// The name of the durable consumers: collectors with different names each get everything.
    pub name: String,
    /// The limits of the stream, if it does not exist yet.
    pub limits: StreamLimits,
    /// The key of the fleet.
    pub key: FleetKey,
    /// After how many lists of a router its next checkpoint is due.
    pub checkpoint_every: u64,
    /// How long nothing has to come from the collector that holds the share before this one takes it; without it that
    /// is replaced at once.
    pub patience: Option<Duration>,
}

/// What a collector reports of its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Another holds it, and this one waits.
    Waiting,
    /// This one has taken it over from another, and continues so many routers from its checkpoints.
    TakenOver {
        /// How many routers.
        router_count: u64,
    },
}

/// An observer of a collector.
pub trait CollectObserver: AgentObserver {
    /// Who holds the share has changed.
    fn holds(&mut self, holding: Holding);
}

/// How a collector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was to stop, or there is no more.
    Done,
    /// Another collector has taken its share.
    Replaced,
}

/// Takes frames from the broker and writes lists.
pub struct Collector {
    broker: Broker,
    config: CollectConfig,
    inbox: Inbox<Ticket>,
    lists: Lists,
    /// The share, once it was taken.
    checkpoints: Option<Checkpoints>,
    counts: CollectCounts,
    /// Messages that it has not taken from the broker, as of the last look.
    waiting: u64,
    /// The last snapshot of each router.
    reached: BTreeMap<String, Reached>,
    board: Arc<Board<CollectFigures>>,
}

/// What a message came with: its number in the stream, and what acknowledges it.
pub struct Ticket {
    sequence: u64,
    acker: Acker,
}

/// How a stretch of messages ended.
enum Stretch {
    /// It is to stop, or there is no more.
    Done,
    /// Something is missing: the consumer has to begin again.
    Gap,
}

/// Why a collector does not go on.
enum Failure {
    /// Another holds its share.
    Replaced,
    /// The broker cannot be reached, or does not answer as it should.
    Broker(BrokerError),
    /// Something here cannot be read or written.
    Here(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Here(error)
    }
}

impl From<HoldError> for Failure {
    fn from(error: HoldError) -> Self {
        match error {
            HoldError::Replaced => Failure::Replaced,
            HoldError::Broker(error) => Failure::Broker(error),
            HoldError::Other(error) => Failure::Here(error),
        }
    }
}

impl Collector {
    /// A collector that continues from what is in the directory of lists.
    #[must_use]
    pub fn new(broker: Broker, config: CollectConfig, inbox: Inbox<Ticket>, lists: Lists) -> Self {
        Collector {
            broker,
            config,
            inbox,
            lists,
            checkpoints: None,
            counts: CollectCounts::default(),
            waiting: 0,
            reached: BTreeMap::new(),
            board: Arc::default(),
        }
    }

    /// The lists.
    #[must_use]
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Where its figures are published while it runs.
    #[must_use]
    pub fn board(&self) -> Arc<Board<CollectFigures>> {
        Arc::clone(&self.board)
    }

    /// What it has done so far.
    #[must_use]
    pub fn figures(&self) -> CollectFigures {
        CollectFigures {
            lists: self.lists.counts(),
            broker: self.counts,
            checkpoints: self.checkpoints.as_ref().map(Checkpoints::counts).unwrap_or_default(),
            share: share_name(&self.config.name, self.inbox.partitions()),
            is_holder: self.checkpoints.is_some(),
            frames: self.inbox.frames(),
            refusals: self.inbox.refusals(),
            waiting: self.waiting,
            unfinished: self.inbox.unfinished() as u64,
            reached: self.reached.clone(),
            is_connected: self.broker.client.connection_state() == State::Connected,
        }
    }

    fn publish_figures(&self) {
        self.board.publish(self.figures());
    }

    /// Takes its share and writes lists until the observer stops it, or another takes the share; with `once`, until all
    /// that the broker has is dealt with.
    ///
    /// # Errors
    ///
    /// A list cannot be written; or, with `once`, the broker cannot be reached.
    pub async fn run(&mut self, once: bool, observer: &mut impl CollectObserver) -> Result<Ended> {
        let mut attempts = 0;
        while !observer.is_stopped() {
            let before = self.counts.messages;
            let failed = match self.stretch(once, observer).await {
                Ok(Stretch::Done) => match self.release(observer).await {
                    Err(Failure::Here(error)) => return Err(error),
                    // What is not written down the next collector takes again.
                    _ => break,
                },
                Ok(Stretch::Gap) => None,
                Err(Failure::Broker(error)) => Some(error),
                Err(Failure::Replaced) => return Ok(Ended::Replaced),
                Err(Failure::Here(error)) => return Err(error),
            };
            self.counts.restarts += 1;
            self.publish_figures();
            attempts = if self.counts.messages > before { 0 } else { attempts + 1 };
            if let Some(error) = failed.filter(|_| once && attempts > 3) {
                return Err(Error::new("the broker does not answer as it should").because(error));
            }
            tokio::time::sleep(pause(attempts)).await;
        }
        Ok(Ended::Done)
    }

    /// Takes messages from where it was to begin, until there is a gap.
    async fn stretch(
        &mut self,
        once: bool,
        observer: &mut impl CollectObserver,
    ) -> std::result::Result<Stretch, Failure> {
        // The stream of frames is there for routers before anybody holds a share.
        let stream = self.broker.stream(self.config.limits).await.map_err(Failure::Broker)?;
        let partitions = self.inbox.partitions();
        let start = match &mut self.checkpoints {
            // Who was replaced must not take the consumers of the other away.
            Some(checkpoints) => checkpoints.renew().await.map(|()| None)?,
            None => {
                let hold = HoldConfig {
                    name: self.config.name.clone(),
                    partitions,
                    replica_count: self.config.limits.replica_count,
                    key: self.config.key.clone(),
                    directory: self.lists.name(&self.broker.client.new_inbox())?,
                };
                let mut checkpoints = Checkpoints::open(&self.broker, hold, self.config.checkpoint_every).await?;
                self.publish_figures();
                if let Some(patience) = self.config.patience
                    && !checkpoints.wait(patience, observer).await?
                {
                    return Ok(Stretch::Done);
                }
                let start = checkpoints.take(&mut self.lists, observer).await?;
                self.checkpoints = Some(checkpoints);
                start
            }
        };
        let config = FeedConfig { name: self.config.name.clone(), partitions, start };
        let feed = Feed::open(stream, &config).await.map_err(Failure::Broker)?;
        if start.is_none() && feed.is_continued && self.lists.router_count() == 0 {
            let what = "there are neither lists here nor a checkpoint of the collector before: lists begin with the \
                        next whole frames, and of a router with more connections than --churn they are incomplete";
            observer.report(AgentEvent::Warning(Error::new(what)));
        }
        self.inbox.clear();
        for (snapshot, head) in self.lists.last_snapshots()? {
            self.inbox.resume(&snapshot, head.as_deref())?;
            let sources = snapshot.header.sources.iter();
            self.reached.extend(sources.map(|source| (source.router.clone(), Reached::of(source))));
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.renew().await?;
        }
        self.take_all(feed, once, observer).await
    }

    async fn take_all(
        &mut self,
        mut feed: Feed,
        once: bool,
        observer: &mut impl CollectObserver,
    ) -> std::result::Result<Stretch, Failure> {
        while !observer.is_stopped() {
            let look = feed.look().await;
            self.waiting = feed.waiting();
            self.publish_figures();
            match look {
                Err(Gap) => return Ok(Stretch::Gap),
                Ok(Look::Nothing) if once => {
                    // The acknowledgements are on their way.
                    drop(self.broker.client.flush().await);
                    return Ok(Stretch::Done);
                }
                Ok(Look::Nothing) => tokio::time::sleep(LOOK_INTERVAL).await,
                Ok(Look::Messages(messages)) => {
                    for delivered in messages {
                        self.counts.messages += 1;
                        self.counts.size += delivered.message.payload.len() as u64;
                        self.counts.redelivered += u64::from(delivered.is_again);
                        self.take(delivered, observer).await?;
                        self.renew(observer).await?;
                        if observer.is_stopped() {
                            break;
                        }
                    }
                }
            }
            self.renew(observer).await?;
        }
        Ok(Stretch::Done)
    }

    /// Takes a message, and writes the lists of the snapshots that are whole with it.
    async fn take(
        &mut self,
        delivered: Delivered,
        observer: &mut impl CollectObserver,
    ) -> std::result::Result<(), Failure> {
        let Delivered { sequence, message, acker, .. } = delivered;
        let taken = self.inbox.take(message.subject.as_str(), &message.payload, Ticket { sequence, acker });
        if let (Some(checkpoints), Some((router, _))) = (&mut self.checkpoints, subject::parse(&message.subject)) {
            if self.inbox.knows(&router) {
                checkpoints.taken(&router, sequence);
            }
            checkpoints.reached(sequence);
        }
        let mut done = taken.done;
        let mut listed = Vec::new();
        for received in taken.received {
            self.lists.write(&received, observer)?;
            let last = received.tickets.iter().map(|ticket| ticket.sequence).max().unwrap_or(sequence);
            if let (Some(source), Some(checkpoints)) = (received.snapshot.header.sources.first(), &mut self.checkpoints)
            {
                checkpoints.listed(&received.router, source.figures.end_ns, last);
                listed.push(received.router.clone());
                self.reached.insert(received.router, Reached::of(source));
            }
            self.publish_figures();
            done.extend(received.tickets);
        }
        for ticket in done {
            // One that does not arrive is sent again, and passed over then.
            drop(ticket.acker.ack().await);
        }
        for router in listed {
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.save_if_due(&router, &self.lists, observer).await?;
            }
        }
        Ok(())
    }

    /// Shows that the holder of the share lives. While the broker is away nobody else sees anything either.
    async fn renew(&mut self, observer: &mut impl CollectObserver) -> std::result::Result<(), Failure> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        match checkpoints.renew_if_due(&self.lists, observer).await {
            Err(HoldError::Replaced) => Err(Failure::Replaced),
            Err(HoldError::Other(error)) => Err(Failure::Here(error)),
            Ok(()) | Err(HoldError::Broker(_)) => Ok(()),
        }
    }

    /// Writes down all that was done, and that the share is free.
    async fn release(&mut self, observer: &mut impl CollectObserver) -> std::result::Result<(), Failure> {
        match &mut self.checkpoints {
            Some(checkpoints) if self.broker.client.connection_state() == State::Connected => {
                Ok(checkpoints.release(&self.lists, observer).await?)
            }
            _ => Ok(()),
        }
    }
}
