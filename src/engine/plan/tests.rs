//! What a plan takes, and what it refuses.

use super::*;
use crate::engine::Snapshots;
use crate::engine::plan::CONNECTIONS_DEFAULT;
use crate::export::Format;
use crate::handover::{ANNOUNCEMENTS_MAX, Inquiry};
use crate::list::LISTED_MAX;

#[test]
fn the_defaults_fit_their_own_limit() {
    let plan = Plan::new(&Config::default()).unwrap();
    assert!(plan.memory().total_size() <= Config::default().memory_size_max);
    // Those of a live capture that saves its state, on one interface.
    let live = Config {
        every: Some(Duration::from_secs(10)),
        pickup: crate::engine::plan::PICKUP_LIVE,
        idle_timeout: Some(Duration::from_secs(crate::engine::plan::IDLE_TIMEOUT_LIVE_S)),
        watches: true,
        saves_state: true,
        ..Config::default()
    };
    let input = LiveInput { capture_count: 1, rings_size: crate::capture::RING_SIZE_DEFAULT };
    assert!(Plan::live(&live, input).unwrap().memory().state_size > 0);
}

#[test]
fn the_largest_configuration_has_tables_for_its_churn() {
    let config = Config {
        connections_max: CONNECTIONS_MAX,
        churn: Some(CONNECTIONS_MAX),
        memory_size_max: u64::MAX,
        ..Config::default()
    };
    let plan = Plan::new(&config).unwrap();
    let share = CONNECTIONS_MAX / PARTITION_COUNT as u64;
    assert!(plan.partition.geometry.v4.item_count() * DELTA_PARTS >= share);
    assert!(plan.list.partition_connections_max <= LISTED_MAX as u64);
}

#[test]
fn what_is_not_asked_for_takes_nothing() {
    let memory = |config: &Config| Plan::new(config).unwrap().memory();
    let plain = Config::default();
    let pickup = Config { pickup: 16, ..plain.clone() };
    let idle = Config { idle_timeout: Some(Duration::from_secs(14_400)), ..plain.clone() };
    let watches = Config { watches: true, ..idle.clone() };
    assert!(memory(&pickup).filter_size > memory(&plain).filter_size);
    assert!(memory(&pickup).rings_size > memory(&plain).rings_size);
    let questions = memory(&idle).list_size_max - memory(&plain).list_size_max;
    let asked_max = 2 * 10 * INQUIRY_A_SECOND;
    let expected = (PARTITION_COUNT * (2 * asked_max + ANNOUNCEMENTS_MAX) * Inquiry::QUESTION_SIZE) as u64;
    assert_eq!(questions, expected, "each is asked and answered, and some are announced");
    let list_size_max = memory(&plain).list_size_max + questions;
    assert_eq!(memory(&idle), Memory { list_size_max, ..memory(&plain) }, "a replay needs no watch");
    let watch = memory(&watches).rings_size - memory(&plain).rings_size;
    assert_eq!(watch, Watch::size(CONNECTIONS_DEFAULT as usize) as u64);
    let flags = Config { answer_opens: true, pickup: 16, ..watches };
    let sources = Config { sources_max: Some(30_000), ..plain.clone() };
    let with_sources = memory(&sources);
    assert!(with_sources.sources_size > 4 << 20 && memory(&plain).sources_size == 0);
    assert_eq!(Memory { sources_size: 0, ..with_sources }, memory(&plain));
    let handshakes = HandshakeCache::size(HANDSHAKES_DEFAULT) - HandshakeCache::size(0);
    let ends = RecentEnds::size(Plan::new(&plain).unwrap().end_count) - RecentEnds::size(0);
    let tracker = |config: &Config| PARTITION_COUNT * Plan::new(config).unwrap().partition.tracker.rings_size();
    let ended = tracker(&plain) - tracker(&flags);
    let rings_size = memory(&plain).rings_size - (handshakes + ends + ended) as u64;
    let less = Memory { rings_size, ..memory(&plain) };
    assert_eq!(memory(&flags), less, "where only flags are seen there is nothing to look at, and nothing to wait for");
}

#[test]
fn several_capture_threads_remember_their_syns() {
    let config = Config { every: Some(Duration::from_secs(10)), ..Config::default() };
    let plan = |capture_count| Plan::live(&config, LiveInput { capture_count, rings_size: 0 }).unwrap();
    let [one, three] = [1, 3].map(|capture_count| plan(capture_count).memory().rings_size);
    assert_eq!(three - one, 3 * HandshakeCache::size(plan(3).seen_syn_count) as u64);
    assert_eq!((plan(1).seen_syn_count, plan(3).seen_syn_count as u64), (0, CONNECTIONS_DEFAULT / 2));
}

#[test]
fn half_open_connections_take_what_is_asked_for() {
    let plan = |half_open_max| Plan::new(&Config { half_open_max, ..Config::default() }).unwrap();
    let [default, most] = [plan(None), plan(Some(HALF_OPEN_MAX))];
    let more = (most.partition.tracker.half_open_count - default.partition.tracker.half_open_count) * PARTITION_COUNT;
    assert_eq!(more as u64, HALF_OPEN_MAX - CONNECTIONS_DEFAULT / 2);
    // A record and its mark, and in the list the record.
    let more_size = more * (24 + 1);
    assert_eq!(most.memory().rings_size - default.memory().rings_size, more_size as u64);
    assert_eq!(most.memory().list_size_max - default.memory().list_size_max, more as u64 * 24);
}

#[test]
fn snapshots_take_their_tables_and_a_list_that_is_not_kept_takes_nothing() {
    let plan =
        |snapshots| Plan::new(&Config { snapshots, max_age: Some(Duration::from_secs(60)), ..Config::default() });
    let plain = plan(None).unwrap();
    let beside = plan(Some(Snapshots::default())).unwrap();
    let alone = plan(Some(Snapshots { replace_lists: true, ..Snapshots::default() })).unwrap();
    assert!(beside.memory().tables_size > plain.memory().tables_size * 5 / 3);
    assert!(alone.memory().tables_size < beside.memory().tables_size);
    assert!(alone.memory().list_size_max < plain.memory().list_size_max / 2);
    assert!(beside.list.eviction.age_max_ticks.is_some() && alone.list.eviction.are_none());
    assert!(beside.list.geometry.v4.folded(60).is_some());
    let nameless = plan(Some(Snapshots { router: "\n".to_owned(), ..Snapshots::default() }));
    assert!(nameless.unwrap_err().to_string().contains("no control characters"));
    let vast = Config { churn: Some(CONNECTIONS_MAX), snapshots: Some(Snapshots::default()), ..Config::default() };
    assert!(Plan::new(&vast).unwrap_err().to_string().contains("are the most, so lower churn"));
}

#[test]
fn a_snapshot_has_room_for_its_tables_and_all_half_open_connections() {
    let plan = |churn, half_open_max| {
        let snapshots = Some(Snapshots::default());
        Plan::new(&Config {
            churn: Some(churn),
            half_open_max,
            snapshots,
            memory_size_max: u64::MAX,
            ..Config::default()
        })
    };
    // Tables that fit, with little beside them.
    let churn = 12_000_000;
    let fits = plan(churn, Some(HALF_OPEN_MIN)).unwrap();
    let sums_size = PARTITION_COUNT as u64 * Sums::file_size(fits.partition.geometry);
    assert!((SNAPSHOT_SIZE_MAX - sums_size) / SNAPSHOT_HALF_OPEN_SIZE < HALF_OPEN_MAX);
    let message = plan(churn, Some(HALF_OPEN_MAX)).unwrap_err().to_string();
    assert!(message.ends_with("MiB: 1024 are the most, so lower churn or half_open_max"), "{message}");
}

#[test]
fn what_does_not_fit_is_refused_with_both_figures() {
    let config = Config { connections_max: 100_000_000, ..Config::default() };
    let message = Plan::new(&config).unwrap_err().to_string();
    assert!(message.contains("256 MiB are allowed") && message.contains("memory_size_max"), "{message}");
}

#[test]
fn what_takes_most_is_what_is_to_be_lowered() {
    let every = Some(Duration::from_secs(1));
    let default = Config { every, ..Config::default() };
    for (config, rings_size, option) in [
        (Config { connections_max: 5_000_000, ..default.clone() }, 0, "connections_max"),
        (Config { connections_max: 5_000_000, saves_state: true, ..default.clone() }, 0, "connections_max"),
        (Config { churn: Some(20_000_000), ..default.clone() }, 0, "churn"),
        (Config { sources_max: Some(SOURCES_MAX), ..default.clone() }, 0, "sources_max"),
        (Config { archive_size: 300 << 20, ..default.clone() }, 0, "archive_size"),
        (default.clone(), 300 << 20, "rings_size"),
        (Config { shards: 8, memory_size_max: 1 << 20, connections_max: 1_000, ..default }, 0, "shards"),
    ] {
        let message = Plan::live(&config, LiveInput { capture_count: 1, rings_size }).unwrap_err().to_string();
        assert!(
            message.contains(&format!("raise memory_size_max, or lower {option}, by which")),
            "{option}: {message}"
        );
    }
}

#[test]
fn values_out_of_range_are_named() {
    for (config, name) in [
        (Config { shards: 0, ..Config::default() }, "shards"),
        (Config { shards: 9, ..Config::default() }, "shards"),
        (Config { connections_max: 1, ..Config::default() }, "connections_max"),
        (Config { half_open_max: Some(1), ..Config::default() }, "half_open_max"),
        (Config { churn: Some(u64::MAX), ..Config::default() }, "churn"),
        (Config { syn_timeout: Duration::from_secs(601), ..Config::default() }, "syn_timeout"),
        (Config { format: Format { changes: Some(0), ..Format::default() }, ..Config::default() }, "--changes"),
        (Config { every: Some(Duration::ZERO), ..Config::default() }, "every"),
        (Config { every: Some(Duration::MAX), ..Config::default() }, "every"),
        (Config { sources_max: Some(1), ..Config::default() }, "sources_max"),
        (Config { pickup: u32::MAX, ..Config::default() }, "pickup"),
        (Config { idle_timeout: Some(Duration::from_secs(9)), ..Config::default() }, "idle_timeout"),
        (Config { max_age: Some(Duration::MAX), ..Config::default() }, "max_age"),
    ] {
        assert!(Plan::new(&config).unwrap_err().to_string().contains(name));
    }
}

#[test]
fn what_is_not_given_follows_from_the_connections_and_the_memory() {
    let mib = |mib: u64| mib << 20;
    let plan = |connections_max, memory_size_max| {
        Plan::new(&Config { connections_max, memory_size_max, ..Config::default() }).unwrap()
    };
    let sizes = |plan: &Plan| (plan.churn(), plan.half_open_count(), plan.is_lowered());
    assert_eq!(sizes(&plan(500_000, mib(256))), (100_000, 250_000, false), "the default");
    assert_eq!(sizes(&plan(2_000_000, mib(2_048))), (400_000, HALF_OPEN_MAX, false));
    assert_eq!(sizes(&plan(1_000, mib(256))), (CHURN_DERIVED_MIN, HALF_OPEN_MIN, false));
    // With less and less memory the churn goes first, then the half-open connections, and then it is refused.
    let whole = plan(500_000, mib(256)).memory().total_size();
    let least = Config {
        churn: Some(CHURN_DERIVED_MIN),
        half_open_max: Some(HALF_OPEN_MIN),
        memory_size_max: u64::MAX,
        ..Config::default()
    };
    let least = Plan::new(&least).unwrap().memory().total_size();
    let mut last = (100_000, 250_000);
    for part in 1..=16 {
        let lowered = plan(500_000, whole - (whole - least) * part / 16);
        let (churn, half_open_count, is_lowered) = sizes(&lowered);
        assert!(is_lowered && (churn, half_open_count) < last, "{part}: {churn}, {half_open_count}");
        assert!(churn == CHURN_DERIVED_MIN || half_open_count == 250_000, "{part}: {churn}, {half_open_count}");
        assert!(lowered.memory().total_size() <= lowered.config().memory_size_max);
        last = (churn, half_open_count);
    }
    assert_eq!(last, (CHURN_DERIVED_MIN, HALF_OPEN_MIN));
    let refused = Plan::new(&Config { memory_size_max: least - 1, ..Config::default() });
    assert!(refused.unwrap_err().to_string().contains("a churn of 20000"));
    // What was asked for is never lowered.
    let asked = Config { churn: Some(100_000), half_open_max: Some(250_000), ..Config::default() };
    assert!(Plan::new(&Config { memory_size_max: whole - 1, ..asked.clone() }).is_err());
    assert!(!Plan::new(&Config { memory_size_max: whole, ..asked }).unwrap().is_lowered());
}
