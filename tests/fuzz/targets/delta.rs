//! The tables of connections with any content: see `flowpeel_fuzz::delta`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowpeel_fuzz::delta::run(bytes));
