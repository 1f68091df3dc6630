//! The obvious alternative to flowpeel: a hash map of the open connections.
//!
//! It lists the connections open at the end of a capture, each with its client, its server and its start. A SYN
//! inserts, two FINs or one RST remove, and everything else is ignored, SYN-ACKs and retransmitted SYNs too, since
//! everything in the map is open. So an unanswered SYN is listed, and late retransmissions leave ghosts. Keys are the
//! two ends, the lower first, in 12 bytes or 36, and the value is 4 bytes: the map is as small and as fast as an exact
//! one gets.

use super::capture::{Time, each_frame};
use super::frame::{ACK, Addresses, FIN, RST, SIGNALS, segment};
use ahash::RandomState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The size of the output buffer.
const BUFFER_SIZE: usize = 1 << 20;

/// The bits of the ends that have sent a FIN: the lower end of the key, the higher.
const FIN_OF: [u32; 2] = [1, 2];
/// The bit that says that the client is the higher end of the key.
const CLIENT_IS_HIGH: u32 = 4;
/// The start, in ticks of 100 ms since the first of these packets, is in the bits above.
const TICK_SHIFT: u32 = 3;

/// Two ends of IPv4, the lower first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KeyV4 {
    addresses: [u32; 2],
    ports: [u16; 2],
}

/// Two ends of IPv6, the lower first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KeyV6 {
    addresses: [[u32; 4]; 2],
    ports: [u16; 2],
}

const _: () = assert!(size_of::<(KeyV4, u32)>() == 16 && size_of::<(KeyV6, u32)>() == 40);

/// Hashes whole words, since each word hashed costs time.
impl Hash for KeyV4 {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [low, high] = self.addresses.map(u64::from);
        state.write_u64(low << 32 | high);
        state.write_u32(u32::from(self.ports[0]) << 16 | u32::from(self.ports[1]));
    }
}

impl Hash for KeyV6 {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for [a, b, c, d] in self.addresses.map(|address| address.map(u64::from)) {
            state.write_u64(a << 32 | b);
            state.write_u64(c << 32 | d);
        }
        state.write_u32(u32::from(self.ports[0]) << 16 | u32::from(self.ports[1]));
    }
}

/// A key and the index of its sender's end.
#[inline(always)]
fn ordered<A: Ord>(sender: (A, u16), receiver: (A, u16)) -> ([A; 2], [u16; 2], usize) {
    if sender <= receiver {
        ([sender.0, receiver.0], [sender.1, receiver.1], 0)
    } else {
        ([receiver.0, sender.0], [receiver.1, sender.1], 1)
    }
}

/// The open connections of one family.
struct Connections<K> {
    open: HashMap<K, u32, RandomState>,
    bound: usize,
    /// How many connections found no room.
    untracked_count: u64,
}

impl<K: Copy + Eq + Hash> Connections<K> {
    fn new(bounded: Option<usize>) -> Self {
        // A map with a bound need not grow; its pages cost nothing until they are written to.
        let open = HashMap::with_capacity_and_hasher(bounded.unwrap_or(0), RandomState::with_seeds(1, 2, 3, 4));
        Connections { open, bound: bounded.unwrap_or(usize::MAX), untracked_count: 0 }
    }

    /// Takes a packet with one of [`SIGNALS`] from the end of this index.
    #[inline(always)]
    fn take(&mut self, key: K, sender: usize, flags: u8, tick: impl FnOnce() -> u32) {
        if flags & RST != 0 {
            self.open.remove(&key);
        } else if flags & FIN != 0 {
            if let Entry::Occupied(mut entry) = self.open.entry(key) {
                let fins = *entry.get() | FIN_OF[sender];
                if fins & (FIN_OF[0] | FIN_OF[1]) == FIN_OF[0] | FIN_OF[1] {
                    entry.remove();
                } else {
                    *entry.get_mut() = fins;
                }
            }
        } else if flags & ACK == 0 {
            if self.open.len() >= self.bound && !self.open.contains_key(&key) {
                self.untracked_count += 1;
                return;
            }
            let client = if sender == 1 { CLIENT_IS_HIGH } else { 0 };
            self.open.entry(key).or_insert_with(|| tick() << TICK_SHIFT | client);
        }
    }

    /// Writes a line for each connection.
    fn write(&self, begin: Time, ends: impl Fn(&K) -> [SocketAddr; 2], out: &mut impl Write) -> io::Result<()> {
        for (key, value) in &self.open {
            let [low, high] = ends(key);
            let [client, server] = if value & CLIENT_IS_HIGH == 0 { [low, high] } else { [high, low] };
            let tick = value >> TICK_SHIFT;
            let tenths = u64::from(begin.seconds) * 10 + u64::from(begin.microseconds / 100_000) + u64::from(tick);
            writeln!(out, "{client} {server} {}.{}", tenths / 10, tenths % 10)?;
        }
        Ok(())
    }
}

/// The ticks from `begin` to `now`; 0 if that is earlier.
fn tick_at(begin: Time, now: Time) -> u32 {
    let tenths = |time: Time| i64::from(time.seconds) * 10 + i64::from(time.microseconds / 100_000);
    (tenths(now) - tenths(begin)).clamp(0, i64::from(u32::MAX >> TICK_SHIFT)) as u32
}

fn words_v6(address: &[u8; 16]) -> [u32; 4] {
    let (words, _) = address.as_chunks::<4>();
    [0, 1, 2, 3].map(|at: usize| u32::from_be_bytes(words[at]))
}

fn ends_v4(key: &KeyV4) -> [SocketAddr; 2] {
    [0, 1].map(|at: usize| SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(key.addresses[at])), key.ports[at]))
}

fn ends_v6(key: &KeyV6) -> [SocketAddr; 2] {
    [0, 1].map(|at: usize| {
        let bits = key.addresses[at].iter().fold(0, |bits: u128, word| bits << 32 | u128::from(*word));
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), key.ports[at])
    })
}

/// Lists the open connections of a capture.
pub(super) fn run(capture: &Path, bounded: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let (mut v4, mut v6) = (Connections::new(bounded), Connections::new(bounded));
    let mut begin = None;
    each_frame(capture, |now, frame| {
        let Some(segment) = segment(frame).filter(|segment| segment.flags & SIGNALS != 0) else { return };
        let begin = *begin.get_or_insert(now);
        let [sender_port, receiver_port] = {
            let [a, b, c, d] = *segment.ports;
            [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
        };
        match segment.addresses {
            Addresses::V4(&[a, b, c, d, e, f, g, h]) => {
                let [from, to] = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
                let (addresses, ports, sender) = ordered((from, sender_port), (to, receiver_port));
                v4.take(KeyV4 { addresses, ports }, sender, segment.flags, || tick_at(begin, now));
            }
            Addresses::V6(both) => {
                let Some((from, to)) = both.split_first_chunk::<16>() else { return };
                let Some(to) = to.first_chunk::<16>() else { return };
                let (addresses, ports, sender) = ordered((words_v6(from), sender_port), (words_v6(to), receiver_port));
                v6.take(KeyV6 { addresses, ports }, sender, segment.flags, || tick_at(begin, now));
            }
        }
    })?;
    let mut out = BufWriter::with_capacity(BUFFER_SIZE, out);
    if let Some(begin) = begin {
        v4.write(begin, ends_v4, &mut out)?;
        v6.write(begin, ends_v6, &mut out)?;
    }
    out.flush()?;
    let untracked_count = v4.untracked_count + v6.untracked_count;
    if untracked_count > 0 {
        eprintln!("{untracked_count} SYNs found no room");
    }
    Ok(())
}
