//! The options that say how interfaces are captured, and the sources that they ask for.

use crate::capture::live::{self, Backend, BpfProgram, CaptureMode, Live, LiveConfig};
use crate::cli::{heading, values};
use crate::engine::LiveInput;
use crate::error::{Error, Result};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What the kernel is to pass on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CaptureKind {
    /// The headers of all TCP packets
    Headers,
    /// SYN, FIN and RST alone: the least work, but a SYN-ACK then counts as a connection, and what is idle is not known
    Flags,
    /// All packets, and enough of each to find connections inside tunnels
    Tunnels,
}

/// How packets are read.
#[derive(Clone, Copy, ValueEnum)]
enum BackendKind {
    /// From a ring shared with the kernel
    Ring,
    /// One by one, with pnet
    Pnet,
}

/// Which interfaces are captured.
#[derive(Args)]
#[command(next_help_heading = heading::CAPTURE)]
pub(super) struct InterfaceOptions {
    /// An interface to capture on; may be repeated
    ///
    /// A packet that several of them show counts once. flowpeel interfaces lists what
    /// there is.
    #[arg(short, long = "interface", required = true, value_name = "IFACE")]
    pub(super) interfaces: Vec<String>,
}

/// How interfaces are captured.
#[derive(Args)]
#[command(next_help_heading = heading::CAPTURE)]
pub(super) struct CaptureOptions {
    /// What the kernel passes on
    #[arg(long, value_name = "WHAT", default_value = "headers", hide_short_help = true)]
    capture: CaptureKind,

    /// A filter program for the kernel in place of flowpeel's own
    ///
    /// A file as `tcpdump -i eth0 -ddd 'tcp port 443'` prints it. --capture then says what the program passes on.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    bpf: Option<PathBuf>,

    /// Capture threads for each interface
    ///
    /// The kernel spreads connections between them. From 1 to 64.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::fanout, hide_short_help = true)]
    fanout: usize,

    /// The ring of each capture thread
    ///
    /// What the kernel can hold while nobody reads, from 512KiB to 1GiB. It is part of --memory.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = values::ring_size, hide_short_help = true)]
    ring_size: u64,

    /// How packets are read
    #[arg(long, value_name = "HOW", default_value = "ring", hide_short_help = true)]
    backend: BackendKind,

    /// Leave promiscuous mode off
    ///
    /// The interface then passes only packets to this host, which is enough on a router.
    #[arg(long, hide_short_help = true)]
    no_promiscuous: bool,

    /// Continue as this user once the interfaces are open
    ///
    /// All capabilities are given up as well, but the one that --conntrack goes on needing, by its thread alone.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    user: Option<String>,
}

impl CaptureOptions {
    /// The sources that the options ask for, one for each of these interfaces.
    ///
    /// # Errors
    ///
    /// An interface is named twice, a program cannot be read, or the way to read packets cannot do what is asked.
    pub(super) fn sources(&self, interfaces: &[String], has_vlan_key: bool) -> Result<Vec<LiveConfig>> {
        let capture = match (&self.bpf, self.capture) {
            (Some(path), _) => CaptureMode::Program(BpfProgram::read(path)?),
            (None, CaptureKind::Headers) => CaptureMode::Headers,
            (None, CaptureKind::Flags) => CaptureMode::Flags,
            (None, CaptureKind::Tunnels) => CaptureMode::Everything,
        };
        let backend = match self.backend {
            BackendKind::Ring => Backend::Ring,
            BackendKind::Pnet => Backend::Pnet,
        };
        if has_vlan_key && backend == Backend::Pnet {
            return Err(Error::new(
                "pnet never sees the outermost VLAN tag, which the kernel passes beside the packet: take --backend \
                 ring, or no --vlan-key",
            ));
        }
        for (index, interface) in interfaces.iter().enumerate() {
            if interfaces[..index].contains(interface) {
                let what = format!(
                    "{} is given twice: --fanout N captures one interface with N threads",
                    interface.escape_debug()
                );
                return Err(Error::new(what));
            }
        }
        let source = |interface: &String| LiveConfig {
            backend,
            capture: capture.clone(),
            fanout_count: self.fanout,
            ring_size: self.ring_size,
            promiscuous: !self.no_promiscuous,
            ..LiveConfig::new(interface.as_str())
        };
        Ok(interfaces.iter().map(source).collect())
    }

    /// The user to continue as.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the kernel passes nothing but SYN, FIN and RST, so that no acknowledgement completes a handshake.
    pub(super) fn shows_flags_alone(&self) -> bool {
        self.capture == CaptureKind::Flags
    }

    /// Opens the sources, and gives up what only that needed. To be called before there is any thread, because each has
    /// privileges of its own.
    ///
    /// # Errors
    ///
    /// An interface cannot be captured, or the user does not exist.
    pub(super) fn open(&self, sources: &[LiveConfig]) -> Result<Vec<Live>> {
        let opened = open_all(sources)?;
        if self.user.is_some() {
            live::drop_privileges(self.user.as_deref())?;
        }
        Ok(opened)
    }
}

/// Opens the sources, and keeps all privileges.
///
/// # Errors
///
/// An interface cannot be captured.
pub(super) fn open_all(sources: &[LiveConfig]) -> Result<Vec<Live>> {
    let mut opened = Vec::new();
    for source in sources {
        opened.extend(live::open(source)?);
    }
    Ok(opened)
}

/// What an engine has to know of these sources.
pub(super) fn input_of(sources: &[LiveConfig]) -> LiveInput {
    LiveInput {
        capture_count: sources.iter().map(|source| source.fanout_count).sum(),
        rings_size: sources.iter().map(LiveConfig::memory_size).sum(),
    }
}
