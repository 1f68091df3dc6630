//! Why a frame gives no TCP header: a small closed set of reasons, each with a counter of its own.

/// Why a frame gives no TCP header.
///
/// The first group is ordinary traffic that does not concern flowpeel; the rest is damage, or traffic that flowpeel
/// cannot look into ([`Unusable::is_ordinary`] distinguishes them).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unusable {
    /// Something other than IP: ARP, LLDP, spanning tree, PPP negotiation.
    NotIp,
    /// IP that carries something other than TCP: UDP, ICMP.
    NotTcp,
    /// A fragment after the first: the TCP header, if there is one, travelled in the first.
    LaterFragment,
    /// A tunnel that is known and not opened, because it is encrypted or compressed, or of a rare kind: ESP, IPComp,
    /// L2TP, Teredo, MPLS in UDP, GRE with source routes or of another version, encrypted CAPWAP and 802.11.
    UnopenedTunnel,
    /// The capture has less of the frame than there was on the wire, and ends before the flags of the TCP header, or
    /// before it shows that there is none: the snapshot length was too small.
    CutShort,
    /// A link type that is not read.
    UnsupportedLink,
    /// A header between the link and IP that contradicts itself.
    MalformedLink,
    /// An IPv4 header that contradicts itself.
    MalformedIpv4,
    /// An IPv6 header, or one of its extension headers, that contradicts itself.
    MalformedIpv6,
    /// The packet ended on the wire inside its tunnel header.
    MalformedTunnel,
    /// A TCP header that contradicts itself, or a packet that ended on the wire inside it.
    MalformedTcp,
    /// More nested headers than are followed.
    NestedTooDeep,
}

impl Unusable {
    /// Every reason, each at its [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::NotIp,
        Self::NotTcp,
        Self::LaterFragment,
        Self::UnopenedTunnel,
        Self::CutShort,
        Self::UnsupportedLink,
        Self::MalformedLink,
        Self::MalformedIpv4,
        Self::MalformedIpv6,
        Self::MalformedTunnel,
        Self::MalformedTcp,
        Self::NestedTooDeep,
    ];

    /// How many reasons there are: the length of an array of counters.
    pub const COUNT: usize = Self::NestedTooDeep as usize + 1;

    /// The place of this reason's counter, below [`Self::COUNT`].
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether such frames are part of healthy traffic, not a sign of damage or of a wrong setting.
    #[must_use]
    pub fn is_ordinary(self) -> bool {
        matches!(self, Self::NotIp | Self::NotTcp | Self::LaterFragment | Self::UnopenedTunnel)
    }

    /// The name of the counter for machines; it never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not_ip",
            Self::NotTcp => "not_tcp",
            Self::LaterFragment => "later_fragment",
            Self::UnopenedTunnel => "unopened_tunnel",
            Self::CutShort => "cut_short",
            Self::UnsupportedLink => "unsupported_link",
            Self::MalformedLink => "malformed_link",
            Self::MalformedIpv4 => "malformed_ipv4",
            Self::MalformedIpv6 => "malformed_ipv6",
            Self::MalformedTunnel => "malformed_tunnel",
            Self::MalformedTcp => "malformed_tcp",
            Self::NestedTooDeep => "nested_too_deep",
        }
    }

    /// A short label for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::NotIp => "not IP",
            Self::NotTcp => "not TCP",
            Self::LaterFragment => "later fragment",
            Self::UnopenedTunnel => "tunnel not opened",
            Self::CutShort => "cut short before the TCP flags",
            Self::UnsupportedLink => "unsupported link type",
            Self::MalformedLink => "malformed link header",
            Self::MalformedIpv4 => "malformed IPv4 header",
            Self::MalformedIpv6 => "malformed IPv6 header",
            Self::MalformedTunnel => "malformed tunnel header",
            Self::MalformedTcp => "malformed TCP header",
            Self::NestedTooDeep => "headers nested too deep",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_index_under_a_name_of_its_own() {
        for (at, reason) in Unusable::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), at);
            assert!(!reason.describe().is_empty());
            assert!(reason.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
            let same_name = Unusable::ALL.iter().filter(|other| other.name() == reason.name()).count();
            assert_eq!(same_name, 1, "{reason:?}");
        }
    }
}
