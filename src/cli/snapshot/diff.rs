//! `flowpeel snapshot diff`: two snapshots in, the connections that only one of them has out.

use crate::cli::report::{self, Voice, grouped};
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Outcome, Status, print};
use crate::error::{Error, Result};
use crate::export::{self, Side};
use crate::flow::FlowKey;
use crate::snapshot::{Difference, Kind, SnapshotFile};
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;

/// List the connections that only one of two snapshots has
///
/// What both have cancels, so any number of open connections can be compared while the differences fit the smaller of
/// the two files; a digest is enough for one side. Half-open connections are not compared, nor when connections
/// started: the routers' clocks may differ.
///
/// In the table, < stands before what only A has, and > before what only B has.
///
/// Exit status: 0 they have the same connections, 3 they differ, 4 not all differences could be listed, 1 something
/// failed, 2 wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot diff",
    after_help = "Example:\n  flowpeel snapshot diff --secret-file secret east.flowpeel west.flowpeel"
)]
pub(super) struct Arguments {
    /// A snapshot, a merge or a digest
    a: PathBuf,

    /// Another one
    b: PathBuf,

    /// Write NDJSON, with the fields of a list
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    secret: SecretOption,
}

/// Lists the differences.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    Ok(diff(arguments, &arguments.secret.checked()?, voice)?)
}

fn diff(arguments: &Arguments, secret: &Secret, voice: Voice) -> Result<Status> {
    let (a, b) = (SnapshotFile::open(&arguments.a, secret)?, SnapshotFile::open(&arguments.b, secret)?);
    let difference = a.difference(&b, secret).map_err(|misfit| {
        let are_digests = [&a, &b].iter().all(|file| file.header.kind == Kind::Digest);
        let hint = if are_digests { "; compare a digest with a whole snapshot" } else { "" };
        Error::new(format!("{misfit}{hint}")).in_file(&arguments.b)
    })?;
    if arguments.json {
        let mut stdout = std::io::stdout().lock();
        export::write_difference(&mut stdout, (&a, &b), &difference)
            .map_err(|error| error.in_file("standard output"))?;
    } else {
        print(table(&difference).as_bytes())?;
    }
    if voice > Voice::Quiet {
        let (only_a, only_b) = difference.only();
        let (only_a, only_b) = (grouped(only_a), grouped(only_b));
        report::line(format_args!("{only_a} only in A, {only_b} only in B; half-open connections are not compared"));
    }
    if voice > Voice::Quiet && !difference.is_complete() {
        let is_digest = [&a, &b].iter().any(|file| file.header.kind == Kind::Digest);
        let hint = match difference.differences_needed {
            Some(needed) if is_digest => format!("make the digest with --differences {needed}"),
            _ if is_digest => {
                "that is more than a digest of these tables can list, so compare the whole snapshots".to_owned()
            }
            _ => "take snapshots that are nearer in time, or a larger --churn on the routers".to_owned(),
        };
        let (all, left) = (grouped(difference.estimate()), grouped(difference.keys.left()));
        report::warning(&format!("about {all} differences, of which about {left} could not be listed: {hint}"));
    }
    Ok(match (difference.is_complete(), difference.is_none()) {
        (false, _) => Status::Unknown,
        (true, true) => Status::Done,
        (true, false) => Status::No,
    })
}

fn table(difference: &Difference) -> String {
    let mut text = String::new();
    difference.keys.v4.iter().for_each(|(key, count)| row(&mut text, key, *count));
    difference.keys.v6.iter().for_each(|(key, count)| row(&mut text, key, *count));
    text
}

fn row<K: FlowKey>(text: &mut String, key: &K, count: i32) {
    let side = match Side::of_count(count) {
        Side::A => '<',
        Side::B => '>',
    };
    let vlan: String = key.vlan().iter().map(|tag| format!(" vlan {tag}")).collect();
    let routers = match count.unsigned_abs() {
        1 => String::new(),
        more => format!(" ({more} more routers)"),
    };
    text.push_str(&format!("{side} {} -> {}{vlan}{routers}\n", key.first(), key.second()));
}
