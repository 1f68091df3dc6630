//! Snapshots of any bytes: see `flowpeel_fuzz::snapshot`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowpeel_fuzz::snapshot::run(bytes));
