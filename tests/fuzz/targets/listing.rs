//! Listings of kernel filters of any text: see `flowpeel_fuzz::listing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowpeel_fuzz::listing::run(bytes));
