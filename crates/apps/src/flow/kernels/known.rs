//! The known answers of the kernels of flow tracking.

use chunk::{Columns, Verdict};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::samples::{UDP, frames, literal_words};
use kernels::known::{Known, Sparse, bytes_of};

use super::{FLOW, FLOW_SEARCH};
use crate::flow::decode::{HeadColumns as H, head, segment};
use crate::flow::search::{HEAD_WORDS, SearchColumns as S};

/// IPv4 192.0.2.1 to 198.51.100.9, class 0x10, TTL 63, do not fragment; TCP 40,000 to 80, PSH and ACK, four bytes of options,
/// five of data.
const TCP: [u8; 63] = [
    0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x08,
    0x00, // Ethernet
    0x45, 0x10, 0x00, 0x31, 0x00, 0x07, 0x40, 0x00, 0x3f, 0x06, 0x4f, 0x72, // IPv4
    0xc0, 0x00, 0x02, 0x01, 0xc6, 0x33, 0x64, 0x09, // addresses
    0x9c, 0x40, 0x00, 0x50, 0xff, 0xff, 0xff, 0xf0, 0x01, 0x02, 0x03,
    0x04, // ports and numbers
    0x60, 0x18, 0x20, 0x00, 0xc7, 0x2e, 0x00, 0x07, // flags, window, checksum, urgent pointer
    0x01, 0x01, 0x01, 0x00, 0x61, 0x62, 0x63, 0x64, 0x65, // options, data
];

const TCP_WORDS: [u64; 4] =
    [0x9c40_0050_0000_0031, 0x0009_0800_0000_0000, 0x0000_0014_0022_000e, 0x0000_0000_103f_0600];
const UDP_WORDS: [u64; 4] =
    [0x03e8_0035_0000_0020, 0x0009_0800_0000_2007, 0x0000_0014_0026_0012, 0x0000_0100_0040_1100];
const NUMBERS: u64 = 0x0102_0304_ffff_fff0;

pub(super) fn flows(_: u32) -> Vec<Known> {
    vec![flow()]
}

/// A segment; with a wrong checksum, verified and not; with a header beyond its end; no TCP; and a packet that is settled.
fn flow() -> Known {
    let mut damaged = TCP;
    damaged[62] ^= 0x10;
    let mut beyond = TCP;
    beyond[46] = 0xf0;
    let right = [NUMBERS, 0x0218_0007_2000_0018];
    let rows: [(&[u8], u32, u32, [u64; 2]); 6] = [
        (&TCP, Verdict::NEXT.0, 0, right),
        (&damaged, Verdict::NEXT.0, 0, [0, 4 << 56]),
        (&damaged, Verdict::NEXT.0, head::IGNORES_CHECKSUMS, right),
        (&beyond, Verdict::NEXT.0, 0, [0, 3 << 56]),
        (&UDP, Verdict::NEXT.0, 0, [0, 1 << 56]),
        (&TCP, Verdict::DUMP.0, 0, [0, 0]),
    ];
    let (payload, places) = frames(&rows.map(|(frame, ..)| frame));
    let mut before = JobBytes::new(H::COLUMNS, rows.len());
    for (row, ((frame, verdict, ignores, _), (at, len))) in rows.iter().zip(places).enumerate() {
        before.put(H::VERDICT, row, *verdict);
        before.put(H::FLOW_AT, row, at);
        before.put(H::FLOW_LEN, row, len);
        before.put(H::FLOW_HEAD, row, frame.len() as u32 | ignores);
        before.put(H::FLOW_SEGMENT, row, [7u64, 7]);
    }
    let mut after = before.clone();
    for (row, (.., found)) in rows.iter().enumerate() {
        after.put(H::FLOW_SEGMENT, row, *found);
        let (src, dst, words) = match row {
            0..4 => (0xc000_0201_u64, 0xc633_6409_u64, TCP_WORDS),
            4 => (0x0a00_0001, 0x0a00_0002, UDP_WORDS),
            _ => continue,
        };
        after.put(H::FLOW_SRC, row, [0, src]);
        after.put(H::FLOW_DST, row, [0, dst]);
        after.put(H::FLOW_HEADER0, row, [words[0], words[1]]);
        after.put(H::FLOW_HEADER1, row, [words[2], words[3]]);
    }
    let known = Known::new("flow", &[&FLOW], &["flow_headers", "flow_segments"], H::COLUMNS);
    Known { payload, ..known.job(&before, &after) }
}

pub(super) fn reassemblies(group_items: u32) -> Vec<Known> {
    vec![super::known_order::reassembly(group_items)]
}

pub(super) fn searches(_: u32) -> Vec<Known> {
    vec![search()]
}

/// The number of the literals.
const GENERATION: u32 = 9;

/// Literals at the beginning, in the middle and at the end, exact and folded, and as a part; in headers, where nobody looks; in rows that
/// are settled or of which nothing is known; a packet that ends before its data.
fn search() -> Known {
    const UDP_KIND: u64 = 17 << 8;
    const TCP_KIND: u64 = 6 << 8;
    const OTHER_KIND: u64 = 0xff;
    let none = [0, u64::from(segment::NONE) << 56];
    let right = [0, u64::from(segment::RIGHT) << 56 | 20 << 48];
    let l4 = |at: u64| at << 16;
    let (next, dump) = (Verdict::NEXT.0, Verdict::DUMP.0);
    type Row = (&'static [u8], u32, [u64; 2], [u64; 2], u32);
    let rows: [Row; 12] = [
        (b"xyzab.bc.ca.caa.", next, [0, OTHER_KIND], none, GENERATION),
        (b"aba.............................", next, [0, OTHER_KIND], none, 0),
        (b"...............................bcA", next, [0, OTHER_KIND], none, 0),
        (b"................caaa............", next, [0, OTHER_KIND], none, 0),
        (b"aba........xyz", next, [l4(3), UDP_KIND], none, GENERATION),
        (b"aba.......Dxyz", next, [l4(3), UDP_KIND], none, GENERATION),
        (b"aba........Dyz", next, [l4(3), UDP_KIND], none, 0),
        (b"ddd....................xyz", next, [l4(3), TCP_KIND], right, GENERATION),
        (b"ddd.................d..xyz", next, [l4(3), TCP_KIND], none, 0),
        (b"ddd", next, [l4(3), TCP_KIND], right, GENERATION),
        (b"xyz", next, [0, OTHER_KIND], [0, 0], 0),
        (b"xyz", dump, [0, OTHER_KIND], none, 0),
    ];
    let (payload, places) = frames(&rows.map(|(frame, ..)| frame));
    let mut before = JobBytes::new(S::COLUMNS, rows.len());
    for (row, ((_, verdict, header, segment, _), (at, len))) in rows.iter().zip(places).enumerate()
    {
        before.put(S::VERDICT, row, *verdict);
        before.put(S::FLOW_AT, row, at);
        before.put(S::FLOW_LEN, row, len);
        before.put(S::FLOW_HEADER1, row, *header);
        before.put(S::FLOW_SEGMENT, row, *segment);
        before.put(S::FLOW_CLEAN, row, 7u32);
    }
    let mut after = before.clone();
    for (row, (.., clean)) in rows.iter().enumerate() {
        after.put(S::FLOW_CLEAN, row, *clean);
    }
    let mut words = vec![0; HEAD_WORDS];
    words[0] = GENERATION;
    words.extend(literal_words());
    let image = bytes_of(&ImageLayout::new(&[(words.len(), 0)]).write(1, &[&words]));
    let tables = Sparse { bytes: image.len(), parts: vec![(0, image)] };
    let known = Known::new("flow_search", &[&FLOW_SEARCH], &["flow_search"], S::COLUMNS);
    Known { payload, tables, ..known.job(&before, &after) }
}
