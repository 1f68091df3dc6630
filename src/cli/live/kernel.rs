//! What a capture asks the kernel: which connections it tracks and translates, and what lists are held against.

use crate::capture::live;
use crate::cli::report::{self, Voice, grouped};
use crate::cli::values;
use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::metrics::Metrics;
use crate::run::SystemView;
use clap::Args;
use std::sync::Arc;

#[cfg(all(target_os = "linux", feature = "kernel"))]
use crate::audit::{Against, Audit, AuditConfig, Audited, Report};
#[cfg(all(target_os = "linux", feature = "kernel"))]
use crate::kernel::{Follower, FollowerConfig, translates};

/// Translated connections by default: this part of the connections, as one in this many.
const TRANSLATIONS_DIVISOR: u64 = 4;

/// The fewest by default.
const TRANSLATIONS_MIN: u64 = 1 << 14;

/// What an operator does about connections that are listed twice.
pub(super) const NAT_REMEDY: &str = "Add --conntrack, or capture the inside interface alone";

/// The options.
#[derive(Args)]
pub(super) struct KernelOptions {
    /// Ask the kernel what is open and translated (NAT)
    ///
    /// Connections that the kernel tracks (conntrack) and that go through a captured interface are listed from the
    /// first list on, idle ones too. A translated connection is one line, with its other name as `nat`. Takes
    /// CAP_NET_ADMIN.
    #[arg(long)]
    pub(super) conntrack: bool,

    /// Translated connections whose names are known, at most
    ///
    /// Those beyond may be listed twice: they are counted, and lists are not complete. One of IPv6 takes the room of
    /// three [default: a quarter of --connections, at least 16k].
    #[arg(long, value_name = "N", requires = "conntrack", value_parser = values::count, hide_short_help = true)]
    translations: Option<u64>,

    /// Hold every list against what the kernel knows
    ///
    /// Differences are counted in the metrics, by their reason, and those without one are warned of: see flowpeel
    /// audit. On a router it takes --conntrack.
    #[arg(long, hide_short_help = true)]
    audit: bool,
}

/// Called for each list that was held against the kernel.
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub(super) type OnReport = Box<dyn FnMut(&Report) + Send>;

/// An audit that is to begin.
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub(super) type ToAudit = (Against, OnReport);

/// There is none elsewhere.
#[cfg(not(all(target_os = "linux", feature = "kernel")))]
pub(super) type ToAudit = ();

impl KernelOptions {
    /// How many translations there is to be room for, of a run with room for so many connections.
    pub(super) fn translations_max(&self, connections_max: u64) -> Option<usize> {
        self.conntrack.then(|| {
            let count = self.translations.unwrap_or_else(|| translations_default(connections_max));
            usize::try_from(count).unwrap_or(usize::MAX)
        })
    }

    /// Checks that this system has what is to be asked.
    pub(super) fn check(&self) -> Result<()> {
        #[cfg(all(target_os = "linux", feature = "kernel"))]
        if self.audit && !self.conntrack && Against::of_host() == Against::Conntrack {
            let what = "this host forwards packets, so --audit holds lists against the connections that its kernel \
                        tracks: add --conntrack";
            return Err(Error::new(what));
        }
        #[cfg(not(all(target_os = "linux", feature = "kernel")))]
        if self.audit || self.conntrack {
            return Err(Error::new("only Linux shows its connections to flowpeel: leave out --conntrack and --audit"));
        }
        Ok(())
    }

    /// The audit of a capture, whose differences are counted and warned of.
    pub(super) fn audit(&self, metrics: &Arc<Metrics>, voice: Voice) -> Option<ToAudit> {
        #[cfg(all(target_os = "linux", feature = "kernel"))]
        return self.audit.then(|| {
            let metrics = Arc::clone(metrics);
            let mut counts = super::audit::ReasonCounts::default();
            let on_report = move |report: &Report| {
                counts.add(report);
                metrics.audited(&counts.by_name());
                let unexplained = report.differences.iter().filter(|difference| difference.reason.is_none());
                for difference in unexplained.filter(|_| voice > Voice::Quiet) {
                    report::warning(&super::audit::in_words(difference));
                }
            };
            (Against::of_host(), Box::new(on_report) as OnReport)
        });
        #[cfg(not(all(target_os = "linux", feature = "kernel")))]
        return {
            let _ = (metrics, voice);
            None
        };
    }

    /// What an operator has to know who captures so many interfaces without `--conntrack`, if this host translates as
    /// far as it can be seen.
    pub(super) fn nat_warning(&self, interface_count: usize) -> Option<String> {
        #[cfg(all(target_os = "linux", feature = "kernel"))]
        let is_doubled = !self.conntrack && interface_count > 1 && translates();
        #[cfg(not(all(target_os = "linux", feature = "kernel")))]
        let is_doubled = {
            let _ = interface_count;
            false
        };
        is_doubled.then(|| {
            format!(
                "this host has rules that translate addresses (NAT): what they translate is listed twice where both \
                 sides are captured. {NAT_REMEDY}"
            )
        })
    }
}

/// How many translations there is room for by default, of a run with room for so many connections.
pub(super) fn translations_default(connections_max: u64) -> u64 {
    (connections_max / TRANSLATIONS_DIVISOR).max(TRANSLATIONS_MIN)
}

/// What is to be asked of the kernel, and who asks.
pub(super) struct ToAsk<'a> {
    /// The user to continue as.
    pub(super) user: Option<&'a str>,
    /// The interfaces that are captured.
    pub(super) interfaces: Vec<String>,
    /// Whether VLAN tags are part of a connection's key.
    pub(super) vlan_key: bool,
    /// The translations whose names are known, if what the kernel tracks is followed.
    pub(super) translations_max: Option<usize>,
    /// Whether lists or events say what has ended.
    pub(super) reports_ends: bool,
    /// The audit, if lists are held against what the kernel knows.
    pub(super) audit: Option<ToAudit>,
}

/// What is asked of the kernel while a capture runs.
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub(super) struct Kernel {
    follower: Option<Follower>,
    audit: Option<Audit>,
}

/// What came of it.
#[cfg(all(target_os = "linux", feature = "kernel"))]
pub(super) struct Asked {
    followed: Option<Result<u64>>,
    /// What came of the audit.
    pub(super) audited: Option<Result<Audited>>,
}

#[cfg(all(target_os = "linux", feature = "kernel"))]
impl Kernel {
    /// Begins to ask, and gives up privileges if a user is named. The interfaces are open already. To be called before
    /// there is any other thread, because each has privileges of its own.
    pub(super) fn ask(to_ask: ToAsk) -> Result<Self> {
        let ToAsk { user, interfaces, vlan_key, translations_max, reports_ends, audit } = to_ask;
        match user {
            Some(user) if translations_max.is_some() || audit.is_some() => {
                live::drop_privileges_but_net_admin(Some(user))?;
            }
            Some(user) => live::drop_privileges(Some(user))?,
            None => {}
        }
        let start =
            |(against, on_report)| Audit::start(&AuditConfig { against, interfaces: interfaces.clone() }, on_report);
        let audit = audit.map(start).transpose()?;
        let follow = |translations_max| {
            let interfaces = interfaces.clone();
            Follower::start(&FollowerConfig { interfaces, vlan_key, translations_max, keeps_ended: reports_ends })
        };
        let follower = translations_max.map(follow).transpose()?;
        // The threads that ask keep what it takes, and no other that is started from here on has it.
        if user.is_some() {
            live::drop_privileges(None)?;
        }
        Ok(Kernel { follower, audit })
    }

    /// What the capture takes of it, once.
    pub(super) fn take_view(&mut self) -> SystemView {
        match &mut self.follower {
            Some(follower) => SystemView { known: follower.take_known(), translations: Some(follower.translations()) },
            None => SystemView::default(),
        }
    }

    /// The exporter that also gives lists to the audit.
    pub(super) fn exporter<'a>(&'a mut self, inner: &'a mut dyn Exporter) -> Box<dyn Exporter + 'a> {
        match &mut self.audit {
            Some(audit) => Box::new(audit.exporter(inner)),
            None => Box::new(Through(inner)),
        }
    }

    /// Ends it.
    pub(super) fn finish(self) -> Asked {
        Asked { followed: self.follower.map(Follower::stop), audited: self.audit.map(Audit::finish) }
    }
}

/// An exporter that is another.
struct Through<'a>(&'a mut dyn Exporter);

impl Exporter for Through<'_> {
    fn write(&mut self, output: crate::export::Output) -> Result<()> {
        self.0.write(output)
    }

    fn resumable(&mut self) -> Option<&mut dyn crate::export::Resumable> {
        self.0.resumable()
    }
}

#[cfg(all(target_os = "linux", feature = "kernel"))]
impl Asked {
    /// Whether the kernel could be asked to the end.
    pub(super) fn is_sound(&self) -> bool {
        self.followed.as_ref().is_none_or(Result::is_ok) && self.audited.as_ref().is_none_or(Result::is_ok)
    }

    /// Prints what came of it.
    pub(super) fn report(self, voice: Voice) {
        match self.followed {
            Some(Err(error)) => report::error(&error, "; lists since then are not complete"),
            Some(Ok(reread_count)) if reread_count > 0 && voice > Voice::Quiet => report::warning(&format!(
                "the kernel had more changes of connections than were read, and its table was read again {}",
                report::times(reread_count)
            )),
            _ => {}
        }
        match self.audited {
            Some(Err(error)) => report::error(&error, "; lists since then were not audited"),
            Some(Ok(audited)) if voice > Voice::Quiet => {
                let Audited { lists, skipped, explained, unexplained, undecided } = audited;
                let [lists, skipped, explained, unexplained] = [lists, skipped, explained, unexplained].map(grouped);
                report::line(format_args!(
                    "audited {lists} lists ({skipped} skipped): {explained} differences with a reason, {unexplained} \
                     without, {undecided} undecided at the end"
                ));
            }
            _ => {}
        }
    }
}

/// Nothing is asked elsewhere.
#[cfg(not(all(target_os = "linux", feature = "kernel")))]
pub(super) struct Kernel;

/// Nothing came of it.
#[cfg(not(all(target_os = "linux", feature = "kernel")))]
pub(super) struct Asked;

#[cfg(not(all(target_os = "linux", feature = "kernel")))]
impl Kernel {
    /// Gives up privileges if a user is named.
    pub(super) fn ask(to_ask: ToAsk) -> Result<Self> {
        to_ask.user.map_or(Ok(()), |user| live::drop_privileges(Some(user))).map(|()| Kernel)
    }

    /// Nothing.
    pub(super) fn take_view(&mut self) -> SystemView {
        SystemView::default()
    }

    /// The same exporter.
    pub(super) fn exporter<'a>(&'a mut self, inner: &'a mut dyn Exporter) -> Box<dyn Exporter + 'a> {
        Box::new(Through(inner))
    }

    /// Nothing is to end.
    pub(super) fn finish(self) -> Asked {
        Asked
    }
}

#[cfg(not(all(target_os = "linux", feature = "kernel")))]
impl Asked {
    /// It is.
    pub(super) fn is_sound(&self) -> bool {
        true
    }

    /// Nothing is to be said.
    pub(super) fn report(self, _: Voice) {}
}
