//! Any text parses or says where it does not; what parses runs over any frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::decode;
use packet::filter::Filter;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return };
    let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
    let (text, frame) = rest.split_at(len);
    let Ok(text) = std::str::from_utf8(text) else { return };
    match Filter::parse(text) {
        Ok(filter) => {
            let d = decode(frame, frame.len());
            let found = filter.matches(&d, frame);
            if !text.trim().is_empty() {
                let Ok(negated) = Filter::parse(&format!("not ({text})")) else {
                    return; // one parenthesis too many
                };
                let negated = negated.matches(&d, frame);
                assert!(!(negated && found));
                // A frame without the byte that is read, or by which nothing can be divided, matches neither.
                assert!(negated || found || text.contains(['[', '/', '%']));
            }
        }
        Err(error) => {
            assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
            assert!(!error.expected.is_empty());
        }
    }
});
