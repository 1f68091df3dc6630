//! Pieces of frames from all routers in, whole snapshots out.
//!
//! It takes messages in any order, several times, forged or damaged, each with a ticket that is given back when the
//! message is done with; and gives for each router its snapshots in order, with the tickets of all that they were made
//! of. It reads and writes nothing.
//!
//! For each partition it keeps the last image, on which the next frame builds. A frame whose base is not there yet
//! waits for it, within bounds; one whose base never comes costs its snapshot and those after it until the next whole
//! one. Memory is only taken for what a router has signed.

use crate::frame::{End, FrameStart, Hashed, ImageHash, Refusal, RunId};
use crate::key::{FleetKey, RouterKey};
use crate::piece::{Assembled, Assembly, Whole};
use crate::subject;
use flowpeel::error::{Error, Result};
use flowpeel::export::SnapshotName;
use flowpeel::signal::{PARTITION_COUNT, PartitionSet};
use flowpeel::snapshot::{KeyId, SnapshotFile};
use flowpeel_iblt::hash::Secret;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Frames of a partition that may wait for the one that they build on.
const WAITING_MAX: usize = 4;

/// Snapshots of a router of which only some partitions have come. One shipper sends all partitions of a snapshot before
/// the next.
const PENDING_MAX: usize = 4;

/// Earlier runs of a router that are remembered, so that a late frame of one is not taken for a new run.
const ENDED_RUNS_MAX: usize = 16;

/// How often something was not used, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    fn count(&mut self, refusal: Refusal) {
        self.0[refusal as usize] += 1;
    }

    /// How often it was for this reason.
    #[must_use]
    pub fn of(&self, refusal: Refusal) -> u64 {
        self.0[refusal as usize]
    }

    /// All reasons, each with how often it was.
    pub fn all(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().map(|refusal| (refusal, self.of(refusal)))
    }
}

/// A snapshot that is whole.
#[derive(Debug)]
pub struct Received<T> {
    /// The router.
    pub router: String,
    /// The name of its file.
    pub name: SnapshotName,
    /// The snapshot. Partitions that are not taken are empty.
    pub snapshot: SnapshotFile,
    /// The head of its images, which counts what is in all partitions.
    pub head: Vec<u8>,
    /// What came with each message that it was made of.
    pub tickets: Vec<T>,
}

/// What a message led to.
#[derive(Debug)]
pub struct Taken<T> {
    /// Tickets that are done with: what they came with is of no use any more.
    pub done: Vec<T>,
    /// Snapshots that are whole now, in order.
    pub received: Vec<Received<T>>,
}

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Taken { done: Vec::new(), received: Vec::new() }
    }
}

/// Takes the messages of all routers.
pub struct Inbox<T> {
    secret: Secret,
    key_id: KeyId,
    fleet: FleetKey,
    partitions: PartitionSet,
    routers: BTreeMap<String, Router<T>>,
    refusals: Refusals,
    frames: u64,
}

impl<T> Inbox<T> {
    /// An empty inbox for these partitions of routers whose tables are filled under `secret`.
    #[must_use]
    pub fn new(secret: Secret, fleet: FleetKey, partitions: PartitionSet) -> Self {
        let key_id = KeyId::of(&secret);
        Inbox { secret, key_id, fleet, partitions, routers: BTreeMap::new(), refusals: Refusals::default(), frames: 0 }
    }

    /// The partitions that it takes.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        self.partitions
    }

    /// How many messages and snapshots were not used, by reason.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// How many frames were used.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Of how many snapshots some frames have come, and not all.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.routers.values().map(|router| router.pending.len()).sum()
    }

    /// Whether anything has come that a router of this name has signed.
    #[must_use]
    pub fn knows(&self, router: &str) -> bool {
        self.routers.contains_key(router)
    }

    /// Forgets all that has come, as before the first message. What was counted stays.
    pub fn clear(&mut self) {
        self.routers.clear();
    }

    /// Continues after this snapshot of a router, which is the last that was dealt with. `head` is the
    /// [head](Received::head) of its images where it lacks partitions: the next frames build on that.
    ///
    /// # Errors
    ///
    /// It is no snapshot of one router under the inbox's secret.
    pub fn resume(&mut self, snapshot: &SnapshotFile, head: Option<&[u8]>) -> Result<()> {
        let mut images = snapshot.partition_images(&self.secret)?;
        if let Some(head) = head {
            images.iter_mut().for_each(|image| image.head = head.to_vec());
        }
        let [source] = snapshot.header.sources.as_slice() else {
            return Err(Error::new("this is no snapshot of one router"));
        };
        let mut router = Router::new(&self.fleet, &source.router);
        router.run = Some(RunId { run: source.run, origin_ns: source.origin_ns() });
        let end = (source.end_tick, source.within_tick_ns);
        for (partition, (lane, image)) in router.lanes.iter_mut().zip(images).enumerate() {
            lane.last = self.partitions.has(partition).then(|| (end, Arc::new(Hashed::new(image))));
        }
        self.routers.insert(source.router.clone(), router);
        Ok(())
    }

    /// Takes a message that came under this subject, and what it came with.
    ///
    /// Complexity: for the last piece of a frame some passes over the image; for the last partition of a snapshot, over
    /// all of them.
    pub fn take(&mut self, subject: &str, message: &[u8], ticket: T) -> Taken<T> {
        let mut taken = Taken::default();
        let Some((name, partition)) = subject::parse(subject).filter(|(name, _)| !name.is_empty()) else {
            self.refusals.count(Refusal::Subject);
            taken.done.push(ticket);
            return taken;
        };
        if !self.partitions.has(partition) {
            taken.done.push(ticket);
            return taken;
        }
        let mut router = self.routers.remove(&name);
        let is_known = router.is_some();
        let router_of = router.get_or_insert_with(|| Router::new(&self.fleet, &name));
        let (key, key_id) = (&router_of.key, self.key_id);
        let assembled = router_of.lanes[partition]
            .assembly
            .take(message, ticket, |bytes| FrameStart::read(bytes, (&name, partition), key_id, key));
        let Assembled { whole, refused, is_signed } = assembled;
        let mut work = Work {
            partitions: self.partitions,
            key_id,
            secret: &self.secret,
            refusals: &mut self.refusals,
            frames: &mut self.frames,
            taken: &mut taken,
        };
        refused.into_iter().for_each(|(refusal, tickets)| work.refuse(refusal, tickets));
        if let Some(frame) = whole {
            router_of.take(partition, frame, &mut work);
            router_of.finish(&name, &mut work);
        }
        // A name for which nobody has signed anything is not kept.
        match router {
            Some(router) if is_known || is_signed => drop(self.routers.insert(name, router)),
            router => {
                let lanes = router.into_iter().flat_map(|router| router.lanes);
                let held: Vec<T> = lanes.flat_map(|lane| lane.assembly.into_tickets()).collect();
                if !held.is_empty() {
                    work.refuse(Refusal::Cut, held);
                }
            }
        }
        taken
    }
}

/// What handling a frame adds to.
struct Work<'a, T> {
    partitions: PartitionSet,
    key_id: KeyId,
    secret: &'a Secret,
    refusals: &'a mut Refusals,
    frames: &'a mut u64,
    taken: &'a mut Taken<T>,
}

impl<T> Work<'_, T> {
    fn refuse(&mut self, refusal: Refusal, tickets: impl IntoIterator<Item = T>) {
        self.refusals.count(refusal);
        self.taken.done.extend(tickets);
    }
}

/// What is known of a router.
struct Router<T> {
    key: RouterKey,
    run: Option<RunId>,
    /// The runs before, each with the end of the last frame of it.
    ended: Vec<(RunId, End)>,
    lanes: [Lane<T>; PARTITION_COUNT],
    /// Snapshots of which some partitions are there, by their ends.
    pending: BTreeMap<End, Pending<T>>,
}

/// What is known of a partition of a router.
struct Lane<T> {
    assembly: Assembly<T>,
    /// The last image and the end of its interval.
    last: Option<(End, Arc<Hashed>)>,
    /// Frames that wait for the one that they build on, by their ends.
    waiting: BTreeMap<End, Whole<T>>,
}

struct Pending<T> {
    name: SnapshotName,
    images: [Option<Arc<Hashed>>; PARTITION_COUNT],
    tickets: Vec<T>,
}

impl<T> Lane<T> {
    fn new() -> Self {
        Lane { assembly: Assembly::default(), last: None, waiting: BTreeMap::new() }
    }

    fn last_hash(&self) -> Option<ImageHash> {
        self.last.as_ref().map(|(_, image)| image.hash)
    }

    /// Takes out the waiting frame that builds on the last image, if there is one.
    fn next_waiting(&mut self) -> Option<Whole<T>> {
        let hash = self.last_hash()?;
        let end = *self.waiting.iter().find(|(_, frame)| frame.start.base == Some(hash))?.0;
        self.waiting.remove(&end)
    }
}

impl<T> Router<T> {
    fn new(fleet: &FleetKey, name: &str) -> Self {
        Router {
            key: fleet.of_router(name),
            run: None,
            ended: Vec::new(),
            lanes: std::array::from_fn(|_| Lane::new()),
            pending: BTreeMap::new(),
        }
    }

    /// Takes a frame, and those that have waited for it.
    fn take(&mut self, partition: usize, frame: Whole<T>, work: &mut Work<T>) {
        let mut next = Some(frame);
        while let Some(frame) = next {
            self.take_one(partition, frame, work);
            next = self.lanes[partition].next_waiting();
        }
    }

    fn take_one(&mut self, partition: usize, frame: Whole<T>, work: &mut Work<T>) {
        let (run, end) = (frame.start.place.run, frame.start.place.end);
        if !self.run.is_some_and(|present| present.is_same(&run)) {
            if self.ended.iter().any(|(ended, last)| ended.is_same(&run) && end <= *last) {
                return work.refuse(Refusal::Late, frame.tickets);
            }
            // Only a whole frame can begin a run.
            if frame.start.base.is_some() {
                return work.refuse(Refusal::Base, frame.tickets);
            }
            self.begin_run(run, work);
        }
        let lane = &mut self.lanes[partition];
        if lane.last.as_ref().is_some_and(|(last, _)| end <= *last) || lane.waiting.contains_key(&end) {
            return work.refuse(Refusal::Late, frame.tickets);
        }
        if frame.start.base.is_some() && frame.start.base != lane.last_hash() {
            lane.waiting.insert(end, frame);
            if lane.waiting.len() > WAITING_MAX
                && let Some((_, oldest)) = lane.waiting.pop_first()
            {
                work.refuse(Refusal::Base, oldest.tickets);
            }
            return;
        }
        let base = lane.last.as_ref().map(|(_, image)| &**image);
        let image = match frame.start.image(&frame.bytes, base, work.secret) {
            Ok(image) => Arc::new(image),
            Err(refusal) => return work.refuse(refusal, frame.tickets),
        };
        // What waits for something before this waits in vain.
        let later = lane.waiting.split_off(&end);
        for (_, passed) in std::mem::replace(&mut lane.waiting, later) {
            work.refuse(Refusal::Base, passed.tickets);
        }
        let pending = self.pending.entry(end).or_insert_with(|| Pending {
            name: frame.start.place.name,
            images: std::array::from_fn(|_| None),
            tickets: Vec::new(),
        });
        *work.frames += 1;
        pending.images[partition] = Some(Arc::clone(&image));
        pending.tickets.extend(frame.tickets);
        lane.last = Some((end, image));
    }

    /// Begins another run, with nothing of the one before.
    fn begin_run(&mut self, run: RunId, work: &mut Work<T>) {
        if let Some(before) = self.run.replace(run) {
            let last = self.lanes.iter().filter_map(|lane| lane.last.as_ref()).map(|(end, _)| *end).max();
            self.ended.retain(|(ended, _)| !ended.is_same(&before) && !ended.is_same(&run));
            self.ended.extend(last.map(|end| (before, end)));
            if self.ended.len() > ENDED_RUNS_MAX {
                self.ended.remove(0);
            }
        }
        for (_, unfinished) in std::mem::take(&mut self.pending) {
            work.refuse(Refusal::Unfinished, unfinished.tickets);
        }
        for lane in &mut self.lanes {
            lane.last = None;
            for (_, frame) in std::mem::take(&mut lane.waiting) {
                work.refuse(Refusal::Base, frame.tickets);
            }
        }
    }

    /// Hands over the snapshots of which all partitions are there, and gives up those before them.
    fn finish(&mut self, name: &str, work: &mut Work<T>) {
        let partitions = work.partitions;
        let is_whole = |pending: &Pending<T>| partitions.iter().all(|partition| pending.images[partition].is_some());
        let Some(last) = self.pending.iter().rfind(|(_, pending)| is_whole(pending)).map(|(end, _)| *end) else {
            while self.pending.len() > PENDING_MAX
                && let Some((_, oldest)) = self.pending.pop_first()
            {
                work.refuse(Refusal::Unfinished, oldest.tickets);
            }
            return;
        };
        let later = self.pending.split_off(&last);
        let mut ready = std::mem::replace(&mut self.pending, later);
        ready.extend(self.pending.pop_first());
        for (end, pending) in ready {
            if !is_whole(&pending) {
                work.refuse(Refusal::Unfinished, pending.tickets);
                continue;
            }
            let images = std::array::from_fn(|at| pending.images[at].as_ref().map(|image| &image.image));
            let head = images.iter().flatten().next().map(|image| image.head.clone()).unwrap_or_default();
            let snapshot = SnapshotFile::of_partition_images(&images, work.key_id, work.secret).ok();
            // What a router signs of a frame and what is in it are the same, or it lies.
            let snapshot = snapshot.filter(|snapshot| {
                let source = snapshot.header.sources.first();
                source.is_some_and(|source| {
                    source.router == name
                        && (source.end_tick, source.within_tick_ns) == end
                        && source.figures.end_ns.div_euclid(1_000_000_000) == pending.name.end_s()
                })
            });
            match snapshot {
                Some(snapshot) => work.taken.received.push(Received {
                    router: name.to_owned(),
                    name: pending.name,
                    snapshot,
                    head,
                    tickets: pending.tickets,
                }),
                None => work.refuse(Refusal::Contents, pending.tickets),
            }
        }
    }
}

#[cfg(test)]
mod tests;
