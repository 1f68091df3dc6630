//! What the Linux kernel knows of TCP connections: those that its connection tracking (conntrack) has in its table,
//! with their names on both sides of a translation, and the sockets of the host.
//!
//! [`Follower`] reads the table when a capture begins and follows its changes. [`Table`] and [`sockets`] are
//! read as a whole, to hold lists against them.

mod conntrack;
mod follower;
mod nat_rules;
mod netlink;
mod routes;
mod sockets;

pub use conntrack::{Change, Changes, Received, Stage, Table, Tracked};
pub use follower::{Follower, FollowerConfig};
pub use nat_rules::translates;
pub use routes::Routes;
pub use sockets::{HostSocket, sockets};
