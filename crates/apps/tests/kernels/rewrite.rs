//! `rewrite` against the packet crate's own TTL and checksum.

use apps::router::kernels::{REWRITE, RewriteColumns as R, flags};
use chunk::{Columns, Verdict};
use kernels::Spec;
use kernels::job::JobBytes;
use packet::checksum::{internet_checksum, ipv4_decrement_ttl};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::random::Random;

/// What the router's straight line does to a packet; whether it was plain.
fn forward_plain(
    frame: &mut [u8],
    frame_len: u32,
    bits: u16,
    l3: u8,
    mtu: u16,
    macs: [u8; 12],
) -> bool {
    let fits = frame_len <= u32::from(l3) + u32::from(mtu);
    if !fits || mtu == 0 || l3 != 14 || (bits != flags::IPV4 && bits != flags::IPV6) {
        return false;
    }
    let Some(head) = frame.first_chunk_mut::<34>() else { return false };
    let at = if bits == flags::IPV4 { 22 } else { 21 };
    if head[at] <= 1 {
        return false;
    }
    if bits == flags::IPV4 {
        ipv4_decrement_ttl(&mut head[14..]);
    } else {
        head[at] -= 1;
    }
    head[..12].copy_from_slice(&macs);
    true
}

#[test]
fn plain_packets_and_others() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(5);
    let (mut forwarded, mut left) = (0, 0);
    for items in GROUP_ITEMS {
        for rows in ROWS {
            let mut frames: Vec<Vec<u8>> = Vec::new();
            for _ in 0..rows {
                let len = [34, 60, 64, 33, 20, 200][random.below(6)];
                let mut frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
                for at in [21, 22] {
                    if let Some(ttl) = frame.get_mut(at) {
                        *ttl = [0, 1, 2, 64, 255][random.below(5)];
                    }
                }
                if len >= 34 && random.below(4) > 0 {
                    frame[24..26].fill(0);
                    let sum = internet_checksum(&frame[14..34]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                frames.push(frame);
            }
            let (mut payload, places) = pack(&frames, &mut random);
            let mut job = JobBytes::new(R::COLUMNS, rows);
            let mut expected_payload = payload.clone();
            let mut expected_verdicts = Vec::new();
            for (row, frame) in frames.iter().enumerate() {
                let bits =
                    [flags::IPV4, flags::IPV6, flags::IPV4, flags::IPV6, 3, 0, 9][random.below(7)];
                let l3 = [14, 14, 14, 18][random.below(4)];
                let mtu = [1500, 1500, 50, 0][random.below(4)];
                let frame_len = frame.len() as u32 + [0, 0, 2000][random.below(3)];
                let macs: [u8; 12] = std::array::from_fn(|_| random.next() as u8);
                let live = random.below(6) > 0;
                let verdict =
                    if live { Verdict::NEXT } else { Verdict::drop(kernels::reasons::NO_ROUTE) };
                job.put(R::VERDICT, row, verdict.0);
                job.put(R::PAYLOAD_AT, row, places[row]);
                job.put(R::PAYLOAD_LEN, row, frame.len() as u32);
                job.put(R::FRAME_LEN, row, frame_len);
                job.put(R::FLAGS, row, bits);
                job.put(R::L3, row, l3);
                job.put(R::MTU, row, mtu);
                job.put(R::TX_PORT, row, row as u16);
                let mut high = [0; 8];
                high[..4].copy_from_slice(&macs[8..]);
                let low = u64::from_le_bytes(macs[..8].try_into().unwrap());
                job.put(R::MACS, row, [low, u64::from_le_bytes(high)]);
                let frame = &mut expected_payload[places[row] as usize..][..frame.len()];
                let plain = live && forward_plain(frame, frame_len, bits, l3, mtu, macs);
                expected_verdicts.push(if plain { Verdict::forward(row as u16) } else { verdict });
                if plain {
                    forwarded += 1;
                } else {
                    left += 1;
                }
            }
            let (arena, memory) = (bed.memory(job.bytes()), bed.memory(&payload));
            let spec = Spec::of_file(&REWRITE).with_group_items(items);
            let memories = Memories { arena, payload: memory, ..bed.memories() };
            bed.run(&spec, memories, &[over_rows("rewrite", rows, items)]);
            bed.read(arena, job.bytes_mut());
            bed.read(memory, &mut payload);
            let verdicts: Vec<Verdict> =
                (0..rows).map(|row| Verdict(job.get(R::VERDICT, row))).collect();
            assert_eq!(verdicts, expected_verdicts);
            assert!(payload == expected_payload, "{rows} rows in groups of {items}");
            bed.free(arena);
            bed.free(memory);
        }
    }
    assert!(forwarded > 1000 && left > 1000, "{forwarded} forwarded, {left} left");
}
