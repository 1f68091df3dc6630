//! Routers added up: one table for a whole network.
//!
//! It takes snapshots, or merges of them, and gives their sum, which does not depend on the order or grouping in which
//! they were added. What does not fit is refused before anything is added.

use super::router_part::write_half_open;
use super::{Header, Kind, RouterPart, SnapshotFile};
use crate::disk::Encoder;
use crate::error::{Error, Result};
use crate::handover::DeltaGeometry;
use crate::snapshot::file_format::SNAPSHOT_SOURCES_MAX;
use std::cmp::Ordering;

impl SnapshotFile {
    /// Adds another snapshot: the result has the routers of both, and counts every connection as often as they saw it.
    ///
    /// Complexity: a pass over the tables.
    ///
    /// # Errors
    ///
    /// The tables do not fit, a router is in both, or there are too many routers. Nothing has changed then.
    ///
    /// ```
    /// # use flowpeel_iblt::hash::Secret;
    /// # use flowpeel_iblt::Geometry;
    /// # use flowpeel::handover::DeltaGeometry;
    /// # use flowpeel::snapshot::{Kind, SnapshotFile, RouterPart};
    /// let geometry = DeltaGeometry { v4: Geometry::new(60), v6: Geometry::new(60) };
    /// let of = |router: &str| {
    ///     let source = RouterPart { router: router.to_owned(), ..RouterPart::default() };
    ///     SnapshotFile::new(geometry, false, &Secret::REPLAY, source)
    /// };
    /// let mut network = of("east");
    /// network.add(&of("west"))?;
    /// assert_eq!((network.header.kind, network.header.sources.len()), (Kind::Merge, 2));
    /// assert!(network.add(&of("east")).is_err());
    /// # Ok::<(), flowpeel::error::Error>(())
    /// ```
    pub fn add(&mut self, other: &SnapshotFile) -> Result<()> {
        self.check_fits(other).map_err(|misfit| Error::new(misfit.to_string()))?;
        let routers = self.header.sources.len().saturating_add(other.header.sources.len());
        if routers > SNAPSHOT_SOURCES_MAX {
            return Err(Error::new(format!("{routers} routers in one merge: {SNAPSHOT_SOURCES_MAX} are the most")));
        }
        if let Some(twice) =
            self.header.sources.iter().find(|one| other.header.sources.iter().any(|it| is_same(one, it)))
        {
            let (name, run) = (&twice.router, twice.run);
            let what = format!("router \"{name}\", run {run:016x}, is in both: everything on it would count twice");
            return Err(Error::new(what));
        }
        for (sums, others) in self.sums.iter_mut().zip(&other.sums) {
            let is_added = sums.v4.merge(&others.v4).is_ok() && sums.v6.merge(&others.v6).is_ok();
            debug_assert!(is_added, "headers that fit have tables of one shape");
        }
        self.header.absorb(&other.header);
        Ok(())
    }
}

/// Whether both are snapshots of one run. Replays have no run, and those without a name are distinguished by their
/// contents.
fn is_same(one: &RouterPart, other: &RouterPart) -> bool {
    let is_anonymous = one.router.is_empty() && one.run == 0;
    if is_anonymous { one == other } else { (&one.router, one.run) == (&other.router, other.run) }
}

impl Header {
    fn absorb(&mut self, other: &Header) {
        let (one, another) = (self.unfolded, other.unfolded);
        self.unfolded = DeltaGeometry { v4: one.v4.max(another.v4), v6: one.v6.max(another.v6) };
        self.kind = if self.is_whole() { Kind::Merge } else { Kind::Digest };
        self.sources.extend(other.sources.iter().cloned());
        self.sources.sort_by(in_order);
    }
}

/// An order of routers that depends only on what a file says of them.
fn in_order(one: &RouterPart, other: &RouterPart) -> Ordering {
    let by_interval = |source: &RouterPart| (source.run, source.figures.words());
    let by_name = one.router.cmp(&other.router).then_with(|| by_interval(one).cmp(&by_interval(other)));
    by_name.then_with(|| bytes(one).cmp(&bytes(other)))
}

fn bytes(source: &RouterPart) -> Vec<u8> {
    let mut out = Encoder::default();
    source.write(&[source.half_open.len() as u32], &mut out);
    source.half_open.iter().for_each(|half_open| write_half_open(half_open, &mut out));
    out.into_bytes()
}
