//! The identity of a run: what it must have in common with the run whose state it continues from.
//!
//! It takes a plan and gives the options that change what the state means or which lists are made of it, and the shapes
//! that follow from them. The number of threads is not among them.

use crate::engine::Plan;
use crate::snapshot::KeyId;
use crate::state::Identity;
use flowpeel_iblt::hash::Secret;
use std::time::Duration;

/// The first word of the key id, which distinguishes secrets.
fn key_id(secret: &Secret) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = KeyId::of(secret).0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn ns(time: Option<Duration>) -> u64 {
    time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1))
}

/// The identity of a run.
pub(super) fn of(plan: &Plan) -> Identity {
    let (config, is_live) = (plan.config(), plan.is_live());
    let tracker = &plan.partition.tracker;
    let geometry = plan.partition.geometry;
    Identity(vec![
        ("command", u64::from(is_live)),
        ("secret", key_id(&config.secret)),
        ("--connections", config.connections_max),
        ("--churn", plan.churn()),
        ("--syn-timeout", ns(Some(config.syn_timeout))),
        ("--one-way", u64::from(config.one_way)),
        ("--pickup", u64::from(config.pickup)),
        ("--idle-timeout", ns(config.idle_timeout)),
        ("--max-age", ns(config.max_age)),
        ("--vlan-key", u64::from(config.vlan_key)),
        ("--capture", u64::from(config.answer_opens)),
        ("--archive", u64::from(config.archive_size > 0)),
        ("--events", u64::from(config.event_log_size > 0)),
        ("--changes", config.format.changes.unwrap_or(0)),
        ("--snapshots", u64::from(config.snapshots.is_some())),
        ("--no-list", u64::from(!config.keeps_list())),
        // Live, each interval stands by itself. A replay has to make the same lists.
        ("--every", if is_live { 0 } else { ns(config.every) }),
        ("size of fingerprints", u64::from(config.fingerprint_bits)),
        ("size of the filter", tracker.place_count as u64),
        ("--half-open", tracker.half_open_count as u64),
        ("size of the cache of handshakes", plan.handshake_count as u64),
        ("size of the IPv4 tables", geometry.v4.cell_count() as u64),
        ("size of the IPv6 tables", geometry.v6.cell_count() as u64),
    ])
}
