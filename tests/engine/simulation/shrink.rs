//! The shortest world that shows what another one showed.

use super::held::{Held, hold};
use super::world::World;
use std::time::{Duration, Instant};

/// How long simpler worlds are looked for.
const TIME_MAX: Duration = Duration::from_secs(6);

/// A simpler world of which lists are wrong, as of this one, and what came of it.
pub(super) fn shrunk(world: World, held: Held) -> (World, Held) {
    let began = Instant::now();
    let (mut world, mut held) = (world, held);
    loop {
        let found = world.simpler().into_iter().find_map(|simpler| {
            if began.elapsed() > TIME_MAX {
                return None;
            }
            let held = hold(&simpler);
            (held.violations > 0).then_some((simpler, held))
        });
        match found {
            Some(found) => (world, held) = found,
            None => return (world, held),
        }
    }
}
