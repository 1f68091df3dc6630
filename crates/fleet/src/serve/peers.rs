//! The shares of other collectors: the newest list of each router that a peer has, taken over as it comes.
//!
//! What a peer has is put where `collect` would have written it, so a view is made of all shares in the same way,
//! sorted, grouped and paged as one. A share that does not come shows as a list that is late, or is not there; a peer
//! that does not answer makes every answer incomplete.

use super::lists::{ListedFile, name_of_file};
use super::peer_place::PeerPlace;
use crate::joined::ROUTER_COUNT_MAX;
use crate::subject;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderValue, Request, StatusCode, Uri};
use flowpeel::disk::read_private_text;
use flowpeel::error::{Error, Result};
use flowpeel::export::ListName;
use flowpeel::signal::PARTITION_COUNT;
use futures_util::StreamExt;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// How often a peer is asked what it has.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a peer may be silent within an answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The longest answer to what a peer has, in bytes: a thousand routers, each with a name and the name of a list.
const ANSWER_SIZE_MAX: usize = 4 << 20;

/// The longest list that is taken over, in bytes: ten million connections, and what is left on a disk that is small.
const LIST_SIZE_MAX: u64 = 4 << 30;

/// What peers are asked with.
#[derive(Clone, Debug, Default)]
pub struct PeerConfig {
    /// Where they are.
    pub urls: Vec<String>,
    /// The certificates of the authority that signed theirs.
    pub ca: Option<PathBuf>,
    /// The file with the token that opens them.
    pub token_file: Option<PathBuf>,
}

/// Whether peers answer.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerStates(Arc<Mutex<Vec<PeerState>>>);

#[derive(Clone, Debug)]
struct PeerState {
    url: String,
    problem: Option<String>,
}

impl PeerStates {
    /// Whether all answer.
    pub(super) fn all_answer(&self) -> bool {
        self.0.lock().iter().all(|peer| peer.problem.is_none())
    }

    /// Which do not, and why.
    pub(super) fn problem(&self) -> Option<String> {
        let states = self.0.lock();
        let silent = states.iter().filter_map(|peer| Some(format!("{}: {}", peer.url, peer.problem.as_ref()?)));
        Some(silent.collect::<Vec<_>>().join("; ")).filter(|problem| !problem.is_empty())
    }

    /// How many there are, and how many answer.
    pub(super) fn counts(&self) -> (usize, usize) {
        let states = self.0.lock();
        (states.len(), states.iter().filter(|peer| peer.problem.is_none()).count())
    }

    fn set(&self, at: usize, problem: Option<String>) {
        if let Some(peer) = self.0.lock().get_mut(at) {
            peer.problem = problem;
        }
    }
}

/// All peers, and the place where their lists are put, which goes with this.
pub(super) struct Peers {
    _place: Option<PeerPlace>,
    peers: Vec<Peer>,
    states: PeerStates,
}

/// One peer.
#[derive(Clone)]
struct Peer {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<TlsConnector>,
    authorization: Option<HeaderValue>,
    directory: PathBuf,
}

impl Peers {
    /// Prepares to ask these.
    ///
    /// # Errors
    ///
    /// An address is none, a file cannot be read, or there is no place for lists.
    pub(super) fn new(config: &PeerConfig) -> Result<Self> {
        let cannot = |error| Error::new("there is no place for the lists of peers").because(error);
        let place = (!config.urls.is_empty()).then(PeerPlace::new).transpose()?;
        let authorization = config.token_file.as_deref().map(bearer).transpose()?;
        let (mut peers, mut states) = (Vec::new(), Vec::new());
        for (at, url) in config.urls.iter().enumerate() {
            let Some(directory) = place.as_ref().map(|place| place.path().join(at.to_string())) else { break };
            let peer = Peer::new(url, config, authorization.clone(), directory)?;
            for root in peer.roots() {
                fs::create_dir_all(&root).map_err(cannot)?;
            }
            peers.push(peer);
            states.push(PeerState { url: url.clone(), problem: Some("it was not asked yet".to_owned()) });
        }
        Ok(Peers { _place: place, peers, states: PeerStates(Arc::new(Mutex::new(states))) })
    }

    /// Where the lists of the peers are.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.peers.iter().flat_map(Peer::roots).collect()
    }

    /// Whether they answer.
    pub(super) fn states(&self) -> PeerStates {
        self.states.clone()
    }

    /// Asks all of them once, so that the first view has their shares.
    pub(super) async fn ask_once(&self) {
        for (at, peer) in self.peers.iter().enumerate() {
            let asked = peer.ask(&mut BTreeMap::new()).await;
            self.states.set(at, asked.err().map(|error| error.to_string()));
        }
    }

    /// Asks them until this is dropped.
    pub(super) async fn run(&self) {
        let each = self.peers.iter().enumerate().map(|(at, peer)| async move {
            let mut have = BTreeMap::new();
            loop {
                let asked = peer.ask(&mut have).await;
                self.states.set(at, asked.err().map(|error| error.to_string()));
                sleep(ASK_INTERVAL).await;
            }
        });
        futures_util::future::join_all(each).await;
        std::future::pending::<()>().await;
    }
}

fn bearer(path: &Path) -> Result<HeaderValue> {
    let text = read_private_text(path)?;
    let what = || Error::new("there is no token in this file").in_file(path);
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim())).map_err(|_| what())?;
    value.set_sensitive(true);
    Ok(value)
}

fn connector(ca: Option<&Path>) -> Result<TlsConnector> {
    let ca = ca.ok_or_else(|| Error::new("a peer at https:// wants --peer-ca: who signed its certificate"))?;
    let cannot = |what: &str| Error::new(what).in_file(ca);
    let file = File::open(ca).map_err(|error| cannot("cannot read the certificates").because(error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_reader_iter(file) {
        let certificate = certificate.map_err(|error| cannot("there is no certificate here").because(error))?;
        roots.add(certificate).map_err(|error| cannot("this certificate is of no authority").because(error))?;
    }
    if roots.is_empty() {
        return Err(cannot("there is no certificate here"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| Error::new("there is no TLS").because(error))?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

/// What is there of a peer: the name of the newest list by its root and its router.
type Have = BTreeMap<(usize, String), ListName>;

impl Peer {
    fn new(url: &str, config: &PeerConfig, token: Option<HeaderValue>, directory: PathBuf) -> Result<Self> {
        let what =
            || Error::new(format!("{url}: a peer is https://HOST:PORT, or http://127.0.0.1:PORT of this machine"));
        let uri: Uri = url.parse().map_err(|_| what())?;
        let (host, authority) = (uri.host().ok_or_else(what)?, uri.authority().ok_or_else(what)?);
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(what());
        }
        let host = host.trim_matches(['[', ']']).to_owned();
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let (tls, port) = match uri.scheme_str() {
            Some("https") => (Some(connector(config.ca.as_deref())?), 443),
            Some("http") if is_here => (None, 80),
            _ => return Err(what()),
        };
        let port = authority.port_u16().unwrap_or(port);
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| what())?;
        Ok(Peer { host, port, authority, tls, authorization: token, directory })
    }

    /// Directories with a folder for each router: several, since a peer may have several parts of one.
    fn roots(&self) -> Vec<PathBuf> {
        (0..PARTITION_COUNT).map(|part| self.directory.join(part.to_string())).collect()
    }

    /// Asks what it has, and takes over what is new.
    async fn ask(&self, have: &mut Have) -> Result<()> {
        let cannot = |error: std::io::Error| Error::new("it cannot be reached").because(error);
        let silent = || Error::new("it does not answer");
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = timeout(SILENCE_MAX, connecting).await.map_err(|_| silent())?.map_err(cannot)?;
        let Some(tls) = &self.tls else { return self.ask_over(stream, have).await };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| Error::new("its name is none").because(error))?;
        let stream = timeout(SILENCE_MAX, tls.connect(name, stream)).await.map_err(|_| silent())?.map_err(cannot)?;
        self.ask_over(stream, have).await
    }

    async fn ask_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        have: &mut Have,
    ) -> Result<()> {
        let cannot = |error: hyper::Error| Error::new("it speaks no HTTP").because(error);
        let handshake = http1::handshake::<_, Body>(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(cannot)?;
        let connection = tokio::spawn(connection);
        let taken = self.take_over(&mut sender, have).await;
        connection.abort();
        taken
    }

    async fn take_over(&self, sender: &mut SendRequest<Body>, have: &mut Have) -> Result<()> {
        let mut text = Vec::new();
        let mut answer = self.get(sender, "/api/v1/lists").await?;
        while let Some(piece) = next_piece(&mut answer).await? {
            text.extend_from_slice(&piece);
            if text.len() > ANSWER_SIZE_MAX {
                return Err(Error::new("it has more routers than a view can have"));
            }
        }
        let listed: Vec<ListedFile> = serde_json::from_slice(&text)
            .map_err(|error| Error::new("its answer is not that of flowpeel-fleet serve").because(error))?;
        if listed.len() > ROUTER_COUNT_MAX * PARTITION_COUNT {
            return Err(Error::new("it has more routers than a view can have"));
        }
        let (mut parts, mut wanted): (BTreeMap<&str, usize>, BTreeSet<(usize, String)>) = Default::default();
        for file in &listed {
            let part = parts.entry(&file.router).or_default();
            let at = (*part, file.router.clone());
            *part += 1;
            let name = ListName::parse(&file.name).filter(|name| !name.is_changes());
            let Some(name) = name.filter(|_| at.0 < PARTITION_COUNT) else {
                return Err(Error::new("its answer is not that of flowpeel-fleet serve"));
            };
            wanted.insert(at.clone());
            if have.get(&at) != Some(&name) {
                self.fetch(sender, file, &name, &at).await?;
                let folder = self.folder(&at);
                if let Some(before) = have.insert(at, name).filter(|before| *before != name) {
                    drop(fs::remove_file(folder.join(before.path())));
                }
            }
        }
        let gone: Vec<_> = have.keys().filter(|at| !wanted.contains(*at)).cloned().collect();
        for at in gone {
            have.remove(&at);
            drop(fs::remove_dir_all(self.folder(&at)));
        }
        Ok(())
    }

    fn folder(&self, (part, router): &(usize, String)) -> PathBuf {
        self.directory.join(part.to_string()).join(subject::folder(router))
    }

    /// Takes a list over, whole or not at all.
    async fn fetch(
        &self,
        sender: &mut SendRequest<Body>,
        file: &ListedFile,
        name: &ListName,
        at: &(usize, String),
    ) -> Result<()> {
        let folder = self.folder(at);
        let cannot = |error: std::io::Error| Error::new("cannot put its list here").in_file(&folder).because(error);
        fs::create_dir_all(&folder).map_err(cannot)?;
        let mut answer = self.get(sender, &name_of_file(file)).await?;
        let mut new = tempfile::NamedTempFile::new_in(&folder).map_err(cannot)?;
        let mut size = 0;
        while let Some(piece) = next_piece(&mut answer).await? {
            size += piece.len() as u64;
            if size > LIST_SIZE_MAX {
                return Err(Error::new("its list is longer than any that is taken over"));
            }
            new.write_all(&piece).map_err(cannot)?;
        }
        let path = folder.join(name.path());
        fs::create_dir_all(path.parent().unwrap_or(&folder)).map_err(cannot)?;
        new.persist(path).map_err(|error| cannot(error.error))?;
        Ok(())
    }

    /// Sends a request, and returns the body of an answer that is one.
    async fn get(&self, sender: &mut SendRequest<Body>, path: &str) -> Result<axum::body::BodyDataStream> {
        let mut request = Request::get(path).header(HOST, &self.authority);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Body::empty()).map_err(|error| Error::new("it cannot be asked").because(error))?;
        let cannot = |error: hyper::Error| Error::new("it does not answer").because(error);
        let answer = timeout(SILENCE_MAX, sender.send_request(request)).await;
        let answer = answer.map_err(|_| Error::new("it does not answer"))?.map_err(cannot)?;
        match answer.status() {
            StatusCode::OK => Ok(Body::new(answer.into_body()).into_data_stream()),
            StatusCode::UNAUTHORIZED => Err(Error::new("it wants a token, and not this one: --peer-token-file")),
            status => Err(Error::new(format!("it answers with status {}", status.as_u16()))),
        }
    }
}

/// The next piece of an answer; `None` at its end.
async fn next_piece(answer: &mut axum::body::BodyDataStream) -> Result<Option<bytes::Bytes>> {
    let piece = timeout(SILENCE_MAX, answer.next()).await;
    let piece = piece.map_err(|_| Error::new("its answer stopped"))?;
    piece.transpose().map_err(|error| Error::new("its answer broke off").because(error))
}
