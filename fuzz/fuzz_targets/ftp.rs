//! Bytes of FTP's control connection, in segments of any size and with gaps: they say the same as in one piece, and each
//! announcement is a line of the stream.
//!
//! The first byte chooses the side and where the segments are cut. The others are the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream::helper::ftp::Control;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    let is_client = choice & 1 != 0;
    let (mut whole, mut expected) = (Control::new(true, true), Vec::new());
    whole.feed(is_client, 0, text, |own| expected.push(own));
    let (mut split, mut found) = (Control::new(true, true), Vec::new());
    let mut offset = 0;
    for piece in text.chunks(1 + usize::from(choice >> 1)) {
        split.feed(is_client, offset, piece, |own| found.push(own));
        offset += piece.len() as u64;
    }
    assert_eq!(found, expected);
    let mut before = 0;
    for own in &expected {
        assert!(before <= own.line.start && own.line.end <= text.len() as u64 && own.port != 0);
        assert!(own.line.start == 0 || text[own.line.start as usize - 1] == b'\n');
        before = own.line.end;
    }
    // What is behind a gap is not the beginning of a line.
    let (mut gap, mut count) = (Control::new(true, true), 0);
    gap.feed(is_client, 7, text.split(|byte| *byte == b'\n').next().unwrap_or_default(), |_| count += 1);
    gap.feed(is_client, 7 + text.len() as u64, b"\n", |_| count += 1);
    assert_eq!(count, 0);
});
