//! The crowd: connections for mass, a hundred times cheaper than those of hosts. Each follows a script with the packets
//! of a TCP that is well-behaved: it opens, says something, and ends in one of the usual ways, or never. What is lost
//! is sent again; what is lost behind the tap passes it twice.

use super::host::Sender;
use super::wire::{ACK, End, Ends, FIN, RST, SYN, Segment};
use flowpeel_traffic::Random;

/// How a connection of the crowd ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Fins {
        client_first: bool,
    },
    Reset {
        by_client: bool,
    },
    /// Only one side ends it.
    Half {
        client: bool,
    },
    Never,
    Refused,
    Unanswered,
}

/// Where the script of a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Syn,
    SynAck,
    Answer,
    Talk,
    End,
    OtherEnd,
    LastAck,
    Over,
}

/// A packet of a script, and how long until the next.
pub(super) struct Step {
    pub(super) segment: Segment,
    pub(super) sender: Sender,
    /// Whether its sender has forgotten the connection.
    pub(super) is_gone: bool,
    /// Whether others may overtake it.
    pub(super) may_be_late: bool,
    /// When the next packet follows; `None` behind the last.
    pub(super) pause_us: Option<i64>,
}

/// A connection of the crowd.
#[derive(Clone)]
pub(super) struct Scripted {
    id: u32,
    client: End,
    server: End,
    sent: [u32; 2],
    stage: Stage,
    ending: Ending,
    talks: u32,
    round_trip_us: i64,
    /// The longest pause between two packets.
    pause_us: i64,
}

const SERVERS: u32 = 0xc633_6400; // 198.51.100.0
const CLIENTS: u32 = 0x0a10_0000; // 10.16.0.0

impl Scripted {
    /// A connection whose longest pause is this.
    pub(super) fn new(id: u32, (client, server): (End, End), pause_us: i64, random: &mut Random) -> Self {
        let ending = match random.below(100) {
            0..50 => Ending::Fins { client_first: random.chance(0.6) },
            50..70 => Ending::Reset { by_client: random.chance(0.5) },
            70..75 => Ending::Half { client: random.chance(0.5) },
            75..85 => Ending::Never,
            85..92 => Ending::Refused,
            _ => Ending::Unanswered,
        };
        Scripted {
            id,
            client,
            server,
            sent: [random.number() as u32, random.number() as u32],
            stage: Stage::Syn,
            ending,
            talks: random.below(6) as u32,
            round_trip_us: random.log_uniform(&(200..=400_000)) as i64,
            pause_us,
        }
    }

    /// Both ends of a connection of a client that uses so many ports.
    pub(super) fn some_ends(ports: u64, random: &mut Random) -> (End, End) {
        let client = End { address: CLIENTS + random.below(200) as u32, port: 10_000 + random.below(ports) as u16 };
        let server = End { address: SERVERS + random.below(20) as u32, port: [443, 80, 22][random.below(3) as usize] };
        (client, server)
    }

    pub(super) fn ends(&self) -> Ends {
        Ends::of(self.client, self.server)
    }

    fn segment(&self, is_client: bool, flags: u8, data_size: u16) -> Segment {
        let side = usize::from(!is_client);
        let (src, dst) = if is_client { (self.client, self.server) } else { (self.server, self.client) };
        let ack = if flags & ACK == 0 { 0 } else { self.sent[1 - side] };
        Segment { src, dst, flags, seq: self.sent[side], ack, data_size }
    }

    /// Whether the script has come to its end, so that others may use its ends.
    pub(super) fn is_over(&self) -> bool {
        let has_one_side = matches!(self.ending, Ending::Never | Ending::Half { .. });
        self.stage == Stage::Over && !has_one_side
    }

    /// The next packet of the script.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<Step> {
        let round_trip_us = self.round_trip_us;
        let (is_client, flags, data_size) = match self.stage {
            Stage::Syn => (true, SYN, 0),
            Stage::SynAck if self.ending == Ending::Refused => (false, RST | ACK, 0),
            Stage::SynAck => (false, SYN | ACK, 0),
            Stage::Answer => (true, ACK, 0),
            Stage::Talk => (random.chance(0.5), ACK, random.below(1_400) as u16),
            Stage::End => match self.ending {
                Ending::Fins { client_first: client } | Ending::Half { client } => (client, FIN | ACK, 0),
                Ending::Reset { by_client } => (by_client, RST | ACK, 0),
                _ => return None,
            },
            Stage::OtherEnd => (self.ending == Ending::Fins { client_first: false }, FIN | ACK, 0),
            Stage::LastAck => (self.ending == Ending::Fins { client_first: true }, ACK, 0),
            Stage::Over => return None,
        };
        let segment = self.segment(is_client, flags, data_size);
        let may_be_late = matches!(self.stage, Stage::Talk);
        self.sent[usize::from(!is_client)] = segment.number_behind().wrapping_add(u32::from(flags & (SYN | FIN) != 0));
        self.advance();
        let pause_us = match self.stage {
            Stage::Over => None,
            Stage::Talk | Stage::End => Some(random.log_uniform(&(1_000..=self.pause_us as u64)) as i64),
            _ => Some(round_trip_us / 2),
        };
        let sender = Sender { connection: self.id, is_client };
        Some(Step { segment, sender, is_gone: flags & RST != 0, may_be_late, pause_us })
    }

    fn advance(&mut self) {
        self.stage = match (self.stage, self.ending) {
            (Stage::Syn, Ending::Unanswered) => Stage::Over,
            (Stage::Syn, _) => Stage::SynAck,
            (Stage::SynAck, Ending::Refused) => Stage::Over,
            (Stage::SynAck, _) => Stage::Answer,
            (Stage::Answer | Stage::Talk, _) if self.talks > 0 => {
                self.talks -= 1;
                Stage::Talk
            }
            (Stage::Answer | Stage::Talk, Ending::Never) => Stage::Over,
            (Stage::Answer | Stage::Talk, _) => Stage::End,
            (Stage::End, Ending::Fins { .. }) => Stage::OtherEnd,
            (Stage::OtherEnd, _) => Stage::LastAck,
            _ => Stage::Over,
        };
    }
}
