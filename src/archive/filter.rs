//! Bloom filters that tell whether a segment may hold a connection or an address, in pages that are read one by one.
//!
//! What enters: hashes. What leaves: pages of 4 KiB. A hash has all its bits in one page, so a query costs one read.
//! Every page has its checksum. A damaged page answers nothing, and the segment is read.
//!
//! A filter never denies what was put in. With `b` bits for each entry and `k` of them set, it wrongly affirms about
//! one in `(1 - e^(-k/b))^-k` others: 16 bits and 11 give 0.046 %, 10 and 7 give 0.82 %.

use flowpeel_iblt::hash::place_of;

/// The size of a page: what a disk reads anyway.
pub(super) const PAGE_SIZE: usize = 4_096;
const CHECKSUM_SIZE: usize = 4;
const PAGE_BITS: u64 = 8 * (PAGE_SIZE - CHECKSUM_SIZE) as u64;

/// The parameters of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    bits_per_entry: u64,
    probe_count: u32,
    /// A tag that distinguishes its pages from those of other filters in the same file.
    tag: u8,
}

/// The filter of connections, which are looked up one by one, so false positives should be few.
pub(super) const CONNECTIONS: Shape = Shape { bits_per_entry: 16, probe_count: 11, tag: 1 };

/// The filter of addresses. There may be two for each connection, and a query for one often finds it in many segments
/// anyway.
pub(super) const ADDRESSES: Shape = Shape { bits_per_entry: 10, probe_count: 7, tag: 2 };

/// The place of a page: its segment, and its index in the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the segment.
    pub(super) number: u32,
    pub(super) page: u32,
}

impl Shape {
    /// The number of pages for this many entries.
    pub(super) fn page_count(self, entry_count: usize) -> u32 {
        let pages = (entry_count as u64 * self.bits_per_entry).div_ceil(PAGE_BITS).max(1);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// The index of the page that holds the bits of a hash.
    pub(super) fn page_of(self, hash: u128, page_count: u32) -> u32 {
        place_of((hash >> 96) as u32, page_count as usize) as u32
    }

    /// The bits of a hash in its page. Stepping from bit to bit will do: pages are so small that chance outweighs the
    /// correlation of the bits.
    fn bits(self, hash: u128) -> impl Iterator<Item = usize> {
        let (first, step) = (hash as u64 % PAGE_BITS, ((hash >> 48) as u64 % PAGE_BITS) | 1);
        (0..u64::from(self.probe_count))
            .map(move |at| ((first + at * step + at * at * (at + 1) / 2) % PAGE_BITS) as usize)
    }

    /// The pages of a filter that holds these hashes.
    pub(super) fn pages(self, number: u32, hashes: &[u128]) -> Vec<u8> {
        let page_count = self.page_count(hashes.len());
        let mut pages = vec![0u8; page_count as usize * PAGE_SIZE];
        for hash in hashes {
            let at = self.page_of(*hash, page_count) as usize * PAGE_SIZE;
            self.bits(*hash).for_each(|bit| pages[at + bit / 8] |= 1 << (bit % 8));
        }
        for (page, bytes) in (0..).zip(pages.chunks_exact_mut(PAGE_SIZE)) {
            let (bits, place) = bytes.split_at_mut(PAGE_SIZE - CHECKSUM_SIZE);
            place.copy_from_slice(&self.checksum(bits, Place { number, page }).to_le_bytes());
        }
        pages
    }

    /// Whether a page holds a hash; `None` if the page is damaged or another one.
    pub(super) fn holds(self, page: &[u8], place: Place, hash: u128) -> Option<bool> {
        let (bits, checksum) = page.split_at_checked(PAGE_SIZE - CHECKSUM_SIZE)?;
        if *checksum != self.checksum(bits, place).to_le_bytes() {
            return None;
        }
        Some(self.bits(hash).all(|bit| bits[bit / 8] >> (bit % 8) & 1 != 0))
    }

    fn checksum(self, bits: &[u8], place: Place) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        hash.update(&[self.tag]);
        hash.update(&place.number.to_le_bytes());
        hash.update(&place.page.to_le_bytes());
        hash.update(bits);
        hash.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowpeel_iblt::hash::GOLDEN_64;

    fn hash(index: u64) -> u128 {
        let mixed = |seed: u64| {
            let mut word = (index ^ seed).wrapping_mul(GOLDEN_64);
            word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
            word ^ word >> 32
        };
        u128::from(mixed(0x1234_5678)) << 64 | u128::from(mixed(0x8765_4321_0000))
    }

    fn holds(shape: Shape, pages: &[u8], hash: u128) -> Option<bool> {
        let page = shape.page_of(hash, (pages.len() / PAGE_SIZE) as u32);
        let at = page as usize * PAGE_SIZE;
        shape.holds(&pages[at..at + PAGE_SIZE], Place { number: 9, page }, hash)
    }

    #[test]
    fn what_was_put_in_is_held_and_little_else() {
        for (shape, most) in [(CONNECTIONS, 0.0010), (ADDRESSES, 0.0100)] {
            let hashes: Vec<u128> = (0..30_000).map(hash).collect();
            let pages = shape.pages(9, &hashes);
            assert!(hashes.iter().all(|hash| holds(shape, &pages, *hash) == Some(true)));
            let count = 200_000;
            let wrong = (0..count).filter(|index| holds(shape, &pages, hash(1 << 40 | index)) == Some(true)).count();
            let share = wrong as f64 / count as f64;
            assert!(share < most && share > most / 3.0, "{share}");
        }
    }

    #[test]
    fn a_page_that_is_damaged_or_another_answers_nothing() {
        let mut pages = CONNECTIONS.pages(9, &[hash(1)]);
        assert_eq!(pages.len(), PAGE_SIZE);
        assert_eq!(holds(CONNECTIONS, &pages, hash(1)), Some(true));
        assert_eq!(holds(ADDRESSES, &pages, hash(1)), None);
        assert_eq!(CONNECTIONS.holds(&pages, Place { number: 8, page: 0 }, hash(1)), None);
        assert_eq!(CONNECTIONS.holds(&pages[1..], Place { number: 9, page: 0 }, hash(1)), None);
        pages[77] ^= 4;
        assert_eq!(holds(CONNECTIONS, &pages, hash(1)), None);
    }
}
