//! The columns that lists, archives and events have in common, and their cells: named, and in the order, as in csv.

use super::file::{Cell, Kind};
use crate::export::community_id::{CommunityId, community_id};
use crate::export::flow_line::{ArchivedFlow, CLOSED};
use crate::flow::VlanTags;
use crate::list::{Nat, RowState};
use std::net::SocketAddr;

/// The name of a column, and what it holds.
pub(super) type Column = (&'static str, Kind);

/// What identifies a connection.
pub(super) const ENDS: [Column; 6] = [
    ("src_ip", Kind::Text),
    ("src_port", Kind::Number),
    ("dest_ip", Kind::Text),
    ("dest_port", Kind::Number),
    ("vlan", Kind::OptionalText),
    ("community_id", Kind::UniqueText),
];

/// The course of a connection that may have ended.
pub(super) const COURSE: [Column; 7] = [
    ("start", Kind::Time),
    ("end", Kind::OptionalTime),
    ("age", Kind::Seconds),
    ("state", Kind::Text),
    ("reason", Kind::OptionalText),
    ("midstream", Kind::Flag),
    ("start_is_bound", Kind::Flag),
];

/// The other name of a translated connection.
pub(super) const NAT: [Column; 5] = [
    ("nat_name", Kind::OptionalText),
    ("nat_src_ip", Kind::OptionalText),
    ("nat_src_port", Kind::OptionalNumber),
    ("nat_dest_ip", Kind::OptionalText),
    ("nat_dest_port", Kind::OptionalNumber),
];

/// What the cells of [`ENDS`] and [`NAT`] refer to.
pub(super) struct Names {
    ports: [u16; 2],
    addresses: [String; 2],
    tags: String,
    community_id: CommunityId,
    other: Option<(Nat, [String; 2])>,
}

impl Names {
    pub(super) fn of([client, server]: [SocketAddr; 2], vlan: VlanTags, nat: Option<Nat>) -> Self {
        let tags: Vec<String> = vlan.iter().map(|tag| tag.to_string()).collect();
        Names {
            ports: [client.port(), server.port()],
            addresses: [client, server].map(|end| end.ip().to_string()),
            tags: tags.join(" "),
            community_id: community_id(client, server),
            other: nat.map(|nat| (nat, [nat.client, nat.server].map(|end| end.ip().to_string()))),
        }
    }

    /// The cells of [`ENDS`].
    pub(super) fn ends(&self) -> [Cell<'_>; ENDS.len()] {
        let Names { ports: [client_port, server_port], addresses: [client, server], tags, community_id, .. } = self;
        [
            Cell::Text(client),
            Cell::Number(*client_port),
            Cell::Text(server),
            Cell::Number(*server_port),
            if tags.is_empty() { Cell::None } else { Cell::Text(tags) },
            Cell::Text(community_id.as_str()),
        ]
    }

    /// The cells of [`NAT`].
    pub(super) fn nat(&self) -> [Cell<'_>; NAT.len()] {
        let Some((nat, [client, server])) = &self.other else { return [Cell::None; NAT.len()] };
        [
            Cell::Text(nat.name()),
            Cell::Text(client),
            Cell::Number(nat.client.port()),
            Cell::Text(server),
            Cell::Number(nat.server.port()),
        ]
    }
}

/// The cells of [`COURSE`] of a connection that has ended or not.
pub(super) fn course(flow: &ArchivedFlow, has_ended: bool) -> [Cell<'_>; COURSE.len()] {
    [
        Cell::Time(flow.start_ns),
        if has_ended { Cell::Time(flow.end_ns) } else { Cell::None },
        Cell::Seconds(flow.age_ns),
        Cell::Text(if has_ended { CLOSED } else { RowState::Established.name() }),
        flow.reason.map_or(Cell::None, Cell::Text),
        Cell::Flag(flow.midstream),
        Cell::Flag(flow.start_is_bound),
    ]
}
