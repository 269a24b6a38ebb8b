//! `decode` against `packet::decode`, field by field.

use apps::router::kernels::{DECODE, HeaderColumns as H};
use chunk::{ColumnDesc, ColumnId, Columns};
use kernels::Spec;
use kernels::job::JobBytes;
use packet::flow::flow_hash;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::{frame, pack};
use crate::random::Random;

const COLUMNS: &[ColumnDesc] = H::COLUMNS;

/// What the packet crate says.
pub(crate) fn expect(job: &mut JobBytes, row: usize, bytes: &[u8], frame_len: usize) {
    let d = packet::decode(bytes, frame_len);
    job.put(H::SRC, row, d.src);
    job.put(H::DST, row, d.dst);
    job.put(H::IP_TOTAL_LEN, row, d.ip_total_len);
    job.put(H::L4_WORD, row, d.l4_word);
    job.put(H::VLAN_TCI, row, u32::from(d.vlan_tci[1]) << 16 | u32::from(d.vlan_tci[0]));
    job.put(H::FLOW_HASH, row, flow_hash(&d));
    job.put(H::ETHERTYPE, row, d.ethertype.0);
    job.put(H::L3_OFFSET, row, d.l3_offset);
    job.put(H::L4_OFFSET, row, d.l4_offset);
    job.put(H::IP_HEADER_LEN, row, d.ip_header_len);
    job.put(H::FRAGMENT_OFFSET, row, d.fragment_offset);
    job.put(H::HEADER_FLAGS, row, d.flags);
    job.put(H::KIND, row, d.kind as u8);
    job.put(H::PROTOCOL, row, d.protocol.0);
    job.put(H::TTL, row, d.ttl);
    job.put(H::TRAFFIC_CLASS, row, d.traffic_class);
    job.put(H::ANOMALY, row, d.anomaly as u8);
    let counts = d.vlan_count | (d.dst_mac as u8) << 2 | d.extension_count << 4;
    job.put(H::COUNTS, row, counts);
}

/// Runs the kernel over frames of which only so many bytes are in the first cell.
fn check(bed: &mut Bed, frames: &[(Vec<u8>, usize)], items: u32, random: &mut Random) {
    let heads: Vec<Vec<u8>> =
        frames.iter().map(|(frame, there)| frame[..*there.min(&frame.len())].to_vec()).collect();
    let (payload, places) = pack(&heads, random);
    let mut job = JobBytes::new(COLUMNS, frames.len());
    let mut expected = job.clone();
    for (row, ((frame, _), head)) in frames.iter().zip(&heads).enumerate() {
        for job in [&mut job, &mut expected] {
            job.put(H::PAYLOAD_AT, row, places[row]);
            job.put(H::PAYLOAD_LEN, row, head.len() as u32);
            job.put(H::FRAME_LEN, row, frame.len() as u32);
        }
        expect(&mut expected, row, head, frame.len());
    }
    let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
    let spec = Spec::of_file(&DECODE).with_group_items(items);
    let memories = Memories { arena, payload, ..bed.memories() };
    bed.run(&spec, memories, &[over_rows("decode", frames.len(), items)]);
    bed.read(arena, job.bytes_mut());
    if job != expected {
        report(&job, &expected, &heads);
    }
    bed.free(arena);
    bed.free(payload);
}

/// Names the first value that differs.
fn report(job: &JobBytes, expected: &JobBytes, heads: &[Vec<u8>]) -> ! {
    for (row, head) in heads.iter().enumerate() {
        for (i, column) in COLUMNS.iter().enumerate() {
            let at = job.column_range(ColumnId::of(COLUMNS, i), row).end;
            let (found, wanted) = (&job.bytes()[at..][..column.width], &expected.bytes()[at..]);
            assert_eq!(found, &wanted[..column.width], "{} of row {row}: {head:02x?}", column.name);
        }
    }
    panic!("the kernel wrote beyond its columns");
}

#[test]
fn frames_right_and_wrong() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(3);
    let mut anomalies = std::collections::BTreeSet::new();
    for items in GROUP_ITEMS {
        for rows in ROWS {
            let frames: Vec<(Vec<u8>, usize)> = (0..rows)
                .map(|_| {
                    let frame = frame(&mut random);
                    let cut = random.below(12) == 0;
                    let there = if cut { random.below(frame.len() + 1) } else { frame.len() };
                    (frame, there)
                })
                .collect();
            anomalies.extend(
                frames.iter().map(|(f, there)| packet::decode(&f[..*there], f.len()).anomaly),
            );
            check(&mut bed, &frames, items, &mut random);
        }
    }
    let missing: Vec<_> =
        packet::Anomaly::ALL.iter().filter(|anomaly| !anomalies.contains(anomaly)).collect();
    assert!(missing.is_empty(), "no frame had {missing:?}");
}

#[test]
fn captured_frames() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(4);
    let mut frames = Vec::new();
    let mut paths = Vec::new();
    for folder in ["tests/data", "../shared/data/pcap-mixed/zeek"] {
        let entries = testkit::data::repository().join(folder).read_dir();
        paths.extend(entries.into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    paths.sort();
    for path in paths {
        if path.extension().is_none_or(|ending| ending != "pcap") {
            continue;
        }
        for record in testkit::pcap::read(&path).into_iter().take(300) {
            let there = record.data.len().min(1856);
            frames.push((record.data, there));
        }
    }
    assert!(frames.len() > 1000, "{} frames", frames.len());
    check(&mut bed, &frames, 128, &mut random);
}
