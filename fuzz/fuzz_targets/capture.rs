//! Any bytes as a capture: every record lies within the input, and reading again gives the same.
#![no_main]

use io::capture::read_all;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (records, error) = read_all(bytes);
    let total: usize = records.iter().map(|record| record.data.len()).sum();
    assert!(total <= bytes.len(), "records hold more than there was");
    let (again, error_again) = read_all(bytes);
    assert_eq!(records.len(), again.len());
    assert_eq!(error.is_some(), error_again.is_some());
});
