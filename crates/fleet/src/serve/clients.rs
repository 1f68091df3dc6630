//! Who is connected, and who has to go when there are too many.
//!
//! Clients that mean no good take places and keep them: they send half a request, or read no answer, and come again
//! when they had to go. So it is not simply the oldest that goes. First a client of the network that has the most
//! places; among those, one that has not sent a request in time; then the one of which nothing has come for the
//! longest; and only when nothing else is left one whose request is being answered, which is not what takes long.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How long a client may take for its first request before others are preferred: a few round trips to far away.
const FIRST_REQUEST_TIME: Duration = Duration::from_secs(1);

/// The bits of an IPv6 address that tell networks apart: who has one has all addresses in it.
const NETWORK_MASK: u128 = !0 << 64;

/// What a client is doing. The order is that in which clients have to go, the last first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// Its request is being answered.
    Waits,
    /// It reads an answer, or not; or it thinks about what to ask next.
    Reads,
    /// It has not sent a whole request yet.
    Begins,
}

/// What a client is doing, and since when.
#[derive(Debug)]
pub(super) struct Standing(Mutex<(Doing, Instant)>);

impl Standing {
    fn new() -> Self {
        Standing(Mutex::new((Doing::Begins, Instant::now())))
    }

    /// Notes that a whole request has come, and is answered until this is dropped.
    pub(super) fn answering(&self) -> Answering<'_> {
        self.set(Doing::Waits);
        Answering(self)
    }

    fn set(&self, doing: Doing) {
        *self.0.lock() = (doing, Instant::now());
    }

    fn get(&self, now: Instant) -> (Doing, Duration) {
        let (doing, since) = *self.0.lock();
        (doing, now.saturating_duration_since(since))
    }
}

/// A request that is being answered.
pub(super) struct Answering<'a>(&'a Standing);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.set(Doing::Reads);
    }
}

/// All clients.
pub(super) struct Clients {
    connected: Vec<Connected>,
    count_max: usize,
}

struct Connected {
    network: IpAddr,
    standing: Arc<Standing>,
    task: AbortHandle,
}

impl Clients {
    /// Nobody yet, and never more than this.
    pub(super) fn new(count_max: usize) -> Self {
        Clients { connected: Vec::new(), count_max }
    }

    /// Makes room for one more. Returns whether somebody had to go.
    pub(super) fn make_room(&mut self) -> bool {
        self.connected.retain(|client| !client.task.is_finished());
        if self.connected.len() < self.count_max {
            return false;
        }
        let now = Instant::now();
        let all: Vec<_> = self.connected.iter().map(|client| (client.network, client.standing.get(now))).collect();
        if let Some(place) = who_goes(&all) {
            self.connected.remove(place).task.abort();
        }
        true
    }

    /// Takes a client in, which `serve` serves.
    pub(super) fn take(&mut self, address: IpAddr, serve: impl FnOnce(Arc<Standing>) -> AbortHandle) {
        let standing = Arc::new(Standing::new());
        let task = serve(Arc::clone(&standing));
        self.connected.push(Connected { network: network(address), standing, task });
    }
}

/// What stands for all addresses that one client may have.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK)),
        address => address,
    }
}

/// The place of the one who goes, of clients of these networks that do something for so long.
fn who_goes(clients: &[(IpAddr, (Doing, Duration))]) -> Option<usize> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (network, _) in clients {
        *counts.entry(*network).or_default() += 1;
    }
    let rank = |(network, (doing, time)): &(IpAddr, (Doing, Duration))| {
        let is_in_time = *doing == Doing::Begins && *time < FIRST_REQUEST_TIME;
        (counts.get(network), if is_in_time { Doing::Reads } else { *doing }, *time)
    };
    let last = clients.iter().enumerate().max_by_key(|(place, client)| (rank(client), std::cmp::Reverse(*place)));
    last.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(clients: &[(&str, Doing, u64)]) -> usize {
        let client = |(address, doing, ms): &(&str, Doing, u64)| {
            (network(address.parse().unwrap()), (*doing, Duration::from_millis(*ms)))
        };
        who_goes(&clients.iter().map(client).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn who_has_sent_no_request_goes_before_others_but_not_who_has_just_come() {
        use Doing::{Begins, Reads, Waits};
        let here = "127.0.0.1";
        assert_eq!(who(&[(here, Waits, 9_000), (here, Reads, 8_000), (here, Begins, 1_500), (here, Begins, 1_200)]), 2);
        assert_eq!(who(&[(here, Waits, 9_000), (here, Reads, 800), (here, Begins, 2)]), 1);
        assert_eq!(who(&[(here, Reads, 20), (here, Begins, 200), (here, Waits, 9_000)]), 1);
        assert_eq!(who(&[(here, Waits, 20), (here, Waits, 900), (here, Waits, 900)]), 1);
    }

    #[test]
    fn the_network_with_the_most_places_makes_room() {
        use Doing::{Begins, Reads, Waits};
        let (one, other) = ("192.0.2.1", "::ffff:192.0.2.2");
        assert_eq!(who(&[(one, Begins, 5_000), (other, Waits, 10), (other, Waits, 20)]), 2);
        let of_one_network = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"];
        let [first, second, elsewhere] = of_one_network;
        assert_eq!(who(&[(elsewhere, Reads, 5_000), (first, Reads, 10), (second, Reads, 20)]), 2);
        assert_eq!(who(&[(one, Reads, 10), (other, Reads, 20)]), 1, "of equal ones the one that is still for longer");
    }
}
