//! Any bytes as a ClassBench rule file and as a trace: what is read is written and read again.
#![no_main]

use classify::classbench::{Problems, parse_rules, parse_trace, write_rules, write_trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match parse_rules(bytes) {
        Ok(file) => {
            let mut text = Vec::new();
            write_rules(&mut text, &file.set, &file.flags).expect("a vector takes all");
            let again = parse_rules(&text).expect("what was written");
            assert!(again.set.iter().eq(file.set.iter()));
            assert_eq!((again.flags, again.host_bits), (file.flags, 0));
        }
        Err(problems) => check(&problems),
    }
    match parse_trace(bytes) {
        Ok(trace) => {
            let mut text = Vec::new();
            write_trace(&mut text, &trace).expect("a vector takes all");
            assert_eq!(parse_trace(&text).expect("what was written"), trace);
        }
        Err(problems) => check(&problems),
    }
});

fn check(problems: &Problems) {
    assert!(problems.count >= problems.first.len() as u64 && !problems.first.is_empty());
    assert!(!problems.to_string().is_empty());
}
