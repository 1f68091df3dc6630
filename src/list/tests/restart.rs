//! A list and its partitions that are saved, and others that continue from there.

use super::*;
use crate::list::liveness::IDLE_EPOCHS;
use crate::state::{Decoder, Encoder};
use crate::track::Partition;

impl Rig {
    /// Ends an interval, saves everything, and restores it into a new rig.
    fn restart(self) -> Self {
        let mut before = self;
        let marker = Marker { end_tick: before.tick, saves: true, ..Marker::default() };
        let Lockstep { shard, exchange, list, asks } = &mut before.engine;
        shard.end_interval(&marker, exchange);
        let mut parts = vec![Vec::new(); PARTITION_COUNT];
        for mut hand_over in exchange.take() {
            if let Some(saved) = hand_over.end.as_mut().and_then(|end| end.saved.take()) {
                parts[hand_over.partition] = saved.bytes;
            }
            list.apply(hand_over);
        }
        list.end_interval(|_| (), |_, _| ()).unwrap();
        let asks = *asks;
        let inquiries: Vec<_> =
            (0..PARTITION_COUNT).map(|partition| list.inquiry(partition).filter(|_| asks)).collect();
        let mut encoder = Encoder::default();
        list.save(&mut encoder);
        let list = encoder.into_bytes();

        let mut after = Rig::new(asks);
        for partition in after.engine.shard.partitions() {
            partition.restore(&parts[partition.index()]).unwrap();
            assert!(partition.restore(&parts[partition.index()][1..]).is_err());
            partition.restore(&parts[partition.index()]).unwrap();
        }
        for end in (0..list.len()).step_by(1 + list.len() / 50) {
            assert!(Rig::new(asks).engine.list.restore(&mut Decoder::new(&list[..end])).is_err());
        }
        let mut decoder = Decoder::new(&list);
        after.engine.list.restore(&mut decoder).unwrap();
        assert!(decoder.end().is_ok());
        for (partition, inquiry) in inquiries.into_iter().enumerate() {
            after.engine.exchange.ask(partition, inquiry);
        }
        (after.open, after.next, after.tick) = (before.open, before.next, before.tick);
        after
    }

    /// Ends an interval and continues without a restart.
    fn go_on(mut self) -> Self {
        self.end_interval().unwrap();
        self
    }
}

#[test]
fn what_could_not_be_decoded_is_decoded_after_a_restart_as_it_would_have_been() {
    let rigs = [Rig::restart, Rig::go_on].map(|end| {
        let rig = overload(true, 3);
        let mut rig = end(rig);
        let mut headers = Vec::new();
        for _ in 0..12 {
            rig.churn(CHURN / 2, CHURN / 2);
            rig.everybody_talks();
            headers.push(rig.end_interval().unwrap());
        }
        rig.assert_exact();
        (headers, rig.engine.list.outcome(), rig.engine.list.counts())
    });
    let [restarted, gone_on] = rigs;
    assert!(restarted.0.iter().any(|(header, _)| header.missing > 0), "the residue was saved too");
    assert!(restarted == gone_on);
}

#[test]
fn after_a_break_everything_is_in_doubt_until_it_is_seen_or_closes() {
    let mut rig = Rig::new(true);
    rig.churn(CHURN, 0);
    rig.assert_exact();
    let mut rig = rig.restart();
    rig.tick += 3_000;
    rig.engine.shard.partitions().for_each(Partition::forget_seen);
    rig.engine.list.unsettle(rig.tick);
    let (header, listed) = rig.end_interval().unwrap();
    assert_eq!((header.unsettled, listed.len() as u64), (CHURN, CHURN));
    assert_eq!(rig.engine.exchange.asked_count(), PARTITION_COUNT, "all of them are asked");

    let open: Vec<_> = rig.open.keys().copied().collect();
    for (index, key) in open.iter().enumerate() {
        match index % 4 {
            0 => rig.signal(key, SignalKind::Ack, true),
            1 => {
                rig.signal(key, SignalKind::Rst, true);
                rig.open.remove(key);
            }
            _ => {}
        }
    }
    rig.tick += 10;
    rig.end_interval().unwrap();
    rig.tick += 10;
    let (header, listed) = rig.end_interval().unwrap();
    assert_eq!((header.unsettled, header.flows), (CHURN / 2, CHURN * 3 / 4));
    assert!(listed == rig.open, "what is in doubt is still listed");

    rig.everybody_talks();
    rig.end_interval().unwrap();
    rig.tick += 10;
    assert_eq!(rig.end_interval().unwrap().0.unsettled, 0);
    assert_eq!(rig.engine.exchange.asked_count(), 0, "there is nothing to ask about any more");
}

#[test]
fn after_a_break_a_fin_of_one_side_leaves_in_doubt_whether_the_other_has_ended() {
    const EPOCH_TICKS: u64 = 1_000;
    let idle_ticks = Some(EPOCH_TICKS * IDLE_EPOCHS);
    let mut rig = Rig::with(true, 20_000, EvictionTimes { idle_ticks, ..EvictionTimes::default() });
    rig.churn(CHURN, 0);
    rig.assert_exact();
    let before: Vec<_> = rig.open.keys().copied().collect();
    rig.tick += 3_000;
    rig.engine.shard.partitions().for_each(Partition::forget_seen);
    rig.engine.list.unsettle(rig.tick);
    rig.end_interval().unwrap();
    rig.churn(CHURN, 0);
    // What is asked at the end of one interval is known at that of the next.
    let unsettled = |rig: &mut Rig| {
        rig.tick += EPOCH_TICKS;
        rig.end_interval().unwrap();
        rig.end_interval().unwrap().0.unsettled
    };
    let (ended, talked) = before.split_at(before.len() / 2);
    let fins = |rig: &mut Rig, keys: &[KeyV4], of_client| {
        keys.iter().for_each(|key| rig.signal(key, SignalKind::Fin, of_client));
    };
    // A FIN alone settles nothing, nor does what is acknowledged behind it.
    fins(&mut rig, ended, false);
    assert_eq!(unsettled(&mut rig), CHURN);
    rig.everybody_talks();
    assert_eq!(unsettled(&mut rig), CHURN / 2);
    rig.everybody_talks();
    assert_eq!(unsettled(&mut rig), CHURN / 2);
    rig.assert_exact();
    // What was settled by an acknowledgement is in doubt again, and of what opened since nothing is.
    fins(&mut rig, talked, false);
    let since: Vec<_> = rig.open.keys().filter(|key| !before.contains(key)).copied().collect();
    fins(&mut rig, &since, false);
    assert_eq!(unsettled(&mut rig), CHURN);
    rig.assert_exact();
    for (keys, left) in [(ended, CHURN / 2), (talked, 0)] {
        fins(&mut rig, keys, true);
        for key in keys {
            rig.open.remove(key);
        }
        assert_eq!(unsettled(&mut rig), left);
        rig.assert_exact();
    }
}
