//! Large tables of cache lines, zeroed, in huge pages where the system gives them.
//!
//! A table that is read at random misses not only the caches but also the processor's table of pages: with pages of 4 KiB
//! that costs as much again as the line. The tables of all partitions stand side by side, because each by itself may be
//! smaller than a huge page (2 MiB on most machines). What is not used is not touched, and takes no memory.

// Memory that several owners have a part of each can not be had from the standard library, nor can huge pages.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

/// A cache line of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

#[cfg(target_os = "linux")]
pub use mapped::Lines;

/// Cache lines that nobody else has.
#[cfg(not(target_os = "linux"))]
pub struct Lines(Box<[Line]>);

#[cfg(not(target_os = "linux"))]
impl Lines {
    /// So many lines, all zero.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Lines(vec![Line([0; 8]); count].into_boxed_slice())
    }

    fn as_slice(&self) -> &[Line] {
        &self.0
    }

    fn as_mut_slice(&mut self) -> &mut [Line] {
        &mut self.0
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        self.as_slice()
    }
}

impl DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Line] {
        self.as_mut_slice()
    }
}

#[cfg(target_os = "linux")]
mod mapped {
    use crate::lines::Line;
    use parking_lot::Mutex;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::NonNull;
    use std::sync::{Arc, Weak};

    /// Lines that are mapped at a time, at least: 64 MiB of addresses, of which only what is touched takes memory.
    const MAPPED_LINES_MIN: usize = 1 << 20;

    /// Memory that is mapped until the last of its lines has been given back.
    struct Mapping {
        start: NonNull<Line>,
        line_count: usize,
    }

    // SAFETY: it only keeps the memory mapped; nothing is read or written through it.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(line_count: usize) -> Option<Self> {
            let size = line_count.checked_mul(size_of::<Line>())?;
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: the kernel chooses the place, so nothing that is mapped already is touched.
            let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, flags) }.ok()?;
            // SAFETY: the range is the one just mapped; the advice changes nothing that could be read. A kernel that does not take
            // it gives small pages.
            let _ = unsafe { madvise(start, size, Advice::LinuxHugepage) };
            Some(Mapping { start: NonNull::new(start.cast())?, line_count })
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the range is what was mapped, and whoever had lines of it has kept this alive. If it fails the memory stays
            // mapped, which harms nobody.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.line_count * size_of::<Line>()) };
        }
    }

    /// The mapping that lines are taken from, and how many of it are taken.
    static LATEST: Mutex<(Weak<Mapping>, usize)> = Mutex::new((Weak::new(), 0));

    /// Cache lines that nobody else has.
    pub struct Lines {
        start: NonNull<Line>,
        count: usize,
        /// Kept for as long as these are.
        _mapping: Arc<Mapping>,
    }

    // SAFETY: it owns its lines as a box would.
    unsafe impl Send for Lines {}
    // SAFETY: as above.
    unsafe impl Sync for Lines {}

    impl Lines {
        /// So many lines, all zero.
        ///
        /// # Panics
        ///
        /// The system has not so many addresses left.
        #[must_use]
        pub fn new(count: usize) -> Self {
            let mut latest = LATEST.lock();
            let (known, taken) = &mut *latest;
            let with_room = known.upgrade().filter(|mapping| mapping.line_count - *taken >= count);
            let mapping = with_room.unwrap_or_else(|| {
                let fresh = Mapping::new(count.max(MAPPED_LINES_MIN)).map(Arc::new);
                let fresh = fresh.expect("the system has no addresses left for a table");
                (*known, *taken) = (Arc::downgrade(&fresh), 0);
                fresh
            });
            // SAFETY: there is room for so many lines behind those that are taken.
            let start = unsafe { mapping.start.add(*taken) };
            *taken += count;
            Lines { start, count, _mapping: mapping }
        }

        #[inline]
        pub(super) fn as_slice(&self) -> &[Line] {
            // SAFETY: the lines are within the mapping, which lives as long as `self`, was zeroed by the kernel and is aligned to a
            // page; each line is handed out once, so only `self` leads to these.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }

        #[inline]
        pub(super) fn as_mut_slice(&mut self) -> &mut [Line] {
            // SAFETY: as above, and `self` is borrowed exclusively.
            unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_zero_and_nobody_elses() {
        let mut parts: Vec<Lines> = [1, 1_000, 0, 3, 1 << 20, 7].into_iter().map(Lines::new).collect();
        for (number, part) in (1..).zip(&mut parts) {
            let (zero, mine) = (Line([0; 8]), Line([number; 8]));
            assert!(part.iter().step_by(97).chain(part.last()).all(|line| *line == zero));
            part.iter_mut().step_by(97).for_each(|line| *line = mine);
            part.iter_mut().rev().take(1).for_each(|line| *line = mine);
        }
        for (number, part) in (1..).zip(&parts) {
            assert!(part.iter().step_by(97).chain(part.last()).all(|line| *line == Line([number; 8])));
            assert_eq!(part.as_ptr().cast::<u8>().align_offset(64), 0);
        }
        drop(parts);
        assert!(Lines::new(2_000).iter().all(|line| *line == Line([0; 8])), "what was given back does not come again");
    }
}
