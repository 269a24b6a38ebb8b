//! Modules in the kernel dialect: their hash table against its twin, and a program of several modules over frames.

use std::collections::BTreeMap;

use apps::modules::columns::{ModuleColumns as M, layers};
use apps::modules::pieces;
use apps::modules::table::{ADD, CAS, FIND, INSERT, TABLE, TableColumns as T, reference, words};
use chunk::{Attached, Columns, Verdict};
use controlplane::module::{MODULE_DROP, Piece, Table};
use kernels::job::JobBytes;
use kernels::{Launch, Spec};
use testkit::frames::Frame;

use crate::bed::{Bed, GROUP_ITEMS, Memories, over_rows};
use crate::module_program::{ROWS, SLOTS, program};
use crate::random::Random;

fn put(job: &mut JobBytes, row: usize, [operation, key, first, second]: [u32; 4]) {
    job.put(T::TABLE_OPERATION, row, operation);
    job.put(T::TABLE_KEY, row, key);
    job.put(T::TABLE_FIRST, row, first);
    job.put(T::TABLE_SECOND, row, second);
}

fn random_row(random: &mut Random, keys: usize) -> [u32; 4] {
    let operation = [FIND, ADD, CAS, INSERT][random.below(4)];
    [operation, random.below(keys) as u32, random.below(3) as u32, random.below(5) as u32]
}

/// One operation after the other: each answer and each entry is the twin's, up to a full table.
#[test]
fn a_table_is_its_twin() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(61);
    let spec = Spec::of_file(&TABLE);
    for keys in [3, 40, 300] {
        let mut table = Table::new(64);
        let state = bed.memory_of_words(&words(&table));
        let mut full = 0;
        for _ in 0..250 {
            let row = random_row(&mut random, keys);
            let mut job = JobBytes::new(T::COLUMNS, 1);
            put(&mut job, 0, row);
            let arena = bed.memory(job.bytes());
            let launch = Launch { job: 63, ..over_rows("module_table", 1, 64) };
            let memories = Memories { arena, state, ..bed.memories() };
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            bed.free(arena);
            let expected = reference(&mut table, row);
            full += expected.1;
            assert_eq!(
                (job.get(T::TABLE_RESULT, 0), job.get(T::TABLE_ERROR, 0)),
                expected,
                "{row:?}"
            );
        }
        assert_eq!(bed.read_words(state, 128), words(&table));
        assert!(keys < 300 || full > 0, "no table was full");
        bed.free(state);
    }
}

/// Thousands of rows at once, on few keys: sums are those of the twin, of all that insert one key exactly one does, and what
/// is swapped in turn is counted once.
#[test]
fn a_table_is_shared_by_all_rows() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(62);
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&TABLE).with_group_items(items);
        for rows in [1, 64, 257, 4099] {
            let mut job = JobBytes::new(T::COLUMNS, rows);
            let mut sums: BTreeMap<u32, u32> = BTreeMap::new();
            for row in 0..rows {
                let key = 1 + random.below(50) as u32;
                match random.below(2) {
                    0 => {
                        let more = random.below(100) as u32;
                        *sums.entry(key).or_default() += more;
                        put(&mut job, row, [ADD, key, more, 0]);
                    }
                    _ => put(&mut job, row, [INSERT, 1000 + key, 1 + row as u32, 0]),
                }
            }
            let arena = bed.memory(job.bytes());
            let state = bed.memory_of_words(&[0; 2 * 1024]);
            let launch = Launch { job: 1023, ..over_rows("module_table", rows, items) };
            let memories = Memories { arena, state, ..bed.memories() };
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            let found = bed.read_words(state, 2 * 1024);
            bed.free(arena);
            bed.free(state);
            let found: BTreeMap<u32, u32> =
                found.chunks_exact(2).filter(|e| e[0] != 0).map(|e| (e[0], e[1])).collect();
            let mut winners: BTreeMap<u32, u32> = BTreeMap::new();
            for row in 0..rows {
                assert_eq!(job.get::<u32>(T::TABLE_ERROR, row), 0);
                let is_insert = job.get::<u32>(T::TABLE_OPERATION, row) == INSERT;
                if is_insert && job.get::<u32>(T::TABLE_RESULT, row) == 1 {
                    let (key, value) = (job.get(T::TABLE_KEY, row), job.get(T::TABLE_FIRST, row));
                    assert_eq!(winners.insert(key, value), None, "two rows inserted {key}");
                }
            }
            sums.extend(winners);
            assert_eq!(found, sums, "{items} items, {rows} rows");
        }
    }
}

/// Runs the modules over a few frames and compares what they did with what they should.
pub(crate) fn program_over_frames(bed: &mut Bed, items: u32) {
    let (text, names) = program();
    let key = format!("modules {items}");
    bed.build(&key, format!("#define GROUP_ITEMS {items}\n{text}"), names.clone());
    let four = Frame::new().ipv4("192.0.2.1", "198.51.100.1").ttl(64);
    let udp = |from, to, ttl| four.clone().ttl(ttl).udp(from, to, b"payload").padded(60);
    // By row: frame, slot, and what becomes of it: 0 next, 1 drop, 2 dump.
    let frames = [
        (udp(1, 53, 64), 0, 2), // the first packet of port 53 is dumped
        (udp(1, 53, 64), 0, 0),
        (udp(2, 53, 4), 3, 1),  // its TTL
        (udp(1, 53, 64), 0, 1), // more than 130 bytes
        (udp(2, 22, 4), 1, 0),  // trusted: ignored by all others
        (udp(2, 22, 4), 1, 0),
        (four.clone().tcp(5, 80, 1, b"\r\nHos").padded(60), 2, 1), // brings "t: bad", which waited
        (four.clone().tcp(5, 80, 12, b"xxxxxx").padded(60), 2, 1),
        (udp(9, 53, 64), u32::MAX, 0),
        (vec![7; 60], u32::MAX, 0),
    ];
    let mut payload = Vec::new();
    let mut job = JobBytes::new(M::COLUMNS, ROWS);
    for (row, (frame, slot, _)) in frames.iter().enumerate() {
        let mut d = packet::Decoded::default();
        packet::decode::decode_into(frame, frame.len(), &mut d);
        job.put(M::MODULE_AT, row, payload.len() as u32);
        job.put(M::MODULE_LEN, row, frame.len() as u32);
        payload.extend_from_slice(frame);
        payload.resize(payload.len().next_multiple_of(16), 0);
        if row == 6 {
            let (own, waited): (&[u8], &[u8]) = (b"\r\nHos", b"t: bad");
            let piece = |offset, bytes| Piece { is_reply: false, offset, bytes };
            let mut attached = Attached::default();
            let all = [(piece(0, own), Some(54)), (piece(6, waited), None)];
            let count = pieces::attach(&mut attached, row, all.into_iter());
            job.put(M::MODULE_PIECES, row, count);
            payload.extend_from_slice(attached.of(row));
            payload.resize(payload.len().next_multiple_of(16), 0);
        }
        let (l3, l4, end) = (u64::from(d.l3_offset), u64::from(d.l4_offset), d.l3_end() as u64);
        let (has, data) = match (d.is_ip(), d.protocol.0) {
            (true, 17) => (layers::ETH | layers::IP | layers::UDP, l4 + 8),
            (true, _) => (layers::ETH | layers::IP | layers::TCP | layers::STREAM, l4 + 20),
            _ => (layers::ETH, 0),
        };
        job.put(M::MODULE_LAYERS, row, has);
        job.put(M::MODULE_HEAD, row, l3 | l4 << 16 | data << 32 | end << 48);
        let info = u32::from(d.protocol.0) | u32::from(d.ttl) << 8;
        job.put(M::MODULE_INFO, row, info);
        job.put(M::MODULE_SEES, row, 31u32);
        job.put(M::MODULE_SLOT, row, *slot);
        job.put(M::MODULE_GENERATION, row, 1u32);
        job.put(
            M::MODULE_PIECE,
            row,
            data as u32 | ((end - data) as u32 * u32::from(data > 0)) << 16,
        );
    }
    let mut sorted: Vec<u32> = (0..ROWS as u32).collect();
    sorted.sort_by_key(|row| frames[*row as usize].1);
    let tables: Vec<u32> = [vec![0; ROWS], sorted].concat();
    let arena = bed.memory(job.bytes());
    let state = bed.memory_of_words(&vec![0; 16 * (SLOTS + ROWS)]);
    let (tables, before) = (bed.memory_of_words(&tables), payload.clone());
    let packets = bed.memory(&payload);
    let launches: Vec<Launch> = names.iter().map(|name| over_rows(name, ROWS, items)).collect();
    bed.launch(&key, Memories { arena, payload: packets, tables, state }, &launches);
    bed.read(arena, job.bytes_mut());
    bed.read(packets, &mut payload);
    for memory in [arena, packets, tables, state] {
        bed.free(memory);
    }
    // Ports are counted at once by all rows: any of the first packets of a port may be the one that is dumped.
    let mut dumped = 0;
    for (row, (frame, _, expected)) in frames.iter().enumerate() {
        let verdict = Verdict(job.get(M::VERDICT, row));
        let at: u32 = job.get(M::MODULE_AT, row);
        let (at, len) = (at as usize, frame.len());
        let is_changed = payload[at..at + len] != before[at..at + len];
        if verdict == Verdict::DUMP {
            dumped += 1;
            assert!(!is_changed, "row {row}");
            continue;
        }
        match expected {
            1 => assert_eq!(verdict, Verdict::drop(MODULE_DROP), "row {row}"),
            _ => assert_eq!(verdict, Verdict::NEXT, "row {row}"),
        }
        let is_udp = job.get::<u32>(M::MODULE_LAYERS, row) & layers::UDP != 0;
        let is_ignored = job.get::<u32>(M::MODULE_IGNORED, row) != 0;
        assert_eq!(is_ignored, row == 4 || row == 5, "row {row}");
        assert_eq!(is_changed, is_udp && verdict.is_next() && !is_ignored, "row {row}");
        assert_eq!(job.get::<u32>(M::MODULE_ERROR, row), 0, "row {row}");
    }
    assert_eq!(dumped, 1, "a packet of port 53");
}

#[test]
fn modules_of_a_program_do_their_work() {
    let Some(mut bed) = Bed::open() else { return };
    for items in [32, 256] {
        program_over_frames(&mut bed, items);
    }
}
