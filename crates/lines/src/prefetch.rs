//! Prefetching.

#![allow(unsafe_code)]

/// Prefetches the cache line that holds the start of `place`, so that it is in the cache when it is needed. It affects
/// nothing but time, and does nothing on other processors than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it reads nothing architecturally and cannot fault, and the address is that of a
    // live reference in any case.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
