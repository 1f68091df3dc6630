//! What became of generated connections, read from their packets alone.
//!
//! What enters: a capture. What leaves: the packets of each connection, and how many connections did what.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use flowpeel_traffic::{is_client, is_server};

use crate::support::oracle::{Segment, frames_of_pcap, segment};

/// A packet: its time, whether the client sent it, what it says.
pub(crate) type Sent = (u64, bool, Segment);

/// The packets of all connections by their ends, client first; copies left out.
pub(crate) fn conversations(capture: &[u8]) -> BTreeMap<(SocketAddr, SocketAddr), Vec<Sent>> {
    let mut all: BTreeMap<_, Vec<Sent>> = BTreeMap::new();
    for (time_us, bytes) in frames_of_pcap(capture) {
        let segment = segment(bytes).expect("nothing but TCP");
        let from_client = is_client(segment.src.ip());
        let (client, server) = if from_client { (segment.src, segment.dst) } else { (segment.dst, segment.src) };
        assert!(is_client(client.ip()) && is_server(server.ip()));
        all.entry((client, server)).or_default().push((time_us, from_client, segment));
    }
    all
}

#[derive(Default, Debug)]
pub(crate) struct Census {
    pub(crate) ipv6: usize,
    pub(crate) refused: usize,
    pub(crate) unanswered: usize,
    pub(crate) unacknowledged: usize,
    pub(crate) two_fins: usize,
    pub(crate) reset: usize,
    pub(crate) fin_then_reset: usize,
    pub(crate) half_closed: usize,
    pub(crate) never_closed: usize,
    pub(crate) repeated_syn: usize,
    pub(crate) repeated_syn_ack: usize,
    pub(crate) repeated_fin: usize,
    pub(crate) late_fin: usize,
    pub(crate) late_reset: usize,
}

fn is_repeated(packets: &[Sent], wanted: impl Fn(&Segment) -> bool) -> bool {
    let mut seen: HashMap<(bool, u32), u64> = HashMap::new();
    packets.iter().filter(|(.., segment)| wanted(segment)).any(|(time_us, from_client, segment)| {
        let first_us = *seen.entry((*from_client, segment.seq)).or_insert(*time_us);
        time_us - first_us >= 200_000
    })
}

/// What happened in one conversation whose ports nobody reused, and that was over when the capture ended.
pub(crate) fn take_census(packets: &[Sent], census: &mut Census) {
    let any = |wanted: &dyn Fn(bool, &Segment) -> bool| packets.iter().any(|(_, side, segment)| wanted(*side, segment));
    let syn_ack = any(&|_, segment| segment.syn && segment.ack_flag);
    let acknowledged = any(&|from_client, segment| from_client && !segment.syn && !segment.rst);
    census.ipv6 += usize::from(packets[0].2.src.is_ipv6());
    census.repeated_syn += usize::from(syn_ack && is_repeated(packets, |segment| segment.syn && !segment.ack_flag));
    if !syn_ack {
        let refused = any(&|from_client, segment| !from_client && segment.rst);
        census.refused += usize::from(refused);
        census.unanswered += usize::from(!refused);
        return;
    }
    if !acknowledged {
        census.unacknowledged += 1;
        return;
    }
    census.repeated_syn_ack += usize::from(is_repeated(packets, |segment| segment.syn && segment.ack_flag));
    census.repeated_fin += usize::from(is_repeated(packets, |segment| segment.fin));
    let at =
        |wanted: &dyn Fn(bool, &Segment) -> bool| packets.iter().position(|(_, side, segment)| wanted(*side, segment));
    let fins = (at(&|side, segment| side && segment.fin), at(&|side, segment| !side && segment.fin));
    let reset_at = at(&|_, segment| segment.rst);
    let closed_at = match (fins, reset_at) {
        ((Some(client), Some(server)), reset) if reset.is_none_or(|reset| reset > client.max(server)) => {
            census.two_fins += 1;
            client.max(server)
        }
        ((None, None), Some(reset)) => {
            census.reset += 1;
            reset
        }
        ((client, server), Some(reset)) => {
            census.fin_then_reset += usize::from([client, server].iter().flatten().any(|fin| *fin < reset));
            reset
        }
        ((None, None), None) => {
            census.never_closed += 1;
            return;
        }
        _ => {
            census.half_closed += 1;
            return;
        }
    };
    // Later than any delayed copy, and than the answer to the last FIN.
    let late_us = packets[closed_at].0 + 250_000;
    let late =
        |wanted: &dyn Fn(&Segment) -> bool| packets.iter().any(|(us, _, segment)| *us > late_us && wanted(segment));
    census.late_fin += usize::from(late(&|segment| segment.fin));
    census.late_reset += usize::from(late(&|segment| segment.rst));
}

pub(crate) fn initial_numbers(packets: &[Sent]) -> Vec<u32> {
    let syns = packets.iter().filter(|(.., segment)| segment.syn && !segment.ack_flag);
    let mut numbers: Vec<u32> = syns.map(|(.., segment)| segment.seq).collect();
    numbers.dedup();
    numbers
}
