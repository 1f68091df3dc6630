//! Questions about the past: how many connections there were, what became of one, which ones an address had.

use super::{Refusal, Shared, answer, in_turn, refused};
use crate::history::{POINT_COUNT_MAX, Span};
use crate::life::life;
use crate::past::{self, PastQuery};
use crate::query::{BadQuery, bad, page_limit, tags};
use axum::extract::{Query as UrlQuery, State, rejection::QueryRejection};
use axum::http::StatusCode;
use axum::response::Response;
use flowpeel::archive::{Query, Question};
use flowpeel::flow::AnyKey;
use flowpeel::select::{duration, time_ns};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The points of an answer unless the request says: more than a screen has place for bars.
const POINT_COUNT: usize = 300;

/// The longest time for which archives are searched for one answer.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(8);

type Asked<T> = Result<UrlQuery<T>, QueryRejection>;

/// A time: itself, or so long before the view ends.
fn time(parameter: &'static str, text: Option<&str>, end_ns: i64) -> Result<Option<i64>, BadQuery> {
    let ago = |text| end_ns.checked_sub(i64::try_from(duration(text)?.as_nanos()).ok()?);
    let what = "a time is 2026-01-01T00:00:00Z, a day, 2026-01-01, in UTC, or so long before the view ends: 2h, 5d";
    text.map(|text| time_ns(text).or_else(|| ago(text)).ok_or_else(|| bad(parameter, what))).transpose()
}

/// A request for the figures of intervals.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParameters {
    router: Option<String>,
    since: Option<String>,
    until: Option<String>,
    points: Option<String>,
}

impl HistoryParameters {
    fn span(self, end_ns: i64) -> Result<Span, BadQuery> {
        let points = self.points.map_or(Some(POINT_COUNT), |text| text.parse().ok());
        let points = points.filter(|points| (1..=POINT_COUNT_MAX).contains(points));
        let what = || bad("points", format!("points is a number from 1 to {POINT_COUNT_MAX}"));
        Ok(Span {
            router: self.router,
            since_ns: time("since", self.since.as_deref(), end_ns)?,
            until_ns: time("until", self.until.as_deref(), end_ns)?,
            point_count: points.ok_or_else(what)?,
        })
    }
}

/// What was open, opened, closed and lost.
pub(super) async fn history(
    State(shared): State<Arc<Shared>>,
    asked: Asked<HistoryParameters>,
) -> Result<Response, Refusal> {
    let UrlQuery(asked) = asked?;
    let span = asked.span(shared.view().network.joined.end_ns())?;
    let history = Arc::clone(&shared.history);
    let work = move || {
        let course = history.read().course(&span);
        answer::history(&course, span.router.as_deref())
    };
    Ok(in_turn(&shared.questions, work).await)
}

/// A request for the life of a connection.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LifeParameters {
    client: Option<String>,
    server: Option<String>,
    #[serde(default)]
    vlan: String,
}

fn end(parameter: &'static str, text: Option<&str>) -> Result<SocketAddr, BadQuery> {
    let what = "this is an address with a port: 10.0.0.1:443, [::1]:443";
    text.and_then(|text| text.parse().ok()).ok_or_else(|| bad(parameter, format!("{parameter}: {what}")))
}

impl LifeParameters {
    fn key(&self) -> Result<AnyKey, BadQuery> {
        let (client, server) = (end("client", self.client.as_deref())?, end("server", self.server.as_deref())?);
        let vlan = tags(&self.vlan).ok_or_else(|| bad("vlan", "vlan is one tag, or two: 10.20"))?;
        let what = "client and server are of one family of addresses";
        AnyKey::of_ends(client, server, vlan).ok_or_else(|| bad("server", what))
    }
}

/// What became of a connection, by the lists that are kept.
pub(super) async fn one_life(
    State(shared): State<Arc<Shared>>,
    asked: Asked<LifeParameters>,
) -> Result<Response, Refusal> {
    let UrlQuery(asked) = asked?;
    let key = asked.key()?;
    let view = shared.view();
    Ok(in_turn(&shared.long_questions, move || answer::life(&life(&view.places, &key))).await)
}

/// A request for connections of archives.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PastParameters {
    end: Option<String>,
    other: Option<String>,
    #[serde(default)]
    filter: String,
    since: Option<String>,
    until: Option<String>,
    limit: Option<String>,
    after: Option<String>,
}

impl PastParameters {
    fn query(&self, end_ns: i64) -> Result<PastQuery, BadQuery> {
        let what = "end is an address, or an address and a port: 10.0.0.1, 10.0.0.1:443";
        let one = self.end.as_deref().ok_or_else(|| bad("end", what))?;
        let one = PastQuery::endpoint("end", one)?;
        let other = self.other.as_deref().map(|other| PastQuery::endpoint("other", other)).transpose()?;
        let question = Question {
            ends: Some(Query { one, other }),
            filter: crate::query::filter(&self.filter)?,
            since_ns: time("since", self.since.as_deref(), end_ns)?,
            until_ns: time("until", self.until.as_deref(), end_ns)?,
        };
        PastQuery::new(question, page_limit(self.limit.as_deref())?, self.after.as_deref())
    }
}

/// Connections of an address, of which most have ended.
pub(super) async fn past(State(shared): State<Arc<Shared>>, asked: Asked<PastParameters>) -> Result<Response, Refusal> {
    if shared.archives.is_empty() {
        let what = "there is no archive: flowpeel live --archive DIR writes one, and serve --archive DIR shows it";
        return Ok(refused(StatusCode::NOT_FOUND, what));
    }
    let UrlQuery(asked) = asked?;
    let query = asked.query(shared.view().network.joined.end_ns())?;
    let archives = Arc::clone(&shared.archives);
    let work = move || {
        let began = Instant::now();
        answer::past(&past::past(&archives, &query, || began.elapsed() < SEARCH_TIME_MAX))
    };
    Ok(in_turn(&shared.long_questions, work).await)
}
