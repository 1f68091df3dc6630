//! Running for months: files that are whole, compressed, kept within bounds or written as changes; log lines; and what
//! comes with the command: completions, man pages, the documentation of its options and a systemd unit.

mod changes;
mod files;
mod log;
mod options;
mod packaging;
mod places;

use crate::support::command::{Ended, FLOWPEEL, flowpeel, has};
use crate::support::files::{files, name};
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// `flowpeel replay` with these options, which must succeed.
fn replayed(options: &str, inputs: &[&Path]) -> Ended {
    let mut arguments: Vec<&OsStr> = vec!["replay".as_ref()];
    arguments.extend(options.split_whitespace().map(OsStr::new));
    arguments.extend(inputs.iter().map(|input| input.as_os_str()));
    let output = flowpeel(arguments);
    assert_eq!(output.status.code(), Some(0), "{options}: {}", output.stderr);
    output
}

/// A capture of this many connections over two minutes, half of them over IPv6.
fn capture(directory: &Path, name: &str, connection_count: u64) -> PathBuf {
    let path = directory.join(name);
    let config = TrafficConfig { data_packets: 0..=0, ipv6_share: 0.5, ..TrafficConfig::mixed(11, connection_count) };
    let mut out = BufWriter::new(File::create(&path).unwrap());
    write_pcap(&mut Traffic::new(config).unwrap(), &mut out).unwrap();
    path
}
