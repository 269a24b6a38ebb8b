//! Packets: three frames written down byte by byte.

use chunk::{Columns, Verdict};

use super::{Known, Place};
use crate::files;
use crate::job::JobBytes;
use crate::{HeaderColumns as H, Launch, PayloadColumns as P, RewriteColumns as R, flags, hash};

pub(crate) fn decodes(_: u32) -> Vec<Known> {
    vec![decode()]
}

pub(crate) fn rewrites(_: u32) -> Vec<Known> {
    vec![rewrite()]
}

pub(crate) fn payloads(_: u32) -> Vec<Known> {
    vec![payload(), records()]
}

pub(crate) fn gathers(_: u32) -> Vec<Known> {
    vec![gather()]
}

/// 802.1Q, VLAN 7, priority 1; IPv4 10.0.0.1 to 10.0.0.2, TTL 64, do not fragment; UDP 1000 to 53.
const UDP: [u8; 50] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20, 7, 8, 0, // Ethernet, tag
    0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    3, 232, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4, // UDP
];

/// IPv6 2001:db8::1 to 2001:db8::2, hop limit 3, hop-by-hop options; TCP 80 to 65535, cut after four bytes.
const TCP: [u8; 66] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, // Ethernet
    0x60, 0, 0, 0, 0, 12, 0, 3, // IPv6
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // destination
    6, 0, 1, 4, 0, 0, 0, 0, // hop-by-hop
    0, 80, 0xff, 0xff,
];

/// Cut within the IPv4 header; to a group, and from one.
const CUT: [u8; 20] = [1, 0, 0x5e, 0, 0, 1, 3, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 20, 0, 0];

/// The frames at odd places, and where they are.
fn frames(frames: &[&[u8]]) -> (Vec<u8>, Vec<(u32, u32)>) {
    let (mut payload, mut places) = (Vec::new(), Vec::new());
    for (i, frame) in frames.iter().enumerate() {
        payload.resize(payload.len() + 1 + i, 0xee);
        places.push((payload.len() as u32, frame.len() as u32));
        payload.extend_from_slice(frame);
    }
    payload.resize(payload.len().next_multiple_of(4), 0xee);
    (payload, places)
}

fn decode() -> Known {
    let (payload, places) = frames(&[&UDP, &TCP, &CUT]);
    let mut job = JobBytes::new(H::COLUMNS, places.len());
    for (row, (at, len)) in places.into_iter().enumerate() {
        job.put(H::PAYLOAD_AT, row, at);
        job.put(H::PAYLOAD_LEN, row, len);
        job.put(H::FRAME_LEN, row, len);
    }
    let mut after = job.clone();
    let (src, dst) = ([0u64, 0x0a00_0001], [0u64, 0x0a00_0002]);
    after.put(H::SRC, 0, src);
    after.put(H::DST, 0, dst);
    after.put(H::IP_TOTAL_LEN, 0, 32u32);
    after.put(H::L4_WORD, 0, 1000u32 << 16 | 53);
    after.put(H::VLAN_TCI, 0, 0x2007_u32);
    after.put(H::FLOW_HASH, 0, hash::flow(src, dst, [1000, 53], 17));
    after.put(H::ETHERTYPE, 0, 0x0800_u16);
    after.put(H::L3_OFFSET, 0, 18u16);
    after.put(H::L4_OFFSET, 0, 38u16);
    after.put(H::IP_HEADER_LEN, 0, 20u16);
    after.put(H::HEADER_FLAGS, 0, 1u16 << 0 | 1 << 3); // ports, do not fragment
    after.put(H::PROTOCOL, 0, 17u8);
    after.put(H::TTL, 0, 64u8);
    after.put(H::COUNTS, 0, 1u8); // a tag

    let (src, dst) = ([0x2001_0db8_0000_0000_u64, 1], [0x2001_0db8_0000_0000_u64, 2]);
    after.put(H::SRC, 1, src);
    after.put(H::DST, 1, dst);
    after.put(H::IP_TOTAL_LEN, 1, 52u32);
    after.put(H::L4_WORD, 1, 80u32 << 16 | 0xffff);
    after.put(H::FLOW_HASH, 1, hash::flow(src, dst, [80, 0xffff], 6));
    after.put(H::ETHERTYPE, 1, 0x86dd_u16);
    after.put(H::L3_OFFSET, 1, 14u16);
    after.put(H::L4_OFFSET, 1, 62u16);
    after.put(H::IP_HEADER_LEN, 1, 48u16);
    // Ports, do not fragment, hop-by-hop, upper layer cut.
    after.put(H::HEADER_FLAGS, 1, 1u16 << 0 | 1 << 3 | 1 << 5 | 1 << 6);
    after.put(H::KIND, 1, 1u8);
    after.put(H::PROTOCOL, 1, 6u8);
    after.put(H::TTL, 1, 3u8);
    after.put(H::COUNTS, 1, 1u8 << 4); // an extension header

    after.put(H::ETHERTYPE, 2, 0x0800_u16);
    after.put(H::L3_OFFSET, 2, 14u16);
    after.put(H::HEADER_FLAGS, 2, 1u16 << 7); // the source MAC is a group's
    after.put(H::FLOW_HASH, 2, hash::flow([0; 2], [0; 2], [0; 2], 0));
    after.put(H::ANOMALY, 2, 1u8); // truncated
    after.put(H::COUNTS, 2, 1u8 << 2); // multicast
    let known = Known::new("decode", &[&files::DECODE], &["decode"], H::COLUMNS);
    Known { payload, ..known.job(&job, &after) }
}

/// An untagged IPv4 packet that is forwarded, the same at the end of its time, an IPv6 packet, and a tagged
/// one that the CPU has to take.
fn rewrite() -> Known {
    let mut plain = UDP.to_vec();
    plain.drain(12..16); // the tag
    let mut tired = plain.clone();
    tired[22] = 1;
    let (mut payload, places) = frames(&[&plain, &tired, &TCP, &UDP]);
    let before = std::mem::take(&mut payload);
    let mut changed = before.clone();
    let at = places[0].0 as usize;
    changed[at..at + 12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    changed[at + 22] = 63;
    // The word of TTL and protocol falls by 0x0100, so the checksum rises by as much: 0x26cb to 0x27cb.
    changed[at + 24] = 0x27;
    let at = places[2].0 as usize;
    changed[at..at + 12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    changed[at + 21] = 2;

    let mut job = JobBytes::new(R::COLUMNS, places.len());
    for (row, (at, len)) in places.into_iter().enumerate() {
        job.put(R::PAYLOAD_AT, row, at);
        job.put(R::PAYLOAD_LEN, row, len);
        job.put(R::FRAME_LEN, row, len);
        job.put(R::FLAGS, row, if row == 2 { flags::IPV6 } else { flags::IPV4 });
        job.put(R::L3, row, if row == 3 { 18u8 } else { 14 });
        job.put(R::MTU, row, 1500u16);
        job.put(R::TX_PORT, row, 5u16);
        job.put(R::MACS, row, [0x0807_0605_0403_0201_u64, 0x0c0b_0a09]);
    }
    let mut after = job.clone();
    for row in [0, 2] {
        after.put(R::VERDICT, row, Verdict::forward(5).0);
    }
    let known = Known::new("rewrite", &[&files::REWRITE], &["rewrite"], R::COLUMNS);
    Known { payload: before, ..known.job(&job, &after) }.expect(Place::Payload, 0, changed)
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
