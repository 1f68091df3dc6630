//! `flowpeel snapshot info`: a snapshot in, its header and how much of it can be listed out.

use crate::cli::report::grouped;
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::table::{self, Align};
use crate::cli::{Outcome, Status, print};
use crate::error::{Result, escaped};
use crate::signal::PARTITION_COUNT;
use crate::snapshot::{Header, Kind, Load, RouterPart, SnapshotFile, VERSION};
use clap::Args;
use flowpeel_iblt::Geometry;
use flowpeel_iblt::hash::Secret;
use jiff::Timestamp;
use std::path::PathBuf;

/// Print what a snapshot is, how full it is, and whether it lists by itself
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot info",
    after_help = "Example:\n  flowpeel snapshot info --secret-file secret snapshots/snapshot-20260101T000010Z.flowpeel"
)]
pub(super) struct Arguments {
    /// The snapshot
    file: PathBuf,

    #[command(flatten)]
    secret: SecretOption,
}

/// Prints what a snapshot is.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    print(text(arguments, &arguments.secret.checked()?)?.as_bytes())?;
    Ok(Status::Done)
}

fn text(arguments: &Arguments, secret: &Secret) -> Result<String> {
    let snapshot = SnapshotFile::open(&arguments.file, secret)?;
    let (v4, v6) = snapshot.loads(secret);
    let header = &snapshot.header;
    let mut rows = vec![
        ("file", format!("{}, version {VERSION}, key id {}", header.kind.name(), header.key_id)),
        ("keys", if header.vlan_key { "with VLAN tags" } else { "without VLAN tags" }.to_owned()),
    ];
    header.sources.iter().for_each(|source| rows.extend(of_source(source)));
    let (run_v4, run_v6) = header.runs();
    for (family, geometry, run, load) in
        [("IPv4", header.geometry.v4, run_v4, v4), ("IPv6", header.geometry.v6, run_v6, v6)]
    {
        rows.push((family, of_family(header, geometry, run, &load)));
    }
    rows.push(("lists by itself", verdict(&v4, &v6)));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| [name.to_owned(), value]).collect();
    Ok(table::text(&rows, [Align::Left; 2]))
}

fn time(time_ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default().to_string()
}

fn of_source(source: &RouterPart) -> Vec<(&'static str, String)> {
    let RouterPart { figures, totals, .. } = source;
    // The name was written by somebody with the secret, and may hold control characters all the same.
    let name = if source.router.is_empty() { "without a name".to_owned() } else { escaped(&source.router) };
    let last = if source.is_last { ", the last" } else { "" };
    vec![
        ("router", format!("{name}, run {:016x}", source.run)),
        (
            "interval",
            format!("{}{last}: {} to {}", grouped(figures.interval), time(figures.start_ns), time(figures.end_ns)),
        ),
        (
            "in the interval",
            format!(
                "{} opened, {} closed, {} evicted, {} untracked, {} packets lost, {} unusable, {} cut",
                grouped(figures.opened),
                grouped(figures.closed),
                grouped(figures.evicted),
                grouped(figures.untracked),
                grouped(figures.dropped),
                grouped(figures.unusable),
                grouped(figures.cut)
            ),
        ),
        (
            "since the start",
            format!(
                "{} opened, {} closed, {} evicted, {} untracked",
                grouped(totals.opened),
                grouped(totals.closed),
                grouped(totals.evicted()),
                grouped(totals.untracked())
            ),
        ),
        ("half-open", grouped(source.half_open.len() as u64)),
        ("missing elsewhere", grouped(figures.missing_elsewhere)),
    ]
}

fn of_family(header: &Header, geometry: Geometry, run: u32, load: &Load) -> String {
    let folded = if run > 1 { format!(", {run} folded into one") } else { String::new() };
    let summed = if header.partition_count == PARTITION_COUNT { "" } else { ", all partitions in it" };
    let sum = if header.sources.len() > 1 { ", each router counting its own" } else { "" };
    let share = load.held as f64 * 100.0 / load.item_count.max(1) as f64;
    let held = match header.kind {
        // What it holds is nothing to list: most of it cancels.
        Kind::Digest => format!("enough for {} differences", grouped(load.item_count)),
        _ => format!("which can list {} ({share:.0} % in use)", grouped(load.item_count)),
    };
    let sign = if load.open < 0 { "-" } else { "" };
    let open = format!("{sign}{}", grouped(load.open.unsigned_abs()));
    format!(
        "{open} open{sum}; {} x {} cells{summed}{folded}, {held}",
        header.partition_count,
        grouped(geometry.cell_count() as u64),
    )
}

fn verdict(v4: &Load, v6: &Load) -> String {
    let (peeled, left) = (grouped(v4.peeled + v6.peeled), v4.left + v6.left);
    if left == 0 {
        format!("yes, all {peeled}")
    } else {
        format!(
            "no: {peeled} can be listed, and about {} only from an earlier list (snapshot peel --base)",
            grouped(left)
        )
    }
}
