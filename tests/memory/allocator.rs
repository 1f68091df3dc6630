//! A count of every allocation of a test program, while counting is on.

// An allocator needs it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The system's allocator, with a count while counting is on.
pub(crate) struct Counting;

pub(crate) static IS_COUNTING: AtomicBool = AtomicBool::new(false);
pub(crate) static ALLOCATION_COUNT: AtomicUsize = AtomicUsize::new(0);
pub(crate) static ALLOCATED_SIZE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The allocations of each thread.
    static ALLOCATIONS_HERE: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread has allocated so far.
pub(crate) fn allocations_here() -> usize {
    ALLOCATIONS_HERE.get()
}

fn count(size: usize) {
    ALLOCATIONS_HERE.set(ALLOCATIONS_HERE.get() + 1);
    if IS_COUNTING.load(SeqCst) {
        ALLOCATION_COUNT.fetch_add(1, SeqCst);
        ALLOCATED_SIZE.fetch_add(size, SeqCst);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments it came with, and its answer comes back
// unchanged; counting touches nothing but atomic numbers and one of the thread, which needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps what `alloc` asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps what `alloc_zeroed` asks of it.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.saturating_sub(layout.size()));
        // SAFETY: the caller keeps what `realloc` asks of it, and all memory comes from the system's allocator.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps what `dealloc` asks of it, and all memory comes from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}
