//! What a world is like: numbers that follow from its seed, and that the shrinker lowers.

use flowpeel_traffic::Random;
use std::fmt::{self, Display};
use std::str::FromStr;

/// A million, of which shares are parts.
pub(super) const SHARE_WHOLE: u64 = 1_000_000;

/// The shortest idle timeout. The engine takes none below ten seconds.
const IDLE_TIMEOUT_MIN_S: u64 = 60;

/// The numbers that make a world. Each part of it draws from a stream of its own, so that one is as before when another
/// is turned off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct World {
    pub(super) seed: u64,
    /// How long connections begin for, and how long the world lasts.
    pub(super) busy_s: u64,
    pub(super) lasts_s: u64,
    /// The length of an interval.
    pub(super) every_s: u64,
    pub(super) shards: u64,
    /// 1 if addresses are of IPv6.
    pub(super) v6: u64,
    /// Hosts with a real TCP, and the connections between them.
    pub(super) clients: u64,
    pub(super) servers: u64,
    pub(super) connections: u64,
    /// The ports that a client, or the router that translates for all of them, uses in turn.
    pub(super) ports: u64,
    pub(super) keep_alive_s: u64,
    /// 1 if the router translates the clients' addresses to one, behind the first tap.
    pub(super) nat: u64,
    /// Parts of a million packets that are lost before the taps, and behind them, and that come twice.
    pub(super) lost_before: u64,
    pub(super) lost_behind: u64,
    pub(super) doubled: u64,
    /// The longest time that a copy comes late, and the most that packets overtake each other by.
    pub(super) copy_late_ms: u64,
    pub(super) jitter_us: u64,
    /// Where packets are captured: at one place, or at two.
    pub(super) taps: u64,
    /// Parts of a million packets that a tap does not capture.
    pub(super) uncaptured: u64,
    /// Connections without a host's TCP behind them, for mass.
    pub(super) crowd: u64,
    /// Forged packets.
    pub(super) forged_rst: u64,
    pub(super) forged_fin: u64,
    pub(super) forged_syn: u64,
    pub(super) forged_syn_ack: u64,
    pub(super) forged_data: u64,
    /// SYNs of a flood, whether they are answered, and how many come in a second.
    pub(super) flood: u64,
    pub(super) answered: u64,
    pub(super) flood_rate: u64,
    /// How much more the second tap's clock shows, and whether it shows less.
    pub(super) offset_s: u64,
    pub(super) is_behind: u64,
    /// Single stamps that are wrong.
    pub(super) wrong_stamps: u64,
    /// How far the clock of all taps is set in the middle of the world, and whether back.
    pub(super) set_s: u64,
    pub(super) set_back: u64,
    /// The engine's options; 0 for none.
    pub(super) idle_timeout_s: u64,
    pub(super) pickup: u64,
    pub(super) room: u64,
}

/// A number of a world: its name, and the least that it is lowered to.
type Field<'a> = (&'static str, &'a mut u64, u64);

impl World {
    /// The world of a seed.
    pub(super) fn of(seed: u64, is_quick: bool) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let lasts_s = random.log_uniform(&(60..=if is_quick { 4 * 3_600 } else { 55 * 86_400 }));
        let busy_s = random.log_uniform(&(20..=1_800)).min(lasts_s);
        // So many lists are held that the time is in them, and not in what is between.
        let every_s = (lasts_s / random.uniform(&(6..=120))).max(1);
        let some =
            |random: &mut Random, share: f64, range| if random.chance(share) { random.log_uniform(&range) } else { 0 };
        let scale = if is_quick { 4 } else { 1 };
        let mut world = World {
            seed,
            busy_s,
            lasts_s,
            every_s,
            shards: random.uniform(&(1..=3)),
            v6: u64::from(random.chance(0.2)),
            clients: random.uniform(&(1..=8)),
            servers: random.uniform(&(1..=4)),
            connections: random.log_uniform(&(1..=800 / scale)),
            ports: random.log_uniform(&(2..=20_000)),
            keep_alive_s: some(random, 0.6, 30..=7_200),
            nat: u64::from(random.chance(0.25)),
            lost_before: some(random, 0.5, 100..=100_000),
            lost_behind: some(random, 0.5, 100..=100_000),
            doubled: some(random, 0.5, 100..=100_000),
            copy_late_ms: random.log_uniform(&(1..=8_000)),
            jitter_us: some(random, 0.5, 10..=30_000),
            taps: 1 + u64::from(random.chance(0.3)),
            uncaptured: some(random, 0.15, 100..=20_000),
            crowd: some(random, 0.5, 10..=40_000 / scale / scale),
            flood_rate: random.log_uniform(&(100..=200_000)),
            answered: u64::from(random.chance(0.5)),
            room: 200_000,
            ..World::default()
        };
        // Few enough that most connections meet none, or one of each kind.
        let forged_max = ((world.connections + world.crowd) / 4).clamp(1, 200);
        world.forged_rst = some(random, 0.3, 1..=forged_max);
        world.forged_fin = some(random, 0.3, 1..=forged_max);
        world.forged_syn = some(random, 0.3, 1..=forged_max);
        world.forged_syn_ack = some(random, 0.3, 1..=forged_max);
        world.forged_data = some(random, 0.3, 1..=forged_max);
        world.flood = some(random, 0.2, 1_000..=600_000 / scale / scale);
        if random.chance(0.5) && lasts_s <= 3_600 {
            world.offset_s = if world.taps == 2 { random.log_uniform(&(1..=40_000_000)) } else { 0 };
            world.is_behind = u64::from(random.chance(0.5));
            world.wrong_stamps = some(random, 0.4, 1..=20);
            world.set_s = if world.offset_s == 0 { some(random, 0.5, 1..=1_000_000_000) } else { 0 };
            world.set_back = u64::from(random.chance(0.5));
        }
        if !is_quick && random.chance(0.02) {
            world.crowd = random.uniform(&(100_000..=400_000));
            world.room = 1_000_000;
        }
        world.idle_timeout_s = some(random, 0.2, IDLE_TIMEOUT_MIN_S..=40_000);
        world.pickup = some(random, 0.2, 1..=16);
        world
    }

    /// Whether every packet is stamped with the time at which it was captured.
    pub(super) fn has_true_clocks(&self) -> bool {
        self.offset_s == 0 && self.wrong_stamps == 0 && self.set_s == 0
    }

    /// All numbers, by name.
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![
            ("seed", &mut self.seed, u64::MAX),
            ("busy_s", &mut self.busy_s, 1),
            ("lasts_s", &mut self.lasts_s, 2),
            ("every_s", &mut self.every_s, 1),
            ("shards", &mut self.shards, 1),
            ("v6", &mut self.v6, 0),
            ("clients", &mut self.clients, 1),
            ("servers", &mut self.servers, 1),
            ("connections", &mut self.connections, 0),
            ("ports", &mut self.ports, 1),
            ("keep_alive_s", &mut self.keep_alive_s, 0),
            ("nat", &mut self.nat, 0),
            ("lost_before", &mut self.lost_before, 0),
            ("lost_behind", &mut self.lost_behind, 0),
            ("doubled", &mut self.doubled, 0),
            ("copy_late_ms", &mut self.copy_late_ms, 1),
            ("jitter_us", &mut self.jitter_us, 0),
            ("taps", &mut self.taps, 1),
            ("uncaptured", &mut self.uncaptured, 0),
            ("crowd", &mut self.crowd, 0),
            ("forged_rst", &mut self.forged_rst, 0),
            ("forged_fin", &mut self.forged_fin, 0),
            ("forged_syn", &mut self.forged_syn, 0),
            ("forged_syn_ack", &mut self.forged_syn_ack, 0),
            ("forged_data", &mut self.forged_data, 0),
            ("flood", &mut self.flood, 0),
            ("answered", &mut self.answered, 0),
            ("flood_rate", &mut self.flood_rate, 100),
            ("offset_s", &mut self.offset_s, 0),
            ("is_behind", &mut self.is_behind, 0),
            ("wrong_stamps", &mut self.wrong_stamps, 0),
            ("set_s", &mut self.set_s, 0),
            ("set_back", &mut self.set_back, 0),
            ("idle_timeout_s", &mut self.idle_timeout_s, 0),
            ("pickup", &mut self.pickup, 0),
            ("room", &mut self.room, 200_000),
        ]
    }

    /// Simpler worlds of the same seed, the simplest first: each has one number lowered.
    pub(super) fn simpler(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        for index in 0..self.clone().fields().len() {
            let lowered = |lower: fn(u64) -> u64| {
                let mut world = self.clone();
                {
                    let mut fields = world.fields();
                    let (_, value, least) = &mut fields[index];
                    if **value > *least {
                        **value = lower(**value).max(*least);
                    }
                }
                world.busy_s = world.busy_s.min(world.lasts_s);
                if world.idle_timeout_s > 0 {
                    world.idle_timeout_s = world.idle_timeout_s.max(IDLE_TIMEOUT_MIN_S);
                }
                world
            };
            worlds.extend([lowered(|_| 0), lowered(|value| value / 2), lowered(|value| value - value.div_ceil(8))]);
        }
        worlds.retain(|world| world != self);
        worlds
    }
}

impl Display for World {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut world = self.clone();
        let shown = world.fields().into_iter().filter(|(_, value, _)| **value != 0);
        let texts: Vec<String> = shown.map(|(name, value, _)| format!("{name}={value}")).collect();
        f.write_str(&texts.join(","))
    }
}

impl FromStr for World {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut world = World::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or(format!("{part} is not a name and a number"))?;
            let mut fields = world.fields();
            let field = fields.iter_mut().find(|field| field.0 == name).ok_or(format!("a world has no {name}"))?;
            *field.1 = value.parse().map_err(|_| format!("{value} is no number"))?;
        }
        Ok(world)
    }
}

#[test]
fn a_world_is_read_from_what_it_prints() {
    for seed in 0..100 {
        let world = World::of(seed, false);
        assert_eq!(world.to_string().parse(), Ok(world.clone()));
        let simpler = world.simpler();
        assert!(simpler.len() > 20);
        assert!(simpler.iter().all(|world| world.idle_timeout_s == 0 || world.idle_timeout_s >= IDLE_TIMEOUT_MIN_S));
    }
    assert!(
        "seed".parse::<World>().is_err() && "seed=x".parse::<World>().is_err() && "sed=1".parse::<World>().is_err()
    );
}
