//! Tables with any content: see `flowpeel_fuzz::table`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowpeel_fuzz::table::run(bytes));
