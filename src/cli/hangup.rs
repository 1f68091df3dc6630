//! SIGHUP, which stays ignored where the parent wants that, as `nohup` does: the handler of SIGINT and SIGTERM would
//! catch it too.

// No crate that is used here has a safe wrapper.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Whether it is ignored now.
pub(super) fn is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set, and the system writes what it has to where there is room for it.
    let is_read = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: what the system did not write is zero, and the type is of numbers and a pointer that may be null.
    is_read && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores it from now on.
pub(super) fn ignore() {
    // SAFETY: no code of ours is named that the system could call. It cannot fail for a signal that there is.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}
