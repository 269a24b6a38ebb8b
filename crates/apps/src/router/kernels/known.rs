//! Known answers of the router's kernels.

use chunk::{Columns, Verdict};
use kernels::hash;
use kernels::job::JobBytes;
use kernels::known::samples::{CUT, TCP, UDP, frames, route_tables};
use kernels::known::{Known, Place, Sparse};
use kernels::reasons;

use super::{
    DECODE, HeaderColumns as H, REWRITE, ROUTE, RewriteColumns as R, RouteColumns, adjacency,
    decision, flags, next_hop,
};

pub(super) fn routes(_: u32) -> Vec<Known> {
    vec![route(), rpf()]
}

pub(super) fn decodes(_: u32) -> Vec<Known> {
    vec![decode()]
}

pub(super) fn rewrites(_: u32) -> Vec<Known> {
    vec![rewrite()]
}

/// Where the router's part begins: not at the first region of the image.
const FIRST_REGION: u32 = 2;

/// Next hops: 1 and up.
fn hops() -> Vec<u32> {
    [
        next_hop(0, 1, 0),  // 0: no route
        next_hop(5, 1, 0),  // 1: blackhole
        next_hop(6, 1, 0),  // 2: unreachable
        next_hop(3, 1, 1),  // 3: connected, interface 1
        next_hop(4, 1, 2),  // 4: local
        next_hop(1, 1, 2),  // 5: adjacency 2
        next_hop(2, 2, 1),  // 6: a group of two
        next_hop(1, 1, 77), // 7: an adjacency that is none
        next_hop(7, 1, 3),  // 8: broadcast
    ]
    .concat()
}

fn tables() -> Sparse {
    let members = vec![9, 0, 1];
    let adjacencies = vec![adjacency(4, 1), adjacency(0, 2), adjacency(6, 3)];
    let modes = vec![0, 1, 2, 3];
    route_tables(FIRST_REGION as usize, &[hops(), members, adjacencies, modes])
}

fn route() -> Known {
    let drop = |reason| Err(Verdict::drop(reason).0);
    // By address: the next hop above, and a flow hash that chooses the first or second of two.
    let rows = [
        (0x205u32, 0u32, 0u64, Ok(decision::BROADCAST | 3)),
        (0x206, 0, 0, Ok(decision::UNREACHABLE)),
        (0x300, 0, 0, Ok(decision::CONNECTED | 1)),
        (0x400, 0, 0, Ok(decision::LOCAL | 2)),
        (0x500, 0, 0, Ok(2)),
        (0x600, 0x7fff_ffff, 0, Ok(0)),
        (0x600, 0x8000_0000, 0, Ok(decision::CONNECTED | 2)),
        (0x0ff, 0, 0, drop(reasons::BAD_LOOKUP)),
        (0x700, 0, 0, drop(reasons::BAD_LOOKUP)),
        (0, 0, 0x2001_0db8_0000_0002, Ok(2)),
        (0, 0, 0x2001_0db8_0000_0001, Ok(0)),
    ];
    let mut job = JobBytes::new(RouteColumns::COLUMNS, rows.len() + 2);
    for row in 0..rows.len() + 2 {
        job.put(RouteColumns::DECISION, row, 0xffff_ffff_u32);
    }
    let mut after = job.clone();
    for (row, (four, hash, six, result)) in rows.into_iter().enumerate() {
        for job in [&mut job, &mut after] {
            let family = if six == 0 { flags::IPV4 } else { flags::IPV6 };
            job.put(RouteColumns::FLAGS, row, family);
            job.put(RouteColumns::FLOW_HASH, row, hash);
            job.put(RouteColumns::DST4, row, four);
            job.put(RouteColumns::DST6, row, [six, 1u64]);
        }
        match result {
            Ok(decision) => after.put::<u32>(RouteColumns::DECISION, row, decision),
            Err(verdict) => after.put::<u32>(RouteColumns::VERDICT, row, verdict),
        }
    }
    // One row that another stage has settled, one that is neither IPv4 nor IPv6.
    for job in [&mut job, &mut after] {
        job.put(RouteColumns::FLAGS, rows.len(), flags::IPV4);
        job.put(RouteColumns::VERDICT, rows.len(), Verdict::host(1).0);
    }
    let mut known = Known::new("route", &[&ROUTE], &["route"], RouteColumns::COLUMNS);
    known.launches[0].job = FIRST_REGION;
    Known { tables: tables(), ..known.job(&job, &after) }
}

fn rpf() -> Known {
    // Interface 1 is strict, 2 is loose, 0 and 3 do not check.
    let rows = [
        (0x300u32, 1u16, 0u16, true), // connected there
        (0x300, 2, 0, true),          // some route
        (0x500, 1, 0, false),         // leaves by 3
        (0x600, 1, 0, true),          // one of the group
        (0x206, 2, 0, false),         // unreachable
        (0x206, 2, flags::LINK_LOCAL, true),
        (0x206, 0, 0, true),
        (0x206, 3, 0, true),
        (0x206, 9, 0, true),
    ];
    let mut job = JobBytes::new(RouteColumns::COLUMNS, rows.len());
    let mut after = job.clone();
    for (row, (source, interface, odd, passes)) in rows.into_iter().enumerate() {
        for job in [&mut job, &mut after] {
            job.put(RouteColumns::FLAGS, row, flags::IPV4 | odd);
            job.put(RouteColumns::INTERFACE, row, interface);
            job.put(RouteColumns::SRC4, row, source);
        }
        if !passes {
            after.put(RouteColumns::VERDICT, row, Verdict::drop(reasons::REVERSE_PATH).0);
        }
    }
    let mut known = Known::new("rpf", &[&ROUTE], &["rpf"], RouteColumns::COLUMNS);
    known.launches[0].job = FIRST_REGION;
    Known { tables: tables(), ..known.job(&job, &after) }
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
    let known = Known::new("decode", &[&DECODE], &["decode"], H::COLUMNS);
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
    let known = Known::new("rewrite", &[&REWRITE], &["rewrite"], R::COLUMNS);
    Known { payload: before, ..known.job(&job, &after) }.expect(Place::Payload, 0, changed)
}
