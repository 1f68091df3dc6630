//! Whether connections come under two names, because both sides of a router that translates addresses (NAT) are
//! captured and nobody says which names belong together.
//!
//! A translation changes the addresses and ports of a SYN, and not its initial sequence number. So each port samples
//! the SYNs that it passes on, and at the end of an interval the samples are compared. The law: a number counts as that
//! of a translated connection if it came under exactly two names, which have the client or the server in common, each
//! at interfaces at which the other was not seen, and both within half a second. A number that many SYNs share, as
//! scanners and forgers have them, comes under more names; and a forged SYN that is routed comes under its one name
//! at both interfaces.
//!
//! A port pays for a SYN with a copy of 64 bytes, and with a comparison once its sample is full.

use crate::flow::Side;
use crate::signal::{Moment, Signal, SignalKind};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;

/// The SYNs that are sampled of a port and an interval: the first of them, at all ports about the same.
const SAMPLE_COUNT_MAX: usize = 1 << 11;

/// The SYNs that a port gathers before it passes them on, which it does many times a second.
const GATHERED_COUNT_MAX: usize = 1 << 8;

/// How long after a SYN came under one name it comes under the other, at most, in nanoseconds: a router takes far less,
/// and a SYN that is sent again comes after a second (RFC 6298).
const NAMES_APART_MAX_NS: i64 = 500_000_000;

/// Where the sample of a port ended early, what came so shortly before is not judged, in nanoseconds: it may have come
/// at that port too.
const SAMPLE_END_DOUBT_NS: i64 = 20_000_000;

/// Different numbers that have to come under two names before connections are said to.
const NUMBER_COUNT_MIN: usize = 3;

/// The most SYNs with one number that are compared: ports are few, and a SYN is repeated a few times.
const SYN_COUNT_MAX: usize = 64;

/// What a port and the list share.
#[derive(Default)]
struct Sample {
    syns: Vec<Signal>,
    /// Whether there were more.
    is_full: bool,
    /// How often the list has taken it.
    round: u64,
}

/// The SYNs of one port.
pub struct SynSampler {
    gathered: Vec<Signal>,
    is_full: bool,
    round: u64,
    sample: Arc<Mutex<Sample>>,
}

impl SynSampler {
    /// Takes a signal into the sample if it is a SYN and there is room.
    #[inline]
    pub fn take(&mut self, signal: &Signal) {
        if signal.kind() != SignalKind::Syn || self.is_full {
            return;
        }
        if self.gathered.len() < GATHERED_COUNT_MAX {
            self.gathered.push(*signal);
        } else {
            self.is_full = true;
        }
    }

    /// Passes on what was gathered, unless the list is just taking it.
    pub fn pass_on(&mut self) {
        if self.gathered.is_empty() && !self.is_full {
            return;
        }
        let Some(mut sample) = self.sample.try_lock() else { return };
        if sample.round != self.round {
            self.round = sample.round;
            if std::mem::take(&mut self.is_full) {
                // They came before those that were left out, and the list has taken others of their time.
                self.gathered.clear();
            }
        }
        let room = SAMPLE_COUNT_MAX.saturating_sub(sample.syns.len());
        self.is_full |= self.gathered.len() > room;
        sample.is_full |= self.is_full;
        sample.syns.extend(self.gathered.drain(..).take(room));
    }
}

/// A SYN under one of its names.
#[derive(Clone, Copy)]
struct NamedSyn {
    isn: u32,
    name: [SocketAddr; 2],
    /// The number of its interface.
    interface: usize,
    moment: Moment,
}

impl NamedSyn {
    fn of(signal: &Signal, interface: usize) -> Self {
        let parts = signal.parts();
        let key = signal.key();
        let [first, second] = [key.client(), key.server()];
        let name = if parts.sender == Side::First { [first, second] } else { [second, first] };
        NamedSyn { isn: parts.isn, name, interface, moment: signal.moment() }
    }
}

/// Finds connections that come under two names.
pub struct TwoNames {
    /// The number of the interface of each port, and its sample.
    ports: Vec<(usize, Arc<Mutex<Sample>>)>,
    /// What was taken of the present interval.
    syns: Vec<NamedSyn>,
    /// The first numbers that came under two names, each once.
    found: Vec<u32>,
}

impl TwoNames {
    /// The memory for each port, in bytes.
    pub const PORT_SIZE: usize =
        (SAMPLE_COUNT_MAX + GATHERED_COUNT_MAX) * size_of::<Signal>() + SAMPLE_COUNT_MAX * size_of::<NamedSyn>();

    /// For ports at these interfaces, each with the number of its own, and what samples their SYNs.
    #[must_use]
    pub fn of_interfaces(interfaces: &[usize]) -> (Vec<SynSampler>, Self) {
        let sample = || Sample { syns: Vec::with_capacity(SAMPLE_COUNT_MAX), ..Sample::default() };
        let ports: Vec<_> = interfaces.iter().map(|interface| (*interface, Arc::new(Mutex::new(sample())))).collect();
        let sampler = |(_, sample): &(usize, Arc<Mutex<Sample>>)| SynSampler {
            gathered: Vec::with_capacity(GATHERED_COUNT_MAX),
            is_full: false,
            round: 0,
            sample: Arc::clone(sample),
        };
        let samplers = ports.iter().map(sampler).collect();
        let syns = Vec::with_capacity(interfaces.len() * SAMPLE_COUNT_MAX);
        (samplers, TwoNames { ports, syns, found: Vec::with_capacity(NUMBER_COUNT_MIN) })
    }

    /// How many connections of the interval that ends are known to have come under two names, once it is certain that
    /// there are such. Of an interval in which packets were lost nothing is known: one of the two may be lost.
    ///
    /// Complexity: sorts the samples.
    pub fn end_interval(&mut self, has_losses: bool) -> u64 {
        let mut sampled_until: Option<Moment> = None;
        self.syns.clear();
        for (interface, sample) in &self.ports {
            let mut sample = sample.lock();
            self.syns.extend(sample.syns.iter().map(|signal| NamedSyn::of(signal, *interface)));
            if let Some(last) = sample.syns.last().filter(|_| sample.is_full) {
                let end = last.moment();
                sampled_until = sampled_until.filter(|until| until.since_ns(end) < 0).or(Some(end));
            }
            sample.syns.clear();
            sample.is_full = false;
            sample.round += 1;
        }
        if has_losses {
            return 0;
        }
        self.syns.sort_by_key(|syn| syn.isn);
        let mut count = 0;
        for syns in self.syns.chunk_by(|one, other| one.isn == other.isn) {
            if are_two_names(syns, sampled_until) {
                count += 1;
                let isn = syns[0].isn;
                if self.found.len() < NUMBER_COUNT_MIN && !self.found.contains(&isn) {
                    self.found.push(isn);
                }
            }
        }
        if self.found.len() < NUMBER_COUNT_MIN { 0 } else { count }
    }
}

/// Whether these SYNs, at least one, all with the same number, are of one connection under two names. Samples are whole
/// until that moment.
fn are_two_names(syns: &[NamedSyn], sampled_until: Option<Moment>) -> bool {
    let one = syns[0];
    let Some(other) = syns.iter().find(|syn| syn.name != one.name) else { return false };
    let has_end_in_common = one.name[0] == other.name[0] || one.name[1] == other.name[1];
    let is_in_time = one.moment.since_ns(other.moment).abs() <= NAMES_APART_MAX_NS;
    if !has_end_in_common || !is_in_time || syns.iter().any(|syn| ![one.name, other.name].contains(&syn.name)) {
        return false;
    }
    let is_apart = |syn: &NamedSyn| syns.iter().all(|twin| twin.name == syn.name || twin.interface != syn.interface);
    let is_sampled =
        |syn: &NamedSyn| sampled_until.is_none_or(|until| until.since_ns(syn.moment) >= SAMPLE_END_DOUBT_NS);
    syns.len() <= SYN_COUNT_MAX && syns.iter().all(|syn| is_apart(syn) && is_sampled(syn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{FlowKey, KeyV4, VlanTags};
    use crate::signal::{ConnectionHash, SignalParts};

    const SERVER: u32 = 0xc000_0201;
    const ROUTER: u32 = 0xc633_6401;
    const LAN: usize = 0;
    const WAN: usize = 1;

    /// A SYN of a client to the server.
    fn syn(client: u32, isn: u32, at_us: i64) -> Signal {
        let (key, sender) = KeyV4::new((client, 40_000), (SERVER, 443), VlanTags::NONE).canonical();
        let parts = SignalParts { tick: 0, kind: SignalKind::Syn, sender, isn };
        Signal::new(&key, ConnectionHash::new(0), parts).at(Moment::of(at_us * 1_000))
    }

    /// Samples these SYNs, each at its port.
    fn sample(ports: &mut [SynSampler], syns: &[(usize, Signal)]) {
        for (port, signal) in syns {
            ports[*port].take(signal);
            ports[*port].pass_on();
        }
    }

    /// What is found at the end of an interval with these SYNs, each with its port.
    fn found(names: &mut TwoNames, ports: &mut [SynSampler], syns: &[(usize, Signal)]) -> u64 {
        sample(ports, syns);
        names.end_interval(false)
    }

    #[test]
    fn connections_behind_a_masquerade_are_found_from_the_third_on() {
        let (mut ports, mut names) = TwoNames::of_interfaces(&[LAN, WAN]);
        let translated = |number: u32| [(LAN, syn(10 << 24 | number, number, 0)), (WAN, syn(ROUTER, number, 300))];
        let routed = |number: u32| [LAN, WAN].map(|port| (port, syn(11 << 24 | number, number, 0)));
        assert_eq!(found(&mut names, &mut ports, &[translated(1), routed(11)].concat()), 0);
        assert_eq!(found(&mut names, &mut ports, &[translated(1), translated(2)].concat()), 0, "1 is repeated");
        assert_eq!(found(&mut names, &mut ports, &[translated(3), routed(12), translated(4)].concat()), 2);
        assert_eq!(found(&mut names, &mut ports, &routed(13)), 0);
        sample(&mut ports, &translated(5));
        assert_eq!(names.end_interval(true), 0, "packets were lost");
    }

    #[test]
    fn what_forgers_and_scanners_send_is_not_taken_for_translations() {
        let (mut ports, mut names) = TwoNames::of_interfaces(&[LAN, WAN, WAN]);
        let routed =
            |client: u32, isn: u32, at_us: i64| [(WAN, syn(client, isn, at_us)), (LAN, syn(client, isn, at_us + 50))];
        let mut all = Vec::new();
        // One number for all; two clients for each number, routed; and at two threads of one interface.
        (0..300).for_each(|number| all.extend(routed(number, 7, i64::from(number) * 10)));
        for number in 1_000..1_200 {
            all.extend(routed(number, number, 0));
            all.extend(routed(number + 1_000, number, 20));
            all.extend([(WAN, syn(number, number + 5_000, 0)), (2, syn(number + 1, number + 5_000, 0))]);
        }
        // Under two names, but seconds apart.
        (0..20).for_each(|number| all.extend([(LAN, syn(1, number, 0)), (WAN, syn(2, number, 3_000_000))]));
        assert_eq!(found(&mut names, &mut ports, &all), 0);
        assert!(names.found.is_empty());
    }

    #[test]
    fn a_flood_fills_the_sample_and_shows_nothing_that_is_not_there() {
        let (mut ports, mut names) = TwoNames::of_interfaces(&[LAN, WAN]);
        for round in 0..3 {
            // What comes at the wide side comes at the other a little later, and two clients share each number.
            let mut flood: Vec<_> = (0..20_000_u32)
                .flat_map(|number| {
                    let at_us = i64::from(number);
                    [(WAN, syn(number, number / 2, at_us)), (LAN, syn(number, number / 2, at_us + 700))]
                })
                .collect();
            flood.sort_by_key(|(_, signal)| signal.moment().since_ns(Moment::of(0)));
            assert_eq!(found(&mut names, &mut ports, &flood), 0, "{round}");
            assert!(names.found.is_empty());
        }
        // It ends, and translations are found again.
        let all: Vec<_> =
            (0..5).flat_map(|number| [(LAN, syn(number, number, 0)), (WAN, syn(ROUTER, number, 90))]).collect();
        found(&mut names, &mut ports, &all);
        assert_eq!(found(&mut names, &mut ports, &all), 5);
    }
}
