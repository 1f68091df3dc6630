//! A network over HTTP: an API, and a page that shows it.
//!
//! It is read-only. Requests are limited in size and time, answers in rows, clients in number and in how long they
//! stay; of too many the oldest has to go, so slow clients cannot keep others out, and they cost a bounded memory. A
//! name under which the server does not know itself is refused: a page of elsewhere that has its name point here gets
//! nothing.

mod answer;
mod exposition;
mod follow;
mod page;

use crate::listen;
use crate::query::{Parameters, Query};
use axum::Router;
use axum::body::Body;
use axum::extract::{Query as UrlQuery, Request, State, rejection::QueryRejection};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use exposition::{Counts, count};
use flowpeel::error::{Error, Result};
use follow::{Follower, Problem, View};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

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

/// How long a question waits for its turn.
const QUESTION_TIME: Duration = Duration::from_secs(10);

/// How often a line is sent to who follows events, when there is none.
const EVENT_INTERVAL: Duration = Duration::from_secs(15);

/// How long the server waits when the system gives it no more clients.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What of the page may be loaded from where: all of it from here, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                              base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The directories with lists.
    pub directories: Vec<PathBuf>,
    /// The address, of the loopback interface.
    pub listen: SocketAddr,
    /// Names of this server beside localhost.
    pub hosts: Vec<String>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    app: Router,
    shared: Arc<Shared>,
    _follower: Follower,
}

/// What all requests share.
struct Shared {
    views: watch::Receiver<Arc<View>>,
    problem: Problem,
    hosts: Vec<String>,
    counts: Counts,
    clients: AtomicUsize,
    questions: Arc<Semaphore>,
}

impl Shared {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }
}

impl Server {
    /// Reads the lists and listens.
    ///
    /// # Errors
    ///
    /// The address is not of this machine's loopback interface or in use, or the directories cannot be read.
    pub async fn new(config: ServeConfig) -> Result<Self> {
        listen::check(config.listen)?;
        let cannot = |error| Error::new(format!("cannot listen at {}", config.listen)).because(error);
        let listener = TcpListener::bind(config.listen).await.map_err(cannot)?;
        let (follower, views) = follow::follow(config.directories)?;
        let shared = Arc::new(Shared {
            views,
            problem: follower.problem.clone(),
            hosts: config.hosts,
            counts: Counts::default(),
            clients: AtomicUsize::new(0),
            questions: Arc::new(Semaphore::new(QUESTION_COUNT_MAX)),
        });
        Ok(Server { listener, app: app(&shared), shared, _follower: follower })
    }

    /// The address at which it listens.
    ///
    /// # Errors
    ///
    /// The system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| Error::new("the address is not known").because(error))
    }

    /// How many routers there are, and how many connections, as the lists say now.
    #[must_use]
    pub fn figures(&self) -> (usize, usize) {
        let view = self.shared.view();
        (view.network.routers.len(), view.network.joined.len())
    }

    /// Serves clients until this is dropped.
    pub async fn run(&self) {
        let mut clients: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            clients.retain(|client| !client.is_finished());
            if clients.len() >= CLIENT_COUNT_MAX
                && let Some(oldest) = clients.pop_front()
            {
                oldest.abort();
                count(&self.shared.counts.pushed_out);
            }
            let guard = Client::new(Arc::clone(&self.shared));
            let serving = serve_client(stream, self.app.clone());
            let client = tokio::spawn(async move {
                serving.await;
                drop(guard);
            });
            clients.push_back(client.abort_handle());
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

/// Answers the requests of a client. What goes wrong with it concerns nobody else.
async fn serve_client(stream: TcpStream, app: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(REQUEST_SIZE_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
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
        .route("/api/v1/events", get(events))
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

/// What is done around every request: a stranger's name for this server is refused, answers are counted, and say what
/// a browser may do with them.
async fn around(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = if is_known(request.headers(), request.uri(), &shared.hosts) {
        next.run(request).await
    } else {
        let what = "this server does not know itself by that name: use localhost, or name it with --host";
        refused(StatusCode::MISDIRECTED_REQUEST, what)
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

async fn connections(
    State(shared): State<Arc<Shared>>,
    parameters: std::result::Result<UrlQuery<Parameters>, QueryRejection>,
) -> Response {
    let parameters = match parameters {
        Ok(UrlQuery(parameters)) => parameters,
        Err(rejection) => return refused(StatusCode::BAD_REQUEST, &rejection.body_text()),
    };
    let query = match Query::try_from(&parameters) {
        Ok(query) => query,
        Err(bad) => return json(StatusCode::BAD_REQUEST, answer::bad_query(&bad)),
    };
    let view = shared.view();
    in_turn(shared, move || answer::connections(&view, &query)).await
}

/// Works out an answer beside this thread, when it is its turn.
async fn in_turn(shared: Arc<Shared>, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Response {
    let Ok(Ok(turn)) = timeout(QUESTION_TIME, Arc::clone(&shared.questions).acquire_owned()).await else {
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
