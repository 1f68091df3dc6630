//! Every row of the state table, and what real traffic does to it.

use super::*;

/// What can be seen of a connection from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    SynSent,
    Answered,
    Established,
    Closed,
}

use Seen::{Answered, Closed, Established, Nothing, SynSent};

impl Scene {
    /// The state of the connection, given what it did so far. The RST that distinguishes a lingering connection from
    /// none changes neither.
    fn look(&mut self, key: AnyKey, events: &[Event]) -> Seen {
        if let Some(Event::Open(..)) = events.last() {
            return Established;
        }
        if let Some(half_open) = self.half_open().iter().find(|half_open| half_open.key == key) {
            return if half_open.answered { Answered } else { SynSent };
        }
        let late = self.counts().late;
        assert_eq!(self.send(key, Sender::Client, SignalKind::Rst, 1), None);
        if self.counts().late > late { Closed } else { Nothing }
    }
}

/// A script of packets, how often the connection opened and closed by it, and where it stands then.
type Row<'a> = (&'a str, u64, u64, Seen);

fn check(rows: &[Row<'_>]) {
    for &(script, opened, closed, seen) in rows {
        for key in [v4(0), v4(1), v6(0), v6(1)] {
            let mut scene = Scene::new(config());
            let events = scene.play(key, script);
            let opens = events.iter().filter(|event| matches!(event, Event::Open(..))).count() as u64;
            assert_eq!((opens, events.len() as u64 - opens), (opened, closed), "{script} {key:?}: {events:?}");
            assert_eq!((scene.counts().opened, scene.counts().closed), (opened, closed), "{script} {key:?}");
            assert_eq!(scene.look(key, &events), seen, "{script} {key:?}");
            for (at, event) in events.iter().enumerate() {
                match event {
                    Event::Open(named, _) | Event::Close(named, _) => {
                        assert_eq!(*named, key, "{script}: events name the client first");
                    }
                    Event::Reopen(..)
                    | Event::Replace(..)
                    | Event::Turn(..)
                    | Event::Pass(..)
                    | Event::CloseAndPass(..) => {
                        panic!("{script}: {event:?}")
                    }
                }
                assert_eq!(matches!(event, Event::Open(..)), at % 2 == 0, "{script}: an opening, a closing, in turn");
            }
        }
    }
}

#[test]
fn without_an_entry() {
    check(&[
        ("S", 0, 0, SynSent),
        ("a", 0, 0, Answered),
        ("D", 0, 0, Nothing),
        ("d", 0, 0, Nothing),
        ("F", 0, 0, Nothing),
        ("f", 0, 0, Nothing),
        ("R", 0, 0, Nothing),
        ("r", 0, 0, Nothing),
    ]);
}

#[test]
fn syn_sent() {
    check(&[
        ("S1S", 0, 0, SynSent),
        ("S+2S", 0, 0, SynSent),
        ("Sa", 0, 0, Answered),
        ("S+a", 0, 0, Answered),
        ("SD", 0, 0, SynSent),
        ("Sd", 0, 0, SynSent),
        ("SF", 0, 0, Nothing),
        ("Sf", 0, 0, Nothing),
        ("SR", 0, 0, Nothing),
        ("Sr", 0, 0, Nothing),
        ("SrS", 0, 0, SynSent),
    ]);
}

#[test]
fn answered() {
    for before in ["Sa", "S+a", "a", "aS"] {
        let rows = [
            ("S", 0, 0, Answered),
            // If the SYN was not seen, the SYN-ACK may be forged.
            ("2S", 0, 0, if before.starts_with('S') { Answered } else { SynSent }),
            ("a", 0, 0, Answered),
            ("2a", 0, 0, Answered),
            ("+a", 0, 0, Answered),
            ("D", 1, 0, Established),
            ("d", 0, 0, Answered),
            ("F", 1, 0, Established),
            ("Ff", 1, 1, Closed),
            ("f", 0, 0, Answered),
            ("ff", 0, 0, Answered),
            ("fd", 0, 0, Answered),
            ("fD", 1, 0, Established),
            ("fDF", 1, 1, Closed),
            ("fDR", 1, 1, Closed),
            ("fR", 0, 0, Nothing),
            ("R", 0, 0, Nothing),
            ("r", 0, 0, Nothing),
            ("ra", 0, 0, Answered),
        ];
        for (after, opened, closed, seen) in rows {
            let script = format!("{before}{after}");
            check(&[(&script, opened, closed, seen)]);
        }
    }
}

#[test]
fn a_server_that_ends_before_the_clients_ack_needs_no_list_entry() {
    for script in ["SafF", "S+afF", "afF"] {
        let mut scene = Scene::new(config());
        let passed = scene.play(v4(1), script);
        assert!(matches!(passed[..], [Event::Pass(key, _)] if key == v4(1)), "{script}: {passed:?}");
        assert_eq!((scene.counts().opened, scene.counts().closed), (1, 1), "it is counted all the same");
        assert_eq!(scene.look(v4(1), &[]), Closed, "{script}");
    }
}

#[test]
fn established() {
    check(&[
        ("SaDS", 1, 0, Established),
        ("SaD2S", 1, 0, Established),
        ("SaDs", 1, 0, Established),
        ("SaDa", 1, 0, Established),
        ("SaD2a", 1, 0, Established),
        ("SaD2a1D", 1, 0, Established),
        ("SaD2a1DFf", 1, 1, Closed),
        ("SaDf2a1F", 1, 1, Closed),
        ("SaD2at+D", 1, 0, Established),
        ("SaDDdDd", 1, 0, Established),
        ("SaDF", 1, 0, Established),
        ("SaDFF", 1, 0, Established),
        ("SaDf", 1, 0, Established),
        ("SaDff", 1, 0, Established),
        ("SaDfD+D", 1, 0, Established),
        ("SaDFf", 1, 1, Closed),
        ("SaDfF", 1, 1, Closed),
        ("SaDFdddf", 1, 1, Closed),
        ("SaDR", 1, 1, Closed),
        ("SaDr", 1, 1, Closed),
        ("SaDFr", 1, 1, Closed),
        ("SaDfR", 1, 1, Closed),
        ("SaF2a", 1, 0, Established),
        ("SaDttt", 1, 0, Established),
    ]);
}

#[test]
fn a_client_that_follows_another_syn_ack_has_opened_another_connection() {
    for (script, ticks) in [("SaD2aD", 0), ("SaDf2aD", 0), ("SaF2aC", 0), ("SaD+2a+D", 1)] {
        for key in [v4(0), v4(1), v6(0), v6(1)] {
            let mut scene = Scene::new(config());
            let payload = |tick| FilterEntry::tick_of(tick);
            let (first, second) = (payload(scene.tick), payload(scene.tick + ticks));
            let events = scene.play(key, script);
            let replaced = Event::Replace((key, first), (key, second));
            assert_eq!(events.last(), Some(&replaced), "{script}: {events:?}");
        }
    }
}

#[test]
fn closed() {
    check(&[
        ("SaDRS", 1, 1, Closed),
        ("SaDR2S", 1, 1, SynSent),
        ("SaDRa", 1, 1, Closed),
        ("SaDR2a", 1, 1, Answered),
        ("SaDRD", 1, 1, Closed),
        ("SaDRd", 1, 1, Closed),
        ("SaDRF", 1, 1, Closed),
        ("SaDRf", 1, 1, Closed),
        ("SaDRr", 1, 1, Closed),
        ("SaDRl", 1, 1, Closed),
        ("SaDRl+", 1, 1, Nothing),
        ("SaDRlR+", 1, 1, Nothing),
        ("SaDRl+S", 1, 1, SynSent),
        ("SaDR2SaD", 2, 1, Established),
        ("SaDR2SaDFf", 2, 2, Closed),
        ("SaDR2S3SaD", 2, 1, Established),
    ]);
}

#[test]
fn the_same_numbers_open_another_connection_when_they_are_shown_behind_the_end() {
    for end in ["Ff", "fF", "R", "r"] {
        for (after, opened) in [("+C", 1), ("a+C", 1), ("+aC", 2), ("+a+C", 2), ("+S+aC", 2), ("++S+C", 2)] {
            for (before, again) in [("SaC", ""), ("SaC", "a"), ("SaC", "Sa")] {
                let (first, last) = end.split_at(end.len() - 1);
                let script = format!("{before}{first}{again}{last}{after}");
                let seen = if opened == 2 { Established } else { Closed };
                check(&[(&script, opened, 1, seen)]);
            }
        }
    }
    let mut scene = Scene::new(config());
    let second = FilterEntry::tick_of(scene.tick + 3);
    let events = scene.play(v4(1), "SaCFf+++a++a+C");
    assert_eq!(events.last(), Some(&Event::Open(v4(1), second)), "it began with the first");
}

#[test]
fn repeated_late_and_doubled_packets_change_nothing() {
    check(&[
        ("SSaaDDFFffDDFfRr", 1, 1, Closed),
        ("SaSDaSFSfSa", 1, 1, Closed),
        ("SaDFfDFfRSa", 1, 1, Closed),
        ("aSDD", 1, 0, Established),
        ("aDS", 1, 0, Established),
        ("DSaFf", 1, 1, Closed),
    ]);
    let mut scene = Scene::new(config());
    scene.play(v4(0), "SSaaDSaFfFR");
    let counts = scene.counts();
    assert_eq!((counts.repeats, counts.late), (4, 2));
    assert_eq!((counts.unmatched_fins, counts.unmatched_resets, counts.refused), (0, 0, 0));
}

#[test]
fn simultaneous_open() {
    // Both sides send a SYN. The sender of the first one is the client; the other SYN is a repeat, and of the two
    // SYN-ACKs the one that answers the client counts.
    check(&[
        ("Ss", 0, 0, SynSent),
        ("S2s", 0, 0, SynSent),
        ("S2sa", 0, 0, Answered),
        ("S2s2A", 0, 0, SynSent),
        ("S2s2A1aD", 1, 0, Established),
        ("S2s1a2ADFf", 1, 1, Closed),
    ]);
}

#[test]
fn what_was_counted() {
    let counted = |script: &str| {
        let mut scene = Scene::new(config());
        scene.play(v6(1), script);
        scene.counts()
    };
    assert_eq!(counted("Ffd"), Counts { unmatched_fins: 2, ..Counts::default() });
    assert_eq!(counted("Rrr"), Counts { unmatched_resets: 3, ..Counts::default() });
    assert_eq!(counted("Sr"), Counts { refused: 1, ..Counts::default() });
    assert_eq!(counted("Sar"), Counts { refused: 1, ..Counts::default() });
    assert_eq!(counted("SF"), Counts { refused: 1, one_sided: 1, ..Counts::default() });
    assert_eq!(counted("Sf"), Counts { refused: 1, ..Counts::default() });
    assert_eq!(counted("af"), Counts { one_sided: 1, ..Counts::default() });
    let found = Counts { found_answered: 1, ..Counts::default() };
    assert_eq!(counted("SaDRF"), Counts { opened: 1, closed: 1, late: 1, ..found });
    assert_eq!(counted("St"), Counts::default());
    assert_eq!(counted("St+"), Counts { expired: 1, ..Counts::default() });
}

#[test]
fn the_payload_is_the_start_and_the_same_at_both_ends() {
    for (script, start) in
        [("SaD+++Ff", 0), ("S+++a+D+++R", 0), ("+S+2S+2a+2D2FttttTTTf", 2), ("++a+D+r", 2), ("Sa+D+2a+1F+f", 0)]
    {
        for key in [v4(0), v4(1), v6(0), v6(1)] {
            let mut scene = Scene::new(config());
            let start = FilterEntry::tick_of(scene.tick + start);
            assert_eq!(scene.play(key, script), [Event::Open(key, start), Event::Close(key, start)], "{script}");
        }
    }
}

#[test]
fn a_half_open_connection_has_its_start_and_its_last_step() {
    for (script, start, since, answered) in
        [("S", 0, 0, false), ("S++", 0, 0, false), ("Sa+", 0, 0, true), ("S+a+", 0, 1, true), ("+a+", 1, 1, true)]
    {
        let mut scene = Scene::new(config());
        let first = scene.tick;
        scene.play(v6(1), script);
        let short_isn = FilterEntry::short_isn(ISN_STEP);
        let expected =
            HalfOpen { key: v6(1), start_tick: first + start, since_tick: first + since, answered, short_isn };
        assert_eq!(scene.half_open(), [expected], "{script}");
    }
}

#[test]
fn timeouts_count_from_the_last_step() {
    check(&[
        ("St", 0, 0, SynSent),
        ("St+", 0, 0, Nothing),
        ("Sat", 0, 0, Answered),
        ("Sat+", 0, 0, Nothing),
        ("S+++at", 0, 0, Answered),
        ("S+++at+", 0, 0, Nothing),
        ("S+++aftD", 1, 0, Established),
        ("S+++aft+D", 0, 0, Nothing),
        ("at", 0, 0, Answered),
        ("at+", 0, 0, Nothing),
        // A repeated SYN prolongs it, as does a new attempt.
        ("S+++St", 0, 0, SynSent),
        ("S+++St+", 0, 0, Nothing),
        ("StStStaD", 1, 0, Established),
        ("S+++2St", 0, 0, SynSent),
        ("S+++2St+", 0, 0, Nothing),
        ("StatD", 1, 0, Established),
    ]);
}

#[test]
fn a_syn_with_data_may_be_answered_with_the_number_behind_it() {
    for (answer_opens, late) in [(false, 0), (false, 3), (true, 0)] {
        let mut scene = Scene::new(TrackerConfig { answer_opens, ..config() });
        let key = v4(1);
        let mut events = Vec::new();
        let mut send = |scene: &mut Scene, sender, kind, isn| events.extend(scene.send(key, sender, kind, isn));
        send(&mut scene, Sender::Client, SignalKind::Syn, 100);
        scene.pass(late);
        send(&mut scene, Sender::Server, SignalKind::SynAck, 110);
        send(&mut scene, Sender::Client, SignalKind::Completes, 110);
        send(&mut scene, Sender::Server, SignalKind::SynAck, 110);
        send(&mut scene, Sender::Client, SignalKind::Completes, 110);
        send(&mut scene, Sender::Client, SignalKind::Syn, 100);
        assert_eq!(scene.half_open(), []);
        assert!(matches!(events[..], [Event::Open(..)]), "{events:?}");
        assert_eq!(scene.play(key, "Ff").len(), 1);
    }
}
