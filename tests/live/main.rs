//! `flowpeel live` and the capture under it with real traffic, in network namespaces.
//!
//! Every test makes hosts of its own, namespaces joined by cables (veth), runs real TCP over them, and removes them at
//! the end, also when it fails. Nothing outside is touched: no interface, rule, setting or process of the machine. The
//! truth comes from the kernels of the hosts, by `ss`; a list is compared with it if nothing has changed since before
//! its interval began.
//!
//! - `exact`: 500 connections opened, held and ended in every way, on hosts, a router, VLANs; those older than the
//!   capture
//! - `capture`: live capture as the library offers it
//! - `older`: connections that are older than the capture
//! - `programs`: a web server, streams, sessions
//! - `audit`: lists that audit themselves against the kernel
//! - `burst`: packets as fast as they can be sent, of which none is lost, or none without a word
//! - `stops`: signals under load, and `kill -9`
//! - `conntrack`: what the kernel of a router tracks and translates
//! - `events`: the openings and ends that the kernel of a router has too
//! - `collect`: an agent that has only the snapshots writes the same lists
//! - `privacy`: what others can read, and privileges
//! - `privileges`: giving them up, in processes of their own
//! - `quiet`: what `--quiet` does not say
//! - `router`: the example of a router with the engine inside
//! - `top`: who looks at a capture, and is killed or stopped meanwhile
//! - `restart`: a capture that is killed and goes on from the state it saved
//! - `soak`: a changing load, interfaces that go and come back; its long form is `scripts/soak`
//!
//! They need root, `ip`, `ss` and python3, some of them also tcpreplay, tcpdump or others, and are skipped, and say so,
//! where these are missing. No test depends on the speed of the machine: waiting ends when the awaited event comes, or
//! fails after a minute.

mod audit;
mod burst;
mod capture;
mod collect;
mod conntrack;
mod events;
mod exact;
mod lab;
mod older;
mod privacy;
mod privileges;
mod process;
mod programs;
mod quiet;
mod restart;
mod router;
mod soak;
mod sockets;
mod stops;
#[path = "../support/mod.rs"]
mod support;
mod top;
mod watch;
