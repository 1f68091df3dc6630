//! The connection to NATS: how to get in, what to do when it is lost, and the stream that keeps the frames.

use crate::subject;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::{self, DiscardPolicy, StorageType};
use async_nats::jetstream::{Context, stream::Stream};
use async_nats::{Client, ConnectOptions, Event, ServerError};
use clap::Args;
use flowpeel::disk::read_private_text;
use flowpeel::error::{Error, Result};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The name of the stream.
pub const STREAM: &str = "flowpeel";

/// How long the broker has for an answer.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// The time within which the broker drops what it got already: longer than a shipper takes to start anew.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// The longest pause before another try.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The options that say where the broker is and how to get in.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Broker")]
pub struct BrokerOptions {
    /// A server: nats://host:4222, or tls://host:4222; several with commas
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub nats: Vec<String>,

    /// A file with the seed of an nkey, which nobody but the owner may read
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with = "credentials")]
    pub nkey: Option<PathBuf>,

    /// A credentials file (JWT and seed)
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub credentials: Option<PathBuf>,

    /// The certificates of the authority that signed the servers' [default: the system's]
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub tls_ca: Option<PathBuf>,

    /// A certificate to show to the servers
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,

    /// The key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
}

/// What the broker objected to since it was last asked.
#[derive(Clone, Default)]
pub struct Objections(Arc<Mutex<Option<String>>>);

impl Objections {
    fn add(&self, objection: String) {
        *self.0.lock() = Some(objection);
    }

    /// The last objection, if there was one.
    #[must_use]
    pub fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

/// A connection that is opened again whenever it is lost.
pub struct Broker {
    /// The connection.
    pub client: Client,
    /// What keeps messages.
    pub stream_context: Context,
    /// What the broker objected to.
    pub objections: Objections,
}

impl BrokerOptions {
    /// Connects, and keeps trying in the background. `name` is shown by the servers, and answers come under a prefix
    /// of its own, so that a server can keep others from reading them.
    ///
    /// # Errors
    ///
    /// An option names a file that cannot be read, or what cannot be connected to.
    pub async fn connect(&self, name: &str, inbox: &str) -> Result<Broker> {
        let objections = Objections::default();
        let heard = objections.clone();
        let mut options = ConnectOptions::new()
            .name(name)
            .custom_inbox_prefix(inbox)
            .retry_on_initial_connect()
            .request_timeout(Some(ANSWER_PATIENCE))
            .reconnect_delay_callback(|attempts| pause(attempts as u32))
            .event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(text)) = &event {
                    heard.add(text.clone());
                }
                std::future::ready(())
            });
        if let Some(path) = &self.nkey {
            options = options.nkey(read_private_text(path)?.trim().to_owned());
        }
        if let Some(path) = &self.credentials {
            let text = read_private_text(path)?;
            let malformed = |error| Error::new("these are no credentials").in_file(path).because(error);
            options = options.credentials(&text).map_err(malformed)?;
        }
        if let Some(path) = &self.tls_ca {
            options = options.add_root_certificates(path.clone()).require_tls(true);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
        }
        let cannot = |error| Error::new("cannot connect to the broker").because(error);
        let client = options.connect(self.nats.clone()).await.map_err(cannot)?;
        let stream_context = ContextBuilder::new().timeout(ANSWER_PATIENCE).ack_timeout(ANSWER_PATIENCE);
        Ok(Broker { stream_context: stream_context.build(client.clone()), client, objections })
    }
}

/// The limits of a stream that does not exist yet.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// The most bytes; the oldest go first.
    pub size: u64,
    /// The longest that a message is kept.
    pub age: Duration,
    /// On how many servers each message is.
    pub replica_count: u8,
}

impl Broker {
    /// The stream of all frames, which is created with these limits if there is none.
    ///
    /// # Errors
    ///
    /// The broker cannot be reached or refuses it.
    pub async fn stream(&self, limits: StreamLimits) -> std::result::Result<Stream, async_nats::Error> {
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![subject::ALL.to_owned()],
            max_bytes: i64::try_from(limits.size).unwrap_or(i64::MAX),
            max_age: limits.age,
            duplicate_window: DUPLICATE_WINDOW.min(limits.age),
            discard: DiscardPolicy::Old,
            storage: StorageType::File,
            num_replicas: usize::from(limits.replica_count),
            ..stream::Config::default()
        };
        match self.stream_context.get_stream(STREAM).await {
            Ok(stream) => Ok(stream),
            Err(_) => Ok(self.stream_context.get_or_create_stream(config).await?),
        }
    }
}

/// The pause before a try, after so many that failed: twice as long each time up to a limit, and a part of it at
/// random, so that a fleet does not come back all at once.
#[must_use]
pub fn pause(attempts: u32) -> Duration {
    let longest = Duration::from_millis(100).saturating_mul(1 << attempts.min(10)).min(PAUSE_MAX);
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let noise = clock ^ std::process::id().wrapping_mul(0x9e37_79b9);
    longest / 2 + longest / 2 * (noise % 1_024) / 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        for attempts in 0..64 {
            let longest = Duration::from_millis(100).saturating_mul(1 << attempts.min(10)).min(PAUSE_MAX);
            let pause = pause(attempts);
            assert!(longest / 2 <= pause && pause <= longest, "{attempts}: {pause:?}");
        }
    }
}
