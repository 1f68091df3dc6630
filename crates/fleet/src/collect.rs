//! From the broker to the lists: messages are acknowledged when the list that was made of them is on the disk.
//!
//! Frames build on each other, so order matters. A collector that starts, or that finds a gap in what the broker
//! delivers, has its consumers begin again behind the last message that was acknowledged, and gets all from there in
//! order; what it had already is passed over.

mod figures;

pub use figures::{CollectCounts, CollectFigures, list_counts};

use crate::broker::{Broker, StreamLimits, pause};
use crate::feed::{BrokerError, Delivered, Feed, FeedConfig, Gap, Look};
use crate::inbox::Inbox;
use crate::lists::Lists;
use crate::metrics::{Board, Reached};
use async_nats::connection::State;
use async_nats::jetstream::message::Acker;
use flowpeel::agent::AgentObserver;
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
}

/// Takes frames from the broker and writes lists.
pub struct Collector {
    broker: Broker,
    config: CollectConfig,
    inbox: Inbox<Acker>,
    lists: Lists,
    counts: CollectCounts,
    /// Messages that it has not taken from the broker, as of the last look.
    waiting: u64,
    /// The last snapshot of each router.
    reached: BTreeMap<String, Reached>,
    board: Arc<Board<CollectFigures>>,
}

/// How a stretch of messages ended.
enum Ended {
    /// It is to stop, or there is no more.
    Done,
    /// Something is missing: the consumer has to begin again.
    Gap,
}

impl Collector {
    /// A collector that continues from what is in the directory of lists.
    #[must_use]
    pub fn new(broker: Broker, config: CollectConfig, inbox: Inbox<Acker>, lists: Lists) -> Self {
        Collector {
            broker,
            config,
            inbox,
            lists,
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

    /// Writes lists until the observer stops it; with `once`, until all that the broker has is dealt with.
    ///
    /// # Errors
    ///
    /// A list cannot be written; or, with `once`, the broker cannot be reached.
    pub async fn run(&mut self, once: bool, observer: &mut impl AgentObserver) -> Result<()> {
        let mut attempts = 0;
        while !observer.is_stopped() {
            let before = self.counts.messages;
            let failed = match self.feed().await {
                Ok(feed) => {
                    self.inbox.clear();
                    for (snapshot, head) in self.lists.last_snapshots()? {
                        self.inbox.resume(&snapshot, head.as_deref())?;
                        let sources = snapshot.header.sources.iter();
                        self.reached.extend(sources.map(|source| (source.router.clone(), Reached::of(source))));
                    }
                    match self.take_all(feed, once, observer).await? {
                        Ended::Done => return Ok(()),
                        Ended::Gap => None,
                    }
                }
                Err(error) => Some(error),
            };
            self.counts.restarts += 1;
            self.publish_figures();
            attempts = if self.counts.messages > before { 0 } else { attempts + 1 };
            if let Some(error) = failed.filter(|_| once && attempts > 3) {
                return Err(Error::new("the broker does not answer as it should").because(error));
            }
            tokio::time::sleep(pause(attempts)).await;
        }
        Ok(())
    }

    /// The consumers, which begin behind what is acknowledged.
    async fn feed(&self) -> std::result::Result<Feed, BrokerError> {
        let stream = self.broker.stream(self.config.limits).await?;
        let partitions = self.inbox.partitions();
        Feed::open(stream, &FeedConfig { name: self.config.name.clone(), partitions }).await
    }

    async fn take_all(&mut self, mut feed: Feed, once: bool, observer: &mut impl AgentObserver) -> Result<Ended> {
        while !observer.is_stopped() {
            let look = feed.look().await;
            self.waiting = feed.waiting();
            self.publish_figures();
            match look {
                Err(Gap) => return Ok(Ended::Gap),
                Ok(Look::Nothing) if once => {
                    // The acknowledgements are on their way.
                    drop(self.broker.client.flush().await);
                    return Ok(Ended::Done);
                }
                Ok(Look::Nothing) => tokio::time::sleep(LOOK_INTERVAL).await,
                Ok(Look::Messages(messages)) => {
                    for delivered in messages {
                        self.counts.messages += 1;
                        self.counts.size += delivered.message.payload.len() as u64;
                        self.counts.redelivered += u64::from(delivered.is_again);
                        self.take(delivered, observer).await?;
                        if observer.is_stopped() {
                            break;
                        }
                    }
                }
            }
        }
        Ok(Ended::Done)
    }

    /// Takes a message, and writes the lists of the snapshots that are whole with it.
    async fn take(&mut self, delivered: Delivered, observer: &mut impl AgentObserver) -> Result<()> {
        let Delivered { message, acker, .. } = delivered;
        let taken = self.inbox.take(message.subject.as_str(), &message.payload, acker);
        let mut done = taken.done;
        for received in taken.received {
            self.lists.write(&received, observer)?;
            let source = received.snapshot.header.sources.first();
            self.reached.extend(source.map(|source| (received.router, Reached::of(source))));
            self.publish_figures();
            done.extend(received.tickets);
        }
        for acker in done {
            // One that does not arrive is sent again, and passed over then.
            drop(acker.ack().await);
        }
        Ok(())
    }
}
