//! The server's metrics for Prometheus. No address of a connection is among them.

use super::follow::View;
use crate::network::{self, Health};
use flowpeel::metrics::{Heading, Kind, Samples};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the server counts.
#[derive(Default)]
pub(super) struct Counts {
    /// Requests that were answered.
    pub(super) answered: AtomicU64,
    /// Requests that were refused: another host, no such page, not understood.
    pub(super) refused: AtomicU64,
    /// Requests for which there was no time.
    pub(super) overloaded: AtomicU64,
    /// Clients that made room for newer ones.
    pub(super) pushed_out: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The page of metrics.
pub(super) fn page(view: &View, counts: &Counts, clients: usize) -> String {
    let mut text = String::new();
    let routers = view.routers();
    let joined = &view.network.joined;
    let mut one = |name, kind, help, value: f64| Samples::new(&mut text, Heading { name, kind, help }).value(value);
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    one("flowpeel_fleet_view", Kind::Counter, "Views that were made.", view.number as f64);
    one(
        "flowpeel_fleet_view_end_seconds",
        Kind::Gauge,
        "The end of the view, since 1970.",
        joined.end_ns() as f64 / 1e9,
    );
    one(
        "flowpeel_fleet_view_read_seconds",
        Kind::Gauge,
        "How long the last view took to make.",
        view.took.as_secs_f64(),
    );
    one(
        "flowpeel_fleet_view_bytes",
        Kind::Gauge,
        "What the connections of the view take.",
        joined.memory_size() as f64,
    );
    let is_complete = view.is_complete(&routers);
    let (peers, answering) = view.peers.counts();
    one("flowpeel_fleet_view_complete", Kind::Gauge, "Whether the view is complete.", f64::from(u8::from(is_complete)));
    one("flowpeel_fleet_connections", Kind::Gauge, "Open connections in the view.", joined.len() as f64);
    one(
        "flowpeel_fleet_missing",
        Kind::Gauge,
        "About how many connections are missing in lists.",
        network::missing(&routers) as f64,
    );
    one("flowpeel_fleet_peers", Kind::Gauge, "Peers that are asked for their shares.", peers as f64);
    one("flowpeel_fleet_peers_answering", Kind::Gauge, "Peers that answer.", answering as f64);
    one("flowpeel_fleet_clients", Kind::Gauge, "Clients that are connected.", clients as f64);
    one(
        "flowpeel_fleet_clients_pushed_out_total",
        Kind::Counter,
        "Clients that made room for newer ones.",
        read(&counts.pushed_out),
    );
    one(
        "flowpeel_fleet_requests_answered_total",
        Kind::Counter,
        "Requests that were answered.",
        read(&counts.answered),
    );
    one("flowpeel_fleet_requests_refused_total", Kind::Counter, "Requests that were refused.", read(&counts.refused));
    one(
        "flowpeel_fleet_requests_overloaded_total",
        Kind::Counter,
        "Requests for which there was no time.",
        read(&counts.overloaded),
    );
    let name = "flowpeel_fleet_routers";
    let mut samples = Samples::new(&mut text, Heading { name, kind: Kind::Gauge, help: "Routers by how they are." });
    for health in [Health::Reporting, Health::Late, Health::Gone, Health::Waiting, Health::Unreadable] {
        let count = routers.iter().filter(|router| router.health == health).count();
        samples.labelled(&[("health", health.name())], count);
    }
    let (name, help) = ("flowpeel_fleet_router_silent_seconds", "For how long no list of a router has come.");
    let mut samples = Samples::new(&mut text, Heading { name, kind: Kind::Gauge, help });
    for router in &routers {
        if let Some(silent) = router.silent {
            samples.labelled(&[("router", &router.name)], silent);
        }
    }
    text
}
