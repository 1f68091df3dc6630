//! From the spool to the broker: each snapshot is published until the broker has all of it, the oldest first.
//!
//! A message is sent again until the broker acknowledges it, under a name by which the broker drops what it has. While
//! the broker is away nothing is held but one snapshot: the others wait on the disk.

use crate::broker::{Broker, pause};
use crate::piece;
use crate::spool::{Parcel, Spool};
use async_nats::connection::State;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use flowpeel::error::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream;
use std::time::Duration;

/// Messages that may be on the way at once: some megabytes, which fill a line of 100 Mbit/s over half the world.
const IN_FLIGHT_MAX: usize = 16;

/// How often the spool is looked at while there is nothing to send.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Of how many snapshots behind it is reported, at least.
const BEHIND_MIN: usize = 2;

/// What a shipper reports while it works.
pub trait ShipObserver {
    /// A file cannot be used.
    fn refused(&mut self, error: Error);
    /// A snapshot was sent.
    fn sent(&mut self, parcel: &Parcel);
    /// So many snapshots are still to be sent after this one.
    fn behind(&mut self, parcel: &Parcel);
    /// The broker did not take a message, which is sent again.
    fn again(&mut self, cause: &str);
    /// Whether to stop.
    fn is_stopped(&self) -> bool;
}

/// How the broker took the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShipCounts {
    /// Messages that the broker has.
    pub messages: u64,
    /// Of these, how many it had already.
    pub duplicates: u64,
    /// How often a message was sent again.
    pub again: u64,
}

/// Sends what is in a spool.
pub struct Shipper {
    broker: Broker,
    spool: Spool,
    counts: ShipCounts,
}

impl Shipper {
    /// A shipper of this spool to this broker.
    #[must_use]
    pub fn new(broker: Broker, spool: Spool) -> Self {
        Shipper { broker, spool, counts: ShipCounts::default() }
    }

    /// The spool.
    #[must_use]
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// How the broker took the messages so far.
    #[must_use]
    pub fn counts(&self) -> ShipCounts {
        self.counts
    }

    /// Sends snapshots until the observer stops it; with `once`, until all that are there are sent.
    ///
    /// # Errors
    ///
    /// The spool cannot be read or its note cannot be written, or the broker forbids this router's subjects.
    pub async fn run(&mut self, once: bool, observer: &mut impl ShipObserver) -> Result<()> {
        while !observer.is_stopped() {
            match self.spool.next(once, &mut |error| observer.refused(error))? {
                Some(parcel) => {
                    if parcel.behind >= BEHIND_MIN {
                        observer.behind(&parcel);
                    }
                    if !self.send(&parcel, observer).await? {
                        break;
                    }
                    observer.sent(&parcel);
                    self.spool.done(parcel)?;
                }
                None if once => break,
                None => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
        Ok(())
    }

    /// Sends a parcel until the broker has all of it; returns whether it has.
    async fn send(&mut self, parcel: &Parcel, observer: &mut impl ShipObserver) -> Result<bool> {
        let mut left: Vec<Message> = Vec::new();
        for (subject, frame) in &parcel.frames {
            left.extend(piece::cut(frame).map(|(id, piece)| Message {
                subject: subject.clone(),
                id,
                piece: piece.into(),
            }));
        }
        let mut attempts = 0;
        while !left.is_empty() && !observer.is_stopped() {
            // What is published without a connection would only fill memory.
            if self.broker.client.connection_state() == State::Connected {
                let before = left.len();
                let cause = self.publish(&mut left).await;
                attempts = if left.len() < before { 0 } else { attempts + 1 };
                if let Some(objection) = self.broker.objections.take().filter(|text| text.contains("Permissions")) {
                    let subject = parcel.frames.first().map_or("", |(subject, _)| subject.as_str());
                    let what = format!("the broker does not let this router publish under {subject}");
                    return Err(Error::new(what).because(flowpeel::error::escaped(&objection)));
                }
                if let Some(cause) = cause {
                    self.counts.again += left.len() as u64;
                    observer.again(&cause);
                }
            } else {
                attempts += 1;
            }
            if !left.is_empty() {
                tokio::time::sleep(pause(attempts)).await;
            }
        }
        Ok(left.is_empty())
    }

    /// Publishes these messages once each, and keeps those that the broker did not acknowledge. Returns why one of them
    /// was not.
    async fn publish(&mut self, left: &mut Vec<Message>) -> Option<String> {
        let context = &self.broker.stream_context;
        let published = stream::iter(std::mem::take(left)).map(|message| async move {
            let publish = PublishMessage::build().payload(message.piece.clone()).message_id(&message.id);
            let sent = context.send_publish(message.subject.clone(), publish).await;
            let acknowledged = match sent {
                Ok(acknowledged) => acknowledged.await,
                Err(error) => Err(error),
            };
            (message, acknowledged)
        });
        let mut published = published.buffered(IN_FLIGHT_MAX);
        let mut cause = None;
        while let Some((message, acknowledged)) = published.next().await {
            match acknowledged {
                Ok(acknowledged) => {
                    self.counts.messages += 1;
                    self.counts.duplicates += u64::from(acknowledged.duplicate);
                }
                Err(error) => {
                    cause = Some(error.to_string());
                    left.push(message);
                }
            }
        }
        cause
    }
}

/// A piece on its way.
struct Message {
    subject: String,
    id: String,
    piece: Bytes,
}
