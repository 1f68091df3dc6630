//! `flowpeel snapshot peel`: a snapshot in, its list out.

use crate::agent;
use crate::cli::report::{self, Voice, grouped};
use crate::cli::showing::Showing;
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Outcome, Status};
use crate::error::{Error, Result};
use crate::export::{self, Exporter, Format, Output, Stream};
use crate::list::{MergedList, SnapshotList};
use crate::snapshot::{Header, Kind, Salvaged, SnapshotFile};
use clap::Args;
use flowpeel_iblt::hash::Secret;
use std::path::PathBuf;

/// List the connections of a snapshot, or of a merge with how many routers see each
///
/// By itself a snapshot lists while so few connections are open that they fit its tables (see flowpeel snapshot info);
/// with an earlier list of the same run, while what opened and closed since then does.
///
/// A file that was damaged or cut short is refused. With --salvage what is genuine of it is listed: a table that has
/// lost one of its four parts lists while it is less than three quarters full, and nothing is listed that was not
/// proven.
///
/// Exit status: 0 the list is complete, 4 it is not (the header says about how much is missing), 1 something failed, or
/// the file was damaged, however much of it was listed, 2 wrong usage.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot peel",
    after_help = "Examples:\n  flowpeel snapshot peel --secret-file secret snapshot-20260101T000010Z.flowpeel\n  \
    flowpeel snapshot peel --secret-file secret --base flows-20260101T000000Z.ndjson snapshot.flowpeel"
)]
pub(super) struct Arguments {
    /// The snapshot
    file: PathBuf,

    /// An earlier list in full to start from, plain or compressed; of a merge as many as there are
    #[arg(long, value_name = "LIST")]
    base: Vec<PathBuf>,

    /// List what is left of a file that was damaged or cut short; its header says damaged_sections
    #[arg(long)]
    salvage: bool,

    #[command(flatten)]
    secret: SecretOption,

    #[command(flatten)]
    showing: Showing,
}

/// A snapshot or merge to list.
enum Input {
    Whole(SnapshotFile),
    Damaged(Salvaged),
}

impl Input {
    fn header(&self) -> &Header {
        match self {
            Input::Whole(snapshot) => &snapshot.header,
            Input::Damaged(salvaged) => salvaged.header(),
        }
    }
}

/// Lists the snapshot or merge.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let secret = arguments.secret.checked()?;
    let input = open(arguments, &secret, voice)?;
    let is_damaged = matches!(input, Input::Damaged(_));
    let left = match input.header().kind {
        Kind::Snapshot => listed(input, arguments, &secret)?,
        Kind::Merge | Kind::Digest => merged(&input, arguments, &secret)?,
    };
    if left > 0 && voice > Voice::Quiet {
        let hint = match arguments.base.is_empty() {
            true => "name a list from before it with --base",
            false => "name a list that is nearer to it with --base",
        };
        report::warning(&format!("about {} openings and closings could not be listed: {hint}", grouped(left)));
    }
    Ok(match left {
        _ if is_damaged => Status::Failed,
        0 => Status::Done,
        _ => Status::Unknown,
    })
}

/// Reads the file, or what is left of it where that is asked for.
fn open(arguments: &Arguments, secret: &Secret, voice: Voice) -> Result<Input> {
    let refused = match SnapshotFile::open(&arguments.file, secret) {
        Ok(snapshot) => return Ok(Input::Whole(snapshot)),
        Err(refused) if !arguments.salvage => return Err(refused),
        Err(refused) => refused,
    };
    let salvaged = SnapshotFile::open_damaged(&arguments.file, secret)?;
    if voice > Voice::Quiet {
        let lost = match salvaged.damaged() {
            [] => "nothing in it is lost".to_owned(),
            [only] => format!("lost: {only}"),
            [first, rest @ ..] => format!("lost: {first}, and {} other sections", grouped(rest.len() as u64)),
        };
        report::warning(&format!("{refused}; {lost}"));
    }
    Ok(Input::Damaged(salvaged))
}

/// Writes the list of a snapshot, and returns about how many openings and closings are not in it.
fn listed(input: Input, arguments: &Arguments, secret: &Secret) -> Result<u64> {
    let (header, vlan_key) = (input.header(), input.header().vlan_key);
    if arguments.base.len() > 1 {
        return Err(Error::new("a snapshot starts from one list: name one --base").in_file(&arguments.file));
    }
    let mut list = SnapshotList::new(header, secret).map_err(|error| error.in_file(&arguments.file))?;
    if let (Some(base), [source]) = (arguments.base.first(), header.sources.as_slice()) {
        agent::start_from(&mut list, source, base)?;
    }
    match input {
        Input::Whole(snapshot) => list.apply(snapshot)?,
        Input::Damaged(salvaged) => list.apply_salvaged(salvaged)?,
    }
    let showing = &arguments.showing;
    let format = Format { shape: showing.on_stdout(), selection: showing.selection(), ..Format::default() };
    let mut stdout = Stream::new(std::io::stdout(), "standard output", vlan_key, format);
    list.list(|list| stdout.write(Output::List(list)))?;
    Ok(list.left())
}

/// Writes the list of a merge, and returns about how many openings and closings are not in it.
fn merged(input: &Input, arguments: &Arguments, secret: &Secret) -> Result<u64> {
    if arguments.showing.is_asked_for() {
        let what = "the list of a merge is NDJSON, whole: leave out --format, --filter, --sort, --limit and --group-by";
        return Err(Error::new(what).in_file(&arguments.file));
    }
    let mut known = Vec::new();
    for path in &arguments.base {
        known.extend(agent::established(path)?);
    }
    let list = match input {
        Input::Whole(snapshot) => MergedList::new(snapshot, secret, known),
        Input::Damaged(salvaged) => MergedList::of_salvaged(salvaged, secret, known),
    };
    export::write_merged(&mut std::io::stdout().lock(), &list).map_err(|error| error.in_file("standard output"))?;
    Ok(list.left())
}
