//! Frames of any bytes: see `flowpeel_fuzz::frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowpeel_fuzz::frame::run(bytes));
