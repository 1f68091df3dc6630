//! Worlds one after another, for as long as asked: the long form of the tests, which `scripts/simulate` runs.

use super::clocks::BEGIN_US;
use super::held::{Held, hold};
use super::network::{Captured, Network};
use super::shrink::shrunk;
use super::truth::Truth;
use super::wire::Ends;
use super::world::World;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where a run is, as its file below `target` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    next_seed: u64,
    worlds: u64,
    ran_ms: u64,
    is_done: bool,
    held: Held,
}

impl Position {
    fn path() -> PathBuf {
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target")), PathBuf::from);
        target.join("simulation").join("position.json")
    }

    /// The position of a run that was cut off, if one was.
    fn saved() -> Option<Self> {
        let text = std::fs::read_to_string(Self::path()).ok()?;
        let saved: Value = serde_json::from_str(&text).ok()?;
        let count = |name: &str| saved[name].as_u64();
        let position = Position {
            next_seed: count("next_seed")?,
            worlds: count("worlds")?,
            ran_ms: count("ran_ms")?,
            is_done: saved["is_done"].as_bool()?,
            held: Held {
                connections: count("connections")?,
                packets: count("packets")?,
                simulated_s: count("simulated_s")?,
                lists: count("lists")?,
                incomplete: count("incomplete")?,
                uncertain: count("uncertain")?,
                open: count("open")?,
                doubts: serde_json::from_value(saved["doubts"].clone()).ok()?,
                violations: count("violations")?,
                ..Held::default()
            },
        };
        (!position.is_done).then_some(position)
    }

    fn save(&self) {
        let Held { connections, packets, simulated_s, lists, incomplete, uncertain, open, doubts, violations, .. } =
            &self.held;
        let saved = json!({
            "next_seed": self.next_seed, "worlds": self.worlds, "ran_ms": self.ran_ms, "is_done": self.is_done,
            "connections": connections, "packets": packets, "simulated_s": simulated_s, "lists": lists,
            "incomplete": incomplete, "uncertain": uncertain, "open": open, "doubts": doubts,
            "violations": violations,
        });
        let path = Self::path();
        std::fs::create_dir_all(path.parent().expect("it is a file in a directory")).unwrap();
        // Of two runs at once the file has the position of whichever saved last.
        let written = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&written, saved.to_string()).and_then(|()| std::fs::rename(&written, &path)).unwrap();
    }

    fn add(&mut self, seed: u64, took: Duration, held: &Held) {
        self.next_seed = seed + 1;
        self.worlds += 1;
        self.ran_ms += took.as_millis() as u64;
        self.held.add(held);
        self.save();
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// What a world came to, on one line.
fn line(held: &Held) -> String {
    let Held { connections, packets, simulated_s, lists, incomplete, uncertain, open, violations, .. } = held;
    let doubtful = held.doubtful();
    let days = *simulated_s as f64 / 86_400.0;
    format!(
        "{connections} connections, {packets} packets, {days:.3} days; {lists} lists held ({incomplete} not complete, \
         {uncertain} of uncertain time), {open} open in them, {doubtful} doubtful; {violations} violations"
    )
}

/// How many connections were doubtful for each reason, the most common first.
fn show_doubts(held: &Held) {
    let mut doubts: Vec<_> = held.doubts.iter().collect();
    doubts.sort_by_key(|(_, count)| Reverse(**count));
    doubts.iter().for_each(|(why, count)| println!("  {count} doubtful: {why}"));
}

fn show(world: &World, held: &Held) {
    held.described.iter().for_each(|what| println!("  {what}"));
    println!("  scripts/simulate --world {world}");
}

/// The packets between two ends of a world.
fn show_packets(world: &World, ends: Ends) {
    let (mut network, mut truth) = (Network::new(world), Truth::new(world));
    while let Some(Captured { tap, stamp_us, passed }) = network.next(&mut truth) {
        if passed.segment.ends() == ends {
            let at_s = (network.now_us() - BEGIN_US) as f64 / 1e6;
            let stamp_s = (stamp_us - BEGIN_US) as f64 / 1e6;
            println!("  {at_s} s (stamped {stamp_s}, tap {tap}): {passed}");
        }
    }
}

#[test]
#[ignore = "as long as asked: scripts/simulate runs it"]
fn worlds_are_listed_as_they_are() {
    if let Ok(world) = env::var("FLOWPEEL_SIMULATE_WORLD") {
        let world: World = world.parse().unwrap_or_else(|error| panic!("{error}"));
        let held = hold(&world);
        println!("{}", line(&held));
        show_doubts(&held);
        show(&world, &held);
        held.wrong.iter().for_each(|ends| show_packets(&world, *ends));
        assert_eq!(held.violations, 0);
        return;
    }
    let is_quick = number("FLOWPEEL_SIMULATE_QUICK").is_some();
    let minutes = number("FLOWPEEL_SIMULATE_MINUTES").unwrap_or(if is_quick { 1 } else { 60 });
    let mut position = match number("FLOWPEEL_SIMULATE_SEED") {
        Some(next_seed) => Position { next_seed, ..Position::default() },
        None => Position::saved().unwrap_or_default(),
    };
    if position.worlds > 0 {
        println!("going on behind {} worlds", position.worlds);
    }
    while position.ran_ms < minutes * 60_000 {
        let (seed, began) = (position.next_seed, Instant::now());
        let world = World::of(seed, is_quick);
        let held = hold(&world);
        println!("seed {seed}: {}", line(&held));
        position.add(seed, began.elapsed(), &held);
        if held.violations > 0 {
            show(&world, &held);
            let (world, held) = shrunk(world, held);
            println!("  the shortest that shows it:");
            show(&world, &held);
        }
    }
    position.is_done = true;
    position.save();
    println!("{} worlds: {}", position.worlds, line(&position.held));
    show_doubts(&position.held);
    assert_eq!(position.held.violations, 0);
}
