//! From the broker to the lists: a durable consumer whose messages are acknowledged when the list that was made of them
//! is on the disk.
//!
//! Frames build on each other, so order matters. A collector that starts, or that finds a gap in what the broker
//! delivers, has the consumer begin again behind the last message that was acknowledged, and gets all from there in
//! order; what it had already is passed over.

use crate::broker::{Broker, StreamLimits, pause};
use crate::inbox::Inbox;
use crate::lists::Lists;
use async_nats::jetstream::consumer::pull::{self, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::Stream;
use flowpeel::agent::AgentObserver;
use flowpeel::error::{Error, Result};
use futures_util::StreamExt;
use std::time::Duration;

/// Messages that are asked for at once: some megabytes.
const BATCH_COUNT: usize = 32;

/// How long the broker waits for messages before it answers that there are none.
const BATCH_PATIENCE: Duration = Duration::from_secs(2);

/// How long messages may stay unacknowledged before the broker sends them again. A collector that was killed does not
/// wait for this, since it has the consumer begin again; so it is only for what should not happen.
const ACK_PATIENCE: Duration = Duration::from_secs(3_600);

/// What a collector takes from the broker, and how.
#[derive(Clone, Debug)]
pub struct CollectConfig {
    /// The name of the durable consumer: collectors with different names each get everything.
    pub name: String,
    /// The subjects that it takes.
    pub subject: String,
    /// The limits of the stream, if it does not exist yet.
    pub limits: StreamLimits,
}

/// How a collector and the broker got along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectCounts {
    /// Messages taken.
    pub messages: u64,
    /// Of these, how many had been delivered before.
    pub redelivered: u64,
    /// How often the consumer began again, because something was missing or the connection was lost.
    pub restarts: u64,
}

/// Takes frames from the broker and writes lists.
pub struct Collector {
    broker: Broker,
    config: CollectConfig,
    inbox: Inbox<Acker>,
    lists: Lists,
    counts: CollectCounts,
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
        Collector { broker, config, inbox, lists, counts: CollectCounts::default() }
    }

    /// The lists.
    #[must_use]
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// The inbox.
    #[must_use]
    pub fn inbox(&self) -> &Inbox<Acker> {
        &self.inbox
    }

    /// How it and the broker got along so far.
    #[must_use]
    pub fn counts(&self) -> CollectCounts {
        self.counts
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
            let failed = match self.consumer().await {
                Ok(consumer) => {
                    self.inbox.clear();
                    for snapshot in self.lists.last_snapshots()? {
                        self.inbox.resume(&snapshot)?;
                    }
                    match self.take_all(&consumer, once, observer).await? {
                        Ended::Done => return Ok(()),
                        Ended::Gap => None,
                    }
                }
                Err(error) => Some(error),
            };
            self.counts.restarts += 1;
            attempts = if self.counts.messages > before { 0 } else { attempts + 1 };
            if let Some(error) = failed.filter(|_| once && attempts > 3) {
                return Err(Error::new("the broker does not answer as it should").because(error));
            }
            tokio::time::sleep(pause(attempts)).await;
        }
        Ok(())
    }

    /// The durable consumer, which begins behind the last message that all before it and itself are acknowledged.
    async fn consumer(&self) -> std::result::Result<Consumer<Config>, async_nats::Error> {
        let stream: Stream = self.broker.stream(self.config.limits).await?;
        let mut deliver_policy = DeliverPolicy::All;
        if let Ok(info) = stream.consumer_info(&self.config.name).await {
            let start_sequence = info.ack_floor.stream_sequence + 1;
            deliver_policy = DeliverPolicy::ByStartSequence { start_sequence };
            stream.delete_consumer(&self.config.name).await?;
        }
        let config = Config {
            durable_name: Some(self.config.name.clone()),
            deliver_policy,
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_PATIENCE,
            // The messages of snapshots that are not whole yet.
            max_ack_pending: -1,
            filter_subject: self.config.subject.clone(),
            ..Config::default()
        };
        Ok(stream.create_consumer(config).await?)
    }

    async fn take_all(
        &mut self,
        consumer: &Consumer<Config>,
        once: bool,
        observer: &mut impl AgentObserver,
    ) -> Result<Ended> {
        let mut delivered = 0;
        while !observer.is_stopped() {
            let Ok(batch) = batch(consumer, once).await else { return Ok(Ended::Gap) };
            let before = delivered;
            let mut batch = std::pin::pin!(batch);
            while let Some(message) = batch.next().await {
                let Ok(message) = message else { return Ok(Ended::Gap) };
                let Ok(info) = message.info() else { continue };
                if info.consumer_sequence != delivered + 1 {
                    return Ok(Ended::Gap);
                }
                delivered += 1;
                self.counts.messages += 1;
                self.counts.redelivered += u64::from(info.delivered > 1);
                let (message, acker) = message.split();
                self.take(message.subject.as_str(), &message.payload, acker, observer).await?;
                if observer.is_stopped() {
                    return Ok(Ended::Done);
                }
            }
            if once && delivered == before {
                let Ok(info) = consumer.get_info().await else { return Ok(Ended::Gap) };
                if info.delivered.consumer_sequence > delivered {
                    return Ok(Ended::Gap);
                }
                if info.num_pending == 0 {
                    // The acknowledgements are on their way.
                    drop(self.broker.client.flush().await);
                    return Ok(Ended::Done);
                }
            }
        }
        Ok(Ended::Done)
    }

    /// Takes a message, and writes the lists of the snapshots that are whole with it.
    async fn take(
        &mut self,
        subject: &str,
        payload: &[u8],
        acker: Acker,
        observer: &mut impl AgentObserver,
    ) -> Result<()> {
        let taken = self.inbox.take(subject, payload, acker);
        let mut done = taken.done;
        for received in taken.received {
            self.lists.write(&received, observer)?;
            done.extend(received.tickets);
        }
        for acker in done {
            // One that does not arrive is sent again, and passed over then.
            drop(acker.ack().await);
        }
        Ok(())
    }
}

/// Asks for messages: with `once` only for those that are there.
async fn batch(consumer: &Consumer<Config>, once: bool) -> std::result::Result<pull::Batch, async_nats::Error> {
    if once {
        return Ok(consumer.fetch().max_messages(BATCH_COUNT).expires(BATCH_PATIENCE).messages().await?);
    }
    Ok(consumer.batch().max_messages(BATCH_COUNT).expires(BATCH_PATIENCE).messages().await?)
}
