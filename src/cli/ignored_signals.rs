//! Signals that are ignored: SIGHUP where the parent wants that, as `nohup` does, although the handler of SIGINT and
//! SIGTERM would catch it too; and SIGXFSZ always.

// No crate that is used here has a safe wrapper.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Whether SIGHUP is ignored now.
pub(super) fn hangup_is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set, and the system writes what it has to where there is room for it.
    let is_read = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: what the system did not write is zero, and the type is of numbers and a pointer that may be null.
    is_read && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores SIGHUP from now on.
pub(super) fn ignore_hangup() {
    ignore(libc::SIGHUP);
}

/// Ignores the signal of files that reach the limit of their size. Writing then fails with an error, as on a full disk,
/// and what was being written is removed.
pub(super) fn ignore_file_size() {
    ignore(libc::SIGXFSZ);
}

fn ignore(signal: libc::c_int) {
    // SAFETY: no code of ours is named that the system could call. It cannot fail for a signal that there is.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}
