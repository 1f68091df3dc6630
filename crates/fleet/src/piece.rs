//! Pieces of frames, each a message of the broker.
//!
//! A frame is cut into pieces that hold up other messages little, and put together again on the other side. A piece
//! names its frame by the beginning of the frame's tag, so two frames are never mixed; the first has the frame's signed
//! start, so nothing is collected for somebody without the router's key.

use crate::frame::{FRAME_SIZE_MAX, FRAME_START_SIZE_MAX, FrameStart, Refusal};
use std::collections::BTreeMap;

/// The most bytes of a frame in a piece. Brokers take messages of up to 1 MiB; shorter ones hold up others less.
pub const PIECE_SIZE: usize = 200 << 10;

const _: () = assert!(FRAME_START_SIZE_MAX < PIECE_SIZE);

/// The first bytes of a piece.
const MAGIC: [u8; 2] = *b"FP";

const ID_SIZE: usize = 16;

/// Magic, the frame, the index of the piece, and how many there are.
const HEAD_SIZE: usize = MAGIC.len() + ID_SIZE + 4 + 4;

/// The most pieces of a frame.
const PIECES_MAX: u32 = FRAME_SIZE_MAX.div_ceil(PIECE_SIZE as u64) as u32;

/// The name of a frame: different for different contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameId([u8; ID_SIZE]);

/// The pieces of a frame, each with a text that identifies it: equal frames give equal pieces.
pub fn cut(frame: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
    let id = FrameId(id_of(frame));
    let count = frame.len().div_ceil(PIECE_SIZE) as u32;
    (0..).zip(frame.chunks(PIECE_SIZE)).map(move |(index, bytes): (u32, _)| {
        let name: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let piece = [&MAGIC[..], &id.0, &index.to_le_bytes(), &count.to_le_bytes(), bytes].concat();
        (format!("{name}-{index}"), piece)
    })
}

/// The beginning of the tag, which stands behind the header.
fn id_of(frame: &[u8]) -> [u8; ID_SIZE] {
    let header_size = frame.get(8..12).and_then(|size| size.try_into().ok()).map_or(0, u32::from_le_bytes);
    let tag = frame.get(12 + header_size as usize..).unwrap_or_default();
    std::array::from_fn(|at| tag.get(at).copied().unwrap_or_default())
}

struct Piece<'a> {
    id: FrameId,
    index: u32,
    count: u32,
    bytes: &'a [u8],
}

fn parse(piece: &[u8]) -> Result<Piece<'_>, Refusal> {
    let (head, bytes) = piece.split_at_checked(HEAD_SIZE).ok_or(Refusal::NoFrame)?;
    if !head.starts_with(&MAGIC) {
        return Err(Refusal::NoFrame);
    }
    let id = FrameId(std::array::from_fn(|at| head[MAGIC.len() + at]));
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let (index, count) = (u32_at(MAGIC.len() + ID_SIZE), u32_at(MAGIC.len() + ID_SIZE + 4));
    if count > PIECES_MAX || bytes.len() > PIECE_SIZE {
        return Err(Refusal::Size);
    }
    if index >= count || bytes.is_empty() {
        return Err(Refusal::NoFrame);
    }
    Ok(Piece { id, index, count, bytes })
}

/// A frame that is whole, and what its pieces came with.
#[derive(Debug)]
pub struct Whole<T> {
    /// Its beginning.
    pub start: FrameStart,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// What came with each piece.
    pub tickets: Vec<T>,
}

/// Pieces that may come before the first of their frame: as many as a sender has on the way at once.
const EARLY_MAX: usize = 16;

/// Puts the frames of one subject together, one after another.
///
/// Pieces of a frame may come in any order, since one that the broker did not take is sent again behind later ones.
#[derive(Debug)]
pub struct Assembly<T> {
    /// The frame whose first piece has come.
    open: Option<Open<T>>,
    /// Pieces of a frame whose first is missing. Nobody has signed for them yet, so there are few.
    early: Option<(FrameId, Pieces<T>)>,
}

/// Pieces by their indices, each with what it came with.
type Pieces<T> = BTreeMap<u32, (Vec<u8>, T)>;

/// A frame of which pieces are missing.
#[derive(Debug)]
struct Open<T> {
    id: FrameId,
    count: u32,
    start: FrameStart,
    pieces: Pieces<T>,
}

/// What became of a piece.
#[derive(Debug)]
pub struct Assembled<T> {
    /// The frame, if it is whole now.
    pub whole: Option<Whole<T>>,
    /// Why something is not used, and what it came with.
    pub refused: Vec<(Refusal, Vec<T>)>,
    /// Whether the piece is of a frame that somebody with the key has signed.
    pub is_signed: bool,
}

impl<T> Default for Assembly<T> {
    fn default() -> Self {
        Assembly { open: None, early: None }
    }
}

impl<T> Assembly<T> {
    /// Takes a piece and what it came with. `read_start` checks the beginning of a frame.
    ///
    /// A first piece begins another frame, so a sender that was killed and begins anew is understood.
    ///
    /// Complexity: a copy of the piece; for a first one, what `read_start` does; for the last, a copy of the frame.
    pub fn take(
        &mut self,
        piece: &[u8],
        ticket: T,
        read_start: impl FnOnce(&[u8]) -> Result<FrameStart, Refusal>,
    ) -> Assembled<T> {
        let mut assembled = Assembled { whole: None, refused: Vec::new(), is_signed: false };
        let piece = match parse(piece) {
            Ok(piece) => piece,
            Err(refusal) => {
                assembled.refused.push((refusal, vec![ticket]));
                return assembled;
            }
        };
        let is_open = self.open.as_ref().is_some_and(|open| open.id == piece.id);
        if !is_open && piece.index > 0 {
            assembled.refused.extend(self.hold(&piece, ticket));
            return assembled;
        }
        if !is_open {
            let start = read_start(piece.bytes).and_then(|start| {
                let is_cut_so = start.frame_size().div_ceil(PIECE_SIZE) == piece.count as usize;
                if is_cut_so { Ok(start) } else { Err(Refusal::Size) }
            });
            match start {
                Ok(start) => assembled.refused.extend(self.begin(&piece, start)),
                Err(refusal) => {
                    assembled.refused.push((refusal, vec![ticket]));
                    return assembled;
                }
            }
        }
        assembled.is_signed = true;
        self.add(&piece, ticket, &mut assembled);
        assembled
    }

    /// How many pieces are held.
    #[cfg(test)]
    pub(crate) fn held_count(&self) -> usize {
        self.open.iter().map(|open| open.pieces.len()).chain(self.early.iter().map(|(_, held)| held.len())).sum()
    }

    /// What is held, given up.
    pub fn into_tickets(self) -> impl Iterator<Item = T> {
        let pieces = self.open.map(|open| open.pieces).into_iter().chain(self.early.map(|(_, held)| held));
        pieces.flat_map(BTreeMap::into_values).map(|(_, ticket)| ticket)
    }

    /// Keeps a piece whose frame has not begun. Returns what makes room for it.
    fn hold(&mut self, piece: &Piece, ticket: T) -> Option<(Refusal, Vec<T>)> {
        let is_other = self.early.as_ref().is_none_or(|(id, held)| *id != piece.id || held.len() >= EARLY_MAX);
        let given_up = if is_other { self.early.replace((piece.id, BTreeMap::new())) } else { None };
        let again = self.early.as_mut().and_then(|(_, held)| held.insert(piece.index, (piece.bytes.to_vec(), ticket)));
        let tickets = given_up.into_iter().flat_map(|(_, held)| held.into_values()).map(|(_, ticket)| ticket);
        let tickets: Vec<T> = tickets.chain(again.map(|(_, ticket)| ticket)).collect();
        (!tickets.is_empty()).then_some((Refusal::Cut, tickets))
    }

    /// Begins a frame, with the pieces of it that were early. Returns what came of the one before.
    fn begin(&mut self, piece: &Piece, start: FrameStart) -> Option<(Refusal, Vec<T>)> {
        let early = self.early.take_if(|(id, _)| *id == piece.id).map(|(_, held)| held);
        let open = Open { id: piece.id, count: piece.count, start, pieces: early.unwrap_or_default() };
        let before = self.open.replace(open)?;
        Some((Refusal::Cut, before.pieces.into_values().map(|(_, ticket)| ticket).collect()))
    }

    fn add(&mut self, piece: &Piece, ticket: T, assembled: &mut Assembled<T>) {
        let Some(open) = &mut self.open else { return };
        if piece.count != open.count {
            return assembled.refused.push((Refusal::Cut, vec![ticket]));
        }
        if let Some((_, before)) = open.pieces.insert(piece.index, (piece.bytes.to_vec(), ticket)) {
            assembled.refused.push((Refusal::Late, vec![before]));
        }
        let Some(Open { start, pieces, .. }) = self.open.take_if(|open| open.pieces.len() == open.count as usize)
        else {
            return;
        };
        let mut whole = Whole { bytes: Vec::with_capacity(start.frame_size()), start, tickets: Vec::new() };
        for (bytes, ticket) in pieces.into_values() {
            whole.bytes.extend_from_slice(&bytes);
            whole.tickets.push(ticket);
        }
        assembled.whole = Some(whole);
    }
}
