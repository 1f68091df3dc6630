//! The array: zeroed, on the heap where it is small, and in a mapping of its own kind of pages where it is large.

// The standard library has neither memory of which several owners have a part each, nor huge pages.
#![allow(unsafe_code)]

use crate::{Line, Words};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Arrays up to this size, in bytes, come from the heap, where frequent allocation costs least.
const HEAP_SIZE_MAX: usize = 1 << 14;

/// Arrays of at least this size, in bytes, are in huge pages. The TLB covers smaller ones, and many of those are hardly
/// used: in a huge page they would take memory all the same.
const HUGE_SIZE_MIN: usize = 1 << 19;

const _: () = assert!(HEAP_SIZE_MAX < HUGE_SIZE_MIN);

/// An array of cache lines or parts of them, all zero when it is made.
///
/// Up to 16 KiB are on the heap; larger arrays are mapped, and those from half a megabyte on in huge pages where the
/// system has them. Of a mapped array only what is touched takes memory. Elsewhere than on Linux all are on the heap.
///
/// ```
/// use flowpeel_lines::{HalfLine, Lines};
///
/// // 32 MiB of addresses, of which one page is used.
/// let mut lines: Lines<HalfLine> = Lines::new(1 << 20);
/// lines[700_000] = HalfLine([1, 2, 3, 4]);
/// assert_eq!(lines.iter().filter(|line| **line != HalfLine::default()).count(), 1);
/// ```
pub struct Lines<T: Words = Line> {
    /// The address of the first, whichever memory they are in: every look-up needs it.
    start: NonNull<T>,
    count: usize,
    memory: Memory<T>,
}

/// The owner of the memory, which frees it.
enum Memory<T: Words> {
    /// Held only to be dropped.
    Heap { _lines: heap::OnHeap<T> },
    #[cfg(target_os = "linux")]
    Mapped(mapped::Mapped<T>),
}

// SAFETY: the words are its own, as those of a box would be.
unsafe impl<T: Words> Send for Lines<T> {}
// SAFETY: as above.
unsafe impl<T: Words> Sync for Lines<T> {}

impl<T: Words> Lines<T> {
    /// An array of this many, all zero.
    ///
    /// Where the system has no addresses left this ends as every allocation does then: see
    /// [`std::alloc::handle_alloc_error`].
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self::in_pages(count, count >= HUGE_SIZE_MIN / size_of::<T>())
    }

    /// As [`Self::new`], but in huge pages where it would be mapped and is smaller than half a megabyte: for an array
    /// that is there once or a few times, and is accessed at random between accesses to larger ones. In pages of its
    /// own it would miss the TLB, and [`prefetch`](crate::prefetch) waits for that.
    #[must_use]
    pub fn new_huge(count: usize) -> Self {
        Self::in_pages(count, true)
    }

    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    fn in_pages(count: usize, is_huge: bool) -> Self {
        #[cfg(target_os = "linux")]
        if count > HEAP_SIZE_MAX / size_of::<T>()
            && let Some(lines) = mapped::Mapped::new(count, is_huge)
        {
            return Lines { start: lines.start(), count, memory: Memory::Mapped(lines) };
        }
        let lines = heap::OnHeap::new(count);
        Lines { start: lines.start(), count, memory: Memory::Heap { _lines: lines } }
    }

    /// Populates the pages of an array that is not in huge pages at once instead of one by one, for callers that are
    /// about to write to all of it. A page that is read before it is written is populated twice, and the second time
    /// all processors that the process runs on are interrupted. Of huge pages there are few, which take too long to be
    /// populated at once.
    ///
    /// Complexity: a system call the first time, and nothing later.
    pub fn populate(&mut self) {
        match &mut self.memory {
            Memory::Heap { .. } => {}
            #[cfg(target_os = "linux")]
            Memory::Mapped(lines) => lines.populate(),
        }
    }
}

impl<T: Words> Deref for Lines<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: there are `count` words, valid for any bits, for as long as `memory` lives; only `self`
        // leads to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Words> DerefMut for Lines<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl<T: Words + Copy> Clone for Lines<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Words + PartialEq> PartialEq for Lines<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Words + fmt::Debug> fmt::Debug for Lines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

/// Whether the system has so many bytes of addresses left in one piece. Nothing stays taken. Elsewhere than on Linux
/// that is not known, and taken to be so.
///
/// ```
/// assert!(flowpeel_lines::are_addresses_left(1 << 20));
/// assert!(!flowpeel_lines::are_addresses_left(u64::MAX));
/// ```
#[must_use]
pub fn are_addresses_left(size: u64) -> bool {
    #[cfg(target_os = "linux")]
    return usize::try_from(size).is_ok_and(mapped::is_possible);
    #[cfg(not(target_os = "linux"))]
    return size < u64::MAX;
}

/// The most addresses that arrays take beside those that are in use, in bytes: what is mapped for the next.
#[must_use]
pub fn mapped_unused_max() -> u64 {
    #[cfg(target_os = "linux")]
    return mapped::UNUSED_SIZE_MAX;
    #[cfg(not(target_os = "linux"))]
    return 0;
}

mod heap {
    use crate::Words;
    use std::ptr::{NonNull, slice_from_raw_parts_mut};

    /// A boxed slice that pointers lead into.
    pub(super) struct OnHeap<T: Words> {
        start: NonNull<T>,
        count: usize,
    }

    impl<T: Words> OnHeap<T> {
        pub(super) fn new(count: usize) -> Self {
            let lines = Box::leak((0..count).map(|_| T::default()).collect::<Box<[T]>>());
            OnHeap { start: NonNull::from(lines).cast(), count }
        }

        pub(super) fn start(&self) -> NonNull<T> {
            self.start
        }
    }

    impl<T: Words> Drop for OnHeap<T> {
        fn drop(&mut self) {
            // SAFETY: it is the box that was leaked when this was made, and no pointer into it is used any more.
            drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(self.start.as_ptr(), self.count)) });
        }
    }
}

#[cfg(target_os = "linux")]
mod mapped {
    use crate::{Line, Words};
    use parking_lot::Mutex;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::NonNull;
    use std::sync::{Arc, Weak};

    /// The fewest lines that are mapped at a time: 64 MiB of addresses, of which only what is touched takes memory.
    const MAPPED_LINES_MIN: usize = 1 << 20;

    /// See [`super::mapped_unused_max`].
    pub(super) const UNUSED_SIZE_MAX: u64 = 2 * (MAPPED_LINES_MIN * size_of::<Line>()) as u64;

    /// Whether a mapping of this size, in bytes, is possible; it is undone at once.
    pub(super) fn is_possible(size: usize) -> bool {
        Mapping::new(size.div_ceil(size_of::<Line>()).max(1), false).is_some()
    }

    /// The size of a huge page on most machines, in bytes. Where huge pages have another size, only a part of them is
    /// given back early.
    const HUGE_PAGE_SIZE: usize = 1 << 21;

    /// The size of a page on most machines, in bytes. Where pages are larger, arrays smaller than one stay until the
    /// whole mapping is unmapped.
    const PAGE_SIZE: usize = 1 << 12;

    /// A mapping that lasts until the last of its lines has been given back.
    struct Mapping {
        start: NonNull<Line>,
        line_count: usize,
    }

    // SAFETY: it only keeps the memory mapped; nothing is read or written through it.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(line_count: usize, is_huge: bool) -> Option<Self> {
            let size = line_count.checked_mul(size_of::<Line>())?;
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: the kernel chooses the address, so nothing that is mapped already is touched.
            let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, flags) }.ok()?;
            let advice = if is_huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: the range is the one just mapped; the advice changes nothing that could be read. A kernel that
            // does not follow it chooses the pages itself.
            let _ = unsafe { madvise(start, size, advice) };
            Some(Mapping { start: NonNull::new(start.cast())?, line_count })
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the range is what was mapped, and every owner of lines in it keeps this alive. If it fails the
            // memory stays mapped, which does no harm.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.line_count * size_of::<Line>()) };
        }
    }

    /// A mapping that lines are taken from, and how many of them are taken.
    type Latest = Mutex<(Weak<Mapping>, usize)>;

    /// The latest mapping of huge pages, and that of other pages.
    static LATEST_HUGE: Latest = Mutex::new((Weak::new(), 0));
    static LATEST_SMALL: Latest = Mutex::new((Weak::new(), 0));

    /// Part of a mapping.
    pub(super) struct Mapped<T: Words> {
        start: NonNull<T>,
        count: usize,
        is_huge: bool,
        is_populated: bool,
        /// Keeps the mapping for as long as these lines live.
        _mapping: Arc<Mapping>,
    }

    impl<T: Words> Mapped<T> {
        /// An array of this many; `None` if the system has no addresses left.
        pub(super) fn new(count: usize, is_huge: bool) -> Option<Self> {
            const { assert!(size_of::<Line>().is_multiple_of(size_of::<T>()) && align_of::<T>() <= align_of::<Line>()) };
            let line_count = count.div_ceil(size_of::<Line>() / size_of::<T>());
            let mut latest = if is_huge { LATEST_HUGE.lock() } else { LATEST_SMALL.lock() };
            let (known, taken) = &mut *latest;
            let with_room = known.upgrade().filter(|mapping| mapping.line_count - *taken >= line_count);
            let mapping = match with_room {
                Some(mapping) => mapping,
                None => {
                    let roomy = Mapping::new(line_count.max(MAPPED_LINES_MIN), is_huge);
                    // Where addresses are short there is no room for others.
                    let fresh = Arc::new(roomy.or_else(|| Mapping::new(line_count, is_huge))?);
                    (*known, *taken) = (Arc::downgrade(&fresh), 0);
                    fresh
                }
            };
            // SAFETY: the mapping has room for these lines behind those that are taken.
            let start = unsafe { mapping.start.add(*taken) };
            *taken += line_count;
            Some(Mapped { start: start.cast(), count, is_huge, is_populated: false, _mapping: mapping })
        }

        /// Populates the whole pages, the first time, unless they are huge.
        pub(super) fn populate(&mut self) {
            if std::mem::replace(&mut self.is_populated, true) || self.is_huge {
                return;
            }
            if let Some((pages, size)) = self.pages(PAGE_SIZE) {
                // SAFETY: the pages belong to these lines alone, and their contents do not change. A kernel that does
                // not know the advice populates them as they are written.
                let _ = unsafe { madvise(pages.cast(), size, Advice::LinuxPopulateWrite) };
            }
        }

        /// The whole pages of this size within the lines, and their size together, if there are any.
        fn pages(&self, page_size: usize) -> Option<(*mut T, usize)> {
            let (start, size) = (self.start.as_ptr() as usize, self.count * size_of::<T>());
            let (first, end) = (start.next_multiple_of(page_size), (start + size) / page_size * page_size);
            (first < end).then(|| (self.start.as_ptr().map_addr(|_| first), end - first))
        }

        /// The address of the first. The lines are zeroed by the kernel and aligned, each is handed out once, and the
        /// mapping lives as long as this does.
        pub(super) fn start(&self) -> NonNull<T> {
            self.start
        }
    }

    impl<T: Words> Drop for Mapped<T> {
        fn drop(&mut self) {
            // Other lines may keep the mapping for long, so the pages that belong to these alone are given back now.
            let page_size = if self.is_huge { HUGE_PAGE_SIZE } else { PAGE_SIZE };
            if let Some((pages, size)) = self.pages(page_size) {
                // SAFETY: they are whole pages within the lines, which are not accessed again. If it fails they stay,
                // which does no harm.
                let _ = unsafe { madvise(pages.cast(), size, Advice::LinuxDontNeed) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HalfLine;

    #[test]
    fn lines_are_zero_and_nobody_elses() {
        let mut parts: Vec<Lines> = [1, 1_000, 0, 3, 1 << 20, 7].into_iter().map(Lines::new).collect();
        for (number, part) in (1..).zip(&mut parts) {
            let (zero, mine) = (Line([0; 8]), Line([number; 8]));
            assert!(part.iter().step_by(97).chain(part.last()).all(|line| *line == zero));
            part.populate();
            assert!(part.iter().all(|line| *line == zero), "populating changes nothing");
            part.iter_mut().step_by(97).for_each(|line| *line = mine);
            part.populate();
            part.iter_mut().rev().take(1).for_each(|line| *line = mine);
        }
        for (number, part) in (1..).zip(&parts) {
            assert!(part.iter().step_by(97).chain(part.last()).all(|line| *line == Line([number; 8])));
            assert_eq!(part.as_ptr().cast::<u8>().align_offset(64), 0);
        }
        drop(parts);
        assert!(
            Lines::<Line>::new(2_000).iter().all(|line| *line == Line([0; 8])),
            "what was given back does not come again"
        );
    }

    #[test]
    fn small_arrays_in_huge_pages_are_like_others() {
        let mut parts: Vec<Lines> = [1, 1_000, 300, 20_000].into_iter().map(Lines::new_huge).collect();
        for (number, part) in (1..).zip(&mut parts) {
            part.populate();
            assert!(part.iter().all(|line| *line == Line([0; 8])));
            part.fill(Line([number; 8]));
        }
        parts.remove(2);
        let number_of = [1, 2, 4];
        assert!(number_of.iter().zip(&parts).all(|(number, part)| part.iter().all(|line| *line == Line([*number; 8]))));
    }

    #[test]
    fn parts_of_lines_are_like_lines_in_small_tables_and_in_large_ones() {
        for count in [0, 1, 5, 100, HEAP_SIZE_MAX / 32, HEAP_SIZE_MAX / 32 + 1, HUGE_SIZE_MIN / 32, 300_001] {
            let (mut one, other) = (Lines::<HalfLine>::new(count), Lines::<HalfLine>::new(count));
            assert!(one.len() == count && one == other && one.iter().all(|half| *half == HalfLine::default()));
            let Some(last) = one.last_mut() else { continue };
            *last = HalfLine([7; 4]);
            let copy = one.clone();
            assert!(one != other && copy == one);
            drop(one);
            assert!(
                copy.iter().map(|half| half.0[3]).sum::<u64>() == 7 && copy.as_ptr().cast::<u8>().align_offset(32) == 0
            );
            assert!(other.iter().all(|half| *half == HalfLine::default()), "others stay what they are");
        }
    }
}
