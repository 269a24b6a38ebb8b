//! The connection table against its form on the CPU, and against a plain map.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use apps::flow::connections::{
    ConnectionColumns as C, Connections, IDLE_S, NO_NUMBER, OVER_S, OfConnection, SWEPT, WAYS,
    memory_of, pieces,
};
use apps::flow::decode::{head, segment};
use apps::flow::kernels::CONNECTIONS;
use apps::flow::reassembly::NO_ROW;
use chunk::Columns;
use kernels::Spec;
use kernels::job::JobBytes;
use kernels::known::bytes_of;

use crate::bed::{Bed, GROUP_ITEMS, Memories, over_rows};
use crate::random::Random;

const KERNELS: [&str; 2] = ["connections_insert", "connections_number"];

/// What is said of a row.
#[derive(Clone, Copy, Debug)]
struct Row {
    shard: u32,
    /// The connection, and which end sends.
    connection: (u32, bool),
    status: u8,
    flags: u64,
    time: u32,
}

/// Addresses and ports: the connections of a shard differ by little.
fn ends(own: &Row) -> ([[u64; 2]; 2], u64) {
    let (connection, answers) = (u64::from(own.connection.0), own.connection.1);
    let [a, b] = [
        ([connection & 1, 0x0a00_0001 + (connection >> 1 & 3)], 40_000 + (connection >> 3)),
        ([0, 0x0a00_0009], 80),
    ];
    let (src, dst) = if answers { (b, a) } else { (a, b) };
    ([src.0, dst.0], src.1 << 48 | dst.1 << 32)
}

/// Jobs of two workers on one table: what each row is told, and what is in the table, against the twin. And a map knows which
/// connections are there: one that keeps sending keeps its number.
struct Case<'a> {
    bed: &'a mut Bed,
    items: u32,
    seed: u32,
    tables: [Connections; 2],
    memory: device::driver::Memory,
    numbers: [HashMap<u32, (u32, OfConnection)>; 2],
    /// Rows that had a number before, have a new one, have none.
    seen: [usize; 3],
}

impl Case<'_> {
    /// Launches the kernels over a job, twice perhaps.
    fn launch(&mut self, job: &mut JobBytes, rows: usize, times: usize) {
        let spec = Spec::new("connections", &[&CONNECTIONS], C::COLUMNS);
        let spec = spec.with_group_items(self.items);
        for _ in 0..times {
            let arena = self.bed.memory(job.bytes());
            let memories = Memories { arena, state: self.memory, ..self.bed.memories() };
            let launches = KERNELS.map(|kernel| kernels::Launch {
                job: self.seed,
                ..over_rows(kernel, rows, self.items)
            });
            self.bed.run(&spec, memories, &launches);
            self.bed.read(arena, job.bytes_mut());
            self.bed.free(arena);
        }
    }

    fn is_same(&mut self, name: &str) {
        let expected = bytes_of(&memory_of(&self.tables));
        let mut found = vec![0; expected.len()];
        self.bed.read(self.memory, &mut found);
        assert!(found == expected, "{name}: another table");
    }

    fn packets(&mut self, rows: &[Row], times: usize, name: &str) {
        let mut job = JobBytes::new(C::COLUMNS, rows.len());
        let area = job.add_areas(&[8 * rows.len()])[0];
        job.bytes_mut()[area..].fill(0xa5);
        let mut firsts = HashMap::new();
        let mut own = Vec::new();
        for (row, said) in rows.iter().enumerate() {
            let ([src, dst], ports) = ends(said);
            let words = [7, u64::from(said.status) << 56 | said.flags];
            let is_right = said.status == segment::RIGHT && said.flags & 0x100 == 0;
            let direction = (said.shard, said.connection);
            let group = match is_right {
                true => *firsts.entry(direction).or_insert(row as u32),
                false => NO_ROW,
            };
            job.put(C::FLOW_SRC, row, src);
            job.put(C::FLOW_DST, row, dst);
            job.put(C::FLOW_HEADER0, row, [ports | 40, 3]);
            job.put(C::FLOW_SEGMENT, row, words);
            job.put(C::FLOW_GROUP, row, group);
            job.put(C::SHARD, row, said.shard);
            job.put(C::FLOW_HEAD, row, 60u32);
            job.put(C::FLOW_TIME, row, said.time);
            job.put(C::FLOW_NUMBER, row, 77u32);
            let packet =
                OfConnection::of_columns((src, dst), [ports | 40, 3], words, said.time, self.seed);
            own.push(packet.filter(|_| is_right));
        }
        self.launch(&mut job, rows.len(), times);
        for shard in 0..2 {
            let of: Vec<_> = own
                .iter()
                .zip(rows)
                .map(|(own, said)| own.filter(|_| said.shard == shard as u32))
                .collect();
            let twins = self.tables[shard].job(&of);
            for (row, said) in rows.iter().enumerate().filter(|(_, own)| own.shard == shard as u32)
            {
                let found: u32 = job.get(C::FLOW_NUMBER, row);
                assert_eq!(found, twins[row], "{name}: row {row}, {said:?}");
                let Some(own) = own[row] else { continue };
                let known = self.numbers[shard].get_mut(&said.connection.0);
                match known {
                    _ if found == NO_NUMBER => {
                        assert!(known.is_none(), "{name}: lost {said:?}");
                        self.seen[2] += 1;
                    }
                    Some((number, known)) => {
                        assert_eq!(*number, found, "{name}: {said:?}");
                        known.time = said.time.max(known.time);
                        self.seen[0] += 1;
                    }
                    None => {
                        self.numbers[shard].insert(said.connection.0, (found, own));
                        self.seen[1] += 1;
                    }
                }
            }
        }
        self.is_same(name);
    }

    fn sweep(&mut self, connections: [usize; 2], now: u32, name: &str) {
        let rows: Vec<(u32, usize)> = (0..2)
            .flat_map(|shard| {
                (0..pieces(connections[shard])).map(move |piece| (shard as u32, piece))
            })
            .collect();
        let mut job = JobBytes::new(C::COLUMNS, rows.len());
        job.add_areas(&[8 * rows.len()]);
        for (row, (shard, piece)) in rows.iter().enumerate() {
            job.put(C::SHARD, row, *shard);
            job.put(C::FLOW_GROUP, row, NO_ROW);
            job.put(C::FLOW_HEAD, row, head::SWEEPS | *piece as u32);
            job.put(C::FLOW_TIME, row, now);
            self.tables[*shard as usize].sweep(*piece, now);
        }
        self.launch(&mut job, rows.len(), 1);
        self.is_same(name);
        // Who was seen lately is still there, and who was not has left.
        for (table, numbers) in self.tables.iter().zip(&mut self.numbers) {
            numbers.retain(|connection, (number, own)| {
                let (found, age) = (table.find(own), now.wrapping_sub(own.time));
                assert!(found.is_none_or(|found| found == *number));
                assert!(found.is_some() || age >= OVER_S, "{name}: {connection} has left");
                assert!(found.is_none() || age < IDLE_S, "{name}: {connection} is idle");
                found.is_some()
            });
            assert_eq!(table.len(), numbers.len(), "{name}");
        }
    }
}

fn check(seed: u64, bed: &mut Bed) -> [usize; 3] {
    let mut random = Random(seed);
    let mut all = [0; 3];
    for items in GROUP_ITEMS {
        // One bucket; a few pieces of sweeps; two steps.
        let connections =
            [[8, 16, 8 * SWEPT * WAYS, 20_000][random.below(4)], [8, 64, 1024][random.below(3)]];
        let tables = connections.map(Connections::new);
        let memory = bed.memory(&bytes_of(&memory_of(&tables)));
        let mut case = Case {
            bed: &mut *bed,
            items,
            seed: random.next() as u32,
            tables,
            memory,
            numbers: Default::default(),
            seen: [0; 3],
        };
        let kinds = [1, 4, 30, 400][random.below(4)];
        let mut now = random.next() as u32;
        for round in 0..12 {
            let count = [1, 7, 64, 300, 1000][random.below(5)];
            let rows: Vec<Row> = (0..count)
                .map(|_| Row {
                    shard: random.below(2) as u32,
                    connection: (random.below(kinds) as u32, random.below(2) == 0),
                    status: if random.below(9) > 0 {
                        segment::RIGHT
                    } else {
                        random.below(5) as u8
                    },
                    flags: [0x10, 0x10, 0x10, 2, 0x11, 0x14, 0x110][random.below(7)],
                    time: now.wrapping_sub(random.below(3) as u32),
                })
                .collect();
            let name = format!("seed {seed}, groups of {items}, round {round}, {connections:?}");
            case.packets(&rows, 1 + random.below(2), &name);
            now = now.wrapping_add(random.below(40) as u32);
            if random.below(4) == 0 {
                case.sweep(connections, now, &name);
            }
        }
        all.iter_mut().zip(case.seen).for_each(|(sum, own)| *sum += own);
        let memory = case.memory;
        bed.free(memory);
    }
    all
}

#[test]
fn connections_of_all_kinds() {
    let Some(mut bed) = Bed::open() else { return };
    let mut seen = [0; 3];
    for seed in 0..4 {
        seen.iter_mut().zip(check(72 + seed, &mut bed)).for_each(|(sum, own)| *sum += own);
    }
    assert!(seen.iter().all(|seen| *seen > 300), "{seen:?}");
}

/// With a seed that no run had before; a failure names it.
#[test]
fn the_same_with_a_fresh_seed() {
    let Some(mut bed) = Bed::open() else { return };
    check(RandomState::new().hash_one(0), &mut bed);
}
