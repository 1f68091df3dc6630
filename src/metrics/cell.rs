//! Where one thread publishes its totals and others read them, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals of one thread, stored now and then, never per packet. Each is an atomic of its own, so a reader may see some
/// of them older than others, but each by itself only grows.
#[derive(Debug)]
pub(super) struct Cell<const COUNT: usize>([AtomicU64; COUNT]);

impl<const COUNT: usize> Default for Cell<COUNT> {
    fn default() -> Self {
        Cell(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const COUNT: usize> Cell<COUNT> {
    /// Replaces what was published before: a relaxed store for each total, and no waiting.
    pub(super) fn publish(&self, totals: [u64; COUNT]) {
        self.0.iter().zip(totals).for_each(|(cell, total)| cell.store(total, Ordering::Relaxed));
    }

    /// What was published last.
    pub(super) fn load(&self) -> [u64; COUNT] {
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_last_is_read() {
        let cell = Cell::default();
        assert_eq!(cell.load(), [0, 0]);
        for total in [1, 7] {
            cell.publish([total, 2 * total]);
            assert_eq!(cell.load(), [total, 2 * total]);
        }
    }
}
