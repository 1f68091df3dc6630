//! The memory of the process: that of the system, and what happens when that gives no more.
//!
//! A run takes what it has announced at its start, and is refused there if the system does not give it. What is
//! wanted later is little. If even that fails the process ends with a message and the status of a failure. The standard
//! library would abort, or, when it was asked for a trace, wait for ever: the trace takes memory itself.

// An allocator is unsafe by its nature, and no crate that is used here has a safe wrapper of the three calls.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// The allocator of the system, under which a process that gets no memory ends in order.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: each call is passed on to the allocator of the system with the arguments of the caller, who keeps to the same
// contract, and its result is returned as it is.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The memory that was asked for. If there is none, the process ends.
#[inline]
fn given(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        end(size);
    }
    memory
}

/// Ends the process for want of so many bytes. It takes no memory and no lock.
#[cold]
fn end(size: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = size;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 || at == 0 {
            break;
        }
    }
    let what = "error: the system gives no more memory: ";
    let advice = " bytes were wanted; lower --connections, --half-open or --churn (flowpeel plan says what they take), \
                  or raise the limit (ulimit -v)\n";
    for part in [what.as_bytes(), &digits[at..], advice.as_bytes()] {
        // SAFETY: the bytes are there, as many as are named. If they cannot be written nobody is there to read them.
        #[cfg(target_os = "linux")]
        let _ = unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        #[cfg(not(target_os = "linux"))]
        let _ = part;
    }
    // SAFETY: it ends the process and touches none of its memory.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::_exit(1)
    };
}

/// Where addresses are limited, makes all threads share one heap: with one for each they would take 64 MiB of addresses
/// apiece, hardly used, and leave none for what was announced. To be called before there are threads.
pub(super) fn share_heap_if_limited() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the system writes the limit to where there is room for it.
        let is_read = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
        if is_read && limit.rlim_cur != libc::RLIM_INFINITY {
            // SAFETY: it sets a number of the allocator's, before another thread could allocate.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
    }
}
