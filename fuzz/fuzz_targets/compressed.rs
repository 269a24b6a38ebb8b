//! Any bytes as an input that may be compressed: no panic, a bounded amount of memory, and the same bytes however the
//! input comes in pieces.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;

/// A few bytes may stand for gigabytes.
const BYTES_MAX: u64 = 4 << 20;

fn whole(input: impl Read + Send) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let read = files::input::reader(input).and_then(|r| r.take(BYTES_MAX).read_to_end(&mut out));
    (out, read.is_ok())
}

/// Three bytes at a time, as a pipe may give them.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let few = buffer.len().min(3);
        self.0.read(&mut buffer[..few])
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (at_once, good) = whole(bytes);
    let (slowly, slowly_good) = whole(Slow(bytes));
    assert_eq!(good, slowly_good);
    if good {
        assert!(at_once == slowly);
    }
});
