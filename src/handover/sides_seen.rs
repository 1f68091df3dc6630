//! Which sides of an open connection a router has seen, as two bits of its payload.

use crate::signal::TICK_BITS;
use serde::Serialize;

/// The sides of an established connection that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum SidesSeen {
    /// Both, as anywhere but where a router sees one direction alone (`--one-way`).
    #[default]
    Both = 0,
    /// The client's alone.
    Client = 1,
    /// The server's alone.
    Server = 2,
}

impl SidesSeen {
    /// The place of its bits in a payload, above the tick and [`super::MIDSTREAM`].
    const SHIFT: u32 = TICK_BITS + 1;

    /// The sides that a payload names.
    #[must_use]
    #[inline]
    pub fn of_payload(payload: u32) -> Self {
        Self::of_bits(u64::from(payload >> Self::SHIFT))
    }

    /// The sides with these lowest two bits.
    #[must_use]
    #[inline]
    pub fn of_bits(bits: u64) -> Self {
        match bits & 3 {
            1 => SidesSeen::Client,
            2 => SidesSeen::Server,
            _ => SidesSeen::Both,
        }
    }

    /// Its bits in a payload.
    #[must_use]
    #[inline]
    pub fn payload_bits(self) -> u32 {
        (self as u32) << Self::SHIFT
    }

    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SidesSeen::Both => "both",
            SidesSeen::Client => "client",
            SidesSeen::Server => "server",
        }
    }
}
