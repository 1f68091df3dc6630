//! Frames in every order: late, twice, lost, of other runs, and forged.

use super::*;
use crate::frame::{Keys, Place, seal};
use crate::piece;
use crate::sample::{SECRET, fleet, name_of, noise, snapshots};
use proptest::prelude::*;

/// A message: subject, bytes.
type Message = (String, Vec<u8>);

/// The messages of each partition of each snapshot. A frame is whole where its number is a multiple of `whole_every`.
fn messages(snapshots: &[SnapshotFile], whole_every: usize) -> Vec<Vec<Vec<Message>>> {
    let mut before: Option<Vec<Hashed>> = None;
    let messages_of = |(at, snapshot): (usize, &SnapshotFile)| {
        let source = &snapshot.header.sources[0];
        let images: Vec<Hashed> = snapshot.partition_images(&SECRET).unwrap().into_iter().map(Hashed::new).collect();
        let bases = before.replace(images.clone()).filter(|_| at % whole_every != 0);
        let of_partition = |partition: usize| {
            let place = Place {
                router: source.router.clone(),
                key_id: KeyId::of(&SECRET),
                run: RunId { run: source.run, origin_ns: source.origin_ns() },
                interval: source.figures.interval,
                end: (source.end_tick, source.within_tick_ns),
                name: name_of(snapshot),
                partition,
            };
            let key = fleet().of_router(&source.router);
            let base = bases.as_ref().map(|bases| &bases[partition]);
            let frame = seal(&place, &images[partition], base, Keys { secret: &SECRET, router: &key }).unwrap();
            let subject = subject::of(&source.router, partition);
            piece::cut(&frame).map(|(_, piece)| (subject.clone(), piece)).collect()
        };
        (0..PARTITION_COUNT).map(of_partition).collect()
    };
    snapshots.iter().enumerate().map(messages_of).collect()
}

fn inbox() -> Inbox<usize> {
    Inbox::new(SECRET, fleet(), PartitionSet::ALL)
}

/// Takes messages whose tickets are their places. Returns the snapshots, and the tickets that were given back.
fn take_all<'a>(
    inbox: &mut Inbox<usize>,
    messages: impl IntoIterator<Item = &'a Message>,
) -> (Vec<SnapshotFile>, Vec<usize>) {
    let (mut snapshots, mut tickets) = (Vec::new(), Vec::new());
    for (ticket, (subject, bytes)) in messages.into_iter().enumerate() {
        let taken = inbox.take(subject, bytes, ticket);
        tickets.extend(taken.done);
        for received in taken.received {
            tickets.extend(received.tickets);
            assert_eq!(received.name, name_of(&received.snapshot));
            snapshots.push(received.snapshot);
        }
    }
    tickets.sort_unstable();
    (snapshots, tickets)
}

#[test]
fn what_a_router_sends_in_order_comes_out_as_it_was() {
    let sent = snapshots("edge", 7, 6);
    let messages = messages(&sent, 3).concat().concat();
    let mut inbox = inbox();
    let (received, tickets) = take_all(&mut inbox, &messages);
    assert_eq!(received, sent);
    assert!(tickets.iter().copied().eq(0..messages.len()), "every ticket once");
    assert_eq!(inbox.refusals(), Refusals::default());
    // All of it again: nothing new, and every message is done with.
    let (received, tickets) = take_all(&mut inbox, &messages);
    assert!(received.is_empty() && tickets.len() == messages.len());
    assert_eq!(inbox.refusals().of(Refusal::Late), messages.len() as u64);
}

#[test]
fn one_that_continues_needs_only_the_last_snapshot() {
    let sent = snapshots("edge", 7, 4);
    let messages = messages(&sent, 100);
    let mut continued = inbox();
    continued.resume(&sent[1], None).unwrap();
    assert_eq!(take_all(&mut continued, &messages.concat().concat()).0, sent[2..]);
    let mut began = inbox();
    assert!(take_all(&mut began, &messages[2..].concat().concat()).0.is_empty());
    assert_eq!(began.refusals().of(Refusal::Base), 2 * PARTITION_COUNT as u64);
}

#[test]
fn a_lost_frame_costs_snapshots_until_the_next_whole_one() {
    let sent = snapshots("edge", 7, 9);
    let mut messages = messages(&sent, 4);
    messages[1][3].clear();
    let all = messages.concat().concat();
    let mut inbox = inbox();
    let (received, tickets) = take_all(&mut inbox, &all);
    assert_eq!(received, [&sent[..1], &sent[4..]].concat());
    assert!(tickets.iter().copied().eq(0..all.len()), "what is of no use is done with");
    assert_eq!((inbox.refusals().of(Refusal::Base), inbox.refusals().of(Refusal::Unfinished)), (2, 3));
}

#[test]
fn two_frames_that_were_swapped_are_set_in_order() {
    let sent = snapshots("edge", 7, 3);
    let mut messages = messages(&sent, 100);
    messages.swap(1, 2);
    let all = messages.concat().concat();
    let mut inbox = inbox();
    let (received, tickets) = take_all(&mut inbox, &all);
    assert_eq!((received, tickets.len(), inbox.refusals()), (sent, all.len(), Refusals::default()));
}

#[test]
fn frames_of_an_older_run_are_late() {
    let (old, new) = (snapshots("edge", 7, 3), snapshots("edge", 8, 4));
    let (of_old, of_new) = (messages(&old, 100), messages(&new, 100));
    let mut inbox = inbox();
    let mut order = of_old.concat();
    order.extend(of_new[..2].concat());
    order.extend(of_old.concat());
    order.extend(of_new[2..].concat());
    let (received, _) = take_all(&mut inbox, &order.concat());
    assert_eq!(received, [old, new].concat());
    assert_eq!(inbox.refusals().of(Refusal::Late), 3 * PARTITION_COUNT as u64);
}

#[test]
fn routers_do_not_mix_and_nobody_speaks_for_another() {
    let (east, west) = (snapshots("east", 7, 3), snapshots("we.st", 7, 3));
    let (of_east, of_west) = (messages(&east, 100).concat().concat(), messages(&west, 100).concat().concat());
    let mut inbox = inbox();
    // What west has signed, under east's subjects.
    let forged: Vec<Message> =
        of_west.iter().map(|(subject, bytes)| (subject.replace("we%2Est", "east"), bytes.clone())).collect();
    let all: Vec<Message> = of_east
        .iter()
        .zip(&of_west)
        .zip(&forged)
        .flat_map(|((east, west), forged)| [forged, east, west])
        .cloned()
        .collect();
    let (received, _) = take_all(&mut inbox, &all);
    assert_eq!(received.iter().filter(|snapshot| snapshot.header.sources[0].router == "east").count(), 3);
    assert_eq!(received.len(), 6);
    assert_eq!(inbox.refusals().of(Refusal::Tag), forged.len() as u64);
}

#[test]
fn what_nobody_has_signed_leaves_nothing_behind() {
    let mut inbox = inbox();
    let noise: Vec<Message> = (0..100).map(|at| (subject::of(&format!("r{at}"), 0), vec![at; 300])).collect();
    let (received, tickets) = take_all(&mut inbox, &noise);
    assert!(received.is_empty() && tickets.len() == 100 && inbox.routers.is_empty());
    let elsewhere = [("flowpeel.v2.edge.0".to_owned(), vec![1])];
    assert_eq!(take_all(&mut inbox, &elsewhere).1, [0]);
    assert_eq!((inbox.refusals().of(Refusal::NoFrame), inbox.refusals().of(Refusal::Subject)), (100, 1));
}

#[test]
fn a_share_takes_its_partitions_and_no_others() {
    let sent = snapshots("edge", 7, 3);
    let all = messages(&sent, 100).concat().concat();
    let half = PartitionSet::share(1, 2);
    let mut inbox = Inbox::new(SECRET, fleet(), half);
    let (received, tickets) = take_all(&mut inbox, &all);
    assert!(tickets.iter().copied().eq(0..all.len()));
    assert_eq!(received.len(), 3);
    for (received, sent) in received.iter().zip(&sent) {
        for partition in 0..PARTITION_COUNT {
            assert_eq!(received.sums[partition] == sent.sums[partition], half.has(partition));
        }
    }
}

#[test]
fn a_frame_of_several_pieces_that_was_cut_off_is_sent_again() {
    let sent = snapshots("edge", 7, 1);
    let mut all = messages(&sent, 1);
    // A long frame, with a head that no snapshot has.
    let long = Hashed::new(flowpeel::snapshot::PartitionImage { head: noise(600_000), ..Default::default() });
    let source = &sent[0].header.sources[0];
    let place = Place {
        router: "edge".to_owned(),
        key_id: KeyId::of(&SECRET),
        run: RunId { run: 7, origin_ns: None },
        interval: 1,
        end: (source.end_tick, 0),
        name: name_of(&sent[0]),
        partition: 2,
    };
    let key = fleet().of_router("edge");
    let frame = seal(&place, &long, None, Keys { secret: &SECRET, router: &key }).unwrap();
    let pieces: Vec<Message> = piece::cut(&frame).map(|(_, piece)| (subject::of("edge", 2), piece)).collect();
    assert!(pieces.len() > 2);
    let mut inbox = inbox();
    let mut order = pieces[..2].to_vec();
    order.extend_from_slice(&pieces);
    order.push(pieces[1].clone());
    let (received, tickets) = take_all(&mut inbox, &order);
    assert!(received.is_empty());
    // The two that came before are done with, and the frame waits for the other partitions.
    assert_eq!((tickets, inbox.refusals().of(Refusal::Late)), (vec![0, 1], 2));
    // In any order it is the same frame; with a hole in it nothing comes of it, and the next frame takes its place.
    let mut inbox = self::inbox();
    let backwards: Vec<Message> = pieces.iter().rev().cloned().collect();
    let known = &all[0][0][0];
    take_all(&mut inbox, [known]);
    assert!(take_all(&mut inbox, &backwards).1.is_empty());
    assert_eq!(inbox.routers["edge"].pending.len(), 1);
    let mut inbox = self::inbox();
    let with_hole = [&pieces[..1], &pieces[2..]].concat();
    assert!(take_all(&mut inbox, &with_hole).1.is_empty());
    assert_eq!(take_all(&mut inbox, &all[0][2]).1.len(), with_hole.len());
    assert_eq!(inbox.refusals().of(Refusal::Cut), 1);
    all[0][2] = pieces;
    let mut inbox = self::inbox();
    assert!(take_all(&mut inbox, &all.concat().concat()).0.is_empty(), "its partitions contradict each other");
    assert_eq!(inbox.refusals().of(Refusal::Contents), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is lost, comes twice or late: what comes out was sent, in order and once, and with nothing lost all of
    /// it; every ticket comes back.
    #[test]
    fn only_what_was_sent_comes_out(
        lost in proptest::collection::vec(0usize..64, 0..4),
        twice in proptest::collection::vec(0usize..64, 0..6),
        late in proptest::collection::vec((0usize..64, 1usize..16), 0..3),
    ) {
        let sent = snapshots("edge", 7, 8);
        let frames: Vec<Vec<Message>> = messages(&sent, 3).concat();
        let mut order: Vec<usize> = (0..frames.len()).collect();
        for (at, by) in &late {
            let moved = order.remove(*at);
            order.insert((at + by).min(order.len()), moved);
        }
        for at in twice {
            order.insert(at, order[at / 2]);
        }
        order.retain(|at| !lost.contains(at));
        let all: Vec<Message> = order.iter().flat_map(|at| frames[*at].clone()).collect();
        let mut inbox = inbox();
        let (received, tickets) = take_all(&mut inbox, &all);
        let places: Vec<usize> =
            received.iter().map(|snapshot| sent.iter().position(|sent| sent == snapshot).unwrap()).collect();
        prop_assert!(places.is_sorted_by(|one, next| one < next), "{:?}", places);
        if lost.is_empty() && late.is_empty() {
            prop_assert_eq!(received.len(), sent.len());
        }
        let held: usize = inbox.routers.values().map(held_tickets).sum();
        prop_assert_eq!(tickets.len() + held, all.len());
    }
}

fn held_tickets(router: &Router<usize>) -> usize {
    let waiting = router.lanes.iter().flat_map(|lane| lane.waiting.values().map(|frame| frame.tickets.len()));
    let waiting = waiting.chain(router.lanes.iter().map(|lane| lane.assembly.held_count()));
    waiting.chain(router.pending.values().map(|pending| pending.tickets.len())).sum()
}
