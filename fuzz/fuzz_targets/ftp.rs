//! Bytes of FTP's control connection, in segments of any size and with gaps: they say the same as in one piece, and each
//! announcement is a line of the stream. Edited by a translator, what goes on is one stream, too.
//!
//! The first byte chooses the side and where the segments are cut. The others are the stream.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use nat::ftp::{Segment, Stream};
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
    // Through a translator: the numbers of what goes on are those of its bytes.
    let (mut stream, mut at, mut there) = (Stream::new(), u32::MAX - 40, u32::MAX - 40);
    for piece in text.chunks(1 + usize::from(choice >> 1)).take(64) {
        let mut rest = piece;
        while !rest.is_empty() {
            let mut out = [0; 300];
            let segment = Segment { seq: at, flags: 0x10, payload: rest, room: out.len() };
            let end = |own: &stream::helper::ftp::Announcement| Ok::<_, ()>(Some((Ipv4Addr::new(9, 1, 22, 3), own.port ^ 5)));
            let Ok(passed) = stream.pass(&segment, is_client, &mut out, end) else {
                // It comes again as it is.
                let again = stream.pass(&segment, is_client, &mut out, end);
                let Ok(passed) = again else { return };
                assert!(passed.seq == there && passed.len.is_none());
                there = there.wrapping_add(passed.kept as u32);
                at = at.wrapping_add(passed.kept as u32);
                rest = &rest[passed.kept..];
                continue;
            };
            assert!(passed.seq == there && passed.kept > 0);
            there = there.wrapping_add(passed.len.unwrap_or(passed.kept) as u32);
            at = at.wrapping_add(passed.kept as u32);
            rest = &rest[passed.kept..];
            assert_eq!(stream.acknowledged(there), at);
        }
    }
});
