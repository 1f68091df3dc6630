//! What opened and closed between two images of a partition, listed: a tenth of what their tables differ by.
//!
//! It takes two images of one run and gives the changes that peel out of their difference, in few bytes; and from the
//! earlier image and these bytes the tables with the changes applied. What does not peel is not among the changes, so
//! the tables may still differ from the later image's: whoever needs that transfers the difference.

use super::contents::peeler_of;
use super::{Header, KeyId, Kind, PartitionImage, Sums};
use crate::disk::{Decoder, Encoder};
use crate::error::Result;
use crate::flow::FlowKey as TableKey;
use crate::snapshot::partition_image::read_tables;
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Iblt, Peeled, Recipient, ValueCode};

/// The bytes of a payload that are written: it has 24 bits.
const PAYLOAD_SIZE: usize = 3;

/// One opening (1) or closing (-1) of a connection that opened with this payload.
struct Flip<K> {
    key: K,
    count: i32,
    payload: u32,
}

/// Gathers the openings and closings of what peels.
struct Gathered<K: TableKey> {
    code: ValueCode<K>,
    flips: Vec<Flip<K>>,
}

impl<K: TableKey> Recipient<K> for Gathered<K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn take(&mut self, peeled: Peeled<K>) {
        let Change { key, count, value, .. } = peeled.change;
        if peeled.value_known && matches!(count, 1 | -1) {
            let value = if count > 0 { value } else { value.wrapping_neg() };
            self.flips.push(Flip { key, count, payload: ValueCode::<K>::payload(value) });
        }
    }
}

impl PartitionImage {
    /// What opened and closed from this image to a later one of the same run, as bytes. It is empty if nothing can be
    /// said, such as where the tables of the two have different shapes.
    ///
    /// Complexity: a pass over the tables, and the decoding of what changed.
    #[must_use]
    pub fn changes_to(&self, later: &Self, secret: &Secret) -> Vec<u8> {
        let (Ok(before), Ok(now)) = (self.sums(secret), later.sums(secret)) else { return Vec::new() };
        if before.geometry() != now.geometry() {
            return Vec::new();
        }
        let mut out = Encoder::with_capacity(1 << 10);
        let of_v4 = write_flips(&now.v4, &before.v4, secret, &mut out);
        let of_v6 = write_flips(&now.v6, &before.v6, secret, &mut out);
        if of_v4 + of_v6 == 0 { Vec::new() } else { out.into_bytes() }
    }

    /// The tables of this image with these changes applied.
    ///
    /// Complexity: a pass over the tables, and four cells for each change.
    ///
    /// # Errors
    ///
    /// The changes are damaged. No memory is taken for what is only claimed.
    pub fn tables_with(&self, changes: &[u8], secret: &Secret) -> Result<Vec<u8>> {
        if changes.is_empty() {
            return Ok(self.tables.clone());
        }
        let mut sums = self.sums(secret)?;
        let mut from = Decoder::of_file(changes, changes.len() as u64);
        apply_flips(&mut sums.v4, secret, &mut from)?;
        apply_flips(&mut sums.v6, secret, &mut from)?;
        from.end()?;
        Ok(sums.table_bytes())
    }

    fn sums(&self, secret: &Secret) -> Result<Sums> {
        let mut head = Decoder::of_file(self.head.as_slice(), self.head.len() as u64);
        let (header, _) = Header::read(Kind::Snapshot, KeyId::of(secret), &mut head)?;
        read_tables(&header, &self.tables)
    }
}

/// Writes what peels out of the difference of two tables. Returns how much that is.
fn write_flips<K: TableKey>(now: &Iblt<K>, before: &Iblt<K>, secret: &Secret, out: &mut Encoder) -> usize {
    let mut table = now.clone();
    let code = ValueCode::<K>::new(KeyedHash::new(secret, Purpose::Value));
    let mut gathered = Gathered { code, flips: Vec::new() };
    if table.subtract(before).is_ok() && !table.is_zero() {
        peeler_of(&table, secret, 1).peel(&mut table, &mut gathered);
    }
    let flips = &mut gathered.flips;
    flips.sort_unstable_by_key(|flip| (flip.key, flip.count));
    out.u32(flips.len() as u32);
    // Column by column: neighbours in a column are alike, and compress.
    for word in 0..K::WORD_COUNT {
        for byte in (0..8).rev() {
            flips.iter().for_each(|flip| out.u8((flip.key.words()[word] >> (8 * byte)) as u8));
        }
    }
    for byte in (0..PAYLOAD_SIZE).rev() {
        flips.iter().for_each(|flip| out.u8((flip.payload >> (8 * byte)) as u8));
    }
    flips.iter().for_each(|flip| out.u8(u8::from(flip.count > 0)));
    flips.len()
}

fn apply_flips<K: TableKey>(table: &mut Iblt<K>, secret: &Secret, from: &mut Decoder<&[u8]>) -> Result<()> {
    let count = from.u32()? as usize;
    let item_size = 8 * K::WORD_COUNT + PAYLOAD_SIZE + 1;
    if count as u64 * item_size as u64 > from.left() {
        return Err(from.refuse(format!("it claims {count} changes, and {} bytes are left", from.left())));
    }
    let mut columns = vec![0; count * item_size];
    from.fill(&mut columns)?;
    let hash = KeyedHash::new(secret, Purpose::Placement);
    let code = ValueCode::<K>::new(KeyedHash::new(secret, Purpose::Value));
    for at in 0..count {
        let byte = |column: usize| u64::from(columns[column * count + at]);
        let word = |word: usize| (0..8).fold(0, |sum, column| sum << 8 | byte(8 * word + column));
        let words: Vec<u64> = (0..K::WORD_COUNT).map(word).collect();
        let key = K::from_words(&words);
        let payload = (0..PAYLOAD_SIZE).fold(0, |sum, column| sum << 8 | byte(8 * K::WORD_COUNT + column)) as u32;
        let placement = hash.of(&key);
        let value = code.encode(placement, payload);
        let change = match byte(item_size - 1) {
            1 => Change::insert(key, placement, value),
            0 => Change::remove(key, placement, value),
            _ => return Err(from.refuse("a change is an opening or a closing")),
        };
        table.apply_one(&change);
    }
    Ok(())
}
