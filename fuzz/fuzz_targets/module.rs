//! Any text is a source of a module or is refused with a line of it; what a source declares are names that a program can have,
//! and none of them leads out of the memory that it may use.
#![no_main]

use control::module_source::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match read(text) {
        Ok(source) => {
            assert!(source.layers.contains(&true));
            for name in source.names.iter().chain(&source.macros) {
                assert!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()));
                assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
                assert!(!name.starts_with("own_"), "{name}");
            }
            let mut names = source.names.clone();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), source.names.len());
            // Bounds of loops leave lines where they are.
            let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
            assert_eq!(lines(&source.bounded), lines(text));
        }
        Err(problem) => {
            assert!(problem.line >= 1 && problem.line <= text.lines().count().max(1), "{problem}");
            assert!(!problem.message.is_empty());
        }
    }
});
