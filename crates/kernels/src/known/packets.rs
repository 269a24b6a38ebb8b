//! Packets: three frames written down byte by byte.

use chunk::Columns;

use super::{Known, Place};
use crate::files;
use crate::job::JobBytes;
use crate::{Launch, PayloadColumns as P};

pub(crate) fn payloads(_: u32) -> Vec<Known> {
    vec![payload(), records()]
}

pub(crate) fn gathers(_: u32) -> Vec<Known> {
    vec![gather()]
}

/// 802.1Q, VLAN 7, priority 1; IPv4 10.0.0.1 to 10.0.0.2, TTL 64, do not fragment; UDP 1000 to 53.
pub const UDP: [u8; 50] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20, 7, 8, 0, // Ethernet, tag
    0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    3, 232, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4, // UDP
];

/// IPv6 2001:db8::1 to 2001:db8::2, hop limit 3, hop-by-hop options; TCP 80 to 65535, cut after four bytes.
pub const TCP: [u8; 66] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, // Ethernet
    0x60, 0, 0, 0, 0, 12, 0, 3, // IPv6
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // destination
    6, 0, 1, 4, 0, 0, 0, 0, // hop-by-hop
    0, 80, 0xff, 0xff,
];

/// Cut within the IPv4 header; to a group, and from one.
pub const CUT: [u8; 20] = [1, 0, 0x5e, 0, 0, 1, 3, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 20, 0, 0];

/// The frames at odd places, and where they are.
pub fn frames(frames: &[&[u8]]) -> (Vec<u8>, Vec<(u32, u32)>) {
    let (mut payload, mut places) = (Vec::new(), Vec::new());
    for (i, frame) in frames.iter().enumerate() {
        payload.resize(payload.len() + 1 + i, 0xee);
        places.push((payload.len() as u32, frame.len() as u32));
        payload.extend_from_slice(frame);
    }
    payload.resize(payload.len().next_multiple_of(4), 0xee);
    (payload, places)
}

fn payload() -> Known {
    let (payload, places) = frames(&[&UDP, &TCP, &CUT]);
    let mut changed = payload.clone();
    let mut job = JobBytes::new(P::COLUMNS, places.len());
    let mut after = job.clone();
    for (row, (at, len)) in places.into_iter().enumerate() {
        let bytes = &mut changed[at as usize..][..len as usize];
        let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
        bytes.iter_mut().for_each(|byte| *byte ^= row as u8 + 1);
        for job in [&mut job, &mut after] {
            job.put(P::PAYLOAD_AT, row, at);
            job.put(P::PAYLOAD_LEN, row, len);
            job.put(P::KEY, row, 0x100 | (row as u32 + 1));
            job.put(P::SLOT, row, [1u32, 1, 2][row]); // of two slots
        }
        after.put(P::SUM, row, sum);
    }
    let kernels = &["payload_sum", "payload_xor", "flow_count"];
    // One program with the other known answer.
    let mut known = Known::new("payload", &[&files::PAYLOAD, &files::AREAS], kernels, P::COLUMNS);
    known.launches[2].job = 2;
    known.state = vec![0; 16];
    let counts = [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let known = Known { payload, ..known.job(&job, &after) };
    known.expect(Place::Payload, 0, changed).expect(Place::State, 0, counts.to_vec())
}

/// Blocks and records of frames at multiples of 16, one of them empty.
fn records() -> Known {
    let frames: [&[u8]; 5] = [&UDP, &[], &TCP, &CUT, &[]];
    let mut payload = Vec::new();
    let mut job = JobBytes::new(P::COLUMNS, frames.len());
    let (mut sums, mut starts, mut words) = (Vec::new(), vec![0u32, 0, 0, 0], Vec::new());
    for (row, frame) in frames.into_iter().enumerate() {
        job.put(P::PAYLOAD_AT, row, payload.len() as u32);
        job.put(P::PAYLOAD_LEN, row, frame.len() as u32);
        payload.extend_from_slice(frame);
        payload.resize(payload.len().next_multiple_of(16), 0);
        sums.push(frame.iter().map(|byte| u32::from(*byte)).sum::<u32>());
        starts.push(words.len() as u32);
        for (i, bytes) in frame.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u32::from_le_bytes(word);
            words.push(if i % 2 == 0 { word } else { word.swap_bytes() });
        }
    }
    starts.push(words.len() as u32);
    starts[0] = words.len() as u32;
    let sizes = [&sums, &starts, &words].map(|list| 4 * list.len());
    let places = job.add_areas(&sizes);
    let mut after = job.clone();
    for (place, list) in places.into_iter().zip([&sums, &starts, &words]) {
        after.bytes_mut()[place..][..4 * list.len()].copy_from_slice(&super::bytes_of(list));
    }
    let mut cleared = payload.clone();
    for row in 0..frames.len() {
        let at = job.get::<u32>(P::PAYLOAD_AT, row) as usize;
        cleared[at..][..frames[row].len()].iter_mut().step_by(3).for_each(|byte| *byte = 0);
    }
    let kernels = &["payload_blocks", "payload_count", "payload_words", "payload_clear"];
    let mut known = Known::new("records", &[&files::PAYLOAD, &files::AREAS], kernels, P::COLUMNS);
    let launch = |kernel, groups, job| Launch { kernel, groups, items: 0, job };
    known.launches = vec![
        launch("payload_blocks", 2, 0),
        launch("payload_count", 1, 1),
        launch("output_scan", 1, 1),
        launch("payload_words", 1, 1),
        launch("payload_clear", 1, 0),
    ];
    let known = Known { payload, ..known.job(&job, &after) };
    known.expect(Place::Payload, 0, cleared)
}

/// Frames from odd places of a region, one in two pieces, to places of a memory: by words, by bytes, and with
/// neither head nor tail.
fn gather() -> Known {
    let region: Vec<u8> = (0..400u32).map(|i| (i * 7 + 1) as u8).collect();
    // From, to, bytes, zeros behind: in step and shifted by each number of bytes, shorter than a word, nothing,
    // and a frame of two pieces of which the second one starts within a word.
    let pieces = [
        (3, 16, 150, 10),
        (160, 176, 64, 0),
        (225, 240, 9, 7),
        (301, 256, 2, 14),
        (310, 272, 0, 0),
        (66, 288, 33, 0),
        (120, 321, 30, 1),
        (259, 352, 21, 11),
    ];
    let mut list = vec![pieces.len() as u32, 0, 0, 0];
    let mut expected = vec![0xaa; 384];
    for (from, to, len, zeros) in pieces {
        list.extend([from as u32, to as u32, len as u32, zeros as u32]);
        expected[to..to + len].copy_from_slice(&region[from..from + len]);
        expected[to + len..to + len + zeros].fill(0);
    }
    let mut known = Known::new("gather", &[&files::GATHER], &["gather"], &[]);
    known.launches[0].groups = 2;
    known.arena = super::bytes_of(&list);
    known.payload = region;
    known.state = vec![0xaa; 384];
    known.expect(Place::State, 0, expected)
}
