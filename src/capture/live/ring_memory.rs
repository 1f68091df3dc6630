//! The memory of a ring of blocks, shared with the kernel.
//!
//! The status word of a block says who owns it: the kernel hands it over by a store that our acquiring load sees
//! together with all that it wrote before, and gets it back by our releasing store, after which no reference to it is
//! left. The contents are for the callers to check.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The offset of the status in a block: behind the version and the offset of private data.
const STATUS_OFFSET: usize = 8;

/// The ring, mapped into this process.
pub(super) struct RingMemory {
    start: NonNull<u8>,
    block_size: usize,
    block_count: usize,
}

// SAFETY: the mapping belongs to this value alone and is reached only through it, and it is bound to no thread.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// Maps the ring of this socket: `block_count` blocks of `block_size` bytes.
    ///
    /// # Errors
    /// The system refuses, or no ring has these sizes.
    pub(super) fn map(fd: BorrowedFd<'_>, block_size: usize, block_count: usize) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let size = block_size.checked_mul(block_count).ok_or_else(invalid)?;
        // So that every status is aligned and inside its block.
        if block_count == 0 || !block_size.is_multiple_of(4096) || block_size == 0 {
            return Err(invalid());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so nothing that is mapped already is touched. It refuses a size that
        // is not the whole ring's, so all of it is backed.
        let start = unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, fd, 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(invalid)?;
        Ok(RingMemory { start, block_size, block_count })
    }

    /// The number of blocks.
    pub(super) fn block_count(&self) -> usize {
        self.block_count
    }

    /// The bytes of a block, if it is ours now.
    pub(super) fn block(&self, index: usize) -> Option<&[u8]> {
        if self.status(index)?.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the index is below the count, so all the bytes are mapped, and they live as long as `self`. The
        // kernel does not write to a block that it has handed over until `release` gives it back, which needs `self`
        // exclusively and so ends this borrow.
        Some(unsafe { std::slice::from_raw_parts(self.block_start(index)?.as_ptr(), self.block_size) })
    }

    /// Gives a block back to the kernel.
    pub(super) fn release(&mut self, index: usize) {
        if let Some(status) = self.status(index) {
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    fn block_start(&self, index: usize) -> Option<NonNull<u8>> {
        // SAFETY: the index is below the count, so the address is inside the mapping.
        (index < self.block_count).then(|| unsafe { self.start.add(index * self.block_size) })
    }

    fn status(&self, index: usize) -> Option<&AtomicU32> {
        let start = self.block_start(index)?;
        // SAFETY: blocks are at multiples of 4096 from a page's start and longer than the offset of the status, so it
        // is aligned and mapped for as long as `self`; it is changed by atomic stores only, here and in the kernel.
        Some(unsafe { AtomicU32::from_ptr(start.add(STATUS_OFFSET).cast().as_ptr()) })
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping has this start and size, and no reference into it outlives `self`. This could fail only
        // if it were not mapped.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.block_size * self.block_count) };
        debug_assert!(unmapped.is_ok());
    }
}
