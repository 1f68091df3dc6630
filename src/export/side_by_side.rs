//! The lines of a long list, made by two threads side by side and written in their order.
//!
//! The bytes are those that one thread alone would have written. The calling thread gathers the rows, hands most of
//! them to the other thread in chunks, formats the rest itself while the other is busy, and writes. It is meant for the
//! last list of a replay, when no other work is left; while packets come, the second core belongs to them.

use crate::export::flow_line::{self, Style};
use crate::export::timestamp::TimeFormatter;
use crate::list::Row;
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::thread::Builder;

/// Rows that one thread hands the other at once: some 50 microseconds of work, and lines that stay in the second-level
/// cache.
const LIST_CHUNK_ROWS: usize = 256;

/// The most chunks of [`LIST_CHUNK_ROWS`] that wait for the other thread: a megabyte, which keeps it busy for two of
/// the five milliseconds in which the next part of a list of a million is picked out and sorted.
const LIST_CHUNKS_AHEAD: usize = 40;

/// The most chunks that are handed out and not written yet: those that wait for the other thread, the one that it works
/// on, and one of this thread's.
const UNWRITTEN_MAX: usize = LIST_CHUNKS_AHEAD + 2;

/// About the size of most lines, in bytes.
const LINE_SIZE: usize = 320;

/// Rows, and then the lines made of them. Its memory is used again and again.
struct Chunk {
    rows: Vec<Row>,
    lines: Vec<u8>,
}

impl Chunk {
    fn new() -> Self {
        Chunk { rows: Vec::with_capacity(LIST_CHUNK_ROWS), lines: Vec::new() }
    }

    /// Makes the lines, and takes the rows out.
    fn format(&mut self, times: &mut TimeFormatter, style: Style) {
        self.lines.reserve(self.rows.len() * LINE_SIZE);
        self.rows.drain(..).for_each(|row| flow_line::append(&mut self.lines, times, &row, style));
    }
}

/// Where a chunk is that was handed out.
enum Unwritten {
    /// It comes from the other thread, in order.
    Others,
    /// It was formatted by this thread.
    Mine(Chunk),
}

/// Writes a line for each row.
///
/// # Errors
///
/// The lines could not be written.
pub(super) fn write(out: &mut dyn Write, mut rows: impl Iterator<Item = Row>, style: Style) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (to_other, its_rows) = bounded(LIST_CHUNKS_AHEAD);
        // The channel has room for all chunks that can be unwritten, so the two threads never wait for each other.
        let (its_lines, from_other) = bounded(UNWRITTEN_MAX);
        let other = Builder::new().name("lines".to_owned());
        // If it cannot be started, all is done here: the channel is disconnected then.
        drop(other.spawn_scoped(scope, move || make_lines(&its_rows, &its_lines, style)));
        let unwritten = VecDeque::with_capacity(UNWRITTEN_MAX);
        let times = TimeFormatter::default();
        let mut chunks = Chunks { out, to_other, from_other, unwritten, spare: Vec::new(), times, style };
        let mut chunk = Chunk::new();
        rows.try_for_each(|row| {
            chunk.rows.push(row);
            if chunk.rows.len() == LIST_CHUNK_ROWS { chunks.take(&mut chunk) } else { Ok(()) }
        })?;
        chunks.take(&mut chunk)?;
        chunks.finish()
    })
}

/// The other thread's work.
fn make_lines(rows: &Receiver<Chunk>, lines: &Sender<Chunk>, style: Style) {
    let mut times = TimeFormatter::default();
    for mut chunk in rows {
        chunk.format(&mut times, style);
        if lines.send(chunk).is_err() {
            return;
        }
    }
}

/// Hands out chunks, and writes them when their turn comes.
struct Chunks<'a> {
    out: &'a mut dyn Write,
    to_other: Sender<Chunk>,
    from_other: Receiver<Chunk>,
    unwritten: VecDeque<Unwritten>,
    /// Chunks that are written.
    spare: Vec<Chunk>,
    times: TimeFormatter,
    style: Style<'a>,
}

impl Chunks<'_> {
    /// Hands the rows of a chunk to the other thread, or formats them here if that one is busy, and leaves an empty
    /// chunk.
    fn take(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let empty = self.spare.pop().unwrap_or_else(Chunk::new);
        let handed_out = match self.to_other.try_send(std::mem::replace(chunk, empty)) {
            Ok(()) => Unwritten::Others,
            Err(TrySendError::Full(mut chunk) | TrySendError::Disconnected(mut chunk)) => {
                chunk.format(&mut self.times, self.style);
                Unwritten::Mine(chunk)
            }
        };
        if self.unwritten.len() == UNWRITTEN_MAX {
            self.write_first()?;
        }
        self.unwritten.push_back(handed_out);
        Ok(())
    }

    /// Writes the chunk whose turn it is, if there is one.
    fn write_first(&mut self) -> io::Result<()> {
        let mut chunk = match self.unwritten.pop_front() {
            Some(Unwritten::Others) => {
                self.from_other.recv().map_err(|_| io::Error::other("a thread that makes lines is gone"))?
            }
            Some(Unwritten::Mine(chunk)) => chunk,
            None => return Ok(()),
        };
        self.out.write_all(&chunk.lines)?;
        chunk.lines.clear();
        self.spare.push(chunk);
        Ok(())
    }

    /// Writes the remaining chunks.
    fn finish(mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            self.write_first()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;
    use std::net::{Ipv4Addr, SocketAddr};

    const STYLE: Style = Style { head: b"{", vlan_key: true, mark: None };

    fn row(number: u32) -> Row {
        let client = SocketAddr::new(Ipv4Addr::from_bits(number).into(), number as u16);
        Row {
            vlan: VlanTags::NONE.with(number as u16),
            start_ns: i64::from(number) * 1_000_000_007,
            age_ns: i64::from(number),
            midstream: number.is_multiple_of(3),
            ..Row::between([client, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 443)])
        }
    }

    #[test]
    fn two_threads_write_what_one_does() {
        for count in [0, 1, LIST_CHUNK_ROWS - 1, LIST_CHUNK_ROWS, 3 * LIST_CHUNK_ROWS + 1, 100 * LIST_CHUNK_ROWS] {
            let rows: Vec<Row> = (0..count as u32).map(|number| row(number.wrapping_mul(0x9e37_79b9))).collect();
            let mut written = Vec::new();
            write(&mut written, rows.iter().copied(), STYLE).unwrap();
            let mut alone = Chunk { rows, lines: Vec::new() };
            alone.format(&mut TimeFormatter::default(), STYLE);
            assert!(written == alone.lines, "{count} rows");
        }
    }

    /// A writer that is full after this many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_can_not_be_written_ends_both() {
        for size in [0, 1 << 16, 1 << 20] {
            let written = write(&mut Full(size), (0..50_000).map(row), STYLE);
            assert_eq!(written.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
        }
    }
}
