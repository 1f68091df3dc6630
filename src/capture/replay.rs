//! Replay: a capture file or standard input as a source of packets.
//!
//! The format is recognised by the content, never by the name.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use super::input::{Input, InputRecord, InputResult, PlainStream};
use super::pcap::{CommonRecords, PcapKind, PcapReader};
use super::pcapng::{PcapngReader, is_section_header};
use super::{Packet, PacketSink, PacketSource, Progress, SkippedPackets, Stamp};
use crate::error::{Error, Result};

/// How many of the first bytes distinguish the formats.
const MAGIC_SIZE_MAX: usize = 12;

/// Compressions that are recognised only so that the error says what to do.
const OTHER_COMPRESSIONS: [(&[u8], &str); 3] = [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4")];

/// One capture being replayed: pcap or pcapng, plain or compressed with gzip or zstd.
pub struct Replay {
    /// The name of the input in errors.
    name: PathBuf,
    input: Input,
    input_size: Option<u64>,
    format: CaptureFormat,
    packet_count: u64,
    finished: bool,
}

enum CaptureFormat {
    Pcap(PcapReader),
    Pcapng(PcapngReader),
}

impl Replay {
    /// Opens a file, a FIFO or, as `-`, standard input, and recognises its format by its first bytes.
    ///
    /// # Errors
    ///
    /// The input cannot be opened or read, is a terminal or empty, is no capture, or is a pcap file of a link type that
    /// flowpeel cannot read.
    pub fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            let name = Path::new("standard input");
            if io::stdin().is_terminal() {
                return Err(Error::new("it is a terminal: name a capture file, or pipe one in").in_file(name));
            }
            return Replay::from_reader(io::stdin(), name);
        }
        let (file, input_size) = open_file(path).map_err(|error| error.in_file(path))?;
        let mut replay = Replay::from_reader(file, path)?;
        replay.input_size = input_size;
        Ok(replay)
    }

    /// Replays what a reader yields; `name` is its name in errors.
    ///
    /// # Errors
    ///
    /// As [`Replay::open`].
    pub fn from_reader(reader: impl Read + Send + 'static, name: &Path) -> Result<Self> {
        let (input, format) = recognise(Box::new(reader)).map_err(|error| error.in_file(name))?;
        Ok(Replay { name: name.to_path_buf(), input, input_size: None, format, packet_count: 0, finished: false })
    }

    /// How many packets were yielded so far.
    pub fn packet_count(&self) -> u64 {
        self.packet_count
    }

    /// The next record, of any kind.
    #[inline(never)]
    fn any_record(&mut self) -> Result<Option<InputRecord>> {
        if self.finished {
            return Ok(None);
        }
        match self.next_record() {
            Ok(Some(record)) => {
                self.packet_count += 1;
                Ok(Some(record))
            }
            Ok(None) => self.finish().map(|()| None),
            Err(error) => {
                self.finished = true;
                Err(error.in_file(&self.name))
            }
        }
    }

    fn packet(&self, InputRecord { stamp, link, range, wire_size }: InputRecord) -> Packet<'_> {
        let Stamp { time_ns, clock } = stamp;
        Packet { time_ns, clock, link, bytes: self.input.bytes(range), wire_size, vlan: None }
    }

    #[inline]
    fn next_record(&mut self) -> InputResult<Option<InputRecord>> {
        match &mut self.format {
            CaptureFormat::Pcap(reader) => reader.next_record(&mut self.input),
            CaptureFormat::Pcapng(reader) => reader.next_record(&mut self.input),
        }
    }

    /// Ends the replay: with an error if the input held packets and none of them could be read.
    #[cold]
    fn finish(&mut self) -> Result<()> {
        self.finished = true;
        match &mut self.format {
            CaptureFormat::Pcapng(reader) if (1..=reader.skipped().total_count()).contains(&self.packet_count) => {
                // The error names them, so they are not reported again.
                let skipped = reader.take_skipped();
                let what = format!("link type {skipped} cannot be read, and it has no other packets");
                Err(Error::new(what).in_file(&self.name))
            }
            _ => Ok(()),
        }
    }
}

impl PacketSource for Replay {
    #[inline]
    fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        Ok(self.any_record()?.map(|record| self.packet(record)))
    }

    #[inline(always)]
    fn each_packet(&mut self, count_max: u64, sink: &mut impl PacketSink) -> Result<u64> {
        let common = match &self.format {
            CaptureFormat::Pcap(reader) => reader.common_records(),
            CaptureFormat::Pcapng(_) => None,
        };
        let mut count = 0;
        while count < count_max {
            // Records of the most common kind of file while the buffer holds them whole: these take no call and no
            // branch on the format or the clock, and make up nearly all of a replay.
            let (common, unread) = match common {
                Some(common) => (common, self.input.unread()),
                None => (CommonRecords::NONE, [].as_slice()),
            };
            let (mut rest, counted) = (unread, count);
            while count < count_max
                && let Some(packet) = common.next_packet(&mut rest)
            {
                sink.take_packet(&packet);
                count += 1;
            }
            let size = unread.len() - rest.len();
            self.input.consume(size);
            self.packet_count += count - counted;
            if count < count_max {
                let Some(record) = self.any_record()? else { break };
                take_one(sink, &self.packet(record));
                count += 1;
            }
        }
        Ok(count)
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn skipped(&self) -> Option<&SkippedPackets> {
        match &self.format {
            CaptureFormat::Pcap(_) => None,
            CaptureFormat::Pcapng(reader) => Some(reader.skipped()).filter(|skipped| skipped.total_count() > 0),
        }
    }

    fn progress(&self) -> Progress {
        Progress { read_size: self.input.read_size(), input_size: self.input_size }
    }
}

/// Passes a packet on from where most are not.
#[inline(never)]
fn take_one(sink: &mut impl PacketSink, packet: &Packet<'_>) {
    sink.take_packet(packet);
}

fn open_file(path: &Path) -> Result<(File, Option<u64>)> {
    let cannot_open = |error: io::Error| Error::new("cannot open it").because(error);
    let file = File::open(path).map_err(cannot_open)?;
    let metadata = file.metadata().map_err(cannot_open)?;
    if metadata.is_dir() {
        return Err(Error::new("it is a directory: name a capture file"));
    }
    // The size of pipes and devices says nothing.
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

fn recognise(reader: Box<dyn Read + Send>) -> InputResult<(Input, CaptureFormat)> {
    let stream = PlainStream::new(reader).map_err(|error| Error::new("cannot read it").because(error))?;
    let mut input = Input::new(stream);
    let magic = input.peek(MAGIC_SIZE_MAX)?;
    if is_section_header(magic) {
        return Ok((input, CaptureFormat::Pcapng(PcapngReader::new())));
    }
    match magic.first_chunk().and_then(|magic| PcapKind::recognise(*magic)) {
        Some(kind) => {
            let reader = PcapReader::new(kind, &mut input)?;
            Ok((input, CaptureFormat::Pcap(reader)))
        }
        None => Err(not_a_capture(magic).into()),
    }
}

fn not_a_capture(magic: &[u8]) -> Error {
    if magic.is_empty() {
        return Error::new("it is empty: not a capture");
    }
    match OTHER_COMPRESSIONS.iter().find(|(start, _)| magic.starts_with(start)) {
        Some((_, name)) => Error::new(format!("it is compressed with {name}: decompress it first")).at(0),
        None => {
            Error::new("it is not a capture: pcap and pcapng are read, plain or compressed with gzip or zstd").at(0)
        }
    }
}
