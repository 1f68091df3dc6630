//! Link types: which there are, by the numbers of the pcap registry, and which of them flowpeel reads.

/// A link type by its number in the pcap registry (LINKTYPE_ values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);
