//! The messages of the stream for some partitions, in the order of the stream.
//!
//! A durable consumer has one subject, so a collector that takes some of the partitions has a consumer for each. What
//! these deliver is put in the order in which it was published: the partitions of a snapshot come together then, and
//! none is far ahead of another. So a message is only handed on when no consumer can have an earlier one.

use crate::broker::ANSWER_PATIENCE;
use crate::subject;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::message::{Acker, Message};
use async_nats::jetstream::stream::Stream;
use flowpeel::signal::PartitionSet;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use std::collections::VecDeque;
use std::time::Duration;

/// Messages that a consumer is asked for at once: some megabytes.
const BATCH_COUNT: usize = 32;

/// How long messages may stay unacknowledged before the broker sends them again. A collector that was killed does not
/// wait for this, since it has its consumers begin again; so it is only for what should not happen.
const ACK_PATIENCE: Duration = Duration::from_secs(3_600);

/// What goes wrong between this process and the broker.
pub(crate) type BrokerError = async_nats::Error;

/// Something is missing, or the connection was lost: the consumers have to begin again.
#[derive(Debug)]
pub(crate) struct Gap;

/// A message of the stream.
pub(crate) struct Delivered {
    /// Its number in the stream.
    pub(crate) sequence: u64,
    /// Whether it was delivered before.
    pub(crate) is_again: bool,
    /// The message.
    pub(crate) message: async_nats::Message,
    /// What acknowledges it.
    pub(crate) acker: Acker,
}

/// What a look at the stream gave.
pub(crate) enum Look {
    /// These messages, in order.
    Messages(Vec<Delivered>),
    /// There are none that were not handed on.
    Nothing,
}

/// A durable consumer.
struct Tap {
    consumer: Consumer<Config>,
    /// How many messages it has delivered here.
    delivered: u64,
    /// Those that were not handed on.
    waiting: VecDeque<Delivered>,
    /// Up to this number of the stream it has delivered all that it has.
    known_to: u64,
    /// How many there were behind the last message that was delivered.
    behind: u64,
}

/// The consumers of a collector.
pub(crate) struct Feed {
    stream: Stream,
    taps: Vec<Tap>,
    /// Whether it begins behind what another collector has acknowledged, or this one before.
    pub(crate) is_continued: bool,
}

/// Which consumers a feed has.
#[derive(Clone, Debug)]
pub(crate) struct FeedConfig {
    /// The name of the durable consumer, or what the names of several begin with.
    pub(crate) name: String,
    /// The partitions.
    pub(crate) partitions: PartitionSet,
    /// The message of the stream at which the consumers begin; without it behind the last message that all before it
    /// and itself are acknowledged.
    pub(crate) start: Option<u64>,
}

impl FeedConfig {
    /// The names of the consumers, and what each takes.
    pub(crate) fn consumers(&self) -> Vec<(String, String)> {
        if self.partitions == PartitionSet::ALL {
            return vec![(self.name.clone(), subject::ALL.to_owned())];
        }
        let one = |partition: usize| (format!("{}-{partition}", self.name), subject::of_partition(partition));
        self.partitions.iter().map(one).collect()
    }
}

impl Feed {
    /// A feed of these consumers.
    pub(crate) async fn open(stream: Stream, config: &FeedConfig) -> Result<Self, BrokerError> {
        // Numbers that the stream has not reached are of another, which was removed.
        let last = stream.get_info().await?.state.last_sequence;
        let start = config.start.map(|start| if start > last + 1 { 1 } else { start.max(1) });
        let taps = config.consumers().into_iter().map(|(name, subject)| open(&stream, name, subject, start));
        let (taps, are_continued): (Vec<Tap>, Vec<bool>) = try_join_all(taps).await?.into_iter().unzip();
        Ok(Feed { stream, taps, is_continued: are_continued.contains(&true) })
    }

    /// How many messages were not handed on, as of the last one that was delivered.
    pub(crate) fn waiting(&self) -> u64 {
        self.taps.iter().map(|tap| tap.behind + tap.waiting.len() as u64).sum()
    }

    /// The next messages that are there.
    pub(crate) async fn look(&mut self) -> Result<Look, Gap> {
        let last = self.stream.get_info().await.map_err(|_| Gap)?.state.last_sequence;
        for tap in &mut self.taps {
            if tap.waiting.is_empty() && tap.known_to < last {
                tap.fetch(last).await?;
            }
        }
        // No consumer can have anything before this.
        let known_to = self.taps.iter().map(|tap| tap.known_to).min().unwrap_or(last);
        let mut messages = Vec::new();
        for tap in &mut self.taps {
            let later = tap.waiting.partition_point(|message| message.sequence <= known_to);
            messages.extend(tap.waiting.drain(..later));
        }
        messages.sort_by_key(|message| message.sequence);
        Ok(if messages.is_empty() && known_to >= last { Look::Nothing } else { Look::Messages(messages) })
    }
}

impl Tap {
    /// Asks for the next messages of the stream, whose last has this number.
    async fn fetch(&mut self, last: u64) -> Result<(), Gap> {
        let batch = self.consumer.fetch().max_messages(BATCH_COUNT).messages().await.map_err(|_| Gap)?;
        let mut batch = std::pin::pin!(batch);
        let mut count = 0;
        while let Some(message) = tokio::time::timeout(ANSWER_PATIENCE, batch.next()).await.map_err(|_| Gap)? {
            let message: Message = message.map_err(|_| Gap)?;
            let info = message.info().map_err(|_| Gap)?;
            if info.consumer_sequence != self.delivered + 1 {
                return Err(Gap);
            }
            let (sequence, is_again) = (info.stream_sequence, info.delivered > 1);
            self.delivered += 1;
            self.known_to = self.known_to.max(sequence);
            self.behind = info.pending;
            count += 1;
            let (message, acker) = message.split();
            let delivered = Delivered { sequence, is_again, message, acker };
            let place = self.waiting.partition_point(|waiting| waiting.sequence <= sequence);
            self.waiting.insert(place, delivered);
        }
        if count < BATCH_COUNT {
            let info = self.consumer.get_info().await.map_err(|_| Gap)?;
            if info.delivered.consumer_sequence > self.delivered {
                return Err(Gap);
            }
            if info.num_pending == 0 {
                self.known_to = self.known_to.max(last);
            }
        }
        Ok(())
    }
}

/// A durable consumer, which begins anew at `start`, or else behind what is acknowledged; and whether anything is.
async fn open(stream: &Stream, name: String, subject: String, start: Option<u64>) -> Result<(Tap, bool), BrokerError> {
    let (mut start, mut is_continued) = (start, false);
    if let Ok(info) = stream.consumer_info(&name).await {
        let acknowledged = info.ack_floor.stream_sequence;
        is_continued = acknowledged > 0;
        start = start.or(Some(acknowledged + 1));
        stream.delete_consumer(&name).await?;
    }
    let by_start = |start_sequence| DeliverPolicy::ByStartSequence { start_sequence };
    let deliver_policy = start.map_or(DeliverPolicy::All, by_start);
    let config = Config {
        durable_name: Some(name),
        deliver_policy,
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_PATIENCE,
        // The messages of snapshots that are not whole yet.
        max_ack_pending: -1,
        filter_subject: subject,
        ..Config::default()
    };
    let consumer = stream.create_consumer(config).await?;
    let tap = Tap { consumer, delivered: 0, waiting: VecDeque::new(), known_to: 0, behind: 0 };
    Ok((tap, is_continued))
}
