//! `flowpeel manual`: the man pages, made from the definition of the command line.

use crate::cli::{Cli, Outcome, Status, print};
use crate::disk::whole_file::{NewFile, Temporary};
use crate::error::{Error, Result};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of a page until it is whole.
const TEMPORARY: Temporary = Temporary { prefix: ".manual-", suffix: ".tmp", mode: 0o666 };

/// Print the man pages, or write them to files
#[derive(Args)]
#[command(
    display_name = "flowpeel manual",
    after_help = "Examples:\n  flowpeel manual | man -l -\n  flowpeel manual --out /usr/local/share/man/man1"
)]
pub(super) struct Arguments {
    /// Write each page to a file in this directory: flowpeel.1, flowpeel-replay.1, ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes the man pages.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let pages = pages()?;
    match &arguments.out {
        Some(directory) => write(directory, &pages)?,
        None => print(&pages.into_iter().flat_map(|page| page.text).collect::<Vec<u8>>())?,
    }
    Ok(Status::Done)
}

struct Page {
    name: String,
    text: Vec<u8>,
}

/// The page of flowpeel, followed by those of its commands and of theirs.
fn pages() -> Result<Vec<Page>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    // Options that all commands have in common are in each only after this.
    root.build();
    let mut pages = Vec::new();
    add_pages("flowpeel".to_owned(), &root, &mut pages)?;
    Ok(pages)
}

/// Adds the page of a command, which has this name, and those of its commands.
fn add_pages(name: String, command: &Command, pages: &mut Vec<Page>) -> Result<()> {
    let mut text = Vec::new();
    let rendered = Man::new(command.clone().display_name(name.clone())).render(&mut text);
    rendered.map_err(|error| Error::new("cannot make a man page").because(error))?;
    pages.push(Page { name: format!("{name}.1"), text });
    let mut inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
    inner.try_for_each(|inner| add_pages(format!("{name}-{}", inner.get_name()), inner, pages))
}

fn write(directory: &Path, pages: &[Page]) -> Result<()> {
    let cannot = |path: &Path, error: io::Error| Error::new("cannot write the man page").in_file(path).because(error);
    fs::create_dir_all(directory).map_err(|error| cannot(directory, error))?;
    // A leftover that cannot be removed disturbs nothing.
    drop(TEMPORARY.remove_leftovers(directory));
    for page in pages {
        let path = directory.join(&page.name);
        write_page(&path, &page.text).map_err(|error| cannot(&path, error))?;
    }
    Ok(())
}

fn write_page(path: &Path, text: &[u8]) -> io::Result<()> {
    let page = NewFile::begin(path, &TEMPORARY)?;
    page.file().write_all(text)?;
    page.finish().map(drop)
}
