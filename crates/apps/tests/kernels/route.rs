//! `route` and `rpf` against the FIB's own answers.

use std::net::IpAddr;

use apps::router::kernels::{ROUTE, RouteColumns, adjacency, decision, flags, next_hop};
use chunk::{Columns, DropReason, Verdict};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{Launch, Spec};
use lookup::Prefix;
use lookup::dir24_8::Limits;
use lookup::fib::{
    Fib, FibBuilder, Interface, NextHopKind, Options, Path, Resolved, ReversePath, RouteTables,
    RouteTarget,
};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::random::Random;

const INTERFACES: u16 = 6;

fn target(random: &mut Random, v4: bool) -> RouteTarget {
    let mut path = || {
        let gateway = if v4 {
            IpAddr::from([10, 0, 0, random.below(20) as u8])
        } else {
            IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, random.below(20) as u16])
        };
        Path {
            interface: random.below(usize::from(INTERFACES)) as u16,
            gateway: (random.below(4) > 0).then_some(gateway),
            weight: random.below(5) as u32,
        }
    };
    let paths = [path(), path(), path(), path()];
    let interface = random.below(usize::from(INTERFACES)) as u16;
    match random.below(8) {
        0 => RouteTarget::Local(interface),
        1 => RouteTarget::Broadcast(interface),
        2 => RouteTarget::Blackhole,
        3 => RouteTarget::Unreachable,
        4 => RouteTarget::Paths(Vec::new()),
        n => RouteTarget::Paths(paths[..n - 4].to_vec()),
    }
}

fn fib(random: &mut Random) -> Fib {
    let tables = [RouteTables::default(), Limits::default().into()][random.below(2)];
    let mut builder = FibBuilder::new(Options::default(), tables);
    for index in 0..INTERFACES {
        let reverse_path =
            [ReversePath::Off, ReversePath::Strict, ReversePath::Loose][usize::from(index) % 3];
        let interface = Interface { reverse_path, up: true, ..Interface::default() };
        builder.set_interface(index, (index != 3).then_some(interface));
    }
    for _ in 0..60 {
        let prefix = Prefix::masked((random.next() as u32) & 0xf0ff_00ff, random.below(33) as u8);
        builder.add_route(prefix, &target(random, true)).unwrap();
        let bits = u128::from(random.next() & 0xf0ff_00ff_00ff_0000) << 64;
        let prefix = Prefix::masked(bits | 1, random.below(129) as u8);
        builder.add_route(prefix, &target(random, false)).unwrap();
    }
    builder.freeze().unwrap()
}

/// What the stage `route` does with a row.
fn route(fib: &Fib, id: u32, flow_hash: u32) -> Result<u32, DropReason> {
    match fib.resolve(id, flow_hash) {
        Resolved::Adjacency(_, index) if index < decision::ADJACENCIES_MAX => Ok(index),
        Resolved::Connected(interface) => Ok(decision::CONNECTED | u32::from(interface)),
        Resolved::Local(interface) => Ok(decision::LOCAL | u32::from(interface)),
        Resolved::Broadcast(interface) => Ok(decision::BROADCAST | u32::from(interface)),
        Resolved::NoRoute => Ok(decision::NO_ROUTE),
        Resolved::Unreachable => Ok(decision::UNREACHABLE),
        Resolved::Blackhole => Err(kernels::reasons::BLACKHOLE),
        Resolved::Adjacency(..) | Resolved::Bad => Err(kernels::reasons::BAD_LOOKUP),
    }
}

/// Whether the stage `rpf` lets a row pass.
fn passes(fib: &Fib, id: u32, interface: u16) -> bool {
    let mode = fib.interface(interface).map_or(ReversePath::Off, |record| record.reverse_path);
    match mode {
        ReversePath::Off => true,
        ReversePath::Strict => fib.leads_to(id, interface),
        ReversePath::Loose => matches!(
            fib.next_hop(id).kind,
            NextHopKind::Adjacency | NextHopKind::Group | NextHopKind::Connected
        ),
    }
}

fn lookup(fib: &Fib, flags: u16, four: u32, six: [u64; 2]) -> Option<u32> {
    let mut out = [0];
    if flags & flags::IPV4 != 0 {
        fib.lookup4(&[four], &mut out);
    } else if flags & flags::IPV6 != 0 {
        fib.lookup6(&[six], &mut out);
    } else {
        return None;
    }
    Some(out[0])
}

fn fill(job: &mut JobBytes, rows: usize, random: &mut Random) {
    for row in 0..rows {
        let verdict = if random.below(8) == 0 { Verdict::host(3) } else { Verdict::NEXT };
        let bits = [flags::IPV4, flags::IPV6, flags::IPV4 | flags::LINK_LOCAL, 0]
            [[0, 1, 0, 1, 0, 1, 2, 3][random.below(8)]];
        job.put(RouteColumns::VERDICT, row, verdict.0);
        job.put(RouteColumns::FLAGS, row, bits);
        job.put(RouteColumns::INTERFACE, row, random.below(usize::from(INTERFACES) + 2) as u16);
        job.put(RouteColumns::FLOW_HASH, row, random.next() as u32);
        job.put(RouteColumns::DST4, row, random.next() as u32 & 0xf0ff_00ff);
        job.put(RouteColumns::SRC4, row, random.next() as u32 & 0xf0ff_00ff);
        job.put(RouteColumns::DST6, row, [random.next() & 0xf0ff_00ff_00ff_0000, 1]);
        job.put(RouteColumns::SRC6, row, [random.next() & 0xf0ff_00ff_00ff_0000, 1]);
        job.put(RouteColumns::DECISION, row, 0x0bad_0bad_u32);
    }
}

/// The router's part from region `first` on, behind regions of something else.
fn image(first: usize, fib: &Fib) -> Vec<u32> {
    let own = fib.regions();
    let mut regions: Vec<&[u32]> = vec![&[7; 16]; first];
    regions.extend(own.iter().map(|region| &**region));
    let lengths: Vec<_> = regions.iter().map(|region| (region.len(), 0)).collect();
    ImageLayout::new(&lengths).write(1, &regions)
}

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..6u64 {
        let mut random = Random(round);
        let fib = fib(&mut random);
        let first = 3 * round as usize;
        let tables = bed.memory_of_words(&image(first, &fib));
        for (i, rows) in ROWS.into_iter().enumerate() {
            let items = GROUP_ITEMS[(round as usize + i) % GROUP_ITEMS.len()];
            let spec = Spec::of_file(&ROUTE).with_group_items(items);
            let mut job = JobBytes::new(RouteColumns::COLUMNS, rows);
            fill(&mut job, rows, &mut random);

            let mut expected = job.clone();
            for row in 0..rows {
                let live = |job: &JobBytes| Verdict(job.get(RouteColumns::VERDICT, row)).is_next();
                let bits: u16 = job.get(RouteColumns::FLAGS, row);
                let interface = job.get(RouteColumns::INTERFACE, row);
                let src4 = job.get(RouteColumns::SRC4, row);
                let src6 = job.get(RouteColumns::SRC6, row);
                if live(&expected)
                    && bits & flags::LINK_LOCAL == 0
                    && let Some(id) = lookup(&fib, bits, src4, src6)
                    && !passes(&fib, id, interface)
                {
                    let verdict = Verdict::drop(kernels::reasons::REVERSE_PATH).0;
                    expected.put(RouteColumns::VERDICT, row, verdict);
                }
                let dst4 = job.get(RouteColumns::DST4, row);
                let dst6 = job.get(RouteColumns::DST6, row);
                if live(&expected)
                    && let Some(id) = lookup(&fib, bits, dst4, dst6)
                {
                    match route(&fib, id, job.get(RouteColumns::FLOW_HASH, row)) {
                        Ok(decision) => expected.put(RouteColumns::DECISION, row, decision),
                        Err(reason) => {
                            expected.put(RouteColumns::VERDICT, row, Verdict::drop(reason).0);
                        }
                    }
                }
                seen.insert(expected.get::<u32>(RouteColumns::VERDICT, row));
                seen.insert(expected.get::<u32>(RouteColumns::DECISION, row) & 0xf000_0000);
            }

            let arena = bed.memory(job.bytes());
            let launch = |kernel| Launch { job: first as u32, ..over_rows(kernel, rows, items) };
            let launches = [launch("rpf"), launch("route")];
            bed.run(&spec, Memories { arena, tables, ..bed.memories() }, &launches);
            bed.read(arena, job.bytes_mut());
            assert!(job == expected, "round {round}, {rows} rows in groups of {items}");
            bed.free(arena);
        }
        bed.free(tables);
    }
    let all = [
        Verdict::NEXT,
        Verdict::host(3),
        Verdict::drop(kernels::reasons::REVERSE_PATH),
        Verdict::drop(kernels::reasons::BLACKHOLE),
        Verdict(decision::CONNECTED),
        Verdict(decision::LOCAL),
        Verdict(decision::BROADCAST),
        Verdict(decision::NO_ROUTE),
        Verdict(decision::UNREACHABLE),
    ];
    assert!(all.iter().all(|value| seen.contains(&value.0)), "too tame: {seen:x?}");
}

/// Numbers that point nowhere are a counted drop, in each table on the way.
#[test]
pub(crate) fn numbers_out_of_range() {
    let Some(mut bed) = Bed::open() else { return };
    let mut dir = vec![0u32; 16 + 8];
    dir[0] = 0x0024_0801;
    dir[16..].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let hops: Vec<u32> = [
        next_hop(0, 1, 0),
        next_hop(1, 1, 0),        // an adjacency
        next_hop(1, 1, 9),        // none
        next_hop(2, 2, 0),        // a group
        next_hop(2, 2, u32::MAX), // none
        next_hop(2, 1, 2),        // of an adjacency that is none
        next_hop(9, 1, 0),        // no kind
    ]
    .concat();
    let contents: [&[u32]; 6] =
        [&dir, &[0; 16], &hops, &[0, 0, 77], &[adjacency(4, 3)], &[0, 0, 0, 2]];
    let layout = ImageLayout::new(&contents.map(|content| (content.len(), 0)));
    let tables = bed.memory_of_words(&layout.write(1, &contents));
    let mut job = JobBytes::new(RouteColumns::COLUMNS, 9);
    for row in 0..9 {
        job.put(RouteColumns::FLAGS, row, flags::IPV4);
        job.put(RouteColumns::DST4, row, (row as u32) << 8);
        job.put(RouteColumns::DECISION, row, 5u32);
        job.put(RouteColumns::FLOW_HASH, row, u32::MAX);
    }
    let arena = bed.memory(job.bytes());
    let spec = Spec::of_file(&ROUTE);
    let memories = Memories { arena, tables, ..bed.memories() };
    bed.run(&spec, memories, &[over_rows("route", 9, 64)]);
    bed.read(arena, job.bytes_mut());
    let bad = Verdict::drop(kernels::reasons::BAD_LOOKUP).0;
    let verdicts: Vec<u32> = (0..9).map(|row| job.get(RouteColumns::VERDICT, row)).collect();
    // Next hops 1 to 8 (the records end at 6), then a cell beyond the table.
    assert_eq!(verdicts, [0, bad, 0, bad, bad, bad, bad, bad, bad]);
    let decisions: Vec<u32> = (0..9).map(|row| job.get(RouteColumns::DECISION, row)).collect();
    assert_eq!(decisions, [0, 5, 0, 5, 5, 5, 5, 5, 5]);
}
