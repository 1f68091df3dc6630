//! Random updates of an array far larger than the caches: in a `Vec`, in huge pages, and with prefetching.

use flowpeel_lines::{Line, Lines, prefetch};
use std::time::Instant;

const LINE_COUNT: usize = 1 << 23;
const UPDATE_COUNT: u64 = 20_000_000;

/// How many updates ahead lines are prefetched: about as many misses as a core can wait for at once.
const AHEAD_COUNT: u64 = 16;

/// The place of an update: two rounds of multiplication, so that no place follows from the one before.
fn place(number: u64) -> usize {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((product ^ product >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 41) as usize
}

fn main() {
    let mut vec = vec![Line::default(); LINE_COUNT];
    let mut lines: Lines = Lines::new(LINE_COUNT);
    measure("Vec", &mut vec, false);
    measure("Lines", &mut lines, false);
    measure("Lines, prefetched", &mut lines, true);
}

/// Updates all lines once, so that their pages are there, and then measures random updates.
fn measure(name: &str, lines: &mut [Line], is_prefetched: bool) {
    lines.iter_mut().for_each(|line| line.0[0] += 1);
    let start = Instant::now();
    for number in 0..UPDATE_COUNT {
        if is_prefetched {
            prefetch(&lines[place(number + AHEAD_COUNT)]);
        }
        let line = &mut lines[place(number)];
        // A table reads what it changes, and what it does next depends on it.
        line.0[1 + (line.0[0] & 1) as usize] += number;
    }
    println!("{name:>20}: {:5.1} ns an update", start.elapsed().as_nanos() as f64 / UPDATE_COUNT as f64);
}
