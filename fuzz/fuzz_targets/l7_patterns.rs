//! Any bytes as a `.pat` file of l7-filter: it is one pattern, or a mistake in a line that is there; reading it again says the same,
//! and a search over any bytes ends. What matches by itself matches among others, whichever is first.
//!
//! The file ends with the first byte of zero; what is behind it is what is searched.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

// Its crate has devices and threads, which no parser needs.
#[allow(dead_code)]
#[path = "../../crates/apps/src/l7/patterns.rs"]
mod patterns;

use patterns::{BYTES_MAX, Pattern, Patterns, parse};

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (file, rest) = bytes.split_at(end);
    let text = &rest[..rest.len().min(BYTES_MAX)];
    let path = Path::new("p.pat");
    let read = parse(file, path);
    assert!(read == parse(file, path));
    match read {
        Err(said) => {
            let rest = said.strip_prefix("p.pat:").expect("the file");
            let (line, what) = rest.split_once(": ").expect("a line and a reason");
            let lines = file.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!(line.parse().is_ok_and(|line: usize| (1..=lines).contains(&line)), "{said}");
            assert!(!what.is_empty());
        }
        Ok(None) => {}
        Ok(Some(own)) => {
            assert!((1..=64).contains(&own.name.len()) && own.name.is_ascii());
            let matches = |all: Vec<Pattern>| {
                let all = Patterns::of(all).expect("each was compiled by itself");
                all.search(text).map(|found| found.name)
            };
            let other = parse(b"other\n^\\x01other\n", path).expect("a pattern").expect("not a dummy");
            let alone = matches(vec![own.clone()]);
            if own.name != "other" && !text.to_ascii_lowercase().starts_with(b"\x01other") {
                assert_eq!(matches(vec![other, own]), alone);
            }
        }
    }
});
