//! What the API answers, as JSON.
//!
//! A connection is the line that a joined list has for it. `openapi.json` describes all answers, and a test holds it
//! against them.

use super::follow::View;
use crate::joined_list::Lines;
use crate::network::{self, Router};
use crate::query::{BadQuery, GroupPage, Page, Query, RowPage};
use flowpeel::export::rfc3339;
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
            complete: network::is_complete(routers),
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
    let BadQuery { parameter, reason, position } = bad;
    json(&ErrorAnswer { error: ErrorFields { reason, parameter: Some(parameter), position: *position } })
}

/// The page of connections or groups that a query asks for.
pub(super) fn connections(view: &View, query: &Query) -> Vec<u8> {
    match query.page(&view.network) {
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
        value: group.value,
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
    json(&RoutersAnswer { view: ViewFields::of(view, &routers), routers: &routers, problem })
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
