//! Worlds of hosts, simulated from a seed, and every list of every interval held against what was open in them.
//!
//! ```text
//! hosts (smoltcp) --- lost, late, doubled ---> tap 0 -> router, NAT -> tap 1 --- lost, late ---> hosts (smoltcp)
//! the crowd, who forges, floods -------------> ^^^^^                   ^^^^^
//!                                               |  stamps of clocks that lie
//!                                               v
//!                                              engine -> lists  <-- held against -->  truth
//! ```
//!
//! - `world`: the numbers that make a world, all of a seed
//! - `host`: hosts with the state machines of smoltcp's TCP, and what their applications do
//! - `crowd`: connections without a TCP behind them, for mass
//! - `network`: what happens, in order of time: losses, the router, who forges, and floods
//! - `clocks`: the stamps of the taps
//! - `truth`: what is open, by what has passed
//! - `held`: a world through the engine, and its lists against the truth
//! - `shrink`, `long`: the shortest world that shows something, and worlds for as long as asked (`scripts/simulate`)
//!
//! # Rules
//!
//! Who sent a packet is known here, and what its connection came to; no tap sees that. A list that says that it is not
//! complete, or that its time is uncertain, is not held against anything. Of the others:
//!
//! - **Only what passed a tap counts.** A connection is open when the client's packet behind the server's SYN-ACK has
//!   passed, until both FINs have, or a RST of a side that has no such connection any more. What a host knows and no
//!   packet has shown is no violation.
//! - **A server that answers a SYN has none of the connections before** with the same ends, once the client has
//!   answered. Until then nothing is certain of them: the SYN-ACK may be forged.
//! - **A start** is the tick of the first packet of the handshake. Where others' packets came into the handshake, where
//!   the connection took the place of another, and in a world with a flood, it is between that and the end of the
//!   handshake.
//! - **False ends hide a connection until its side goes on**: a RST or FIN of another connection or a forger, until
//!   three seconds later a packet without a flag has passed of the side that seemed to end. That packet must not lie
//!   less than 16 MiB before the number of a forged FIN, nor behind the side's own FIN, where late packets do. It shows
//!   nothing for as long as a SYN behind the false end seems to begin another connection (a timeout of the engine's);
//!   and it may show nothing when more than three false ends have come, when other connections have ended since
//!   the first false FIN, which may have taken its place in the engine's tables, or when its handshake has come again.
//! - **False packets in a handshake**: data or a FIN, in the client's name between a SYN-ACK and its answer, may
//!   complete it, a RST there may end it, and a SYN in the server's name turns it round. Until the true answer, or for
//!   good, nothing is certain.
//! - **Data behind the end is life**: forged, or a copy that comes more than two seconds behind a RST (a quarter of a
//!   second, if it reaches beyond that), or when so many others have ended that the end may be forgotten (one in 256 of
//!   those that there is room for, a sixteenth of these for each false end, or more than three false ends that have
//!   come, before it or behind). So is forged data of a side that has sent its FIN, and a copy of the SYN-ACK with an
//!   answer, from a second behind the end on. Whether such a connection is listed is not certain until another begins
//!   between the same ends.
//! - **Data of an earlier connection behind the end of the last** between the same ends is life too, for all that is
//!   known, from two seconds behind its own end on.
//! - **A SYN-ACK that is forged behind an end**, true or false, makes the packets that follow seem to be its answers:
//!   for as long as a handshake may take what they open is not certain, until another connection begins.
//! - **A false SYN-ACK that the other side happens to follow**, by less than 64 KiB, begins another connection for all
//!   that its packets show: one in 65,536 random numbers does. One in the client's name makes the server its client.
//! - **Numbers that agree in 17 bits** are the same to the engine, which keeps no more of them (see docs/design.md):
//!   of a connection whose client's initial number agrees so with the last one between the same ends nothing is
//!   certain. One in 131,072 does.
//! - **A SYN-ACK that no tap captured** leaves a connection of which the server's packets show nothing but that it
//!   talks. If one between the same ends is known to have ended, they may seem to be of that, and it is listed. Behind
//!   a SYN-ACK that was forged the client's packets seem to complete the handshake, from there on.
//! - **A SYN-ACK that passes behind the client's answer**, as a copy does of one that was not captured: the whole
//!   handshake has passed, and the connection is listed if the answer was seen. Of packets without a flag it always is
//!   with an idle timeout, and seldom without. Until the client's next packet nothing is certain. A FIN of the server
//!   that passes before its SYN-ACK may be that of a connection before, and leaves its own half closed.
//! - **A SYN is repeated** within the engine's timeout, for less than ten minutes, and a SYN-ACK within that timeout:
//!   otherwise the start may be that of a later one.
//! - **A handshake takes less than the engine's timeout** from the SYN-ACK on.
//! - **A server's FIN before its client's answer** is all that is left of a handshake which a flood has pushed out: it
//!   is half-open from then on.
//! - **Silence for the idle timeout** may take a connection off at any list from then on, until it ends.
//! - **With `pickup`** what was seen of both sides may be listed, and copies that come more than nine seconds behind an
//!   end. What is found behind a false end, or behind a leap of the clock that took it off, half closed for nine
//!   seconds, seems open when its other side ends.
//! - **Clocks lie** in worlds of an hour at most: where packets are minutes apart no stamp follows another. What
//!   changed within 200 s of a list's end, or as far from it as two clocks are apart, is not held against it. What a
//!   clock that is set forward by less than a month does to handshakes under way and to silence, real time would do
//!   too. The silence before a clock is set back, or by more than a month, is no time, nor is a pause of a minute
//!   before it that few packets follow, or behind it that few go before. Behind a pause about as long as a clock was
//!   set back, it may be the clock as it was before for all that stamps show.

mod clocks;
mod crowd;
mod held;
mod host;
mod long;
mod network;
mod shrink;
mod truth;
mod wire;
mod world;

use held::hold;
use world::World;

/// Hosts and nothing that disturbs them.
const QUIET: &str = "seed=1,busy_s=60,lasts_s=600,every_s=10,shards=1,clients=1,servers=1,connections=20,ports=1000,\
    room=20000,taps=1,copy_late_ms=1,flood_rate=100";

#[test]
fn one_client_and_one_server_are_listed_as_they_are() {
    let held = hold(&QUIET.parse().unwrap());
    assert_eq!((held.violations, held.incomplete, held.doubtful()), (0, 0, 0), "{held:?}");
    assert!(held.connections > 10 && held.lists > 20 && held.open > 50, "{held:?}");
}

#[test]
fn small_worlds_are_listed_as_they_are() {
    for seed in 0..12 {
        let world = World::of(seed, true);
        let held = hold(&world);
        assert_eq!(held.violations, 0, "scripts/simulate --world {world}\n{held:#?}");
    }
}

#[test]
fn a_world_is_the_same_again() {
    let world = World::of(7, true);
    assert_eq!(hold(&world), hold(&world));
}
