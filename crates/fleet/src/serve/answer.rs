//! What the API answers, as JSON.
//!
//! A connection is the line that a joined list has for it. `openapi.json` describes all answers, and a test holds it
//! against them.

use super::follow::View;
use crate::group_order::GroupOrders;
use crate::history::Course;
use crate::joined_list::Lines;
use crate::life::Life;
use crate::network::{self, Router};
use crate::past::PastPage;
use crate::query::{BadQuery, GroupPage, Page, Query, RowPage};
use flowpeel::export::{ArchivedFlow, append_archived, rfc3339};
use serde::Serialize;

/// What a view says of itself.
#[derive(Serialize)]
struct ViewFields {
    view: u64,
    end: String,
    complete: bool,
    missing: u64,
    connections: usize,
    established: usize,
    half_open: usize,
    routers: usize,
    routers_in_view: usize,
}

impl ViewFields {
    fn of(view: &View, routers: &[Router]) -> Self {
        let joined = &view.network.joined;
        ViewFields {
            view: view.number,
            end: rfc3339(joined.end_ns()),
            complete: view.is_complete(routers),
            missing: network::missing(routers),
            connections: joined.len(),
            established: joined.established_count(),
            half_open: joined.len() - joined.established_count(),
            routers: routers.len(),
            routers_in_view: view.network.member_count(),
        }
    }
}

#[derive(Serialize)]
struct ErrorAnswer<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
}

/// Why there is no answer.
pub(super) fn error(reason: &str) -> Vec<u8> {
    json(&ErrorAnswer { error: ErrorFields { reason, parameter: None, position: None } })
}

/// Why a request is none.
pub(super) fn bad_query(bad: &BadQuery) -> Vec<u8> {
    let BadQuery { parameter, reason, position, .. } = bad;
    json(&ErrorAnswer { error: ErrorFields { reason, parameter: Some(parameter), position: *position } })
}

/// The page of connections or groups that a query asks for.
pub(super) fn connections(view: &View, query: &Query, orders: &GroupOrders) -> Vec<u8> {
    match query.page(&view.network, orders) {
        Page::Rows(page) => rows(view, &page),
        Page::Groups(page) => groups(view, page),
    }
}

/// The beginning of an answer, up to the fields that are its own.
fn begin(view: &View, selected: u64) -> Vec<u8> {
    let mut answer = b"{\"view\":".to_vec();
    answer.extend(json(&ViewFields::of(view, &view.routers())));
    answer.extend(format!(",\"selected\":{selected},").into_bytes());
    answer
}

/// The end of an answer.
fn finish(mut answer: Vec<u8>, next: Option<&str>) -> Vec<u8> {
    answer.extend_from_slice(b",\"next\":");
    answer.extend(json(&next));
    answer.push(b'}');
    answer
}

fn rows(view: &View, page: &RowPage) -> Vec<u8> {
    let mut answer = begin(view, page.selected);
    answer.extend_from_slice(b"\"connections\":[");
    let mut lines = Lines::new(&view.network);
    for (at, (row, seen)) in page.rows.iter().enumerate() {
        if at > 0 {
            answer.push(b',');
        }
        lines.append(&mut answer, row, *seen);
        // The newline that ends a line of a list.
        answer.pop();
    }
    answer.push(b']');
    finish(answer, page.next.as_deref())
}

#[derive(Serialize)]
struct GroupFields {
    value: String,
    established: u64,
    half_open: u64,
    oldest_age: f64,
}

fn groups(view: &View, page: GroupPage) -> Vec<u8> {
    let mut answer = begin(view, page.selected);
    let fields = page.groups.into_iter().map(|group| GroupFields {
        value: group.name.to_string(),
        established: group.established,
        half_open: group.half_open,
        oldest_age: (group.oldest_ns / 1_000) as f64 / 1e6,
    });
    answer.extend(format!("\"group_count\":{},\"groups\":", page.group_count).into_bytes());
    answer.extend(json(&fields.collect::<Vec<_>>()));
    finish(answer, page.next.as_deref())
}

#[derive(Serialize)]
struct RoutersAnswer<'a> {
    view: ViewFields,
    routers: &'a [Router],
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// All routers, and what cannot be read.
pub(super) fn routers(view: &View, problem: Option<String>) -> Vec<u8> {
    let routers = view.routers();
    let problem = problem.or_else(|| view.peers.problem());
    json(&RoutersAnswer { view: ViewFields::of(view, &routers), routers: &routers, problem })
}

#[derive(Serialize)]
struct HistoryAnswer<'a> {
    router: Option<&'a str>,
    step: f64,
    kept_since: Option<String>,
    routers: u64,
    points: Vec<PointFields>,
}

#[derive(Serialize)]
struct PointFields {
    end: String,
    open: u64,
    half_open: u64,
    opened: u64,
    closed: u64,
    missing: u64,
    dropped: u64,
    complete: bool,
    routers: u64,
}

/// What was open, opened, closed and lost.
pub(super) fn history(course: &Course, router: Option<&str>) -> Vec<u8> {
    let points = course.points.iter().map(|point| PointFields {
        end: rfc3339(point.end_ns),
        open: point.open,
        half_open: point.half_open,
        opened: point.opened,
        closed: point.closed,
        missing: point.missing,
        dropped: point.dropped,
        complete: point.is_complete,
        routers: point.routers,
    });
    json(&HistoryAnswer {
        router,
        step: course.step_ns as f64 / 1e9,
        kept_since: course.kept_since_ns.map(rfc3339),
        routers: course.routers,
        points: points.collect(),
    })
}

#[derive(Serialize)]
struct LifeAnswer<'a> {
    complete: bool,
    problems: &'a [String],
    searched_since: Option<String>,
    lists: u64,
    routers: Vec<RouterStages<'a>>,
}

#[derive(Serialize)]
struct RouterStages<'a> {
    name: &'a str,
    stages: Vec<StageFields>,
}

#[derive(Serialize)]
struct StageFields {
    state: &'static str,
    start: String,
    since: String,
    until: String,
    lists: u64,
}

/// What became of a connection, by the lists.
pub(super) fn life(life: &Life) -> Vec<u8> {
    let routers = life.routers.iter().map(|router| RouterStages {
        name: &router.router,
        stages: router
            .stages
            .iter()
            .map(|stage| StageFields {
                state: stage.state.name(),
                start: rfc3339(stage.start_ns),
                since: rfc3339(stage.since_ns),
                until: rfc3339(stage.until_ns),
                lists: stage.lists,
            })
            .collect(),
    });
    json(&LifeAnswer {
        complete: life.is_whole,
        problems: &life.problems,
        searched_since: life.searched_since_ns.map(rfc3339),
        lists: life.lists,
        routers: routers.collect(),
    })
}

/// A page of connections of archives: the lines that `flowpeel find` prints, each with its router.
pub(super) fn past(page: &PastPage) -> Vec<u8> {
    let mut answer = format!("{{\"complete\":{},\"problems\":", page.is_whole).into_bytes();
    answer.extend(json(&page.problems));
    answer.extend_from_slice(b",\"connections\":[");
    for (at, (entry, router)) in page.entries.iter().enumerate() {
        if at > 0 {
            answer.push(b',');
        }
        append_archived(&mut answer, &ArchivedFlow::from(entry));
        // The end of the line, and of the object.
        answer.truncate(answer.len() - 2);
        answer.extend_from_slice(b",\"router\":");
        answer.extend(json(router));
        answer.push(b'}');
    }
    answer.push(b']');
    finish(answer, page.next.as_deref())
}

/// The event that a view has come.
pub(super) fn event(view: &View) -> Vec<u8> {
    let mut event = b"event: view\ndata: ".to_vec();
    event.extend(json(&ViewFields::of(view, &view.routers())));
    event.extend_from_slice(b"\n\n");
    event
}

/// JSON. Numbers and texts can always be written.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
