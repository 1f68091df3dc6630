//! Connections that have ended as IPFIX (RFC 7011), for flow collectors.
//!
//! A record is a flow from the client to the server and back (RFC 5103), without counters: addresses, ports, start and
//! end in milliseconds, the reason, the TCP flags that are known, and the flow's number. Of the events that flowpeel
//! has it takes what has ended or was open at the end of the input: IPFIX has no record for an opening, and none that
//! takes an end back. Where events were lost, options data says how many, beside how many were sent.

use crate::error::Result;
use crate::export::flow_line::{Change, FlowEvent};
use crate::state::{Decoder, Encoder};
use std::net::IpAddr;

/// The longest message in bytes: what goes through Ethernet in one piece behind the headers of IPv6 and UDP, and some
/// tunnels.
pub(super) const MESSAGE_SIZE_MAX: usize = 1_400;

/// Messages from one with templates to the next: a collector that starts late, or lost one, waits for no more.
const TEMPLATE_MESSAGES: u64 = 16;

const VERSION: u16 = 10;
const HEADER_SIZE: usize = 16;
const SET_HEADER_SIZE: usize = 4;

/// Sets of templates and of options templates (RFC 7011, section 3.3.2).
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;

/// The numbers of our templates.
const FLOW_V4: u16 = 256;
const FLOW_V6: u16 = 257;
const COUNTS: u16 = 258;

/// The enterprise number of reverse elements (RFC 5103, section 6.1), and the bit that says that one follows.
const REVERSE: u32 = 29_305;
const HAS_ENTERPRISE: u16 = 1 << 15;

/// Elements of a flow behind its addresses, with their sizes in bytes, as IANA numbers them.
const FLOW_ELEMENTS: [(u16, u16); 9] = [
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (4, 1),   // protocolIdentifier
    (136, 1), // flowEndReason
    (239, 1), // biflowDirection
    (6, 2),   // tcpControlBits
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (148, 8), // flowId
];

/// The size of the elements behind the addresses, the flags of the reverse direction included.
const FLOW_SIZE: usize = {
    let (mut size, mut index) = (2, 0);
    while index < FLOW_ELEMENTS.len() {
        size += FLOW_ELEMENTS[index].1 as usize;
        index += 1;
    }
    size
};

const RECORD_SIZE_V4: usize = 8 + FLOW_SIZE;
const RECORD_SIZE_V6: usize = 32 + FLOW_SIZE;

const TCP: u8 = 6;
const FIN: u16 = 1;
const SYN: u16 = 2;
const ACK: u16 = 16;

/// The client began it (RFC 5103, section 6.3).
const FROM_INITIATOR: u8 = 1;

/// Turns events into messages.
#[derive(Default)]
pub struct IpfixMessages {
    /// The message that is being filled: its header, then sets.
    message: Vec<u8>,
    /// Where the set begins that is being filled, and its number.
    set: Option<(usize, u16)>,
    /// Records in the message, options data among them.
    record_count: u32,
    /// Flows in the message.
    flow_count: u64,
    /// Records of all messages before it.
    sequence: u32,
    /// Messages before it.
    message_count: u64,
    /// Flows that were sent.
    sent: u64,
    /// Flows that were lost, and how many of them options data has reported.
    lost: u64,
    lost_reported: u64,
    /// The time of the last event in the message, in seconds since 1970.
    time_s: u32,
}

impl IpfixMessages {
    /// Adds an event to the message that is being filled, and passes messages that are full to `out`, with the number
    /// of events in them. Events that are no ends are passed over.
    pub fn add(&mut self, event: &FlowEvent, out: &mut impl FnMut(&[u8], u64)) {
        let Some(reason) = end_reason(event) else { return };
        let flow = &event.flow;
        let (set, size) = match flow.client.ip() {
            IpAddr::V4(_) => (FLOW_V4, RECORD_SIZE_V4),
            IpAddr::V6(_) => (FLOW_V6, RECORD_SIZE_V6),
        };
        if self.message.len() + SET_HEADER_SIZE + size > MESSAGE_SIZE_MAX {
            self.flush(out);
        }
        self.time_s = (flow.end_ns / 1_000_000_000).clamp(0, i64::from(u32::MAX)) as u32;
        self.begin(set);
        for end in [flow.client, flow.server] {
            match end.ip() {
                IpAddr::V4(address) => self.put(&address.octets()),
                IpAddr::V6(address) => self.put(&address.octets()),
            }
        }
        let flags = ACK | if flow.midstream { 0 } else { SYN } | if flow.reason == Some("fin") { FIN } else { 0 };
        let millis = |time_ns: i64| (time_ns.max(0) as u64 / 1_000_000).to_be_bytes();
        self.put(&flow.client.port().to_be_bytes());
        self.put(&flow.server.port().to_be_bytes());
        self.put(&[TCP, reason, FROM_INITIATOR]);
        self.put(&flags.to_be_bytes());
        self.put(&millis(flow.start_ns));
        self.put(&millis(flow.end_ns));
        self.put(&flow.id().to_be_bytes());
        self.put(&flags.to_be_bytes());
        self.record_count += 1;
        self.flow_count += 1;
        self.sent += 1;
    }

    /// Counts events that were lost, for the next message.
    pub fn count_lost(&mut self, lost: u64) {
        self.lost += lost;
    }

    /// Passes the message that is being filled to `out`, with the number of events in it, if there is anything in it.
    pub fn flush(&mut self, out: &mut impl FnMut(&[u8], u64)) {
        if self.record_count == 0 {
            return;
        }
        self.end_set();
        self.end_message();
        out(&self.message, std::mem::take(&mut self.flow_count));
        self.message.clear();
        self.sequence = self.sequence.wrapping_add(self.record_count);
        self.record_count = 0;
        self.message_count += 1;
    }

    /// A message of templates alone: what a stream begins with.
    #[must_use]
    pub fn templates(&self) -> Vec<u8> {
        let mut alone = IpfixMessages { time_s: self.time_s, sequence: self.sequence, ..IpfixMessages::default() };
        alone.begin_message();
        alone.end_set();
        alone.end_message();
        alone.message
    }

    /// Encodes what later messages depend on, for a saved state. The message that was being filled must have been
    /// passed on.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.u32(self.sequence);
        encoder.counts([self.message_count, self.sent, self.lost, self.lost_reported]);
    }

    /// Decodes what [`Self::save`] encoded.
    ///
    /// # Errors
    ///
    /// The bytes encode no such thing.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let sequence = decoder.u32()?;
        let [message_count, sent, lost, lost_reported] = decoder.counts()?;
        Ok(IpfixMessages { sequence, message_count, sent, lost, lost_reported, ..IpfixMessages::default() })
    }

    /// Begins a set of records of this template, and a message if there is none.
    fn begin(&mut self, number: u16) {
        if self.message.is_empty() {
            self.begin_message();
            self.put_counts();
        }
        if self.set.is_none_or(|(_, present)| present != number) {
            self.begin_set(number);
        }
    }

    fn begin_message(&mut self) {
        self.message.extend([0; HEADER_SIZE]);
        if self.message_count.is_multiple_of(TEMPLATE_MESSAGES) {
            self.put_templates();
        }
    }

    fn end_message(&mut self) {
        let size = self.message.len() as u16;
        // All routers of a site are observation domain 0: what tells them apart is their address.
        let words = [self.time_s, self.sequence, 0];
        let header = [VERSION, size].into_iter().flat_map(u16::to_be_bytes);
        let header = header.chain(words.into_iter().flat_map(u32::to_be_bytes));
        self.message.iter_mut().zip(header).for_each(|(place, byte)| *place = byte);
    }

    fn begin_set(&mut self, number: u16) {
        self.end_set();
        self.set = Some((self.message.len(), number));
        self.put(&number.to_be_bytes());
        self.put(&[0; 2]);
    }

    fn end_set(&mut self) {
        if let Some((begins, _)) = self.set.take() {
            let size = (self.message.len() - begins) as u16;
            self.message[begins + 2..begins + 4].copy_from_slice(&size.to_be_bytes());
        }
    }

    fn put_templates(&mut self) {
        self.begin_set(TEMPLATES);
        for (number, addresses) in [(FLOW_V4, [(8, 4), (12, 4)]), (FLOW_V6, [(27, 16), (28, 16)])] {
            let count = addresses.len() + FLOW_ELEMENTS.len() + 1;
            self.put_words(&[number, count as u16]);
            for (element, size) in addresses.into_iter().chain(FLOW_ELEMENTS) {
                self.put_words(&[element, size]);
            }
            // reverseTcpControlBits
            self.put_words(&[6 | HAS_ENTERPRISE, 2]);
            self.put(&REVERSE.to_be_bytes());
        }
        self.begin_set(OPTIONS_TEMPLATES);
        // The scope: observationDomainId. Of it: exportedFlowRecordTotalCount, notSentFlowTotalCount.
        self.put_words(&[COUNTS, 3, 1, 149, 4, 42, 8, 167, 8]);
    }

    /// Says how many records were sent and lost so far, if any were lost since this was said.
    fn put_counts(&mut self) {
        if self.lost > self.lost_reported {
            self.lost_reported = self.lost;
            self.begin_set(COUNTS);
            self.put(&[0; 4]);
            self.put(&self.sent.to_be_bytes());
            self.put(&self.lost.to_be_bytes());
            self.record_count += 1;
        }
    }

    fn put_words(&mut self, words: &[u16]) {
        words.iter().for_each(|word| self.put(&word.to_be_bytes()));
    }

    fn put(&mut self, bytes: &[u8]) {
        self.message.extend_from_slice(bytes);
    }
}

/// `flowEndReason` of an event, if it is an end.
fn end_reason(event: &FlowEvent) -> Option<u8> {
    const IDLE_TIMEOUT: u8 = 1;
    const ACTIVE_TIMEOUT: u8 = 2;
    const END_DETECTED: u8 = 3;
    const FORCED_END: u8 = 4;
    match (event.change, event.flow.reason) {
        (Change::Opened | Change::Reopened, _) => None,
        (_, Some("fin" | "rst")) => Some(END_DETECTED),
        (_, Some("timeout")) => Some(IDLE_TIMEOUT),
        (_, Some("evicted")) => Some(ACTIVE_TIMEOUT),
        _ => Some(FORCED_END),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::ArchivedFlow;
    use crate::flow::VlanTags;

    fn event(number: u16, is_v6: bool) -> FlowEvent {
        let ends = if is_v6 { ["[2001:db8::1]:0", "[2001:db8::2]:443"] } else { ["10.0.0.1:0", "10.0.0.2:443"] };
        let [mut client, server] = ends.map(|end| end.parse::<std::net::SocketAddr>().unwrap());
        client.set_port(number);
        let flow = ArchivedFlow {
            client,
            server,
            vlan: VlanTags::NONE,
            start_ns: 1_767_225_600_500_000_000,
            end_ns: 1_767_225_610_000_000_000,
            age_ns: 9_500_000_000,
            reason: Some("fin"),
            midstream: false,
            start_is_bound: false,
        };
        FlowEvent { change: Change::Closed, flow, sequence: u64::from(number), seen: None, nat: None }
    }

    fn number<const N: usize>(bytes: &[u8]) -> u64 {
        bytes[..N].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The sets of a message with their numbers, and its sequence number.
    fn sets(message: &[u8]) -> (Vec<(u64, &[u8])>, u64) {
        assert_eq!((number::<2>(message), number::<2>(&message[2..])), (10, message.len() as u64));
        let (mut rest, mut sets) = (&message[HEADER_SIZE..], Vec::new());
        while !rest.is_empty() {
            let size = number::<2>(&rest[2..]) as usize;
            sets.push((number::<2>(rest), &rest[SET_HEADER_SIZE..size]));
            rest = &rest[size..];
        }
        (sets, number::<4>(&message[8..]))
    }

    #[test]
    fn messages_hold_all_records_in_order_and_say_how_many_came_before() {
        let (mut messages, mut sent) = (IpfixMessages::default(), Vec::new());
        let mut flow_count = 0;
        let mut out = |message: &[u8], count| {
            flow_count += count;
            sent.push(message.to_vec());
        };
        for index in 0..2_000 {
            messages.count_lost(u64::from(index % 500 == 499));
            messages.add(&event(index, index % 3 == 0), &mut out);
        }
        messages.flush(&mut out);
        let (mut next, mut record_count, mut lost) = (0, 0, 0);
        for (index, message) in sent.iter().enumerate() {
            assert!(message.len() <= MESSAGE_SIZE_MAX);
            let (sets, sequence) = sets(message);
            assert_eq!(sequence, record_count);
            assert_eq!(sets[0].0 == u64::from(TEMPLATES), index.is_multiple_of(16), "templates come again");
            for (set, mut records) in sets {
                if set == u64::from(COUNTS) {
                    (lost, record_count) = (lost + 1, record_count + 1);
                    let counts = (number::<8>(&records[4..]), number::<8>(&records[12..]), records.len());
                    assert_eq!(counts, (next, lost, 20));
                }
                let (port_at, size) = match set {
                    256 => (8, RECORD_SIZE_V4),
                    257 => (32, RECORD_SIZE_V6),
                    _ => continue,
                };
                while !records.is_empty() {
                    assert_eq!(number::<2>(&records[port_at..]), next);
                    (next, record_count) = (next + 1, record_count + 1);
                    records = &records[size..];
                }
            }
        }
        assert_eq!((next, lost, flow_count), (2_000, 4, 2_000));
    }

    /// The sum of the sizes of so many elements of a template, and what follows them.
    fn sizes(mut words: &[u8], count: u64) -> (u64, &[u8]) {
        let mut size = 0;
        for _ in 0..count {
            size += number::<2>(&words[2..]);
            words = &words[if number::<2>(words) & 0x8000 == 0 { 4 } else { 8 }..];
        }
        (size, words)
    }

    #[test]
    fn a_template_has_the_size_of_its_records() {
        let alone = IpfixMessages::default().templates();
        let (sets, _) = sets(&alone);
        let (template, templates) = sets[0];
        assert_eq!((template, number::<2>(templates)), (2, 256));
        let (size, rest) = sizes(&templates[4..], number::<2>(&templates[2..]));
        assert_eq!((size, number::<2>(rest)), (RECORD_SIZE_V4 as u64, 257));
        let (size, rest) = sizes(&rest[4..], number::<2>(&rest[2..]));
        assert_eq!((size, rest.len()), (RECORD_SIZE_V6 as u64, 0));
        assert_eq!(sets.len(), 2);
    }

    #[test]
    fn openings_and_ends_that_were_taken_back_are_no_records() {
        let mut messages = IpfixMessages::default();
        for change in [Change::Opened, Change::Reopened] {
            messages.add(&FlowEvent { change, ..event(1, false) }, &mut |_, _| panic!("a message"));
        }
        messages.flush(&mut |_, _| panic!("a message"));
    }
}
