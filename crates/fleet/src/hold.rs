//! Who holds a share of the partitions, and the checkpoints of whoever does, at the broker.
//!
//! Each share has a stream of its own, in which one collector writes: every message is only taken behind the last that
//! this collector knows (the expected last sequence). So whoever writes a [`Record`] behind the last message holds the
//! share from then on, and all that the one before it writes is refused, the pieces of its checkpoints as well. Every
//! message shows that the holder lives; a standby waits until none has come for a while.
//!
//! A checkpoint is in pieces, and a summary behind them names the last two: until it is written the two before it are
//! there. Records and summaries have tags under the fleet's key, and the summary has the hash of the pieces, so that
//! nobody makes one up who may write at the broker.

use crate::broker::{ANSWER_PATIENCE, Broker};
use crate::checkpoint::Description;
use crate::feed::BrokerError;
use crate::key::FleetKey;
use crate::subject;
use async_nats::header::NATS_ROLLUP;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, StorageType, Stream};
use bytes::Bytes;
use flowpeel::disk::Check;
use flowpeel::error::Error;
use flowpeel::signal::PartitionSet;
use futures_util::TryStreamExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// How often the holder writes a record, so that a standby sees that it lives.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// How often a standby looks whether the holder lives.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The most bytes of a piece of a checkpoint: brokers take messages of up to 1 MiB, and answer with a third more.
const PIECE_SIZE: usize = 512 << 10;

/// The most bytes of a checkpoint: the snapshot and the compressed list of the largest router that there is.
const CHECKPOINT_SIZE_MAX: u64 = 8 << 30;

/// The size of a tag.
const TAG_SIZE: usize = 32;

/// Why something cannot be done with a share.
#[derive(Debug)]
pub(crate) enum HoldError {
    /// Another collector holds the share.
    Replaced,
    /// The broker cannot be reached, or refuses it.
    Broker(BrokerError),
    /// What is there is not what was written, or it cannot be read or written here.
    Other(Error),
}

impl From<Error> for HoldError {
    fn from(error: Error) -> Self {
        HoldError::Other(error)
    }
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldError::Replaced => f.write_str("another collector holds this share"),
            HoldError::Broker(error) => error.fmt(f),
            HoldError::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HoldError {}

type Result<T> = std::result::Result<T, HoldError>;

fn broker_error(error: impl Into<BrokerError>) -> HoldError {
    HoldError::Broker(error.into())
}

/// What a holder says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The directory of lists that it continues, by a name of its own.
    pub(crate) directory: String,
    /// The process.
    process: String,
    /// The number of the first message of the stream of frames that is not in its checkpoints.
    pub(crate) start: u64,
    /// Whether it has begun to take messages: until then whoever continues begins at `start`.
    pub(crate) is_begun: bool,
    /// Whether it has ended, with all that it had done in its checkpoints.
    pub(crate) is_released: bool,
}

/// The last two checkpoints of a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The newest.
    pub(crate) newest: Description,
    /// The one before it.
    pub(crate) before: Option<Description>,
}

fn digits(partitions: PartitionSet) -> String {
    partitions.iter().map(|partition| partition.to_string()).collect()
}

/// What a share of the collectors of this name is called: `collect-0123`.
pub(crate) fn share_name(name: &str, partitions: PartitionSet) -> String {
    format!("{name}-{}", digits(partitions))
}

/// Which share it is, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct HoldConfig {
    /// The name of the collectors.
    pub(crate) name: String,
    /// The partitions of the share.
    pub(crate) partitions: PartitionSet,
    /// On how many servers the stream is, if it does not exist yet.
    pub(crate) replica_count: u8,
    /// The key of the fleet.
    pub(crate) key: FleetKey,
    /// The directory of lists, by a name of its own.
    pub(crate) directory: String,
}

impl HoldConfig {
    /// The name of the share's stream.
    fn stream(&self) -> String {
        format!("flowpeel-share-{}", share_name(&self.name, self.partitions))
    }

    /// What the subjects of the share's messages begin with.
    fn root(&self) -> String {
        format!("flowpeel-share.{}.{}", self.name, digits(self.partitions))
    }

    fn record_subject(&self) -> String {
        format!("{}.holder", self.root())
    }

    fn of_router(&self, what: &str, router: &str) -> String {
        format!("{}.{what}.{}", self.root(), subject::token(router))
    }

    /// The tag of what stands under this subject.
    fn tag(&self, subject: &str, text: &[u8]) -> impl Check<Sum = [u8; TAG_SIZE]> + use<> {
        let mut tag = self.key.tag();
        [&[subject.len() as u8], subject.as_bytes(), text].into_iter().for_each(|part| Check::update(&mut tag, part));
        tag
    }

    fn sealed(&self, subject: &str, value: &impl Serialize) -> Bytes {
        // All of it can be written as JSON.
        let text = serde_json::to_vec(value).unwrap_or_default();
        [&self.tag(subject, &text).sum()[..], &text].concat().into()
    }

    fn opened<T: DeserializeOwned>(&self, subject: &str, sealed: &[u8]) -> Option<T> {
        let (tag, text) = sealed.split_at_checked(TAG_SIZE)?;
        serde_json::from_slice(text).ok().filter(|_| self.tag(subject, text).is(tag))
    }
}

/// A share, as this process knows it.
pub(crate) struct Hold {
    config: HoldConfig,
    context: Context,
    stream: Stream,
    /// The name of this process.
    process: String,
    /// The number of the last message of the share's stream that this process knows of.
    last: u64,
    /// Whether a message may have been taken of which that is not known.
    is_doubtful: bool,
    summaries: BTreeMap<String, Summary>,
    renewed: Instant,
}

/// What shows that the holder of a share lives: the number of the last message, and since when it is that.
pub(crate) struct Watch {
    last: Option<u64>,
    since: Instant,
}

impl Watch {
    /// How long the last message has been the last.
    pub(crate) fn silent_for(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Hold {
    /// Looks at a share, which is not taken by that. Its stream is created if there is none.
    pub(crate) async fn open(broker: &Broker, config: HoldConfig) -> Result<Self> {
        let context = broker.stream_context.clone();
        let stream = create_stream(&context, &config).await?;
        // What is unique for an answer is so for a process.
        let process = broker.client.new_inbox();
        let (summaries, renewed) = (BTreeMap::new(), Instant::now());
        Ok(Hold { config, context, stream, process, last: 0, is_doubtful: false, summaries, renewed })
    }

    /// The last record, and beside it the number of the last message that was there before it was read: whoever writes
    /// behind that has seen the last holder.
    async fn read(&self) -> Result<(u64, Option<Record>)> {
        let last = self.stream.get_info().await.map_err(broker_error)?.state.last_sequence;
        let subject = self.config.record_subject();
        let record = match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => {
                let record = self.config.opened(&subject, &message.payload);
                let what = "the record of who holds this share is not signed with the fleet's key: if nobody else has \
                            it, remove the stream";
                Some(record.ok_or_else(|| Error::new(what).in_file(self.config.stream()))?)
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
            Err(error) => return Err(broker_error(error)),
        };
        Ok((last, record))
    }

    /// The name of the directory of lists.
    pub(crate) fn directory(&self) -> &str {
        &self.config.directory
    }

    /// A watch that has seen nothing.
    pub(crate) fn watch(&self) -> Watch {
        Watch { last: None, since: Instant::now() }
    }

    /// Whether the share is free for a collector of this directory: nobody has held it, the last holder has ended or
    /// was of this directory, or nothing has come from it for so long. Waits a little where it is not.
    pub(crate) async fn is_free(&self, watch: &mut Watch, patience: Duration) -> Result<bool> {
        let (last, record) = self.read().await?;
        let is_free = record.is_none_or(|record| record.is_released || record.directory == self.config.directory);
        if watch.last != Some(last) {
            *watch = Watch { last: Some(last), since: Instant::now() };
        }
        if is_free || watch.silent_for() >= patience {
            return Ok(true);
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
        Ok(false)
    }

    /// Takes the share from whoever has it. Returns the record of the one before.
    pub(crate) async fn take(&mut self) -> Result<Option<Record>> {
        let (last, before) = self.read().await?;
        (self.last, self.is_doubtful) = (last, false);
        let start = before.as_ref().map_or(1, |before| before.start);
        let is_own = before.as_ref().is_some_and(|before| before.directory == self.config.directory);
        let is_begun = is_own && before.as_ref().is_some_and(|before| before.is_begun);
        self.write_record(start, is_begun, false).await?;
        self.summaries = self.read_summaries().await?;
        Ok(before)
    }

    /// Writes that this process holds the share, and where another would begin.
    pub(crate) async fn renew(&mut self, start: u64) -> Result<()> {
        self.write_record(start, true, false).await
    }

    /// Writes that this process has ended.
    pub(crate) async fn release(&mut self, start: u64) -> Result<()> {
        self.write_record(start, true, true).await
    }

    /// Whether the record is to be written again.
    pub(crate) fn is_due(&self) -> bool {
        self.renewed.elapsed() >= RENEW_INTERVAL
    }

    async fn write_record(&mut self, start: u64, is_begun: bool, is_released: bool) -> Result<()> {
        // What fails is not tried again at once.
        self.renewed = Instant::now();
        let (directory, process) = (self.config.directory.clone(), self.process.clone());
        let record = Record { directory, process, start, is_begun, is_released };
        let subject = self.config.record_subject();
        let sealed = self.config.sealed(&subject, &record);
        self.publish(subject, sealed, true).await.map(drop)
    }

    /// The checkpoints of routers, the last two of each.
    pub(crate) fn summaries(&self) -> &BTreeMap<String, Summary> {
        &self.summaries
    }

    async fn read_summaries(&self) -> Result<BTreeMap<String, Summary>> {
        let prefix = format!("{}.summary.", self.config.root());
        let mut subjects = self.stream.info_with_subjects(format!("{prefix}*")).await.map_err(broker_error)?;
        let mut summaries = BTreeMap::new();
        while let Some((subject, _)) = subjects.try_next().await.map_err(broker_error)? {
            let Some(router) = subject.strip_prefix(&prefix).and_then(subject::router_of_token) else { continue };
            let message = self.stream.get_last_raw_message_by_subject(&subject).await.map_err(broker_error)?;
            summaries.extend(self.config.opened(&subject, &message.payload).map(|summary| (router, summary)));
        }
        Ok(summaries)
    }

    /// Writes a checkpoint of a router, which holds what was made of the stream of frames up to the message `after`.
    /// Returns its bytes.
    pub(crate) async fn put(&mut self, router: &str, of: (i64, u64), mut packed: impl Read) -> Result<u64> {
        let subject = self.config.of_router("piece", router);
        let (mut hash, mut size, mut piece_count, mut first_piece) = (Sha256::new(), 0, 0, 0);
        loop {
            let mut piece = Vec::with_capacity(PIECE_SIZE);
            let read = packed.by_ref().take(PIECE_SIZE as u64).read_to_end(&mut piece);
            read.map_err(|error| Error::new("cannot read a checkpoint").because(error))?;
            if piece.is_empty() {
                break;
            }
            hash.update(&piece);
            size += piece.len() as u64;
            let sequence = self.publish(subject.clone(), piece.into(), false).await?;
            first_piece = if piece_count == 0 { sequence } else { first_piece };
            piece_count += 1;
        }
        let (end_ns, after) = of;
        let newest = Description { end_ns, after, first_piece, piece_count, size, hash: hash.finalize().into() };
        let before = self.summaries.remove(router).map(|summary| summary.newest);
        let summary = Summary { newest, before };
        let summary_subject = self.config.of_router("summary", router);
        let sealed = self.config.sealed(&summary_subject, &summary);
        self.publish(summary_subject, sealed, true).await?;
        let needed_from = summary.before.as_ref().unwrap_or(&summary.newest).first_piece;
        self.summaries.insert(router.to_owned(), summary);
        // What stays costs storage until the next time.
        drop(self.stream.purge().filter(subject).sequence(needed_from).await);
        Ok(size)
    }

    /// Writes the bytes of a checkpoint to `out`, which are not to be used if this fails.
    pub(crate) async fn get(&self, described: &Description, out: &mut impl Write) -> Result<()> {
        let damaged = || HoldError::Other(Error::new("the checkpoint is not there as it was written"));
        if described.size > CHECKPOINT_SIZE_MAX {
            return Err(damaged());
        }
        let (mut hash, mut left) = (Sha256::new(), described.size);
        for sequence in (described.first_piece..).take(described.piece_count.min(CHECKPOINT_SIZE_MAX) as usize) {
            let message = match self.stream.get_raw_message(sequence).await {
                Ok(message) => message,
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Err(damaged()),
                Err(error) => return Err(broker_error(error)),
            };
            left = left.checked_sub(message.payload.len() as u64).ok_or_else(damaged)?;
            hash.update(&message.payload);
            out.write_all(&message.payload).map_err(|error| Error::new("cannot keep a checkpoint").because(error))?;
        }
        if left == 0 && hash.finalize().as_slice() == described.hash { Ok(()) } else { Err(damaged()) }
    }

    /// Publishes behind the last message; with `is_last`, in place of those before it under this subject.
    async fn publish(&mut self, subject: String, payload: Bytes, is_last: bool) -> Result<u64> {
        if self.is_doubtful {
            self.settle().await?;
        }
        let mut message = PublishMessage::build().payload(payload).expected_last_sequence(self.last);
        if is_last {
            message = message.header(NATS_ROLLUP, "sub");
        }
        let sent = self.context.send_publish(subject, message).await;
        let acknowledged = match sent {
            Ok(acknowledged) => acknowledged.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(acknowledged) => {
                self.last = acknowledged.sequence;
                Ok(acknowledged.sequence)
            }
            Err(error) => {
                self.is_doubtful = true;
                if error.kind() == PublishErrorKind::WrongLastSequence {
                    self.settle().await?;
                }
                Err(broker_error(error))
            }
        }
    }

    /// Finds out whether this process still holds the share, and what the last message is.
    async fn settle(&mut self) -> Result<()> {
        self.stream = create_stream(&self.context, &self.config).await?;
        let (last, record) = self.read().await?;
        if record.is_some_and(|record| record.process != self.process) {
            return Err(HoldError::Replaced);
        }
        (self.last, self.is_doubtful) = (last, false);
        Ok(())
    }
}

async fn create_stream(context: &Context, config: &HoldConfig) -> Result<Stream> {
    let name = config.stream();
    let stream = Config {
        subjects: vec![format!("{}.>", config.root())],
        storage: StorageType::File,
        allow_rollup: true,
        num_replicas: usize::from(config.replica_count),
        name,
        ..Config::default()
    };
    let created = tokio::time::timeout(2 * ANSWER_PATIENCE, context.get_or_create_stream(stream)).await;
    created.map_err(broker_error)?.map_err(broker_error)
}
