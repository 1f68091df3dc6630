//! From the spool to the broker: each snapshot is published until the broker has all of it, the oldest first.
//!
//! A message is sent again until the broker acknowledges it, under a name by which the broker drops what it has. While
//! the broker is away nothing is held but one snapshot: the others wait on the disk.

mod figures;

pub use figures::{ShipCounts, ShipFigures};

use crate::broker::{Broker, pause};
use crate::metrics::Board;
use crate::piece;
use crate::spool::{Parcel, Spool};
use async_nats::connection::State;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use flowpeel::error::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream;
use std::sync::Arc;
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

/// Sends what is in a spool.
pub struct Shipper {
    broker: Broker,
    spool: Spool,
    counts: ShipCounts,
    /// Snapshots in the spool that the broker does not have yet, as of the last look at it.
    waiting: usize,
    board: Arc<Board<ShipFigures>>,
}

impl Shipper {
    /// A shipper of this spool to this broker.
    #[must_use]
    pub fn new(broker: Broker, spool: Spool) -> Self {
        Shipper { broker, spool, counts: ShipCounts::default(), waiting: 0, board: Arc::default() }
    }

    /// Where its figures are published while it runs.
    #[must_use]
    pub fn board(&self) -> Arc<Board<ShipFigures>> {
        Arc::clone(&self.board)
    }

    /// What it has done so far.
    #[must_use]
    pub fn figures(&self) -> ShipFigures {
        ShipFigures {
            spool: self.spool.counts(),
            broker: self.counts,
            waiting: self.waiting as u64,
            reached: self.spool.reached(),
            is_connected: self.is_connected(),
        }
    }

    fn is_connected(&self) -> bool {
        self.broker.client.connection_state() == State::Connected
    }

    fn publish_figures(&self) {
        self.board.publish(self.figures());
    }

    /// Sends snapshots until the observer stops it; with `once`, until all that are there are sent.
    ///
    /// # Errors
    ///
    /// The spool cannot be read or its note cannot be written, or the broker forbids this router's subjects.
    pub async fn run(&mut self, once: bool, observer: &mut impl ShipObserver) -> Result<()> {
        while !observer.is_stopped() {
            let next = self.spool.next(once, &mut |error| observer.refused(error))?;
            self.waiting = next.as_ref().map_or(0, |parcel| parcel.behind + 1);
            self.publish_figures();
            match next {
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
            if self.is_connected() {
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
                self.waiting = self.spool.waiting()?;
                self.publish_figures();
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
