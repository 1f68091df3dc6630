//! The stamp of a packet, and the name of the clock that made it.

/// The names of clocks. Sources beyond these share the last name, and only their stamps distinguish their clocks.
pub const CLOCK_NAMES_MAX: usize = 16;

/// The name of the clock that stamped a packet: the number of the interface that captured it, where the capture has
/// that. Packets of one name may still bear the stamps of several clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockName(u8);

impl ClockName {
    /// The name of the clock of a source that is the only one, or the first.
    pub const FIRST: ClockName = ClockName(0);

    /// The name of the clock of the source with this index. From [`CLOCK_NAMES_MAX`] on all have the last name.
    #[inline]
    #[must_use]
    pub const fn of_source(index: usize) -> Self {
        if index < CLOCK_NAMES_MAX { ClockName(index as u8) } else { ClockName(CLOCK_NAMES_MAX as u8 - 1) }
    }

    /// The index of the name, less than [`CLOCK_NAMES_MAX`].
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// When a packet was captured, by a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// In nanoseconds since 1970, as the clock showed it.
    pub time_ns: i64,
    /// The clock.
    pub clock: ClockName,
}

impl Stamp {
    /// A stamp of the only clock.
    #[inline]
    #[must_use]
    pub const fn unnamed(time_ns: i64) -> Self {
        Stamp { time_ns, clock: ClockName::FIRST }
    }
}
