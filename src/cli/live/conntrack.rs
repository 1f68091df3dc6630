//! The options of a capture that asks the kernel what it knows of connections.

use crate::cli::values;
#[cfg(not(all(target_os = "linux", feature = "kernel")))]
use crate::error::Error;
use crate::error::Result;
use crate::run::SystemView;
use clap::Args;

/// Translated connections by default: this part of the connections, as one in this many.
const TRANSLATIONS_DIVISOR: u64 = 4;

/// The fewest by default.
const TRANSLATIONS_MIN: u64 = 1 << 14;

/// The options.
#[derive(Args)]
pub(super) struct ConntrackOptions {
    /// Ask the kernel what is open, and what is translated (NAT)
    ///
    /// Connections that the kernel tracks (conntrack) and that go through a captured interface are listed from the first
    /// list on, idle ones too. A translated connection is one line, with its other name as `nat`. Takes CAP_NET_ADMIN.
    #[arg(long)]
    pub(super) conntrack: bool,

    /// Translated connections whose names are known, at most
    ///
    /// Those beyond may be listed twice: they are counted, and lists are not complete. One of IPv6 takes the room of
    /// three [default: a quarter of --connections, at least 16k].
    #[arg(long, value_name = "N", requires = "conntrack", value_parser = values::count, hide_short_help = true)]
    translations: Option<u64>,
}

impl ConntrackOptions {
    /// How many translations there is to be room for, of a run with room for so many connections.
    pub(super) fn translations_max(&self, connections_max: u64) -> Option<usize> {
        let default = (connections_max / TRANSLATIONS_DIVISOR).max(TRANSLATIONS_MIN);
        self.conntrack.then(|| usize::try_from(self.translations.unwrap_or(default)).unwrap_or(usize::MAX))
    }
}

/// What a capture follows of the kernel.
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub(in crate::cli) struct Following(crate::kernel::Follower);

/// There is nothing to follow elsewhere.
#[cfg(not(all(target_os = "linux", feature = "kernel")))]
pub(in crate::cli) struct Following;

/// What is to be followed.
pub(in crate::cli) struct ToFollow {
    /// The interfaces that are captured.
    pub(in crate::cli) interfaces: Vec<String>,
    /// Whether VLAN tags are part of a connection's key.
    pub(in crate::cli) vlan_key: bool,
    /// How many translations there is room for.
    pub(in crate::cli) translations_max: usize,
}

#[cfg(all(target_os = "linux", feature = "kernel"))]
impl Following {
    /// Begins, and returns with it what the capture needs. The interfaces are open already.
    pub(in crate::cli) fn start(to_follow: ToFollow) -> Result<(Self, SystemView)> {
        let ToFollow { interfaces, vlan_key, translations_max } = to_follow;
        let mut follower =
            crate::kernel::Follower::start(&crate::kernel::FollowerConfig { interfaces, vlan_key, translations_max })?;
        let system = SystemView { known: follower.take_known(), translations: Some(follower.translations()) };
        Ok((Following(follower), system))
    }

    /// Ends, and returns how often the kernel's table was read again because changes were lost.
    pub(in crate::cli) fn stop(self) -> Result<u64> {
        self.0.stop()
    }
}

#[cfg(not(all(target_os = "linux", feature = "kernel")))]
impl Following {
    /// Refuses.
    pub(in crate::cli) fn start(_: ToFollow) -> Result<(Self, SystemView)> {
        Err(Error::new("only Linux has a table of connections that flowpeel can read: leave out --conntrack"))
    }

    /// There is nothing to end.
    pub(in crate::cli) fn stop(self) -> Result<u64> {
        Ok(0)
    }
}

/// What an operator has to know who captures both sides of a translation without `--conntrack`, if this host translates
/// as far as it can be seen.
pub(super) fn nat_warning(interface_count: usize) -> Option<&'static str> {
    #[cfg(all(target_os = "linux", feature = "kernel"))]
    let translates = interface_count > 1 && crate::kernel::translates();
    #[cfg(not(all(target_os = "linux", feature = "kernel")))]
    let translates = interface_count > usize::MAX - 1;
    translates.then_some(
        "this host has rules that translate addresses (NAT): what they translate is listed twice where both sides are \
         captured. Add --conntrack, or capture the inside interface alone",
    )
}
