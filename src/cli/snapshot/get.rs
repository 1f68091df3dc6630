//! `flowpeel snapshot get`: a snapshot and a connection in, whether it is open out.

use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Failure, Outcome, Status, print};
use crate::error::{Error, Result};
use crate::flow::{AnyKey, VlanTags};
use crate::handover::MIDSTREAM;
use crate::list::RowState;
use crate::snapshot::{Presence, SnapshotFile};
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Look up whether a connection is open in a snapshot, without listing it
///
/// Prints open, not open or unknown. Unknown means that too many connections share the cells of this one: list the
/// snapshot with a base (flowpeel snapshot peel). A connection that is half-open is not open.
///
/// Exit status: 0 it is open, 3 it is not, 4 unknown, 1 something failed, 2 wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot get",
    after_help = "Examples:\n  flowpeel snapshot get --secret-file secret snapshot.flowpeel 10.0.0.1:40000 192.0.2.1:443\n  \
    flowpeel snapshot get --secret-file secret snapshot.flowpeel '[2001:db8::1]:40000' '[2001:db8::2]:443'"
)]
pub(super) struct Arguments {
    /// The snapshot
    file: PathBuf,

    /// The client, which opened it
    #[arg(value_name = "CLIENT:PORT")]
    client: SocketAddr,

    /// The server
    #[arg(value_name = "SERVER:PORT")]
    server: SocketAddr,

    /// The VLAN tag of a router with --vlan-key; of two the outer one first
    #[arg(long, value_name = "TAG", value_parser = clap::value_parser!(u16).range(0..=4095))]
    vlan: Vec<u16>,

    #[command(flatten)]
    secret: SecretOption,
}

/// Answers the question that the arguments ask.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let tags = arguments.vlan.iter().fold(VlanTags::NONE, |tags, tag| tags.with(*tag));
    let key = AnyKey::of_ends(arguments.client, arguments.server, tags).filter(|_| arguments.vlan.len() <= 2);
    let wrong = || Error::new("client and server are of one address family, and at most two tags count");
    let key = key.ok_or_else(|| Failure::wrong_usage(wrong()))?;
    let (text, status) = answer(arguments, &key, &arguments.secret.checked()?)?;
    print(text.as_bytes())?;
    Ok(status)
}

fn answer(arguments: &Arguments, key: &AnyKey, secret: &Secret) -> Result<(String, Status)> {
    let snapshot = SnapshotFile::open(&arguments.file, secret)?;
    if !snapshot.header.vlan_key && !arguments.vlan.is_empty() {
        let what = "keys have no VLAN tags in this snapshot: ask without --vlan";
        return Err(Error::new(what).in_file(&arguments.file));
    }
    Ok(match snapshot.presence(key, secret) {
        Presence::Open { count, payload } => {
            let midstream = payload.is_some_and(|payload| payload & MIDSTREAM != 0);
            let seen = if midstream { ", its start was not seen" } else { "" };
            let routers = if count > 1 { format!(" on {count} routers") } else { String::new() };
            (format!("open{routers}{seen}\n"), Status::Done)
        }
        Presence::NotOpen => (format!("not open{}\n", half_open(&snapshot, key)), Status::No),
        Presence::Unknown => ("unknown\n".to_owned(), Status::Unknown),
    })
}

/// The state of a half-open connection, for the answer; empty when it is not half-open.
fn half_open(snapshot: &SnapshotFile, key: &AnyKey) -> String {
    let mut all = snapshot.header.sources.iter().flat_map(|source| &source.half_open);
    match all.find(|half_open| half_open.key == *key) {
        None => String::new(),
        Some(half_open) => format!(", {}", RowState::of_half_open(half_open.answered).name()),
    }
}
