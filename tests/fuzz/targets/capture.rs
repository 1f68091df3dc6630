//! Captures of any bytes: see `flowpeel_fuzz::capture`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowpeel_fuzz::capture::run(bytes));
