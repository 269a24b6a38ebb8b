//! Flow records, alerts, drops, anomalies, associations, transactions and files as EVE JSON: each line is an object with what it was given.
//!
//! Each byte of the input chooses something ([`writers`]).
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/flowlog/tests/all/collector.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod collector;
#[path = "../../crates/flowlog/tests/all/writers.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod writers;

fuzz_target!(|bytes: &[u8]| writers::eve(bytes));
