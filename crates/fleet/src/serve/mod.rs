//! A network over HTTP: an API, and a page that shows it.
//!
//! It is read-only. Requests are limited in size and time, answers in rows, clients in number and in how long they
//! stay; of too many some have to go (`clients`), so slow clients cannot keep others out, and they cost a bounded
//! memory.
//!
//! Without a token this machine alone may ask, and a name under which the server does not know itself is refused: a
//! page of elsewhere that has its name point here gets nothing. With one, and TLS, it is the token that opens.

mod access;
mod answer;
mod clients;
mod exposition;
mod follow;
mod lists;
mod page;
mod past;
mod peer_place;
mod peers;
mod tls;

use crate::group_order::GroupOrders;
use crate::history::History;
use crate::past::RouterArchive;
use crate::query::{BadQuery, Parameters, Query};
use access::Access;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query as UrlQuery, Request, State, rejection::QueryRejection};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use clients::{Clients, Standing};
use exposition::{Counts, count};
use flowpeel::error::{Error, Result};
use flowpeel::metrics::http::is_exposed;
use follow::{Follower, Problem, View};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
pub use peers::PeerConfig;
use peers::Peers;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// The most clients at once: more than people look, and with an answer for each a few dozen MiB.
const CLIENT_COUNT_MAX: usize = 128;

/// The longest request in bytes, without a body, which none has: a filter of 4 KiB, each byte written as three.
const REQUEST_SIZE_MAX: usize = 16 << 10;

/// How long a client may take for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// After this time a connection ends when its answer is sent; who follows events connects again.
const CONNECTION_TIME: Duration = Duration::from_secs(120);

/// How long its last answer may take then.
const LAST_ANSWER_TIME: Duration = Duration::from_secs(15);

/// How many questions are answered at once: each takes a core.
const QUESTION_COUNT_MAX: usize = 2;

/// How many of the questions that read lists or archives are answered at once: others need not wait for them.
const LONG_QUESTION_COUNT_MAX: usize = 1;

/// How long a question waits for its turn.
const QUESTION_TIME: Duration = Duration::from_secs(10);

/// How often a line is sent to who follows events, when there is none.
const EVENT_INTERVAL: Duration = Duration::from_secs(15);

/// How long the server waits when the system gives it no more clients.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What of the page may be loaded from where: all of it from here, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                              base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where a browser shows the token for a cookie, and gives the cookie back.
const SESSION_PATH: &str = "/session";

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The directories with lists.
    pub directories: Vec<PathBuf>,
    /// The archives of routers.
    pub archives: Vec<PathBuf>,
    /// The address. One that other machines reach wants TLS and a token.
    pub listen: SocketAddr,
    /// Names of this server beside localhost.
    pub hosts: Vec<String>,
    /// The files with the certificate and its key.
    pub tls: Option<TlsFiles>,
    /// The file with the token that opens.
    pub token_file: Option<PathBuf>,
    /// Where the shares of other collectors are.
    pub peers: PeerConfig,
}

impl ServeConfig {
    /// Checks that strangers get nothing.
    fn check(&self) -> Result<()> {
        if is_exposed(self.listen) && (self.tls.is_none() || self.token_file.is_none()) {
            let what = "other machines may ask only over TLS and with a token: --tls-certificate, --tls-key and \
                        --token-file; or listen at 127.0.0.1 or [::1], and let others in by ssh -L or a reverse proxy \
                        that asks who they are";
            return Err(Error::new(format!("{}: {what}", self.listen)));
        }
        Ok(())
    }
}

/// What TLS needs.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, with those that lead to its authority behind it.
    pub certificate: PathBuf,
    /// Its key, which nobody but the owner may read.
    pub key: PathBuf,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    shared: Arc<Shared>,
    peers: Peers,
    _follower: Follower,
}

/// What all requests share.
struct Shared {
    views: watch::Receiver<Arc<View>>,
    problem: Problem,
    history: Arc<RwLock<History>>,
    archives: Arc<Vec<RouterArchive>>,
    /// What pages of groups follow.
    group_orders: Arc<GroupOrders>,
    hosts: Vec<String>,
    /// Who may ask; `None` where this machine alone can.
    access: Option<Access>,
    counts: Counts,
    clients: AtomicUsize,
    questions: Arc<Semaphore>,
    /// Turns of questions that read files.
    long_questions: Arc<Semaphore>,
}

impl Shared {
    /// Why a request is refused, if it is: it asks for another host, or comes without the token.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let Some(access) = &self.access else {
            let what = "this server does not know itself by that name: use localhost, or name it with --host";
            let is_known = is_known(request.headers(), request.uri(), &self.hosts);
            return (!is_known).then(|| refused(StatusCode::MISDIRECTED_REQUEST, what));
        };
        let path = request.uri().path();
        // The page asks for the token, so it is there without one. It knows nothing.
        let is_open = path == SESSION_PATH || page::paths().any(|file| file == path);
        (!is_open && !access.permits(request.headers())).then(|| unauthorized("this wants the token of --token-file"))
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }
}

impl Server {
    /// Reads the lists and listens.
    ///
    /// # Errors
    ///
    /// Other machines reach the address, and TLS or a token is missing; it is in use; or a file or directory cannot be
    /// read.
    pub async fn new(config: ServeConfig) -> Result<Self> {
        config.check()?;
        let tls = config.tls.as_ref().map(|files| tls::acceptor(&files.certificate, &files.key)).transpose()?;
        let access = config.token_file.as_deref().map(Access::read).transpose()?;
        let cannot = |error| Error::new(format!("cannot listen at {}", config.listen)).because(error);
        let listener = TcpListener::bind(config.listen).await.map_err(cannot)?;
        let archives = config.archives.iter().map(|directory| RouterArchive::new(directory)).collect::<Result<_>>()?;
        let peers = Peers::new(&config.peers)?;
        peers.ask_once().await;
        let (follower, views) = follow::follow(config.directories, &peers)?;
        let shared = Arc::new(Shared {
            views,
            problem: follower.problem.clone(),
            history: Arc::clone(&follower.history),
            archives: Arc::new(archives),
            group_orders: Arc::default(),
            hosts: config.hosts,
            access,
            counts: Counts::default(),
            clients: AtomicUsize::new(0),
            questions: Arc::new(Semaphore::new(QUESTION_COUNT_MAX)),
            long_questions: Arc::new(Semaphore::new(LONG_QUESTION_COUNT_MAX)),
        });
        Ok(Server { listener, tls, app: app(&shared), shared, peers, _follower: follower })
    }

    /// Where a browser finds it.
    ///
    /// # Errors
    ///
    /// The system does not say at which address it listens.
    pub fn url(&self) -> Result<String> {
        let address = self.listener.local_addr();
        let address = address.map_err(|error| Error::new("the address is not known").because(error))?;
        Ok(format!("{}://{address}/", if self.tls.is_some() { "https" } else { "http" }))
    }

    /// How many routers there are, and how many connections, as the lists say now.
    #[must_use]
    pub fn figures(&self) -> (usize, usize) {
        let view = self.shared.view();
        (view.network.routers.len(), view.network.joined.len())
    }

    /// Serves clients, and asks peers, until this is dropped.
    pub async fn run(&self) {
        tokio::join!(self.serve_clients(), self.peers.run());
    }

    async fn serve_clients(&self) {
        let mut clients = Clients::new(CLIENT_COUNT_MAX);
        loop {
            let Ok((stream, address)) = self.listener.accept().await else {
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            if clients.make_room() {
                count(&self.shared.counts.pushed_out);
            }
            clients.take(address.ip(), |standing| {
                let guard = Client::new(Arc::clone(&self.shared));
                let serving = serve_client(stream, self.tls.clone(), self.app.clone(), standing);
                let client = tokio::spawn(async move {
                    serving.await;
                    drop(guard);
                });
                client.abort_handle()
            });
        }
    }
}

/// A client, for as long as it is connected.
struct Client(Arc<Shared>);

impl Client {
    fn new(shared: Arc<Shared>) -> Self {
        shared.clients.fetch_add(1, Ordering::Relaxed);
        Client(shared)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers the requests of a client, over TLS if it is asked for. What goes wrong with it concerns nobody else.
async fn serve_client(stream: TcpStream, tls: Option<TlsAcceptor>, app: Router, standing: Arc<Standing>) {
    let Some(tls) = tls else { return serve_stream(stream, app, standing).await };
    if let Ok(Ok(stream)) = timeout(HEAD_TIME, tls.accept(stream)).await {
        serve_stream(stream, app, standing).await;
    }
}

async fn serve_stream(stream: impl AsyncRead + AsyncWrite + Unpin, app: Router, standing: Arc<Standing>) {
    let app = TowerToHyperService::new(app);
    let answer = service_fn(move |request| {
        let (standing, answer) = (Arc::clone(&standing), app.call(request));
        async move {
            let _answering = standing.answering();
            answer.await
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(REQUEST_SIZE_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    if timeout(CONNECTION_TIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(timeout(LAST_ANSWER_TIME, connection).await);
    }
}

fn app(shared: &Arc<Shared>) -> Router {
    let nothing = || refused(StatusCode::NOT_FOUND, "there is nothing here");
    let page = move |uri: Uri| async move { page::file(uri.path()).unwrap_or_else(nothing) };
    let mut app = Router::new();
    for path in page::paths() {
        app = app.route(path, get(page));
    }
    app.route("/api/v1/connections", get(connections))
        .route("/api/v1/routers", get(routers))
        .route("/api/v1/lists", get(lists::lists))
        .route("/api/v1/lists/{number}/{name}", get(lists::list))
        .route("/api/v1/history", get(past::history))
        .route("/api/v1/life", get(past::one_life))
        .route("/api/v1/past", get(past::past))
        .route("/api/v1/events", get(events))
        .route(SESSION_PATH, post(begin_session).delete(end_session))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(|| async { json(StatusCode::OK, include_bytes!("openapi.json").to_vec()) }))
        .fallback(move || async move { nothing() })
        .layer(middleware::from_fn_with_state(Arc::clone(shared), around))
        .with_state(Arc::clone(shared))
}

fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
}

fn refused(status: StatusCode, reason: &str) -> Response {
    json(status, answer::error(reason))
}

/// What is done around every request: a stranger is refused, answers are counted, and say what a browser may do with
/// them.
async fn around(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = match shared.refusal(&request) {
        None => next.run(request).await,
        Some(refusal) => refusal,
    };
    count(match response.status() {
        StatusCode::SERVICE_UNAVAILABLE => &shared.counts.overloaded,
        status if status.is_success() => &shared.counts.answered,
        _ => &shared.counts.refused,
    });
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn unauthorized(reason: &str) -> Response {
    let mut response = refused(StatusCode::UNAUTHORIZED, reason);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Gives who shows the token a cookie for it.
async fn begin_session(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match &shared.access {
        None => refused(StatusCode::NOT_FOUND, "there is no token here: everybody who gets in may ask"),
        Some(access) if access.shows_token(&headers) => with_cookie(access.cookie()),
        Some(_) => unauthorized("this is not the token"),
    }
}

/// Takes the cookie back.
async fn end_session() -> Response {
    with_cookie(access::no_cookie())
}

fn with_cookie(cookie: Option<HeaderValue>) -> Response {
    let mut response = (StatusCode::NO_CONTENT, [(CACHE_CONTROL, "no-store")]).into_response();
    response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// Whether a request names this server as this machine, or by a name that it was given.
fn is_known(headers: &HeaderMap, uri: &Uri, hosts: &[String]) -> bool {
    let mut named = headers.get_all(HOST).iter();
    let (host, other) = (named.next().and_then(|host| host.to_str().ok()), named.next());
    let of_uri = uri.authority().map(|authority| authority.as_str());
    let is_own = |authority: &str| {
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map(|(host, _)| host),
            None => authority.split(':').next(),
        };
        host.is_some_and(|host| {
            host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
                || host.eq_ignore_ascii_case("localhost")
                || hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
        })
    };
    other.is_none() && host.is_some_and(is_own) && of_uri.is_none_or(is_own)
}

/// Why a request is none.
enum Refusal {
    /// It has parameters that nobody knows, or twice.
    Rejected(QueryRejection),
    /// A parameter is none.
    Bad(BadQuery),
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Refusal::Rejected(rejection)
    }
}

impl From<BadQuery> for Refusal {
    fn from(bad: BadQuery) -> Self {
        Refusal::Bad(bad)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::Rejected(rejection) => refused(StatusCode::BAD_REQUEST, &rejection.body_text()),
            Refusal::Bad(bad) => {
                let status = if bad.is_forgotten { StatusCode::GONE } else { StatusCode::BAD_REQUEST };
                json(status, answer::bad_query(&bad))
            }
        }
    }
}

async fn connections(
    State(shared): State<Arc<Shared>>,
    parameters: std::result::Result<UrlQuery<Parameters>, QueryRejection>,
) -> std::result::Result<Response, Refusal> {
    let UrlQuery(parameters) = parameters?;
    let orders = Arc::clone(&shared.group_orders);
    let query = Query::new(&parameters, &orders)?;
    let view = shared.view();
    Ok(in_turn(&shared.questions, move || answer::connections(&view, &query, &orders)).await)
}

/// Works out an answer beside this thread, when it is its turn.
async fn in_turn(turns: &Arc<Semaphore>, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Response {
    let Ok(Ok(turn)) = timeout(QUESTION_TIME, Arc::clone(turns).acquire_owned()).await else {
        let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "too many ask at once: ask again");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        return response;
    };
    // The turn goes with the work, which goes on where the client does not wait for it.
    let answer = tokio::task::spawn_blocking(move || {
        let answer = work();
        drop(turn);
        answer
    });
    match answer.await {
        Ok(answer) => json(StatusCode::OK, answer),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be worked out"),
    }
}

async fn routers(State(shared): State<Arc<Shared>>) -> Response {
    json(StatusCode::OK, answer::routers(&shared.view(), shared.problem.text()))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let page = exposition::page(&shared.view(), &shared.counts, shared.clients.load(Ordering::Relaxed));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

/// Tells of the view that is there, and of each that comes. Who reads slowly misses some and gets the latest.
async fn events(State(shared): State<Arc<Shared>>) -> Response {
    let mut views = shared.views.clone();
    views.mark_changed();
    let events = futures_util::stream::unfold(views, |mut views| async move {
        let event = match timeout(EVENT_INTERVAL, views.changed()).await {
            Ok(Ok(())) => answer::event(&Arc::clone(&views.borrow_and_update())),
            Ok(Err(_)) => return None,
            Err(_) => b": still here\n\n".to_vec(),
        };
        Some((std::result::Result::<Bytes, Infallible>::Ok(event.into()), views))
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], Body::from_stream(events)).into_response()
}
