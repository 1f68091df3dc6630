//! The lists of many routers -> one list of the network, in which each connection stands once and names the routers
//! that see it.
//!
//! It takes the last list in full of each router and merges them by key, line by line, so it takes memory for routers
//! and none for connections. How old a list is counts from the newest of all: a router whose list is late is in it and
//! marked; one whose list is too old is gone, and what it had listed is not in it.

use crate::subject;
use flowpeel::error::{Error, Result};
use flowpeel::export::{FileLine, ListFile, rfc3339};
use flowpeel::flow::AnyKey;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much older than the newest list a router's may be.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Beyond this a router is late.
    pub late: Duration,
    /// Beyond this it is gone.
    pub gone: Duration,
}

/// How far a router's list can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// It is as new as the others.
    Current,
    /// It is older, and in the view.
    Late,
    /// It is too old to be in the view.
    Gone,
}

/// A router and its last list.
#[derive(Clone, Debug)]
pub struct Member {
    /// The router's name.
    pub name: String,
    /// The file of the list.
    pub path: PathBuf,
    /// When the list ends, in ns since 1970.
    pub end_ns: i64,
    /// How much earlier than the newest list of all it ends, in ns.
    pub age_ns: i64,
    /// Whether all that is open is in it.
    pub is_complete: bool,
    /// How far it can be relied on.
    pub presence: Presence,
}

/// The routers whose lists are in this directory, in the order of their names.
///
/// # Errors
///
/// The directory cannot be read, or a list is damaged.
pub fn members(lists: &Path, patience: Patience) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for folder in entries(lists)? {
        let Some(name) = subject::router_of_folder(&folder) else { continue };
        let directory = lists.join(&folder);
        if !directory.is_dir() {
            continue;
        }
        // Names order by time, then by number.
        let last = entries(&directory)?.into_iter().filter(|name| is_full_list(name)).max();
        let Some(path) = last.map(|last| directory.join(last)) else { continue };
        let list = ListFile::open(&path)?;
        let (end_ns, is_complete) = (list.end_ns, list.is_complete);
        members.push(Member { name, path, end_ns, age_ns: 0, is_complete, presence: Presence::Current });
    }
    let newest_ns = members.iter().map(|member| member.end_ns).max().unwrap_or(0);
    for member in &mut members {
        member.age_ns = newest_ns.saturating_sub(member.end_ns);
        let age = Duration::from_nanos(member.age_ns.unsigned_abs());
        member.presence = match age {
            age if age > patience.gone => Presence::Gone,
            age if age > patience.late => Presence::Late,
            _ => Presence::Current,
        };
    }
    members.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(members)
}

fn is_full_list(name: &str) -> bool {
    name.starts_with("flows-") && (name.ends_with(".ndjson") || name.ends_with(".ndjson.zst"))
}

fn entries(directory: &Path) -> Result<Vec<String>> {
    let cannot = |error: io::Error| Error::new("cannot look for lists here").in_file(directory).because(error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        names.extend(entry.map_err(cannot)?.file_name().into_string());
    }
    Ok(names)
}

/// A connection of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The connection.
    pub key: AnyKey,
    /// The earliest start that a router knows, in ns since 1970 by that router's clock.
    pub start_ns: i64,
    /// Which of the members see it, in their order.
    pub members: Vec<usize>,
}

/// A list that is being read, with its next connection.
struct Reading {
    file: ListFile,
    path: PathBuf,
    last: Option<AnyKey>,
}

impl Reading {
    /// The next established connection and its start.
    fn next(&mut self) -> Result<Option<(AnyKey, i64)>> {
        while let Some(line) = self.file.next_line()? {
            let FileLine::Listed(known, _) = line else { continue };
            if self.last.replace(known.key).is_some_and(|last| last >= known.key) {
                return Err(Error::new("this list is not in the order of its connections").in_file(&self.path));
            }
            return Ok(Some((known.key, self.file.end_ns.saturating_sub(known.age_ns))));
        }
        Ok(None)
    }
}

/// Passes each established connection that a member which is not gone has listed to `visit`, in the order of keys.
///
/// Complexity: a pass over all lists, with a heap of the members.
///
/// # Errors
///
/// A list cannot be read, or is damaged; or what `visit` returns.
pub fn join(members: &[Member], mut visit: impl FnMut(&Joined) -> Result<()>) -> Result<()> {
    let mut readings = Vec::new();
    let mut next = BinaryHeap::new();
    for (at, member) in members.iter().enumerate().filter(|(_, member)| member.presence != Presence::Gone) {
        let mut reading = Reading { file: ListFile::open(&member.path)?, path: member.path.clone(), last: None };
        next.extend(reading.next()?.map(|(key, start_ns)| Reverse((key, at, start_ns, readings.len()))));
        readings.push(reading);
    }
    while let Some(Reverse((key, at, start_ns, index))) = next.pop() {
        let mut joined = Joined { key, start_ns, members: vec![at] };
        next.extend(readings[index].next()?.map(|(key, start_ns)| Reverse((key, at, start_ns, index))));
        while let Some(Reverse((_, at, start_ns, index))) =
            next.peek().copied().filter(|Reverse((next, ..))| *next == key)
        {
            next.pop();
            joined.members.push(at);
            joined.start_ns = joined.start_ns.min(start_ns);
            next.extend(readings[index].next()?.map(|(key, start_ns)| Reverse((key, at, start_ns, index))));
        }
        visit(&joined)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    flow_view: HeaderFields<'a>,
}

#[derive(Serialize)]
struct HeaderFields<'a> {
    end: &'a str,
    complete: bool,
    flows: u64,
    routers: Vec<RouterFields<'a>>,
}

#[derive(Serialize)]
struct RouterFields<'a> {
    router: &'a str,
    end: String,
    age: f64,
    presence: Presence,
    complete: bool,
}

#[derive(Serialize)]
struct FlowLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    src_ip: String,
    src_port: u16,
    dest_ip: String,
    dest_port: u16,
    proto: &'static str,
    routers: Vec<&'a str>,
    flow: FlowFields,
}

#[derive(Serialize)]
struct FlowFields {
    start: String,
    state: &'static str,
}

/// Writes the view of the network as NDJSON: a header with its routers, then a line for each connection, in the order
/// of keys.
///
/// Complexity: two passes over all lists.
///
/// # Errors
///
/// A list cannot be read, or is damaged; or the view cannot be written.
pub fn write(out: impl Write, members: &[Member]) -> Result<()> {
    let mut flow_count = 0;
    join(members, |_| {
        flow_count += 1;
        Ok(())
    })?;
    let end = rfc3339(members.iter().map(|member| member.end_ns).max().unwrap_or(0));
    let router = |member| {
        let Member { name, end_ns, age_ns, is_complete, presence, .. }: &'_ Member = member;
        RouterFields {
            router: name,
            end: rfc3339(*end_ns),
            age: *age_ns as f64 / 1e9,
            presence: *presence,
            complete: *is_complete,
        }
    };
    let is_complete = |member: &Member| member.is_complete && member.presence == Presence::Current;
    let flow_view = HeaderFields {
        end: &end,
        complete: !members.is_empty() && members.iter().all(is_complete),
        flows: flow_count,
        routers: members.iter().map(router).collect(),
    };
    let mut out = BufWriter::new(out);
    line(&mut out, &HeaderLine { timestamp: &end, event_type: "flow_view", flow_view })?;
    join(members, |joined| {
        let (client, server) = (joined.key.client(), joined.key.server());
        let flow = FlowLine {
            timestamp: &end,
            event_type: "flow",
            src_ip: client.ip().to_string(),
            src_port: client.port(),
            dest_ip: server.ip().to_string(),
            dest_port: server.port(),
            proto: "TCP",
            routers: joined.members.iter().map(|at| members[*at].name.as_str()).collect(),
            flow: FlowFields { start: rfc3339(joined.start_ns), state: "established" },
        };
        line(&mut out, &flow)
    })?;
    out.flush().map_err(cannot_write)
}

fn line(out: &mut impl Write, line: &impl Serialize) -> Result<()> {
    serde_json::to_writer(&mut *out, line).map_err(|error| cannot_write(error.into()))?;
    out.write_all(b"\n").map_err(cannot_write)
}

fn cannot_write(error: io::Error) -> Error {
    Error::new("cannot write the view").because(error)
}
